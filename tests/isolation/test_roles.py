"""Every page and every act of the console, by every role: each answers those who may, and nobody else.

A new page is for all who look, and a new act for operators, unless it is listed here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import unquote
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.sessions.backends.db import SessionStore
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, Model, Value
from django.db.models.functions import Concat
from django.http import Http404, HttpResponse, HttpResponseForbidden, HttpResponseNotFound
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory
from django.urls import NoReverseMatch, URLPattern, URLResolver, resolve, reverse
from django.utils import timezone

from agentmemory import authorship
from agentmemory.admin.acts import ActingAdmin
from agentmemory.authorship import Author
from agentmemory.models import (
    Activity,
    Consolidation,
    LoginTries,
    Memory,
    MemorySource,
    Message,
    Provider,
    Session,
)
from agentmemory.services import activity, curation, distilled, providers, sessions, transcripts
from agentmemory.services.transcripts import NewMessage
from config import groups
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import Heartbeat, Input, Recovery, Tick
from sessions_exec.services import inbox, own_runs
from tests.factories import MemoryFactory, ProviderFactory
from tests.support.filled import fill

pytestmark = pytest.mark.django_db

NOBODY, SUPERUSERS = "nobody", "superusers"
# From the least to the most: each may what those before it may.
ORDER = ("without a role", groups.VIEWERS, groups.CURATORS, groups.OPERATORS, SUPERUSERS, NOBODY)

# What is not for everybody who looks.
PAGES = {
    "agentmemory_consolidation_dry_run": groups.CURATORS,
    "agentmemory_certificate_find": groups.OPERATORS,
    "sessions_exec_webhook_secret": groups.OPERATORS,
}
FOR_ALL = {"index", "search", "jsi18n", "password_change", "password_change_done"}
ELSEWHERE = {"app_list", "login", "logout", "autocomplete", "view_on_site", "auth_user_password_change"}
# Parts of a session's page, with tests of their own.
ELSEWHERE |= {"sessions_exec_input_send", "sessions_exec_input_watch"}
CURATORS_ACTS = {
    "agentmemory.consolidation": {"undo"},
    "agentmemory.memory": {
        "edit",
        "promote",
        "share",
        "give-back",
        "pin",
        "unpin",
        "withdraw",
        "reinstate",
        "merge",
        "unmerge",
        "unlink",
        "link",
        "both",
        "delete",
        "undelete",
        "restore",
    },
}
# What only those read who may read what is private: the words of fill().
LINK = re.compile(r'href="(/admin/[^"#]+)')
SAID = ("Statement 0.", "Number 1.", "Distilled.", "Go on.")
# What memories and sessions are called, and what is kept beside: made of the same words, by the fixture below.
CALLED = ("zqkey-", "zqtag", "zqcontext", "zqtitle", "zqreason")
# Errors and reasons may quote either.
QUOTED = ("zqerror", "zqwhy")
PRIVATE = (*SAID, *CALLED, *QUOTED)


@pytest.fixture
def filled() -> None:
    """Rows in every list, and a provider, which is made when something asks for one."""
    fill()
    ProviderFactory.create()
    Group.objects.create(name="Others")
    Tick.objects.create(name="coordinator")
    LoginTries.objects.create(kind="account", subject="vic", tries=1)
    Heartbeat.objects.create(worker="host:1:x", host="host", pid=1)
    session = Session.objects.order_by("pk").first()
    assert session is not None
    place = {"space": session.space, "session": session, "message_uid": "m1", "holder": "h", "phase": "unknown"}
    # The pass that fill() names as the one that wrote.
    written = DistillationPass.objects.get()
    DistillationPass.objects.filter(pk=written.pk).update(id=1)
    Recovery.objects.create(**place, execution_id=uuid4(), epoch=1, turn=0, outcome="failed", expired_at=timezone.now())
    call_it_by_what_was_said()


def call_it_by_what_was_said() -> None:
    """Keys, tags, contexts, titles and reasons that tell; and whatever needs a person, so that Start names it."""
    cache.clear()
    called = {"key": Concat(Value("zqkey-"), "key"), "tags": ["zqtag"], "context": "zqcontext"}
    olga = Author(kind="operator", name="olga")
    with transaction.atomic(), authorship.acting(olga, reason="zqreason"):
        Memory.objects.update(**called, version=F("version") + 1)
    Session.objects.update(title="zqtitle")
    Consolidation.objects.update(reason="zqreason")
    memory = Memory.objects.get(key="zqkey-k0")
    MemoryFactory.create(owner=memory.owner, space=memory.space, origin="distilled", key=memory.key, content="Another.")
    held = {"withdrawn_by": str(distilled.SCREENING), "withdrawn_reason": "zqreason", "withdrawn_at": timezone.now()}
    MemoryFactory.create(owner=memory.owner, space=memory.space, origin="distilled", key="zqkey-held", **held)
    MemorySource.objects.update(quote="never said", verified=False)
    curation.edit(memory_id=memory.pk, author=olga, reason="zqreason", importance=0.9)


@pytest.fixture
def quoted(filled: None) -> None:
    """Errors and reasons wherever they are kept, as a model's answer and an operator's line come: they quote."""
    soon, session = timezone.now() + timedelta(hours=1), Session.objects.get(name="s1")
    Message.objects.filter(session=session, uid="m3").update(retraction_reason="zqwhy")
    MemoryFactory.create(
        space=session.space, owner=None, key="shared", withdrawn_at=timezone.now(), withdrawn_reason="zqwhy"
    )
    failed, blocked = Cursor.objects.get(session=session), Cursor.objects.get(session__name="s2")
    rows = Cursor.objects.filter(pk__in=[failed.pk, blocked.pk])
    rows.update(position=0, watermark=1, due_since=timezone.now(), waits_for="blocked: provider p paused: zqerror")
    Cursor.objects.filter(pk=failed.pk).update(
        last_error="zqerror\nmore", failures=3, next_attempt_at=soon, due_since=timezone.now() - timedelta(days=1)
    )
    Quarantine.objects.update(error="zqerror", decided_by="operator:olga", decided_reason="zqwhy")
    providers.built_in()
    Provider.objects.update(paused_until=soon, paused_reason="zqerror")
    place = {"space": session.space, "agent": session.agent, "cursor": failed, "session": session, "session_name": "s1"}
    fails = {"provider": ProviderFactory.create(), "outcome": "failed", "failure": "malformed", "error": "zqerror"}
    for epoch in range(2, 5):
        DistillationPass.objects.create(**place, **fails, epoch=epoch, start=0, end=6)
    waiting, _ = sessions.adopt(agent=session.agent, name="s3")
    said = (NewMessage(uid="m", type="user", content="Here."), NewMessage(uid="r", type="result", content="done"))
    transcripts.append(session=waiting, messages=said)
    inbox.admit(session=waiting, uid="i2", prompt="Go on.", delivery="queue")
    own_runs.kept_from(waiting, "provider p paused until tomorrow: zqerror")
    acted_on = (
        session,
        failed,
        DistillationPass.objects.latest("pk"),
        Quarantine.objects.get(),
        Input.objects.get(uid="i2"),
        waiting.execution,
    )
    for row in acted_on:
        activity.record("act", who="operator:olga", target=row, reason="zqwhy")


def one_of(role: str) -> User:
    user = User.objects.create_user(f"one of {role}", is_staff=True, is_superuser=role == SUPERUSERS)
    user.groups.set(Group.objects.filter(name=role))
    return user


def asked(user: User, place: str) -> HttpResponse:
    """What a page answers, not yet rendered: the client of the framework's would copy each template's context."""
    request = RequestFactory().get(place)
    request.user, request.session = user, SessionStore()
    request._messages = FallbackStorage(request)  # type: ignore[attr-defined]
    view = request.resolver_match = resolve(request.path)
    try:
        answer: HttpResponse = view.func(request, *view.args, **view.kwargs)
    except PermissionDenied:
        return HttpResponseForbidden()
    except Http404:
        return HttpResponseNotFound()
    return answer


def status(user: User, place: str) -> int:
    return asked(user, place).status_code


def read(answer: HttpResponse) -> str:
    if isinstance(answer, TemplateResponse):
        answer.render()
    return b"".join(answer).decode()


def names(patterns: list[URLPattern | URLResolver] | None = None) -> Iterator[str]:
    for pattern in patterns or admin.site.get_urls():
        if isinstance(pattern, URLResolver):
            yield from names(pattern.url_patterns)
        elif pattern.name and pattern.name not in ELSEWHERE and not pattern.name.endswith("_act"):
            yield pattern.name


# Where those who may read it do, so that nobody looks for it in vain.
QUOTED_IN = {
    "zqerror": (
        "index",
        "agentmemory_agent_change",
        "agentmemory_provider_changelist",
        "distillation_cursor_changelist",
        "distillation_cursor_change",
        "distillation_distillationpass_changelist",
        "distillation_distillationpass_change",
        "distillation_estimate",
        "distillation_quarantine_change",
        "sessions_exec_input_changelist",
        "of s3",
    ),
    "zqwhy": (
        "agentmemory_activity_changelist",
        "agentmemory_activity_csv",
        "agentmemory_message_changelist",
        "distillation_quarantine_changelist",
        "of s1",
    ),
}


def page(row: Model) -> str:
    """Where a row is shown."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def address(name: str) -> str:
    """Where a page is: of the first row of its list, where it is a row's."""
    try:
        return reverse(f"admin:{name}")
    except NoReverseMatch:
        model = next(model for model in admin.site._registry if name.startswith(prefix(model)))
        row = model._default_manager.first()
        return reverse(f"admin:{name}", args=[row.pk if row else 1])


