"""Two answers of one form at the same moment: one is done. With the guard taken out both are."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.test import RequestFactory

from agentmemory.admin import once
from tests.support.races import Actor

pytestmark = pytest.mark.django_db(transaction=True)


def answer(key: str, mark: str) -> HttpRequest:
    request = RequestFactory().post("/", {once.FIELD: mark})
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    return request


def signed_in() -> str:
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session.create()
    key: str = session.session_key
    return key


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_of_two_clicks_at_once_one_counts(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    key, mark = signed_in(), once.mark()
    if not guarded:
        monkeypatch.setattr(QuerySet, "select_for_update", lambda rows, **_: rows)
    with transaction.atomic():
        assert once.claim(answer(key, mark))
        second = Actor(lambda: once.claim(answer(key, mark)))
        # Unguarded it waits as well, to write, with what it has read before.
        assert second.waits()
    assert second.brought() is not guarded
    assert not once.claim(answer(key, mark))
    assert once.claim(answer(key, once.mark()))
