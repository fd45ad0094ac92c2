"""What becomes of memories when what they rest on is taken back (D23)."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import NotFound
from agentmemory.models import Agent, Memory, Session
from agentmemory.search import ranking
from agentmemory.services import context, curation, history, memories, removals, sessions, sources
from agentmemory.services.transcripts import NewMessage
from distillation.services import distilling, reconciliation
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


def listed(client: Client, **asked: str) -> str:
    """What the operators' list shows, without the marks on the words that were looked for."""
    return re.sub("</?b>", "", client.get("/admin/agentmemory/memory/", asked).content.decode())


def remembered(server: ModelServer, session: Session, *items: tuple[str, str, list[int]]) -> None:
    answer = [{"key": key, "content": content, "sources": sources} for key, content, sources in items]
    server.script(model_server.memories(answer))
    assert distilling.run_cursor(cursor_id=cursor_of(session).pk).state == "applied"


def found(agent: Agent, text: str) -> list[str]:
    caller = Caller(space=agent.space, agent=agent)
    listed = [m.content for m in memories.listing(caller=caller)]
    searched = [hit.memory.content for hit in ranking.search(caller=caller, q=text).items]
    assert set(searched) <= set(listed)
    return listed


def test_d23_a_memory_whose_every_source_is_retracted_is_withdrawn_and_found_nowhere(
    server: ModelServer, tell: Tell, agent: Agent, admin_client: Client
) -> None:
    session = tell("The port is 8080.", "Deploys are on Tuesday.")
    remembered(server, session, ("port", "The port is 8080.", [1]), ("deploys", "Deploys are on Tuesday.", [2]))
    removals.retract(session=session, uids=["u1"], reason="said by mistake")
    assert found(agent, "port 8080") == ["Deploys are on Tuesday."]
    gone = Memory.objects.get(key="port")
    caller = Caller(space=agent.space, agent=agent)
    assert "8080" not in context.build(caller=caller, q="port 8080").text
    with pytest.raises(NotFound):
        history.versions(caller=caller, memory_id=gone.pk)
    assert "The port is 8080." not in listed(admin_client, q="8080")
    assert "The port is 8080." in listed(admin_client, q="8080", standing="withdrawn")
    assert gone.withdrawn_at is not None
    assert "said by mistake" in gone.withdrawn_reason


def test_d23_a_memory_with_another_source_keeps_it(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.", "Yes, 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1, 2]))
    removals.retract(session=session, uids=["u1"])
    assert found(agent, "8080") == ["The port is 8080."]
    assert Memory.objects.get().sources.filter(gone_at__isnull=False).count() == 1


@pytest.mark.parametrize("taken_back", ["retract", "remove", "supersede", "rewind"])
def test_d23_the_words_of_what_is_taken_back_no_longer_find_what_stood_beside_them(
    server: ModelServer, tell: Tell, agent: Agent, taken_back: str
) -> None:
    session = tell("Hello.", "The port is 8080.", "My number is Zanzibar.")
    remembered(server, session, ("port", "The port is 8080.", [2]))
    memory = Memory.objects.get()
    assert "Hello" in memory.context
    assert "Zanzibar" in memory.context
    caller = Caller(space=agent.space, agent=agent)
    assert ranking.search(caller=caller, q="Zanzibar").items
    if taken_back == "retract":
        removals.retract(session=session, uids=["u3"])
    elif taken_back == "remove":
        removals.remove(session=session, uids=["u3"], reason="a secret")
    elif taken_back == "supersede":
        tell(NewMessage(uid="n", type="user", content="Never mind.", supersedes=["u3"]))
    else:
        removals.rewind(session=session, after_uid="u2")
    memory.refresh_from_db()
    assert memory.context == "Hello.\nThe port is 8080."
    assert (memory.content, memory.version, memory.withdrawn_at) == ("The port is 8080.", 2, None)
    assert not ranking.search(caller=caller, q="Zanzibar").items
    assert ranking.search(caller=caller, q="Hello").items
    assert sources.standing(memory).count() == 1


