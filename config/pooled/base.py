"""Django's PostgreSQL backend, with a pool that is soon itself again after a restart of the database.

The library's pool finds its dead connections one by one, and waits longer before each: with a handful of them nobody is
served for half a minute. Here the first that is found dead takes all that are idle with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes `OPTIONS["pool"]` as Django's does."""

    # The framework's own, which its stubs leave out.
    _connection_pools: ClassVar[dict[str, Any]]
    _configure_connection: Callable[[Any], None]

    @property
    def pool(self) -> Any:
        options = self.settings_dict["OPTIONS"].get("pool")
        if options and self.alias not in (NO_DB_ALIAS, *self._connection_pools):
            made: ConnectionPool[Any] = ConnectionPool(
                kwargs={**self.get_connection_params(), "autocommit": True},
                open=False,
                configure=self._configure_connection,
                check=self._check,
                **options,
            )
            # Of several threads one is first.
            self._connection_pools.setdefault(self.alias, made)
        return super().pool

    def _check(self, connection: Any) -> None:
        try:
            ConnectionPool.check_connection(connection)
        except Exception:
            # Those that are in use are found by who uses them.
            self.pool.drain()
            raise
