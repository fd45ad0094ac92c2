"""The operators' pages: what they show, what they hide, and that every change is a service's, with a reason."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import VersionMoved
from agentmemory.models import (
    Activity,
    Agent,
    CallWindow,
    Memory,
    MemoryAccess,
    MemoryEvent,
    MemorySource,
    Message,
    Provider,
    Session,
    Token,
)
from agentmemory.services import curation, memories, removals, sessions, spaces, tokens, transcripts
from tests.factories import AgentFactory, ProviderFactory

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def viewer_of_memories() -> Client:
    """One who may act on memories, and not read those that are private."""
    user = User.objects.create_user("mel", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_memory", "change_memory"]))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create()


@pytest.fixture
def session(agent: Agent) -> Session:
    """A conversation with everything in it that a page has to treat with care."""
    session, _ = sessions.adopt(agent=agent, name="s1", title=HOSTILE)
    said = [
        transcripts.NewMessage(uid="u1", type="user", content=f"{HOSTILE} says the user"),
        transcripts.NewMessage(
            uid="a1",
            type="assistant",
            content=[
                {"type": "thinking", "thinking": "a thought that stays hidden"},
                {"type": "text", "text": "An answer."},
                {"type": "tool_use", "id": "t1", "name": HOSTILE, "input": {"command": HOSTILE}},
            ],
        ),
        transcripts.NewMessage(
            uid="t1", type="user", content=[{"type": "tool_result", "tool_use_id": "t1", "content": HOSTILE}]
        ),
        transcripts.NewMessage(uid="r1", type="result", content=""),
        transcripts.NewMessage(uid="u2", type="user", content="This was a mistake."),
    ]
    transcripts.append(session=session, messages=said)
    removals.retract(session=session, uids=["u2"], reason="said by mistake")
    return session


def write(agent: Agent, key: str, content: str, **more: Any) -> Memory:
    draft = memories.Draft(key=key, content=content, **more)
    return memories.put(caller=Caller(space=agent.space, agent=agent), draft=draft).memory


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:{name}", args=args)


def act(model: str, name: str, *rows: Any) -> str:
    return page(f"agentmemory_{model}_act", name) + "?ids=" + ",".join(str(row.pk) for row in rows)


def distil(session: Session, key: str, quote: str, *, verified: bool) -> Memory:
    """A distilled memory that rests on the session's first message."""
    memory = Memory.objects.create(
        space=session.space, owner=session.agent, origin="distilled", key=key, content="Distilled.", created_by="pass:1"
    )
    message = Message.objects.get(session=session, seq=1)
    MemorySource.objects.create(
        space=session.space,
        memory=memory,
        session=session,
        message=message,
        session_name=session.name,
        uid=message.uid,
        seq=1,
        quote=quote,
        verified=verified,
    )
    return memory


LISTS = ["memory", "session", "space", "agent", "token", "provider", "activity"]


@pytest.mark.parametrize("model", LISTS)
def test_each_list_answers_with_rows_and_without(operator: Client, session: Session, agent: Agent, model: str) -> None:
    assert operator.get(page(f"agentmemory_{model}_changelist")).status_code == 200
    write(agent, HOSTILE, HOSTILE, tags=[HOSTILE[:40]])
    ProviderFactory.create()
    Token.objects.create(space=agent.space, agent=agent, name=HOSTILE, prefix="p", digest="d" * 64)

    answer = operator.get(page(f"agentmemory_{model}_changelist"))

    assert answer.status_code == 200
    assert HOSTILE not in answer.content.decode()


@pytest.mark.parametrize("model", LISTS)
def test_a_list_asks_no_query_for_each_row(operator: Client, model: str) -> None:
    def fill(count: int) -> None:
        for _ in range(count):
            agent = AgentFactory.create()
            write(agent, "k", "c")
            sessions.adopt(agent=agent, name="s")
            ProviderFactory.create()
            Token.objects.create(space=agent.space, agent=agent, prefix=str(agent.pk), digest="d" * 64)

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert operator.get(page(f"agentmemory_{model}_changelist")).status_code == 200
        return len(found)

    fill(2)
    # The first look is put on record.
    queries()
    few = queries()
    fill(10)
    assert queries() == few


