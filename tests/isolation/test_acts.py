"""Every act of the console: it asks and changes nothing, wants a reason, is done once, is on record, can be taken back.

The acts are found where the console finds them. What a new one needs beside a reason, and rows that it applies to where
`fill` makes none, are said here: an act without them fails.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.models import F, Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentmemory.admin import consolidations
from agentmemory.admin.acts import Act, ActingAdmin
from agentmemory.authorship import Author
from agentmemory.console import figures
from agentmemory.models import Activity, Agent, LoginTries, Memory, Provider, Session, Space
from agentmemory.services import curation, merging, spaces
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import Delivery, Execution, Webhook
from sessions_exec.models.webhooks import Event
from tests.factories import ProviderFactory
from tests.isolation import test_roles
from tests.support.filled import distil, fill

pytestmark = pytest.mark.django_db

WHY = "asked for by one who may"
OLGA = Author(kind="operator", name="olga")
UNDO = re.compile(r'<a class="am-link" href="([^"]+)">Undo</a>')
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
OWN_FORM = re.compile(r'<form method="post"[^>]* class="am-form"')
SUBJECTS = re.compile(r'id="subjects">(.*?)</p>', re.DOTALL)
# What an undo need not bring back: that something was written, when, by whom and why.
MOVES = {"version", "updated_at", "search", "failures"}
MOMENTS = ("_at", "_by", "_reason")
OURS = ("agentmemory_", "distillation_", "sessions_exec_", "auth_user", "auth_group")

GIVEN: dict[tuple[str, str], dict[str, Any]] = {
    ("agentmemory.memory", "edit"): {"content": "Another statement.", "tags": "c", "importance": "0.5"},
    ("agentmemory.memory", "give-back"): {"agent": "ada"},
    ("agentmemory.memory", "merge"): {"into": "z"},
    ("agentmemory.memory", "restore"): {"version": "1"},
    ("agentmemory.agent", "delete"): {"choice": "erase"},
    ("agentmemory.token", "limit"): {"calls_per_minute": "7"},
    ("auth.user", "set-password"): {"password": "another-long-word"},
    ("distillation.cursor", "distil-again"): {"seq": "1"},
    ("distillation.cursor", "skip"): {"seq": "2"},
}
# Where what was done is seen, other than in the rows themselves, which are a log.
SEEN: dict[str, type[Model]] = {"agentmemory.consolidation": Memory}
# Where the list shows a row only when it is asked to.
LISTED = {("agentmemory.memory", "reinstate"): "?standing=withdrawn"}
# How a test of a provider or a webhook ends is another test's: here nothing answers.
UNANSWERED = {("sessions_exec.webhook", "test")}


def curated(key: str) -> Memory:
    return Memory.objects.get(key=key, origin=Memory.Origin.CURATED)


def distilled(key: str) -> Memory:
    return distil(Session.objects.get(name="s1"), key)


def shared() -> Memory:
    return curation.share(memory_id=curated("k0").pk, author=OLGA, reason="r")


def pinned() -> Memory:
    return curation.edit(memory_id=curated("k0").pk, author=OLGA, reason="r", pinned=True)


def withdrawn() -> Memory:
    return curation.withdraw(memory_id=curated("k0").pk, author=OLGA, reason="r")


def edited() -> Memory:
    return curation.edit(memory_id=curated("k0").pk, author=OLGA, reason="r", content="Changed.")


def linked() -> Memory:
    row = distilled("k0")
    return merging.link(memory_id=row.pk, curated_id=curated("k0").pk, author=OLGA, why="w").memory


def merged() -> Memory:
    return merging.merge(memory_id=distilled("y").pk, into_id=distilled("z").pk, author=OLGA, why="w").memory


def mergeable() -> Memory:
    distilled("z")
    return distilled("y")


def failed_provider() -> Provider:
    provider = ProviderFactory.create()
    row = cursor(position=0, watermark=1, failures=3, next_attempt_at=timezone.now() + timedelta(hours=3))
    DistillationPass.objects.create(
        space=row.space, agent=row.agent, cursor=row, session_name="s1", epoch=99, start=0, end=1,
        provider=provider, outcome="failed", failure="connection",
    )  # fmt: skip
    return provider


def archived_space() -> Space:
    space = Space.objects.get()
    spaces.archive(space_id=space.pk)
    return space


def archived_agent() -> Agent:
    agent = Agent.objects.get()
    spaces.archive_agent(agent_id=agent.pk)
    return agent


def paused_agent() -> Agent:
    agent = Agent.objects.get()
    spaces.pause_agent(agent_id=agent.pk)
    return agent


def cursor(**values: Any) -> Cursor:
    row = Cursor.objects.get(session__name="s1")
    Cursor.objects.filter(pk=row.pk).update(**values)
    return row


def stopped_provider() -> Provider:
    Provider.objects.update(stopped_at=timezone.now(), stopped_by="operator:olga", stopped_reason="r")
    return Provider.objects.get()


def offline_provider() -> Provider:
    Provider.objects.update(kind=Provider.Kind.OFFLINE)
    return Provider.objects.get()


def an_answered_pass() -> DistillationPass:
    DistillationPass.objects.update(outcome="applied", answer='{"memories": []}')
    return DistillationPass.objects.get()


def expired() -> Execution:
    Execution.objects.exclude(holder="").update(expires_at=timezone.now() - timedelta(minutes=1))
    return Execution.objects.exclude(holder="").get()


def paused_webhook() -> Webhook:
    Webhook.objects.update(paused_at=timezone.now(), paused_by="operator:olga", paused_reason="r")
    return Webhook.objects.get()


def ended_delivery() -> Delivery:
    Delivery.objects.update(state=Delivery.State.FAILED, ended_at=timezone.now(), next_attempt_at=None)
    return Delivery.objects.get()


def inactive() -> User:
    return User.objects.create_user("gone", is_active=False)


def somebody() -> User:
    return User.objects.create_user("vic")


def signed_in() -> User:
    user = somebody()
    Client().force_login(user)
    return user


def dismissed() -> Quarantine:
    told = {"decided_at": timezone.now(), "decided_by": "operator:olga", "decided_reason": "r"}
    Quarantine.objects.update(state=Quarantine.State.DISMISSED, **told)
    return Quarantine.objects.get()


READY: dict[tuple[str, str], Callable[[], Model]] = {
    ("agentmemory.memory", "edit"): lambda: curated("k0"),
    ("agentmemory.memory", "promote"): lambda: distilled("k0"),
    ("agentmemory.memory", "share"): lambda: curated("k0"),
    ("agentmemory.memory", "give-back"): shared,
    ("agentmemory.memory", "unpin"): pinned,
    ("agentmemory.memory", "reinstate"): withdrawn,
    ("agentmemory.memory", "restore"): edited,
    ("agentmemory.memory", "merge"): mergeable,
    ("agentmemory.memory", "unmerge"): merged,
    ("agentmemory.memory", "unlink"): linked,
    ("agentmemory.memory", "link"): lambda: distilled("k0"),
    ("agentmemory.memory", "both"): lambda: distilled("k0"),
    ("agentmemory.space", "restore"): archived_space,
    ("agentmemory.agent", "resume"): paused_agent,
    ("agentmemory.agent", "restore"): archived_agent,
    ("agentmemory.agent", "delete"): archived_agent,
    ("agentmemory.provider", "resume"): stopped_provider,
    ("agentmemory.provider", "test"): offline_provider,
    ("agentmemory.provider", "clear-backoff"): failed_provider,
    ("auth.user", "activate"): inactive,
    ("auth.user", "set-password"): somebody,
    ("auth.user", "sign-out"): signed_in,
    ("auth.user", "deactivate"): somebody,
    ("distillation.cursor", "clear-backoff"): lambda: cursor(failures=3),
    ("distillation.cursor", "distil-again"): lambda: cursor(position=F("watermark")),
    ("distillation.cursor", "release-lease"): lambda: cursor(holder="worker"),
    ("distillation.distillationpass", "apply-again"): an_answered_pass,
    ("distillation.quarantine", "hold"): dismissed,
    ("sessions_exec.execution", "recover"): expired,
    ("sessions_exec.webhook", "resume"): paused_webhook,
    ("sessions_exec.delivery", "again"): ended_delivery,
}


def acting() -> dict[str, ActingAdmin[Any]]:
    found = {model._meta.label_lower: each for model, each in admin.site._registry.items()}
    return {label: each for label, each in found.items() if isinstance(each, ActingAdmin) and each.acts}


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that ends after a moment ends with what it is about, however busy this machine is."""
    monkeypatch.setattr(consolidations, "SECONDS_A_PAGE", 60.0)


