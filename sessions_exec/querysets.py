"""Reads of executions and inputs, and the transitions of executions that are one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from django.db import models
from django.db.models import Exists, OuterRef

from sessions_exec.errors import LeaseLost
from sessions_exec.leases import ClockTimestamp, LeaseQuerySet

if TYPE_CHECKING:
    from sessions_exec.models import Execution, Input  # noqa: F401


class ExecutionQuerySet(LeaseQuerySet["Execution"]):
    def free(self) -> Self:
        """Never held, released or recovered. One that has merely expired is not free: it is recovered first (S7)."""
        return self.filter(expires_at__isnull=True)

    def held(self) -> Self:
        """Live or expired, in any case not settled. A partial index, which renewals do not touch."""
        return self.exclude(holder="")

    def expired(self) -> Self:
        return self.held().filter(expires_at__lte=ClockTimestamp())

    def hold(self, pk: Any, *, execution_id: UUID, epoch: int) -> None:
        """Hold this very execution still until the open transaction ends (S3). Raises `LeaseLost`.

        An epoch is given out once, with its id: where both were found together, the fence needs the epoch alone.
        """
        if not self.filter(pk=pk, execution_id=execution_id, epoch=epoch).exists():
            raise LeaseLost(f"This execution does not hold the session (epoch {epoch}).")
        self.fence(pk, epoch=epoch)

    def set_while_held(self, pk: Any, *, epoch: int, **values: Any) -> None:
        """Change columns that are no key, under a lease that is still held. Raises `LeaseLost`."""
        self._wait_for_row(pk)
        if self.filter(pk=pk, epoch=epoch).live().update(**values) != 1:
            raise LeaseLost(f"This execution does not hold the session (epoch {epoch}).")


class InputQuerySet(models.QuerySet["Input"]):
    def pending(self) -> Self:
        """Admitted, and neither promoted nor cancelled, in the order of their admission."""
        return self.filter(state="pending").order_by("pk")

    def wanted(self) -> Self:
        """Those that somebody wants to be run now: a wish that no interrupt has cleared since (S6)."""
        return self.pending().filter(resume=True)

    def stranded(self) -> Self:
        """Wanted in a session that nobody holds (S6)."""
        from sessions_exec.models import Execution

        holder = Execution.objects.held().filter(session=OuterRef("session"))
        return self.wanted().filter(~Exists(holder))
