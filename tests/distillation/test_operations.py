"""What operators do with distillation (D24)."""

from __future__ import annotations

import pytest

from agentmemory.errors import Invalid
from agentmemory.models import Activity, Memory
from distillation.models import Cursor
from distillation.services import distilling, operations
from sessions_exec.errors import LeaseLost
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
WHO = {"operator": "olga", "reason": "because"}


def test_d24_each_act_is_on_record_with_who_and_why(tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    operations.run_now(cursor_id=cursor.pk, **WHO)
    operations.clear_backoff(cursor_id=cursor.pk, **WHO)
    operations.release_lease(cursor_id=cursor.pk, **WHO)
    operations.skip_to(cursor_id=cursor.pk, seq=2, **WHO)
    operations.distil_again(cursor_id=cursor.pk, seq=1, **WHO)
    acts = list(Activity.objects.order_by("pk").values_list("act", "who", "reason"))
    assert [act for act, _, _ in acts] == ["run now", "clear backoff", "release lease", "skip to", "distil again"]
    assert {(who, why) for _, who, why in acts} == {("operator:olga", "because")}


def test_d24_distilling_again_from_a_message_updates_and_doubles_nothing(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.", "Another fact here.")
    cursor = cursor_of(session)
    distilling.run_cursor(cursor_id=cursor.pk)
    before = set(Memory.objects.values_list("pk", "content", "version"))
    operations.distil_again(cursor_id=cursor.pk, seq=2, **WHO)
    distilling.run_cursor(cursor_id=cursor.pk)
    assert [seq for seq, _, _ in server.requests[1].shown] == [2]
    assert set(Memory.objects.values_list("pk", "content", "version")) == before
    assert cursor_of(session).lag == 0


def test_d24_skipping_leaves_out_what_lies_before(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.", "Another fact here.")
    operations.skip_to(cursor_id=cursor_of(session).pk, seq=2, **WHO)
    distilling.run_cursor(cursor_id=cursor_of(session).pk)
    assert [seq for seq, _, _ in server.requests[0].shown] == [2]
    with pytest.raises(Invalid):
        operations.skip_to(cursor_id=cursor_of(session).pk, seq=99, **WHO)


def test_d24_releasing_a_lease_raises_the_fence(tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    epoch = Cursor.objects.acquire(cursor.pk, holder="w", seconds=60)
    operations.release_lease(cursor_id=cursor.pk, **WHO)
    with pytest.raises(LeaseLost):
        Cursor.objects.fence(cursor.pk, epoch=epoch)
    assert Cursor.objects.acquire(cursor.pk, holder="x", seconds=60) > epoch


def test_d20_a_released_quarantine_is_tried_again_alone_and_the_position_stands(
    server: ModelServer, tell: Tell
) -> None:
    session = tell("Poison.")
    cursor = cursor_of(session)
    server.script(*[model_server.raw_text("nothing")] * 3)
    for _ in range(3):
        Cursor.objects.update(next_attempt_at=None)
        distilling.run_pass(cursor_id=cursor.pk)
    quarantine = cursor.quarantines.get()
    assert (quarantine.state, cursor_of(session).lag) == ("held", 0)
    tell("Another fact here.")
    distilling.run_cursor(cursor_id=cursor.pk)
    server.script(model_server.raw_text("nothing still"))
    operations.release_quarantine(quarantine_id=quarantine.pk, **WHO)
    assert distilling.run_pass(cursor_id=cursor.pk).state == "failed"
    quarantine.refresh_from_db()
    assert (quarantine.state, cursor_of(session).failures, cursor_of(session).retry_seq) == ("held", 0, None)
    operations.release_quarantine(quarantine_id=quarantine.pk, **WHO)
    assert distilling.run_pass(cursor_id=cursor.pk).state == "applied"
    quarantine.refresh_from_db()
    after = cursor_of(session)
    assert (quarantine.state, after.position, after.lag, after.retry_seq) == ("settled", 4, 0, None)
    assert {m.content for m in Memory.objects.all()} == {"Poison.", "Another fact here."}
