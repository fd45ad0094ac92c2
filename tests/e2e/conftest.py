"""One browser for the tests of a module, and the console at an address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.core.asgi import get_asgi_application

from tests.support import browsers, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(browser: Browser) -> Iterator[str]:
    """`browser` comes first: without one nothing is started."""
    with serving.serving(get_asgi_application(), lifespan="off") as at:
        yield at
