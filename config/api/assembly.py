"""The one API object: routers, errors, and the document that describes them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Swagger
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from agentmemory.api import history, memories, memory_tool, problems, search
from agentmemory.api.auth import TokenAuth
from agentmemory.api.fields import rfc3339
from agentmemory.api.parsing import StrictParser
from config.api import distillation, messages, sessions
from distillation.errors import BackingOff
from sessions_exec.api import events, executions, inputs
from sessions_exec.errors import Crowded, InputConflict, LeaseHeld, LeaseLost

_DESCRIPTION = """Memories of AI agents, and the transcripts that they are distilled from.

Every call has a bearer token: an *agent token* acts as one agent, a *space token* for a whole space. Lists are
`{"items": [...], "next": ...}`; the next page is `after=NEXT`. Errors are problem documents (RFC 9457). Times are
RFC 3339 in UTC. Members of a body that are not known here are ignored."""

# What any call may answer, beside what it says itself.
_ALWAYS = {
    "401": "Without a valid token",
    "405": "Not with this method",
    "422": "Bad input",
    "429": "Too many calls: `Retry-After` says for how long",
    "500": "Something went wrong",
    "503": "The database cannot be reached",
}
_IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"},
    "description": "The same call under the same key is done once in a day, and answered as before.",
}
_WITH_BODY = {"413": "Too large"}


class MemoryAPI(NinjaAPI):
    """Names its calls shortly, and describes their errors as what they are: problem documents, of every call."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """What a generated client calls it."""
        return operation.view_func.__name__

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        document = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        for path in document["paths"].values():
            for operation in path.values():
                _describe_errors(operation)
                _describe_headers(operation)
            _describe_manners(path)
        return document


def _describe_errors(operation: dict[str, Any]) -> None:
    answers = {str(status): answer for status, answer in operation["responses"].items()}
    for status, description in {**_ALWAYS, **(_WITH_BODY if "requestBody" in operation else {})}.items():
        answers.setdefault(status, {"description": description})
    for status, answer in answers.items():
        if int(status) >= 400:
            answer["content"] = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation["responses"] = dict(sorted(answers.items()))


def _describe_headers(operation: dict[str, Any]) -> None:
    """A header is there or not: what stands in it is a text, never null."""
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        if parameter["in"] == "header" and "anyOf" in schema:
            (said,) = (each for each in schema.pop("anyOf") if each != {"type": "null"})
            schema.update(said)


def _describe_manners(path: dict[str, Any]) -> None:
    """What may go along with every call of a kind: a GET may be asked on a condition, a POST may come again."""
    if "get" in path:
        path["get"]["responses"]["304"] = {"description": "Not changed: the client has just this (`If-None-Match`)"}
    if "post" in path:
        path["post"].setdefault("parameters", []).append(_IDEMPOTENCY_KEY)


def _lease_held(request: HttpRequest, error: Any) -> HttpResponse:
    until = rfc3339(error.expires_at) if error.expires_at else None
    return problems.response(409, str(error), kind="lease-held", holder=error.holder, expires_at=until)


def _lease_lost(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.response(409, str(error), kind="lease-lost")


def _input_conflict(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.response(409, str(error), kind="input-conflict")


def _crowded(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.response(429, str(error), headers={"Retry-After": "5"})


def _backing_off(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.response(409, str(error), kind="backing-off", next_attempt_at=rfc3339(error.until))


def build() -> MemoryAPI:
    """The API with everything in it."""
    built = MemoryAPI(
        title="Agent Memory",
        version="1",
        description=_DESCRIPTION,
        auth=TokenAuth(),
        parser=StrictParser(),
        urls_namespace="api",
        # The page would otherwise ask a validator elsewhere for a badge.
        docs=Swagger(settings={"validatorUrl": None}),
    )
    problems.register(built)
    built.add_exception_handler(LeaseHeld, _lease_held)
    built.add_exception_handler(LeaseLost, _lease_lost)
    built.add_exception_handler(InputConflict, _input_conflict)
    built.add_exception_handler(Crowded, _crowded)
    built.add_exception_handler(BackingOff, _backing_off)
    for module in (
        memories,
        memory_tool,
        search,
        history,
        sessions,
        messages,
        inputs,
        executions,
        events,
        distillation,
    ):
        built.add_router("", module.router)
    return built


api = build()
