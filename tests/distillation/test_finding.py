"""Find everything: no column that may hold words of people or agents is passed by (M5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.models import Activity, Agent, Message, Session, StoredAnswer
from agentmemory.services import finding, memories, purging, spaces, stored_secrets, tokens
from agentmemory.services.purging import Scope
from sessions_exec.models import Input
from sessions_exec.services import executions, inbox
from tests.distillation.test_purging import where
from tests.factories import AgentFactory, MessageFactory, SessionFactory

pytestmark = pytest.mark.django_db
OLGA = Author(kind="operator", name="olga")
WORDS = "Remind Ottoline Brugge"
FIND = "admin:agentmemory_certificate_find"

OURS = "Words of the product's own."
AUTHORS = "Handles of agents and names of operators, which are found where they are kept."
SETUP = "Names of models and extractors, which are set up with providers and agents."
COPIES = "Made of columns that are looked through."
DIGEST = "Nobody can read words out of it."
NUMBERS = "Numbers and ids that the product gives."
QUEUE = "Names of functions and ids: no task is given words."
TABLES_EXCUSED = {
    "auth_permission": OURS,
    "django_content_type": OURS,
    "django_migrations": OURS,
    "django_q_ormq": QUEUE,
    "django_q_schedule": QUEUE,
    "django_q_task": QUEUE,
    "sessions_exec_taskrun": QUEUE,
    "django_session": "Who is signed in, and lines that are shown once: encoded, and forgotten by itself.",
    "pghistory_context": "Nothing is written there: every version has its own in its row.",
    "agentmemory_messageindex": COPIES,
}
EXCUSED = {
    "agentmemory_activity": {"target_type": OURS},
    "agentmemory_agent": {"status": OURS},
    "agentmemory_certificate": {"scope": NUMBERS, "counts": NUMBERS},
    "agentmemory_consolidation": {"kind": OURS, "author": AUTHORS, "undone_by": AUTHORS},
    "agentmemory_logintries": {"kind": OURS},
    "agentmemory_memory": {
        "origin": OURS,
        "created_by": AUTHORS,
        "withdrawn_by": AUTHORS,
        "edited_by": AUTHORS,
        "search": COPIES,
    },
    "agentmemory_memoryevent": {
        "pgh_label": OURS,
        "origin": OURS,
        "created_by": AUTHORS,
        "withdrawn_by": AUTHORS,
        "edited_by": AUTHORS,
    },
    "agentmemory_message": {"type": OURS, "delivery": OURS, "digest": DIGEST, "redactions": NUMBERS},
    "agentmemory_messageedge": {"kind": OURS},
    "agentmemory_provider": {"kind": OURS, "stopped_by": AUTHORS},
    "agentmemory_storedanswer": {"digest": DIGEST, "content_type": OURS},
    "agentmemory_token": {"prefix": NUMBERS, "digest": DIGEST},
    "auth_user": {"password": DIGEST},
    "distillation_cursor": {"holder": NUMBERS},
    "distillation_distillationpass": {
        "worker": NUMBERS,
        "shown": NUMBERS,
        "known": NUMBERS,
        "fence": NUMBERS,
        "provider_name": SETUP,
        "model": SETUP,
        "extractor": SETUP,
        "prompt_version": OURS,
        "outcome": OURS,
        "failure": OURS,
    },
    "distillation_quarantine": {"state": OURS, "decided_by": AUTHORS},
    "django_admin_log": {"object_id": NUMBERS},
    "sessions_exec_delivery": {"event": OURS, "once": NUMBERS, "state": OURS},
    "sessions_exec_execution": {"phase": OURS},
    "sessions_exec_input": {
        "kind": OURS,
        "digest": DIGEST,
        "redactions": NUMBERS,
        "delivery": OURS,
        "admitted_delivery": OURS,
        "state": OURS,
    },
    "sessions_exec_modelcall": {
        "purpose": OURS,
        "provider_name": SETUP,
        "model": SETUP,
        "outcome": OURS,
        "failure": OURS,
    },
    "sessions_exec_recovery": {"phase": OURS, "outcome": OURS},
    "sessions_exec_sessionevent": {"type": OURS},
    "sessions_exec_webhook": {"events": OURS, "salt": DIGEST, "old_salt": DIGEST, "paused_by": AUTHORS},
}
COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables
    USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type IN
    ('text', 'character varying', 'character', 'json', 'jsonb', 'ARRAY', 'bytea', 'tsvector', 'hstore', 'xml')
"""


def test_m5_every_column_of_text_is_looked_through_or_excused_with_a_reason() -> None:
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS)
        there = {(table, column) for table, column in cursor.fetchall() if table not in TABLES_EXCUSED}
    looked = {
        (each.model._meta.db_table, finding._field(each.model, column).column)
        for place in finding.places
        for each in place.looked
        for column in each.columns
    }
    excused = {(table, column) for table, columns in EXCUSED.items() for column in columns}
    assert there - looked - excused == set(), "columns that are neither looked through nor excused"
    assert excused - there == set(), "columns that are excused and not there"
    assert looked & excused == set(), "columns that are looked through and excused"
    assert looked - there == set()
    redacted = {(place.model._meta.db_table, column) for place in stored_secrets.PLACES for column in place.columns}
    assert redacted <= looked, "columns in which secrets are looked for, and words are not"


