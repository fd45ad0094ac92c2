"""The operators' pages of execution: who runs what, what waits and why, what was recovered, and what can be done."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Activity, Message, Session
from sessions_exec.errors import LeaseLost
from sessions_exec.models import Execution, Input, Recovery
from sessions_exec.services import executions, inbox, operations, recovery
from tests.factories import AgentFactory, SessionFactory
from tests.support.running import acquire, expire, log, row, say

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"
WHY = {"reason": "a person asked for it"}
LISTS = ("execution", "input", "recovery")


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    cache.clear()


@pytest.fixture
def session() -> Session:
    return SessionFactory.create(name="s1")


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:sessions_exec_{name}", args=args)


def act(name: str, *rows: Model) -> str:
    model = rows[0]._meta.model_name
    return url(f"{model}_act", name) + "?ids=" + ",".join(str(row.pk) for row in rows)


def page(client: Client, where: str, **query: str) -> str:
    """A page's text, with one space in place of many."""
    answer = client.get(where, query)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def wait(session: Session, uid: str, prompt: str = "Look again.", **given: Any) -> Input:
    return inbox.admit(session=session, uid=uid, prompt=prompt, **given)[0]


def die(session: Session, holder: str = "dead", phase: str = "unknown") -> executions.Held:
    held = acquire(session, holder)
    executions.renew(session=session, held=held, phase=phase)
    expire(session)
    return held


def recovered(session: Session) -> Recovery:
    die(session)
    assert recovery.recover(session_id=session.pk)
    return Recovery.objects.filter(session=session).latest("pk")


def conversation(client: Client, session: Session) -> str:
    return page(client, reverse("admin:agentmemory_session_change", args=[session.pk]))


def acts_recorded() -> list[tuple[str, str, str, str]]:
    rows = Activity.objects.exclude(act="look").order_by("pk")
    return list(rows.values_list("act", "who", "target", "reason"))


def test_live_executions_are_listed_with_holder_epoch_phase_age_and_time_left(operator: Client) -> None:
    acquire(SessionFactory.create(name="runs"), "host-7:4211", seconds=90)
    die(SessionFactory.create(name="is-over"), "host-9")
    given_back = SessionFactory.create(name="given-back")
    executions.release(session=given_back, held=acquire(given_back))

    text = page(operator, url("execution_changelist"))

    for words in ("runs", "host-7:4211", "epoch 1", "ready", "1 min", "now", "is-over", "expired", "over for", "live"):
        assert words in text
    assert "given-back" not in text


@pytest.mark.parametrize(("state", "shown"), [("live", {"runs"}), ("expired", {"is-over"}), ("", {"runs", "is-over"})])
def test_executions_are_filtered_by_their_state(operator: Client, state: str, shown: set[str]) -> None:
    acquire(SessionFactory.create(name="runs"))
    die(SessionFactory.create(name="is-over"))

    text = page(operator, url("execution_changelist"), state=state)

    assert {name for name in ("runs", "is-over") if f">{name}<" in text} == shown


def test_the_badge_counts_what_has_expired(operator: Client, session: Session) -> None:
    where = url("recovery_changelist")
    before = page(operator, where)
    die(session)

    after = page(operator, where)

    link = re.escape(url("execution_changelist"))
    badge = rf'href="{link}".{{0,900}}?Live executions.{{0,900}}?> ?1 ?</span>.{{0,900}}?Inputs that wait'
    assert re.search(badge, after)
    assert not re.search(badge, before)


def test_s5_inputs_are_listed_with_why_they_wait(operator: Client) -> None:
    held, free = SessionFactory.create(name="held"), SessionFactory.create(name="free")
    acquire(held)
    wait(held, "steers")
    wait(held, "queues", delivery="queue")
    wait(free, "wanted")
    wait(free, "unwanted", resume=False)
    over = SessionFactory.create(name="over")
    wait(over, "later")
    die(over)
    promoted = SessionFactory.create(name="promoted")
    wait(promoted, "seen-already")
    inbox.promote(session=promoted, guard=acquire(promoted), boundary="step")

    text = page(operator, url("input_changelist"))

    for words in (
        "for the next step of the run",
        "until the run would go idle",
        "for a runner: nobody runs the session",
        "nobody wants it run now",
        "the execution has expired",
    ):
        assert words in text
    assert "seen-already" not in text


