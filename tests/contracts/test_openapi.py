"""The document that describes the JSON views is right, whole, and served from here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.support.clients import Api, result, user


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    response = client.get("/api/v1/openapi.json")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema that stands in an operation."""
    if isinstance(node, dict):
        if isinstance(node.get("schema"), dict):
            yield node["schema"]
        for value in node.values():
            yield from schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas(value)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


CONTRACT = {
    ("put", "/memories/{key}"),
    ("get", "/memories/{key}"),
    ("delete", "/memories/{key}"),
    ("get", "/memories"),
    ("get", "/search"),
    ("get", "/context"),
    ("get", "/history/{id}"),
    ("post", "/batch"),
    ("put", "/sessions/{id}"),
    ("get", "/sessions"),
    ("get", "/sessions/{id}"),
    ("delete", "/sessions/{id}"),
    ("post", "/sessions/{id}/messages"),
    ("get", "/sessions/{id}/messages"),
    ("patch", "/sessions/{id}/messages/{uid}"),
    ("post", "/sessions/{id}/retractions"),
    ("post", "/sessions/{id}/rewind"),
    ("post", "/sessions/{id}/distill"),
    ("get", "/distillation"),
}


def test_every_call_of_the_contract_is_there(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    found = {(method, path.removeprefix("/api/v1")) for method, path, _ in operations(document)}
    assert found >= CONTRACT


def test_every_schema_is_valid_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = document["components"]["schemas"]
    for schema in [*named.values(), *schemas(document["paths"])]:
        Draft202012Validator.check_schema(schema)
    for reference in references(document):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in named


def test_every_parameter_of_a_path_is_described(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        described = {entry["name"] for entry in operation["parameters"] if entry["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path)), path


def test_every_operation_has_its_own_name_its_words_and_its_token(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for method, path, operation in operations(document):
        assert operation.get("description"), (method, path)
        assert operation.get("security"), (method, path)
    assert document["components"]["securitySchemes"]["TokenAuth"] == {"type": "http", "scheme": "bearer"}


def test_every_error_is_described_as_a_problem_document(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        answers = operation["responses"]
        assert {"401", "405", "422", "500", "503"} <= set(answers), (method, path)
        assert ("413" in answers) or method in {"get", "delete"} or "requestBody" not in operation
        assert any(status.startswith("2") for status in answers)
        for status, answer in answers.items():
            if status == "304":
                assert "content" not in answer
                continue
            media = "application/problem+json" if int(status) >= 400 else "application/json"
            assert list(answer["content"]) == [media], (method, path, status)
            assert answer["description"]


def test_no_member_that_is_not_known_is_forbidden(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        assert schema.get("additionalProperties") is not False, name


def test_answers_are_as_they_are_described(document: dict[str, Any], api: Api) -> None:
    registry: Registry[Any] = Registry().with_resource(
        "urn:api", Resource.from_contents(document, default_specification=DRAFT202012)
    )
    api.write("k", "The fox.", tags=["t"], expires_at="2999-01-01T00:00:00Z")
    api.say("s1", user("u1", ["block", {"type": "text", "text": "x"}], occurred_at="2026-01-01T00:00:00Z"), result("r"))
    memory_id = api.get("/memories/k").body["id"]
    calls: list[tuple[str, str, str, Any]] = [
        ("put", "/memories/{key}", "/memories/k", {"content": "The fox again."}),
        ("put", "/memories/{key}", "/memories/new", {"content": "New."}),
        ("put", "/memories/{key}", "/memories/bad", {"content": 4}),
        ("get", "/memories/{key}", "/memories/k", None),
        ("get", "/memories/{key}", "/memories/none", None),
        ("get", "/memories", "/memories?limit=1", None),
        ("get", "/search", "/search?q=fox&explain=true", None),
        ("get", "/context", "/context?q=fox", None),
        ("get", "/history/{id}", f"/history/{memory_id}", None),
        ("post", "/batch", "/batch", {"memories": [{"key": "b", "content": "x"}, {"key": "b"}]}),
        ("put", "/sessions/{id}", "/sessions/s2", {"title": "T"}),
        ("get", "/sessions", "/sessions", None),
        ("get", "/sessions/{id}/messages", "/sessions/s1/messages", None),
        ("post", "/sessions/{id}/messages", "/sessions/s1/messages", {"messages": [user("u1", "other")]}),
        ("patch", "/sessions/{id}/messages/{uid}", "/sessions/s1/messages/u1", {"delivery": "failed"}),
        ("post", "/sessions/{id}/retractions", "/sessions/s1/retractions", {"uids": ["u1"]}),
        ("post", "/sessions/{id}/rewind", "/sessions/s1/rewind", {"after_uid": "u1"}),
        ("get", "/distillation", "/distillation", None),
        ("post", "/sessions/{id}/distill", "/sessions/s1/distill", None),
        ("delete", "/sessions/{id}", "/sessions/s1", None),
        ("delete", "/memories/{key}", "/memories/k", None),
        ("delete", "/memories/{key}", "/memories/k", None),
    ]
    for method, path, real, body in calls:
        answer = api.call(method.upper(), real, body)
        described = document["paths"]["/api/v1" + path][method]["responses"][str(answer.status)]["content"]
        (content,) = described.values()
        validator = Draft202012Validator(_absolute(content["schema"]), registry=registry)
        validator.validate(answer.body)


def _absolute(node: Any) -> Any:
    """A schema whose references are into the document."""
    if isinstance(node, dict):
        return {
            name: "urn:api" + value if name == "$ref" and isinstance(value, str) else _absolute(value)
            for name, value in node.items()
        }
    return [_absolute(value) for value in node] if isinstance(node, list) else node


def test_the_page_loads_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/v1/docs")
    assert page.status_code == 200
    text = page.content.decode()
    assert not re.findall(r"https?://", text)
    assert not re.findall(r"""(?:src|href)=["']//""", text)
    assert '"validatorUrl": null' in text
    for address in re.findall(r"""(?:src|href)=["']([^"']+)["']""", text):
        assert address.startswith("/static/")
        answer = client.get(address)
        answer.close()
        assert answer.status_code == 200, address