def test_d23_the_words_of_a_source_go_with_it_where_another_one_stands(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    session = tell("It listens on 8080, says Zanzibar.", "Yes, the port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1, 2]))
    removals.retract(session=session, uids=["u1"])
    assert Memory.objects.get().context == "Yes, the port is 8080."


def test_d23_what_stands_apart_from_what_is_taken_back_is_left_as_it_is(server: ModelServer, tell: Tell) -> None:
    session = tell("The port is 8080.", "Right.", "So.", "Bye.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    removals.retract(session=session, uids=["u3", "u4"])
    assert Memory.objects.get().version == 1


@pytest.mark.parametrize("undone", ["rewind", "remove"])
def test_d23_what_a_supersession_withdrew_comes_back_when_the_replacement_goes(
    server: ModelServer, tell: Tell, agent: Agent, undone: str
) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    tell(NewMessage(uid="n", type="user", content="Forget that.", supersedes=["u1"]))
    assert found(agent, "port") == []
    if undone == "rewind":
        removals.rewind(session=session, after_uid="u1")
    else:
        removals.remove(session=session, uids=["n"], reason="a slip")
    assert found(agent, "port 8080") == ["The port is 8080."]
    assert sources.standing(Memory.objects.get()).count() == 1


def test_d23_what_is_replaced_twice_or_retracted_stays_withdrawn(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.", "The host is acme.")
    remembered(server, session, ("port", "The port is 8080.", [1]), ("host", "The host is acme.", [2]))
    tell(NewMessage(uid="n1", type="user", content="Forget both.", supersedes=["u1", "u2"]))
    tell(NewMessage(uid="n2", type="user", content="Really.", supersedes=["u1"]))
    removals.retract(session=session, uids=["u2"])
    removals.remove(session=session, uids=["n1"], reason="a slip")
    assert found(agent, "port host") == []


def test_d23_what_a_person_withdrew_does_not_come_back_by_itself(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    person = Author(kind="operator", name="olga")
    curation.withdraw(memory_id=Memory.objects.get().pk, author=person, reason="wrong")
    tell(NewMessage(uid="n", type="user", content="Forget that.", supersedes=["u1"]))
    removals.remove(session=session, uids=["n"], reason="a slip")
    assert found(agent, "port") == []


def test_d23_an_earlier_version_returns_where_the_current_one_lost_its_source(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    tell("The port is 9090.")
    remembered(server, session, ("port", "The port is 9090.", [3]))
    removals.retract(session=session, uids=["u3"])
    assert found(agent, "port") == ["The port is 8080."]
    assert Memory.objects.get().version == 3
    removals.retract(session=session, uids=["u1"])
    assert found(agent, "port") == []


@pytest.mark.parametrize("taken_back", ["rewind", "delete", "supersede"])
def test_d23_rewind_deletion_and_supersession_follow_the_same_rule(
    server: ModelServer, tell: Tell, agent: Agent, taken_back: str
) -> None:
    session = tell("Hello.", "The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [2]))
    if taken_back == "rewind":
        removals.rewind(session=session, after_uid="u1")
    elif taken_back == "delete":
        sessions.delete(session=session)
    else:
        tell(NewMessage(uid="new", type="user", content="The port is 9090.", supersedes=["u2"]))
    assert found(agent, "port") == []
    assert Memory.objects.get().sources.get().uid == "u2"


def test_d23_a_supersession_makes_the_replacement_due(server: ModelServer, tell: Tell) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    tell(NewMessage(uid="new", type="user", content="The port is 9090.", supersedes=["u1"]))
    remembered(server, session, ("port", "The port is 9090.", [3]))
    memory = Memory.objects.get()
    assert (memory.content, memory.withdrawn_at) == ("The port is 9090.", None)


def test_deleting_a_session_with_memories_kept_leaves_them(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    sessions.delete(session=session, keep_memories=True)
    assert found(agent, "port") == ["The port is 8080."]


def test_r7_a_session_made_again_under_its_name_is_distilled_from_its_first_message(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    sessions.delete(session=session)
    again = tell("The port is 8080.")
    assert cursor_of(again).position == 0
    remembered(server, again, ("port", "The port is 8080.", [1]))
    assert found(agent, "port") == ["The port is 8080."]


def test_d23_what_a_person_edited_or_wrote_is_left_alone(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    operator = Author(kind="operator", name="olga")
    curation.edit(memory_id=Memory.objects.get().pk, author=operator, reason="clearer", content="It is port 8080.")
    removals.retract(session=session, uids=["u1"])
    assert found(agent, "port") == ["It is port 8080."]


def test_d23_a_plan_tells_what_would_happen_and_does_nothing(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, ("port", "The port is 8080.", [1]))
    plan = reconciliation.plan(session=session, uids=["u1"])
    assert [(change.memory.key, change.action) for change in plan] == [("port", "withdrawn")]
    assert found(agent, "port") == ["The port is 8080."]


def test_d23_what_is_retracted_during_the_call_is_not_remembered(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("The port is 8080.", "Deploys are on Tuesday.")

    def at(point: str) -> None:
        if point == "call.after":
            removals.retract(session=session, uids=["u1"])

    faults.install(at)
    try:
        distilling.run_cursor(cursor_id=cursor_of(session).pk)
    finally:
        faults.install(None)
    assert found(agent, "port") == ["Deploys are on Tuesday."]