@pytest.mark.parametrize("name", ["space", "agent", "session"])
def test_a_list_is_not_narrowed_to_what_no_text_can_be(operator: Client, session: Session, name: str) -> None:
    told = operator.get(page("agentmemory_memory_changelist"), {name: "a\0b"})
    assert (told.status_code, told["Location"]) == (302, page("agentmemory_memory_changelist") + "?e=1")


def test_m6_looking_counts_no_access(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "words of the content")
    before = (memory.version, memory.updated_at)

    operator.get(page("agentmemory_memory_changelist"), {"q": "content"})
    operator.get(page("agentmemory_memory_change", memory.pk))

    memory.refresh_from_db()
    assert (memory.version, memory.updated_at) == before
    assert not MemoryAccess.objects.exists()


def test_the_list_has_tabs_filters_and_search(operator: Client, agent: Agent) -> None:
    write(agent, "curated-key", "about apples", tags=["fruit"])
    distilled = Memory.objects.create(
        space=agent.space, owner=agent, origin="distilled", key="distilled-key", content="about pears", created_by="x"
    )
    curation.withdraw(memory_id=distilled.pk, author=Author(kind="operator", name="olga"), reason="why not")

    def shown(**query: str) -> set[str]:
        text = operator.get(page("agentmemory_memory_changelist"), query).content.decode()
        return {key for key in ("curated-key", "distilled-key") if key in text}

    assert shown() == {"curated-key"}
    assert shown(standing="any") == {"curated-key", "distilled-key"}
    assert shown(origin__exact="curated") == {"curated-key"}
    assert shown(standing="withdrawn") == {"distilled-key"}
    assert shown(standing="deleted") == set()
    assert shown(tag="fruit") == {"curated-key"}
    assert shown(agent="nobody") == set()
    assert shown(q="apples") == {"curated-key"}
    assert shown(q=str(distilled.pk), standing="withdrawn") == {"distilled-key"}


def test_a_memory_shows_its_sources_its_history_and_the_other_one(operator: Client, session: Session) -> None:
    memory = distil(session, "port", "says the user", verified=True)
    write(session.agent, "port", "Curated words.")

    text = operator.get(page("agentmemory_memory_change", memory.pk)).content.decode()

    assert "<mark>says the user</mark>" in text
    assert f"{page('agentmemory_session_change', session.pk)}?at=1#m1" in text
    assert "verified" in text
    assert "An answer." in text, "the message after the source is shown around it"
    assert "<del>Distilled.</del> <ins>Curated words.</ins>" in text
    assert "Version 1" in text
    assert HOSTILE not in text


def test_d10_a_quotation_that_is_not_in_its_message_says_so(operator: Client, session: Session) -> None:
    memory = distil(session, "port", "never said", verified=False)

    text = operator.get(page("agentmemory_memory_change", memory.pk)).content.decode()

    assert "not found in its message" in text


def test_m5_the_history_tells_who_and_why_and_what_changed(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "It is <b>red</b> today")
    curation.edit(
        memory_id=memory.pk,
        author=Author(kind="operator", name="olga"),
        reason=HOSTILE,
        content="It is <b>blue</b> today",
    )

    text = operator.get(page("agentmemory_memory_change", memory.pk)).content.decode()

    assert "<del>red</del><ins>blue</ins>" in text
    assert "&lt;b&gt;" in text
    assert "operator:olga" in text
    assert HOSTILE not in text


def test_every_act_asks_for_a_reason_before_it_does_anything(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "as it was")

    asked = operator.get(act("memory", "withdraw", memory))
    refused = operator.post(act("memory", "withdraw", memory), {"reason": " "})

    assert asked.status_code == 200
    assert refused.status_code == 422
    memory.refresh_from_db()
    assert memory.withdrawn_at is None


def test_an_edit_is_the_services_with_its_author_and_reason(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "as it was", tags=["one"])
    values = {"content": "as it is", "tags": "one, two", "importance": "0.5", "reason": "it changed"}

    answer = operator.post(act("memory", "edit", memory), values)

    assert answer.status_code == 302
    memory.refresh_from_db()
    assert (memory.content, memory.tags, memory.version) == ("as it is", ["one", "two"], 2)
    event = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).latest("pgh_id")
    assert event.pgh_context["author"] == "operator:olga"
    assert event.pgh_context["reason"] == "it changed"


