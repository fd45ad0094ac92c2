"""What the database itself refuses of executions, inputs and recoveries, whoever writes them (S1 to S7)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentmemory.models import Session
from sessions_exec.models import Execution, Input, Recovery
from tests.factories import SessionFactory
from tests.support.running import acquire, admit

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


@pytest.mark.parametrize("values", [{"expires_at": None}, {"holder": ""}], ids=["no end", "no holder"])
def test_s1_who_holds_an_execution_holds_it_until_some_time(session: Session, values: dict[str, Any]) -> None:
    acquire(session)
    with pytest.raises(IntegrityError, match="execution_held_until"), transaction.atomic():
        Execution.objects.filter(pk=session.pk).update(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"state": "promoted"},
        {"state": "promoted", "seq": 1},
        {"state": "cancelled"},
        {"state": "cancelled", "seq": 1, "settled_at": timezone.now()},
        {"seq": 1},
    ],
    ids=[
        "promoted to nothing",
        "promoted at no time",
        "cancelled at no time",
        "cancelled and said",
        "said and waiting",
    ],
)
def test_s5_an_input_waits_or_was_promoted_or_taken_back(session: Session, values: dict[str, Any]) -> None:
    admit(session, "i1")
    with pytest.raises(IntegrityError, match="input_settled_once"), transaction.atomic():
        Input.objects.update(**values)


def test_s5_two_inputs_become_no_one_message(session: Session) -> None:
    admit(session, "i1")
    admit(session, "i2")
    with pytest.raises(IntegrityError, match="input_seq_unique"), transaction.atomic():
        Input.objects.update(state="promoted", seq=1, settled_at=timezone.now())


def test_s7_an_execution_is_recovered_once(session: Session) -> None:
    found = {"space": session.space, "session": session, "epoch": 3, "holder": "dead", "phase": "unknown", "turn": 0}
    told = {"expired_at": timezone.now(), "message_uid": "m", "outcome": "continued"}
    Recovery.objects.create(execution_id=uuid.uuid4(), **found, **told)
    with pytest.raises(IntegrityError, match="recovery_once_an_execution"), transaction.atomic():
        Recovery.objects.create(execution_id=uuid.uuid4(), **found, **told)