def prefix(model: type) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}_"  # type: ignore[attr-defined]


def least(name: str) -> str:
    """The least role that a page is for."""
    if name.endswith("_delete"):
        return NOBODY
    if name.endswith("_add"):
        return SUPERUSERS if name.startswith("auth_") else groups.OPERATORS
    if name in FOR_ALL:
        return ORDER[0]
    return SUPERUSERS if name.startswith("auth_") else PAGES.get(name, groups.VIEWERS)


def may(role: str, at_least: str) -> bool:
    return ORDER.index(role) >= ORDER.index(at_least)


def test_each_role_opens_its_pages_and_no_other(filled: None) -> None:
    users = {role: one_of(role) for role in ORDER[:-1]}
    wrong = {}
    for name in names():
        at_least = least(name)
        if name.endswith("_add") and status(users[SUPERUSERS], address(name)) == 403:
            # Rows that the product alone makes.
            at_least = NOBODY
        answers = {role: status(user, address(name)) for role, user in users.items() if asks(role, at_least)}
        # A message is read in its conversation, which is elsewhere.
        opened = 302 if name == "agentmemory_message_change" else 200
        if answers != {role: opened if role == at_least else 403 for role in answers}:
            wrong[name] = answers
    assert wrong == {}


def test_each_role_does_its_acts_and_no_other(filled: None) -> None:
    users = {role: one_of(role) for role in ORDER[:-1]}
    wrong = {}
    for model, of_it in admin.site._registry.items():
        row = model._default_manager.first()
        assert row is not None, model
        for act in of_it.acts if isinstance(of_it, ActingAdmin) else ():
            place = f"{reverse(f'admin:{prefix(model)}act', args=[act.name])}?ids={row.pk}"
            at_least = least_for(model._meta.label_lower, act.name)
            answers = {role: status(user, place) for role, user in users.items() if asks(role, at_least)}
            if answers != {role: 200 if role == at_least else 403 for role in answers}:
                wrong[f"{model._meta.label_lower} {act.name}"] = answers
    assert wrong == {}