def test_an_input_is_shown_with_what_it_says_and_the_look_is_on_record(operator: Client, session: Session) -> None:
    waiting = wait(session, "i1", f"Deploy it. {HOSTILE}")

    text = page(operator, url("input_change", waiting.pk))

    assert "Deploy it. &lt;script&gt;" in text
    assert HOSTILE not in text
    assert Activity.objects.get(act="look").target == "i1"


def test_s7_a_recovery_tells_what_was_found_and_what_was_done(operator: Client, session: Session) -> None:
    held = acquire(session, "host-7")
    executions.renew(session=session, held=held, phase="unknown", assistant_uid="a1")
    call = {"type": "tool_use", "id": "call-1", "name": "shell", "input": {}}
    say(session, "a1", type="assistant", content=[call], guard=held)
    expire(session)
    recovery.recover(session_id=session.pk)
    found = Recovery.objects.get()

    listed = page(operator, url("recovery_changelist"))
    text = page(operator, url("recovery_change", found.pk))

    for words in ("s1", "host-7", "unknown", "1 tool call of unknown outcome", "an input asks to go on", "recovered"):
        assert words in listed
    for words in ("call-1", f"?at={Message.objects.get(uid='a1').seq}#m", "marked as an error", "pending"):
        assert words in text
    assert found.continuation is not None
    assert url("input_change", found.continuation.pk) in text


def test_the_page_of_an_execution_shows_what_waits_what_was_recovered_and_its_events(
    operator: Client, session: Session
) -> None:
    found = recovered(session)
    assert "recovered" in page(operator, url("execution_change", session.pk))
    wait(session, "i1", HOSTILE)
    acquire(session, "host-8")

    text = page(operator, url("execution_change", session.pk))

    for words in ("host-8", "epoch 2", "i1", "Newest events", "execution.recovered", "holder: host-8"):
        assert words in text
    assert url("recovery_change", found.pk) in text
    assert HOSTILE not in text


def test_whatever_clients_say_is_shown_as_text(operator: Client) -> None:
    session = SessionFactory.create(agent=AgentFactory.create(handle="ada"))
    say(session, "u1", content=HOSTILE)
    inbox.admit(session=session, uid=HOSTILE, prompt=[{"type": "text", "text": HOSTILE}, {"type": HOSTILE}])
    held = acquire(session, HOSTILE)
    executions.renew(session=session, held=held, phase="unknown", assistant_uid=HOSTILE)
    places = [url("execution_change", session.pk), url("input_change", Input.objects.get().pk)]
    places += [act("interrupt", row(session)), act("cancel", Input.objects.get())]
    for where in [*(url(f"{name}_changelist") for name in LISTS), *places]:
        assert HOSTILE not in page(operator, where)
    assert HOSTILE not in conversation(operator, session)

    expire(session)
    recovery.recover(session_id=session.pk)

    found = Recovery.objects.get()
    for where in (url("recovery_changelist"), url("recovery_change", found.pk), url("execution_change", session.pk)):
        assert HOSTILE not in page(operator, where)


