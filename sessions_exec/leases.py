"""The one lease of the project: who may act now, proven by a number that only grows.

A lease is a row. Whoever acquires it gets an **epoch**, and every guarded write checks it *in its own transaction,
under a lock on the row*: a plain read would let a stale write land after the take-over. The lock is
`FOR KEY SHARE`, and `epoch` is part of a unique key, so that renewals (which change no key) go on beside a guarded
write, while a take-over (which changes the epoch) waits for it (S3). Time is the database's `clock_timestamp()`:
`now()` and `statement_timestamp()` stand still while a statement waits for a lock, and would find an expired lease
still alive.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self, TypeVar

from django.db import connection, models, transaction
from django.db.models import F, Func, Q

from sessions_exec.errors import LeaseHeld, LeaseLost


class ClockTimestamp(Func):
    """The database's clock as it runs, also within a statement."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


Held = TypeVar("Held", bound="Lease", covariant=True)


class LeaseQuerySet(models.QuerySet[Held]):
    """Single-statement transitions, each judged by its row count."""

    def live(self) -> Self:
        return self.filter(expires_at__gt=ClockTimestamp())

    def free(self) -> Self:
        return self.filter(Q(expires_at__isnull=True) | Q(expires_at__lte=ClockTimestamp()))

    def acquire(self, pk: Any, *, holder: str, seconds: float) -> int:
        """Take the free lease of row `pk` for `seconds` and return its new epoch.

        Raises `LeaseHeld` while a live lease stands, whoever holds it (S1).
        """
        with transaction.atomic():
            taken = (
                self.filter(pk=pk)
                .free()
                .update(
                    holder=holder,
                    epoch=F("epoch") + 1,
                    acquired_at=ClockTimestamp(),
                    expires_at=ClockTimestamp() + timedelta(seconds=seconds),
                )
            )
            if taken != 1:
                raise LeaseHeld(f"{self.model._meta.verbose_name} {pk} has a live lease.")
            # Our own update holds the row's lock: nobody can have moved the epoch since.
            return int(self.filter(pk=pk).values_list("epoch", flat=True).get())

    @transaction.atomic
    def renew(self, pk: Any, *, epoch: int, seconds: float) -> None:
        """Extend a lease that is still held. Raises `LeaseLost` when it is not."""
        self._wait_for_row(pk)
        renewed = (
            self.filter(pk=pk, epoch=epoch).live().update(expires_at=ClockTimestamp() + timedelta(seconds=seconds))
        )
        if renewed != 1:
            raise LeaseLost(f"{self.model._meta.verbose_name} {pk} is no longer held with epoch {epoch}.")

    def _wait_for_row(self, pk: Any) -> None:
        """Lock the row before its expiry is judged.

        A statement that waits for a lock looks at its conditions again only if the row was changed meanwhile. Behind
        a transaction that held the row and changed nothing, an expired lease would pass for a live one.
        """
        self.filter(pk=pk).select_for_update(of=("self",), no_key=True).order_by().values_list("pk").first()

    def fence(self, pk: Any, *, epoch: int) -> None:
        """Hold the lease still until the open transaction ends. Raises `LeaseLost` when it is lost already."""
        quote = connection.ops.quote_name
        # Names come from the model, values are parameters.
        # The expiry is judged after the lock was got, whatever was waited for (see `_wait_for_row`).
        sql = (
            f"WITH held AS MATERIALIZED (SELECT expires_at FROM {quote(self.model._meta.db_table)} "  # noqa: S608
            f"WHERE {quote(str(self.model._meta.pk.column))} = %s AND epoch = %s FOR KEY SHARE) "
            "SELECT 1 FROM held WHERE expires_at > clock_timestamp()"
        )
        with connection.cursor() as cursor:
            cursor.execute(sql, [pk, epoch])
            if cursor.fetchone() is None:
                raise LeaseLost(f"{self.model._meta.verbose_name} {pk} is no longer held with epoch {epoch}.")

    def fence_now(self, pk: Any, *, epoch: int) -> None:
        """Raise `LeaseLost` when the lease is lost by now. It guards nothing beyond this moment."""
        if not self.filter(pk=pk, epoch=epoch).live().exists():
            raise LeaseLost(f"{self.model._meta.verbose_name} {pk} is no longer held with epoch {epoch}.")

    @transaction.atomic
    def release(self, pk: Any, *, epoch: int) -> None:
        """Give a held lease back. The row and its epoch stay (S2). Raises `LeaseLost` when it is lost already."""
        self._wait_for_row(pk)
        if self.filter(pk=pk, epoch=epoch).live().update(holder="", expires_at=None) != 1:
            raise LeaseLost(f"{self.model._meta.verbose_name} {pk} is no longer held with epoch {epoch}.")

    def revoke(self, pk: Any) -> int:
        """Take a lease away from whoever holds it, by raising the fence. Returns the number of rows changed."""
        return self.filter(pk=pk).update(holder="", epoch=F("epoch") + 1, expires_at=None)


class Lease(models.Model):
    """The columns of a lease. A model that extends it adds `UniqueConstraint(fields=[pk, "epoch"])`."""

    holder = models.CharField(max_length=200, blank=True, default="", editable=False)
    epoch = models.PositiveBigIntegerField(default=0, editable=False, help_text="The fencing number.")
    acquired_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True
