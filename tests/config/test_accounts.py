"""Accounts: by superusers alone, by acts with a reason, each on record; and how a session ends."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agentmemory.models import Activity
from config import groups

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery"


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:{name}", args=args)


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def vic() -> User:
    return User.objects.create_user("vic", password=PASSWORD, is_staff=True)


def signed_in() -> Client:
    client = Client()
    assert client.login(username="vic", password=PASSWORD)
    assert client.get(page("index")).status_code == 200
    return client


def do(client: Client, user: User, act: str, **values: str) -> int:
    return client.post(f"{page('auth_user_act', act)}?ids={user.pk}", {"reason": "asked for", **values}).status_code


def on_record() -> list[tuple[str, str, str, str]]:
    rows = Activity.objects.order_by("pk").values_list("who", "act", "target", "reason")
    return [(who, act, target, reason) for who, act, target, reason in rows]


def test_another_password_signs_out_everywhere_and_is_on_record_without_itself(ada: Client, vic: User) -> None:
    here, there = signed_in(), signed_in()

    assert do(ada, vic, "set-password", password="short") == 422
    assert do(ada, vic, "set-password", password="another-long-word") == 302

    assert [client.get(page("index")).status_code for client in (here, there)] == [302, 302]
    assert on_record() == [("operator:ada", "set password", "vic", "asked for")]
    assert Activity.objects.get().detail == {}
    assert Client().login(username="vic", password="another-long-word")
    assert ada.get(page("auth_user_password_change", vic.pk))["Location"] == (
        f"{page('auth_user_act', 'set-password')}?ids={vic.pk}"
    )


def test_a_password_that_one_changes_oneself_signs_out_every_other_place(vic: User) -> None:
    here, there = signed_in(), signed_in()
    values = {"old_password": PASSWORD, "new_password1": "another-long-word", "new_password2": "another-long-word"}

    assert here.post(page("password_change"), values).status_code == 302

    assert [client.get(page("index")).status_code for client in (here, there)] == [200, 302]
    assert on_record() == [("operator:vic", "set own password", "vic", "by its holder")]
    assert Activity.objects.get().detail == {}


def test_a_password_that_is_refused_is_on_no_record(vic: User) -> None:
    values = {"old_password": "wrong", "new_password1": "another-long-word", "new_password2": "another-long-word"}
    assert "entered incorrectly" in signed_in().post(page("password_change"), values).content.decode()
    assert on_record() == []


def test_nobody_locks_himself_out(ada: Client) -> None:
    myself = User.objects.get(username="ada")
    told = ada.post(f"{page('auth_user_act', 'deactivate')}?ids={myself.pk}", {"reason": "r"}, follow=True)
    assert "somebody else has to deactivate it" in told.content.decode()
    myself.refresh_from_db()
    assert (myself.is_active, on_record()) == (True, [])
    assert do(ada, myself, "sign-out") == 302


def test_the_groups_of_an_account_are_boxes_and_their_change_is_on_record(ada: Client, vic: User) -> None:
    place = page("auth_user_change", vic.pk)
    assert 'type="checkbox" name="groups"' in ada.get(place).content.decode()
    viewers = Group.objects.get(name=groups.VIEWERS)
    sent = {"username": "vic", "is_active": "on", "is_staff": "on", "groups": [viewers.pk], "reason": "joins"}

    assert ada.post(place, sent).status_code == 302

    assert list(vic.groups.all()) == [viewers]
    assert on_record() == [("operator:ada", "change", "vic", "joins")]
    assert Activity.objects.get().detail == {"fields": ["groups"]}


def test_an_account_is_signed_out_kept_out_and_let_in_again(ada: Client, vic: User) -> None:
    one = signed_in()
    assert do(ada, vic, "sign-out") == 302
    assert one.get(page("index")).status_code == 302
    again = signed_in()
    assert do(ada, vic, "deactivate") == 302
    assert again.get(page("index")).status_code == 302
    assert not Client().login(username="vic", password=PASSWORD)
    assert do(ada, vic, "activate") == 302
    signed_in()
    assert [act for _who, act, _target, _reason in on_record()] == ["sign out", "deactivate", "activate"]
    assert ada.get(page("index")).status_code == 200


def test_a_groups_form_leaves_alone_what_it_does_not_offer(ada: Client) -> None:
    readers = Group.objects.create(name="Readers")
    other, ours, more = (Permission.objects.get(codename=f"view_{name}") for name in ("logentry", "memory", "token"))
    readers.permissions.set([other, ours])
    place = page("auth_group_change", readers.pk)
    assert f'name="permissions" value="{other.pk}"' not in ada.get(place).content.decode()

    ada.post(place, {"name": "Readers", "permissions": [more.pk], "reason": "tokens now"})

    assert set(readers.permissions.all()) == {other, more}


def test_an_account_and_a_group_are_set_up_with_a_reason(ada: Client) -> None:
    new = {"username": "olga", "password1": PASSWORD, "password2": PASSWORD}
    assert ada.post(page("auth_user_add"), new).status_code == 200
    assert ada.post(page("auth_user_add"), {**new, "reason": "she starts today"}).status_code == 302
    assert ada.post(page("auth_group_add"), {"name": "Readers", "reason": "an audit"}).status_code == 302
    readers = Group.objects.get(name="Readers")
    gone = f"{page('auth_group_act', 'delete')}?ids={readers.pk}"
    assert ada.post(gone, {"reason": "it is over"}).status_code == 302
    assert [record[1:] for record in on_record()] == [
        ("create", "olga", "she starts today"),
        ("create", "Readers", "an audit"),
        ("delete", "Readers", "it is over"),
    ]


def test_an_account_that_is_made_gets_in_with_its_group_and_its_list_tells_who_is_what(ada: Client) -> None:
    asked = ada.get(page("auth_user_add")).content.decode()
    assert "gets in here at once" in asked
    assert all(f"{role}: {groups.MEANS[role]}" in asked for role in groups.ROLES)
    curators = Group.objects.get(name=groups.CURATORS)
    new = {"username": "olga", "password1": PASSWORD, "password2": PASSWORD, "groups": [curators.pk], "reason": "r"}
    assert ada.post(page("auth_user_add"), new).status_code == 302

    client = Client()
    answer = client.post(page("login"), {"username": "olga", "password": PASSWORD, "next": page("index")})

    assert (answer.status_code, answer["Location"]) == (302, page("index"))
    olga = User.objects.get(username="olga")
    assert list(olga.groups.all()) == [curators]
    listed = ada.get(page("auth_user_changelist")).content.decode()
    assert '<span class="am-chip"' in listed
    assert "Curators" in listed
    kept = ada.get(page("auth_user_change", olga.pk)).content.decode()
    assert 'name="date_joined_0"' not in kept
    assert "<time" in kept
    assert ada.get(page("auth_group_changelist")).content.decode().count("look, read what is private") == 1


def test_a_role_of_the_products_own_is_not_edited(ada: Client) -> None:
    viewers = Group.objects.get(name=groups.VIEWERS)
    where = page("auth_group_change", viewers.pk)
    assert 'name="_save"' not in ada.get(where).content.decode()
    assert ada.post(where, {"name": "Mine", "reason": "x"}).status_code == 403


def test_a_sign_in_gets_a_new_session(vic: User) -> None:
    client = Client()
    client.get(page("login"))
    session = client.session
    session["planted"] = True
    session.save()
    before = session.session_key
    client.cookies["sessionid"] = before or ""
    client.post(page("login"), {"username": "vic", "password": PASSWORD})
    assert client.get(page("index")).status_code == 200
    assert client.session.session_key != before