def test_an_edit_does_not_take_back_what_was_written_meanwhile(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "as it was")
    shown = operator.get(act("memory", "edit", memory)).content.decode()
    version = re.search(r'name="version" value="(\d+)"', shown)
    assert version
    write(agent, "k", "as the agent has it")

    values = {"content": "as it was", "tags": "new", "importance": "0.5", "version": version[1], "reason": "tagged"}
    answer = operator.post(act("memory", "edit", memory), values)

    assert (answer.status_code, "at version 2" in answer.content.decode()) == (422, True)
    memory.refresh_from_db()
    assert (memory.content, memory.tags, memory.version) == ("as the agent has it", [], 2)


def test_an_edit_of_a_version_that_is_not_there_any_more_is_refused(agent: Agent) -> None:
    memory = write(agent, "k", "first")
    write(agent, "k", "second")
    olga = Author(kind="operator", name="olga")
    with pytest.raises(VersionMoved):
        curation.edit(memory_id=memory.pk, author=olga, reason="r", expected=memory.version, content="third")


def test_where_the_database_fails_in_an_act_it_is_told_and_the_rest_is_left(
    operator: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [write(agent, f"k{number}", "c") for number in range(3)]
    remove, tried = curation.remove, []

    def fails_at_second(**given: Any) -> Memory:
        tried.append(given["memory_id"])
        if len(tried) == 2:
            raise OperationalError("gone away")
        return remove(**given)

    monkeypatch.setattr(curation, "remove", fails_at_second)
    told = operator.post(act("memory", "delete", *rows), {"reason": "gone"}, follow=True).content.decode()

    assert len(tried) == 2
    assert "the database failed. Nothing after it was tried." in told
    assert "Delete: 1 of 3 done." in told
    assert Memory.objects.filter(deleted_at=None).count() == 2


def test_an_undo_is_offered_to_those_alone_who_may(client: Client, agent: Agent) -> None:
    """Whoever may not read what is private may make a memory private, and not take that back."""
    user = User.objects.create_user("cur", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_memory", "change_memory"]))
    client.force_login(user)
    values = {"agent": agent.handle, "reason": "its own"}
    first, second = (write(agent, key, "c", scope="space") for key in ("k1", "k2"))

    told = client.post(act("memory", "give-back", first), values, follow=True).content.decode()
    assert "is private to" in told
    assert ">Undo</a>" not in told

    user.user_permissions.add(Permission.objects.get(codename="read_private_content"))
    told = client.post(act("memory", "give-back", second), values, follow=True).content.decode()
    assert act("memory", "share", second) in told


def test_a_deletion_can_be_undone(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "c")

    told = operator.post(act("memory", "delete", memory), {"reason": "gone"}, follow=True)
    memory.refresh_from_db()
    assert memory.deleted_at is not None
    assert act("memory", "undelete", memory).replace("&", "&amp;") in told.content.decode()

    operator.post(act("memory", "undelete", memory), {"reason": "not gone"})
    memory.refresh_from_db()
    assert memory.deleted_at is None


def test_an_earlier_version_comes_back(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "first")
    write(agent, "k", "second")

    operator.post(act("memory", "restore", memory), {"version": "1", "reason": "better"})

    memory.refresh_from_db()
    assert (memory.content, memory.version) == ("first", 3)
    assert Activity.objects.get().act == "restore"


def test_a_deleted_memory_offers_no_earlier_version(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "first")
    write(agent, "k", "second")
    where = page("agentmemory_memory_change", memory.pk)
    assert "/act/restore/" in operator.get(where).content.decode()

    operator.post(act("memory", "delete", memory), {"reason": "gone"})

    assert "/act/restore/" not in operator.get(where).content.decode()


def test_an_act_that_shows_what_is_private_is_a_look(operator: Client, agent: Agent) -> None:
    private, shared = write(agent, "k", "c"), write(agent, "s", "c", scope="space")
    operator.get(act("memory", "pin", private))
    operator.get(act("memory", "edit", shared))
    assert not Activity.objects.exists()

    operator.get(act("memory", "edit", private))

    assert list(Activity.objects.values_list("act", "target_id")) == [("look", str(private.pk))]


def test_the_page_that_asks_for_a_restore_shows_which_version_and_how_it_differs(
    operator: Client, viewer_of_memories: Client, agent: Agent
) -> None:
    memory = write(agent, "k", "We deploy on Tuesdays.")
    write(agent, "k", f"We deploy on Fridays. {HOSTILE}")
    where = act("memory", "restore", memory)

    text = operator.get(f"{where}&version=1").content.decode()

    assert "Version 1 is written again, as version 3." in text
    assert "<ins>Tuesdays</ins>" in text
    assert '<input type="hidden" name="version" value="1"' in text
    assert HOSTILE not in text
    assert '<input type="number" name="version"' in operator.get(where).content.decode()
    refused = operator.post(where, {"version": "7", "reason": "r"})
    assert (refused.status_code, "There is no version 7" in refused.content.decode()) == (422, True)
    assert "Tuesdays" not in viewer_of_memories.get(f"{where}&version=1").content.decode()


def test_an_undo_is_asked_with_a_reason_that_names_the_first_one(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "x")

    told = operator.post(act("memory", "pin", memory), {"reason": "it matters"}, follow=True).content.decode()

    found = re.search(r'href="([^"]+)">Undo</a>', told)
    assert found is not None
    asked = operator.get(html.unescape(found[1])).content.decode()
    assert 'value="undo: it matters"' in asked


def test_what_a_service_refuses_is_told_and_breaks_nothing(operator: Client, agent: Agent) -> None:
    memory = write(agent, HOSTILE, "private")
    write(agent, HOSTILE, "shared", scope="space")

    told = operator.post(act("memory", "share", memory), {"reason": "for all"}, follow=True)

    assert "another memory with this key" in told.content.decode()
    assert HOSTILE not in told.content.decode()
    memory.refresh_from_db()
    assert memory.owner == agent


def test_several_are_acted_upon_at_once(operator: Client, agent: Agent) -> None:
    rows = [write(agent, f"k{n}", "c") for n in range(3)]

    asked = operator.post(
        page("agentmemory_memory_changelist"),
        {"action": "withdraw", "_selected_action": [str(row.pk) for row in rows]},
    )
    answer = operator.post(asked.headers["Location"], {"reason": "all of them"})

    assert answer.status_code == 302
    assert Memory.objects.filter(withdrawn_at__isnull=False).count() == 3


def test_nothing_is_changed_or_deleted_by_the_frameworks_own_pages(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "c")

    assert operator.get(page("agentmemory_memory_add")).status_code == 403
    assert operator.post(page("agentmemory_memory_delete", memory.pk), {"post": "yes"}).status_code == 403
    for model, row in (("space", agent.space), ("agent", agent)):
        assert operator.post(page(f"agentmemory_{model}_delete", row.pk), {"post": "yes"}).status_code == 403


def test_a_conversation_hides_thinking_folds_tools_and_strikes_what_was_taken_back(
    operator: Client, session: Session
) -> None:
    text = operator.get(page("agentmemory_session_change", session.pk)).content.decode()

    assert "An answer." in text
    assert "a thought that stays hidden" not in text
    assert "thinking, not shown" in text
    assert "retracted: said by mistake" in text
    assert 'id="m1"' in text
    assert HOSTILE not in text


def test_what_is_long_is_folded_and_nothing_of_it_is_lost(operator: Client, agent: Agent) -> None:
    session, _ = sessions.adopt(agent=agent, name="long")
    words = " ".join(f"word{n}" for n in range(1_000))
    short = " ".join(f"short{n}" for n in range(200))
    said = [transcripts.NewMessage(uid="u1", type="user", content=words)]
    transcripts.append(session=session, messages=[*said, transcripts.NewMessage(uid="u2", type="user", content=short)])

    text = operator.get(page("agentmemory_session_change", session.pk)).content.decode()

    (first, count, rest) = re.findall(r"(word0 .*?)<details.*?… (.*?) more characters</summary>(.*?)</details>", text)[
        0
    ]
    assert first + rest == words
    assert count.replace("\u202f", "") == str(len(rest))
    assert 1_000 <= len(first) <= 1_500
    assert short in text


def test_a_long_conversation_comes_in_pieces_and_a_link_leads_to_any_message(operator: Client, agent: Agent) -> None:
    session, _ = sessions.adopt(agent=agent, name="long")
    said = [transcripts.NewMessage(uid=f"u{n}", type="user", content=f"words {n}") for n in range(1, 251)]
    transcripts.append(session=session, messages=said)
    where = page("agentmemory_session_change", session.pk)

    first = operator.get(where).content.decode()
    linked = operator.get(where, {"at": "200"}).content.decode()

    assert 'id="m100"' in first
    assert 'id="m101"' not in first
    assert "?from=101" in first
    assert 'id="m200"' in linked
    assert operator.get(where, {"at": "x", "from": "-1"}).status_code == 200


def test_a_viewer_sees_no_private_content_and_no_dead_buttons(viewer: Client, session: Session) -> None:
    private = write(session.agent, "private-key", "the private words")
    shared = write(session.agent, "shared-key", "the shared words", scope="space")
    listed = viewer.get(page("agentmemory_memory_changelist")).content.decode()
    one = viewer.get(page("agentmemory_memory_change", private.pk)).content.decode()
    open_one = viewer.get(page("agentmemory_memory_change", shared.pk)).content.decode()
    conversation = viewer.get(page("agentmemory_session_change", session.pk)).content.decode()
    found = viewer.get(page("agentmemory_memory_changelist"), {"q": "private words"}).content.decode()
    assert "</b>" not in found

    assert "private words" not in listed + one
    assert "shared words" in listed
    assert "shared words" in open_one
    assert "act-edit" not in one + open_one
    assert "An answer." not in conversation
    assert "private-key" not in found
    assert viewer.get(act("memory", "edit", private)).status_code == 403
    assert viewer.get(page("agentmemory_token_add")).status_code == 403


def test_t3_a_token_is_shown_once_and_its_digest_never(operator: Client, agent: Agent) -> None:
    values = {"space": agent.space_id, "agent": agent.handle, "name": "laptop", "reason": "for ada"}

    answer = operator.post(page("agentmemory_token_add"), values)
    token = Token.objects.get()
    text = answer.content.decode()
    later = "".join(
        operator.get(where).content.decode()
        for where in (page("agentmemory_token_changelist"), page("agentmemory_token_change", token.pk))
    )

    plain = next(word for word in text.replace("<", " ").replace(">", " ").split() if word.startswith("amt_"))
    assert token.agent == agent
    assert "no-store" in answer.headers["Cache-Control"]
    assert plain not in later
    assert token.digest not in later + text


def test_t3_a_token_is_revoked_with_a_reason(operator: Client, agent: Agent) -> None:
    operator.post(page("agentmemory_token_add"), {"space": agent.space_id, "reason": "for ada"})
    token = Token.objects.get()

    operator.post(act("token", "revoke", token), {"reason": "lost"})

    token.refresh_from_db()
    assert token.revoked_at is not None


def test_a_token_for_an_agent_that_is_not_there_is_refused(operator: Client, agent: Agent) -> None:
    answer = operator.post(
        page("agentmemory_token_add"), {"space": agent.space_id, "agent": "nobody", "reason": "for ada"}
    )

    assert answer.status_code == 422
    assert not Token.objects.exists()


@pytest.mark.parametrize("name", ["pause", "archive"])
def test_t4_an_agent_is_stopped_and_brought_back(operator: Client, agent: Agent, name: str) -> None:
    back = {"pause": "resume", "archive": "restore"}[name]

    operator.post(act("agent", name, agent), {"reason": "for a while"})
    agent.refresh_from_db()
    assert agent.archived_at is not None or agent.status == "paused"

    operator.post(act("agent", back, agent), {"reason": "again"})
    agent.refresh_from_db()
    assert (agent.archived_at, agent.status) == (None, "active")


def test_a_provider_shows_whether_its_key_is_present_and_never_the_key(operator: Client, settings: Any) -> None:
    settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-the-key"}
    provider = ProviderFactory.create()
    offline = ProviderFactory.create(kind="offline", key_variable="")

    listed = operator.get(page("agentmemory_provider_changelist")).content.decode()
    one = operator.get(page("agentmemory_provider_change", provider.pk)).content.decode()
    what = operator.get(page("agentmemory_provider_change", offline.pk)).content.decode()

    assert "key present" in listed
    assert "sk-the-key" not in listed + one
    assert "without a model" in what


def test_the_list_of_agents_tells_who_runs_here(operator: Client, agent: Agent) -> None:
    place = page("agentmemory_agent_changelist")
    assert "runs here" not in operator.get(place).content.decode()
    Agent.objects.update(run_here=True)
    assert "runs here" in operator.get(place).content.decode()


def test_ids_that_are_none_are_not_found(operator: Client) -> None:
    assert operator.get(page("agentmemory_memory_change", "nonsense")).status_code == 404
    assert operator.get(page("agentmemory_session_change", "nonsense")).status_code == 404
    assert operator.get(page("agentmemory_memory_act", "nonsense") + "?ids=1").status_code == 404


def test_an_answer_never_leads_to_another_site(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "c")

    answer = operator.post(act("memory", "pin", memory) + "&next=//evil.example/", {"reason": "why not"})

    assert answer.headers["Location"] == page("agentmemory_memory_change", memory.pk)


def test_every_act_is_in_the_activity_with_who_and_why(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "c")
    operator.post(act("memory", "pin", memory), {"reason": "=pinned"})
    operator.post(act("agent", "pause", agent), {"reason": "for a while"})
    operator.post(page("agentmemory_token_add"), {"space": agent.space_id, "reason": "for ada"})
    operator.post(act("token", "revoke", Token.objects.get()), {"reason": "lost"})

    done = {(row.who, row.target_type, row.reason) for row in Activity.objects.exclude(act="look")}
    text = operator.get(page("agentmemory_activity_changelist")).content.decode()
    table = b"".join(operator.get(page("agentmemory_activity_csv"))).decode()

    assert done == {
        ("operator:olga", "agentmemory.memory", "=pinned"),
        ("operator:olga", "agentmemory.agent", "for a while"),
        ("operator:olga", "agentmemory.token", "for ada"),
        ("operator:olga", "agentmemory.token", "lost"),
    }
    assert "for a while" in text
    assert "'=pinned" in table, "a spreadsheet would take it for a formula"


def test_looking_at_private_content_is_in_the_activity_once(operator: Client, session: Session) -> None:
    private = write(session.agent, "k", "c")
    shared = write(session.agent, "s", "c", scope="space")

    for _ in range(2):
        operator.get(page("agentmemory_memory_change", private.pk))
        operator.get(page("agentmemory_memory_change", shared.pk))
        operator.get(page("agentmemory_session_change", session.pk))
        operator.get(page("agentmemory_memory_changelist"))

    looked = [(row.target_type, row.target_id) for row in Activity.objects.filter(act="look").order_by("id")]
    assert looked == [
        ("agentmemory.memory", str(private.pk)),
        ("agentmemory.session", str(session.pk)),
        ("agentmemory.memory", ""),
    ]


def test_a_viewers_look_reads_nothing_private_and_leaves_no_trace(viewer: Client, session: Session) -> None:
    viewer.get(page("agentmemory_session_change", session.pk))
    viewer.get(page("agentmemory_memory_changelist"))

    assert not Activity.objects.exists()


def test_the_set_up_is_changed_by_form_with_a_reason_on_record(operator: Client) -> None:
    values = {"slug": "acme", "name": "Acme", "default_model": "", "daily_tokens": "1000"}
    assert operator.post(page("agentmemory_space_add"), values).status_code == 200, "it asks why"

    answer = operator.post(page("agentmemory_space_add"), {**values, "reason": "the first one"})

    assert answer.status_code == 302
    assert Activity.objects.get(act="create").reason == "the first one"


@pytest.mark.parametrize(
    ("address", "says"),
    [("http://127.0.0.1:9", "private"), (f"https://{'a' * 64}.example.com", "This is no address")],
)
def test_a_provider_at_a_private_address_or_at_none_is_refused(
    operator: Client, settings: Any, address: str, says: str
) -> None:
    settings.AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES = False
    values = {"name": "inner", "kind": "anthropic", "address": address, "served_models": ""}

    answer = operator.post(page("agentmemory_provider_add"), {**values, "reason": "why not"})

    assert answer.status_code == 200
    assert says in answer.content.decode()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("address", "ftp://example.com", "begins with http:// or https://"),
        ("address", "https://me:secret@example.com", "no name and no password"),
        ("key_variable", "PATH", "must be ANTHROPIC_API_KEY or begin with AGENTMEMORY_KEY_"),
    ],
)
def test_what_a_provider_may_not_be_is_told_beside_its_field(
    operator: Client, field: str, value: str, says: str
) -> None:
    values = {"name": "glm", "kind": "anthropic", "served_models": "", "reason": "a new one", field: value}

    assert says in operator.post(page("agentmemory_provider_add"), values).content.decode()

    values[field] = {"address": "http://model-server:8080", "key_variable": "AGENTMEMORY_KEY_GLM"}[field]
    assert operator.post(page("agentmemory_provider_add"), values).status_code == 302


