"""Who holds the leases of cursors, and what follows when a process is known to be dead (D14, D22).

A process that went silent may still live, on another machine or behind a pause: its leases run out by themselves. One
whose supervisor has seen its end writes nothing any more: its work need not wait for that.
"""

from __future__ import annotations

import os
import socket

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce, Concat
from django.utils import timezone

from distillation.models import Cursor
from distillation.services import coordinator

DEAD = " (dead)"
"""Stands behind the name of a holder whose process has ended, while its lease is not over."""
LONGEST = 180


def own() -> str:
    """The name under which this process takes leases: its worker's and its own, so that its death can be told."""
    worker = settings.AGENTMEMORY_WORKER_NAME
    return of(worker, os.getpid()) if worker else f"{socket.gethostname()}:{os.getpid()}"


def of(worker: str, pid: int) -> str:
    """The name of one process of a supervised worker."""
    return f"{worker[:LONGEST]}/{pid}"


@transaction.atomic
def died(worker: str, pid: int, function: str, argument: str) -> None:
    """A process of a worker has ended in a task, and it is known to be gone.

    The fence of what it held is raised, and the work is asked for at once; what had a task that ended with it, too.
    A session that has failed since its last success may be what killed it: that lease is left to run out, so that it
    kills no worker each second (D20). A row that a last transaction of the process still holds is left alone as well.
    """
    held = Cursor.objects.live().filter(holder=of(worker, pid))
    rows = held.select_for_update(of=("self",), skip_locked=True).order_by("pk")
    ids = list(rows.values_list("pk", flat=True))
    suspects = Q(window_failures__gt=0) | Q(attempts__gt=1)
    mine = Cursor.objects.filter(pk__in=ids)
    mine.filter(suspects).update(holder=Concat(F("holder"), Value(DEAD)))
    asked = {"requested_at": Coalesce(F("requested_at"), Value(timezone.now())), "enqueued_at": None}
    mine.exclude(suspects).update(holder="", epoch=F("epoch") + 1, expires_at=None, **asked)
    if function == coordinator.TASK and argument.isdigit():
        marked = Cursor.objects.free().filter(agent_id=int(argument), enqueued_at__isnull=False)
        # Not those in the hands of another coordinator, which makes a task for them.
        waiting = marked.select_for_update(of=("self",), skip_locked=True, no_key=True).order_by("pk")
        Cursor.objects.filter(pk__in=list(waiting.values_list("pk", flat=True))).update(**asked)
