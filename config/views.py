"""The probes, which need no token: is the process up, may traffic come here, is the work done (D26). And figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.csrf import csrf_exempt

from config import health
from config import metrics as figures


def _for_reading(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Any other method is told in a line that it is none here. It changes nothing, and so needs no token of a form."""

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        if request.method in ("GET", "HEAD"):
            return view(request)
        refused = _plain(405, "this is for GET alone")
        refused["Allow"] = "GET, HEAD"
        return refused

    return answer


@_for_reading
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is up. Asks nothing of anything else."""
    return _plain(200, "ok")


@_for_reading
def readyz(request: HttpRequest) -> HttpResponse:
    """Traffic may come here; else 503 and what is missing, a line each."""
    missing = health.ready()
    return _plain(503, "\n".join(missing)) if missing else _plain(200, "ready")


@_for_reading
def progressz(request: HttpRequest) -> HttpResponse:
    """The work is done, or something that is known keeps it; else 503 and one line why."""
    try:
        line = health.progress()
    except DatabaseError:
        line = "the database does not answer"
    return _plain(503, line) if line else _plain(200, "working")


@_for_reading
def metrics(request: HttpRequest) -> HttpResponse:
    """Figures for a scraper that shows the token of the settings. For everybody else there is nothing here."""
    expected = settings.AGENTMEMORY_METRICS_TOKEN
    shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not expected or not constant_time_compare(shown, expected):
        raise Http404
    try:
        text, media_type = figures.page(request.headers.get("Accept", ""))
    except DatabaseError:
        return _plain(503, "the database does not answer")
    return HttpResponse(text, content_type=media_type, headers={"Cache-Control": "no-store"})


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(
        f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"}
    )
