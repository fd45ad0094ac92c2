from __future__ import annotations

import signal
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Agent, Session
from agentmemory.services import sessions, spaces
from config import runs
from sessions_exec import tasks
from sessions_exec.runner.runs import IDLE
from sessions_exec.services import own_runs, recovery

LOOK = 0.5
# What keeps a session from being run is looked at again after so many seconds.
LOOK_AGAIN = 15.0


class Command(BaseCommand):
    help = "Runs an agent in the foreground: answers the inputs of its sessions. SIGTERM and Ctrl-C hand over."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", required=True, metavar="SLUG")
        parser.add_argument("--agent", required=True, metavar="HANDLE")
        parser.add_argument("--session", metavar="ID", help="Only this session.")
        parser.add_argument("--once", action="store_true", help="End when nothing waits that can be answered now.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = spaces.get_agent(spaces.get(options["space"]), options["agent"])
            session = _session(agent, options["session"])
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        if not options["once"]:
            self.stdout.write(f"Waiting for inputs of {agent.handle}; Ctrl-C ends it.")
            self.stdout.flush()
        with tasks.stopped_by(signal.SIGTERM, signal.SIGINT):
            self._serve(agent, session, once=options["once"])

    def _serve(self, agent: Agent, session: Session | None, *, once: bool) -> None:
        later: dict[int, float] = {}
        scanned = -settings.AGENTMEMORY_RECOVERY_SCAN
        while True:
            if time.monotonic() - scanned >= settings.AGENTMEMORY_RECOVERY_SCAN:
                # Without a task cluster nobody else looks for what other runners left.
                recovery.scan()
                scanned = time.monotonic()
            now = time.monotonic()
            ready = [each for each in own_runs.wanted(agent, session=session) if later.get(each.pk, 0.0) <= now]
            for each in ready:
                later[each.pk] = self._run(each)
            if not ready:
                if once:
                    return self._ended(ran=bool(later))
                later = {pk: until for pk, until in later.items() if until > now}
                time.sleep(LOOK)

    def _ended(self, *, ran: bool) -> None:
        if not ran:
            self.stdout.write("Nothing waits to be answered now.")

    def _run(self, session: Session) -> float:
        """Run one session, telling what it says while it says it. When to look at it again, where it waits."""
        self.stdout.write(f"{session.name}:")
        ran = runs.run(session, on_text=self._say)
        self.stdout.write("")
        if ran.state != IDLE:
            self.stdout.write(f"[{ran.state}{': ' if ran.line else ''}{ran.line}]")
        self.stdout.flush()
        return time.monotonic() + LOOK_AGAIN if ran.state != IDLE else 0.0

    def _say(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()


def _session(agent: Agent, name: str | None) -> Session | None:
    return sessions.find(caller=Caller(space=agent.space, agent=agent), name=name) if name else None
