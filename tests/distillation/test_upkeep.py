"""What passes keep, what they cost, and what distilling again brought (D24, D25)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.utils import timezone

from agentmemory.authorship import Author
from agentmemory.models import Memory, Message, Provider
from agentmemory.services import stored_secrets
from distillation.models import Cursor, DistillationPass
from distillation.services import distilling, operations, redistillation, retention, spending
from distillation.services.spending import Usage
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


def test_d25_answers_are_forgotten_after_their_time_and_the_rest_stays(server: ModelServer, tell: Tell) -> None:
    distilling.run_cursor(cursor_id=cursor_of(tell("One fact here.")).pk)
    retention.forget_answers()
    assert DistillationPass.objects.exclude(answer="").count() == 1
    DistillationPass.objects.update(answered_at=timezone.now() - timedelta(days=91))
    assert retention.forget_answers() == "1 answers forgotten"
    row = DistillationPass.objects.get()
    assert (row.answer, row.outcome, row.input_tokens) == ("", "applied", 100)


def test_d25_calls_are_summed_by_day_space_agent_and_provider_failures_included(
    server: ModelServer, tell: Tell
) -> None:
    Provider.objects.create(
        name="anthropic", kind="anthropic", key_variable="ANTHROPIC_API_KEY", default_model="m", price_in=1, price_out=2
    )
    session = tell("One fact here.")
    server.script(model_server.raw_text("no json"))
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    distilling.run_pass(cursor_id=cursor_of(session).pk, force=True)
    [line] = spending.lines(days=30, most=10)
    assert (line.day, line.space, line.agent, line.provider) == (timezone.now().date(), "acme", "ada", "anthropic")
    assert line.usage == Usage(calls=2, failed=1, input_tokens=200, output_tokens=40, cost=Decimal("0.000280"))


def test_d24_distilling_again_tells_what_it_added_changed_and_no_longer_found(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")
    cursor = cursor_of(session)

    def item(key: str, content: str) -> dict[str, object]:
        return {"key": key, "content": content, "sources": [1]}

    first = [item("a", "Stays as it is."), item("b", "Was so before."), item("c", "Nobody finds it again.")]
    server.script(model_server.memories(first))
    distilling.run_cursor(cursor_id=cursor.pk)
    last = DistillationPass.objects.latest("pk").pk
    operations.distil_again(cursor_id=cursor.pk, seq=1, operator="olga", reason="better model")
    again = [item("a", "Stays as it is."), item("b", "Is otherwise now."), item("d", "Something quite new.")]
    server.script(model_server.memories(again))
    distilling.run_cursor(cursor_id=cursor.pk)
    report = redistillation.report(cursor=cursor, first_pass=last + 1)
    named = [[m.key for m in group] for group in (report.added, report.changed, report.confirmed, report.not_confirmed)]
    assert named == [["d"], ["b"], ["a"], ["c"]]
    assert Memory.objects.get(key="c").withdrawn_at is None


def test_d23_taking_back_by_command_tells_first_and_does_it_then(
    server: ModelServer, tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    session = tell("One fact here.", "Another fact here.")
    distilling.run_cursor(cursor_id=cursor_of(session).pk)
    where = ["u1", "--space", "acme", "--agent", "ada", "--session", "s1", "--reason", "wrong"]
    call_command("take_back", *where, "--dry-run")
    assert "one-fact-here: withdrawn" in capsys.readouterr().out
    assert Memory.objects.filter(withdrawn_at__isnull=False).count() == 0
    call_command("take_back", *where, "--delete")
    assert Memory.objects.filter(withdrawn_at__isnull=False).count() == 1
    assert not Message.objects.filter(session=session, uid="u1").exists()
    assert [m.seq for m in Message.objects.filter(session=session)] == [2, 3]


def test_d13_d25_secrets_in_the_answers_and_errors_of_passes_are_redacted_too(server: ModelServer, tell: Tell) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    session = tell("One fact here.")
    server.script(model_server.raw_text(f"The token is {secret}."))
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    Cursor.objects.update(last_error=f"refused {secret}")
    found = stored_secrets.redact(author=Author(kind="operator", name="olga"))
    assert len(found) == 2
    assert secret not in DistillationPass.objects.get().answer + Cursor.objects.get().last_error