@pytest.fixture
def ada(client: Client) -> Client:
    """An operator, and rows in every list."""
    fill()
    ProviderFactory.create()
    Group.objects.create(name="Others")
    LoginTries.objects.create(kind="account", subject="vic", tries=1)
    client.force_login(User.objects.create_superuser("ada"))
    client.get(reverse("admin:index"))
    return client


def everything() -> dict[str, str]:
    """All rows of each table, as one digest. That somebody looked is no change."""
    names = [name for name in connection.introspection.table_names() if name.startswith(OURS)]
    looks = {"agentmemory_activity": "WHERE act <> 'look'"}
    digest = "SELECT '{0}', md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {0} t {1}"
    with connection.cursor() as at:
        at.execute(" UNION ALL ".join(digest.format(name, looks.get(name, "")) for name in names))
        return dict(at.fetchall())


def standing(model: type[Model]) -> list[dict[str, Any]]:
    """The rows of a model that somebody sees, as far as an undo brings them back."""
    rows = Memory.objects.kept() if model is Memory else model._default_manager.all()
    return [
        {name: bool(value) if name.endswith(MOMENTS) else value for name, value in row.items() if name not in MOVES}
        for row in rows.order_by("pk").values()
    ]


def on_record() -> list[tuple[str, str, str]]:
    """Who did what and why, looks apart."""
    rows = Activity.objects.exclude(act="look").order_by("pk").values_list("who", "act", "reason")
    return [(who, act, reason) for who, act, reason in rows]


