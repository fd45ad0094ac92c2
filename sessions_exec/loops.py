"""Asynchronous calls from code that waits for them, on an event loop of their own.

Whoever waits in the main thread can be broken off there (see `break_off`). An exception that a signal's handler raises
would not do: it comes up wherever the thread happens to be, and what a weak reference calls, for one, swallows it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 1.0


@dataclass
class _Call:
    """The call that the main thread waits for."""

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any]
    error: BaseException | None = None


_call: _Call | None = None


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run on an event loop of its own, in another thread where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _on_new_loop(call)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_on_new_loop, call).result()


def break_off(error: BaseException) -> bool:
    """Cancel the call that the main thread waits for, which ends with `error` then. False where it waits for none.

    For the handlers of signals: it raises nothing.
    """
    if _call is None:
        return False
    _call.error = _call.error or error
    _call.loop.call_soon_threadsafe(_call.task.cancel)
    return True


def _on_new_loop(call: Coroutine[Any, Any, T]) -> T:
    # Not `asyncio.run`: it waits without bound for a name lookup that hangs in a thread.
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(call)
        if threading.current_thread() is threading.main_thread():
            return _so_that_it_can_be_broken_off(loop, task)
        return loop.run_until_complete(task)
    finally:
        # A task's time limit may break out of the loop by a signal: the connection is closed all the same.
        if left := asyncio.all_tasks(loop):
            for each in left:
                each.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_SECONDS))
        loop.close()


def _so_that_it_can_be_broken_off(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    global _call
    _call = call = _Call(loop, task)
    try:
        answer = loop.run_until_complete(task)
    except BaseException as error:
        if call.error is None:
            raise
        raise call.error from error
    finally:
        _call = None
    if call.error is not None:
        raise call.error
    return answer
