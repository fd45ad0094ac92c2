"""What holders of a session believe they did, and what the database holds: what cannot be true of both (S1 to S10).

Every process of a storm writes a line before it acts and one once it was answered, in one write to one file, so that
the lines outlive it. What a holder records in the transcript carries its epoch in its uid.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentmemory.models import Message, Session
from sessions_exec.models import Execution, Input, Recovery, SessionEvent


class Entry(NamedTuple):
    """One line. `answered`: the act was acknowledged; otherwise nobody knows yet."""

    session: int
    act: str
    epoch: int = 0
    uids: tuple[str, ...] = ()
    answered: bool = False


class Ledger:
    """The file of all lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, entry: Entry) -> None:
        line = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(line, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(line)

    def entries(self) -> list[Entry]:
        rows = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        return [Entry(session, act, epoch, tuple(uids), answered) for session, act, epoch, uids, answered in rows]


class Event(NamedTuple):
    seq: int
    type: str
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One session as the database holds it."""

    events: Sequence[Event]
    messages: Sequence[str]
    inputs: dict[str, str]
    recovered: Sequence[int]
    held: int = 0
    """The epoch that holds it still, if any does."""


def facts(session: Session) -> Facts:
    events = SessionEvent.objects.filter(session=session).order_by("seq").values_list("seq", "type", "data")
    execution = Execution.objects.held().filter(session=session).first()
    return Facts(
        events=[Event(*each) for each in events],
        messages=list(Message.objects.filter(session=session).order_by("seq").values_list("uid", flat=True)),
        inputs=dict(Input.objects.filter(session=session).values_list("uid", "state")),
        recovered=list(Recovery.objects.filter(session=session).order_by("epoch").values_list("epoch", flat=True)),
        held=execution.epoch if execution is not None else 0,
    )


def uid(epoch: int, name: object) -> str:
    """Of what a holder records under its epoch."""
    return f"by {epoch} {name}"


def findings(found: Facts, entries: Sequence[Entry]) -> list[str]:
    """Each thing that cannot be, in words; none where all is well."""
    return [*_of_the_log(found), *_of_inputs(found, entries), *_of_endings(found), *_of_beliefs(found, entries)]


def _windows(found: Facts) -> tuple[list[tuple[Event, int]], list[str]]:
    """Each event with the epoch in which it was written, and what is wrong with the order of the epochs."""
    current, last = 0, 0
    placed: list[tuple[Event, int]] = []
    wrong: list[str] = []
    for event in found.events:
        epoch = event.data.get("epoch", 0)
        if event.type == "execution.acquired":
            if current:
                wrong.append(f"S1: epoch {epoch} began while {current} held")
            if epoch <= last:
                wrong.append(f"S2: epoch {epoch} came after {last}")
            current, last = epoch, max(last, epoch)
        elif event.type.startswith("execution.") and epoch != current:
            wrong.append(f"S3: {event.type} of epoch {epoch} while {current} held")
        placed.append((event, current))
        if event.type in {"execution.released", "execution.recovered"} and epoch == current:
            current = 0
    return placed, wrong


def _of_the_log(found: Facts) -> Iterator[str]:
    if [event.seq for event in found.events] != list(range(1, len(found.events) + 1)):
        yield "S10: the log has a gap"
    placed, wrong = _windows(found)
    yield from wrong
    for event, current in placed:
        said = event.data.get("uid", "")
        if event.type == "message.appended" and said.startswith("by ") and int(said.split()[1]) != current:
            yield f"S3: {said} was written while {current or 'nobody'} held"


def _of_inputs(found: Facts, entries: Sequence[Entry]) -> Iterator[str]:
    times = Counter(event.data["id"] for event in found.events if event.type == "input.promoted")
    said = Counter(found.messages)
    for name, state in found.inputs.items():
        if times[name] != (state == "promoted") or said[name] != (state == "promoted"):
            yield f"S5: input {name} is {state}, was promoted {times[name]} times and said {said[name]} times"
    for entry in entries:
        if entry.answered and entry.act in {"admit", "promote", "cancel"}:
            for name in entry.uids:
                if found.inputs.get(name) not in _STATES[entry.act]:
                    yield f"S4: {entry.act} of {name} was answered, and it is {found.inputs.get(name, 'gone')}"


_STATES = {"admit": {"pending", "promoted", "cancelled"}, "promote": {"promoted"}, "cancel": {"cancelled"}}


def _of_endings(found: Facts) -> Iterator[str]:
    begun = [event.data["epoch"] for event in found.events if event.type == "execution.acquired"]
    ends = {"execution.released", "execution.recovered"}
    times = Counter(event.data["epoch"] for event in found.events if event.type in ends)
    for epoch in begun:
        if times[epoch] != (epoch != found.held):
            yield f"S7: epoch {epoch} ended {times[epoch]} times"
    told = [event.data["epoch"] for event in found.events if event.type == "execution.recovered"]
    if sorted(told) != sorted(found.recovered):
        yield f"S7: recoveries of {sorted(found.recovered)}, and told of {sorted(told)}"


def _of_beliefs(found: Facts, entries: Sequence[Entry]) -> Iterator[str]:
    placed, _ = _windows(found)
    said = set(found.messages)
    promoted = {event.data["id"]: current for event, current in placed if event.type == "input.promoted"}
    released = {event.data["epoch"] for event in found.events if event.type == "execution.released"}
    owners = Counter(entry.epoch for entry in entries if entry.act == "acquire" and entry.answered)
    yield from (f"S2: {times} acquired epoch {epoch}" for epoch, times in owners.items() if times > 1)
    handed = Counter(name for entry in entries if entry.act == "promote" and entry.answered for name in entry.uids)
    yield from (f"S5: input {name} was given to {times}" for name, times in handed.items() if times > 1)
    looked_at = {*found.recovered, found.held}
    for entry in entries:
        if entry.act == "dispatch" and not said.issuperset(entry.uids) and entry.epoch not in looked_at:
            yield f"S8: {entry.uids[0]} was dispatched, is not recorded, and nobody was told"
        if not entry.answered:
            continue
        if entry.act == "say" and not said.issuperset(entry.uids):
            yield f"S3: {entry.uids[0]} was answered, and is not there"
        if entry.act == "release" and entry.epoch not in released:
            yield f"S6: the release of epoch {entry.epoch} was answered, and is not there"
        for name in entry.uids if entry.act == "promote" else ():
            if promoted.get(name) != entry.epoch:
                yield f"S3: {name} was promoted by epoch {entry.epoch} while {promoted.get(name)} held"
