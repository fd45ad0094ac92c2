"""Folders that are followed: what is written there is imported as it is written.

What a file was when it was imported is the truth, and what the system tells of changes only a hint. So it does not
matter what was missed: a file that was renamed, or written anew, or that appeared while nobody watched, is found by
what it is now, and what it holds is known by its uids.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event

import watchfiles
from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections

from agentmemory.importers import files
from agentmemory.models import Agent
from agentmemory.services import importing

logger = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between two looks at what was told of, at files that were named, and at whether to stop."""

LOOK_AROUND = 60.0
"""Seconds between two looks at everything: not every change is told of, and not every file system tells."""

Stamp = tuple[int, int, int]
OnReports = Callable[[Sequence[importing.FileReport]], None]


def follow(
    *,
    agent: Agent,
    paths: Sequence[Path],
    format: str = importing.AUTO,  # noqa: A002 - the word of the command
    stop: Event,
    on_reports: OnReports,
    look_around: float = LOOK_AROUND,
) -> bool:
    """Import `paths` as sessions of `agent`, and whatever changes in them, until `stop` is set.

    `on_reports` hears of each round in which there was something. A database that is away is waited for. Returns
    whether the agent still takes messages: it ends when the agent or its space is archived.
    """
    watch = _Watch(agent, paths, format, on_reports)
    looked = float("-inf")
    for told in _told(paths, stop):
        try:
            close_old_connections()
            if not Agent.objects.present().filter(pk=agent.pk).exists():
                return False
            if everything := told is None or time.monotonic() - looked >= look_around:
                looked = time.monotonic()
            watch.round(told or (), everything=everything)
        except (OperationalError, InterfaceError) as error:
            looked = float("-inf")
            logger.warning("waiting", extra={"action": "watching.no_database", "error": type(error).__name__})
    return True


class _Watch:
    """What is known of the files: how each was when it was imported, and when it is to be looked at again."""

    def __init__(self, agent: Agent, paths: Sequence[Path], format: str, on_reports: OnReports) -> None:  # noqa: A002
        self.agent = agent
        self.paths = paths
        self.format = format
        self.on_reports = on_reports
        self.known: dict[Path, Stamp] = {}
        self.unfinished: dict[Path, float] = {}

    def round(self, told: Iterable[Path], *, everything: bool) -> None:
        """Import what is not as it was. A file whose import ends in an error of the database is not known by it."""
        due = {path: stamp for path in self._candidates(told, everything) if (stamp := self._changed(path))}
        if not due:
            return
        entries = [files.Found(path=path, named=path in self.paths) for path in due]
        reports = importing.import_files(agent=self.agent, entries=entries, format=self.format)
        for path, stamp in due.items():
            self._remember(path, stamp)
        self.on_reports(reports)

    def _candidates(self, told: Iterable[Path], everything: bool) -> Iterator[Path]:
        # A folder that is new may have been filled before it was listened to.
        yield from _files(told)
        yield from (path for path in self.paths if path.is_file())
        yield from [path for path, when in self.unfinished.items() if when <= time.time()]
        if everything:
            yield from _files(self.paths)

    def _changed(self, path: Path) -> Stamp | None:
        """How the file is now; nothing where it is gone, no file, or as it was and waited for by nobody."""
        stamp = _stamp(path)
        if stamp is None:
            self.known.pop(path, None)
            self.unfinished.pop(path, None)
            return None
        waited_for = self.unfinished.get(path, float("inf")) <= time.time()
        return stamp if waited_for or self.known.get(path) != stamp else None

    def _remember(self, path: Path, stamp: Stamp) -> None:
        """A session that is being written is held back at its end until it has been quiet (R6): no change will tell."""
        self.known[path] = stamp
        quiet = stamp[0] / 1e9 + settings.AGENTMEMORY_IDLE_AFTER + TICK
        if quiet > time.time():
            self.unfinished[path] = quiet
        else:
            self.unfinished.pop(path, None)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (entry.path for entry in files.walk(path) if isinstance(entry, files.Found))


def _stamp(path: Path) -> Stamp | None:
    """What tells a file from what it was: time, size, and which file it is."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if path.is_file() else None


def _told(paths: Sequence[Path], stop: Event) -> Iterator[set[Path] | None]:
    """The files that the system tells of, every tick, until `stop` is set. None: nobody listened until now.

    Folders may come and go.
    """
    yield None
    while not stop.is_set():
        folders = [path for path in paths if path.is_dir()]
        if not folders:
            stop.wait(TICK)
            yield set()
            continue
        listening = False
        for changes in watchfiles.watch(
            *folders,
            watch_filter=None,
            stop_event=stop,
            rust_timeout=int(TICK * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            yield {Path(name) for _, name in changes} if listening else None
            listening = True
            if [path for path in paths if path.is_dir()] != folders:
                break
