"""What every answer under `/api/` has in common, whoever gave it: a view, the router, or Django itself."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from agentmemory.api import problems
from config.api import conditions

PREFIX = "/api/"

_DETAILS = {
    400: "The request cannot be read.",
    404: "There is nothing here.",
    405: "This cannot be done here.",
}


class ApiMiddleware(MiddlewareMixin):
    """Makes every error of the API a problem document, keeps what agents read out of caches, and sends no more than it
    has to."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            return response
        if response.status_code >= 400 and response.headers.get("Content-Type") != problems.MEDIA_TYPE:
            response = _problem(response)
        response.headers.setdefault("Cache-Control", "no-store")
        if isinstance(response, HttpResponse):
            return conditions.compressed(request, conditions.tagged(request, response))
        return response


def _problem(response: HttpResponseBase) -> HttpResponseBase:
    kept = {name: response.headers[name] for name in ("Allow", "Retry-After") if name in response.headers}
    detail = _DETAILS.get(response.status_code, "Something went wrong here.")
    answer = problems.response(response.status_code, detail, headers=kept)
    # Those who would say the length stand further in.
    answer.headers["Content-Length"] = str(len(answer.content))
    return answer
