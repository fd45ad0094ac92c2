"""Which candidates are written: each bad one is refused with its reason, the others stand (D9, D10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentmemory import likeness
from distillation import answers, judging, windows
from distillation.judging import Judged, Limits

TEXTS = {3: "We deploy on Tuesdays,\n  never on   Fridays.", 5: "The port is 8081.", 8: "x" * 900 + " the end of it"}


def window() -> windows.Window:
    utterances = [windows.Utterance(seq=seq, uid=f"u{seq}", role="user", text=text) for seq, text in TEXTS.items()]
    return windows.build(utterances=utterances, start=0, limit=9, budget=windows.Budget())


def judge(*entries: object, limits: Limits | None = None) -> Judged:
    return judging.judge(
        answers.parse(json.dumps({"memories": list(entries)})),
        window=window(),
        limits=limits or Limits(),
        secret_kinds=lambda text: ["aws_key", "aws_key"] if "AKIA" in text else [],
    )


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "key": "deploy-days",
        "content": "Deploys happen on Tuesdays.",
        "tags": [],
        "sources": [3],
        "quote": "",
        **changes,
    }


def test_a_good_candidate_is_accepted_and_trimmed() -> None:
    judged = judge(
        entry(key="  deploy-days ", content=" Deploys. \n", tags=[" a ", "", "  ", "a", "b"], sources=[5, 3, 3])
    )
    (candidate,) = judged.accepted
    assert (candidate.key, candidate.content) == ("deploy-days", "Deploys.")
    assert candidate.tags == ("a", "b")
    assert candidate.sources == (3, 5)
    assert judged.refused == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": " "}, "key is blank"),
        ({"key": "k" * 201}, "key is longer"),
        ({"key": "a\nb"}, "cannot be printed"),
        ({"key": "Distilled:a"}, "reserved"),
        ({"key": "Example-Key"}, "own example"),
        ({"content": "\n "}, "content is blank"),
        ({"content": "c" * 2_001}, "content is longer"),
        ({"content": answers.EXAMPLE_CONTENT}, "own example"),
        ({"sources": []}, "cites no message"),
        ({"sources": [3, 4]}, "not in the window: 4"),
        ({"sources": [0]}, "not in the window"),
        ({"sources": [10**400]}, "not in the window"),
        ({"content": "a\0b"}, "NUL"),
        ({"content": "a\ud83d"}, "surrogate"),
        ({"tags": ["a\udc00"]}, "surrogate"),
        ({"quote": "\0"}, "NUL"),
        ({"tags": ["t" * 51]}, "tag"),
        ({"tags": [str(n) for n in range(51)]}, "tags"),
        ({"quote": "q" * 1_001}, "quote is longer"),
        ({"content": "The key is AKIA123."}, "holds a secret: aws_key"),
        ({"quote": "AKIA123"}, "holds a secret: aws_key"),
        ({"content": 5}, "wrong types"),
    ],
)
def test_d9_one_bad_candidate_is_refused_and_the_others_stand(changes: dict[str, Any], reason: str) -> None:
    judged = judge(entry(**changes), entry(key="port", content="The staging port is 8081.", sources=[5]))
    assert [candidate.key for candidate in judged.accepted] == ["port"]
    (refusal,) = judged.refused
    # A lone surrogate never comes as far as the judge's own rule: the entry's types refuse it.
    assert reason in refusal.reason or (reason == "surrogate" and "wrong types" in refusal.reason)
    assert refusal.index == 0
    json.dumps([refusal.key, refusal.reason]).encode()
    assert "AKIA" not in refusal.reason


def test_candidates_over_the_limit_are_refused_and_recorded() -> None:
    names = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
    ]
    judged = judge(*[entry(key=name, content=f"{name} {name * 2} {name * 3}.") for name in names])
    assert [candidate.key for candidate in judged.accepted] == names[:12]
    assert [(refusal.index, refusal.key) for refusal in judged.refused] == [(12, "nu"), (13, "xi")]
    assert all("over the limit of 12" in refusal.reason for refusal in judged.refused)


def test_d9_of_two_with_one_key_the_later_one_counts() -> None:
    judged = judge(entry(content="Deploys happen on Mondays."), entry(content="The port is open."))
    assert [candidate.content for candidate in judged.accepted] == ["The port is open."]
    assert [(refusal.index, "repeats" in refusal.reason) for refusal in judged.refused] == [(0, True)]


def test_d9_of_near_duplicates_the_later_one_counts() -> None:
    first = entry(key="a", content="The staging server of the shop runs on port 8081 behind nginx.")
    second = entry(key="b", content="The staging server for the shop runs on port 8081, behind nginx")
    assert [candidate.key for candidate in judge(first, second).accepted] == ["b"]


@pytest.mark.parametrize(
    ("quote", "sources", "verified"),
    [
        ("never on Fridays", [3], True),
        ("We deploy on Tuesdays, never\ton Fridays.", [3], True),
        ("never on Fridays", [5], False),
        ("never on Fridays", [5, 3], True),
        ("always on Fridays", [3], False),
        ("the end of it", [8], True),
        ("", [3], False),
        ("  ", [3], False),
    ],
)
def test_d10_a_quote_is_verified_against_the_whole_text_of_its_messages(
    quote: str, sources: list[int], verified: bool
) -> None:
    (candidate,) = judge(entry(quote=quote, sources=sources)).accepted
    assert candidate.quote_verified is verified


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("The API uses cursor pagination.", "The API uses cursor pagination", True),
        ("The project uses uv to install its dependencies.", "The project uses uv to install dependencies.", True),
        (
            "Staging of the shop runs on port 80 behind nginx on the big host.",
            "Staging of the shop runs on port 81 behind nginx on the big host.",
            False,
        ),
        (
            "The tests of the importer must run in parallel on every machine we have.",
            "The tests of the importer must not run in parallel on every machine we have.",
            False,
        ),
        (
            "The billing report for the finance team is sent every Monday to the whole group of managers.",
            "The billing report for the finance team is sent every Friday to the whole group of managers.",
            False,
        ),
        ("Use tabs.", "Use spaces.", False),
        ("", "", True),
        ("…", "!", False),
    ],
)
def test_likeness_tells_repetition_from_another_statement(a: str, b: str, same: bool) -> None:
    assert likeness.near_duplicate(a, b) is same
    assert likeness.near_duplicate(b, a) is same
