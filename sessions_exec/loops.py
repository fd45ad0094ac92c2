"""Asynchronous calls from code that waits for them, on an event loop of their own."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 1.0


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run on an event loop of its own, in another thread where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _on_new_loop(call)
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_on_new_loop, call).result()


def _on_new_loop(call: Coroutine[Any, Any, T]) -> T:
    # Not `asyncio.run`: it waits without bound for a name lookup that hangs in a thread.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(call)
    finally:
        # A task's time limit may break out of the loop by a signal: the connection is closed all the same.
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_SECONDS))
        loop.close()
