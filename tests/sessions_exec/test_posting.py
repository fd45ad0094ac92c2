"""One call to an address that an operator named: never into a private network, by no name and no detour."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentmemory.errors import Invalid
from sessions_exec.outbound import posting
from tests.support import receivers
from tests.support.receivers import Receiver


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receivers.receiver() as there:
        yield there


def post(url: str, *, private: bool = True, seconds: float = 10.0) -> posting.Answer:
    return posting.post(url=url, body=b"{}", headers={"webhook-id": "m"}, private=private, seconds=seconds)


def named(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names that are looked up get these addresses, one answer after the other. The list fills with the names."""
    asked: list[str] = []

    def look_up(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        asked.append(host.decode() if isinstance(host, bytes) else str(host))
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_it_brings_the_body_with_its_headers_and_nothing_ambient(there: Receiver) -> None:
    answer = post(there.url)
    assert (answer.status, answer.taken, answer.error) == (204, True, "")
    (got,) = there.got
    assert (got.path, got.body) == ("/hook", b"{}")
    assert set(got.headers) == {"host", "user-agent", "content-type", "webhook-id", "content-length", "connection"}
    assert got.headers["host"] == there.url.split("/")[2]


def test_a_redirect_is_not_followed(there: Receiver) -> None:
    there.answers.append((307, {"Location": there.url + "/elsewhere"}))
    answer = post(there.url)
    assert not answer.taken
    assert answer.error == "answered 307: redirects are not followed"
    assert [got.path for got in there.got] == ["/hook"]


REFUSED = [
    "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
    "https://2130706433/", "https://0x7f.1/", "https://127.1/", "https://localhost/", "https://0/",
    "https://10.0.0.1/", "https://192.168.1.1:8443/", "https://169.254.169.254/latest/meta-data/",
    "https://[fe80::1]/", "https://[fd00::1]/", "https://[64:ff9b::7f00:1]/",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_a_private_address_is_refused_in_each_of_its_forms(url: str) -> None:
    with pytest.raises(Invalid, match=r"private|own network"):
        posting.check_url(url, private=False)
    answer = post(url, private=False)
    assert answer.status is None
    assert "private" in answer.error or "own network" in answer.error


def test_what_is_allowed_is_still_no_way_to_a_clouds_metadata() -> None:
    with pytest.raises(Invalid, match="never called"):
        posting.check_url("http://169.254.169.254/", private=True)
    assert "never called" in post("http://[::ffff:169.254.169.254]/").error


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/", "https"),
        ("ftp://example.org/", "https"),
        ("https:///hook", "host"),
        ("https://ada:word@example.org/", "no password"),
        (f"https://{'a' * 64}.example.org/", "no address"),
        ("https://example.org:22/", "port"),
        ("https://example.org:25/", "port"),
        ("https://example.org:0/", "port"),
        ("https://[::1/", "no address"),
    ],
)
def test_an_address_of_another_kind_is_refused(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        posting.check_url(url, private=False)
    assert not post(url, private=False).taken


def test_a_name_that_answers_otherwise_the_second_time_gains_nothing(
    monkeypatch: pytest.MonkeyPatch, there: Receiver
) -> None:
    asked = named(monkeypatch, ["93.184.215.14"], ["127.0.0.1"])
    url = there.url.replace("127.0.0.1", "rebinds.example").replace("http:", "https:")
    posting.check_url(url, private=False)
    assert "private" in post(url, private=False).error
    assert asked == ["rebinds.example"] * 2
    assert there.got == []


def test_the_connection_goes_to_the_address_that_was_judged_under_the_name(
    monkeypatch: pytest.MonkeyPatch, there: Receiver
) -> None:
    # Looked up once: were the name looked up again to connect, the second answer would lead nowhere.
    asked = named(monkeypatch, ["127.0.0.1"], ["203.0.113.1"])
    assert post(there.url.replace("127.0.0.1", "receiver.example")).taken
    assert asked == ["receiver.example"]
    assert there.got[0].headers["host"].startswith("receiver.example:")


def test_where_nobody_is_at_the_first_address_of_a_name_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, there: Receiver
) -> None:
    named(monkeypatch, ["127.0.0.2", "127.0.0.1"])
    assert post(there.url.replace("127.0.0.1", "receiver.example")).taken


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, ["93.184.215.14", "10.0.0.1"])
    assert "private" in post("https://both.example/", private=False).error


def test_a_receiver_that_says_nothing_is_left_after_the_time_for_the_whole(there: Receiver) -> None:
    there.silent = threading.Event()
    answer = post(there.url, seconds=0.2)
    assert (answer.status, answer.error) == (None, "no answer within 0.2 s")


def test_an_answer_that_drips_has_no_more_time_than_one_that_does_not_come() -> None:
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        with contextlib.suppress(OSError), listening.accept()[0] as taken:
            taken.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.02):
                taken.sendall(b"x: y\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=[listening], daemon=True)
        thread.start()
        answer = post(f"http://127.0.0.1:{listening.getsockname()[1]}/", seconds=0.3)
        stop.set()
        thread.join(10)
    assert answer.error == "no answer within 0.3 s"


def test_nobody_there_is_told_without_what_a_library_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/").error == "no connection: nobody listens there"


def test_a_name_that_nobody_has_is_told_in_words() -> None:
    assert post("http://nobody.invalid/").error == "no connection: its host's name is not known"
