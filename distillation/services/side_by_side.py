"""Many sessions distilled at a time by one process: each pass a thread, which holds nothing during its call (A3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from django.conf import settings
from django.db import connection

from distillation.services import distilling
from distillation.services.distilling import OnPass, Result

# How often more work is looked for while calls are waited for, in seconds.
LOOK = 0.25

More = Callable[[int, Collection[int]], Sequence[int]]
"""Up to so many further cursors that may be taken up, without those named."""


def run(
    *,
    cursor_ids: Sequence[int],
    more: More | None = None,
    deadline: float | None = None,
    on_pass: OnPass | None = None,
) -> list[Result]:
    """Distil these sessions, then what `more` finds while there is time, and return what came of each.

    An error in one is raised once the others that run have ended. Stopped from outside, all give their attempts back.
    """
    crew = _Crew(deadline=deadline, on_pass=on_pass)
    try:
        return crew.work(cursor_ids, more)
    except (SystemExit, KeyboardInterrupt):
        # Threads cannot be stopped in their calls; what they bring back finds the lease given away.
        crew.stop.set()
        distilling.give_back_all()
        raise
    finally:
        crew.pool.shutdown(wait=False, cancel_futures=True)


class _Crew:
    """The threads of one run."""

    def __init__(self, *, deadline: float | None, on_pass: OnPass | None) -> None:
        self.deadline = deadline
        self.on_pass = on_pass
        self.stop = threading.Event()
        self.telling = threading.Lock()
        self.most = settings.AGENTMEMORY_CALLS_AT_ONCE
        self.pool = ThreadPoolExecutor(max_workers=self.most, thread_name_prefix="pass")
        self.under_way: dict[Future[Result], int] = {}
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def work(self, cursor_ids: Sequence[int], more: More | None) -> list[Result]:
        waiting = list(cursor_ids)
        looked = 0.0
        while True:
            free = self.most - len(self.under_way)
            if more is not None and len(waiting) < free and self._may_begin() and time.monotonic() >= looked + LOOK:
                looked = time.monotonic()
                waiting += more(free - len(waiting), [*self.under_way.values(), *waiting])
                # Nothing is held while they work.
                connection.close()
            while waiting and free > 0 and self.error is None:
                self._begin(waiting.pop(0))
                free -= 1
            if not self.under_way:
                break
            self._wait(LOOK if more is not None else None)
        if self.error is not None:
            raise self.error
        return self.results

    def _may_begin(self) -> bool:
        return self.error is None and distilling.time_is_left(self.deadline)

    def _begin(self, cursor_id: int) -> None:
        self.under_way[self.pool.submit(self._one, cursor_id)] = cursor_id

    def _wait(self, seconds: float | None) -> None:
        done, _ = wait(self.under_way, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            del self.under_way[future]
            error = future.exception()
            if error is None:
                self.results.append(future.result())
            else:
                self.error = self.error or error

    def _one(self, cursor_id: int) -> Result:
        try:
            return distilling.run_cursor(
                cursor_id=cursor_id, deadline=self.deadline, on_pass=self._told, stop=self.stop
            )
        finally:
            connection.close()

    def _told(self, result: Result) -> None:
        if self.on_pass is not None:
            with self.telling:
                self.on_pass(result)
