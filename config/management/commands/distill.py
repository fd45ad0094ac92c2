from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError
from agentmemory.services import sessions, spaces
from distillation.models import Cursor
from distillation.services import distilling, preview
from sessions_exec import tasks

NAME_WIDTH = 38
WIDTH = 30


class Command(BaseCommand):
    help = "Runs the passes that are due, now, in the foreground, until nothing is due."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", metavar="S", help="Only this space.")
        parser.add_argument("--agent", metavar="H", help="Only this agent; needs --space.")
        parser.add_argument("--session", metavar="ID", help="Only this session; needs --space.")
        parser.add_argument("--dry-run", action="store_true", help="Say what would be read and cost; call no model.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            within = _within(options["space"], options["agent"], options["session"])
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        windows = preview.due(**within)
        if options["dry_run"]:
            return self._tell(windows)
        bar = _Bar(total=sum(window.messages for window in windows))
        with tasks.stopped_by(signal.SIGTERM):
            summary = distilling.run_due(**within, on_pass=bar.move)
        bar.end()
        return self._sum_up(summary)

    def _tell(self, windows: list[preview.Preview]) -> None:
        row = "{:38}  {:>13}  {:>8}  {:>10}  {:>9}  {:>10}  {}"
        self.stdout.write(row.format("session", "window", "messages", "prompt", "tokens", "cost, USD", "model"))
        for each in windows:
            self.stdout.write(
                row.format(
                    _short(each.session.name),
                    f"{each.start + 1}-{each.end}",
                    each.messages,
                    f"{each.characters:,}",
                    f"{each.input_tokens + each.output_tokens:,}",
                    _price(each),
                    f"{each.model} ({each.provider})" + (f", waits: {each.obstacle}" if each.obstacle else ""),
                )
            )
        tokens = sum(each.input_tokens + each.output_tokens for each in windows)
        characters = sum(each.characters for each in windows)
        known = [each.cost for each in windows if each.cost is not None]
        cost = f", {sum(known):.4f} US dollars" if windows and len(known) == len(windows) else ""
        self.stdout.write(
            f"Windows: {len(windows)}; {characters:,} characters of prompts, about {tokens:,} tokens{cost}."
        )

    def _sum_up(self, summary: distilling.Summary) -> None:
        words = {"applied": "with memories", "empty": "with nothing worth keeping", "failed": "failed"}
        ended = ", ".join(f"{count} {words.get(each, each)}" for each, count in sorted(summary.passes.items()))
        self.stdout.write(f"Passes: {ended or 'none'}. Memories written or found known: {summary.written}.")
        names = dict(Cursor.objects.filter(pk__in=summary.waiting).values_list("pk", "session__name"))
        for result in summary.waiting.values():
            if result.line:
                name = names.get(result.cursor_id, "a session that is gone")
                self.stdout.write(f"{name} waits ({result.state}): {result.line}")


def _price(window: preview.Preview) -> str:
    """What a window costs, in US dollars; a provider that is asked nothing costs nothing."""
    if not window.input_tokens:
        return "nothing"
    return "no price set" if window.cost is None else f"{window.cost:.4f}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"


class _Bar:
    """A progress bar on a terminal; elsewhere a line for each pass."""

    def __init__(self, *, total: int) -> None:
        self.total = total
        self.done = 0
        self.on_terminal = sys.stderr.isatty()

    def move(self, result: distilling.Result) -> None:
        if result.row is None:
            return
        if result.row.outcome != result.row.Outcome.FAILED:
            self.done += len(result.row.shown)
        self.total = max(self.total, self.done)
        if not self.on_terminal:
            name, outcome = result.row.session_name, result.row.outcome
            sys.stderr.write(f"{name} {result.row.start + 1}-{result.row.end}: {outcome}\n")
            return
        filled = WIDTH * self.done // self.total if self.total else WIDTH
        sys.stderr.write(f"\r[{'#' * filled}{'-' * (WIDTH - filled)}] {self.done}/{self.total} messages")
        sys.stderr.flush()

    def end(self) -> None:
        if self.on_terminal:
            sys.stderr.write("\n")


def _within(slug: str | None, handle: str | None, name: str | None) -> dict[str, Any]:
    """The space, the agent and the session that were named."""
    if slug is None:
        if handle or name:
            raise CommandError("--agent and --session need --space: their names are unique within a space alone.")
        return {}
    space = spaces.get(slug)
    agent = spaces.get_agent(space, handle) if handle else None
    session = sessions.find(caller=Caller(space=space), name=name, agent=agent) if name else None
    return {"space": space, "agent": agent, "session": session}