def asks(role: str, at_least: str) -> bool:
    """Those who may not, and the first who may: what one may, those after it may as well."""
    return role == at_least or not may(role, at_least)


def least_for(label: str, act: str) -> str:
    """The least role that an act is for."""
    if act in CURATORS_ACTS.get(label, ()):
        return groups.CURATORS
    return SUPERUSERS if label.startswith("auth.") else groups.OPERATORS


@pytest.mark.parametrize("role", [groups.VIEWERS, groups.CURATORS])
def test_m4_the_pages_of_a_role_have_no_dead_link_and_show_what_it_may_read(quoted: None, role: str) -> None:
    user = one_of(role)
    texts = {name: read(asked(user, address(name))) for name in names() if may(role, least(name))}
    # In every state, and every memory by itself.
    texts["standing"] = read(asked(user, reverse("admin:agentmemory_memory_changelist") + "?standing=any"))
    for pk in Memory.objects.values_list("pk", flat=True):
        texts[str(pk)] = read(asked(user, reverse("admin:agentmemory_memory_change", args=[pk])))
        texts[f"history of {pk}"] = read(asked(user, reverse("admin:agentmemory_memory_history", args=[pk])))
    texts |= {f"of {row}": read(asked(user, page(row))) for row in [*Cursor.objects.all(), *Provider.objects.all()]}
    texts |= {f"of {row.name}": read(asked(user, page(row))) for row in Session.objects.all()}
    links = {html.unescape(link): name for name, text in texts.items() for link in LINK.findall(text)}
    assert len(links) > 50
    assert {link: name for link, name in links.items() if status(user, link) >= 400} == {}

    seen = {words for words in PRIVATE if any(words in text for text in texts.values())}
    looks = Activity.objects.filter(act="look", who=f"operator:{user}").exists()
    if role == groups.VIEWERS:
        assert {name: words for name, text in texts.items() for words in PRIVATE if words in text} == {}
        assert not looks
        assert [link for link in links if "/act/" in link or "/add/" in link] == []
        pressed = ('name="_save"', 'name="action"')
        assert [name for name, text in texts.items() for button in pressed if button in text] == []
    else:
        assert (seen, looks) == (set(PRIVATE), True)
        for words, places in QUOTED_IN.items():
            assert [name for name in places if words not in texts[name]] == [], words


