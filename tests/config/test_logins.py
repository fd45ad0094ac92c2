"""Signing in: how often one may try, what is remembered of it, and how long a session lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentmemory.errors import TooManyTries
from agentmemory.models import Activity, LoginTries
from agentmemory.services import logins, upkeep
from config import sessions
from tests.support import races

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery"
LOGIN = "/admin/login/"
TRIES = 3


@pytest.fixture(autouse=True)
def few(settings: Any) -> None:
    settings.AGENTMEMORY_LOGIN_TRIES = TRIES


@pytest.fixture(autouse=True)
def vic() -> User:
    return User.objects.create_user("vic", password=PASSWORD, is_staff=True)


def tried(password: str = "wrong", *, account: str = "vic", address: str = "192.0.2.1") -> str:
    """What a try brings: `in`, `wrong` or `held back`."""
    answer = Client(REMOTE_ADDR=address).post(LOGIN, {"username": account, "password": password})
    if answer.status_code == 302:
        return "in"
    return "held back" if "Too many tries" in answer.content.decode() else "wrong"


def test_an_account_is_held_back_from_an_address_and_not_from_another_until_the_time_is_over() -> None:
    assert [tried() for _ in range(TRIES + 1)] == ["wrong"] * TRIES + ["held back"]
    assert tried(PASSWORD) == "held back"
    assert tried(PASSWORD, address="192.0.2.2") == "in"
    assert tried(PASSWORD, account="other") == "wrong"

    LoginTries.objects.update(since=timezone.now() - logins.window() - timedelta(seconds=1))

    assert tried(PASSWORD) == "in"


@pytest.mark.parametrize("place", ["", "https://elsewhere.example/"])
def test_a_sign_in_that_names_no_place_here_leads_to_the_start_page(place: str) -> None:
    answer = Client().post(LOGIN, {"username": "vic", "password": PASSWORD, "next": place})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_an_address_is_held_back_whatever_the_account_and_a_sign_in_of_its_own_clears_nothing() -> None:
    limit = 5 * TRIES
    for n in range(limit):
        logins.begin(f"guess-{n}", "192.0.2.1")
        if n == 5:
            assert tried(PASSWORD) == "in"
    assert tried(account="another") == "held back"
    assert tried(account="another", address="192.0.2.2") == "wrong"


def test_an_account_is_held_back_wherever_it_is_tried_from() -> None:
    for n in range(10 * TRIES):
        logins.begin("vic", f"198.51.100.{n}")
    assert tried(PASSWORD, address="203.0.113.9") == "held back"


def test_who_has_one_address_of_version_6_has_all_of_its_network() -> None:
    assert {tried(address=f"2001:db8::{n}") for n in range(TRIES)} == {"wrong"}
    assert tried(address="2001:db8::ffff") == "held back"
    assert tried(address="2001:db8:0:1::1") == "wrong"
    # An address of version 4 in the writing of version 6 is one address.
    assert {tried(address=f"::ffff:192.0.2.{n}") for n in range(TRIES + 1)} == {"wrong"}


def test_an_account_that_does_not_exist_answers_alike_and_its_name_is_not_kept() -> None:
    answers = [tried(account="my password in the wrong field") for _ in range(TRIES + 1)]
    assert answers == ["wrong"] * TRIES + ["held back"]
    assert not LoginTries.objects.filter(subject__contains="password").exists()


def test_an_operator_sees_who_is_held_back_and_clears_it_on_record(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    for _ in range(TRIES):
        tried()
    listed = client.get(reverse("admin:agentmemory_logintries_changelist")).content.decode()
    assert "vic from 192.0.2.1" in listed
    assert "held back" in listed
    row = LoginTries.objects.get(kind="both")
    clear = f"{reverse('admin:agentmemory_logintries_act', args=['clear'])}?ids={row.pk}"
    assert client.post(clear, {"reason": "he called"}).status_code == 302
    assert tried(PASSWORD) == "in"
    kept = Activity.objects.get()
    assert (kept.who, kept.act, kept.reason) == ("operator:ada", "clear sign-ins", "he called")


def test_who_has_nobody_to_ask_clears_by_command() -> None:
    for _ in range(TRIES):
        tried()
    call_command("clear_logins", "vic", "--reason", "locked out")
    assert tried(PASSWORD) == "in"
    assert {row.act for row in Activity.objects.all()} == {"clear sign-ins"}


def test_what_counts_no_more_is_tidied_away() -> None:
    tried()
    LoginTries.objects.update(since=timezone.now() - 2 * logins.window())
    upkeep.run()
    assert not LoginTries.objects.exists()


# --- many tries at once ---

AT_ONCE = 8
TryRule = Callable[[str, str, Callable[[], object]], None]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The accounts whose passwords were looked at."""
    found: list[str] = []
    check = User.check_password

    def noted(user: User, password: str) -> bool:
        found.append(user.username)
        return check(user, password)

    monkeypatch.setattr(User, "check_password", noted)
    return found


