"""One box over everything: found by any name, bounded, within what its user may see, and on record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection
from django.test import Client
from django.urls import reverse

from agentmemory.console import markup
from agentmemory.models import Activity, Agent, Memory, MessageIndex, Session
from agentmemory.search import lexical, marking
from agentmemory.services import indexing, lookup, patience, sessions, transcripts
from agentmemory.services.patience import TookTooLong
from distillation.models import Cursor, DistillationPass
from tests.factories import AgentFactory, MemoryFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found depends on no clock, however busy this machine is."""
    monkeypatch.setattr(lookup, "PATIENCE", 60.0)
    monkeypatch.setattr(lookup, "A_MOMENT", 60.0)


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="grace", name="Grace of the harbour")


@pytest.fixture
def memory(agent: Agent) -> Memory:
    return MemoryFactory.create(owner=agent, key="deploy-day", content="We deploy on Tuesdays, when all are in.")


@pytest.fixture
def session(agent: Agent) -> Session:
    session, _ = sessions.adopt(agent=agent, name="standup-7", title="What to do about staging")
    said = [transcripts.NewMessage(uid="msg_01Q", type="user", content="The staging certificate is about to expire.")]
    transcripts.append(session=session, messages=said)
    indexing.fill(MessageIndex.objects.all())
    return session


@pytest.fixture
def passed(session: Session) -> DistillationPass:
    cursor = Cursor.objects.get(session=session)
    row = {"space": session.space, "agent": session.agent, "cursor": cursor, "session": session}
    return DistillationPass.objects.create(**row, session_name=session.name, epoch=1, start=0, end=1, outcome="failed")


def signed_in(client: Client, *, group: str = "") -> Client:
    user = User.objects.create_user("vic", is_staff=True, is_superuser=not group)
    user.groups.add(*Group.objects.filter(name=group))
    client.force_login(user)
    return client


def found(client: Client, words: str) -> str:
    answer = client.get(reverse("admin:search"), {"s": words})
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("deploy-day", "deploy-day"),
        ("depl", "deploy-day"),
        ("Tuesday deploys", "deploy-day"),
        ("grace", "grace"),
        ("harbour", "grace"),
        ("standup-7", "standup-7"),
        ("about staging", "standup-7"),
        ("msg_01Q", "standup-7, message 1"),
        ("certificates expiring", "standup-7, message 1"),
    ],
)
def test_everything_is_found_by_what_it_is_called_or_says(
    client: Client, memory: Memory, session: Session, words: str, title: str
) -> None:
    assert f">{title}</a>" in found(signed_in(client), words)


def test_ids_and_numbers_lead_to_their_rows(client: Client, memory: Memory, passed: DistillationPass) -> None:
    signed_in(client)

    assert ">deploy-day</a>" in found(client, str(memory.pk))
    for words in (str(passed.pk), f"pass {passed.pk}"):
        assert reverse("admin:distillation_distillationpass_change", args=[passed.pk]) in found(client, words)


def test_an_exact_key_comes_first_and_what_is_gone_says_so(client: Client, agent: Agent, memory: Memory) -> None:
    MemoryFactory.create(owner=agent, origin="distilled", key="about-it", content="The deploy-day was moved.")
    MemoryFactory.create(owner=agent, origin="distilled", key="deploy-day", deleted_at=memory.created_at)

    text = found(signed_in(client), "deploy-day")

    assert text.index(">deploy-day</a>") < text.index(">about-it</a>")
    assert "</span>deleted</span>" in text


def test_a_result_shows_its_words_and_comes_before_what_matches_by_its_context_alone(
    client: Client, agent: Agent, memory: Memory
) -> None:
    MemoryFactory.create(owner=agent, key="weekdays", content="All are in.", context="Said about <b>Tuesdays</b>.")
    MemoryFactory.create(owner=agent, key="office", content="We meet.", tags=["tuesdays"])
    signed_in(client)

    text = found(client, "Tuesday")

    assert "We deploy on <b>Tuesdays</b>, when" in text
    assert text.index(">deploy-day</a>") < text.index(">weekdays</a>")
    assert text.index(">office</a>") < text.index(">weekdays</a>")
    assert [text.count(f"<em>{why}</em>") for why in ("in its context", "in its tags")] == [1, 1]
    listed = client.get(reverse("admin:agentmemory_memory_changelist"), {"q": "Tuesday"}).content.decode()
    assert listed.index(">deploy-day<") < listed.index(">weekdays<")
    assert "We deploy on <b>Tuesdays</b>, when" in listed
    assert listed.count("in its context") == 1
    palette = client.get(reverse("admin:search"), {"s": "Tuesday", "extended": "1"}).content.decode()
    assert "All are in. · " in palette
    assert 'in its context"' in palette


