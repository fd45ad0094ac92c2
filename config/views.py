"""The probes, which need no token: is the process up, may traffic come here, is the work done (D26)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse


def healthz(request: HttpRequest) -> HttpResponse:
    """The process is up. Asks nothing else of anything else."""
    return _plain(200, "ok")


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(
        f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"}
    )
