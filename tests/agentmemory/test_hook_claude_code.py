"""The hooks of Claude Code as programs, with its input as it was recorded, against a real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from agentmemory import speech
from agentmemory.hooks import claude_code as hook
from agentmemory.importers import bounds, claude_code
from agentmemory.models import Agent, Memory, Message, Session
from agentmemory.services import importing, tokens
from tests.agentmemory.test_importer_claude_code import assistant, text, user, write
from tests.factories import AgentFactory, MemoryFactory
from tests.support import serving

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = Path(hook.__file__)


def _oldest() -> str | None:
    """A Python 3.8 that runs: a name on the path may be a shim of a version that is not selected."""
    found = shutil.which("python3.8", path=f"{Path.home()}/.pyenv/versions/3.8.18/bin:{os.environ['PATH']}")
    works = found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    return found if works else None


OLDEST = _oldest()


@pytest.fixture
def address() -> Iterator[str]:
    with serving.serving(get_asgi_application(), lifespan="off") as address:
        yield address


@pytest.fixture
def ada() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


class Claude:
    """What Claude Code does: it starts the program for each event and gives it the event."""

    def __init__(self, address: str, agent: Agent, folder: Path) -> None:
        self.transcript = folder / "s1.jsonl"
        self.python = sys.executable
        self.environment = {
            "PATH": os.environ["PATH"],
            "AGENTMEMORY_URL": address,
            "AGENTMEMORY_TOKEN": tokens.issue(space=agent.space, agent=agent).plain,
            "AGENTMEMORY_HOOK_DIR": str(folder / "state"),
        }

    def event(self, name: str, **more: Any) -> subprocess.CompletedProcess[str]:
        given = {
            "session_id": "s1",
            "transcript_path": str(self.transcript),
            "cwd": "/home/me/ledger",
            "permission_mode": "default",
            "hook_event_name": name,
            **more,
        }
        done = subprocess.run(
            [self.python, str(SCRIPT)],
            input=json.dumps(given),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0
        return done

    def says(self, *records: dict[str, Any]) -> None:
        with self.transcript.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def claude(address: str, ada: Agent, tmp_path: Path) -> Claude:
    return Claude(address, ada, tmp_path)


TURN = (
    user("u1", "Refunds must never be sent twice.", second=1),
    assistant("a1", {"type": "thinking", "thinking": "Hm."}, second=2),
    assistant("a1", text("Then the refund's id becomes the key."), second=3),
)


def rows() -> list[tuple[str, str]]:
    return list(Message.objects.order_by("seq").values_list("uid", "type"))


def test_a_session_starts_with_what_is_remembered(claude: Claude, ada: Agent) -> None:
    MemoryFactory.create(owner=ada, space=ada.space, key="ledger-currency", content="The ledger keeps cents.")
    said = json.loads(claude.event("SessionStart", source="startup").stdout)
    context = said["hookSpecificOutput"]["additionalContext"]
    assert "The ledger keeps cents." in context
    assert context.startswith(speech.RECALLED_BEGIN)


def test_a_session_of_an_agent_without_memories_starts_with_nothing(claude: Claude) -> None:
    assert claude.event("SessionStart", source="resume").stdout == ""


def test_what_is_new_is_sent_when_a_turn_ends_and_only_that(claude: Claude) -> None:
    claude.says(*TURN)
    assert claude.event("Stop", stop_hook_active=False).stderr == ""
    assert rows() == [("u1", "user"), ("a1", "assistant"), ("turn-a1", "result")]
    session = Session.objects.get()
    assert (session.name, session.title, session.terminal_seq) == ("s1", "Refunds must never be sent twice.", 3)
    claude.event("Stop", stop_hook_active=False)
    claude.says(user("u2", "Thanks.", second=4), assistant("a2", text("You are welcome."), second=5))
    claude.event("SessionEnd", reason="prompt_input_exit")
    assert rows()[3:] == [("u2", "user"), ("a2", "assistant"), ("turn-a2", "result")]


def test_losing_what_it_kept_sends_nothing_twice(claude: Claude, tmp_path: Path) -> None:
    claude.says(*TURN)
    claude.event("Stop")
    shutil.rmtree(tmp_path / "state")
    claude.event("Stop")
    assert len(rows()) == 3


def test_an_answer_that_grows_after_it_was_sent_goes_on_and_the_importer_agrees(claude: Claude, ada: Agent) -> None:
    claude.says(*TURN)
    claude.event("Stop")
    claude.says(assistant("a1", text("And it is unique."), second=4))
    claude.event("Stop")
    assert rows()[3:] == [("a1+2", "assistant"), ("turn-a1+2", "result")]
    reports = importing.import_path(agent=ada, path=claude.transcript)
    assert [(report.new, report.skipped, report.error) for report in reports] == [(0, [], "")]


def test_the_end_of_a_turn_is_waited_for(claude: Claude) -> None:
    claude.says(*TURN[:2])
    late = threading.Timer(0.5, claude.says, TURN[2:])
    late.start()
    claude.event("Stop", last_assistant_message="Then the refund's id becomes the key.")
    late.join()
    assert [len(row.content) for row in Message.objects.filter(uid="a1")] == [2]


def test_it_takes_for_messages_what_the_importer_takes_for_them(claude: Claude, ada: Agent, tmp_path: Path) -> None:
    long = "x" * (bounds.MAX_STRING + 5)
    claude.says(
        {"type": "file-history-snapshot", "snapshot": {}},
        {"type": "system", "sessionId": "s1", "content": "note"},
        user("m1", "Caveat: The messages below", isMeta=True),
        user("u1", "A question.", second=1),
        user("u1-copy", "A question.", second=1),
        user("other", "Elsewhere.", sessionId="s2"),
        assistant("a1", {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": long}}, second=2),
        user("r1", [{"type": "tool_result", "tool_use_id": "t", "content": long}], second=3),
        assistant("side", text("Within."), second=3, isSidechain=True, agentId="helper"),
        assistant("a1", text("An answer."), second=4),
        assistant("a1", text("An answer."), second=4),
        user("n1", "Done.", second=5, origin={"kind": "task"}),
        assistant("e1", text("API Error"), second=6, model="<synthetic>", isApiErrorMessage=True),
        user("", "No name."),
    )
    with claude.transcript.open("a") as file:
        file.write('not json\n[]\n{"type": "user", "sessionId": "s1", "message": {"content": [1e999]}}\n{"type": "us')
    claude.event("Stop")
    mine = {
        row.uid: (row.type, row.content, row.subtype, row.parent_tool_use_id, row.is_error, row.occurred_at)
        for row in Message.objects.exclude(type="result")
    }
    theirs = {
        message.uid: (
            message.type,
            message.content,
            message.subtype,
            message.parent_tool_use_id,
            message.is_error,
            message.occurred_at,
        )
        for session in claude_code.ClaudeCode().read(claude.transcript).sessions
        for message in session.messages
        if session.session_id == "s1" and not message.uid.startswith("line-")
    }
    assert mine == theirs
    assert len(mine) == 7


def test_d4_a_call_of_this_product_is_no_session(claude: Claude) -> None:
    claude.says(user("u1", f"{speech.EXTRACTION_MARKER} Read."), assistant("a1", text("{}")))
    claude.event("SessionEnd")
    assert not Session.objects.exists()


def test_a_long_session_is_sent_in_parts_and_a_refused_message_holds_up_no_other(claude: Claude) -> None:
    claude.says(*TURN)
    claude.event("Stop")
    talk = [(user(f"u{n}", f"Q{n}."), assistant(f"a{n}", text(f"A{n}."))) for n in range(2, 252)]
    write(claude.transcript, user("u1", "Other words under a known name."), *(said for turn in talk for said in turn))
    shutil.rmtree(claude.environment["AGENTMEMORY_HOOK_DIR"])
    done = claude.event("SessionEnd")
    assert "The message u1 was refused (409)." in done.stderr
    assert Message.objects.count() == 3 + 500 + 1


@pytest.mark.skipif(OLDEST is None, reason="there is no Python 3.8 here")
def test_it_runs_on_the_oldest_python(claude: Claude) -> None:
    claude.python = OLDEST or ""
    claude.says(*TURN)
    assert claude.event("Stop").stderr == ""
    assert len(rows()) == 3


def test_it_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT)], input='{"hook_event_name": "Other"}', text=True, check=True
    )
    assert done.returncode == 0


# --- nothing holds the agent up ---


@pytest.mark.parametrize("given", ["", "no json", "[]", "{}", '{"hook_event_name": "Stop"}'])
def test_input_that_means_nothing_does_nothing(given: str, tmp_path: Path) -> None:
    environment = {"AGENTMEMORY_TOKEN": "t", "AGENTMEMORY_HOOK_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], input=given, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_server_that_is_not_there_is_noted_and_what_was_said_is_sent_later(claude: Claude, tmp_path: Path) -> None:
    claude.says(*TURN)
    there = claude.environment["AGENTMEMORY_URL"]
    claude.environment["AGENTMEMORY_URL"] = "http://127.0.0.1:1"
    assert claude.event("SessionStart").stdout == ""
    assert "refused" in claude.event("Stop").stderr
    assert "refused" in (tmp_path / "state" / "hook.log").read_text()
    claude.environment["AGENTMEMORY_URL"] = there
    claude.event("Stop")
    assert len(rows()) == 3


def test_a_bad_token_is_noted_and_never_written_down(claude: Claude, tmp_path: Path) -> None:
    claude.environment["AGENTMEMORY_TOKEN"] = bad = "amt_aaaaaaaa_" + "x" * 43
    claude.says(*TURN)
    assert "The server answered 401." in claude.event("Stop").stderr
    assert bad not in (tmp_path / "state" / "hook.log").read_text()
    assert not Memory.objects.exists()


class Slow(BaseHTTPRequestHandler):
    """Sends a byte now and then, for ever."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.3)


def test_a_server_that_is_slow_is_given_up(claude: Claude) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        claude.environment["AGENTMEMORY_URL"] = f"http://127.0.0.1:{server.server_port}"
        began = time.monotonic()
        done = claude.event("SessionStart")
        server.shutdown()
    assert (done.stdout, "took too long" in done.stderr) == ("", True)
    assert time.monotonic() - began < hook.LIMITS["SessionStart"] + 3