def test_the_models_of_a_provider_are_written_one_in_a_line(operator: Client) -> None:
    values = {"name": "glm", "kind": "anthropic", "served_models": "glm-4.7\r\n\r\n glm-air ", "reason": "a new one"}
    operator.post(page("agentmemory_provider_add"), values)
    provider = Provider.objects.get(name="glm")
    assert provider.served_models == ["glm-4.7", "glm-air"]

    where = page("agentmemory_provider_change", provider.pk)
    assert "glm-4.7\nglm-air</textarea>" in operator.get(where).content.decode()
    operator.post(where, {**values, "served_models": "glm-4.7\nglm-air", "default_model": "glm-4.7"})
    assert Activity.objects.latest("pk").detail == {"fields": ["default_model"]}
    operator.post(where, {**values, "served_models": "glm-air", "default_model": "glm-4.7"})
    assert Activity.objects.latest("pk").detail == {"fields": ["served_models"]}
    provider.refresh_from_db()
    assert provider.served_models == ["glm-air"]


@pytest.mark.parametrize(("served", "says"), [("glm\0air", "Null characters"), ("m\n" * 30_000, "at most 50000")])
def test_models_that_cannot_be_kept_are_told_beside_their_field(operator: Client, served: str, says: str) -> None:
    values = {"name": "glm", "kind": "anthropic", "served_models": served, "reason": "a new one"}
    assert says in operator.post(page("agentmemory_provider_add"), values).content.decode()


