"""What the pages say of what is not there any more: that it was erased, and not that it never was."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from django.urls import reverse

from agentmemory.authorship import Author
from agentmemory.models import Certificate, Memory, MemoryEvent, Message, Session
from agentmemory.services import purging
from agentmemory.services.purging import Scope
from distillation.models import DistillationPass
from tests.distillation.conftest import Tell
from tests.distillation.test_purging import item, remembered
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
OLGA = Author(kind="operator", name="olga")


def purge(session: Session, *uids: str) -> None:
    ids = session.messages.filter(uid__in=uids).values_list("pk", flat=True)
    purging.purge(scope=Scope(message_ids=list(ids)), author=OLGA, reason="asked for")


def said(client: Client, session: Session, query: str = "") -> str:
    page = client.get(reverse("admin:agentmemory_session_change", args=[session.pk]) + query).content.decode()
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def of_pass(client: Client) -> str:
    page = reverse("admin:distillation_distillationpass_change", args=[DistillationPass.objects.get().pk])
    return client.get(page).content.decode()


def test_a_pass_whose_messages_were_purged_says_so_and_what_it_cost(
    operator: Client, server: ModelServer, tell: Tell
) -> None:
    session = tell("We call it one.", "And two.")
    remembered(server, session, item("name", "It is one.", [1]))
    assert "erased since" not in of_pass(operator)
    purge(session, "u1")
    assert "1 message that was shown was erased since" in of_pass(operator)
    purge(session, "u2")
    text = of_pass(operator)
    assert "2 messages that were shown were erased since" in text
    assert "no model was called" not in text
    assert "<dt>Tokens</dt>" in text


def test_a_pass_that_called_no_model_still_says_that(operator: Client, tell: Tell) -> None:
    session = tell("One.")
    place = {"space": session.space, "agent": session.agent, "session": session, "session_name": session.name}
    DistillationPass.objects.create(**place, epoch=1, start=0, end=2)
    assert "Nothing was said in this stretch: no model was called." in of_pass(operator)


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (("u1", "u2"), "2 messages were erased here"),
        (("u2",), "1 message was erased here"),
        (("u3", "r4"), "2 messages were erased here"),
    ],
)
def test_a_conversation_marks_where_messages_were_erased(
    operator: Client, tell: Tell, gone: tuple[str, ...], told: str
) -> None:
    session = tell("One.", "Two.", "Three.")
    whole = said(operator, session)
    assert "4 messages ·" in whole
    assert "erased" not in whole
    purge(session, *gone)
    text = said(operator, session)
    assert text.count(told) == 1
    left = Message.objects.count()
    assert f"{left} message{'' if left == 1 else 's'}, others were erased ·" in text


def test_a_conversation_of_which_nothing_is_left_says_so(operator: Client, tell: Tell) -> None:
    session = tell("One.")
    purge(session, "u1", "r2")
    assert "Nothing is left: 2 messages were erased here." in said(operator, session)


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_a_preview_says_why_more_goes_than_was_ticked_and_counts_each_row_once(
    operator: Client, server: ModelServer, tell: Tell
) -> None:
    for n in range(3):
        session = tell(f"It is {n}.", name="s1")
        remembered(server, session, item("name", f"It is {n}.", [2 * n + 1]))
    remembered(server, tell("And two.", name="s1"), item("two", "And two.", [7]))
    first, *others, last = DistillationPass.objects.order_by("pk").values_list("pk", flat=True)
    memory, other = Memory.objects.get(key="name"), Memory.objects.get(key="two")
    versions = MemoryEvent.objects.count()
    messages = Message.objects.filter(type="user").values_list("pk", flat=True)
    ticked = {"memory": [str(memory.pk)], "pass": [str(first)], "message": [str(pk) for pk in messages]}
    page = operator.post(reverse("admin:agentmemory_certificate_find"), {**ticked, "step": "preview"}).content.decode()
    told = words(page)
    assert f"passes {2 + len(others)} " in told
    assert f"versions in the history of memories {versions} " in told, "and none that the purge itself writes"
    assert "Their answers hold the same words. Beside what was chosen:" in told
    beyond = page[page.index('id="beyond"') :]
    assert [f">pass {pk}</a>" in beyond for pk in (first, *others, last)] == [False, *(True for _ in others), True]
    assert reverse("admin:agentmemory_memory_change", args=[other.pk]) in beyond
    assert reverse("admin:agentmemory_memory_change", args=[memory.pk]) not in beyond


def test_of_many_that_go_along_twenty_are_named(operator: Client, tell: Tell) -> None:
    session = tell("One.")
    place = {"space": session.space, "agent": session.agent, "session": session, "session_name": session.name}
    for _ in range(23):
        DistillationPass.objects.create(**place, epoch=1, start=0, end=2, shown=[1], answer="One.")
    ticked = {"message": [str(session.messages.get(uid="u1").pk)], "step": "preview"}
    page = operator.post(reverse("admin:agentmemory_certificate_find"), ticked).content.decode()
    assert page.count(">pass ") == 20
    assert "and 3 more." in words(page)


def test_a_certificate_says_its_time_in_text(operator: Client, tell: Tell) -> None:
    purge(tell("One."), "u1")
    certificate = Certificate.objects.get()
    page = operator.get(reverse("admin:agentmemory_certificate_change", args=[certificate.pk])).content.decode()
    assert f"{certificate.at:%Y-%m-%d %H:%M:%S} UTC" in words(page)


def test_a_later_piece_of_a_conversation_takes_no_earlier_one_for_erased(operator: Client, tell: Tell) -> None:
    session = tell("One.", "Two.", "Three.")
    assert "erased" not in said(operator, session, "?from=3")
    purge(session, "u2")
    assert "erased here" in said(operator, session, "?from=2")
    assert "erased here" not in said(operator, session, "?from=3")
