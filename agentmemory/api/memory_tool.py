"""The memory tool of the Anthropic API: what the model asks for goes in, what it is told comes out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Body, Query, Router
from pydantic import Field

from agentmemory.api import parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import Text, Whole
from agentmemory.api.parameters import OwnerQuery, ScopeQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes import In, Out
from agentmemory.services import memory_files

router = Router(tags=["Memories"])

Path = Annotated[Text, Field(max_length=1_000, description="`/memories`, or below it.")]
Words = Annotated[Text, Field(max_length=100_000)]
Number = Annotated[Whole, Field(ge=-(2**31), lt=2**31)]


class ViewIn(In):
    """Look into a file or a folder. `view_range`: first and last line, -1 for the end."""

    command: Literal["view"]
    path: Path
    view_range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None


class CreateIn(In):
    """Make a file."""

    command: Literal["create"]
    path: Path
    file_text: Words


class StrReplaceIn(In):
    """Put other words where `old_str` stands, once."""

    command: Literal["str_replace"]
    path: Path
    old_str: Words
    new_str: Words = ""


class InsertIn(In):
    """Put words after a line, 0 for the beginning."""

    command: Literal["insert"]
    path: Path
    insert_line: Number
    insert_text: Words


class DeleteIn(In):
    """Delete a file, or a folder with all that is in it."""

    command: Literal["delete"]
    path: Path


class RenameIn(In):
    """Give a file or a folder another name."""

    command: Literal["rename"]
    old_path: Path
    new_path: Path


Command = Annotated[ViewIn | CreateIn | StrReplaceIn | InsertIn | DeleteIn | RenameIn, Field(discriminator="command")]


class ToolOut(Out):
    """What the model is told: the content of a `tool_result` block, and whether it is an error."""

    content: str
    is_error: bool


class ShelfQuery(OwnerQuery):
    """Whose memories are the files."""

    scope: Literal["mine", "space"] | None = Field(
        default=None, description="Agent tokens: `mine` by default. Space tokens: `space`, or `mine` with `owner`."
    )


@router.post("/memory-tool", response={200: ToolOut, 404: Problem})
def use_memory_tool(request: Call, command: Body[Command], query: Query[ShelfQuery]) -> ToolOut:
    """One use of the memory tool (`memory_20250818`): the body is the block's `input`.

    Files are memories: `/memories/KEY`. What a model asks for and cannot have is no problem document but a text for the
    model, with `is_error`.
    """
    given: dict[str, Any] = command.model_dump(exclude={"command"})
    act = getattr(memory_files, command.command)
    try:
        return ToolOut(content=act(_shelf(request, query), **given), is_error=False)
    except memory_files.Refused as error:
        return ToolOut(content=str(error), is_error=True)


def _shelf(request: Call, query: ShelfQuery) -> memory_files.Shelf:
    scope = query.scope or ("space" if request.auth.agent is None else "mine")
    owner = parameters.owner_of_scope(request.auth, ScopeQuery(owner=query.owner, scope=scope))
    return memory_files.Shelf(caller=request.auth, scope=scope, owner=owner)
