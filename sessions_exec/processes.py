"""Processes that end with the process that started them, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable

import psutil

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 0.5


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let this process get signal `number` when its parent dies; at once if `parent` is dead already.

    Linux tells it by itself; elsewhere a thread looks. Call it from the main thread of a process that was started
    by the main thread of its parent: Linux watches the parent's thread.
    """
    if not _ask_linux(number):
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def bind_forked_children() -> None:
    """Let every process that is forked from here on end with the one that forked it."""
    before = threading.local()

    def remember() -> None:
        before.pid = os.getpid()

    def bind() -> None:
        end_with_parent(before.pid)

    os.register_at_fork(before=remember, after_in_child=bind)


def signal_group(group: int, number: int) -> None:
    """Signal every process of a group that `start_new_session` made, those that are left of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and waits for its parent does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """The processes that a process started, and those that they did."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def terminate_leaves(pid: int) -> None:
    """Ask those descendants of a process to end that have none themselves."""
    for process in descendants(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            if not process.children():
                process.terminate()


def kill(found: Iterable[psutil.Process]) -> None:
    """Kill each of them that is still there."""
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _ask_linux(number: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)


def _watch(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), number)
