"""Changing what is remembered: remembering, correcting, forgetting, erasing, recovering."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Change, Changes
from palimpsest.ops.operations.operation import Ask, Doc, Surface, Texts, Write

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

_CHANGE = partial(Surface, panel="Change", permission="modify", routing="id", rate="modify")

NewContent = Annotated[str | None, shared.text_doc("the new text")]
NewType = Annotated[str | None, Doc("the new type", min_length=1, max_length=256)]
Importance = Annotated[float | None, Doc("from 0 to 1; else 0.8", ge=0, le=1)]
NewTags = Annotated[Texts | None, shared.words_doc("the complete list of new tags")]
Owner = Annotated[str | None, Doc("whose memory it is", min_length=1, max_length=256)]
SelfTaught = Annotated[
    bool, Doc("written by an agent unprompted, which the scope must allow", surfaces=("library",))
]


class Remember(Write[Change]):
    """Remember a text. The prefix `critical:` pins it, `[a,b]:` tags it.

    A text that is already known is not stored twice: `dedup` says what became of it. One that says
    until when it holds has `valid_until`.

    Example: palimpsest remember "Ana is allergic to peanuts" --scope support --pinned
    """

    content: Annotated[str, shared.text_doc("the text", argument=True)]
    scope: shared.Scope = ""
    type: Annotated[
        str | None,
        Doc("its type; by default inferred from its words", min_length=1, max_length=256),
    ] = None
    importance: Importance = None
    tags: Annotated[Texts, shared.words_doc("its tags")] = ()
    pinned: Annotated[bool, Doc("machines may not change it", option="--pinned")] = False
    who: Owner = None
    project: Annotated[
        str | None, Doc("the project that it belongs to", min_length=1, max_length=256)
    ] = None
    session_id: Annotated[
        str, Doc("the session that it belongs to", max_length=256, not_blank=True)
    ] = ""
    source_type: Annotated[
        str,
        Doc(
            "where the text comes from", min_length=1, max_length=256, surfaces=("http", "library")
        ),
    ] = "manual"
    source_id: Annotated[
        str | None, Doc("its id there", max_length=512, surfaces=("http", "library"))
    ] = None
    structured: Annotated[
        dict[str, Any] | None,
        Doc(
            "entities, attributes and relations to add to the graph with it; a constraint is in"
            " every context that names its entity",
            model="palimpsest.schemas.entities:Structure",
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any], Doc("stored with it unchanged", surfaces=("http", "library"))
    ] = field(default_factory=dict)
    self_taught: SelfTaught = False
    lineage: Annotated[
        int | None, Doc("version of the agent's persona", ge=0, surfaces=("library",))
    ] = None

    body: ClassVar = "RememberCommand"
    surface: ClassVar = Surface(
        ("POST", "/api/memory/remember"),
        command="remember",
        panel="Change",
        permission="remember",
        tool="remember_fact",
    )


def _modify(operation: Any, **changes: Any) -> Command:
    """The command that changes one memory. Its history keeps the previous state."""
    from palimpsest.schemas.commands import MemoryPatch, ModifyCommand

    patch = MemoryPatch(memory_id=operation.memory_id, if_version=operation.if_version, **changes)
    self_taught = getattr(operation, "self_taught", False) or None
    return ModifyCommand(patches=(patch,), reason=operation.reason, self_taught=self_taught)


class Modify(Write[Change]):
    """Change one memory; its history keeps the previous state.

    Example: palimpsest modify 1f0c9a52 --content "Ana lives in Porto" --reason "she moved"
    """

    memory_id: shared.MemoryId
    reason: shared.RequiredReason
    content: NewContent = None
    type: NewType = None
    importance: Annotated[float | None, Doc("the new importance, from 0 to 1", ge=0, le=1)] = None
    tags: NewTags = None
    pinned: Annotated[bool | None, Doc("pin or unpin it")] = None
    who: Owner = None
    if_version: shared.IfVersion = None
    scope: shared.ScopeOfId = None
    self_taught: SelfTaught = False

    surface: ClassVar = _CHANGE(("PATCH", "/api/memory/{memory_id}"), command="modify")

    def validate(self) -> None:
        if all(value is None for value in self._changes().values()):
            raise RequestError(
                "nothing to change; name at least one of content, type, importance, tags, pinned,"
                " who"
            )

    def _changes(self) -> dict[str, Any]:
        names = ("content", "type", "importance", "tags", "pinned", "who")
        return {name: getattr(self, name) for name in names}

    async def command(self, ask: Ask, settings: Settings) -> Command:
        return _modify(self, **self._changes())


class ModifyMany(Write[Changes]):
    """Change up to 200 memories of a scope independently: `changes` has the outcome of each."""

    patches: Annotated[
        tuple[dict[str, Any], ...],
        Doc(
            "the changes: each with `memory_id`, the fields to set, `if_version` and a `reason`",
            min_length=1,
            max_length=200,
            model="palimpsest.ops.operations.checking:Patch",
        ),
    ]
    scope: shared.AnyScope = None
    reason: Annotated[
        str | None, Doc("reason for the changes that have none", min_length=1, max_length=2_000)
    ] = None

    body: ClassVar = "ModifyCommand"
    surface: ClassVar = Surface(
        ("POST", "/api/memory/modify"), permission="modify", rate="modify", routing="any"
    )

    def validate(self) -> None:
        if self.reason is None and any(not each.get("reason") for each in self.patches):
            raise RequestError("give a reason, for all or for each patch")

    async def scope_of(self, ask: Ask) -> str:
        from palimpsest.ops.operations.memories import Locate

        unknown: NotFoundError | None = None
        for each in self.patches:
            try:
                return str((await ask(Locate(str(each["memory_id"]))))["scope"])
            except NotFoundError as error:
                unknown = unknown or error
        raise unknown or RequestError("there is nothing to change")


class Correct(Write[Change]):
    """Replace a memory's text with a correct one; its history keeps the previous state.

    Example: palimpsest correct 1f0c9a52 "Ana lives in Porto"
    """

    memory_id: shared.MemoryId
    content: Annotated[str, shared.text_doc("what it should say", argument=True)]
    reason: shared.RequiredReason = "corrected"
    if_version: shared.IfVersion = None
    scope: shared.ScopeOfId = None

    surface: ClassVar = _CHANGE(
        ("POST", "/api/memory/{memory_id}/correct"),
        command="correct",
        tool="correct_fact",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        return _modify(self, content=self.content)


class _OneMemory(Write[Change]):
    """Base of the changes of one memory."""

    memory_id: shared.MemoryId
    reason: shared.Reason = ""
    if_version: shared.IfVersion = None
    scope: shared.ScopeOfId = None


class Pin(_OneMemory):
    """Pin a memory: machines may not change or forget it, and its importance is 1 while pinned.

    Example: palimpsest pin 1f0c9a52
    """

    reason: shared.Reason = "pinned"

    surface: ClassVar = _CHANGE(("POST", "/api/memory/{memory_id}/pin"), command="pin")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        return _modify(self, pinned=True)


class Unpin(_OneMemory):
    """Unpin a memory: machines may change and forget it again.

    Example: palimpsest unpin 1f0c9a52
    """

    reason: shared.Reason = "unpinned"

    surface: ClassVar = _CHANGE(("POST", "/api/memory/{memory_id}/unpin"), command="unpin")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        return _modify(self, pinned=False)


class Confirm(_OneMemory):
    """Confirm a memory: it no longer decays, and machines may not change it.

    Example: palimpsest confirm 1f0c9a52
    """

    body: ClassVar = "ConfirmCommand"
    surface: ClassVar = _CHANGE(
        ("POST", "/api/memory/{memory_id}/confirm"),
        command="confirm",
        panel="Explain and review",
        tool="confirm_fact",
    )


class Recover(_OneMemory):
    """Recover a forgotten memory.

    Example: palimpsest recover 1f0c9a52
    """

    body: ClassVar = "RecoverCommand"
    surface: ClassVar = _CHANGE(
        ("POST", "/api/memory/{memory_id}/recover"), command="recover", permission="recover"
    )
