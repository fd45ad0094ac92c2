"""Work for tasks in tests; what was done is told in rows of `Tick`."""

from __future__ import annotations

import os
import signal
import time

from sessions_exec.errors import TaskStopped
from sessions_exec.services import ticks


def remember(number: int = 0) -> None:
    ticks.note(f"remembered {number}", os.getpid())


def tell() -> str:
    return "told"


def fail(text: str) -> None:
    raise ValueError(text)


def be_asked_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def take_long(seconds: int) -> None:
    """Work for so many seconds, and say whether it came to its end or was stopped."""
    ticks.note("long work", "begun")
    try:
        time.sleep(seconds)
    except TaskStopped:
        ticks.note("long work", "given back")
        raise
    ticks.note("long work", "done")


def die(_: int) -> None:
    """Kill the worker in the midst of its task."""
    os.kill(os.getpid(), signal.SIGKILL)