def test_m4_who_may_not_read_what_is_private_is_told_the_kind_of_an_error(quoted: None) -> None:
    viewer, failed = one_of(groups.VIEWERS), Cursor.objects.get(session__name="s1")
    for place in (
        reverse("admin:distillation_distillationpass_changelist"),
        page(DistillationPass.objects.latest("pk")),
        page(failed),
        page(Provider.objects.latest("pk")),
        reverse("admin:index"),
    ):
        assert "malformed" in read(asked(viewer, place)), place
    waiting = read(asked(viewer, reverse("admin:distillation_cursor_changelist")))
    assert "3rd failure, next try in" in waiting
    assert "provider p paused<" in waiting


SEARCHES = (
    ("search", "s", "zqkey"),
    ("search", "s", "zqtitle"),
    ("agentmemory_memory_changelist", "standing=any&q", "zqtag"),
    ("agentmemory_memory_changelist", "standing=any&tag", "zqtag"),
    ("agentmemory_consolidation_changelist", "q", "zqkey-e"),
    ("agentmemory_session_changelist", "q", "zqtitle"),
    ("agentmemory_activity_changelist", "q", "zqreason"),
    ("agentmemory_activity_changelist", "q", "zqwhy"),
)


@pytest.mark.parametrize(("name", "parameter", "words"), SEARCHES)
def test_m4_who_may_not_read_what_is_private_finds_none_of_it_by_what_it_is_called(
    quoted: None, name: str, parameter: str, words: str
) -> None:
    place = f"{reverse(f'admin:{name}')}?{parameter}={words}"
    hit = re.compile(r'href="/admin/agentmemory/(memory|session)/[^"]+/change/')
    viewer, curator = one_of(groups.VIEWERS), one_of(groups.CURATORS)
    assert hit.search(read(asked(curator, place)))
    text = read(asked(viewer, place))
    assert not hit.search(text)
    assert 'id="left-out"' in text, "and is told that there may be more"


def test_m4_what_is_kept_of_the_start_page_is_told_to_each_as_they_may_read_it(filled: None) -> None:
    viewer, curator = one_of(groups.VIEWERS), one_of(groups.CURATORS)
    for user, seen in ((curator, True), (viewer, False), (curator, True)):
        text = read(asked(user, reverse("admin:index")))
        assert ("zqkey-held" in text) == seen
        assert ("a private memory of ada" in text) != seen


def test_m4_sources_of_a_shared_memory_are_transcripts_and_private(filled: None) -> None:
    memory = Memory.objects.filter(origin="distilled", sources__isnull=False, merged_into=None).first()
    assert memory is not None
    curation.share(memory_id=memory.pk, author=Author(kind="operator", name="olga"), reason="for all")
    place = reverse("admin:agentmemory_memory_change", args=[memory.pk])
    told = {role: read(asked(one_of(role), place)) for role in (groups.VIEWERS, groups.CURATORS)}
    assert memory.key in told[groups.VIEWERS]
    assert ["Number 0." in text for text in told.values()] == [False, True]


