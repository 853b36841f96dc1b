"""Changing what is remembered: remembering, correcting, forgetting, erasing, recovering."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations.answers import Change, Changes
from palimpsest.ops.operations.operation import (
    AnyScope,
    Ask,
    Doc,
    IfVersion,
    Json,
    MemoryId,
    Read,
    Reason,
    RequiredReason,
    Scope,
    ScopeOfId,
    Surface,
    Texts,
    Write,
)
from palimpsest.ops.queries.errors import NotFoundError, RequestError

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command, MemoryPatch

Content = Annotated[
    str,
    Doc("the text", min_length=1, max_length=100_000, not_blank=True, argument=True),
]
NewContent = Annotated[
    str | None, Doc("the new text", min_length=1, max_length=100_000, not_blank=True)
]
NewType = Annotated[str | None, Doc("the new type", min_length=1, max_length=256)]
Importance = Annotated[float | None, Doc("from 0 to 1; else 0.8", ge=0, le=1)]
NewTags = Annotated[Texts | None, Doc("the new tags, all of them", max_length=50, item_length=256)]
Owner = Annotated[str | None, Doc("whose memory it is", min_length=1, max_length=256)]
SelfTaught = Annotated[
    bool,
    Doc("on an agent's own, which the scope must allow", surfaces=("library",)),
]


@dataclass(frozen=True, slots=True)
class Remember(Write[Change]):
    """Remember a text. `critical:` before it pins it, `[a,b]:` tags it.

    A text that is known already is not kept twice: `deduped`.

    Example: palimpsest remember "Ana is allergic to peanuts" --scope support --pinned
    """

    content: Content
    scope: Scope = ""
    type: Annotated[
        str | None, Doc("its type; else inferred from its words", min_length=1, max_length=256)
    ] = None
    importance: Importance = None
    tags: Annotated[Texts, Doc("its tags", max_length=50, item_length=256)] = ()
    pinned: Annotated[bool, Doc("no machine may change it", option="--pinned")] = False
    who: Owner = None
    project: Annotated[
        str | None, Doc("the project that it belongs to", min_length=1, max_length=256)
    ] = None
    session_id: Annotated[str, Doc("the session that it belongs to", max_length=256)] = ""
    source_type: Annotated[
        str,
        Doc("where the text is from", min_length=1, max_length=256, surfaces=("http", "library")),
    ] = "manual"
    source_id: Annotated[
        str | None, Doc("its id there", max_length=512, surfaces=("http", "library"))
    ] = None
    structured: Annotated[
        dict[str, Any] | None,
        Doc(
            "entities, attributes and relations that the graph takes with it",
            surfaces=("http", "library"),
            model="palimpsest.schemas.commands:Structure",
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any], Doc("kept with it as it is", surfaces=("http", "library"))
    ] = field(default_factory=dict)
    self_taught: SelfTaught = False
    lineage: Annotated[
        int | None, Doc("that of the agent's persona", ge=0, surfaces=("library",))
    ] = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/remember"),
        command="remember",
        panel="Change",
        permission="remember",
        tool="remember_fact",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import RememberCommand

        given = {
            name: getattr(self, name)
            for name in ("content", "type", "importance", "tags", "pinned", "who", "project")
        }
        given |= {name: getattr(self, name) for name in ("session_id", "source_type", "source_id")}
        given |= {"structured": self.structured, "metadata": self.metadata}
        given |= {"self_taught": self.self_taught or None, "lineage": self.lineage}
        unset = {each.name for each in fields(self) if getattr(self, each.name) == each.default}
        return RememberCommand.model_validate(
            {
                name: value
                for name, value in given.items()
                if name not in unset and value is not None
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patching(Write[Change]):
    """What changes one memory. The state before stays in its history."""

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import ModifyCommand

        patch = self.patch()
        reason = str(getattr(self, "reason", ""))
        self_taught = bool(getattr(self, "self_taught", False)) or None
        return ModifyCommand(patches=(patch,), reason=reason, self_taught=self_taught)

    def patch(self) -> MemoryPatch:
        raise NotImplementedError


def patch_of(operation: Any, **changes: Any) -> MemoryPatch:
    from palimpsest.schemas.commands import MemoryPatch

    version = operation.if_version
    return MemoryPatch(memory_id=operation.memory_id, if_version=version, **changes)


@dataclass(frozen=True, slots=True)
class Modify(Patching):
    """Change one memory; the state before stays in its history.

    Example: palimpsest modify 1f0c9a52 --content "Ana lives in Porto" --reason "she moved"
    """

    memory_id: MemoryId
    reason: RequiredReason
    content: NewContent = None
    type: NewType = None
    importance: Annotated[float | None, Doc("the new importance, from 0 to 1", ge=0, le=1)] = None
    tags: NewTags = None
    pinned: Annotated[bool | None, Doc("pin it, or no longer")] = None
    who: Owner = None
    if_version: IfVersion = None
    scope: ScopeOfId = None
    self_taught: SelfTaught = False

    surface: ClassVar = Surface(
        ("PATCH", "/api/memory/{memory_id}"),
        command="modify",
        panel="Change",
        permission="modify",
        routing="id",
        rate="modify",
    )

    def validate(self) -> None:
        if all(value is None for value in self._changes().values()):
            raise RequestError(
                "nothing to change; name at least one of content, type, importance, tags, pinned,"
                " who"
            )

    def _changes(self) -> dict[str, Any]:
        names = ("content", "type", "importance", "tags", "pinned", "who")
        return {name: getattr(self, name) for name in names}

    def patch(self) -> MemoryPatch:
        return patch_of(self, **self._changes())


@dataclass(frozen=True, slots=True)
class ModifyMany(Write[Changes]):
    """Change up to 200 memories of a scope, each on its own: `changes` says what became of each."""

    patches: Annotated[
        tuple[dict[str, Any], ...],
        Doc(
            "what to change: `memory_id`, the fields to set, `if_version` and a `reason` each",
            min_length=1,
            max_length=200,
            model="palimpsest.ops.operations.patches:Patch",
        ),
    ]
    scope: AnyScope = None
    reason: Annotated[
        str | None, Doc("why, for those without one of their own", min_length=1, max_length=2_000)
    ] = None

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

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import ModifyCommand

        given = {"patches": self.patches, "reason": self.reason or ""}
        return ModifyCommand.model_validate(given)


@dataclass(frozen=True, slots=True)
class Correct(Patching):
    """Replace what a memory says by what is right; the state before stays in its history.

    Example: palimpsest correct 1f0c9a52 "Ana lives in Porto"
    """

    memory_id: MemoryId
    content: Annotated[
        str,
        Doc("what it should say", min_length=1, max_length=100_000, not_blank=True, argument=True),
    ]
    reason: RequiredReason = "corrected"
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/{memory_id}/correct"),
        command="correct",
        panel="Change",
        permission="modify",
        routing="id",
        rate="modify",
        tool="correct_fact",
    )

    def patch(self) -> MemoryPatch:
        return patch_of(self, content=self.content)


@dataclass(frozen=True, slots=True)
class Pin(Patching):
    """Pin a memory: no machine may change or forget it, and its importance does not decay.

    Example: palimpsest pin 1f0c9a52
    """

    memory_id: MemoryId
    reason: Reason = "pinned"
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/{memory_id}/pin"),
        command="pin",
        panel="Change",
        permission="modify",
        routing="id",
        rate="modify",
    )

    def patch(self) -> MemoryPatch:
        return patch_of(self, pinned=True)


@dataclass(frozen=True, slots=True)
class Unpin(Patching):
    """Unpin a memory: machines may change and forget it again.

    Example: palimpsest unpin 1f0c9a52
    """

    memory_id: MemoryId
    reason: Reason = "unpinned"
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/{memory_id}/unpin"),
        command="unpin",
        panel="Change",
        permission="modify",
        routing="id",
        rate="modify",
    )

    def patch(self) -> MemoryPatch:
        return patch_of(self, pinned=False)


@dataclass(frozen=True, slots=True)
class Confirm(Write[Change]):
    """Confirm a memory: it no longer decays, and no machine may change it.

    Example: palimpsest confirm 1f0c9a52
    """

    memory_id: MemoryId
    reason: Reason = ""
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/{memory_id}/confirm"),
        command="confirm",
        panel="Explain and review",
        permission="modify",
        routing="id",
        rate="modify",
        tool="confirm_fact",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import ConfirmCommand

        return ConfirmCommand(
            memory_id=self.memory_id, reason=self.reason, if_version=self.if_version
        )


@dataclass(frozen=True, slots=True)
class Recover(Write[Change]):
    """Recover a forgotten memory.

    Example: palimpsest recover 1f0c9a52
    """

    memory_id: MemoryId
    reason: Reason = ""
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("POST", "/api/memory/{memory_id}/recover"),
        command="recover",
        panel="Change",
        permission="recover",
        routing="id",
        rate="modify",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import RecoverCommand

        return RecoverCommand(
            memory_id=self.memory_id, reason=self.reason, if_version=self.if_version
        )


# ---- the results of commands ----
@dataclass(frozen=True, slots=True)
class CommandState:
    """What became of a command. `applied` is false while it is pending, and where it was refused:
    then `error` begins with why, and a colon. Where it erased texts, `erasure` says whether files
    may still hold them."""

    command_id: str
    scope: str
    applied: bool
    command: str | None = None
    error: str | None = None
    result: Any = None
    recorded_at: datetime | None = None
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult(Read[CommandState | None]):
    """Show the result of a command, given here or published by another program; null while it is
    pending.

    Example: palimpsest result 0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11
    """

    command_id: Annotated[
        str, Doc("the command's id", min_length=1, max_length=256, argument=True, metavar="ID")
    ]
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("GET", "/api/commands/{command_id}"),
        tag="commands",
        command="result",
        panel="Explain and review",
        routing="any",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.command_results import command_result

        return command_result(sources, self.command_id)

    def merge(self, answers: Any) -> Json:
        return next((answer for answer in answers if answer is not None), None)


# ---- what became of turns ----
@dataclass(frozen=True, slots=True)
class TurnResult:
    """What became of a published turn: it was stored as the memory `memory_id`, rejected, or is a
    dead letter, for this `reason`."""

    item_id: str
    status: Literal["stored", "rejected", "dead_letter"]
    memory_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class SettledTurns:
    """Those of the turns that are settled."""

    turns: tuple[TurnResult, ...]


@dataclass(frozen=True, slots=True)
class TurnResults(Read[SettledTurns]):
    """Return what became of published turns; those that are pending are left out."""

    item_ids: Annotated[
        Texts, Doc("their ids in the balance (view `pipeline_items`)", max_length=1_000)
    ]
    scope: Scope = ""

    surface: ClassVar = Surface()

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.turn_results import turn_results

        return turn_results(sources, self.scope, self.item_ids)
