"""Sameness of messages is judged by a keyed digest of the content as received (R2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmemory import errors
from agentmemory.services.digests import content_digest

KEY = b"a key of the test"


def test_r2_the_order_of_keys_does_not_matter_and_everything_else_does() -> None:
    digest = content_digest(key=KEY, content=[{"type": "text", "text": "é"}])
    assert digest == content_digest(key=KEY, content=[{"text": "é", "type": "text"}])
    assert len(digest) == 64
    others: list[object] = ["é", [{"type": "text", "text": "e"}], [{"type": "text", "text": "é "}], [], None]
    assert len({digest, *(content_digest(key=KEY, content=other) for other in others)}) == 6


def test_r2_without_the_key_a_guess_cannot_be_checked() -> None:
    assert content_digest(key=KEY, content="hunter2") != content_digest(key=b"another", content="hunter2")


@given(st.text(alphabet=st.characters(codec=None)), st.text(alphabet=st.characters(codec=None)))
def test_r2_any_text_has_a_digest_lone_surrogates_and_nul_included(one: str, other: str) -> None:
    assert (content_digest(key=KEY, content=one) == content_digest(key=KEY, content=other)) == (one == other)


@pytest.mark.parametrize("content", [float("nan"), [float("inf")], {"a": object()}], ids=["nan", "infinity", "object"])
def test_r2_what_is_not_json_is_refused(content: object) -> None:
    with pytest.raises(errors.Invalid, match="not JSON"):
        content_digest(key=KEY, content=content)


def test_a4_nesting_without_end_is_refused() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(errors.Invalid):
        content_digest(key=KEY, content=nested)
