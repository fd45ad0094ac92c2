"""Operators take single messages back (D23): told before, done once, on record."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Activity, Memory, Message, Session
from distillation.services import distilling, taking_back
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server, running
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
WHO = {"operator": "olga", "reason": "said by mistake"}


@pytest.fixture
def session(server: ModelServer, tell: Tell) -> Session:
    """`port` rests on the first message alone, `team` on both."""
    session = tell("The port is 8080. We are six.", "Six, yes.")
    found: list[dict[str, Any]] = [
        {"key": "port", "content": "The port is 8080.", "sources": [1]},
        {"key": "team", "content": "The team has six people.", "sources": [1, 2]},
    ]
    server.script(model_server.memories(found))
    assert distilling.run_cursor(cursor_id=cursor_of(session).pk).state == "applied"
    return session


def message(session: Session, seq: int = 1) -> Message:
    return Message.objects.get(session=session, seq=seq)


def test_d23_a_plan_tells_what_would_be_touched_and_touches_nothing(session: Session) -> None:
    changes = taking_back.plan(messages=[message(session)])

    assert {change.memory.key: change.action for change in changes} == {"port": "withdrawn", "team": "stays"}
    assert not Memory.objects.filter(withdrawn_at__isnull=False).exists()


@pytest.mark.parametrize(
    ("act", "name"), [(taking_back.retract, "retract message"), (taking_back.delete, "delete message")]
)
def test_d23_a_message_is_taken_back_with_what_rests_on_it_and_on_record(session: Session, act: Any, name: str) -> None:
    act(message_id=message(session).pk, **WHO)

    assert Memory.objects.get(withdrawn_at__isnull=False).key == "port"
    assert Message.objects.filter(session=session, seq=1, retracted_at__isnull=True).count() == 0
    found = Activity.objects.get(act=name)
    assert (found.who, found.reason, found.target) == ("operator:olga", "said by mistake", session.name)
    assert found.detail == {"uid": "u1", "seq": 1, "withdrawn": 1, "stays": 1}


def test_d23_a_message_is_retracted_once(session: Session) -> None:
    taking_back.retract(message_id=message(session).pk, **WHO)

    with pytest.raises(Invalid, match="already"):
        taking_back.retract(message_id=message(session).pk, **WHO)
    with pytest.raises(NotFound):
        taking_back.retract(message_id=0, **WHO)


def test_s1_nothing_is_deleted_from_a_session_that_is_being_run(session: Session) -> None:
    running.acquire(session)

    with pytest.raises(Invalid, match="is being run"):
        taking_back.delete(message_id=message(session).pk, **WHO)
    assert not Activity.objects.filter(act="delete message").exists()


def act_url(name: str, row: Message) -> str:
    return reverse("admin:agentmemory_message_act", args=[name]) + f"?ids={row.pk}"


@pytest.mark.parametrize("name", ["retract", "delete"])
def test_d23_the_conversation_offers_it_and_the_page_shows_what_it_will_touch(
    operator: Client, session: Session, name: str
) -> None:
    row = message(session)
    conversation = reverse("admin:agentmemory_session_change", args=[session.pk])
    assert act_url(name, row).replace("?", "?") in operator.get(conversation).content.decode()

    asked = operator.get(act_url(name, row)).content.decode()
    assert "this was all it rests on" in asked
    assert "it has another source" in asked
    assert operator.post(act_url(name, row), {"reason": ""}).status_code == 422
    assert message(session).retracted_at is None

    told = operator.post(act_url(name, row) + f"&next={conversation}", {"reason": "a mistake"}, follow=True)
    assert "1 kept, 1 withdrawn" in told.content.decode()


def test_a_message_is_found_by_its_uid_and_read_in_its_conversation(operator: Client, session: Session) -> None:
    listed = operator.get(reverse("admin:agentmemory_message_changelist"), {"q": "u2"}).content.decode()
    assert "u2" in listed
    assert ">u1<" not in listed
    assert "8080" not in listed

    page = operator.get(reverse("admin:agentmemory_message_change", args=[message(session).pk]))
    assert page["Location"].endswith("?at=1#m1")


def test_a_viewer_is_offered_nothing(client: Client, session: Session) -> None:
    user = User.objects.create_user("vic", is_staff=True)
    user.groups.add(Group.objects.get(name="Viewers"))
    client.force_login(user)

    assert "Retract" not in client.get(reverse("admin:agentmemory_session_change", args=[session.pk])).content.decode()
    assert client.post(act_url("delete", message(session)), {"reason": "x"}).status_code == 403
