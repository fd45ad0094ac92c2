"""What a model may answer, and the parser of it (D7, D8). Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pydantic

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string"},
                    "content": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "sources": {"type": "array", "items": {"type": "integer"}},
                    "quote": {"type": "string"},
                },
                "required": ["key", "content", "tags", "sources", "quote"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["memories"],
    "additionalProperties": False,
}
"""The answer's JSON Schema, for providers that serve structured outputs."""

EMPTY_ANSWER = '{"memories": []}'
"""The answer to a window that holds nothing worth keeping: a success (D8)."""

EXAMPLE_KEY = "example-key"
EXAMPLE_CONTENT = "One self-contained statement of what is so."
"""The entry that the prompt shows; a candidate that hands it back is refused (D9)."""

MAX_ANSWER_CHARS = 1_000_000
MAX_BROKEN_STARTS = 200
"""How many braces that begin no JSON are passed over as prose (A4)."""

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
OWN_OBJECT = re.compile(r'\{\s*"memories"')


class AnswerUnusable(Exception):
    """An answer from which nothing can be taken; the window may be the cause (D20)."""

    window_at_fault = True


class AnswerMalformed(AnswerUnusable):
    """No JSON object could be read from the answer."""


class AnswerWrongShape(AnswerUnusable):
    """JSON, but no object with a list of `memories`."""


class Entry(pydantic.BaseModel):
    """One entry of an answer whose types are right."""

    model_config = pydantic.ConfigDict(strict=True, extra="ignore")

    key: str
    content: str
    tags: list[str] = []
    sources: list[int] = []
    quote: str = ""


@dataclass(frozen=True, kw_only=True)
class RawCandidate:
    """One entry as the model gave it: `entry`, or the `problem` that kept it from being one."""

    index: int
    key: str
    entry: Entry | None = None
    problem: str = ""


def parse(text: str) -> list[RawCandidate]:
    """The entries of an answer; prose or a fence around its one object is tolerated, and nothing else.

    Raises `AnswerMalformed` or `AnswerWrongShape`. An empty list means that the model found nothing.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise AnswerMalformed(f"the answer is longer than {MAX_ANSWER_CHARS} characters")
    found = list(_objects(text))
    answers = [each for each in found if "memories" in each]
    if not answers:
        _refuse_shape(text, some_object=bool(found))
    if any(answer != answers[0] for answer in answers):
        raise AnswerMalformed("the answer holds several objects with memories")
    if "memories" in answers[0].repeated:
        raise AnswerMalformed("the answer names its memories twice")
    entries = answers[0]["memories"]
    if not isinstance(entries, list):
        raise AnswerWrongShape("memories is no list")
    return [_raw(index, value) for index, value in enumerate(entries)]


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_constant=_no_constant)


def _objects(text: str) -> Iterator[_Object]:
    """The outermost objects of a text. What a broken one has swallowed is never searched for others.

    Otherwise an answer that spoils its own quotes could be read as an object within one of its strings.
    """
    at = text.find("{")
    broken = 0
    while at >= 0:
        try:
            value, end = DECODER.raw_decode(text, at)
            yield value
        except json.JSONDecodeError as error:
            broken += 1
            if OWN_OBJECT.match(text, at) or broken > MAX_BROKEN_STARTS:
                raise AnswerMalformed(f"malformed JSON: {error}") from error
            end = max(at + 1, error.pos)
        except (ValueError, RecursionError) as error:
            raise AnswerMalformed(f"malformed JSON: {error}") from error
        at = text.find("{", end)


def _refuse_shape(text: str, *, some_object: bool) -> NoReturn:
    if some_object:
        raise AnswerWrongShape("the answer is an object without memories")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerMalformed(f"no JSON object in the answer: {error}") from error
    raise AnswerWrongShape(f"the answer is a JSON {type(value).__name__}, not an object with memories")


def _raw(index: int, value: object) -> RawCandidate:
    named = value.get("key") if isinstance(value, _Object) else None
    key = UNSTORABLE.sub("\ufffd", named).strip()[:200] if isinstance(named, str) else ""
    if isinstance(value, _Object) and value.repeated:
        problem = f"names repeated: {UNSTORABLE.sub('?', ', '.join(sorted(value.repeated)))[:200]}"
        return RawCandidate(index=index, key=key, problem=problem)
    try:
        return RawCandidate(index=index, key=key, entry=Entry.model_validate(value))
    except pydantic.ValidationError as error:
        return RawCandidate(index=index, key=key, problem=f"wrong types: {_fields(error)}")


def _fields(error: pydantic.ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(str(part) for part in each['loc'])} {each['msg']}" for each in details[:5])
