"""What an operator can do to memories: each act is a service's, asked with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentmemory.admin import merge_acts, purge_acts, texts
from agentmemory.admin.acts import Act, Asked, AskForm, Did, Undo
from agentmemory.console import goes
from agentmemory.models import Agent, Memory, MemoryEvent, MemorySource
from agentmemory.models.memories import CONTENT_LENGTH, CONTEXT_LENGTH
from agentmemory.services import curation, inspection


class EditForm(AskForm):
    """The whole memory, as it is."""

    content = forms.CharField(max_length=CONTENT_LENGTH, widget=forms.Textarea(attrs={"rows": 12}))
    tags = forms.CharField(required=False, help_text="Between commas.")
    context = forms.CharField(
        required=False,
        max_length=CONTEXT_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Text that helps to find it and is never shown in prompts.",
    )
    importance = forms.FloatField(min_value=0, max_value=1, widget=forms.NumberInput(attrs={"step": "0.05"}))
    pinned = forms.BooleanField(required=False)
    expires_at = forms.DateTimeField(required=False, help_text="UTC, as 2027-01-31 12:00; empty: never.")
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        memory = cast(Memory, self.subjects[0])
        self.initial = {
            "content": memory.content,
            "tags": ", ".join(memory.tags),
            "context": memory.context,
            "importance": memory.importance,
            "pinned": memory.pinned,
            "expires_at": memory.expires_at,
            **self.initial,
            "version": memory.version,
        }

    def clean_tags(self) -> list[str]:
        return [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]

    def clean(self) -> None:
        """The whole of it is sent: what somebody else has written meanwhile would be written over."""
        now, shown = self.subjects[0].version, self.cleaned_data.pop("version", None)
        if shown is not None and shown != now:
            raise forms.ValidationError(
                f"It was changed meanwhile, and is at version {now}. Open Edit anew: nothing was written."
            )


class AgentForm(AskForm):
    """Which agent, by its handle: a list of all of them would have no end."""

    agent = forms.CharField(max_length=100, help_text="The agent's handle.")

    def clean_agent(self) -> Agent:
        spaces = {memory.space_id for memory in self.subjects}
        agent = Agent.objects.present().filter(space__in=spaces, handle=self.cleaned_data["agent"].strip()).first()
        if agent is None or len(spaces) > 1:
            raise forms.ValidationError("There is no agent of this handle in the memory's space.")
        return agent


class VersionForm(AskForm):
    """Which version: it comes from a place beside the version, and is asked for where nothing has named it."""

    version = forms.IntegerField(min_value=1)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if texts.earlier(self.subjects, self.initial.get("version")) is not None:
            self.fields["version"].widget = forms.HiddenInput()

    def clean_version(self) -> int:
        version: int = self.cleaned_data["version"]
        if texts.earlier(self.subjects, version) is None:
            raise forms.ValidationError(f"There is no version {version} of it.")
        return version


def _edit(memory: Memory, asked: Asked) -> str | Did:
    # Only what was changed is handed on, so that the history names it alone.
    changes = {field: value for field, value in asked.values.items() if getattr(memory, field) != value}
    if not changes:
        return "Nothing was different: nothing was written."
    after = curation.edit(
        memory_id=memory.pk, author=asked.author, reason=asked.reason, expected=memory.version, **changes
    )
    said = f"{texts.called(memory)} was changed; it is at version {after.version}."
    return Did(said=said, undo=_version_before(memory))


def _version_before(memory: Memory) -> Undo:
    """Takes back what was written over a memory as it was."""
    return Undo(act="restore", row=memory, values={"version": memory.version})


def _remove(memory: Memory, asked: Asked) -> str:
    curation.remove(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} was deleted."


def _undelete(memory: Memory, asked: Asked) -> str:
    curation.undelete(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} is back."


def _restore(memory: Memory, asked: Asked) -> Did:
    version: int = asked.values["version"]
    curation.restore_version(memory_id=memory.pk, version=version, author=asked.author, reason=asked.reason)
    return Did(
        said=f"{texts.called(memory)} says again what it said in version {version}.", undo=_version_before(memory)
    )


def _promote(memory: Memory, asked: Asked) -> Did:
    before = inspection.curated_of(memory)
    curated = curation.promote(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    said = f"{texts.called(memory)} is kept as a curated memory, at version {curated.version}. The distilled one stays."
    # As soon as the curated one goes or says something else, the distilled one is found by itself again.
    return Did(said=said, undo=Undo(act="delete", row=curated) if before is None else _version_before(before))


def _share(memory: Memory, asked: Asked) -> Did:
    owner = memory.owner
    curation.share(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    undo = Undo(act="give-back", values={"agent": owner.handle}) if owner else None
    return Did(said=f"{texts.called(memory)} is shared with its whole space.", undo=undo)


def _give_back(memory: Memory, asked: Asked) -> str:
    agent: Agent = asked.values["agent"]
    curation.give_back(memory_id=memory.pk, agent=agent, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} is private to {agent} now."


def _pin(memory: Memory, asked: Asked) -> str:
    curation.edit(memory_id=memory.pk, author=asked.author, reason=asked.reason, pinned=True)
    return f"{texts.called(memory)} is pinned."


def _unpin(memory: Memory, asked: Asked) -> str:
    curation.edit(memory_id=memory.pk, author=asked.author, reason=asked.reason, pinned=False)
    return f"{texts.called(memory)} is no longer pinned."


def _withdraw(memory: Memory, asked: Asked) -> str:
    curation.withdraw(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} was withdrawn."


def _reinstate(memory: Memory, asked: Asked) -> str:
    curation.reinstate(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} is in use again."


def _hides(request: HttpRequest, rows: Sequence[Memory]) -> SafeString:
    pks = [row.pk for row in rows]
    counts = {
        "versions": MemoryEvent.objects.filter(pgh_obj_id__in=pks).count(),
        "sources": MemorySource.objects.filter(memory__in=pks).count(),
        "memories that were merged into it": Memory.objects.filter(merged_into__in=pks).count(),
    }
    return goes.with_it("What is hidden with it, and kept:", counts)


def _private(memory: Memory) -> bool:
    return memory.owner_id is not None


def _kept(memory: Memory) -> bool:
    return memory.deleted_at is None and memory.merged_into_id is None


ACTS: tuple[Act, ...] = (
    Act(
        name="edit",
        label="Edit",
        button="Save",
        explains="Writes a new version with you as its author. A distilled memory that was edited by hand is left "
        "alone by later passes.",
        run=_edit,
        back="its history keeps the version that is there now, and Restore writes it again.",
        form=EditForm,
        offered=_kept,
        opens=_private,
    ),
    Act(
        name="promote",
        label="Promote",
        explains="Keeps what a distilled memory says as a curated one of the same key and owner. The distilled one "
        "stays.",
        run=_promote,
        preview=texts.promoted,
        back="a curated memory that is new is deleted again, one that was there has its earlier version restored.",
        bulk=True,
        offered=lambda memory: _kept(memory) and memory.origin == Memory.Origin.DISTILLED,
    ),
    Act(
        name="share",
        label="Share",
        explains="Takes the owner away: every agent of the space reads it from then on.",
        run=_share,
        back="Give back makes it private again. A link to a curated memory ends with the sharing: Keep the curated one "
        "makes it anew. What was read meanwhile was read.",
        bulk=True,
        opens=_private,
        offered=lambda memory: _kept(memory) and memory.owner_id is not None,
    ),
    Act(
        name="give-back",
        label="Give back",
        explains="Makes it private to one agent: no other one sees it from then on.",
        run=_give_back,
        undo="share",
        form=AgentForm,
        bulk=True,
        offered=lambda memory: _kept(memory) and memory.owner_id is None,
    ),
    Act(
        name="pin",
        label="Pin",
        explains="Shows it first among the core memories of those who see it.",
        run=_pin,
        undo="unpin",
        bulk=True,
        offered=lambda memory: _kept(memory) and not memory.pinned,
    ),
    Act(
        name="unpin",
        label="Unpin",
        explains="Lets its use decide again whether it is among the core memories.",
        run=_unpin,
        undo="pin",
        offered=lambda memory: _kept(memory) and memory.pinned,
    ),
    Act(
        name="withdraw",
        label="Withdraw",
        explains="Takes it out of search, context and lists. It stays here, with your reason.",
        run=_withdraw,
        undo="reinstate",
        bulk=True,
        offered=lambda memory: _kept(memory) and memory.withdrawn_at is None,
    ),
    Act(
        name="reinstate",
        label="Reinstate",
        explains="Brings it back to search, context and lists.",
        run=_reinstate,
        undo="withdraw",
        bulk=True,
        offered=lambda memory: _kept(memory) and memory.withdrawn_at is not None,
    ),
    *merge_acts.ACTS,
    Act(
        name="delete",
        label="Delete",
        explains="Hides it from everyone. Its history stays, and it can be brought back.",
        run=_remove,
        undo="undelete",
        preview=_hides,
        danger=True,
        offered=_kept,
    ),
    Act(
        name="undelete",
        label="Undelete",
        explains="Brings it back as it was, unless its key is taken by now.",
        run=_undelete,
        undo="delete",
        offered=lambda memory: memory.deleted_at is not None,
    ),
    Act(
        name="restore",
        label="Restore",
        explains="Writes an earlier version again, as the newest one. The versions between stay in the history.",
        run=_restore,
        back="the version that is there now stays in the history, and Restore writes it again.",
        form=VersionForm,
        preview=texts.restored,
        # Beside each version, where the number is known.
        beside=True,
        offered=_kept,
    ),
    purge_acts.MEMORY,
)