def test_an_agents_page_leads_to_a_token_of_its_own_while_it_may_have_one(operator: Client, agent: Agent) -> None:
    where = page("agentmemory_agent_change", agent.pk)
    connect = re.compile(r'id="connect" href="([^"]+)"')
    (link,) = connect.findall(operator.get(where).content.decode())
    form = operator.get(html.unescape(link)).content.decode()

    assert f'name="agent" value="{agent.handle}"' in form
    assert f'<option value="{agent.space_id}" selected>' in form
    spaces.archive_agent(agent_id=agent.pk)
    assert not connect.findall(operator.get(where).content.decode())


def test_a_viewer_sees_the_set_up_and_changes_nothing(viewer: Client, agent: Agent) -> None:
    for model, row in (("space", agent.space), ("agent", agent), ("provider", ProviderFactory.create())):
        where = page(f"agentmemory_{model}_change", row.pk)
        seen = viewer.get(where)
        assert seen.status_code == 200
        assert 'id="connect"' not in seen.content.decode()
        assert viewer.post(where, {"reason": "x"}).status_code == 403


def test_a_session_is_called_by_its_title_and_no_page_is_below_itself(operator: Client, session: Session) -> None:
    text = operator.get(page("agentmemory_session_change", session.pk)).content.decode()
    listed = operator.get(page("agentmemory_session_changelist")).content.decode()

    assert f'id="title">{html.escape(HOSTILE)}</h2>' in text
    where = listed[listed.index('id="where"') :].partition("</h1>")[0]
    assert where.count("Sessions") == 1
    User.objects.filter(username="olga").update(is_superuser=False)
    User.objects.get(username="olga").groups.add(Group.objects.get(name="Viewers"))
    assert 'id="title"' not in operator.get(page("agentmemory_session_change", session.pk)).content.decode()