def test_a_list_asks_no_query_for_each_row(operator: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            for name in LISTS:
                page(operator, url(f"{name}_changelist"))
        return len(found)

    def fill(count: int) -> None:
        for _ in range(count):
            session = SessionFactory.create()
            recovered(session)
            acquire(session)
            wait(session, "i1")

    fill(2)
    queries()
    few = queries()
    fill(8)
    assert queries() == few


def test_s7_recover_now_asks_a_reason_and_settles_what_is_expired(operator: Client, session: Session) -> None:
    die(session)
    where = act("recover", row(session))

    assert operator.get(where).status_code == 200
    assert operator.post(where, {"reason": ""}).status_code == 422
    assert not Recovery.objects.exists()
    told = operator.post(where, WHY, follow=True).content.decode()

    assert "is recovered" in told
    assert Recovery.objects.get().epoch == 1
    assert row(session).holder == ""
    assert acts_recorded() == [("recover execution", "operator:olga", "s1", WHY["reason"])]


def test_s1_recover_now_leaves_a_live_execution_alone_and_says_so(operator: Client, session: Session) -> None:
    acquire(session)

    told = operator.post(act("recover", row(session)), WHY, follow=True).content.decode()

    assert "Recover now: nothing was done." in told
    assert row(session).holder == "runner"
    assert not acts_recorded()


def test_s7_what_ended_at_a_boundary_is_closed_by_recover_now(operator: Client, session: Session) -> None:
    die(session, phase="safe")

    told = operator.post(act("recover", row(session)), WHY, follow=True).content.decode()

    assert "nothing of it was uncertain" in told
    assert not Recovery.objects.exists()


def test_several_expired_executions_are_recovered_at_once(operator: Client) -> None:
    sessions = [SessionFactory.create() for _ in range(3)]
    for session in sessions[:2]:
        die(session)
    acquire(sessions[2])

    rows = [row(session) for session in sessions]
    told = operator.post(act("recover", *rows), WHY, follow=True).content.decode()

    assert "2 of 2 done. Left out: 1 to which it cannot be done now" in told
    assert Recovery.objects.count() == 2


def test_s6_interrupt_asks_the_holder_to_stop_and_keeps_what_waits(operator: Client, session: Session) -> None:
    waiting = wait(session, "i1")
    held = acquire(session)
    where = act("interrupt", row(session))

    assert operator.post(where, {"reason": "", "epoch": "1"}).status_code == 422
    assert row(session).interrupted_at is None
    told = operator.post(where, {**WHY, "epoch": "1"}, follow=True).content.decode()

    assert "hears of it at the next renewal" in told
    assert executions.renew(session=session, held=held).interrupted_at is not None
    waiting.refresh_from_db()
    assert (waiting.state, waiting.resume) == ("pending", False)
    assert acts_recorded() == [("interrupt execution", "operator:olga", "s1", WHY["reason"])]
    assert "asked to stop" in page(operator, url("execution_changelist"))


def test_the_turn_is_ended_and_its_holder_refused(operator: Client, session: Session) -> None:
    say(session, "u1")
    held = acquire(session)
    where = act("end-turn", row(session))
    asked = page(operator, where)
    assert 'type="hidden" name="epoch" value="1"' in asked
    assert "cannot be taken up again" in asked

    told = operator.post(where, {**WHY, "epoch": "1"}, follow=True).content.decode()

    assert "ended as failed" in told
    assert "turn.ended" in log(session)
    with pytest.raises(LeaseLost):
        executions.renew(session=session, held=held)
    assert acts_recorded() == [("end turn", "operator:olga", "s1", WHY["reason"])]


@pytest.mark.parametrize("name", ["interrupt", "end-turn"])
def test_a_run_that_began_since_the_operator_looked_is_not_meant(operator: Client, session: Session, name: str) -> None:
    executions.release(session=session, held=acquire(session, "first"))
    acquire(session, "second")

    told = operator.post(act(name, row(session)), {**WHY, "epoch": "1"}, follow=True).content.decode()

    assert "It was run again since you looked" in told
    assert (row(session).holder, row(session).interrupted_at) == ("second", None)
    assert not acts_recorded()


def test_s4_an_input_is_cancelled_once_and_with_a_reason(operator: Client, session: Session) -> None:
    waiting = wait(session, "i1")
    where = act("cancel", waiting)

    assert operator.post(where, {"reason": " "}).status_code == 422
    told = operator.post(where, WHY, follow=True).content.decode()

    assert "The input i1 is taken back." in told
    waiting.refresh_from_db()
    assert (waiting.state, waiting.prompt) == ("cancelled", None)
    assert "Cancel input: nothing was done." in operator.post(where, WHY, follow=True).content.decode()
    assert acts_recorded() == [("cancel input", "operator:olga", "i1", WHY["reason"])]


def test_s4_an_input_that_became_a_message_is_not_cancelled(operator: Client, session: Session) -> None:
    waiting = wait(session, "i1")
    inbox.promote(session=session, guard=acquire(session), boundary="step")

    told = operator.post(act("cancel", waiting), WHY, follow=True).content.decode()

    assert "Cancel input: nothing was done." in told
    assert Message.objects.filter(session=session, uid="i1").exists()


def test_an_input_says_which_operator_sent_it_and_believes_no_id(operator: Client, session: Session) -> None:
    wait(session, "operator-by-its-id-alone")
    given = {"prompt": "Stop it.", "delivery": "queue", "operator": "olga"}
    sent = operations.send_input(session_id=session.pk, uid="i2", **given)

    told = page(operator, url("input_changelist"))

    assert told.count(">from operator olga</span>") == told.count(">from outside</span>") == 1
    assert "from operator olga" in page(operator, url("input_change", sent.pk))


def test_acts_are_offered_where_they_can_be_done_and_nowhere_else(operator: Client, session: Session) -> None:
    acquire(session)
    assert offered(page(operator, url("execution_change", session.pk))) == {"interrupt", "end-turn"}
    expire(session)
    assert offered(page(operator, url("execution_change", session.pk))) == {"recover", "interrupt", "end-turn"}
    Execution.objects.filter(pk=session.pk).update(holder="", expires_at=None)
    assert offered(page(operator, url("execution_change", session.pk))) == set()


def offered(text: str) -> set[str]:
    return set(re.findall(r'id="act-([a-z-]+)"', text))


def test_the_session_page_tells_its_execution_on_top_and_what_waits(operator: Client, session: Session) -> None:
    say(session, "u1")
    assert 'id="execution"' not in conversation(operator, session)
    wait(session, "i1", f"Deploy {HOSTILE}")
    assert "nobody has run it yet" in conversation(operator, session)
    acquire(session, "host-7", seconds=90)

    text = conversation(operator, session)

    for words in ("host-7", "epoch 1", "left", "i1", "Deploy &lt;script&gt;", "for the next step of the run"):
        assert words in text
    assert offered(text) == {"interrupt", "end-turn"}
    assert HOSTILE not in text


def test_the_start_page_counts_executions_live_expired_and_recovered_today(operator: Client) -> None:
    acquire(SessionFactory.create())
    for _ in range(2):
        die(SessionFactory.create())
    for _ in range(3):
        recovered(SessionFactory.create())

    text = page(operator, reverse("admin:index"))

    numbers = dict(re.findall(r'id="executions-([a-z]+)"[^>]*><strong[^>]*>(\d+)</strong>', text))
    assert numbers == {"live": "1", "expired": "2", "recovered": "3", "waits": "3"}


def test_a_viewer_sees_the_pages_without_acts_or_words(viewer: Client, session: Session) -> None:
    waiting = wait(session, "i1", "Deploy the secret thing.")
    recovered(session)
    acquire(session)
    places = [url(f"{name}_changelist") for name in LISTS]
    places += [url("execution_change", session.pk), url("input_change", waiting.pk)]
    places += [url("recovery_change", Recovery.objects.get().pk)]

    for where in places:
        text = page(viewer, where)
        assert "/act/" not in text
        assert "secret thing" not in text
    assert "secret thing" not in conversation(viewer, session)
    for where in (act("interrupt", row(session)), act("cancel", waiting)):
        assert viewer.post(where, {**WHY, "epoch": "2"}).status_code == 403


def test_who_may_see_nothing_of_execution_finds_no_page(client: Client, session: Session) -> None:
    client.force_login(User.objects.create_user("eve", is_staff=True))
    acquire(session)

    for where in [*(url(f"{name}_changelist") for name in LISTS), url("execution_change", session.pk)]:
        assert client.get(where).status_code == 403


def test_what_is_not_there_is_told(operator: Client, session: Session) -> None:
    for where in (url("execution_change", 999_999), url("execution_change", "x")):
        assert operator.get(where).status_code == 404
    with pytest.raises(NotFound):
        operations.cancel_input(input_id=999_999, operator="olga", reason="")
    with pytest.raises(NotFound):
        operations.interrupt(session_id=session.pk, epoch=None, operator="olga", reason="")
    executions.release(session=session, held=acquire(session))
    with pytest.raises(Invalid):
        operations.end_turn(session_id=session.pk, epoch=None, operator="olga", reason="")
    assert operations.interrupt(session_id=session.pk, epoch=1, operator="olga", reason="") is False
