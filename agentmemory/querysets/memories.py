"""Reads of memories: whose, which, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import models
from django.db.models import Case, Count, F, Func, IntegerField, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce, Greatest, Now

if TYPE_CHECKING:
    from agentmemory.callers import Caller, Scope
    from agentmemory.models import Agent, Memory  # noqa: F401


class MergedFrom(Func):
    """What was merged into a memory, through other ones too, as JSON. What its owner does not own is left out."""

    template = """(WITH RECURSIVE gone (id, key, owner_id, its_owner) AS (
        SELECT g.id, g.key, g.owner_id, s.owner_id FROM agentmemory_memory AS s
            JOIN agentmemory_memory AS g ON g.merged_into_id = s.id WHERE s.id = %(expressions)s
        UNION
        SELECT g.id, g.key, g.owner_id, gone.its_owner
            FROM agentmemory_memory AS g JOIN gone ON g.merged_into_id = gone.id
    ) SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'key', key) ORDER BY key, id), '[]'::jsonb)
    FROM gone WHERE owner_id IS NOT DISTINCT FROM its_owner)"""
    output_field: Any = models.JSONField()


class MemoryQuerySet(models.QuerySet["Memory"]):
    def visible_to(self, caller: Caller, *, scope: Scope | None = None, owner: Agent | None = None) -> MemoryQuerySet:
        """What the caller may see of its space (T2, M3, M4).

        `mine` is the caller's own (a space token names the `owner`), `space` the shared, `all` everyone's but those of
        archived agents (space tokens alone; T4). Omitted: own and shared; shared alone for a space token.
        """
        within = self.filter(space=caller.space)
        mine = caller.agent or owner
        if scope == "all" and caller.agent is None:
            return within.filter(Q(owner__isnull=True) | Q(owner__archived_at__isnull=True))
        if scope == "mine":
            return within.filter(owner=mine) if mine else within.none()
        if scope == "space" or caller.agent is None:
            return within.filter(owner__isnull=True)
        return within.filter(Q(owner__isnull=True) | Q(owner=caller.agent))

    def kept(self) -> MemoryQuerySet:
        """Not deleted."""
        return self.filter(deleted_at__isnull=True)

    def live(self) -> MemoryQuerySet:
        """What agents find: neither deleted, withdrawn, expired nor merged into another (M9, D23)."""
        unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
        return self.kept().filter(unexpired, withdrawn_at__isnull=True, merged_into__isnull=True)

    def searchable(self) -> MemoryQuerySet:
        """What search and context may show: live, and no repetition of a curated memory (M9)."""
        return self.live().filter(repeats__isnull=True)

    def ends_of(self, pks: Iterable[UUID]) -> set[UUID]:
        """Which memories stand for these after all merges: themselves, where they were merged into none (M9)."""
        pending, seen, ends = set(pks), set[UUID](), set[UUID]()
        while pending:
            rows = list(self.filter(pk__in=pending).values_list("pk", "merged_into"))
            ends |= {pk for pk, survivor in rows if survivor is None}
            seen |= pending
            pending = {survivor for _, survivor in rows if survivor is not None} - seen
        return ends

    def with_merged(self) -> MemoryQuerySet:
        """Add `merged_from`: id and key of all that was merged into it and is its owner's (M4, M9)."""
        return self.annotate(merged_from=MergedFrom(F("pk")))

    def preferred(self) -> MemoryQuerySet:
        """Own curated, own distilled, shared curated, shared distilled, in this order."""
        shared = Case(When(owner__isnull=True, then=2), default=0, output_field=IntegerField())
        distilled = Case(When(origin="distilled", then=1), default=0, output_field=IntegerField())
        return self.order_by(shared + distilled, "id")

    def with_use(self) -> MemoryQuerySet:
        """Add `access_count` and `last_accessed_at`: what was added up and what was not yet (M6), in one snapshot."""
        from agentmemory.models import MemoryAccess

        fresh = MemoryAccess.objects.filter(memory=OuterRef("pk")).order_by().values("memory")
        count = fresh.annotate(n=Count("id")).values("n")
        last = fresh.annotate(at=models.Max("at")).values("at")
        return self.annotate(
            access_count=Coalesce(F("usage__count"), Value(0)) + Coalesce(Subquery(count), Value(0)),
            last_accessed_at=Greatest(F("usage__last_at"), Subquery(last)),
        )
