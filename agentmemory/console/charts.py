"""Stacked charts over days, for unfold's own chart script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

NO_MONEY: Final = Decimal(0)
COLOURS: Final[dict[str, str]] = {
    "curated": "#15803d",
    "distilled": "#7c3aed",
    "applied": "#15803d",
    "empty": "#9ca3af",
    "failed": "#dc2626",
    "in": "#2563eb",
    "out": "#0e7490",
}
OPTIONS: Final[dict[str, Any]] = {
    "animation": False,
    "responsive": True,
    "maintainAspectRatio": False,
    "plugins": {
        "legend": {
            "display": True,
            "position": "bottom",
            "labels": {"boxWidth": 10, "boxHeight": 10, "color": "#9ca3af"},
        }
    },
    "scales": {
        "x": {"stacked": True, "grid": {"display": False}, "ticks": {"maxTicksLimit": 8, "color": "#9ca3af"}},
        "y": {"stacked": True, "beginAtZero": True, "ticks": {"precision": 0, "color": "#9ca3af"}},
    },
}


def stacked(days: Sequence[date], kinds: Sequence[str], counts: Mapping[tuple[date, str], int]) -> dict[str, Any]:
    """One bar a day, one part of it a kind, in its colour."""
    return {
        "labels": [f"{day:%d.%m.}" for day in days],
        "datasets": [
            {
                "label": kind,
                "data": [counts.get((day, kind), 0) for day in days],
                "backgroundColor": COLOURS[kind],
                "maxBarThickness": 14,
                "stack": "day",
            }
            for kind in kinds
        ],
    }
