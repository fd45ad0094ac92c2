"""The sample transcripts are sound, show what they are meant to show, and hold nothing real."""

from __future__ import annotations

import json
import re

import pytest

from agentmemory import samples
from agentmemory.services import redaction

ALL = samples.load()


def _raw(sample: samples.Sample) -> str:
    return json.dumps([message.content for message in sample.messages], ensure_ascii=False)


def _texts(message: samples.SampleMessage) -> list[str]:
    if isinstance(message.content, str):
        return [message.content] if message.type != "result" else []
    return [block["text"] for block in message.content if block["type"] == "text"]


def test_there_are_sessions_of_two_agents_in_order_of_time() -> None:
    assert [sample.agent for sample in ALL].count("ada") == 3
    assert [sample.agent for sample in ALL].count("grace") == 2
    starts = [sample.messages[0].occurred_at for sample in ALL]
    assert starts == sorted(starts)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.id)
def test_each_sample_is_a_sound_transcript(sample: samples.Sample) -> None:
    uids = [message.uid for message in sample.messages]
    assert len(uids) == len(set(uids))
    assert {message.type for message in sample.messages} == {"user", "assistant", "result"}
    assert sample.messages[0].type == "user"
    assert sample.messages[-1].type == "result"
    times = [message.occurred_at for message in sample.messages]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)
    assert 3 <= [message.type for message in sample.messages].count("result") <= 20


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.id)
def test_each_tool_result_follows_the_use_it_answers(sample: samples.Sample) -> None:
    waiting: list[str] = []
    for message in sample.messages:
        for block in message.content if isinstance(message.content, list) else ():
            if block["type"] == "tool_use":
                waiting.append(block["id"])
            elif block["type"] == "tool_result":
                assert block["tool_use_id"] == waiting.pop()
        if message.type == "result":
            assert not waiting


def test_one_sample_needs_more_than_one_window() -> None:
    longest = max(sum(bool(_texts(message)) for message in sample.messages) for sample in ALL)
    assert longest >= 45


def test_d12_one_sample_holds_hostile_passages_in_a_page_and_in_a_message() -> None:
    (hostile,) = (sample for sample in ALL if sample.id == "postcode-vendors")
    carriers = [
        message for message in hostile.messages if "ignore" in json.dumps(message.content) and message.type == "user"
    ]
    assert {isinstance(message.content, str) for message in carriers} == {True, False}


def test_d13_the_only_secret_is_the_one_that_says_it_is_not_real() -> None:
    counts = {sample.id: redaction.redact([message.content for message in sample.messages]).counts for sample in ALL}
    assert counts.pop("webhook-retries") == {"url_password": 1}
    assert not any(counts.values())
    assert "not-a-real-password" in "".join(map(_raw, ALL))


def test_no_sample_holds_personal_data() -> None:
    text = "".join(map(_raw, ALL))
    assert not re.findall(r"[\w.]+@(?!db\.staging\.example)[\w-]+\.\w+", text)
    assert not re.findall(r"\+\d{2}[ \d]{8,}", text)
    hosts = re.findall(r"https?://([\w.-]+)", text)
    assert all(host.endswith(".example") for host in hosts)
