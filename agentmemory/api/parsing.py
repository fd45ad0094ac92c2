"""How a body is read: strict JSON of bounded size, so that nothing that came in cannot be stored or sent out again."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

from django.http import HttpRequest
from ninja.parser import Parser

from agentmemory.api import problems

LARGEST_BODY = 8 * 1024 * 1024


class StrictParser(Parser):
    """Reads JSON as RFC 8259 has it. Raises `NotJson` and `TooLarge`."""

    def parse_body(self, request: HttpRequest) -> Any:
        if len(request.body) > LARGEST_BODY:
            raise problems.TooLarge(f"A body may have {LARGEST_BODY:,} bytes; this has {len(request.body):,}.")
        try:
            return json.loads(request.body, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise problems.NotJson("The body is not JSON, or nested too deeply.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("too large a number")
    return value
