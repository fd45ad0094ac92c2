"""What the console says where the database does not take it now: why, and that nothing is broken here."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

from agentmemory import sqlstates
from agentmemory.api import problems

logger = logging.getLogger(__name__)


class UnavailableMiddleware(MiddlewareMixin):
    """503 and a sentence for pages that could not be read, or whose look could not be put on record."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not request.path_info.startswith("/admin/") or not sqlstates.passes(error):
            return None
        logger.error("a page was not shown", extra={"action": "page.unavailable", "kind": type(error).__name__})
        page = render_to_string("console/unavailable.html", {"why": problems.why_not(error)})
        return HttpResponse(page, status=503, headers={"Retry-After": "10"})
