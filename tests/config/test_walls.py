"""What every answer tells the browser, and what tells one request from another."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest
from django.test import Client
from unfold.settings import get_config
from unfold.utils import convert_color

from config import logs
from config import settings as product
from tests.support.clients import Api

pytestmark = pytest.mark.django_db


def policy(answer: Any) -> dict[str, str]:
    parts = [part.strip().partition(" ") for part in answer["Content-Security-Policy"].split(";")]
    return {name: sources for name, _, sources in parts}


def test_no_page_of_the_console_may_run_or_look_like_what_stands_in_it(operator: Client) -> None:
    for answer in (operator.get("/admin/"), Client().get("/admin/login/"), Client().get("/admin/nothing/")):
        found = policy(answer)
        assert found["default-src"] == "'none'"
        assert (found["style-src"], found["script-src"]) == ("'self'", "'self' 'unsafe-eval'")
        # Attributes alone: a script or a style element in a page does nothing.
        assert answer["Content-Security-Policy"].count("unsafe-inline") == 1
        assert (found["frame-ancestors"], found["base-uri"], found["form-action"]) == ("'none'", "'none'", "'self'")
        text = answer.content.decode()
        assert not re.search(r"<style|<script(?![^>]*src=)|\son\w+=|[^-:x]style=", text)


def test_an_answer_that_is_no_page_may_do_nothing(api: Api) -> None:
    for answer in (Client().get("/healthz"), Client().get("/nothing"), Client().get("/api/v1/memories")):
        assert policy(answer)["default-src"] == "'none'"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Cross-Origin-Resource-Policy"] == "same-origin"
    assert policy(api_headers(api.get("/memories")))["default-src"] == "'none'"


def api_headers(answer: Any) -> dict[str, str]:
    headers: dict[str, str] = answer.headers
    return headers


def test_the_colours_in_the_file_are_all_that_the_console_would_write_into_its_pages() -> None:
    text = (product.BASE_DIR / "config/static/console/colours.css").read_text()
    stated = dict(re.findall(r"--color-([a-z0-9-]+): ([^;]+);", text))
    known = get_config()["COLORS"]
    for name, weights in known.items():
        for weight, value in weights.items():
            assert f"{name}-{weight}" in stated
            # The primary ones are the product's own.
            assert name == "primary" or stated[f"{name}-{weight}"] == convert_color(value)


def test_a_request_has_one_id_in_its_answer_its_problem_and_its_log(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("agentmemory.api.problems")
    logger.addHandler(handler)
    monkeypatch.setattr("agentmemory.api.memories.memories.get", _fail)
    try:
        answer = api.get("/memories/some-key")
    finally:
        logger.removeHandler(handler)
    chosen = answer.headers["X-Request-ID"]
    assert re.fullmatch(r"[0-9a-f]{32}", chosen)
    assert answer.status == 500
    assert answer.body["request_id"] == chosen
    (line,) = [json.loads(each) for each in written.getvalue().splitlines()]
    assert (line["request_id"], line["action"]) == (chosen, "api.failed")


def _fail(**_: Any) -> None:
    raise RuntimeError("an error of the tests")


@pytest.mark.parametrize(
    ("proposed", "taken"),
    [
        ("trace-4711.a_b", True),
        ("0b0d3b1e-8c1f-4a52-9f8e-0b7f3f1c2d4e", True),
        ("short", False),
        ("x" * 65, False),
        ("<script>alert(1)</script>", False),
        ("with space and more", False),
        ("ünïcödeünïcöde", False),
        ('{"level":"error"}', False),
    ],
)
def test_an_id_that_comes_along_is_taken_only_when_it_is_well_formed(api: Api, proposed: str, taken: bool) -> None:
    answer = api.get("/memories/nothing-here", X_Request_ID=proposed)
    assert (answer.headers["X-Request-ID"] == proposed) == taken
    assert answer.body["request_id"] == answer.headers["X-Request-ID"]


def test_two_requests_have_two_ids() -> None:
    assert len({Client().get("/healthz")["X-Request-ID"] for _ in range(3)}) == 3
