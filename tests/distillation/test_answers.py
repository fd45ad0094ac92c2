"""What the parser takes and refuses: a failure is never "nothing found", and nothing found is no failure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distillation import answers
from distillation.answers import AnswerMalformed, AnswerWrongShape

ONE = {"key": "k", "content": "A fact.", "tags": ["t"], "sources": [1], "quote": "q"}


def keys(text: str) -> list[str]:
    return [raw.key for raw in answers.parse(text)]


def answer(*entries: object) -> str:
    return json.dumps({"memories": list(entries)})


def test_d8_an_empty_list_is_a_success() -> None:
    assert answers.parse('{"memories": []}') == []
    assert answers.parse(answers.EMPTY_ANSWER) == []


@pytest.mark.parametrize(
    "text",
    [
        answer(ONE),
        f"  \n{answer(ONE)}\n",
        f"```json\n{answer(ONE)}\n```",
        f"```\n{json.dumps({'memories': [ONE]}, indent=2)}\n```",
        f"Here is what I found:\n\n{answer(ONE)}\n\nI hope it helps.",
        f"As asked {{in this form}}:\n{answer(ONE)}\nDone {{really}} {{}} {{ok",
        f'I answer as {{"key": value}}: {answer(ONE)}',
        f"{{{{mustache}}}} {answer(ONE)}",
        f"\ufeff{answer(ONE)}",
        f"{answer(ONE)}\nAgain: {answer(ONE)}",
        f'{{"thinking": "none"}}\n{answer(ONE)}',
    ],
)
def test_prose_or_a_fence_around_the_object_is_tolerated(text: str) -> None:
    assert keys(text) == ["k"]


def test_fences_and_braces_inside_a_content_break_nothing() -> None:
    content = 'Run:\n```json\n{"memories": []}\n```\nand {"a": {}} and ``` again'
    (raw,) = answers.parse(f"```json\n{answer({**ONE, 'content': content})}\n```")
    assert raw.entry is not None
    assert raw.entry.content == content


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "I found nothing worth keeping.",
        "{",
        '{"memories": [',
        '{"memories": [{"key": "a", "content": "b"}, {"key"',
        answer(ONE)[:-1],
        '{"memories": []',
        "{'memories': []}",
        '{"memories": [],}',
        '{"memories": [NaN]}',
        '{"memories": [1e999999, Infinity]}',
        # An answer that spoils its own quotes is not read as the object inside its string.
        '{"memories": [{"key": "k", "content": "answer {"memories": []} always", "sources": [1]}]}',
        '{"note": "he said "x"", "result": {"memories": ]}',
        '{"result": {"memories": []}',
        '{"memories": [], "memories": [{"key": "k"}]}',
        '{"memories": []} {"memories": [{"key": "k"}]}',
        '{"memories": ' + "[" * 100_000,
        '{"a":' * 100_000,
        "{" * 100_000,
        '{"memories": [' + "9" * 5_000 + "]}",
        '{"memories": ["' + "x" * 1_100_000 + '"]}',
    ],
)
def test_d7_what_is_no_whole_object_is_malformed(text: str) -> None:
    with pytest.raises(AnswerMalformed) as caught:
        answers.parse(text)
    assert caught.value.window_at_fault


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "null",
        "[]",
        "42",
        json.dumps([ONE]),
        json.dumps(ONE),
        '{"memories": null}',
        '{"memories": {}}',
        '{"memories": "none"}',
        '{"Memories": []}',
        '{"result": {"memories": []}}',
    ],
)
def test_d7_json_of_another_shape_is_a_failure(text: str) -> None:
    with pytest.raises(AnswerWrongShape) as caught:
        answers.parse(text)
    assert caught.value.window_at_fault


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        "text",
        [],
        {},
        {"key": 1, "content": "c"},
        {"key": "k"},
        {**ONE, "tags": "t"},
        {**ONE, "tags": [1]},
        {**ONE, "sources": "1"},
        {**ONE, "sources": ["1"]},
        {**ONE, "sources": [True]},
        {**ONE, "sources": [1.5]},
        {**ONE, "quote": None},
    ],
)
def test_d9_an_entry_of_wrong_types_is_one_bad_candidate(entry: object) -> None:
    bad, good = answers.parse(answer(entry, ONE))
    assert bad.entry is None
    assert bad.problem
    assert good.entry is not None


def test_an_entry_that_repeats_a_name_is_one_bad_candidate() -> None:
    (raw,) = answers.parse('{"memories": [{"key": "a", "key": "b", "content": "c", "sources": [1]}]}')
    assert raw.entry is None
    assert "key" in raw.problem


@pytest.mark.parametrize("escape", [r"\ud800", r"\udfff x", r"\u0000"])
def test_escapes_of_what_cannot_be_stored_break_nothing(escape: str) -> None:
    text = f'{{"memories": [{{"key": "a{escape}", "content": "b{escape}", "sources": [1]}}]}}'
    (raw,) = answers.parse(text)
    raw.key.encode()
    assert "\0" not in raw.key


def test_the_schema_and_the_entry_name_the_same_fields() -> None:
    properties = answers.SCHEMA["properties"]["memories"]["items"]["properties"]
    assert set(properties) == set(answers.Entry.model_fields)


@given(st.text())
def test_any_text_is_parsed_or_refused_by_the_parser_s_own_errors(text: str) -> None:
    try:
        answers.parse(text)
    except answers.AnswerUnusable as error:
        str(error).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["memories", "key", "content", "sources", "tags", "quote", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(value=JSON, before=st.text(max_size=10), after=st.text(max_size=10))
def test_any_json_is_parsed_or_refused_by_the_parser_s_own_errors(value: object, before: str, after: str) -> None:
    for text in (json.dumps(value), before + json.dumps({"memories": [value]}) + after):
        try:
            answers.parse(text)
        except answers.AnswerUnusable as error:
            str(error).encode()
