"""What is wrong with the arguments of a tool, in words that a model can act on. What was given is never repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MOST = 10
# By the kind of pydantic's error; the values in braces are its own.
_WORDS = {
    "missing": "is needed",
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "may have at most {max_length:,} characters",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "may be at most {le}",
    "literal_error": "must be {expected}",
    "list_type": "must be a list",
    "too_long": "may have at most {max_length} items",
}
_OTHERWISE = "has a value that it cannot have"


def words(tool: str, error: ValidationError) -> str:
    """One sentence a fault, each with the argument's name."""
    faults = error.errors(include_url=False, include_input=False)
    return " ".join([f"{tool} was not called:", *(f"{_fault(fault)}." for fault in faults[:MOST])])


def _fault(fault: ErrorDetails) -> str:
    values: Mapping[str, Any] = fault.get("ctx", {})
    said = _WORDS.get(fault["type"], _OTHERWISE).format(**values)
    if fault["type"] == "string_too_short" and values["min_length"] == 1:
        said = "must not be empty"
    return f"`{_place(fault['loc'])}` {said}"


def _place(location: tuple[int | str, ...]) -> str:
    """The argument, and which of its items: `tags[0]`."""
    name, *rest = location or ("arguments",)
    return "".join([str(name), *(f"[{part}]" for part in rest)])
