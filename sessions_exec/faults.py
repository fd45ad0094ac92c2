"""Named points in the work, at which a test can kill, stop or delay the process. Nothing happens there otherwise."""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """The work has come to `point`."""
    if _hook is not None:
        _hook(point)


def install(hook: Callable[[str], None] | None) -> None:
    """Call `hook` at every point from now on; `None` takes it out again."""
    global _hook
    _hook = hook
