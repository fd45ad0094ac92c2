"""A model of how a session is run, in plain Python, and a machine that holds the services to it step by step.

Holders crash (they are heard of no more), pause (they come back with what they held long after), and race scanners;
time passes for the lease alone. What the model expects of a step is written down before the step is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentmemory.models import Message
from agentmemory.services import transcripts
from sessions_exec import signals
from sessions_exec.errors import InputConflict, LeaseHeld, LeaseLost
from sessions_exec.models import Input, Recovery, SessionEvent
from sessions_exec.services import executions, inbox, recovery
from tests.factories import SessionFactory
from tests.support.running import expire

PHASES = ["ready", "safe", "unknown"]
HOLDERS = ["ann", "ben", "cat"]
NUMBERS = st.integers(min_value=0, max_value=30)


@dataclass
class Waiting:
    """An input as it should be."""

    uid: str
    delivery: str
    resume: bool
    kind: str = "prompt"
    state: str = "pending"
    admitted_as: str = ""


@dataclass
class Holding:
    """The execution as it should be."""

    held: executions.Held
    owner: str
    live: bool = True
    phase: str = "ready"
    answer: int = 0
    interrupted: bool = False


@dataclass
class Model:
    """What should be true of the session."""

    current: Holding | None = None
    epoch: int = 0
    seq: int = 0
    newest_answer: int = 0
    turn: int = 0
    recoveries: dict[int, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    inputs: list[Waiting] = field(default_factory=list)
    recovered: list[int] = field(default_factory=list)

    def pending(self) -> list[Waiting]:
        return [one for one in self.inputs if one.state == "pending"]

    def wanted(self) -> bool:
        return self.current is None and any(one.resume for one in self.pending())

    def is_live(self, held: executions.Held | None = None) -> bool:
        return self.current is not None and self.current.live and held in (None, self.current.held)

    def chosen(self, boundary: str) -> list[Waiting]:
        first = [one for one in self.pending() if one.kind == "continuation"]
        steers = [one for one in self.pending() if one.kind == "prompt" and one.delivery == "steer"]
        if first or steers or boundary == "step":
            return first + steers
        return self.pending()[:1]


class Machine(RuleBasedStateMachine):
    """Steps of holders, users, scanners and time, each compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0
        self.expected_wakes = 0
        signals.session_wanted.connect(self._hear)

    def _hear(self, sender: object, *, session_id: int, **_: Any) -> None:
        self.wakes += session_id == self.session.pk

    def teardown(self) -> None:
        signals.session_wanted.disconnect(self._hear)

    @initialize()
    def begin(self) -> None:
        self.session = SessionFactory.create()
        self.model = Model()
        self.tokens: list[executions.Held] = []
        self.names = 0

    # --- holders ---

    @rule(owner=st.sampled_from(HOLDERS))
    def acquire(self, owner: str) -> None:
        if self.model.is_live():
            try:
                executions.acquire(session=self.session, holder=owner)
            except LeaseHeld:
                return
            raise AssertionError("a live execution was replaced")
        taken = executions.acquire(session=self.session, holder=owner, seconds=300)
        # The wake of a recovery is told before the successor has begun.
        self._settle()
        self.model.epoch += 1
        assert taken.epoch == self.model.epoch
        held = executions.Held(execution_id=taken.execution_id, epoch=taken.epoch)
        assert held.execution_id not in {token.execution_id for token in self.tokens}
        self.tokens.append(held)
        self.model.current = Holding(held, owner)

    @precondition(lambda self: self.tokens)
    @rule(number=NUMBERS, phase=st.sampled_from([None, *PHASES]))
    def renew(self, number: int, phase: str | None) -> None:
        held = self._token(number)
        renewed = self._as(held, lambda: executions.renew(session=self.session, held=held, phase=phase))
        if renewed is not None and self.model.current is not None:
            self.model.current.phase = phase or self.model.current.phase
            assert (renewed.interrupted_at is not None) == self.model.current.interrupted
            assert renewed.phase == self.model.current.phase

    @precondition(lambda self: self.tokens)
    @rule(number=NUMBERS, kind=st.sampled_from(["user", "assistant", "assistant", "result"]))
    def say(self, number: int, kind: str) -> None:
        held, uid = self._token(number), self._name()
        if (
            self._as(held, lambda: self._append(uid, kind, held))
            and self.model.current is not None
            and kind == "assistant"
        ):
            self.model.current.answer = self.model.seq

    @precondition(lambda self: self.tokens)
    @rule(number=NUMBERS, boundary=st.sampled_from(["step", "idle"]))
    def promote(self, number: int, boundary: str) -> None:
        held = self._token(number)
        chosen = self.model.chosen(boundary)
        rows = self._as(held, lambda: inbox.promote(session=self.session, guard=held, boundary=boundary))
        if rows is None:
            return
        assert [row.uid for row in rows] == [one.uid for one in chosen]
        for one in chosen:
            one.state = "promoted"
            self._said(one.uid, "user")

    @precondition(lambda self: self.tokens)
    @rule(number=NUMBERS)
    def release(self, number: int) -> None:
        held = self._token(number)
        released = self._as(held, lambda: executions.release(session=self.session, held=held))
        if released is not None:
            self.model.current = None
            assert released.pending == len(self.model.pending())
            self.expected_wakes += self.model.wanted()

    @precondition(lambda self: self.model.is_live())
    @rule()
    def let_the_time_be_over(self) -> None:
        expire(self.session)
        assert self.model.current is not None
        self.model.current.live = False

    # --- users ---

    @rule(kind=st.sampled_from(["user", "assistant"]))
    def say_without_running_it(self, kind: str) -> None:
        uid, live = self._name(), self.model.is_live()
        try:
            self._append(uid, kind, None)
        except LeaseHeld:
            assert live
        else:
            assert not live, "somebody wrote beside a live execution"

    @rule(delivery=st.sampled_from(["steer", "queue"]), resume=st.booleans())
    def admit(self, delivery: str, resume: bool) -> None:
        uid = self._name()
        _, created = inbox.admit(session=self.session, uid=uid, prompt=uid, delivery=delivery, resume=resume)
        assert created
        self.model.inputs.append(Waiting(uid, delivery, resume, admitted_as=delivery))
        self.expected_wakes += self.model.wanted()

    @precondition(lambda self: any(one.kind == "prompt" for one in self.model.inputs))
    @rule(number=NUMBERS, delivery=st.sampled_from(["steer", "queue"]), resume=st.booleans())
    def admit_again(self, number: int, delivery: str, resume: bool) -> None:
        one = self._input(number, kind="prompt")
        try:
            row, created = inbox.admit(
                session=self.session, uid=one.uid, prompt=one.uid, delivery=delivery, resume=resume
            )
        except InputConflict:
            assert delivery != one.admitted_as
            return
        assert delivery == one.admitted_as
        assert (row.uid, created, row.state) == (one.uid, False, one.state)
        if resume and one.state == "pending" and not one.resume:
            one.resume = True
            self.expected_wakes += self.model.wanted()

    @precondition(lambda self: self.model.inputs)
    @rule(number=NUMBERS, delivery=st.sampled_from(["steer", "queue"]))
    def flip(self, number: int, delivery: str) -> None:
        one = self._input(number)
        try:
            inbox.flip(session=self.session, uid=one.uid, delivery=delivery)
        except InputConflict:
            assert one.state != "pending"
            return
        assert one.state == "pending"
        one.delivery, one.resume = delivery, one.resume or delivery == "steer"
        self.expected_wakes += self.model.wanted()

    @precondition(lambda self: self.model.inputs)
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        one = self._input(number)
        try:
            inbox.cancel(session=self.session, uid=one.uid)
        except InputConflict:
            assert one.state == "promoted"
            return
        assert one.state != "promoted"
        one.state = "cancelled"

    @rule()
    def interrupt(self) -> None:
        assert executions.interrupt(session=self.session) == (self.model.current is not None)
        for one in self.model.pending():
            one.resume = False
        if self.model.current is not None:
            self.model.current.interrupted = True

    # --- scanners ---

    @rule()
    def scan(self) -> None:
        expired = self.model.current is not None and not self.model.current.live
        assert recovery.recover(session_id=self.session.pk) == expired
        if expired:
            self._settle()
        assert inbox.sweep() >= self.model.wanted()
        self.expected_wakes += self.model.wanted()

    # --- what must always hold ---

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = Input.objects.filter(session=self.session).order_by("pk")
        assert [(row.uid, row.state, row.delivery, row.kind) for row in rows] == [
            (one.uid, one.state, one.delivery, one.kind) for one in self.model.inputs
        ]
        assert [row.resume for row in rows if row.state == "pending"] == [one.resume for one in self.model.pending()]
        said = list(Message.objects.filter(session=self.session).order_by("seq").values_list("uid", flat=True))
        assert said == self.model.said
        assert (
            list(Recovery.objects.filter(session=self.session).order_by("epoch").values_list("epoch", flat=True))
            == self.model.recovered
        )
        assert self.wakes == self.expected_wakes

    @invariant()
    def the_log_has_no_gap_and_no_epoch_of_the_past(self) -> None:
        if not hasattr(self, "model"):
            return
        events = list(SessionEvent.objects.filter(session=self.session).order_by("seq"))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        epochs = [event.data["epoch"] for event in events if event.type.startswith("execution.")]
        assert epochs == sorted(epochs)
        assert sum(event.type == "input.promoted" for event in events) == sum(
            one.state == "promoted" for one in self.model.inputs
        )

    # --- the small parts ---

    def _token(self, number: int) -> executions.Held:
        """Mostly the newest, now and then one of long ago: a holder that was away."""
        return self.tokens[-1 - max(0, number - 20) % len(self.tokens)]

    def _input(self, number: int, kind: str | None = None) -> Waiting:
        some = [one for one in self.model.inputs if kind in (None, one.kind)]
        return some[-1 - number % len(some)]

    def _name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def _as(self, held: executions.Held, act: Any) -> Any:
        """What `act` brings under `held`; nothing where that does not hold, and must not."""
        allowed = self.model.is_live(held) and self.model.current is not None
        try:
            brought = act()
        except LeaseLost:
            assert not allowed, "a live holder was refused"
            return None
        assert allowed, "a holder acted that holds no more"
        return brought

    def _append(self, uid: str, kind: str, guard: executions.Held | None) -> bool:
        message = transcripts.NewMessage(uid=uid, type=kind, content=uid)
        transcripts.append(session=self.session, messages=[message], guard=guard)
        self._said(uid, kind)
        return True

    def _said(self, uid: str, kind: str) -> None:
        self.model.seq += 1
        self.model.said.append(uid)
        if kind == "assistant":
            self.model.newest_answer = self.model.seq
        if kind == "result":
            self.model.turn = self.model.seq

    def _settle(self) -> None:
        """What follows an execution that is over."""
        over, self.model.current = self.model.current, None
        if over is None:
            return
        overtaken = over.answer and self.model.newest_answer > over.answer
        if over.phase != "safe" and not overtaken:
            self._recovered(over)
        self.expected_wakes += self.model.wanted()

    def _recovered(self, over: Holding) -> None:
        found = Recovery.objects.filter(session=self.session, epoch=over.held.epoch).first()
        assert found is not None, "something uncertain was passed over"
        turn = self.model.turn
        count = self.model.recoveries[turn] = self.model.recoveries.get(turn, 0) + 1
        assert (found.outcome == "failed") == (count >= recovery.MOST_RECOVERIES)
        assert found.synthetic == (not over.answer)
        if found.synthetic:
            self._said(found.message_uid, "system")
        else:
            answer = Message.objects.get(session=self.session, uid=found.message_uid)
            assert (answer.seq, answer.is_error) == (over.answer, True)
        for one in self.model.pending():
            if one.kind == "continuation":
                one.state = "cancelled"
        if found.continuation is not None:
            resume = not over.interrupted
            self.model.inputs.append(Waiting(found.continuation.uid, "queue", resume, kind="continuation"))
        else:
            last = Message.objects.filter(session=self.session).latest("seq")
            self._said(last.uid, "result")
        self.model.recovered.append(over.held.epoch)


