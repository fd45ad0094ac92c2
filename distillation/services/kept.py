"""What passes keep of what was said, for the search for everything."""

from __future__ import annotations

from agentmemory.services import finding
from agentmemory.services.finding import Found
from distillation.models import DistillationPass


def find(text: str) -> list[Found]:
    """Passes whose answer, errors, or lists of what was written and refused hold the words."""
    rows = DistillationPass.objects.annotate(
        became=finding.as_text("written"), refusals=finding.as_text("refused")
    ).filter(finding.holding(text, "answer", "error", "became", "refusals"))
    return [
        Found(
            kind="pass",
            pk=row.pk,
            where=f"{row.session_name}, messages {row.start + 1} to {row.end}",
            excerpt=finding.excerpt(row.answer or row.error, text),
            whose=f"{row.agent.handle} · {row.space.slug}",
        )
        for row in rows.select_related("agent", "space").order_by("-pk")[: finding.MOST + 1]
    ]


finding.finders.append(find)
