"""What follows a pass that failed: how long it waits, what it counts, who may be called (D7, D19, D20, D21)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from agentmemory import likeness
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Memory, Provider, Space
from agentmemory.services import removals
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import (
    coordinator,
    distilling,
    gates,
    operations,
    passes,
    reading,
    resolution,
    retention,
)
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import AgentFactory, MemoryFactory
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db

BASE = 1740


def since_it_failed(moment: datetime | None) -> float:
    """How many seconds a moment lies behind the end of the newest pass."""
    ended = DistillationPass.objects.latest("pk").finished_at
    assert moment is not None
    assert ended is not None
    return (moment - ended).total_seconds()


def waits(cursor: Cursor) -> float:
    """For how many seconds a session waits after its failure."""
    cursor.refresh_from_db()
    return since_it_failed(cursor.next_attempt_at)


def pause() -> float:
    """For how many seconds the provider pauses after it."""
    return since_it_failed(Provider.objects.get(name="anthropic").paused_until)


def fail(cursor: Cursor) -> distilling.Result:
    """One attempt, though the session waits."""
    return distilling.run_pass(cursor_id=cursor.pk, force=True)


def test_d20_while_the_window_shrinks_the_wait_stays_at_the_base(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("One.", "Two.", "Three.", "Four."))
    server.default = model_server.raw_text("no json")
    found = []
    for _ in range(6):
        fail(cursor)
        found.append((waits(cursor), cursor.window_limit))
    # Three failures of it whole, then half, then one message alone, whose wait grows again.
    assert found[:4] == [(BASE, None), (2 * BASE, None), (BASE, 2), (BASE, 1)]
    assert [wait for wait, _ in found[4:]] == [BASE, 2 * BASE]


def test_d7_an_answer_cut_over_two_messages_is_halved_too(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("One.", "Two."))
    server.script(model_server.cut())
    fail(cursor)
    cursor.refresh_from_db()
    assert (cursor.window_limit, cursor.failures, cursor.next_attempt_at) == (1, 0, None)


def test_d7_a_single_message_that_is_cut_counts_as_any_failure(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("One."))
    server.script(model_server.cut())
    fail(cursor)
    assert (waits(cursor), cursor.failures, cursor.single_failures) == (BASE, 1, 1)


def test_d19_a_provider_that_asks_for_a_longer_pause_gets_it(server: ModelServer, tell: Tell) -> None:
    server.script(model_server.status(401, headers={"retry-after": "20000"}))
    fail(cursor_of(tell("One.")))
    assert pause() == 20_000


def test_d19_each_further_refusal_makes_the_pause_longer(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("One."))
    server.default = model_server.status(401)
    found = []
    for _ in range(3):
        fail(cursor)
        found.append(pause())
        Provider.objects.update(paused_until=timezone.now() - timedelta(seconds=1))
    assert found == [BASE, 2 * BASE, 4 * BASE]


def test_d19_a_call_that_tried_and_failed_otherwise_lets_the_next_one_try(server: ModelServer, tell: Tell) -> None:
    """It says nothing about the key: nobody waits for a lease to run out that nobody holds."""
    first, second = cursor_of(tell("One.", name="s1")), cursor_of(tell("Two.", name="s2"))
    server.script(model_server.status(401), model_server.status(503))
    fail(first)
    Provider.objects.update(paused_until=timezone.now() - timedelta(seconds=1))
    assert fail(first).state == "failed"
    assert distilling.run_pass(cursor_id=second.pk).state == "applied"
    assert Provider.objects.get(name="anthropic").failures == 0


def test_d20_after_the_death_of_a_worker_nothing_waits_longer_than_its_lease_did(
    server: ModelServer, tell: Tell
) -> None:
    cursor = cursor_of(tell("One."))
    passes.begin(cursor_id=cursor.pk, worker="soon dead")
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    begun = passes.begin(cursor_id=cursor.pk, worker="next")
    assert isinstance(begun, passes.Begun)
    cursor.refresh_from_db()
    assert (cursor.failures, cursor.window_failures, cursor.next_attempt_at) == (1, 1, None)


def test_d20_what_was_rewound_during_its_last_failure_goes_on_behind_it(server: ModelServer, tell: Tell) -> None:
    """The position may not stand behind the watermark: what was looked at moves both (D2)."""
    session = tell("First.")
    cursor = cursor_of(session)
    distilling.run_pass(cursor_id=cursor.pk)
    tell("Poison.")
    server.default = model_server.raw_text("no json")
    fail(cursor)
    fail(cursor)

    def rewind(point: str) -> None:
        if point == "call.after":
            removals.rewind(session=session, after_uid="r2")

    faults.install(rewind)
    try:
        assert fail(cursor).state == "failed"
    finally:
        faults.install(None)
    cursor.refresh_from_db()
    assert (cursor.position, cursor.watermark, cursor.holder) == (4, 4, "")


def test_d21_no_tokens_a_day_are_a_budget(server: ModelServer, tell: Tell, agent: Agent) -> None:
    agent.space.daily_tokens = 0
    agent.space.save()
    assert distilling.run_pass(cursor_id=cursor_of(tell("One.")).pk).state == "blocked"
    assert server.requests == []


def test_d20_behind_a_quarantined_message_the_window_is_full_again(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("Poison.", "Two.", "Three."))
    server.script(*[model_server.raw_text("no json")] * 6)
    while not cursor.quarantines.exists():
        assert fail(cursor).state == "failed"
    fail(cursor)
    assert [seq for seq, _, _ in server.requests[-1].shown] == [2, 3]


def test_d20_a_released_message_is_tried_at_once_though_its_session_waits(server: ModelServer, tell: Tell) -> None:
    session = tell("Poison.")
    cursor = cursor_of(session)
    server.script(*[model_server.raw_text("no json")] * 3, model_server.status(503))
    for _ in range(3):
        fail(cursor)
    tell("Another.")
    fail(cursor)
    assert distilling.run_pass(cursor_id=cursor.pk).state == "backing_off"
    operations.release_quarantine(quarantine_id=cursor.quarantines.get().pk, operator="olga", reason="because")
    assert distilling.run_pass(cursor_id=cursor.pk).state == "applied"
    assert [seq for seq, _, _ in server.requests[-1].shown] == [1]


def test_d22_each_death_in_a_row_counts(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("One.", "Two."))
    counted = []
    for _ in range(4):
        Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        passes.begin(cursor_id=cursor.pk, worker="soon dead")
        cursor.refresh_from_db()
        counted.append((cursor.window_failures, cursor.window_limit))
    assert counted == [(0, None), (1, None), (2, None), (3, 1)]


def test_d24_clearing_a_backoff_forgets_that_the_window_was_halved_and_that_a_task_was_made(
    server: ModelServer, tell: Tell
) -> None:
    cursor = cursor_of(tell("One.", "Two."))
    server.script(model_server.cut())
    fail(cursor)
    assert coordinator.tick().cursors == 1
    operations.clear_backoff(cursor_id=cursor.pk, operator="olga", reason="because")
    cursor.refresh_from_db()
    assert cursor.window_limit is None
    # The one that was made may be lost; a second one finds nothing to do.
    assert coordinator.tick().cursors == 1


def test_d16_a_stretch_without_words_of_a_paused_agent_is_not_passed_over_either(tell: Tell, agent: Agent) -> None:
    session = tell()
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.PAUSED)
    assert distilling.run_pass(cursor_id=cursor_of(session).pk).state == "blocked"
    assert cursor_of(session).position == 0


def test_d16_nothing_of_an_archived_space_is_distilled_even_when_its_task_comes(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    session = tell("One.")
    Space.objects.filter(pk=agent.space_id).update(archived_at=timezone.now())
    assert distilling.run_pass(cursor_id=cursor_of(session).pk).state == "blocked"
    assert server.requests == []


def test_d11_only_the_agents_own_distilled_memories_are_shown_as_known(agent: Agent) -> None:
    other = AgentFactory.create(space=agent.space)
    said = "The service listens on port 8080."
    own = MemoryFactory.create(owner=agent, origin="distilled", key="own", content=said)
    MemoryFactory.create(owner=agent, origin="curated", key="curated", content=said)
    MemoryFactory.create(owner=other, origin="distilled", key="foreign", content=said)
    MemoryFactory.create(owner=None, space=agent.space, origin="distilled", key="shared", content=said)
    assert reading.related(agent, "Which port does the service listen on?") == [own]
    assert [each.known.key for each in reading.newest_known(agent)] == ["own"]


def test_d21_the_last_token_of_a_budget_may_be_used_and_no_further_one(tell: Tell, agent: Agent) -> None:
    agent.space.daily_tokens = 120
    cursor = cursor_of(tell("One."))
    row = DistillationPass.objects.create(space=agent.space, agent=agent, cursor=cursor, epoch=0, start=0, end=0)
    row.refresh_from_db()
    for tokens, closed in ((119, False), (120, True)):
        DistillationPass.objects.filter(pk=row.pk).update(input_tokens=tokens)
        assert bool(gates.model_gate(agent.space, resolution.resolve(agent), now=row.started_at)) is closed


def test_d24_only_what_was_distilled_is_distilled_again(tell: Tell) -> None:
    cursor = cursor_of(tell("One.", "Two."))
    Cursor.objects.update(position=1)
    for seq in (0, 2):
        with pytest.raises(Invalid):
            operations.distil_again(cursor_id=cursor.pk, seq=seq, operator="olga", reason="because")


def test_d24_all_but_the_end_can_be_skipped(tell: Tell) -> None:
    cursor = cursor_of(tell("One.", "Two."))
    operations.skip_to(cursor_id=cursor.pk, seq=cursor.watermark + 1, operator="olga", reason="because")
    cursor.refresh_from_db()
    assert (cursor.lag, cursor.due_since) == (0, None)


def test_d20_each_of_several_released_messages_is_tried_again(server: ModelServer, tell: Tell) -> None:
    session = tell("Poison.", "Bane.")
    cursor = cursor_of(session)
    server.default = model_server.raw_text("no json")
    while cursor.quarantines.count() < 2:
        assert fail(cursor).state == "failed"
    server.default = model_server.one_memory_per_user_line
    for quarantine in cursor.quarantines.order_by("-seq"):
        operations.release_quarantine(quarantine_id=quarantine.pk, operator="olga", reason="because")
    before = len(server.requests)
    distilling.run_cursor(cursor_id=cursor.pk)
    distilling.run_cursor(cursor_id=cursor.pk)
    assert [[seq for seq, _, _ in request.shown] for request in server.requests[before:]] == [[1], [2]]
    assert set(cursor.quarantines.values_list("state", flat=True)) == {"settled"}
    cursor.refresh_from_db()
    assert (cursor.position, cursor.retry_seq) == (3, None)


def test_d20_a_process_that_is_asked_to_stop_before_there_is_a_pass_gives_its_attempt_back(tell: Tell) -> None:
    cursor = cursor_of(tell("One."))

    def stop(point: str) -> None:
        if point == "lease.after":
            raise SystemExit(143)

    faults.install(stop)
    try:
        with pytest.raises(SystemExit):
            passes.begin(cursor_id=cursor.pk, worker="w")
    finally:
        faults.install(None)
    cursor.refresh_from_db()
    assert (cursor.attempts, cursor.holder, cursor.expires_at) == (0, "", None)


def test_d25_an_answer_that_is_still_to_be_applied_is_not_forgotten(server: ModelServer, tell: Tell) -> None:
    begun = passes.begin(cursor_id=cursor_of(tell("One.")).pk, worker="w")
    assert isinstance(begun, passes.Begun)
    DistillationPass.objects.update(answer="{}", answered_at=timezone.now() - timedelta(days=91))
    assert retention.forget_answers() == "0 answers forgotten"


def test_d9_the_same_key_is_an_update_however_alike_it_reads(server: ModelServer, tell: Tell) -> None:
    before, after = "The service listens on port 8080 there.", "The service listens on the port 8080 there."
    assert likeness.near_duplicate(before, after)
    session = tell("One.")
    for content in (before, after):
        item = {"key": "port", "content": content, "tags": [], "sources": [session.last_seq - 1], "quote": ""}
        server.script(model_server.memories([item]))
        distilling.run_pass(cursor_id=cursor_of(session).pk)
        session = tell("More.")
    assert Memory.objects.get().content == after


def quarantined(server: ModelServer, cursor: Cursor) -> Quarantine:
    """The first message, which failed alone so often; the position stands at it."""
    server.default = model_server.raw_text("no json")
    while not cursor.quarantines.exists():
        assert fail(cursor).state == "failed"
    server.default = model_server.one_memory_per_user_line
    return cursor.quarantines.get()


def release(quarantine: Quarantine) -> None:
    operations.release_quarantine(quarantine_id=quarantine.pk, operator="olga", reason="because")


def test_d20_a_released_message_right_before_the_position_fails_as_any_released_one(
    server: ModelServer, tell: Tell
) -> None:
    cursor = cursor_of(tell("Poison.", "Two."))
    held = quarantined(server, cursor)
    release(held)
    server.script(model_server.raw_text("no json"))
    fail(cursor)
    cursor.refresh_from_db()
    assert (cursor.position, cursor.failures, cursor.retry_seq) == (1, 0, None)
    held.refresh_from_db()
    assert held.state == "held"


def test_d15_the_answer_over_a_released_message_is_not_paid_for_again(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("Poison.", "Two."))
    release(quarantined(server, cursor))
    begun = passes.begin(cursor_id=cursor.pk, worker="soon dead")
    assert isinstance(begun, passes.Begun)
    DistillationPass.objects.filter(pk=begun.row.pk).update(answer='{"memories": []}', answered_at=timezone.now())
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    before = len(server.requests)
    assert distilling.run_pass(cursor_id=cursor.pk).state == "empty"
    assert len(server.requests) == before
    assert cursor.quarantines.get().state == "settled"


def test_d24_a_quarantine_is_decided_once(server: ModelServer, tell: Tell) -> None:
    held = quarantined(server, cursor_of(tell("Poison.", "Two.")))
    release(held)
    with pytest.raises(Invalid):
        release(held)
    with pytest.raises(Invalid):
        operations.dismiss_quarantine(quarantine_id=held.pk, operator="olga", reason="because")
