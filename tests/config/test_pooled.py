"""The pool of a web process after its connections have died, as in a restart of the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.postgresql import base as framework
from psycopg_pool import PoolTimeout

from config.pooled import base as ours

pytestmark = pytest.mark.django_db(transaction=True)

IDLE = 4
Pooled = Callable[[type[framework.DatabaseWrapper]], Any]


@pytest.fixture
def pooled() -> Iterator[Pooled]:
    """A pool of some idle connections, all of which have died."""
    wrappers = []

    def make(backend: type[framework.DatabaseWrapper]) -> Any:
        options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1, "max_size": 8, "timeout": 2.5}}
        settings = {**connection.settings_dict, "OPTIONS": options, "CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": 0}
        wrapper = backend(settings, alias=f"pooled by {backend.__module__}")
        wrappers.append(wrapper)
        pool = wrapper.pool
        pool.open()
        held = [pool.getconn() for _ in range(IDLE)]
        pids = [each.info.backend_pid for each in held]
        for each in held:
            pool.putconn(each)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) AS pid", [pids])
        return pool

    yield make
    for wrapper in wrappers:
        wrapper.close_pool()


def test_after_one_dead_connection_all_others_are_new(pooled: Pooled) -> None:
    pool = pooled(ours.DatabaseWrapper)
    for _ in range(IDLE):
        with pool.connection() as got:
            assert got.execute("SELECT 1").fetchone() == (1,)


def test_control_the_frameworks_pool_waits_for_each_dead_connection_by_itself(pooled: Pooled) -> None:
    pool = pooled(framework.DatabaseWrapper)
    begun = time.monotonic()
    with pytest.raises(PoolTimeout):
        pool.getconn()
    assert time.monotonic() - begun > 2
