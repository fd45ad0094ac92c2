"""What must be true of every step of a session that is run (S1 to S10), whatever the rules say: told by what it was
before, what was done, and what it is then. Nothing here is asked of `rules`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sessions_exec.world import MOST_RECOVERIES, Act, Input, State

OF_HOLDERS = {"renew", "say", "begin", "promote", "release"}


def broken(before: State, act: Act, after: State, accepted: bool) -> str:
    """The first promise that a step breaks, in words; empty where it keeps all."""
    return next(_broken(before, act, after, accepted), "")


def _broken(before: State, act: Act, after: State, accepted: bool) -> Iterator[str]:
    if accepted:
        yield from _of_the_lease(before, act, after)
    if after.log < before.log:
        yield "S10: an event of a past epoch came after one of a later one"
    yield from _of_inputs(before, act, after)
    if accepted:
        yield from _of_wishes(before, act, after)
    if act.name in {"acquire", "scan"}:
        yield from _of_recovery(before, act, after, accepted)
    elif after.told != before.told:
        yield "S7: a recovery without a scan or an acquisition"
    yield from _at_any_time(after)


def _of_the_lease(before: State, act: Act, after: State) -> Iterator[str]:
    row = before.row
    if act.name == "acquire":
        if row.held and row.unexpired:
            yield "S1: a live execution was replaced"
        if after.row.epoch <= row.epoch:
            yield "S2: an epoch was used again"
        return
    if act.name in OF_HOLDERS and not (row.held and row.unexpired and before.holders[act.which].epoch == row.epoch):
        yield "S3: a holder acted that holds no more"
    if act.name == "commit" and not (row.held and before.holders[act.which].epoch == row.epoch):
        yield "S3: a guarded write came after the take-over"
    if act.name == "speak" and row.held and row.unexpired:
        yield "S1: somebody wrote beside a live execution"
    if act.name == "dispatch" and _alone(before, act) and row.phase != "unknown":
        yield "S6: something was dispatched in another phase than unknown"


def _alone(before: State, act: Act) -> bool:
    return before.row.held and before.row.unexpired and before.holders[act.which].epoch == before.row.epoch


def _of_inputs(before: State, act: Act, after: State) -> Iterator[str]:
    for old, new in zip(before.inputs, after.inputs, strict=False):
        if old.uid != new.uid or (old.state != "pending" and new.state != old.state):
            yield "S5: an input that was settled was settled again"
        if old.state == "pending" and new.state == "promoted" and act.name != "promote":
            yield "S5: an input was promoted at no boundary"
        if old.state == "pending" and new.state == "cancelled" and not _may_cancel(old, act):
            yield "S6: an admitted input was dropped"
    if len(after.inputs) < len(before.inputs):
        yield "S5: an input is gone"
    if act.name == "promote":
        yield from _of_promotion(before, act, after)


def _may_cancel(one: Input, act: Act) -> bool:
    return act.name == "cancel" or (one.kind == "continuation" and act.name in {"acquire", "scan"})


def _of_wishes(before: State, act: Act, after: State) -> Iterator[str]:
    if act.name == "interrupt" and any(one.wanted for one in _pending(after)):
        yield "S6: an interrupt kept an earlier wish"
    if act.name == "again" and before.inputs[act.which].admitted_as != act.word:
        yield "S4: another delivery passed for a retry"
    if act.name == "flip" and after.inputs[act.which].wanted < (act.word == "steer" or before.inputs[act.which].wanted):
        yield "S6: a wish was forgotten without an interrupt"


def _of_promotion(before: State, act: Act, after: State) -> Iterator[str]:
    taken = [old for old, new in zip(before.inputs, after.inputs, strict=True) if old.state != new.state]
    queued = [one for one in taken if one.kind == "prompt" and one.delivery == "queue"]
    if taken and any(one.kind == "continuation" for one in _pending(after)):
        yield "S7: what is uncertain was not looked at first"
    if any(one.delivery == "steer" for one in _pending(after)) and after.inputs != before.inputs:
        yield "S5: an input that steers was passed over"
    if queued and (act.word == "step" or len(taken) > 1):
        yield "S5: what was queued did not wait for its turn"
    if act.word == "idle" and _pending(before) and not taken and _holds(before, act):
        yield "S5: the session would go idle beside an input"


def _holds(before: State, act: Act) -> bool:
    row = before.row
    return row.held and row.unexpired and before.holders[act.which].epoch == row.epoch


def _of_recovery(before: State, act: Act, after: State, accepted: bool) -> Iterator[str]:
    row = before.row
    told = after.told[len(before.told) :]
    if not (row.held and not row.unexpired and accepted):
        if told:
            yield "S7: something was recovered that had not expired"
        return
    if act.name == "scan" and after.row.held:
        yield "S7: a recovered execution is still held"
    overtaken = 0 < row.answer < before.answers
    if told != (() if row.phase == "safe" or overtaken else (row.epoch,)):
        yield "S7: not exactly one recovery of what is uncertain, and none of what is not"
    if told:
        yield from _of_what_is_told(before, after)


def _of_what_is_told(before: State, after: State) -> Iterator[str]:
    if after.marked[-1] != before.row.answer:
        yield "S8: another answer than that of the execution was marked"
    left = [one for one in _pending(after) if one.kind == "continuation"]
    if before.recoveries + 1 >= MOST_RECOVERIES:
        if left or after.turn == before.turn:
            yield "S9: a turn went on after its last recovery"
    elif [one.wanted for one in left] != [not before.row.interrupted]:
        yield "S7: not exactly one continuation, wanted unless there was an interrupt"


def _at_any_time(state: State) -> Iterator[str]:
    wanted = any(one.wanted for one in _pending(state))
    if wanted and not state.row.held and not state.woken:
        yield "S6: an input waits in vain"
    for epoch in state.uncertain:
        if epoch not in (*state.told, *state.passed) and not (state.row.held and state.row.epoch == epoch):
            yield "S8: something uncertain was passed over silently"


def _pending(state: State) -> list[Input]:
    return [one for one in state.inputs if one.state == "pending"]