OFTEN_NEWEST = range(14, 24)

# Each step, how often it is taken, and what it is given. Left to itself, the machine seldom comes to the rarer ones.
STEPS: dict[str, tuple[int, dict[str, Sequence[Any]]]] = {
    "acquire": (4, {"owner": HOLDERS}),
    "renew": (5, {"number": OFTEN_NEWEST, "phase": [None, "ready", "safe", "unknown", "unknown"]}),
    "say": (5, {"number": OFTEN_NEWEST, "kind": ["user", *["assistant"] * 6, "result"]}),
    "promote": (4, {"number": OFTEN_NEWEST, "boundary": ["step", "idle"]}),
    "release": (2, {"number": OFTEN_NEWEST}),
    "let_the_time_be_over": (6, {}),
    "say_without_running_it": (2, {"kind": ["user", "assistant", "assistant"]}),
    "admit": (4, {"delivery": ["steer", "queue"], "resume": [True, True, False]}),
    "admit_again": (1, {"number": range(6), "delivery": ["steer", "queue"], "resume": [True, False]}),
    "flip": (2, {"number": range(6), "delivery": ["steer", "queue"]}),
    "cancel": (1, {"number": range(6)}),
    "interrupt": (2, {}),
    "scan": (3, {}),
}


def walk(seed: int, *, steps: int) -> Machine:
    """One course of events by chance, the same for the same seed."""
    chance = Random(seed)
    machine = Machine()
    machine.begin()
    try:
        for _ in range(steps):
            (name,) = chance.choices(list(STEPS), [_weight(machine, name) for name in STEPS])
            getattr(machine, name)(**{key: chance.choice(values) for key, values in STEPS[name][1].items()})
            machine.the_rows_are_those_of_the_model()
        machine.the_log_has_no_gap_and_no_epoch_of_the_past()
    finally:
        machine.teardown()
    return machine


def _weight(machine: Machine, name: str) -> int:
    """How likely a step is now. Where a holder was left behind with an answer, somebody often goes on without it; and
    what it left is soon looked at."""
    if not _possible(machine, name):
        return 0
    current = machine.model.current
    if current is not None and not current.live:
        if name == "say_without_running_it":
            return 20 if machine.model.newest_answer == current.answer else 2
        if name in {"scan", "acquire"}:
            return 10
    return STEPS[name][0]


def _possible(machine: Machine, name: str) -> bool:
    match name:
        case "renew" | "say" | "promote" | "release":
            return bool(machine.tokens)
        case "let_the_time_be_over":
            return machine.model.is_live()
        case "admit_again":
            return any(one.kind == "prompt" for one in machine.model.inputs)
        case "flip" | "cancel":
            return bool(machine.model.inputs)
    return True
