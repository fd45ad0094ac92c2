"""A process that is asked to stop while it waits for the network stops, wherever the signal finds it (D20)."""

from __future__ import annotations

import asyncio
import signal
import weakref

import pytest

from sessions_exec import loops, tasks
from sessions_exec.errors import TaskStopped

Patch = pytest.MonkeyPatch


class Thing:
    """Something that is told of when it goes."""


async def asked_where_exceptions_are_swallowed(seconds: float) -> str:
    """A call in which SIGTERM comes while a weak reference calls back: nothing that is raised there gets out."""
    thing = Thing()
    gone = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing
    assert gone() is None
    await asyncio.sleep(seconds)
    return "answered"


def test_d20_a_stop_breaks_a_call_off_even_where_exceptions_are_swallowed() -> None:
    with pytest.raises(TaskStopped) as stopped, tasks.stopped_by(signal.SIGTERM):
        loops.run(asked_where_exceptions_are_swallowed(20))
    assert stopped.value.code == 143
    assert loops.run(asyncio.sleep(0, "the next call")) == "the next call"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_control_with_a_handler_that_raises_the_stop_is_lost(monkeypatch: Patch) -> None:
    monkeypatch.setattr(loops, "break_off", lambda error: False)
    with tasks.stopped_by(signal.SIGTERM):
        assert loops.run(asked_where_exceptions_are_swallowed(0)) == "answered"


def test_d20_a_stop_is_told_though_the_call_ends_with_an_error_of_its_own() -> None:
    async def fails() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise OSError

    with pytest.raises(TaskStopped), tasks.stopped_by(signal.SIGTERM):
        loops.run(fails())


def test_d20_a_stop_beside_no_call_is_raised_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(TaskStopped), tasks.stopped_by(signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