def test_a_message_that_matches_by_what_was_said_before_it_says_so_and_comes_last(
    client: Client, session: Session
) -> None:
    said = [transcripts.NewMessage(uid="msg_02", type="assistant", content="I will see to it.")]
    transcripts.append(session=session, messages=said)
    indexing.fill(MessageIndex.objects.all())

    text = found(signed_in(client), "certificate")

    assert "The staging <b>certificate</b> is about" in text
    assert text.index(">standup-7, message 1</a>") < text.index(">standup-7, message 2</a>")
    assert text.count("<em>in what was said before it</em>") == 1


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("We deployed & rest.", "deploy", "We <b>deployed</b> &amp; rest."),
        ("Go on, Google.", "go", "<b>Go</b> on, Google."),
        ("東京で会う", "会う", "東京で<b>会う</b>"),
        ("Nothing of it.", "", "Nothing of it."),
        ("<script>", "script", "&lt;<b>script</b>&gt;"),
    ],
)
def test_words_are_marked_in_their_forms_and_nothing_else_is_markup(text: str, words: str, shown: str) -> None:
    assert markup.bold(text, marking.pattern(words)) == shown


@pytest.mark.parametrize("words", ["Tuesday deploys", "certificates expiring", "deploy-day", "msg_01Q"])
def test_who_may_not_read_what_is_private_finds_none_of_it(
    client: Client, memory: Memory, session: Session, words: str
) -> None:
    text = found(signed_in(client, group="Viewers"), words)

    assert "We deploy on" not in text
    assert "The staging certificate" not in text
    assert ">deploy-day</a>" not in text
    assert "You see shared ones only" in text
    assert not Activity.objects.exists()


def test_kinds_that_may_not_be_seen_are_not_looked_for(client: Client, memory: Memory) -> None:
    user = User.objects.create_user("nobody", is_staff=True)
    client.force_login(user)

    assert 'id="nothing-found"' in found(client, "deploy-day")


def test_private_content_that_is_shown_is_in_the_activity_once(client: Client, memory: Memory) -> None:
    signed_in(client)

    found(client, "Tuesdays")
    found(client, "Tuesdays")
    found(client, "grace")

    assert list(Activity.objects.values_list("act", "target_type", "target")) == [
        ("look", "agentmemory.memory", "what a search found")
    ]


def test_a_few_of_each_kind_are_shown_and_the_list_goes_on(client: Client, agent: Agent) -> None:
    for number in range(9):
        MemoryFactory.create(owner=agent, key=f"harbour-{number}")

    text = found(signed_in(client), "harbour")

    assert text.count('am-key" href="/admin/agentmemory/memory/') == lookup.SHOWN
    assert reverse("admin:agentmemory_memory_changelist") + "?q=harbour" in text


def test_what_takes_too_long_says_so_and_the_rest_is_found(
    client: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(words: str, readable: bool) -> list[lookup.Found]:
        sleep()
        return []

    with monkeypatch.context() as hurried:
        hurried.setattr(lookup, "PATIENCE", 0.01)
        assert lookup.within_patience(slow, "words", readable=True) is None
    assert ">deploy-day</a>" in found(signed_in(client), "deploy-day")


def test_a_word_that_very_many_rows_hold_is_found_among_the_newest(
    client: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(rows: Any, words: str, *, in_view: bool = False) -> Any:
        return sleep() if in_view else lexical.holding(rows, words)

    monkeypatch.setattr(lookup, "A_MOMENT", 0.01)
    monkeypatch.setattr(lookup, "lexical", SimpleNamespace(holding=slow))
    assert ">deploy-day</a>" in found(signed_in(client), "Tuesdays")


def test_a_time_limit_holds_for_its_block_and_no_longer() -> None:
    def limit() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            return str(cursor.fetchone()[0])

    before = limit()
    with patience.at_most(7):
        assert limit() == "7s"
        with pytest.raises(TookTooLong), patience.at_most(0.01):
            sleep()
        assert limit() == "7s"
    assert limit() == before
    with pytest.raises(OperationalError, match="gone"), patience.at_most(7):
        raise OperationalError("the connection is gone")


def sleep() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")


def test_whatever_is_typed_is_looked_for_as_it_is(client: Client, memory: Memory) -> None:
    signed_in(client)

    for words in ("", " ", "\0", "'); DROP", "%", "_", "\\", "9" * 30, "a" * 5000, "🙂", "-" * 32):
        assert ">deploy-day</a>" not in found(client, words), words


def test_the_palette_has_the_same_and_keeps_nothing(client: Client, agent: Agent) -> None:
    signed_in(client)
    memory = MemoryFactory.create(owner=agent, origin="distilled", content="About Tuesdays.")
    page = reverse("admin:agentmemory_memory_change", args=[memory.pk])

    def shown() -> bool:
        return page in client.get(reverse("admin:search"), {"s": "Tuesdays", "extended": "1"}).content.decode()

    assert shown()
    Memory.objects.filter(pk=memory.pk).update(content="About something else.")
    assert not shown()


def test_the_box_is_on_every_page_and_needs_no_script(client: Client) -> None:
    text = signed_in(client).get(reverse("admin:index")).content.decode()

    assert f'<form method="get" action="{reverse("admin:search")}" role="search"' in text


def test_a_stranger_finds_nothing(client: Client, memory: Memory) -> None:
    answer = client.get("/admin/search/", {"s": "deploy-day"})

    assert (answer.status_code, "login" in answer.headers["Location"]) == (302, True)


def test_who_may_purge_goes_on_to_everything_about_it(client: Client, memory: Memory) -> None:
    text = found(signed_in(client), "Tuesdays")

    assert f'href="{reverse("admin:agentmemory_certificate_find")}?q=Tuesdays"' in text
