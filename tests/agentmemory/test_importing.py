from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentmemory.errors import Invalid
from agentmemory.importers import files
from agentmemory.management import import_table
from agentmemory.models import Agent, Message, Session, Space
from agentmemory.services import importing, sessions, transcripts
from tests import factories
from tests.support.talks import SAMPLES, needs_samples

pytestmark = pytest.mark.django_db

LONG_AFTER = datetime(2026, 1, 2, tzinfo=UTC)
JUST_AFTER = datetime(2026, 1, 1, 10, 1, tzinfo=UTC)


def user(uuid: str, content: Any, *, second: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": uuid,
        "sessionId": "s1",
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "message": {"role": "user", "content": content},
        **more,
    }


def assistant(message_id: str, words: str, *, second: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "assistant",
        "uuid": f"{message_id}-{second}",
        "sessionId": "s1",
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "message": {"id": message_id, "role": "assistant", "content": [{"type": "text", "text": words}]},
        **more,
    }


TALK = [
    user("u1", "one", second=1),
    assistant("m1", "a", second=2),
    user("u2", "two", second=3),
    assistant("m2", "b", second=4),
]


def write(path: Path, *records: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(agent: Agent, path: Path, *, now: datetime = LONG_AFTER, **more: Any) -> importing.FileReport:
    (report,) = importing.import_path(agent=agent, path=path, now=now, **more)
    return report


def stored(**more: Any) -> list[tuple[int, str, str]]:
    return list(Message.objects.filter(**more).order_by("seq").values_list("seq", "uid", "text"))


def counts(report: importing.FileReport) -> tuple[int, int]:
    return report.new, report.known


@pytest.fixture
def agent() -> Agent:
    return factories.AgentFactory.create()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


# Repeating


def test_r2_a_second_import_adds_nothing_and_touches_nothing(agent: Agent, path: Path) -> None:
    write(path, *TALK)
    assert counts(run(agent, path)) == (4, 0)
    before = list(Session.objects.values()), list(Message.objects.values())
    assert counts(run(agent, path)) == (0, 4)
    assert (list(Session.objects.values()), list(Message.objects.values())) == before


def test_r1_a_file_that_has_grown_gives_what_is_new(agent: Agent, path: Path) -> None:
    run(agent, write(path, *TALK[:2]))
    assert counts(run(agent, write(path, *TALK))) == (2, 2)
    assert stored() == [(1, "u1", "one"), (2, "m1", "a"), (3, "u2", "two"), (4, "m2", "b")]


def test_r6_a_turn_that_is_found_to_have_ended_is_marked_later(agent: Agent, path: Path) -> None:
    run(agent, write(path, *TALK[:2]), now=JUST_AFTER)
    run(agent, write(path, *TALK), now=JUST_AFTER)
    run(agent, write(path, *TALK, user("u3", "three", second=5)), now=JUST_AFTER)
    assert list(Message.objects.filter(ends_turn=True).values_list("uid", flat=True).order_by("seq")) == ["m1", "m2"]
    assert Session.objects.get().terminal_seq == 4


def test_an_import_that_was_killed_goes_on_where_it_ended(
    agent: Agent, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, *TALK)
    monkeypatch.setattr(importing, "BATCH_MESSAGES", 1)
    append, calls = transcripts.append, iter(range(10))

    def killed(**given: Any) -> transcripts.Appended:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return append(**given)

    with monkeypatch.context() as patch:
        patch.setattr(transcripts, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            run(agent, path)
    assert len(stored()) == 2
    assert counts(run(agent, path)) == (2, 2)
    assert [seq for seq, _, _ in stored()] == [1, 2, 3, 4]


def test_a4_batches_are_bounded_by_messages_and_by_characters(
    agent: Agent, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, *[user(f"u{n}", "x" * 100 * n, second=n) for n in range(1, 8)])
    sizes: list[int] = []
    append = transcripts.append

    def noted(*, messages: Sequence[transcripts.NewMessage], **given: Any) -> transcripts.Appended:
        sizes.append(len(messages))
        return append(messages=messages, **given)

    monkeypatch.setattr(transcripts, "append", noted)
    monkeypatch.setattr(importing, "BATCH_MESSAGES", 3)
    monkeypatch.setattr(importing, "BATCH_CHARACTERS", 700)
    run(agent, path)
    assert sizes == [3, 2, 2]


@pytest.mark.django_db(transaction=True)
def test_r1_two_imports_at_once_write_each_message_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = factories.AgentFactory.create()
    write(path, *[user(f"u{n}", f"words {n}", second=n) for n in range(20)])
    monkeypatch.setattr(importing, "BATCH_MESSAGES", 2)
    start = threading.Barrier(2)
    reports: list[importing.FileReport] = []

    def work() -> None:
        try:
            start.wait()
            reports.append(run(agent, path))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(seq, uid) for seq, uid, _ in stored()] == [(n + 1, f"u{n}") for n in range(20)]
    assert sum(report.new for report in reports) == 20
    assert sum(report.known for report in reports) == 20


# Messages that do not fit what is stored


def test_r2_an_answer_that_grew_after_its_import_goes_on_in_a_message_of_its_own(agent: Agent, path: Path) -> None:
    cut = [user("u1", "one", second=1), assistant("m1", "a", second=2)]
    more = [*cut, assistant("m1", "b", second=3)]
    most = [*more, assistant("m1", "c", second=4), assistant("m1", "d", second=5), user("u2", "two", second=6)]
    run(agent, write(path, *cut))
    assert counts(run(agent, write(path, *more))) == (1, 2)
    assert counts(run(agent, write(path, *most))) == (2, 3)
    assert counts(run(agent, path)) == (0, 5)
    assert stored() == [(1, "u1", "one"), (2, "m1", "a"), (3, "m1+1", "b"), (4, "m1+2", "c\n\nd"), (5, "u2", "two")]
    assert Message.objects.get(ends_turn=True).uid == "m1+2"


def test_r6_a_turn_ends_at_the_last_part_of_an_answer_that_grew(agent: Agent, path: Path) -> None:
    grown = [user("u1", "one", second=1), assistant("m1", "a", second=2), assistant("m1", "b", second=3)]
    run(agent, write(path, *grown[:2]))
    run(agent, write(path, *grown))
    assert not Message.objects.filter(ends_turn=True).exists()
    run(agent, write(path, *grown, user("u2", "two", second=4)))
    assert Message.objects.get(ends_turn=True).uid == "m1+1"


def test_an_older_copy_of_a_file_is_known(agent: Agent, path: Path) -> None:
    cut = [user("u1", "one", second=1), assistant("m1", "a", second=2)]
    run(agent, write(path, *cut, assistant("m1", "b", second=3)))
    report = run(agent, write(path, *cut))
    assert counts(report) == (0, 2)
    assert not report.skipped


def test_an_older_copy_of_a_file_is_known_by_its_words_as_they_are_kept(agent: Agent, path: Path) -> None:
    secret = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 3
    cut = [user("u1", "one", second=1), assistant("m1", f"It is {secret}.", second=2)]
    run(agent, write(path, *cut, assistant("m1", "b", second=3)))
    report = run(agent, write(path, *cut))
    assert (counts(report), report.skipped) == ((0, 2), [])


def test_r2_one_conflicting_message_is_reported_and_stops_no_other(agent: Agent, path: Path) -> None:
    run(agent, write(path, *TALK[:2]))
    other = [user("u1", "other", second=1), assistant("m1", "other", second=2), *TALK[2:]]
    report = run(agent, write(path, *other))
    assert counts(report) == (2, 0)
    assert [entry.reason for entry in report.skipped] == [
        "message u1: its id is taken by other content",
        "message m1: its id is taken by other content",
    ]
    assert [text for _, _, text in stored()] == ["one", "a", "two", "b"]


def test_r3_what_cannot_be_stored_is_replaced_and_stays_known(agent: Agent, path: Path) -> None:
    write(path, user("u1", "nul \0 and \ud800", second=1), assistant("m1", "key \0", second=2))
    assert counts(run(agent, path)) == (2, 0)
    assert counts(run(agent, path)) == (0, 2)
    assert stored()[0][2] == "nul \ufffd and \ufffd"


# Sessions


def test_the_title_follows_the_file_and_is_never_emptied(agent: Agent, path: Path) -> None:
    echo = user("u0", "<bash-input>ls</bash-input>", second=0)
    run(agent, write(path, echo))
    assert Session.objects.get().title == ""
    run(agent, write(path, echo, *TALK))
    assert Session.objects.get().title == "one"
    named = {"type": "custom-title", "customTitle": "Numbers", "sessionId": "s1"}
    run(agent, write(path, echo, *TALK, named))
    run(agent, write(path.with_name("other.jsonl"), echo))
    assert Session.objects.get().title == "Numbers"


def test_metadata_that_came_from_elsewhere_stays(agent: Agent, path: Path) -> None:
    sessions.adopt(agent=agent, name="s1", title="Ours", metadata={"ticket": "7"})
    run(agent, write(path, user("u1", "one", second=1, cwd="/srv")))
    session = Session.objects.get()
    assert session.metadata == {"ticket": "7", "format": "claude_code", "cwd": "/srv"}


def test_one_session_in_several_files_is_one_session(agent: Agent, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", *TALK[:2])
    write(tmp_path / "b.jsonl", *TALK)
    reports = importing.import_path(agent=agent, path=tmp_path, now=LONG_AFTER)
    assert [(report.new, report.known) for report in reports] == [(2, 0), (2, 2)]
    assert Session.objects.count() == 1


def test_t1_the_same_file_for_another_agent_is_another_session(agent: Agent, path: Path) -> None:
    write(path, *TALK)
    run(agent, path)
    assert counts(run(factories.AgentFactory.create(space=agent.space), path)) == (4, 0)
    assert Session.objects.count() == 2


# Quiet sessions


def test_r6_a_quiet_session_is_finished_at_once(agent: Agent, path: Path) -> None:
    run(agent, write(path, *TALK))
    session = Session.objects.get()
    assert (session.terminal_seq, session.last_seq) == (4, 4)
    assert session.quiet_since == datetime(2026, 1, 1, 10, 0, 4, tzinfo=UTC)


def test_r6_a_session_that_is_being_written_keeps_its_turn_open(agent: Agent, path: Path) -> None:
    write(path, *TALK)
    assert counts(run(agent, path, now=JUST_AFTER)) == (3, 0)
    session = Session.objects.get()
    assert (session.terminal_seq, session.last_seq) == (2, 3)
    assert session.pk not in transcripts.quiet_sessions(now=JUST_AFTER)
    assert session.pk in transcripts.quiet_sessions(now=LONG_AFTER)
    assert counts(run(agent, path)) == (1, 3)
    assert Session.objects.get().terminal_seq == 4


def test_r6_an_older_file_does_not_make_a_live_session_quiet(agent: Agent, tmp_path: Path) -> None:
    later = [user("u3", "three", second=50), user("u4", "four", second=55)]
    run(agent, write(tmp_path / "new.jsonl", *later), now=JUST_AFTER)
    early = [{**record, "timestamp": "2025-12-31T00:00:00Z"} for record in TALK]
    run(agent, write(tmp_path / "old.jsonl", *early), now=JUST_AFTER)
    session = Session.objects.get()
    assert session.quiet_since == datetime(2026, 1, 1, 10, 0, 55, tzinfo=UTC)
    assert session.terminal_seq < session.last_seq


def test_r6_a_record_from_the_future_leaves_no_tail_behind(agent: Agent, path: Path) -> None:
    write(path, user("u1", "one", second=1, timestamp="2099-01-01T00:00:00Z"))
    run(agent, path, now=LONG_AFTER)
    assert Session.objects.get().quiet_since == LONG_AFTER


def test_r6_an_import_finishes_no_session_that_it_did_not_meet(agent: Agent, path: Path) -> None:
    """Whoever runs another one may be in the midst of its turn, however long it has been quiet."""
    other = factories.SessionFactory.create(quiet_since=datetime(2025, 1, 1, tzinfo=UTC), last_seq=1)
    run(agent, write(path, *TALK))
    other.refresh_from_db()
    assert other.terminal_seq == 0


def test_lines_of_a_file_are_told_once_however_many_sessions_it_holds(agent: Agent, path: Path) -> None:
    write(path, *TALK, user("x1", "hi", second=9, sessionId="s2"), "silly")
    first, second = importing.import_path(agent=agent, path=path, now=LONG_AFTER)
    assert ([entry.line for entry in first.skipped], list(second.skipped)) == ([6], [])


def test_r6_a_session_without_times_is_taken_for_quiet(agent: Agent, path: Path) -> None:
    write(path, user("u1", "one", second=1, timestamp=None))
    run(agent, path)
    assert Session.objects.get().terminal_seq == 1


# Files


def test_files_below_a_folder_are_read_in_order_and_others_are_skipped(agent: Agent, tmp_path: Path) -> None:
    write(tmp_path / "b" / "s.jsonl", *TALK)
    write(tmp_path / "a.jsonl", user("x1", "hi", second=1, sessionId="s0"))
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "empty.jsonl").touch()
    reports = importing.import_path(agent=agent, path=tmp_path, now=LONG_AFTER)
    assert [(report.file.name, report.session, report.new) for report in reports] == [
        ("a.jsonl", "s0", 1),
        ("s.jsonl", "s1", 4),
        ("empty.jsonl", "", 0),
        ("notes.md", "", 0),
    ]
    assert not any(report.error for report in reports)
    assert [entry.reason for entry in reports[3].skipped] == ["no transcript of a known format"]


@pytest.mark.parametrize("chosen", ["auto", "claude_code"])
def test_a_file_given_by_name_that_is_no_transcript_is_an_error(agent: Agent, path: Path, chosen: str) -> None:
    path.write_text("# Notes\n")
    assert run(agent, path, format=chosen).error
    assert not run(agent, path.parent, format=chosen).error


def test_a_format_that_was_chosen_reads_no_other(agent: Agent, tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", *TALK)
    assert counts(run(agent, tmp_path, format="claude_code")) == (4, 0)
    with pytest.raises(Invalid):
        run(agent, tmp_path, format="morse")


def test_a4_loops_of_links_end_and_what_can_block_is_not_opened(agent: Agent, tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", *TALK)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    reports = importing.import_path(agent=agent, path=tmp_path, now=LONG_AFTER)
    assert [report.file.name for report in reports] == ["gone", "pipe", "s.jsonl"]
    assert not any(report.error for report in reports)
    assert run(agent, tmp_path / "pipe").error
    assert run(agent, tmp_path / "nothing").error


def test_a4_files_and_folders_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c/d/e"):
        write(tmp_path / name)
    monkeypatch.setattr(files, "MAX_FILES", 1)
    found, missed = files.walk(tmp_path)
    assert isinstance(found, files.Found)
    assert isinstance(missed, files.Missed)
    assert not missed.harmless
    monkeypatch.setattr(files, "MAX_DEPTH", 2)
    monkeypatch.setattr(files, "MAX_FILES", 9)
    assert [type(entry).__name__ for entry in files.walk(tmp_path)] == ["Found", "Found", "Missed"]


def test_a_session_that_cannot_be_stored_stops_no_other(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", user("x1", "hi", second=1, sessionId="s0"))
    write(tmp_path / "b.jsonl", *TALK)
    append = transcripts.append

    def refusing(*, session: Session, **given: Any) -> transcripts.Appended:
        if session.name == "s0":
            raise Invalid("Not this one.")
        return append(session=session, **given)

    monkeypatch.setattr(transcripts, "append", refusing)
    first, second = importing.import_path(agent=agent, path=tmp_path, now=LONG_AFTER)
    assert first.error == "Not this one."
    assert counts(second) == (4, 0)


# The command


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("import_transcripts", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_makes_what_is_missing_and_prints_a_table(path: Path) -> None:
    write(path, *TALK, "silly", 5)
    printed = command(str(path), "--space", "acme", "--agent", "ada")
    assert printed.splitlines()[0] == "Made the agent 'ada' in the space 'acme'."
    head, row = printed.splitlines()[1:3]
    assert head.split() == ["File", "Session", "New", "Known", "Skipped"]
    assert row.split() == [str(path), "s1", "4", "0", "lines", "5,", "6:", "not", "a", "JSON", "object"]
    again = command(str(path), "--space", "acme", "--agent", "ada").splitlines()
    assert again[1].split()[2:4] == ["0", "4"]


def test_exit_status_1_tells_that_a_file_could_not_be_read_and_the_others_are_imported(path: Path) -> None:
    write(path, *TALK)
    with pytest.raises(CommandError) as raised:
        command(str(path.with_name("none.jsonl")), str(path), "--space", "acme", "--agent", "ada")
    assert raised.value.returncode == 1
    assert len(stored()) == 4


def test_nothing_is_imported_for_an_agent_or_a_space_of_no_name_or_an_archived_one(path: Path) -> None:
    write(path, *TALK)
    archived = factories.SpaceFactory.create(slug="old", archived_at=LONG_AFTER)
    retired = factories.AgentFactory.create(handle="bob", archived_at=LONG_AFTER)
    for space, handle in (
        ("Not a slug", "ada"),
        ("acme", "Ada!"),
        (archived.slug, "ada"),
        (retired.space.slug, retired.handle),
    ):
        with pytest.raises(CommandError):
            command(str(path), "--space", space, "--agent", handle)
    assert not Session.objects.exists()
    assert not Agent.objects.filter(space=archived).exists()
    assert not Space.objects.filter(slug="Not a slug").exists()


def test_names_that_would_move_the_cursor_are_printed_harmless() -> None:
    report = importing.FileReport(file=Path("a\x1b[2J\udcff.jsonl"))
    printed = "\n".join(import_table.lines([report]))
    assert "\x1b" not in printed
    printed.encode()


# Real files

EXPECTED = {
    # session: prompts, answers, turns that end by themselves or by the silence after them
    "624a4a58-b34c-462d-a70d-13421c8125a8": (14, 29, 14),
    "ef958aa1-0e93-49f0-bb71-150f63befcd1": (2, 8, 2),
    "5c0375b4-57a5-4f26-b12d-d022ee4e51b7": (0, 3, 0),
    "03eb5929-52b3-4b13-ada3-b93ae35806b8": (7, 8, 7),
    "edge_cases": (3, 2, 2),
    "todowrite_session": (0, 0, 0),
    "claude-session-1": (1, 1, 1),
    "system_reminder": (1, 1, 1),
    "019e1625-789d-76c0-80ab-3724b5ddb799": (2, 13, 2),
    "thr_malformed": (1, 1, 1),
    "22222222-2222-4222-8222-222222222222": (1, 0, 0),
    "33333333-3333-4333-8333-333333333333": (1, 1, 1),
    "ses_39b4c1891ffezxPVc5OPmcqF33": (2, 1, 1),
    "list-4bfd33ac3369fb2a96d64ed1ff4ee824": (11, 10, 10),
}


@needs_samples
def test_real_files_land_as_they_were_counted(agent: Agent) -> None:
    first = importing.import_path(agent=agent, path=SAMPLES)
    assert not any(report.error for report in first)
    landed = {session.name: landed_of(session) for session in Session.objects.all()}
    assert landed == EXPECTED
    for session in Session.objects.all():
        assert session.terminal_seq == session.last_seq == session.messages.count()
    second = importing.import_path(agent=agent, path=SAMPLES)
    assert sum(report.new for report in second) == 0
    assert sum(report.known for report in second) == sum(report.new for report in first) == Message.objects.count()


def landed_of(session: Session) -> tuple[int, int, int]:
    said = Message.objects.filter(session=session).speech()
    kinds = [(message.type, message.ends_turn) for message in said.order_by("seq")]
    ended = sum(ends for _, ends in kinds)
    # The last answer of a quiet session has no mark: the session is finished to its last message instead.
    open_turn = bool(kinds) and kinds[-1] == ("assistant", False) and ("user", False) in kinds
    return (
        sum(kind == "user" for kind, _ in kinds),
        sum(kind == "assistant" for kind, _ in kinds),
        ended + open_turn,
    )
