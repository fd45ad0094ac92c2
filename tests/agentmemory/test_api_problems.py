"""Everything that can go wrong is one problem document, and says nothing of what it must not say."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import InternalError, OperationalError
from django.test import Client

from agentmemory.models import Token
from agentmemory.services import memories, spaces, tokens
from tests.support.clients import Answer, Api


def is_problem(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    body: dict[str, Any] = answer.body
    assert {"type", "title", "status", "detail"} <= set(body)
    assert body["status"] == status
    assert body["title"]
    return body


@pytest.mark.parametrize("path", ["/", "/nothing", "/memories/k/..%2f", "/memory/k", "/sessions/a/b/c", "/events"])
def test_an_unknown_route_is_a_problem(api: Api, path: str) -> None:
    is_problem(api.get(path), 404)


def test_an_unknown_route_needs_no_token_to_be_unknown(db: None) -> None:
    is_problem(Api(token=None).get("/nothing"), 404)


def test_a_method_that_is_not_there_is_a_problem_that_names_those_that_are(api: Api) -> None:
    answer = api.post("/memories/k", {"content": "x"})
    is_problem(answer, 405)
    assert {method.strip() for method in answer.headers["Allow"].split(",")} == {"GET", "PUT", "DELETE"}
    is_problem(api.delete("/sessions"), 405)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nonsense", b"[1,", b'{"a": NaN}', b"\xff\xfe\xff", b"[" * 200_000, b"{}x", b"'a'"]
)
def test_json_that_does_not_parse_is_422(api: Api, raw: bytes) -> None:
    body = is_problem(api.call("PUT", "/memories/k", raw=raw), 422)
    assert body["errors"][0]["field"] == "body"


def test_the_type_of_content_does_not_matter(api: Api) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        response = api.client.generic(
            "PUT",
            "/api/v1/memories/k",
            json.dumps({"content": "x"}).encode(),
            content_type=content_type,
            headers={"Authorization": f"Bearer {api.token}"},
        )
        assert response.status_code in {200, 201}, content_type


def test_a_validation_failure_says_where_and_not_what(api: Api) -> None:
    body = is_problem(api.put("/memories/k", {"content": 42, "tags": [1], "pinned": "canary"}), 422)
    assert {fault["field"] for fault in body["errors"]} == {"body.content", "body.tags.0", "body.pinned"}
    assert all(fault["message"] for fault in body["errors"])
    assert "canary" not in json.dumps(body)
    assert is_problem(api.get("/memories?limit=0"), 422)["errors"][0]["field"] == "query.limit"


def test_a4_a_body_full_of_faults_names_some_of_them(api: Api) -> None:
    api.put("/sessions/s1")
    numbers = b"[" + b"1," * 1_000_000 + b"1]"
    calls = {
        "/sessions/s1/retractions": b'{"uids": %s}' % numbers,
        "/sessions/s1/messages": b'{"messages": [%s]}' % b",".join([b'{"supersedes": %s}' % numbers[-2_001:]] * 1_000),
        "/batch": b'{"memories": [{"key": "k", "content": "x", "tags": %s}]}' % numbers,
    }
    for path, raw in calls.items():
        answer = api.call("POST", path, raw=raw.replace(b": 1,1", b": [1,1"))
        assert answer.status in {200, 422}, path
        assert len(answer.raw) < 20_000


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer amt_aaaaaaaa_" + "a" * 43,
        "Basic YTpi",
        "Token {token}",
        "{token}",
        "Bearer {token}x",
        "Bearer {token} {token}",
        "Bearer ü\u2028",
    ],
)
def test_t3_without_a_valid_token_there_is_nothing(api: Api, header: str | None) -> None:
    sent = {} if header is None else {"Authorization": header.replace("{token}", api.token or "")}
    answer = Api(token=None).get("/memories", **sent)
    is_problem(answer, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_scheme_is_written_in_any_case(api: Api) -> None:
    assert Api(token=None).get("/memories", Authorization=f"bearer {api.token}").status == 200


def test_t4_revoked_expired_and_archived_are_the_same_to_a_stranger(api: Api) -> None:
    assert api.space is not None
    assert api.agent is not None
    token = Token.objects.get()
    stranger = Api(token=None).get("/memories")

    def refused() -> None:
        answer = api.get("/memories")
        is_problem(answer, 401)
        assert answer.told == stranger.told

    Token.objects.update(expires_at="2020-01-02T00:00:00Z", created_at="2020-01-01T00:00:00Z")
    refused()
    Token.objects.update(expires_at=None)
    assert api.get("/memories").status == 200
    spaces.archive_agent(agent_id=api.agent.pk)
    refused()
    spaces.restore_agent(agent_id=api.agent.pk)
    spaces.archive(space_id=api.space.pk)
    refused()
    spaces.restore(space_id=api.space.pk)
    assert api.get("/memories").status == 200
    tokens.revoke(token_id=token.pk)
    refused()


def test_the_admins_cookie_proves_nothing(api: Api) -> None:
    operator = User.objects.create_superuser("olga", password="x")
    client = Client()
    client.force_login(operator)
    is_problem(Api(token=None, client=client).get("/memories"), 401)
    is_problem(Api(token=None, client=client).put("/memories/k", {"content": "x"}), 401)


def test_the_token_is_looked_at_before_the_body(db: None) -> None:
    is_problem(Api(token=None).call("PUT", "/memories/k", raw=b"{"), 401)


def test_what_nobody_expected_is_noted_and_tells_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("canary in the error")

    monkeypatch.setattr(memories, "get", fail)
    answer = api.get("/memories/canary-key")
    body = is_problem(answer, 500)
    assert "canary" not in answer.text
    assert body["type"] == "about:blank"
    (record,) = [record for record in caplog.records if getattr(record, "action", "") == "api.failed"]
    assert "canary" not in record.getMessage()
    assert getattr(record, "route", "") == "api/v1/memories/<rest:key>"


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (psycopg.OperationalError("refused"), "The database cannot be reached now."),
        (psycopg.errors.ReadOnlySqlTransaction("refused"), "The database takes no writes now."),
        (psycopg.errors.DiskFull("refused"), "The disk of the database is full."),
        (psycopg.errors.TooManyConnections("refused"), "The database is short of resources now."),
    ],
)
def test_a_database_that_does_not_take_it_is_503_and_says_why(
    api: Api, cause: psycopg.Error, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        kind = InternalError if isinstance(cause, psycopg.InternalError) else OperationalError
        raise kind("connection refused") from cause

    monkeypatch.setattr(memories, "get", fail)
    answer = api.get("/memories/k")
    is_problem(answer, 503)
    assert answer.headers["Retry-After"] == "1"
    assert answer.body["detail"] == told
    assert "refused" not in answer.text


def test_errors_of_the_framework_itself_are_problems(api: Api) -> None:
    response = api.client.get("/api/v1/memories", headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    assert b"evil" not in response.content


def test_pages_beside_the_api_are_left_alone(client: Client, db: None) -> None:
    assert "problem" not in client.get("/nothing").headers["Content-Type"]
    assert client.get("/admin/login/").status_code == 200
