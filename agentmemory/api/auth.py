"""Who calls: a bearer token, and nothing else (T3). The admin's cookie proves nothing here."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.security import HttpBearer

from agentmemory.callers import Caller
from agentmemory.services import rates, tokens


class TokenAuth(HttpBearer):
    """Finds the caller that a token proves. Where there is none the answer is 401, for whatever reason.

    Raises `TooManyCalls`.
    """

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        caller = tokens.authenticate(token.strip())
        if caller is not None and caller.token_id is not None:
            rates.count(caller.token_id, caller.calls_per_minute)
        return caller


class Call(HttpRequest):
    """A request whose caller is known."""

    auth: Caller