def test_another_one_is_offered_but_where_one_is_added(operator: Client) -> None:
    listed, added = (operator.get(page(f"agentmemory_provider_{name}")) for name in ("changelist", "add"))

    assert "addlink" in listed.content.decode()
    assert "addlink" not in added.content.decode()


def test_a_form_that_is_refused_names_its_fields_and_leads_to_them(operator: Client) -> None:
    text = operator.post(page("agentmemory_provider_add"), {"name": "glm"}).content.decode()

    assert "Nothing was saved." in text
    assert '<a href="#id_reason">Why</a>: This field is required.' in text
    assert text.index('href="#id_reason"') < text.index('id="id_reason"')


def test_curated_and_distilled_that_disagree_stand_side_by_side(operator: Client, session: Session) -> None:
    write(session.agent, "port", f"8443 {HOSTILE}")
    distilled = distil(session, "port", "", verified=False)
    write(session.agent, "same", "Distilled.")
    distil(session, "same", "", verified=False)

    text = operator.get(page("agentmemory_memory_compare")).content.decode()

    assert f'id="pair-{distilled.pk}"' in text
    assert text.count('id="pair-') == 1, "those that say the same are no pair"
    assert act("memory", "promote", distilled).replace("&", "&amp;") in text
    assert HOSTILE not in text
    assert '<div class="am-content">Distilled.</div>' in text, "each stands there as it is"
    assert "From curated to distilled" in text


