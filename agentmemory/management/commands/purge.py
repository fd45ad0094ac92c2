from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError, NotFound
from agentmemory.models import Agent, Memory, Message, Space
from agentmemory.services import purging, sessions, spaces
from agentmemory.services.purging import Scope


class Command(BaseCommand):
    help = "Erases for good: memories, messages, a session, all that an agent has. Nobody can undo it; see --dry-run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", required=True, metavar="S")
        parser.add_argument("--agent", metavar="H", help="Whose session, or who is to be purged.")
        parser.add_argument("--memory", nargs="+", type=UUID, default=[], metavar="ID", help="Memories, by their ids.")
        parser.add_argument("--session", metavar="ID", help="A session: all of it unless --message names some of it.")
        parser.add_argument("--message", nargs="+", default=[], metavar="UID", help="Messages of the session.")
        parser.add_argument("--everything", action="store_true", help="All that the agent has.")
        parser.add_argument("--delete-agent", action="store_true", help="The agent itself, too.")
        parser.add_argument("--heir", metavar="H", help="With --delete-agent: who gets what it has, instead.")
        parser.add_argument("--reason", default="", help="Kept with the certificate: name no content in it.")
        parser.add_argument("--dry-run", action="store_true", help="Say what would be erased, and erase nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        author = Author(kind="operator", name=getpass.getuser())
        _agree(options)
        try:
            space = spaces.get(options["space"])
            agent = spaces.get_agent(space, options["agent"]) if options["agent"] else None
            if options["delete_agent"]:
                return self._delete(_named(agent), author, options)
            scope = _scope(Caller(space=space), agent, options)
            if options["dry_run"]:
                self._tell(purging.preview(scope=scope).counts)
                self.stdout.write("Nothing was erased.")
            else:
                certificate = purging.purge(scope=scope, author=author, reason=options["reason"])
                self._tell(certificate.counts)
                self.stdout.write(f"Erased for good: certificate {certificate.pk}.")
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        return None

    def _delete(self, agent: Agent, author: Author, options: dict[str, Any]) -> None:
        if options["dry_run"]:
            raise CommandError("--dry-run tells of --everything; deleting an agent has none.")
        heir = spaces.get_agent(agent.space, options["heir"]) if options["heir"] else None
        certificate = purging.delete_agent(
            agent_id=agent.pk, author=author, reason=options["reason"], heir=heir, erase=options["everything"]
        )
        self._tell(certificate.counts)
        self.stdout.write(f"{agent.handle} is deleted: certificate {certificate.pk}.")

    def _tell(self, counts: dict[str, int]) -> None:
        for table, count in counts.items():
            self.stdout.write(f"{table}: {count}")


def _agree(options: dict[str, Any]) -> None:
    """Refuse what would erase more, or less, than its words say: nobody can undo it."""
    everything = options["everything"] or options["delete_agent"]
    if everything and (options["memory"] or options["session"] or options["message"]):
        raise CommandError("--everything and --delete-agent mean all that the agent has: name nothing else with them.")
    if options["message"] and not options["session"]:
        raise CommandError("--message needs --session: uids are unique within a session alone.")


def _scope(caller: Caller, agent: Agent | None, options: dict[str, Any]) -> Scope:
    if options["everything"]:
        return Scope(agent_ids=[_named(agent).pk])
    memories = _memories(caller.space, options["memory"])
    if not options["session"]:
        return Scope(memory_ids=memories)
    session = sessions.find(caller=caller, name=options["session"], agent=agent)
    if not options["message"]:
        return Scope(memory_ids=memories, session_ids=[session.pk])
    rows = list(Message.objects.filter(session=session, uid__in=options["message"]).values_list("pk", flat=True))
    if len(rows) != len(set(options["message"])):
        raise NotFound("There is no such message in this session.")
    return Scope(memory_ids=memories, message_ids=rows)


def _memories(space: Space, ids: list[UUID]) -> list[UUID]:
    """The memories named: an id of another space is a mistake that nobody could undo (T2)."""
    if Memory.objects.filter(space=space, pk__in=ids).count() != len(set(ids)):
        raise NotFound("There is no such memory in this space.")
    return ids


def _named(agent: Agent | None) -> Agent:
    if agent is None:
        raise CommandError("Name the agent: --agent H.")
    return agent
