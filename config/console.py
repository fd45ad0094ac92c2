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


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Agent Memory",
    "SITE_HEADER": "Agent Memory",
    "SITE_SUBHEADER": "Operators' console",
    "SITE_SYMBOL": "neurology",
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": [_static("console/console.css")],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("console/favicon.svg")}],
    "DASHBOARD_CALLBACK": "config.dashboard.start",
    "TABS": "config.navigation.tabs",
    "SIDEBAR": {
        "show_search": True,
        "command_search": True,
        "show_all_applications": False,
        "navigation": "config.navigation.sidebar",
    },
    "BORDER_RADIUS": "6px",
    "COLORS": {
        # Teal: none of the colours of state.
        "primary": {
            "50": "oklch(98.4% .014 200)",
            "100": "oklch(95.3% .036 200)",
            "200": "oklch(91% .065 200)",
            "300": "oklch(85% .09 202)",
            "400": "oklch(76% .11 205)",
            "500": "oklch(66% .11 208)",
            "600": "oklch(56% .1 212)",
            "700": "oklch(48% .085 214)",
            "800": "oklch(41% .07 216)",
            "900": "oklch(36% .06 218)",
            "950": "oklch(28% .05 220)",
        },
    },
}