def test_a_promotion_says_whether_it_writes_over_a_curated_memory_and_shows_both_texts(
    operator: Client, viewer_of_memories: Client, session: Session
) -> None:
    distilled = distil(session, "port", "", verified=False)
    where = act("memory", "promote", distilled)

    new = operator.get(where).content.decode()
    assert "port: there is no curated memory of its key and owner, a new one is written." in new
    assert "Distilled." in new

    write(session.agent, "port", f"Curated. {HOSTILE}")
    over = operator.get(where).content.decode()
    assert "port: the curated memory of its key and owner is written over, its version 1 becomes 2." in over
    assert "It says now" in over
    assert "<del>Curated" in over
    assert HOSTILE not in over
    unread = viewer_of_memories.get(where).content.decode()
    assert "is written over, its version 1 becomes 2." in unread
    assert ("Curated. " in unread, "port: " in unread) == (False, False)


def test_a_viewer_compares_nothing_private(viewer: Client, session: Session) -> None:
    write(session.agent, "port", "8443")
    distil(session, "port", "", verified=False)

    assert "8443" not in viewer.get(page("agentmemory_memory_compare")).content.decode()


def test_an_agents_page_tells_what_it_has(operator: Client, session: Session) -> None:
    write(session.agent, "port", "8443")

    text = operator.get(page("agentmemory_agent_change", session.agent.pk)).content.decode()

    assert 'id="about"' in text
    assert "Distilled by" in text
    assert "built-in default" in text


