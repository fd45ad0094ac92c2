"""The probes, which need no token: is the process up, may traffic come here, is the work done (D26)."""

from __future__ import annotations

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse

from config import health


def healthz(request: HttpRequest) -> HttpResponse:
    """The process is up. Asks nothing of anything else."""
    return _plain(200, "ok")


def readyz(request: HttpRequest) -> HttpResponse:
    """Traffic may come here; else 503 and what is missing, a line each."""
    missing = health.ready()
    return _plain(503, "\n".join(missing)) if missing else _plain(200, "ready")


def progressz(request: HttpRequest) -> HttpResponse:
    """The work is done, or something that is known keeps it; else 503 and one line why."""
    try:
        line = health.progress()
    except DatabaseError:
        line = "the database does not answer"
    return _plain(503, line) if line else _plain(200, "working")


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(
        f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"}
    )
