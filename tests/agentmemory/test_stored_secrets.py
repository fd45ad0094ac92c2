"""Secrets that were stored before their kind was known (D13)."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.models import Memory, MemoryEvent, Message, StoredAnswer
from agentmemory.services import stored_secrets, tokens
from tests.factories import MemoryFactory, MessageFactory

pytestmark = pytest.mark.django_db
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
OPERATOR = Author(kind="operator", name="olga")


@pytest.fixture
def stored() -> Memory:
    MessageFactory.create(seq=1, content=[{"type": "text", "text": f"Use {SECRET}."}], text=f"Use {SECRET}.")
    memory = MemoryFactory.create(content=f"The token is {SECRET}.", tags=["access"])
    with authorship.acting(Author(kind="agent", name="ada")):
        Memory.objects.filter(pk=memory.pk).update(content=f"The token is now {SECRET}.")
    return memory


def everything() -> str:
    rows = [*Message.objects.values_list("content", "text"), *Memory.objects.values_list("content", "search")]
    return json.dumps([*rows, *MemoryEvent.objects.values_list("content")], default=str)


def test_d13_what_was_stored_before_is_redacted_everywhere_the_history_included(stored: Memory) -> None:
    assert SECRET in everything()
    found = stored_secrets.redact(author=OPERATOR)
    assert SECRET.lower() not in everything().lower()
    assert set(found) == {"messages", "memories", "memory events"}
    assert Message.objects.get().text == Message.objects.get().content[0]["text"]
    assert stored_secrets.redact(author=OPERATOR) == {}


def test_d13_a_dry_run_tells_the_kinds_and_changes_nothing(stored: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything()
    call_command("redact_stored", "--dry-run")
    assert everything() == before
    told = capsys.readouterr().out
    assert "would be replaced" in told
    assert SECRET not in told


def test_d13_answers_that_are_kept_for_calls_that_come_again_are_redacted(stored: Memory) -> None:
    token = tokens.issue(space=stored.space).token
    kept = {"token": token, "digest": "0" * 64, "status": 200}
    StoredAnswer.objects.create(
        **kept, key="json", body=json.dumps({"items": [{"content": f"It is {SECRET}."}]}).encode()
    )
    StoredAnswer.objects.create(**kept, key="text", body=f"not JSON: {SECRET}".encode())
    StoredAnswer.objects.create(**kept, key="none", body=b"\xff{}")
    assert "stored answers" in stored_secrets.redact(author=OPERATOR)
    bodies = {row.key: bytes(row.body) for row in StoredAnswer.objects.all()}
    assert SECRET.encode() not in b"".join(bodies.values())
    assert json.loads(bodies["json"])["items"][0]["content"].startswith("It is [redacted:")
    assert bodies["none"] == b"\xff{}"
    assert stored_secrets.redact(author=OPERATOR) == {}


def test_m5_the_history_refuses_a_change_that_is_no_redaction(stored: Memory) -> None:
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        MemoryEvent.objects.update(content="x")
