"""The database crashes and comes back in the midst of a commit: it holds, or it never was; nothing in between (D1)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import InterfaceError, OperationalError, connection
from pytest_django import DjangoDbBlocker

from config import embedded, postgres
from distillation.models import Cursor
from tests.factories import AgentFactory
from tests.faults import books
from tests.faults.conftest import ROUNDS, Distil
from tests.support import clusters
from tests.support.faulty_worker import Orders
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.slow

# Seconds from the order to crash to the commit. The program that crashes the server takes a while to begin.
DELAYS = ["-1", "0.35", "0.5", "0.42", "0.65", "0.3", "0.58"]


@pytest.fixture(scope="module")
def cluster(django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    """A server of this module's own, in the place of the run's: what others use is not crashed."""
    folder = Path(tempfile.mkdtemp(prefix="am-r-", dir="/tmp"))
    place = folder / "postgres"
    postgres.create(place, user=embedded.USER, durable=True)
    postgres.start(place, socket_folder=place, durable=True)
    postgres.create_database(place, user=embedded.USER, name=embedded.DATABASE)
    own = embedded.address(folder)
    before = dict(connection.settings_dict)
    with django_db_blocker.unblock():
        connection.close()
        ContentType.objects.clear_cache()
        connection.settings_dict.update(HOST=own.host, NAME=own.name, USER=own.user, PORT="", PASSWORD="")
        try:
            call_command("migrate", verbosity=0)
            yield place
        finally:
            connection.close()
            connection.settings_dict.update(before)
            ContentType.objects.clear_cache()
            postgres.stop(place)
            shutil.rmtree(folder)


def test_d1_a_database_that_crashes_in_the_midst_of_a_commit_loses_and_doubles_nothing(
    cluster: Path, server: ModelServer, distil: Distil, orders: Orders
) -> None:
    agent = AgentFactory.create(handle="ada", space__slug="acme")
    crashes = 0
    for number in range(max(2, ROUNDS)):
        books.tell(agent, f"s{number}", turns=1)
        orders.give("commit.before", f"restart+{DELAYS[number % len(DELAYS)]}")
        first = clusters.postmaster(cluster)
        process = distil(environment={"FAULT_CLUSTER": str(cluster)})
        process.join(60)
        crashes += process.exitcode != 0
        connection.close()
        clusters.until(partial(has_crashed_and_answers, cluster, first))
        books.expire_leases()
        after = distil()
        after.join(30)
        assert after.exitcode == 0
        books.check(server)
    assert crashes
    assert {point for point, _, _ in orders.done} == {"commit.before"}


def has_crashed_and_answers(cluster: Path, first: int | None) -> bool:
    """On a busy machine the crash may come late: what follows is not to be hit by it."""
    if clusters.postmaster(cluster) in {None, first}:
        return False
    try:
        Cursor.objects.exists()
    except (OperationalError, InterfaceError):
        connection.close()
        return False
    return True