def test_m4_the_file_of_acts_names_no_private_memory(filled: None) -> None:
    place = reverse("admin:agentmemory_activity_csv")
    told = {role: read(asked(one_of(role), place)) for role in (groups.VIEWERS, groups.CURATORS)}
    for words in ("zqkey-", "zqreason"):
        assert [words in text for text in told.values()] == [False, True]
    assert "edit,agentmemory.memory," in told[groups.VIEWERS], "what was done stays to be seen"


def test_m4_an_act_that_opens_what_is_private_asks_for_the_right_to_it(filled: None) -> None:
    user = User.objects.create_user("carl", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_memory", "change_memory"]))
    private = Memory.objects.filter(owner__isnull=False, deleted_at=None).first()
    assert private is not None
    acts = [reverse("admin:agentmemory_memory_act", args=[name]) for name in ("edit", "share", "pin")]
    assert [status(user, f"{act}?ids={private.pk}") for act in acts] == [403, 403, 200]
    shared = MemoryFactory.create(owner=None, space=private.space)
    assert status(user, f"{acts[0]}?ids={shared.pk}") == 200
    page = read(asked(user, reverse("admin:agentmemory_memory_change", args=[private.pk])))
    assert "act-pin" in page
    assert "act-edit" not in page


def test_m4_acts_name_no_private_memory_to_one_who_may_not_read_it(filled: None) -> None:
    carl = User.objects.create_user("carl", is_staff=True)
    rights = ("view_memory", "change_memory", "view_consolidation", "change_consolidation")
    carl.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(carl)
    private = Memory.objects.filter(owner__isnull=False, deleted_at=None, merged_into=None, withdrawn_at=None)
    memory, merged = private[0], Consolidation.objects.filter(kind="merge", undone_at=None)[0]
    asked_of = (
        *((f"agentmemory_memory_act/{name}", memory.pk) for name in ("pin", "unpin", "withdraw", "reinstate")),
        *((f"agentmemory_memory_act/{name}", memory.pk) for name in ("delete", "undelete")),
        ("agentmemory_consolidation_act/undo", merged.pk),
    )
    for place, pk in asked_of:
        route, _, name = place.partition("/")
        url = f"{reverse(f'admin:{route}', args=[name])}?ids={pk}"
        told = client.post(url, {"reason": "why"}, follow=True).content.decode()
        assert "a private memory of" in told, place
        assert "zqkey-" not in told, place
    assert status(carl, f"{reverse('admin:agentmemory_memory_act', args=['merge'])}?ids={merged.memory_id}") == 403
    assert status(carl, reverse("admin:agentmemory_consolidation_dry_run")) == 403
    assert "dry-run" not in read(asked(carl, reverse("admin:agentmemory_consolidation_changelist")))


def test_a_role_has_exactly_its_rights_after_every_migrate() -> None:
    Group.objects.get(name=groups.VIEWERS).permissions.set(Permission.objects.all())
    groups.ensure()

    rights = {
        role: set(Group.objects.get(name=role).permissions.values_list("codename", flat=True)) for role in groups.ROLES
    }
    viewers, curators, operators = (rights[role] for role in groups.ROLES)
    assert not [right for right in viewers if not right.startswith("view_")]
    assert curators - viewers == {"change_memory", "change_consolidation", "read_private_content"}
    assert curators < operators
    assert not [right for right in operators if right.startswith("delete_")]
    assert not Group.objects.filter(permissions__content_type__app_label__in=["auth", "sessions", "admin"]).exists()


def test_what_is_there_and_what_is_not_are_the_same_to_one_who_is_not_signed_in_or_has_no_right(filled: None) -> None:
    anonymous, without = Client(), one_of(ORDER[0])
    for name in names():
        here = address(name)
        elsewhere = re.sub(r"/[^/]+/(change|history|delete)/$", r"/4711/\1/", here)
        for place in (here, elsewhere):
            answer = anonymous.get(place)
            assert (answer.status_code, unquote(answer["Location"])) == (302, f"/admin/login/?next={unquote(place)}")
        if least(name) != ORDER[0]:
            assert (status(without, here), status(without, elsewhere)) == (403, 403), name
    for place in ("/admin/nothing/", "/admin/agentmemory/nothing/1/change/"):
        assert anonymous.get(place).status_code == 302
    login = anonymous.get(reverse("admin:login")).content.decode()
    assert "acme" not in login
    assert "nav-sidebar" not in login