def text(answer: Any) -> str:
    return html.unescape(answer.content.decode())


def marked(page: str, **values: Any) -> dict[str, Any]:
    """What a form sends: what it hides, and what was typed."""
    found = hidden(page, "act-form")
    assert found["once"], "the form cannot be told from another"
    return {**found, "reason": WHY, **values}


def hidden(page: str, part: str) -> dict[str, str]:
    """The hidden values of the forms in a part of a page."""
    return dict(HIDDEN.findall(page[page.index(f'id="{part}"') :]))


def row_for(label: str, act: Act) -> Model:
    if (label, act.name) in READY:
        return READY[label, act.name]()
    of_it = acting()[label]
    request: Any = type("Request", (), {"user": User.objects.get(username="ada"), "GET": {}})()
    rows = of_it.get_queryset(request)
    row: Model | None = next((row for row in rows if act.offered(row)), None)
    assert row is not None, f"no row that {label} {act.name} can be done to: make one in READY"
    return row


def address(label: str, act: str, ids: Any) -> str:
    return f"{reverse('admin:' + label.replace('.', '_') + '_act', args=[act])}?ids={ids}"


@pytest.mark.parametrize("label", sorted(acting()))
def test_each_act_asks_wants_a_reason_is_done_once_and_on_record_and_can_be_taken_back(ada: Client, label: str) -> None:
    each_alone({act.name: partial(goes_through, ada, label, act) for act in acting()[label].acts})


def each_alone(works: dict[str, Callable[[], None]]) -> None:
    """Each over the same rows, and all that fail are told."""
    wrong = {}
    for name, work in works.items():
        with transaction.atomic():
            try:
                work()
            except AssertionError as error:
                wrong[name] = str(error)[:2000]
            transaction.set_rollback(True)
    assert wrong == {}


