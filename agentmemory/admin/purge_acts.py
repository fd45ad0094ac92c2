"""What an operator can erase for good. What it would take is told before, by doing it and taking it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentmemory.admin import beyond
from agentmemory.admin.acts import Act, Asked, AskForm
from agentmemory.console import goes, permissions, tables
from agentmemory.models import Agent, Memory
from agentmemory.services import purging
from agentmemory.services.purging import Scope

FINAL = "Nobody can undo it: only a backup has it then. The reason is kept for ever: name no content in it."
ERASE, GIVE = "erase", "give"


class LeavingForm(AskForm):
    """What becomes of what an agent has."""

    choice = forms.ChoiceField(
        label="What it has",
        widget=forms.RadioSelect,
        choices=[(GIVE, "Give its memories and sessions to another agent"), (ERASE, "Erase them with it")],
    )
    heir = forms.CharField(max_length=100, required=False, help_text="The handle of the agent that gets them.")

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("choice") != GIVE:
            return {**values, "heir": None}
        space_id = self.subjects[0].space_id
        heir = Agent.objects.present().filter(space=space_id, handle=(values.get("heir") or "").strip()).first()
        if heir is None:
            self.add_error("heir", "There is no such agent in its space.")
        return {**values, "heir": heir}


def counted(counts: dict[str, int]) -> SafeString:
    """What a purge takes, table by table."""
    return goes.with_it("What would be deleted or emptied:", tables.called(counts) or {"nothing": 0})


def taken(request: HttpRequest, scope: Scope) -> SafeString:
    """What a purge would take, and why it is more than what was chosen."""
    preview = purging.preview(scope=scope)
    return SafeString(counted(preview.counts) + beyond.explained(request, preview, scope))


def _takes(request: HttpRequest, rows: Sequence[Memory]) -> SafeString:
    return taken(request, Scope(memory_ids=[row.pk for row in rows]))


def _purge(memory: Memory, asked: Asked) -> str:
    scope = Scope(memory_ids=[memory.pk])
    certificate = purging.purge(scope=scope, author=asked.author, reason=asked.reason)
    return f"It was erased for good: certificate {certificate.pk}."


def _delete(agent: Agent, asked: Asked) -> str:
    certificate = purging.delete_agent(
        agent_id=agent.pk,
        author=asked.author,
        reason=asked.reason,
        heir=asked.values["heir"],
        erase=asked.values["choice"] == ERASE,
    )
    return f"The agent was deleted for good: certificate {certificate.pk}."


def _all_it_has(request: HttpRequest, rows: Sequence[Agent]) -> SafeString:
    return taken(request, Scope(agent_ids=[row.pk for row in rows]))


MEMORY = Act(
    name="purge",
    label="Purge",
    explains="Erases the memory, its history, its sources, what was merged into it, and what passes keep of it. The "
    "messages that it was taken from stay: they are purged from the page that finds everything.",
    final=FINAL,
    needs=permissions.PURGE,
    run=_purge,
    preview=_takes,
    danger=True,
    gone=True,
)
AGENT = Act(
    name="delete",
    label="Delete for good",
    explains="Deletes an archived agent with its tokens. What it has goes to another agent or is erased; nothing "
    "private becomes shared.",
    final=FINAL,
    needs=permissions.PURGE,
    run=_delete,
    form=LeavingForm,
    preview=_all_it_has,
    danger=True,
    gone=True,
    offered=lambda agent: agent.archived_at is not None,
)
