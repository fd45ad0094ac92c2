"""Where tenant data is read: every look starts from the caller (T2). Read from the source, so that a new one shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Rows that belong to somebody. Spaces, agents, tokens and providers are looked up by whom a credential proves.
TENANT = {
    "Memory", "MemoryEvent", "MemorySource", "MemoryAccess", "MemoryUsage", "Message", "MessageEdge", "Session",
    "Cursor", "DistillationPass", "Quarantine", "Execution", "Input", "ModelCall", "Recovery", "SessionEvent",
}  # fmt: skip
# What agents speak to. Nothing here reads a row but through a service, or from `visible_to`.
AGENTS_EDGES = ("agentmemory/api", "agentmemory/mcp.py", "agentmemory/mcp", "config/api")
# Services that agents' edges call with a caller: what they read of memories and sessions starts from it.
CALLERS_SERVICES = (
    "agentmemory/services/memories.py",
    "agentmemory/services/context.py",
    "agentmemory/services/history.py",
    "agentmemory/services/sessions.py",
    "agentmemory/services/sources.py",
    "agentmemory/search",
    "distillation/services/standings.py",
)
# Reads in those services that start from something the caller was found to see, each with where it comes from.
FROM_WHAT_IS_SEEN = {
    ("agentmemory/services/memories.py", "put", "Memory"): "the row that was just written for the caller",
    ("agentmemory/services/memories.py", "count_access", "MemoryAccess"): "rows that were just read by the caller",
    ("agentmemory/services/memories.py", "_insert_unless_taken", "Memory"): "a write",
    ("agentmemory/services/memories.py", "locked_or_new", "Memory"): "a place that the caller may write to",
    ("agentmemory/services/memories.py", "_named", "Memory"): "none at all",
    ("agentmemory/services/history.py", "versions", "MemoryEvent"): "the memory was found by visible_to",
    ("agentmemory/services/sources.py", "of", "Message"): "neighbours of sources that _standing let through",
    ("agentmemory/services/sources.py", "standing", "MemoryEvent"): "the memory was found by visible_to",
    ("agentmemory/services/sources.py", "standing", "MemorySource"): "the memory was found by visible_to",
    ("agentmemory/services/sessions.py", "messages", "Message"): "the session was found by visible_to",
    ("agentmemory/services/sessions.py", "adopt", "Session"): "a session of the agent that writes",
    ("agentmemory/services/sessions.py", "delete", "Message"): "the session was found by visible_to",
    ("agentmemory/search/talk.py", "_with_neighbours", "Message"): "the same session as a hit of visible_to",
    ("agentmemory/search/wording.py", "_of_memories", "Memory"): "rows to be indexed, which nobody is shown",
    ("distillation/services/standings.py", "listing", "Quarantine"): "counted for the cursors of visible_to",
}


def _files(*places: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()
    return found


def ways_in(source: str) -> Iterator[tuple[str, str, str]]:
    """Each use of a manager of tenant data: the function around it, the model, and what is called on the manager."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and node.attr in {"objects", "_default_manager", "_base_manager"}):
            continue
        model = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if model not in TENANT:
            continue
        above = parents.get(node)
        called = above.attr if isinstance(above, ast.Attribute) else ""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
            at = parents.get(at)
        yield getattr(at, "name", ""), model, called


def raw_sql(source: str) -> Iterator[str]:
    """Each call that leads around managers: raw SQL, and models got by name."""
    for node in ast.walk(ast.parse(source)):
        called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if called in {"raw", "execute", "executemany", "get_model", "extra"}:
            yield called


def test_t2_the_edges_of_agents_read_from_the_caller_or_through_a_service() -> None:
    found = [
        (str(path.relative_to(ROOT)), *each)
        for path in _files(*AGENTS_EDGES)
        for each in ways_in(path.read_text())
        if each[2] != "visible_to"
    ]
    assert found == []


def test_t2_the_edges_of_agents_hold_no_sql() -> None:
    found = [(str(path), *each) for path in _files(*AGENTS_EDGES) if (each := list(raw_sql(path.read_text())))]
    assert found == []


def test_t2_the_services_that_agents_call_start_from_the_caller() -> None:
    found = {
        (str(path.relative_to(ROOT)), function, model)
        for path in _files(*CALLERS_SERVICES)
        for function, model, called in ways_in(path.read_text())
        if called != "visible_to"
    }
    assert found - set(FROM_WHAT_IS_SEEN) == set()


def test_t2_the_list_of_exceptions_is_no_longer_than_it_has_to_be() -> None:
    found = {
        (str(path.relative_to(ROOT)), function, model)
        for path in _files(*CALLERS_SERVICES)
        for function, model, _ in ways_in(path.read_text())
    }
    assert set(FROM_WHAT_IS_SEEN) - found == set()


def test_t2_no_model_hands_out_all_rows_under_another_name() -> None:
    """`objects` is the one way to rows: no second manager that the tests above would not know."""
    from django.apps import apps

    names = {
        (model.__name__, manager.name)
        for model in apps.get_models()
        if model.__name__ in TENANT
        for manager in model._meta.managers
    }
    assert {name for _, name in names} == {"objects"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f():\n  return Memory.objects.filter(pk=1)", [("f", "Memory", "filter")]),
        ("def f():\n  return models.Memory.objects.all()", [("f", "Memory", "all")]),
        ("x = Session.objects.visible_to(c)", [("", "Session", "visible_to")]),
        ("x = get_object_or_404(Memory.objects, pk=1)", [("", "Memory", "")]),
        ("x = Message._default_manager.get(pk=1)", [("", "Message", "get")]),
        ("x = Agent.objects.get(pk=1)", []),
    ],
)
def test_the_reading_of_the_source_finds_what_it_looks_for(source: str, found: list[tuple[str, str, str]]) -> None:
    assert list(ways_in(source)) == found
