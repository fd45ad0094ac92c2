"""What the database itself refuses of cursors, passes and quarantines, whoever writes them (D1, D2, D14, D20)."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from agentmemory.models import Session
from distillation.models import Cursor, DistillationPass, Quarantine
from tests.distillation.conftest import Tell, cursor_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor(tell: Tell) -> Cursor:
    return cursor_of(tell("One."))


def test_d2_no_position_lies_behind_what_may_be_read(cursor: Cursor) -> None:
    with pytest.raises(IntegrityError, match="cursor_position_within_watermark"), transaction.atomic():
        Cursor.objects.filter(pk=cursor.pk).update(position=cursor.watermark + 1)


def test_d14_a_lease_is_for_one_pass(cursor: Cursor) -> None:
    known = {"space": cursor.space, "agent": cursor.agent, "cursor": cursor, "epoch": 1, "start": 0, "end": 2}
    DistillationPass.objects.create(**known)
    with pytest.raises(IntegrityError, match="pass_one_per_lease"), transaction.atomic():
        DistillationPass.objects.create(**known)


def test_d1_no_pass_moves_a_position_back(cursor: Cursor) -> None:
    with pytest.raises(IntegrityError, match="pass_window_forward"), transaction.atomic():
        DistillationPass.objects.create(space=cursor.space, agent=cursor.agent, cursor=cursor, epoch=1, start=2, end=1)


def test_d20_a_message_is_quarantined_once(cursor: Cursor) -> None:
    known = {"space": cursor.space, "agent": cursor.agent, "cursor": cursor, "uid": "u1", "seq": 1}
    Quarantine.objects.create(**known)
    with pytest.raises(IntegrityError, match="quarantine_message_once"), transaction.atomic():
        Quarantine.objects.create(**known)


def test_r6_no_turn_ends_behind_the_last_message(cursor: Cursor) -> None:
    with pytest.raises(IntegrityError, match="session_terminal_within_last"), transaction.atomic():
        Session.objects.filter(pk=cursor.session_id).update(terminal_seq=3)
