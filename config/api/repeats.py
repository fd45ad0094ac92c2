"""`Idempotency-Key` on POST: a client that is not sure whether its call arrived sends it again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from agentmemory.api import problems
from agentmemory.callers import Caller
from agentmemory.errors import Invalid, TooManyCalls
from agentmemory.services import rates, repeats, tokens
from config.api.middleware import PREFIX

_KEY = re.compile(r"[ -~]{1,255}\Z")


class RepeatMiddleware:
    """Answers a POST that names a key once, and the same again for a day. Keys are of their token."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        key = request.headers.get("Idempotency-Key")
        if key is None or request.method != "POST" or not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        if not _KEY.match(key):
            return problems.invalid("1 to 255 printable characters of ASCII.", field="header.Idempotency-Key")
        caller, digest = _caller(request), _digest(request)
        if caller is None or caller.token_id is None or digest is None:
            return self.get_response(request)
        return self._once(request, caller, token_id=caller.token_id, key=key, digest=digest)

    def _once(self, request: HttpRequest, caller: Caller, *, token_id: int, key: str, digest: str) -> HttpResponseBase:
        given: list[HttpResponseBase] = []

        def act() -> repeats.Answer:
            response = self.get_response(request)
            given.append(response)
            content_type = response.headers.get("Content-Type", "")
            return repeats.Answer(
                status=response.status_code, content_type=content_type, body=getattr(response, "content", b"")
            )

        try:
            answer, again = repeats.once(token_id=token_id, key=key, digest=digest, act=act)
            if not again:
                return given[-1]
            rates.count(token_id, caller.calls_per_minute)
        except Invalid as error:
            return problems.invalid(str(error), field=error.field)
        except TooManyCalls as error:
            return problems.too_many(error.retry_after)
        headers = {"Idempotent-Replayed": "true", "Content-Length": str(len(answer.body))}
        return HttpResponse(answer.body, status=answer.status, content_type=answer.content_type, headers=headers)


def _caller(request: HttpRequest) -> Caller | None:
    kind, _, plain = request.headers.get("Authorization", "").partition(" ")
    return tokens.authenticate(plain.strip()) if kind.lower() == "bearer" else None


def _digest(request: HttpRequest) -> str | None:
    """What tells one call from others; nothing for one that is too large, which the view refuses."""
    try:
        body = request.body
    except RequestDataTooBig:
        return None
    return hashlib.sha256(b"\n".join([request.get_full_path().encode(), body])).hexdigest()
