"""A trace of the small world, gone over again with the services on PostgreSQL.

The machine of `execution_model` takes each step and holds the services to its own expectations; beside that, what it
comes to must be what the small world came to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sessions_exec import world
from tests.sessions_exec.execution_model import Machine
from tests.sessions_exec.world import Act, State
from tests.support.running import row

OF_HOLDERS = {"acquire", "crash", "dispatch", "renew", "say", "promote", "release"}


def retrace(trace: Sequence[tuple[State, Act]]) -> None:
    """Raises `AssertionError` where the services and the small world part."""
    machine = Machine()
    machine.begin()
    try:
        for before, act in trace:
            _take(machine, before, act)
            machine.the_rows_are_those_of_the_model()
            _agree(machine, world.do(before, act)[0])
        machine.the_log_has_no_gap_and_no_epoch_of_the_past()
    finally:
        machine.teardown()


def _take(machine: Machine, before: State, act: Act) -> None:
    if act.name in OF_HOLDERS:
        _of_a_holder(machine, before.holders[act.which].epoch, act)
        return
    # The machine counts from the newest.
    number = len(before.inputs) - 1 - act.which
    match act.name:
        case "expire":
            machine.let_the_time_be_over()
        case "speak":
            machine.say_without_running_it(kind="assistant")
        case "admit":
            machine.admit(delivery=act.word, resume=True)
        case "again":
            _admit_again(machine, before, act)
        case "flip":
            machine.flip(number=number, delivery=act.word)
        case "cancel":
            machine.cancel(number=number)
        case "interrupt":
            machine.interrupt()
        case "scan":
            machine.scan()


def _of_a_holder(machine: Machine, epoch: int, act: Act) -> None:
    """By the number that the machine knows its token by; what a crash or a dispatch does is not in the database."""
    token: dict[str, Any] = {"number": 20 + len(machine.tokens) - epoch}
    match act.name:
        case "acquire":
            machine.acquire(owner=f"holder {act.which}")
        case "renew":
            machine.renew(**token, phase=act.word or None)
        case "say":
            machine.say(**token, kind="assistant" if act.word == "answer" else "result")
        case "promote":
            machine.promote(**token, boundary=act.word)
        case "release":
            machine.release(**token)


def _admit_again(machine: Machine, before: State, act: Act) -> None:
    prompts = [one for one in before.inputs if one.kind == "prompt"]
    one = before.inputs[act.which]
    if one.kind == "prompt":
        number = len(prompts) - 1 - prompts.index(one)
        machine.admit_again(number=number, delivery=act.word, resume=True)


def _agree(machine: Machine, state: State) -> None:
    model = machine.model
    assert [(one.kind, one.delivery, one.state) for one in model.inputs] == [
        (one.kind, one.delivery, one.state) for one in state.inputs
    ]
    assert [one.resume for one in model.pending()] == [one.wanted for one in state.inputs if one.state == "pending"]
    assert tuple(model.recovered) == state.told
    if state.row.epoch:
        found = row(machine.session)
        assert (found.epoch, bool(found.holder), found.phase) == (state.row.epoch, state.row.held, state.row.phase)
        assert bool(found.interrupted_at) == state.row.interrupted
        assert bool(found.assistant_uid) == bool(state.row.answer)
        assert model.is_live() == world.live(state.row)
