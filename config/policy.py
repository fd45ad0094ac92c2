"""What a browser may do with an answer: the content security policy, and the headers beside it.

No script or style runs that stands in a page itself: they are files of this host. The console's own parts (Alpine)
evaluate the expressions in their attributes and set attributes of style, so that its pages, and they alone, allow both.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OWN = (
    "default-src 'none'; script-src 'self'{script}; style-src 'self'{style}; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
CONSOLE = _OWN.format(script=" 'unsafe-eval'", style="; style-src-attr 'unsafe-inline'")
# The page that shows the API is another's, which styles what it draws by attributes.
DOCUMENT = _OWN.format(script="", style=" 'unsafe-inline'")
PERMISSIONS = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


class PolicyMiddleware(MiddlewareMixin):
    """Answers that say nothing of it themselves get the policy of their place."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", _policy(request.path_info))
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


def _policy(path: str) -> str:
    if path.startswith("/admin/"):
        return CONSOLE
    return DOCUMENT if path == "/api/v1/docs" else NOTHING
