"""The ledger's checks find nothing in a sound course of events, and each finds what was forged for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.ledger import Entry, Event, Facts, Ledger, findings, uid

ONE, TWO = uid(1, "answer"), uid(2, "answer")


def event(kind: str, **data: Any) -> Event:
    return Event(0, kind, data)


def numbered(*events: Event) -> list[Event]:
    return [each._replace(seq=seq) for seq, each in enumerate(events, start=1)]


# A holder promotes and dies in the midst of its second answer; the next one ends in order.
LOG = [
    event("input.admitted", id="i1"),
    event("execution.acquired", epoch=1),
    event("message.appended", uid="i1"),
    event("input.promoted", id="i1"),
    event("execution.phase", epoch=1),
    event("message.appended", uid=ONE),
    event("execution.recovered", epoch=1),
    event("execution.acquired", epoch=2),
    event("message.appended", uid=TWO),
    event("execution.released", epoch=2),
]
SOUND = Facts(
    events=numbered(*LOG), messages=["i1", ONE, TWO], inputs={"i1": "promoted", "i2": "pending"}, recovered=[1]
)
LINES = [
    Entry(1, "admit", 0, ("i1",), True),
    Entry(1, "acquire", 1, (), True),
    Entry(1, "promote", 1, ("i1",), True),
    Entry(1, "say", 1, (ONE,), True),
    Entry(1, "dispatch", 1, (uid(1, "lost"),)),
    Entry(1, "acquire", 2, (), True),
    Entry(1, "say", 2, (TWO,), True),
    Entry(1, "release", 2, (), True),
]


def log(change: Callable[[list[Event]], object]) -> Facts:
    events = list(LOG)
    change(events)
    return replace(SOUND, events=numbered(*events))


def test_nothing_is_found_where_all_is_well() -> None:
    assert findings(SOUND, LINES) == []


@pytest.mark.parametrize(
    ("rule", "forged"),
    [
        ("S1: epoch 2 began while 1 held", log(lambda events: events.pop(6))),
        ("S2: epoch 1 came after 1", log(lambda events: events.insert(7, LOG[1]))),
        ("S3: execution.phase of epoch 1 while 2 held", log(lambda events: events.insert(8, LOG[4]))),
        (f"S3: {ONE} was written while 2 held", log(lambda events: events.insert(8, LOG[5]))),
        (f"S3: {ONE} was written while nobody held", log(lambda events: events.append(LOG[5]))),
        ("S3: i1 was promoted by epoch 1 while 2 held", log(lambda events: events.insert(8, events.pop(3)))),
        (f"S3: {TWO} was answered, and is not there", replace(SOUND, messages=["i1", ONE])),
        ("S4: admit of i1 was answered, and it is gone", replace(SOUND, inputs={})),
        ("S4: promote of i1 was answered, and it is pending", replace(SOUND, inputs={"i1": "pending"})),
        ("S5: input i1 is promoted, was promoted 2 times", log(lambda events: events.insert(4, LOG[3]))),
        ("S5: input i2 is promoted, was promoted 0 times", replace(SOUND, inputs={**SOUND.inputs, "i2": "promoted"})),
        ("S6: the release of epoch 2 was answered", log(lambda events: events.pop())),
        ("S7: epoch 2 ended 0 times", log(lambda events: events.pop())),
        ("S7: epoch 1 ended 2 times", log(lambda events: events.insert(7, LOG[6]))),
        ("S7: recoveries of [], and told of [1]", replace(SOUND, recovered=[])),
        (f"S8: {uid(1, 'lost')} was dispatched", replace(SOUND, recovered=[])),
        ("S10: the log has a gap", replace(SOUND, events=[each for each in SOUND.events if each.seq != 5])),
    ],
)
def test_a_forged_fact_is_found(rule: str, forged: Facts) -> None:
    assert [line for line in findings(forged, LINES) if line.startswith(rule)]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("S2: 2 acquired epoch 2", Entry(1, "acquire", 2, (), True)),
        ("S5: input i1 was given to 2", Entry(1, "promote", 1, ("i1",), True)),
        ("S4: cancel of i1 was answered, and it is promoted", Entry(1, "cancel", 0, ("i1",), True)),
        ("S3: by 1 other was answered, and is not there", Entry(1, "say", 1, (uid(1, "other"),), True)),
    ],
)
def test_a_forged_line_is_found(rule: str, line: Entry) -> None:
    assert [found for found in findings(SOUND, [*LINES, line]) if found.startswith(rule)]


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for line in LINES:
        ledger.note(line)
    assert ledger.entries() == LINES
