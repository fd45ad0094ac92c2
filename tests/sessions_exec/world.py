"""A session that is run, small enough to look at every course of events: values, and what each act makes of them.

What is decided once the facts are read is asked of `sessions_exec.rules`, as the services do. What the database
decides in a statement stands here a second time, a line each (`live` to `wakes`); the traces that `explorer` finds are
gone over again with the services, so that the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sessions_exec import rules

MOST_RECOVERIES = 2


class Row(NamedTuple):
    """The execution's row."""

    epoch: int = 0
    held: bool = False
    unexpired: bool = False
    phase: str = "safe"
    answer: int = 0
    interrupted: bool = False


class Holder(NamedTuple):
    """What one holder believes: its epoch, whether its last answered move lets it dispatch, an open guarded write."""

    epoch: int = 0
    may_dispatch: bool = False
    writing: bool = False


class Input(NamedTuple):
    uid: str
    kind: str
    delivery: str
    admitted_as: str
    wanted: bool = True
    state: str = "pending"


class State(NamedTuple):
    """All of it. What follows `woken` is known to nobody but whoever checks: the epochs that were told of by a
    recovery, and those that the conversation had gone past; which answers were marked; and under which epochs
    something was dispatched that is not recorded."""

    row: Row = Row()
    holders: tuple[Holder, ...] = (Holder(), Holder())
    inputs: tuple[Input, ...] = ()
    answers: int = 0
    turn: int = 0
    recoveries: int = 0
    log: int = 0
    crashes: int = 0
    woken: bool = False
    told: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    uncertain: tuple[int, ...] = ()


class Act(NamedTuple):
    """One step: of the holder or on the input of number `which`, with one more word where it needs one."""

    name: str
    which: int = 0
    word: str = ""


class Bounds(NamedTuple):
    """How far courses of events go, and what never happens in them.

    With `open_writes`, a guarded write is two steps: its fence, and its commit.
    """

    depth: int
    epochs: int = 3
    answers: int = 2
    crashes: int = 1
    open_writes: bool = False
    without: frozenset[str] = frozenset()


Outcome = tuple[State, bool]
"""What came of an act, and whether it was accepted."""


# --- what the database decides ---


def live(row: Row) -> bool:
    return row.held and row.unexpired


def expired(row: Row) -> bool:
    return row.held and not row.unexpired


def free(row: Row) -> bool:
    return not row.held


def fence(row: Row, epoch: int) -> bool:
    return row.epoch == epoch and row.unexpired


def hold(row: Row, epoch: int) -> bool:
    return row.epoch == epoch and fence(row, epoch)


def holds(row: Row, epoch: int) -> bool:
    """For a change of the row itself."""
    return row.epoch == epoch and live(row)


def locked(state: State) -> bool:
    """Whether a guarded write keeps the row from being taken over."""
    return any(one.writing and one.epoch == state.row.epoch for one in state.holders)


def next_epoch(row: Row) -> int:
    return row.epoch + 1


def closed(row: Row) -> Row:
    return Row(epoch=row.epoch)


def moved(row: Row, phase: str) -> Row:
    return row._replace(phase=phase)


def own(state: State) -> int | None:
    return state.row.answer or None


