"""What an operator can do about memories that say the same: merge, link, and undo either."""

from __future__ import annotations

from typing import Any, cast

from django import forms

from agentmemory.admin import texts
from agentmemory.admin.acts import Act, Asked, AskForm, Did, Undo
from agentmemory.errors import Invalid
from agentmemory.models import Memory
from agentmemory.services import inspection, merging

BY_HAND = "by hand"


class MergeForm(AskForm):
    """Into which memory, by its key."""

    into = forms.CharField(max_length=200, label="Into", help_text="The key of the distilled memory that stays.")

    def clean_into(self) -> Memory:
        memory = cast(Memory, self.subjects[0])
        place = {"space": memory.space_id, "owner": memory.owner_id, "origin": Memory.Origin.DISTILLED}
        found = Memory.objects.live().filter(**place, key=self.cleaned_data["into"].strip()).exclude(pk=memory.pk)
        into = found.first()
        if into is None:
            raise forms.ValidationError("Its owner has no other distilled memory of this key.")
        return into


def _merge(memory: Memory, asked: Asked) -> str:
    into: Memory = asked.values["into"]
    merging.merge(memory_id=memory.pk, into_id=into.pk, author=asked.author, why=BY_HAND, reason=asked.reason)
    return f"{texts.called(memory)} went into {into}: its key answers with that one."


def _unmerge(memory: Memory, asked: Asked) -> Did:
    into = cast(Memory, memory.merged_into)
    merging.unmerge(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return Did(
        said=f"{texts.called(memory)} stands by itself again.", undo=Undo(act="merge", values={"into": into.key})
    )


def _link(memory: Memory, asked: Asked) -> str:
    curated = _curated(memory)
    merging.link(memory_id=memory.pk, curated_id=curated.pk, author=asked.author, why=BY_HAND, reason=asked.reason)
    return f"{texts.called(memory)} is left out of search and context for the curated memory of its key."


def _unlink(memory: Memory, asked: Asked) -> str:
    merging.unlink(memory_id=memory.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)} is found again, beside the curated one."


def _both(memory: Memory, asked: Asked) -> str:
    curated = _curated(memory)
    merging.keep_apart(memory_id=memory.pk, other_id=curated.pk, author=asked.author, reason=asked.reason)
    return f"{texts.called(memory)}: both stand beside each other."


def _curated(memory: Memory) -> Memory:
    curated = inspection.curated_of(memory)
    if curated is None:
        raise Invalid("There is no curated memory of this key and owner.")
    return curated


def _beside_another(memory: Any) -> bool:
    return _stands(memory) and memory.repeats_id is None and inspection.curated_of(memory) is not None


def _stands(memory: Any) -> bool:
    gone = (memory.deleted_at, memory.withdrawn_at, memory.merged_into_id)
    return memory.origin == Memory.Origin.DISTILLED and gone == (None, None, None)


ACTS: tuple[Act, ...] = (
    Act(
        name="merge",
        label="Merge",
        explains="Lets another distilled memory of its owner stand for it: its key answers with that one, which gains "
        "its tags and sources.",
        run=_merge,
        undo="unmerge",
        form=MergeForm,
        offered=_stands,
        # It takes a key, and tells whether the owner has one.
        opens=lambda memory: memory.owner_id is not None,
    ),
    Act(
        name="unmerge",
        label="Undo the merge",
        explains="Lets it stand by itself again, as it was. The other one gives back the tags and sources that it got.",
        run=_unmerge,
        back="Merge lets the other one stand for it again. Consolidation does not do it by itself any more.",
        bulk=True,
        offered=lambda memory: memory.merged_into_id is not None,
    ),
    Act(
        name="unlink",
        label="Undo the link",
        explains="Shows it in search and context again, beside the curated memory that it repeats.",
        run=_unlink,
        undo="link",
        bulk=True,
        offered=lambda memory: memory.repeats_id is not None,
    ),
    Act(
        name="link",
        label="Keep the curated one",
        explains="Leaves the distilled memory out of search and context while the curated one of its key says what it "
        "says now. Both stay in lists.",
        run=_link,
        undo="unlink",
        offered=_beside_another,
    ),
    Act(
        name="both",
        label="Both are right",
        explains="Lets the two stand beside each other. They are not shown as a disagreement any more.",
        run=_both,
        final="The two are never merged, linked or shown as a disagreement by themselves again. Keep the curated one "
        "stays on the page of the distilled one.",
        # Where the two stand beside each other.
        beside=True,
        offered=_beside_another,
    ),
)