@pytest.mark.django_db(transaction=True)
def test_of_many_tries_at_once_no_more_passwords_are_looked_at_than_of_one_after_another(looked_at: list[str]) -> None:
    said = races.together(*[tried] * AT_ONCE)
    assert sorted(said) == ["held back"] * (AT_ONCE - TRIES) + ["wrong"] * TRIES
    assert looked_at == ["vic"] * TRIES


def tally() -> int:
    return LoginTries.objects.filter(kind="both").values_list("tries", flat=True).first() or 0


def refuse_above(count: int) -> None:
    if count > TRIES:
        raise TooManyTries(1)


def counted_after_the_password(account: str, address: str, meet: Callable[[], object]) -> None:
    """As by who looks whether there were too many failures, and counts this one when it has failed."""
    refuse_above(tally() + 1)
    meet()


def counted_in_two_steps(account: str, address: str, meet: Callable[[], object]) -> None:
    """As by who reads how many there were, and writes one more."""
    before = tally()
    meet()
    values = {"tries": before + 1, "since": timezone.now()}
    LoginTries.objects.update_or_create(kind="both", subject=f"{account} from {address}", defaults=values)
    refuse_above(before + 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rule", [counted_after_the_password, counted_in_two_steps])
def test_without_counting_first_and_in_one_step_all_of_them_are_looked_at(
    rule: TryRule, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    meeting = threading.Barrier(AT_ONCE)
    monkeypatch.setattr(logins, "begin", lambda account, address: rule(account, address, lambda: meeting.wait(30)))
    assert races.together(*[tried] * AT_ONCE) == ["wrong"] * AT_ONCE
    assert looked_at == ["vic"] * AT_ONCE


# --- how long a session lasts ---


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time as sessions see it, in seconds from the sign-in on."""
    now = [0.0]
    monkeypatch.setattr("config.sessions.time.time", lambda: 1_800_000_000 + now[0])
    return now


def opens(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def test_a_session_ends_when_nobody_uses_it_and_is_kept_by_use(client: Client, vic: User, at: list[float]) -> None:
    client.force_login(vic)
    for at[0] in (7_000, 14_000, 21_000):
        assert opens(client)
    at[0] += 7_201
    assert not opens(client)
    at[0] -= 7_201
    assert not opens(client)


def test_a_session_ends_after_its_longest_time_however_it_is_used(client: Client, vic: User, at: list[float]) -> None:
    client.force_login(vic)
    for at[0] in range(0, 43_200, 7_000):
        assert opens(client)
    at[0] = 43_201
    assert not opens(client)


def test_a_session_is_not_written_at_every_look(client: Client, vic: User, at: list[float]) -> None:
    client.force_login(vic)
    at[0] = 30
    assert opens(client)
    assert client.session[sessions.SEEN] == 1_800_000_000
    at[0] = 61
    assert opens(client)
    assert client.session[sessions.SEEN] == 1_800_000_061


def test_the_cookie_is_hidden_from_scripts_and_from_other_sites() -> None:
    answer = Client().post(LOGIN, {"username": "vic", "password": PASSWORD})
    cookie = answer.cookies["sessionid"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    csrf = Client().get(LOGIN).cookies["csrftoken"]
    assert (csrf["httponly"], csrf["samesite"]) == (True, "Strict")
