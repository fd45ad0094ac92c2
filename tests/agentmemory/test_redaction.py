"""Secrets, NUL and lone surrogates are replaced before anything is stored (D13, R3)."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmemory import errors
from agentmemory.services import redaction

CORPUS: dict[str, Any] = json.loads(Path(__file__).with_name("redaction_corpus.json").read_text(encoding="utf-8"))
FAKE_KEY = "sk-" + "ant-" + "api03-" + "fake" * 5

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FRAGMENTS = st.sampled_from(
    [entry["before"] + "".join(entry["secret"]) + entry["after"] for entry in CORPUS["secrets"]]
    + CORPUS["harmless"]
    + [
        "password",
        "=",
        '"',
        "\\",
        " ",
        "sk-",
        "://",
        ":",
        "@",
        "token=",
        "-----BEGIN PRIVATE KEY-----",
        "是",
        "a1",
        "\0",
    ]
)


@pytest.mark.parametrize("entry", CORPUS["secrets"], ids=lambda entry: f"{entry['kind']} {entry['before'][:20]!r}")
def test_d13_each_secret_of_the_corpus_is_replaced_and_what_stands_around_it_stays(entry: dict[str, Any]) -> None:
    secret = "".join(entry["secret"])
    redacted = redaction.redact(entry["before"] + secret + entry["after"])
    assert secret not in redacted.value
    assert redacted.counts == {entry["kind"]: 1}
    assert redacted.value == f"{entry['before']}[redacted:{entry['kind']}]{entry['after']}"
    assert redaction.secret_kinds(entry["before"] + secret + entry["after"]) == (entry["kind"],)


@pytest.mark.parametrize("text", CORPUS["harmless"])
def test_d13_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redaction.redact(text) == redaction.Redacted(value=text, counts={})


def test_d13_images_hashes_and_random_text_stay() -> None:
    noise = b"".join(hashlib.sha512(str(number).encode()).digest() for number in range(8000))
    for text in (base64.b64encode(noise).decode(), base64.urlsafe_b64encode(noise).decode(), noise.hex()):
        assert redaction.redact(text).counts == {}


def test_d13_a_value_is_judged_by_the_name_it_stands_under() -> None:
    given_content = {
        "env": {"DB_PASSWORD": "hunter2", "STRIPE_API_KEY": "a1b2c3d4e5f6a7b8", "HOST": "db2.internal"},
        "headers": {"Authorization": "Bearer abc123def456", "X-Api-Key": "abc123def456ghi7"},
        "usage": {"max_tokens": 4096, "token": None, "page_token": "a1b2c3d4e5f6a7b8"},
        "password": "Passwort eingeben",
    }
    redacted = redaction.redact(given_content)
    assert redacted.value == {
        "env": {"DB_PASSWORD": "[redacted:password]", "STRIPE_API_KEY": "[redacted:secret]", "HOST": "db2.internal"},
        "headers": {"Authorization": "[redacted:authorization]", "X-Api-Key": "[redacted:secret]"},
        "usage": given_content["usage"],
        "password": "Passwort eingeben",
    }
    assert redacted.counts == {"password": 1, "secret": 2, "authorization": 1}


def test_d13_secrets_are_found_in_every_place_of_a_message() -> None:
    content = [
        {"type": "text", "text": f"my key is {FAKE_KEY}"},
        {"type": "tool_use", "id": "t1", "name": "sh", "input": {"cmd": [f"curl -H x:{FAKE_KEY}"], FAKE_KEY: 1}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": FAKE_KEY}]},
    ]
    redacted = redaction.redact(content)
    assert FAKE_KEY not in json.dumps(redacted.value)
    assert redacted.counts == {"anthropic_key": 4}
    assert redacted.value[1]["id"] == "t1"


def test_r3_nul_and_lone_surrogates_become_replacement_characters_and_are_counted() -> None:
    redacted = redaction.redact({"a\0": ["x\0\0", "\ud800y", "\udfff"], "n": 1.5, "ok": "\U0001f600"})
    assert redacted.value == {"a�": ["x��", "�y", "�"], "n": 1.5, "ok": "\U0001f600"}
    assert redacted.counts == {"nul": 3, "surrogate": 2}
    assert redaction.clean_text("a\0b\ud83dc") == "a�b�c"
    assert redaction.secret_kinds("a\0\ud800") == ()


def test_r3_two_keys_that_become_the_same_both_stay() -> None:
    redacted = redaction.redact({"a\0": 1, "a\ufffd": 2, "a" + chr(0xD800): 3})
    assert redacted.value == {"a�": 1, "a� (2)": 2, "a� (3)": 3}


def test_a4_content_nested_without_end_is_refused() -> None:
    nested: object = "x"
    for _ in range(redaction.MAX_DEPTH):
        nested = [nested]
    assert redaction.redact(nested).counts == {}
    with pytest.raises(errors.Invalid, match="nested deeper"):
        redaction.redact({"content": nested})


@given(JSON)
def test_r3_any_json_becomes_storable_and_keeps_its_shape(value: object) -> None:
    redacted = redaction.redact(value)
    assert b"\\u0000" not in json.dumps(redacted.value).encode().replace(b"\\\\", b"")
    json.dumps(redacted.value, ensure_ascii=False).encode("utf-8")
    if redacted.counts == {}:
        assert redacted.value == value


@given(st.lists(FRAGMENTS, max_size=6))
def test_d13_redacting_again_changes_nothing(fragments: list[str]) -> None:
    once = redaction.redact({"text": "".join(fragments)})
    again = redaction.redact(once.value)
    assert again == redaction.Redacted(value=once.value, counts={})


HOSTILE = (
    "-", "eyJ", "eyJaaaaaaaaa.", "sk-", "://a:", "postgres://a:", "-----BEGIN PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{'A' * 64}\n", "password", 'password="', "password: str", "token=?token=",
    "authorization: bearer ", "--token ", "--a-", "curl -u a:", "mysql ", "the password is a", "token is " + "a" * 200,
    "password:\\\\\"", "1:AA", "密码", "Private-Lines: 1\n" + "A" * 16, "\0", "[redacted:x]",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda unit: repr(unit[:24]))
def test_d13_time_grows_with_the_length_of_a_hostile_text_and_no_faster(unit: str) -> None:
    """Eight times the length takes about eight times as long; a quadratic pattern would take sixty-four times."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit) + 1)
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            redaction.redact(text)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(160_000) < 24 * max(seconds(20_000), 0.002)
