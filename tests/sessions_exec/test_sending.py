"""An operator sends an input from a session's page, and follows how it is answered."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from agentmemory.models import Activity, Session
from sessions_exec.errors import Crowded
from sessions_exec.models import Input
from sessions_exec.services import events, executions, inbox, own_runs, waiting
from tests.factories import SessionFactory
from tests.support.running import acquire, admit, say

pytestmark = pytest.mark.django_db

UID = "operator-00000000-0000-4000-8000-000000000001"


@pytest.fixture
def session() -> Session:
    return SessionFactory.create(name="s1")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for an event is told at once: what there is, is there."""
    monkeypatch.setattr(waiting, "wait", lambda **_: None)


def page(client: Client, session: Session) -> str:
    return client.get(reverse("admin:agentmemory_session_change", args=[session.pk])).content.decode()


def send(client: Client, session: Session, **more: Any) -> Any:
    body = {"uid": UID, "prompt": "Where is the Aurora?", "delivery": "steer", **more}
    return client.post(reverse("admin:sessions_exec_input_send", args=[session.pk]), body)


def watch(client: Client, session: Session, after: int = 0) -> Any:
    return client.get(reverse("admin:sessions_exec_input_watch", args=[session.pk]), {"after": after})


def test_an_operator_sends_an_input_which_is_admitted_as_any_other_and_put_on_record(
    operator: Client, session: Session
) -> None:
    say(session, "m1")
    assert 'id="send-form"' in page(operator, session)
    answer = send(operator, session)
    assert answer["Location"] == reverse("admin:agentmemory_session_change", args=[session.pk]) + "?at=1#send"
    row = Input.objects.get()
    assert (row.uid, row.prompt, row.delivery, row.resume) == (UID, "Where is the Aurora?", "steer", True)
    act = Activity.objects.get(act="send input")
    assert (act.who, act.target_id) == ("operator:olga", str(row.pk))
    assert "Aurora" not in str(act.detail) + act.target + act.reason


def test_s4_a_form_that_is_sent_twice_is_one_input(operator: Client, session: Session) -> None:
    send(operator, session)
    send(operator, session)
    assert Input.objects.count() == 1
    assert Activity.objects.filter(act="send input").count() == 1
    send(operator, session, prompt="Something else.")
    assert "already, with another prompt" in page(operator, session)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt": " "}, "Say something to the agent: This field is required."),
        ({"uid": "mine"}, "Uid: Enter a valid value."),
        ({"delivery": "now"}, "When it is seen: Select a valid choice."),
        ({"prompt": "x" * 100_001}, "Say something to the agent: Ensure this value has at most 100000 characters"),
    ],
    ids=["blank", "an id of one's own", "no delivery", "too long"],
)
def test_what_is_no_input_is_refused_with_words(
    operator: Client, session: Session, more: dict[str, str], words: str
) -> None:
    answer = send(operator, session, **more)
    assert not Input.objects.exists()
    (told,) = get_messages(answer.wsgi_request)
    assert str(told).startswith(words)
    # It stands above the conversation, where the page opens without a place below.
    assert answer["Location"].endswith("?at=1")


def test_who_may_only_look_has_no_box_and_is_refused(viewer: Client, session: Session) -> None:
    assert "send-form" not in page(viewer, session)
    assert send(viewer, session).status_code == 403
    assert send(viewer, Session(pk=10**9)).status_code == 403
    assert watch(viewer, session).status_code == 200
    assert watch(Client(), session).status_code == 302


def test_to_what_is_archived_nothing_is_sent(operator: Client, session: Session) -> None:
    session.agent.archived_at = "2026-01-01T00:00Z"
    session.agent.save()
    assert "send-form" not in page(operator, session)
    assert send(operator, session).status_code == 403


def test_the_page_follows_while_something_goes_on_and_no_longer(operator: Client, session: Session) -> None:
    assert "hx-get" not in _watching(page(operator, session))
    admit(session, "i1")
    newest = events.newest(session=session)
    assert f"after={newest}" in _watching(page(operator, session))
    answer = watch(operator, session, after=newest)
    assert "HX-Trigger" not in answer
    assert "waits for a runner" in answer.content.decode()
    held = acquire(session)
    answer = watch(operator, session, after=newest)
    assert answer["HX-Trigger"] == "session-moved"
    assert "Somebody is at work" in answer.content.decode()
    inbox.promote(session=session, guard=held, boundary="step")
    executions.release(session=session, held=held)
    assert "hx-get" not in watch(operator, session).content.decode()


def test_the_page_says_what_keeps_an_input(operator: Client, session: Session) -> None:
    admit(session, "i1")
    own_runs.kept_from(session, "provider p paused until tomorrow")
    told = page(operator, session)
    assert "An input waits: provider p paused until tomorrow." in told
    assert told.count("provider p paused until tomorrow") == 2


def test_who_finds_too_many_waiting_asks_again_later(
    operator: Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(**_: Any) -> None:
        raise Crowded("200 calls wait already.")

    admit(session, "i1")
    monkeypatch.setattr(waiting, "wait", crowded)
    assert "load delay:5s" in watch(operator, session).content.decode()


def _watching(text: str) -> str:
    found = re.search(r'<div class="am-head" id="watch".*?</div>', text, re.DOTALL)
    assert found is not None
    return found.group()
