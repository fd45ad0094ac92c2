"""Holding a session while it is run: renewed beside the work, and let go of before its time is over (S1 to S3, S6)."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from django.db import DatabaseError, InterfaceError, connection

from agentmemory.models import Session
from sessions_exec.errors import LeaseLost, SessionsExecError
from sessions_exec.models import Execution
from sessions_exec.services import executions

LONGEST_LOOK = 1.0
"""Seconds between two looks whether the run was interrupted; a renewal comes every third of the term."""

LONGEST_MARGIN = 5.0
"""With less than so many seconds left the work stops by itself: a write must not begin that could come too late."""


class Interrupted(SessionsExecError):
    """Somebody asked the run to stop."""


class Holding:
    """An execution that this process holds. `halt` is set once the work has to stop; `check` says why.

    Time is this process's monotonic clock, from before each renewal was asked for: never later than the database's.
    """

    def __init__(self, session: Session, execution: Execution, *, since: float) -> None:
        self.session = session
        self.epoch = execution.epoch
        self.held = executions.Held(execution_id=execution.execution_id, epoch=execution.epoch)
        self.halt = threading.Event()
        self._why: SessionsExecError | None = None
        self._seconds = execution.seconds
        self._margin = min(LONGEST_MARGIN, execution.seconds / 5)
        self._renewed = since
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"renewing {session.pk}", daemon=True)

    def __enter__(self) -> Holding:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(LONGEST_LOOK)

    def check(self) -> None:
        """Raise `LeaseLost` or `Interrupted` where the work must not go on."""
        if time.monotonic() > self._renewed + self._seconds - self._margin:
            self._stop(LeaseLost("The time of this execution is nearly over, and was not extended."))
        if self._why is not None:
            raise self._why

    def move(self, phase: str) -> None:
        """Move to a phase; a dispatch may follow only this answered call (S6). Raises `LeaseLost`, `Interrupted`."""
        self.check()
        asked = time.monotonic()
        executions.renew(session=self.session, held=self.held, phase=phase)
        self._renewed = max(self._renewed, asked)

    def _keep(self) -> None:
        try:
            while not self._done.wait(min(LONGEST_LOOK, self._seconds / 10)) and self._why is None:
                self._look()
        finally:
            connection.close()

    def _look(self) -> None:
        asked = time.monotonic()
        try:
            if asked >= self._renewed + self._seconds / 3:
                interrupted = executions.renew(session=self.session, held=self.held).interrupted_at
                self._renewed = max(self._renewed, asked)
            else:
                mine = Execution.objects.filter(pk=self.session.pk, epoch=self.epoch)
                interrupted = mine.values_list("interrupted_at", flat=True).get()
        except (LeaseLost, Execution.DoesNotExist):
            return self._stop(LeaseLost("Somebody else runs this session."))
        except (DatabaseError, InterfaceError):
            # Asked again at the next look, as long as there is time.
            connection.close()
            interrupted = None
        if interrupted is not None:
            return self._stop(Interrupted("The run was interrupted."))
        if time.monotonic() > self._renewed + self._seconds - self._margin:
            self._stop(LeaseLost("The time of this execution is nearly over, and was not extended."))
        return None

    def _stop(self, why: SessionsExecError) -> None:
        self._why = self._why or why
        self.halt.set()