def test_m6_a_query_can_be_tried_and_counts_no_use(operator: Client, agent: Agent) -> None:
    memory = write(agent, "port", "The staging system listens on 8443")
    write(agent, "other", "Nothing of the kind")

    where = page("agentmemory_memory_change", memory.pk)
    found = operator.get(where, {"q": "staging system"}).content.decode()
    missed = operator.get(where, {"q": f"elephants {HOSTILE}"}).content.decode()

    assert "Rank <strong>1</strong>" in found
    assert "Not among the first" in missed
    assert HOSTILE not in missed
    assert not MemoryAccess.objects.exists()


def test_a_tokens_limit_its_use_and_its_refusals_are_shown_and_the_limit_is_set(operator: Client, agent: Agent) -> None:
    token = tokens.issue(space=agent.space, agent=agent).token
    url = page("agentmemory_token_act", "limit") + f"?ids={token.pk}"
    operator.post(url, {"calls_per_minute": "7", "reason": "too eager"})
    token.refresh_from_db()
    assert token.calls_per_minute == 7
    assert Activity.objects.get(act="limit").detail == {"calls_per_minute": 7}
    CallWindow.objects.create(token=token, minute=int(time.time() // 60), taken=5, refused=4)
    text = operator.get(page("agentmemory_token_changelist")).content.decode()
    assert "of 7, its own, at least 4 refused in a day" in text
    operator.post(url, {"calls_per_minute": "", "reason": "as the others"})
    token.refresh_from_db()
    assert token.calls_per_minute is None


def test_a_limit_that_no_column_holds_is_told_beside_its_field(operator: Client, agent: Agent) -> None:
    token = tokens.issue(space=agent.space, agent=agent).token
    values = {"calls_per_minute": "3000000000", "reason": "r", "space": agent.space.pk}
    for where in (act("token", "limit", token), page("agentmemory_token_add")):
        told = operator.post(where, values).content.decode()
        assert "less than or equal to 1000000" in told
    assert Token.objects.get().calls_per_minute is None


def test_a_memory_without_a_version_on_record_is_still_shown(operator: Client, agent: Agent) -> None:
    memory = write(agent, "k", "c")
    with transaction.atomic(), authorship.purging():
        MemoryEvent.objects.all().delete()

    assert "No version is on record." in operator.get(page("agentmemory_memory_change", memory.pk)).content.decode()
