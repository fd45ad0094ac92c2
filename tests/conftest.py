"""A throwaway PostgreSQL for the run: started by the first process, attached to by the workers of `-n`."""

from __future__ import annotations

import os
import shutil

import pytest

pytest_plugins = [
    "tests.support.clients",
    "tests.support.embedders",
    "tests.support.people",
    "tests.support.scripted",
]


@pytest.fixture
def own_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that run a command line in their own process: each sets the framework up again, and with it the log.

    The log would be written from then on to what is captured of that one test, which is closed when it ends.
    """
    monkeypatch.setattr("django.setup", lambda: None)


def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    if settings.AGENTMEMORY_EMBEDDED and not config.option.collectonly:
        from config import embedded

        embedded.ensure(settings.AGENTMEMORY_DATA_DIR, durable=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: nobody waits for one of them at the end, with nothing else left to do."""
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("e2e", "slow")))


def pytest_unconfigure(config: pytest.Config) -> None:
    from config import embedded

    embedded.release()
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["AGENTMEMORY_TEST_DATA_DIR"], ignore_errors=True)