def test_m5_what_is_found_can_be_purged_or_it_is_said_why_it_stays(agent: Agent) -> None:
    kinds = [place.kind for place in finding.places]
    assert len(kinds) == len(set(kinds))
    assert {place.kind for place in finding.places if not place.stays} == {
        "memory",
        "message",
        "session",
        "pass",
        "input",
    }


def test_m5_an_input_that_waits_and_instructions_are_found_and_the_input_is_purged(
    operator: Client, agent: Agent
) -> None:
    session = SessionFactory.create(agent=agent)
    inbox.admit(session=session, uid="i1", prompt=f"{WORDS} of the invoice.", delivery="queue")
    Agent.objects.filter(pk=agent.pk).update(instructions=f"{WORDS.upper()} every week.")
    found = {row.kind: row for row in finding.everything(WORDS).rows}
    assert set(found) == {"input", "agent"}
    page = operator.get(reverse(FIND), {"q": WORDS}).content.decode()
    assert reverse("admin:agentmemory_agent_change", args=[agent.pk]) in page
    assert "It is changed on its page." in page
    assert page.count('type="checkbox"') == 1
    row = Input.objects.get()
    asked = {"input": [str(row.pk)], "step": "purge", "reason": "asked for"}
    operator.post(reverse(FIND), asked)
    row.refresh_from_db()
    assert (row.state, row.prompt, row.uid) == ("cancelled", "", "i1")
    assert {found.kind for found in finding.everything(WORDS).rows} == {"agent"}


def test_m5_an_input_that_became_a_message_is_purged_with_it(agent: Agent) -> None:
    session = SessionFactory.create(agent=agent)
    inbox.admit(session=session, uid="i1", prompt=f"{WORDS}.", delivery="queue")
    held = executions.acquire(session=session, holder="runner", seconds=60)
    guard = executions.Held(execution_id=held.execution_id, epoch=held.epoch)
    assert inbox.promote(session=session, guard=guard, boundary="idle")
    assert Message.objects.count() == 1
    scope = Scope(input_ids=[Input.objects.get().pk])
    purging.purge(scope=scope, author=OLGA, reason="asked for")
    assert not Message.objects.exists()
    assert where(WORDS.lower()) == set()


def test_m5_a_session_is_purged_with_what_was_ticked_in_it(agent: Agent) -> None:
    session = SessionFactory.create(agent=agent)
    message = MessageFactory.create(session=session, text=WORDS, content=WORDS)
    inbox.admit(session=session, uid="i1", prompt=WORDS, delivery="queue")
    scope = Scope(session_ids=[session.pk], message_ids=[message.pk], input_ids=[Input.objects.get().pk])
    purging.purge(scope=scope, author=OLGA, reason="asked for")
    assert not Session.objects.exists()
    assert where(WORDS.lower()) == set()


@pytest.mark.parametrize("body", [b'{"said": "Z\xc3\xbcrich \\"x\\""}', b'{"said": "Z\\u00fcrich \\"X\\""}'])
def test_words_are_found_in_bytes_and_as_json_writes_them(agent: Agent, body: bytes) -> None:
    token = tokens.issue(space=agent.space, agent=agent)
    StoredAnswer.objects.create(token=token.token, key="k", digest="d", status=200, body=body)
    (found,) = finding.everything('Zürich "x"').rows
    assert found.kind == "answer kept"


def test_what_takes_too_long_is_told_and_nothing_is_said_to_be_all(
    operator: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    AgentFactory.create(space=agent.space, handle="ottoline")
    slow = finding.Place(kind="slow", looked=(finding.Looked(model=Agent, columns=("handle",)),))
    find: Any = finding._find

    def asleep(place: finding.Place, text: str) -> Any:
        if place is slow:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(60)")
        return find(place, text)

    monkeypatch.setattr(finding, "_find", asleep)
    monkeypatch.setattr(finding, "ALL_SECONDS", 0)
    monkeypatch.setattr(finding, "places", [slow, *finding.places])
    found = finding.everything("ottoline")
    assert found.unfinished == ("slow",)
    assert [row.kind for row in found.rows] == ["agent"]
    text = operator.get(reverse(FIND), {"q": "of nobody at all"}).content.decode()
    assert "Not looked through to the end" in text
    assert "Nothing is stored about it" not in text


def test_a_reason_on_record_is_found_and_it_is_said_that_it_stays(operator: Client, agent: Agent) -> None:
    spaces.archive_agent(agent_id=agent.pk)
    Activity.objects.create(who="operator:olga", act="archive", space=agent.space, reason=f"{WORDS} asked")
    text = operator.get(reverse(FIND), {"q": WORDS}).content.decode()
    assert "The record of acts stays." in text
    assert 'type="checkbox"' not in text


def test_words_that_only_an_earlier_version_has_are_said_to_be_in_the_history(operator: Client, agent: Agent) -> None:
    caller = Caller(space=agent.space, agent=agent)
    for said in ("Ottoline Brugge decides.", "Somebody decides."):
        memories.put(caller=caller, draft=memories.Draft(key="who", content=said))
    memories.put(caller=caller, draft=memories.Draft(key="now", content="Ottoline Brugge does."))

    found = {row.where: (row.excerpt, row.why) for row in finding.everything("Brugge").rows if row.kind == "memory"}

    assert found["now"] == ("Ottoline Brugge does.", "")
    assert found["who"][0] == ""
    assert found["who"][1].startswith("in its history")
    assert "<em>in its history" in operator.get(reverse(FIND), {"q": "Brugge"}).content.decode()
