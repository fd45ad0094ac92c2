"""A real browser on the operators' pages: what it reports as wrong is kept, and so is where it asks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(kw_only=True)
class Watched:
    """What went wrong on a page, and the hosts that it asked."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("response", lambda answer: self._answered(answer.status, answer.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            at = message.location
            self.errors.append(f"{message.type}: {message.text} at {at['url']}:{at['lineNumber']}:{at['columnNumber']}")

    def _answered(self, status: int, url: str) -> None:
        if status >= 400:
            self.errors.append(f"{status}: {url}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium; the test is skipped, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip(f"no browser on the path: looked for {', '.join(NAMES)}")
    # Its loop runs in this thread, where the framework then suspects each query.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=found, args=OPTIONS)
            yield browser
            browser.close()
            # Within that loop the framework has connections of its own, which nobody else would close.
            connections.close_all()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


def sign_in(context: BrowserContext, user: User, *, address: str) -> None:
    """Have a browser be signed in without the form: that it works is told elsewhere."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": address}])
