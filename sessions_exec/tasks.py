"""The edge of every task."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils.module_loading import import_string

from sessions_exec import loops
from sessions_exec.errors import TaskFailed, TaskStopped
from sessions_exec.services import ticks

logger = logging.getLogger(__name__)


def perform(function: str, argument: int | str | None = None, regular: str = "") -> None:
    """Call `function`, with its argument if it has one. `regular` is the name under which regular work is noted.

    Raises `TaskFailed`, which tells the kind of error alone: what the queue keeps and logs of it holds no content.
    Raises `TaskStopped` in the midst of the function when the worker is asked to stop.
    """
    try:
        with stopped_by(signal.SIGTERM):
            call = import_string(function)
            outcome = call() if argument is None else call(argument)
    except Exception as error:
        logger.exception("a task failed", extra={"action": "task.failed", "function": function, "argument": argument})
        raise TaskFailed(f"{function}: {type(error).__name__}") from None
    if regular:
        ticks.note(regular, outcome)


@contextmanager
def stopped_by(*numbers: signal.Signals) -> Iterator[None]:
    """Raise `TaskStopped` in the midst of the block when this process gets one of the signals (D20).

    A call of the network that is waited for is broken off in order, and ends with it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        stopped = TaskStopped(128 + number)
        if not loops.break_off(stopped):
            raise stopped

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