def goes_through(ada: Client, label: str, act: Act) -> None:
    of_it, name = acting()[label], act.name
    values = GIVEN.get((label, name), {})
    row = row_for(label, act)
    place = address(label, name, row.pk)
    seen = SEEN.get(label, of_it.model)
    before, rows = everything(), standing(seen)
    recorded = len(on_record())

    if act.bulk:
        several = {"action": name, "_selected_action": str(row.pk)}
        led = ada.post(reverse(f"admin:{label.replace('.', '_')}_changelist") + LISTED.get((label, name), ""), several)
        assert led.status_code == 302
        assert led["Location"].startswith(f"{place}&next=")

    # It asks: how many of what, what goes with them, how it is taken back. And changes nothing.
    page = text(ada.get(place))
    subjects = SUBJECTS.search(page)
    assert subjects
    assert f"<strong>1</strong> {of_it.rows_called()[0]}" in subjects[1]
    assert ('id="undone-by"' in page) != bool(act.final), "it says either how it is undone or that it cannot be"
    assert not act.final or act.final in page
    assert not act.danger or act.preview, "what goes with it is not told"
    assert everything() == before

    # Without a reason nothing is done.
    refused = ada.post(place, {**marked(page, **values), "reason": "  "})
    assert (refused.status_code, "This field is required." in text(refused)) == (422, True)
    assert everything() == before

    # With one it is done, said, and put on record with who, what and why.
    sent = marked(text(refused), **values)
    answer = ada.post(place, sent, follow=True)
    assert answer.status_code == 200
    if (label, name) not in UNANSWERED:
        assert 'id="act-form"' not in text(answer)
        assert everything() != before
    new = on_record()[recorded:]
    assert [(who, why) for who, _, why in new] == [("operator:ada", WHY)], new
    after = everything()

    # A second click does nothing, and says so.
    again = ada.post(place, sent, follow=True)
    assert again.status_code == 200
    assert everything() == after
    assert "nothing was done" in text(again) or "not done a second time" in text(again)

    # What can be undone has a link that undoes it, which is an act as well.
    undo = UNDO.search(text(answer))
    assert bool(undo) != bool(act.final), "what is not final can be undone from the answer"
    if undo:
        back = undo[1]
        page = text(ada.get(back))
        filled = dict(re.findall(r'<input type="(?:text|number)" name="(\w+)" value="([^"]*)"', page))
        answer = ada.post(back, marked(page, **filled), follow=True)
        assert answer.status_code == 200
        assert standing(seen) == rows
        assert len(on_record()) == recorded + 2


def previewed(ada: Client) -> dict[str, Any]:
    """What was ticked, and looked at."""
    ticked = {"memory": str(curated("k0").pk)}
    page = text(ada.post(reverse("admin:agentmemory_certificate_find"), {**ticked, "step": "preview"}))
    assert "memories <span" in page
    assert "Nobody can undo it" in page
    return {**hidden(page, "purge-form"), "step": "purge"}


def planned(ada: Client) -> dict[str, Any]:
    """What the dry run would do: one memory says what another does."""
    distilled("p")
    return hidden(text(ada.get(reverse("admin:agentmemory_consolidation_dry_run"))), "plan-form")


# Each page with a form of its own that writes, and what is typed into it. A page that is not here writes nothing.
NEW_USER = {"username": "new", "password1": "a-long-new-word", "password2": "a-long-new-word"}
JOINED = {"date_joined_0": "2026-01-01", "date_joined_1": "10:00:00"}
VIC = {"username": "vic", "is_active": "on", **JOINED, **{f"initial-{part}": value for part, value in JOINED.items()}}
WEBHOOK = {"name": "new", "url": "https://93.184.215.14/here", "events": [Event.PASS_FAILED.value]}
PROVIDER = {"name": "new", "kind": "offline", "enabled": "on"}
WRITES: dict[str, Callable[[Client], dict[str, Any]]] = {
    "agentmemory_space_add": lambda _: {"slug": "new"},
    "agentmemory_space_change": lambda _: {"name": "Another"},
    "agentmemory_agent_add": lambda _: {"space": Space.objects.get().pk, "handle": "new"},
    "agentmemory_agent_change": lambda _: {"name": "Another"},
    "agentmemory_provider_add": lambda _: PROVIDER,
    "agentmemory_provider_change": lambda _: {**PROVIDER, "default_model": "another"},
    "agentmemory_token_add": lambda _: {"space": Space.objects.get().pk, "agent": "ada"},
    "agentmemory_certificate_find": previewed,
    "agentmemory_consolidation_dry_run": planned,
    "auth_group_add": lambda _: {"name": "new"},
    "auth_group_change": lambda _: {"name": "Another"},
    "auth_user_add": lambda _: NEW_USER,
    "auth_user_change": lambda _: {**VIC, "email": "vic@example.org"},
    "sessions_exec_webhook_add": lambda _: {**WEBHOOK, "space": Space.objects.get().pk},
    "sessions_exec_webhook_change": lambda _: WEBHOOK,
    "sessions_exec_webhook_secret": lambda _: {},
}
# What asks for no reason has a test of its own.
WITHOUT_A_REASON = {"password_change", "agentmemory_session_change"}


