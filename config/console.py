"""How the console looks and where it starts, for unfold. It is read by the settings, so it imports no app."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.http import HttpRequest


def _static(name: str) -> Callable[[HttpRequest], str]:
    def found(request: HttpRequest) -> str:
        # Asked at a request, when the settings are complete.
        from django.templatetags.static import static

        return static(name)

    return found


def without_inline_styles(request: HttpRequest) -> dict[str, Any]:
    """unfold would write its colours into each page, which the policy forbids: they are a file (`colours.css`)."""
    return {"colors": None}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Agent Memory",
    "SITE_HEADER": "Agent Memory",
    "SITE_SUBHEADER": "Operators' console",
    "SITE_SYMBOL": "neurology",
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "LOGIN": {"form": "config.logins.LoginForm"},
    "STYLES": [_static("console/colours.css"), _static("console/console.css")],
    "SCRIPTS": [_static("console/quiet.js"), _static("console/palette.js"), _static("console/copy.js")],
    "GLOBAL_CALLBACK": "config.console.without_inline_styles",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("console/favicon.svg")}],
    "DASHBOARD_CALLBACK": "config.dashboard.start",
    "TABS": "config.navigation.tabs",
    "SIDEBAR": {
        "show_search": True,
        "command_search": True,
        "show_all_applications": False,
        "navigation": "config.navigation.sidebar",
    },
}
