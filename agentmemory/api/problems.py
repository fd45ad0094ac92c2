"""Errors as RFC 9457 problem documents: one shape for everything that can go wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import BaseModel, Field

from agentmemory import sqlstates, tracing
from agentmemory.errors import HoldsSecret, Invalid, NotAllowed, NotFound, TooManyCalls, UidConflict, VersionMoved

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_KINDS = "urn:agent-memory:problem:"


class TooLarge(Exception):
    """A call holds more than one call may."""


class NotJson(Exception):
    """The body of a call cannot be read."""


class Fault(BaseModel):
    """One thing that is wrong with a value of a call."""

    field: str = Field(description="Where it stands, as in `body.tags.0`.")
    message: str


class Problem(BaseModel):
    """What went wrong (RFC 9457). Some problems say more in members of their own."""

    type: str = Field(description="`about:blank`, or a URN that ends in the kind of problem.")
    title: str
    status: int
    detail: str = ""
    request_id: str = Field(default="", description="As in the header `X-Request-ID`, and in the log.")
    errors: list[Fault] | None = Field(default=None, description="For a validation failure: each thing wrong.")


def response(
    status: int,
    detail: str = "",
    *,
    kind: str = "",
    errors: Sequence[Mapping[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> HttpResponse:
    """A problem document. `more` are members of its own; values that are no JSON are written as text."""
    members: dict[str, Any] = {
        "type": _KINDS + kind if kind else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }
    if request := tracing.current():
        members["request_id"] = request
    if errors is not None:
        members["errors"] = list(errors)
    return HttpResponse(json.dumps(members, default=str), status=status, content_type=MEDIA_TYPE, headers=headers)


def describe(error: Exception) -> HttpResponse | None:
    """The problem document of an error that this app raises on purpose; nothing for any other."""
    match error:
        case NotFound():
            return response(404, str(error))
        case NotAllowed():
            return response(403, str(error))
        case HoldsSecret():
            return invalid(str(error), field=error.field, kinds=list(error.kinds))
        case Invalid():
            return invalid(str(error), field=error.field)
        case VersionMoved():
            return response(412, str(error), kind="version-moved")
        case UidConflict():
            return response(409, "A message of this uid is here already, with other content.", kind="uid-conflict")
    return None


def invalid(detail: str, *, field: str = "", **more: Any) -> HttpResponse:
    """422: a value breaks a rule."""
    return response(422, detail, errors=[{"field": field, "message": detail}], **more)


def register(api: NinjaAPI) -> None:
    """Let `api` answer every error with a problem document."""
    handlers: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
        **dict.fromkeys((NotFound, NotAllowed, Invalid, VersionMoved, UidConflict), _on_purpose),
        AuthenticationError: lambda request, error: unauthorised(),
        ValidationError: lambda request, error: _validation(error),
        HttpError: lambda request, error: _http(error),
        TooManyCalls: lambda request, error: too_many(error.retry_after),
        TooLarge: lambda request, error: response(413, str(error)),
        RequestDataTooBig: lambda request, error: response(413, "The body is too large."),
        Http404: lambda request, error: response(404, "There is nothing here."),
        OperationalError: _unavailable,
        InternalError: lambda request, error: _internal(request, error),
        Exception: _unexpected,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)


def too_many(retry_after: int) -> HttpResponse:
    """429: the token has made its calls of this minute. `retry_after`: seconds."""
    detail = "This token has made its calls of this minute."
    return response(429, detail, headers={"Retry-After": str(retry_after)})


def unauthorised() -> HttpResponse:
    """401: whatever is wrong with the token, the answer is the same."""
    return response(401, "A valid token is needed.", headers={"WWW-Authenticate": "Bearer"})


def _on_purpose(request: HttpRequest, error: Exception) -> HttpResponse:
    return describe(error) or _unexpected(request, error)


def _validation(error: ValidationError) -> HttpResponse:
    faults = [{"field": _place(fault["loc"]), "message": fault["msg"]} for fault in error.errors[:100]]
    return response(422, "The call breaks a rule.", errors=faults)


def _place(location: Sequence[Any]) -> str:
    """Where a value stands, without the name that the view's argument has."""
    source, *rest = [str(part) for part in location]
    return ".".join([source, *(rest[1:] if source == "body" else rest)])


def _http(error: HttpError) -> HttpResponse:
    """What the framework raises by itself. It says 400 of a body that could not be read."""
    cause = error.__cause__
    if isinstance(cause, TooLarge):
        return response(413, str(cause))
    if error.status_code == 400:
        return invalid(str(cause) if isinstance(cause, NotJson) else "The body cannot be read.", field="body")
    return response(error.status_code, error.message)


def _unavailable(request: HttpRequest, error: Exception) -> HttpResponse:
    _log(request, error, "api.unavailable")
    return unavailable(error)


def _internal(request: HttpRequest, error: Exception) -> HttpResponse:
    return (_unavailable if sqlstates.passes(error) else _unexpected)(request, error)


def unavailable(error: Exception) -> HttpResponse:
    """503: the database does not take it now."""
    return response(503, why_not(error), headers={"Retry-After": "1"})


def why_not(error: Exception) -> str:
    """The matter in words: class 53 of SQLSTATE is a server that is short of something."""
    state = sqlstates.of(error)
    if state == sqlstates.DISK_FULL:
        return "The disk of the database is full."
    if state == sqlstates.READ_ONLY:
        return "The database takes no writes now."
    if state.startswith("53"):
        return "The database is short of resources now."
    return "The database cannot be reached now."


def _unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
    _log(request, error, "api.failed")
    return response(500, "Something went wrong here. It was noted.")


def _log(request: HttpRequest, error: Exception, action: str) -> None:
    route = request.resolver_match.route if request.resolver_match else ""
    logger.error("a call failed", exc_info=error, extra={"action": action, "route": route, "method": request.method})
