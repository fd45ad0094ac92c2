"""One line of JSON for each log record: ids and actions, never content (architecture rule 9)."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from http.client import responses
from typing import Any
from uuid import UUID

from agentmemory import tracing

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "action", "color_message"}
# These put paths, and with them memory keys and search words, into their messages: the status says what happened, or
# else the template.
TEMPLATE_ONLY = ("django.request", "django.security", "django.server", "uvicorn.access")
LONGEST_VALUE = 200


# Their answers say what is wrong to who asked, again and again while it lasts; at a start it is no fault at all.
PROBES = ("/healthz", "/readyz", "/progressz")


class NoProbe(logging.Filter):
    """Lets no record of `django.request` through that tells of a probe that was answered 503."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return getattr(record, "status_code", 0) != 503 or getattr(request, "path", "") not in PROBES


def _scalar(value: object) -> object | None:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | UUID):
        return str(value)[:LONGEST_VALUE]
    return None


def _without_path(record: logging.LogRecord) -> str:
    return responses.get(getattr(record, "status_code", 0), str(record.msg))


def _frames(record: logging.LogRecord) -> list[str]:
    """Where an exception came from; its text is left out, since database errors quote rows."""
    trace = record.exc_info[2] if record.exc_info else None
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)[-15:]]


class JsonFormatter(logging.Formatter):
    """Keys: `time`, `level`, `logger`, `action`, `message`, `request_id` within a request, then the scalar values given
    as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        hidden = record.name.startswith(TEMPLATE_ONLY)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "action": getattr(record, "action", None),
            "message": _without_path(record) if hidden else record.getMessage(),
        }
        if request := tracing.current():
            line["request_id"] = request
        for name, value in vars(record).items():
            if name not in STANDARD and (kept := _scalar(value)) is not None:
                line[name] = kept
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["frames"] = _frames(record)
        return json.dumps(line, ensure_ascii=False)