def page_of(name: str) -> str:
    """Where a form is: of a row that a form may change, where it is a row's."""
    if name == "auth_user_change":
        return reverse("admin:auth_user_change", args=[somebody().pk])
    if name == "auth_group_change":
        return reverse("admin:auth_group_change", args=[Group.objects.get(name="Others").pk])
    return test_roles.address(name)


def test_each_form_wants_a_reason_writes_once_and_is_on_record(ada: Client) -> None:
    each_alone({name: partial(writes_once, ada, name) for name in WRITES})


def writes_once(ada: Client, name: str) -> None:
    place = page_of(name)
    typed = {**hidden(text(ada.get(place)), "content-main"), **WRITES[name](ada)}
    before, recorded = everything(), len(on_record())

    assert "This field is required." in text(ada.post(place, {**typed, "reason": " "}))
    assert everything() == before

    done = ada.post(place, {**typed, "reason": WHY})
    assert [(who, why) for who, _, why in on_record()[recorded:]] == [("operator:ada", WHY)], text(done)
    after = everything()
    assert after != before

    again = ada.post(place, {**typed, "reason": WHY}, follow=True)
    assert again.status_code in (200, 422)
    assert everything() == after, list(Activity.objects.values_list("act", "detail"))


def test_no_other_page_of_the_console_writes(ada: Client) -> None:
    others = [name for name in test_roles.names() if name not in {*WRITES, *WITHOUT_A_REASON}]
    places = {name: test_roles.address(name) for name in others}
    pages = {name: b"".join(ada.get(place)).decode() for name, place in places.items()}
    # The framework draws a form around rows that are only shown as well, without a button.
    assert {name for name, page in pages.items() if OWN_FORM.search(page) or 'name="_save"' in page} == set()

    before = everything()
    for name, place in places.items():
        assert ada.post(place, {"reason": WHY}).status_code in (200, 302, 403, 405), name
        assert everything() == before, name


# Ids of no row: none at all, those of rows that went, what is no id, and what no column can hold.
NO_ROWS = (
    "",
    ",,",
    "0",
    "4711",
    str(UUID(int=4711)),
    "nonsense",
    "-1",
    "9" * 40,
    "1.5",
    "\u0661",
    "%00",
    "' OR 1=1 --",
)


def test_rows_that_went_and_ids_of_no_row_are_told_in_words_and_nothing_is_done(ada: Client) -> None:
    for label, of_it in acting().items():
        finds_none(ada, label, of_it.acts[0])


def finds_none(ada: Client, label: str, act: Act) -> None:
    before = everything()
    for ids in NO_ROWS:
        assert ada.post(address(label, act.name, ids), {"reason": WHY}).status_code == 302, (label, ids)
    many = address(label, act.name, ",".join(str(number) for number in range(10**6, 10**6 + 10_000)))
    asked, sent = text(ada.get(many)), text(ada.post(many, {"reason": WHY}, follow=True))
    assert everything() == before
    assert "nothing is there that it can be done to" in asked
    assert f"{act.label}: nothing was done." in sent
    assert "100 not there, or not any more" in asked
    assert f"{figures.number(9_900)} beyond the 100 that are taken at once" in asked


def test_what_is_left_out_of_several_is_told_before_and_after(ada: Client) -> None:
    pks = [row.pk for row in Memory.objects.kept().filter(merged_into=None, withdrawn_at=None)]
    curation.withdraw(memory_id=pks[0], author=OLGA, reason="r")
    recorded, left = len(on_record()), len(pks) - 1
    place = address("agentmemory.memory", "withdraw", ",".join([*map(str, pks), "nonsense"]))

    page = text(ada.get(place))
    answer = text(ada.post(place, marked(page), follow=True))

    said = "Left out: 1 to which it cannot be done now; 1 not there, or not any more."
    assert said in page
    assert f"<strong>{left}</strong> memories" in page
    assert f"Withdraw: {left} of {left} done. {said}" in answer
    assert len(on_record()) == recorded + left
    undo = UNDO.search(answer)
    assert undo
    assert f"<strong>{left}</strong> memories" in text(ada.get(undo[1]))