def forget(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """What an interrupt does to inputs."""
    return tuple(one._replace(wanted=False) if one.state == "pending" else one for one in inputs)


def wakes(state: State) -> bool:
    return stranded(state)


# --- small parts ---


def stranded(state: State) -> bool:
    return not state.row.held and any(one.state == "pending" and one.wanted for one in state.inputs)


def wake(state: State) -> State:
    return state._replace(woken=True) if wakes(state) else state


def put(state: State, number: int, /, **values: object) -> State:
    """The state with another input `number`."""
    changed = state.inputs[number]._replace(**values)  # type: ignore[arg-type]
    return state._replace(inputs=(*state.inputs[:number], changed, *state.inputs[number + 1 :]))


def believe(state: State, number: int, /, **values: object) -> State:
    """The state with another holder `number`. Which one is which does not matter."""
    changed = state.holders[number]._replace(**values)  # type: ignore[arg-type]
    others = (*state.holders[:number], changed, *state.holders[number + 1 :])
    return state._replace(holders=tuple(sorted(others)))


# --- holders ---


def acquire(state: State, which: int, word: str) -> Outcome:
    before = state
    if state.row.held and not free(state.row):
        if not expired(state.row) or locked(state):
            return before, False
        state = settle(state)
    if not free(state.row):
        return before, False
    epoch = next_epoch(state.row)
    state = state._replace(row=Row(epoch, held=True, unexpired=True, phase="ready"), log=epoch, woken=False)
    return believe(state, which, epoch=epoch, may_dispatch=False, writing=False), True


def renew(state: State, which: int, word: str) -> Outcome:
    """With a word: move to that phase."""
    row, epoch = state.row, state.holders[which].epoch
    if not holds(row, epoch):
        return believe(state, which, may_dispatch=False), False
    row = row._replace(unexpired=True)
    if word and word != row.phase:
        state = state._replace(log=epoch)
        row = moved(row, word)
    may = word == "unknown" or (not word and state.holders[which].may_dispatch)
    return believe(state._replace(row=row), which, may_dispatch=may), True


def dispatch(state: State, which: int, word: str) -> Outcome:
    """Something outside of the database, that nothing can refuse."""
    epoch = state.holders[which].epoch
    state = state._replace(uncertain=tuple(sorted({*state.uncertain, epoch})))
    return believe(state, which, may_dispatch=False), True


def say(state: State, which: int, word: str) -> Outcome:
    """An answer, or the end of the turn."""
    epoch = state.holders[which].epoch
    # An answer is noted in the row, too: that is guarded by itself.
    if not hold(state.row, epoch) or (word == "answer" and not holds(state.row, epoch)):
        return state, False
    return _said(state, epoch, word), True


def begin(state: State, which: int, word: str) -> Outcome:
    accepted = hold(state.row, state.holders[which].epoch)
    return believe(state, which, writing=accepted), accepted


def commit(state: State, which: int, word: str) -> Outcome:
    state = believe(state, which, writing=False)
    epoch = state.holders[which].epoch
    return _said(state, epoch, "answer"), True


def _said(state: State, epoch: int, word: str) -> State:
    recorded = tuple(one for one in state.uncertain if one != epoch)
    state = state._replace(log=epoch, uncertain=recorded)
    if word == "end":
        return state._replace(turn=state.turn + 1, recoveries=0)
    answers = state.answers + 1
    return state._replace(answers=answers, row=state.row._replace(answer=answers))


def promote(state: State, which: int, word: str) -> Outcome:
    if not hold(state.row, state.holders[which].epoch):
        return state, False
    waiting = [rules.Waiting(n, one.kind, one.delivery) for n, one in enumerate(state.inputs) if one.state == "pending"]
    for number in rules.due(waiting, boundary=word, most=100):
        state = put(state, number, state="promoted")
    return state, True


def release(state: State, which: int, word: str) -> Outcome:
    epoch = state.holders[which].epoch
    if not hold(state.row, epoch) or not holds(state.row, epoch):
        return state, False
    return wake(believe(state, which, epoch=0, may_dispatch=False)._replace(row=closed(state.row), log=epoch)), True


def crash(state: State, which: int, word: str) -> Outcome:
    """It forgets all, and an open transaction is rolled back."""
    return believe(state, which, epoch=0, may_dispatch=False, writing=False)._replace(crashes=state.crashes + 1), True


# --- users, time and scanners ---


def expire(state: State, which: int, word: str) -> Outcome:
    return state._replace(row=state.row._replace(unexpired=False)), True


def speak(state: State, which: int, word: str) -> Outcome:
    """Somebody who does not run the session adds an answer."""
    if live(state.row):
        return state, False
    return state._replace(answers=state.answers + 1), True


def admit(state: State, which: int, word: str) -> Outcome:
    return wake(state._replace(inputs=(*state.inputs, Input(word, "prompt", word, word)))), True


def again(state: State, which: int, word: str) -> Outcome:
    one = state.inputs[which]
    if not rules.is_retry(kind=one.kind, admitted_as=one.admitted_as, delivery=word, same_prompt=True):
        return state, False
    if one.state == "pending" and not one.wanted:
        state = wake(put(state, which, wanted=True))
    return state, True


def flip(state: State, which: int, word: str) -> Outcome:
    one = state.inputs[which]
    if one.state != "pending":
        return state, False
    wanted = rules.wish_after_flip(wanted=one.wanted, delivery=word)
    return wake(put(state, which, delivery=word, wanted=wanted)), True


def cancel(state: State, which: int, word: str) -> Outcome:
    if state.inputs[which].state == "promoted":
        return state, False
    return put(state, which, state="cancelled"), True


def interrupt(state: State, which: int, word: str) -> Outcome:
    row = state.row._replace(interrupted=state.row.held)
    log = row.epoch if row.held else state.log
    return state._replace(inputs=forget(state.inputs), row=row, log=log), True


def scan(state: State, which: int, word: str) -> Outcome:
    if not expired(state.row) or locked(state):
        return state, False
    return wake(settle(state)), True


def settle(state: State) -> State:
    """What follows an execution that expired (S7)."""
    row = state.row
    if rules.needs_nothing(phase=row.phase, own=own(state), newest=state.answers or None):
        passed = (row.epoch,) if 0 < row.answer < state.answers else ()
        return state._replace(row=closed(row), log=row.epoch, passed=state.passed + passed)
    gives_up = rules.gives_up(earlier=state.recoveries, most=MOST_RECOVERIES)
    wanted = rules.wish_for_continuation(interrupted=row.interrupted)
    inputs = tuple(_dropped(one) for one in state.inputs)
    if not gives_up:
        inputs += (Input(f"continuation {row.epoch}", "continuation", "queue", "queue", wanted),)
    return state._replace(
        row=closed(row),
        inputs=inputs,
        log=row.epoch,
        told=(*state.told, row.epoch),
        marked=(*state.marked, own(state) or 0),
        recoveries=0 if gives_up else state.recoveries + 1,
        turn=state.turn + gives_up,
    )


def _dropped(one: Input) -> Input:
    return one._replace(state="cancelled") if (one.kind, one.state) == ("continuation", "pending") else one


# --- what may happen next ---

ACTS = {
    act.__name__: act
    for act in (
        acquire, renew, dispatch, say, begin, commit, promote, release, crash,
        expire, speak, admit, again, flip, cancel, interrupt, scan,
    )
}  # fmt: skip


def do(state: State, act: Act) -> Outcome:
    after, accepted = ACTS[act.name](state, act.which, act.word)
    # A wake is heard or not; what counts is whether one came since somebody was last wanted.
    return after._replace(woken=after.woken and stranded(after)), accepted


def possible(state: State, bounds: Bounds) -> Iterator[Act]:
    """Every act that may come next, those that must be refused too."""
    return (act for act in _possible(state, bounds) if act.name not in bounds.without)


def _possible(state: State, bounds: Bounds) -> Iterator[Act]:
    for which, holder in enumerate(state.holders):
        if state.row.epoch < bounds.epochs and not holder.writing:
            yield Act("acquire", which)
        if holder.epoch:
            yield from _of_holder(state, which, bounds)
    if state.row.held and state.row.unexpired:
        yield Act("expire")
    yield from _of_users(state, bounds)
    yield Act("scan")


def _of_holder(state: State, which: int, bounds: Bounds) -> Iterator[Act]:
    """A holder is honest: it calls nothing safe, and releases nothing, while it has not recorded what it dispatched."""
    holder = state.holders[which]
    if state.crashes < bounds.crashes:
        yield Act("crash", which)
    if holder.writing:
        yield Act("commit", which)
        return
    yield Act("renew", which)
    yield Act("renew", which, "unknown")
    if holder.may_dispatch:
        yield Act("dispatch", which)
    if state.answers < bounds.answers:
        yield Act("begin" if bounds.open_writes else "say", which, "answer")
    if holder.epoch not in state.uncertain:
        yield Act("renew", which, "safe")
        yield Act("release", which)
    if state.turn == 0 and not bounds.open_writes:
        yield Act("say", which, "end")
    for boundary in rules.BOUNDARIES if state.inputs else ():
        yield Act("promote", which, boundary)


def _of_users(state: State, bounds: Bounds) -> Iterator[Act]:
    if state.answers < bounds.answers:
        yield Act("speak")
    if any(one.wanted and one.state == "pending" for one in state.inputs) or state.row.held:
        yield Act("interrupt")
    known = {one.uid for one in state.inputs}
    for delivery in ("steer", "queue"):
        if delivery not in known:
            yield Act("admit", 0, delivery)
        for number, one in enumerate(state.inputs):
            yield Act("again", number, delivery)
            if one.delivery != delivery:
                yield Act("flip", number, delivery)
    for number in range(len(state.inputs)):
        yield Act("cancel", number)
