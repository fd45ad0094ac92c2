"""Conversations that fork: edited prompts and answers made anew. What counts is the path to where it stands now."""

from __future__ import annotations

from collections.abc import Mapping


def path(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """The nodes from the root to `leaf`, which is the last. A parent that is unknown, or met before, ends it."""
    nodes: list[str] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at in parents and at not in seen:
        seen.add(at)
        nodes.append(at)
        at = parents[at]
    return nodes[::-1]


def newest_leaf(parents: Mapping[str, str | None]) -> str:
    """The last node, in the order of the file, that nothing follows; the last at all where everything is followed."""
    followed = set(parents.values())
    return next((node for node in reversed(list(parents)) if node not in followed), next(reversed(list(parents)), ""))
