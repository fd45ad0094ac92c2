"""The console of a database that takes reads alone: what it shows, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, InternalError
from django.test import Client, RequestFactory

from config.unavailable import UnavailableMiddleware
from tests.factories import AgentFactory, MemoryFactory
from tests.support import standby

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reads_alone() -> Iterator[None]:
    with standby.reads_alone():
        yield


@pytest.fixture
def private(operator: Client) -> str:
    """The page of a memory whose look is put on record."""
    memory = MemoryFactory.create(owner=AgentFactory.create(handle="ada"), content="Canary content.")
    return f"/admin/agentmemory/memory/{memory.pk}/change/"


def test_the_start_page_is_shown(operator: Client, private: str, reads_alone: None) -> None:
    assert operator.get("/admin/").status_code == 200


def test_what_is_private_is_not_shown_where_the_look_cannot_be_recorded(
    operator: Client, private: str, reads_alone: None
) -> None:
    answer = operator.get(private)
    assert answer.status_code == 503
    assert "The database takes no writes now." in answer.content.decode()
    assert "Canary" not in answer.content.decode()


def test_nobody_signs_in_where_tries_cannot_be_counted(reads_alone: None) -> None:
    answer = Client().post("/admin/login/", {"username": "olga", "password": "p"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")


@pytest.mark.parametrize(("path", "error"), [("/admin/", InternalError("a fault")), ("/metrics", DatabaseError("x"))])
def test_anything_else_stays_a_fault(path: str, error: Exception) -> None:
    middleware = UnavailableMiddleware(lambda request: None)  # type: ignore[arg-type]
    assert middleware.process_exception(RequestFactory().get(path), error) is None
