"""Changing what is remembered: remembering, correcting, forgetting, erasing, recovering."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from palimpsest.ops.operations.answers import Applied, Change, Changes
from palimpsest.ops.operations.operation import (
    AnyScope,
    Ask,
    Doc,
    IfVersion,
    Json,
    MemoryId,
    MinScore,
    Rate,
    Read,
    Reason,
    RequiredReason,
    Roles,
    Scope,
    ScopeOfId,
    Since,
    Surface,
    Tags,
    Texts,
    Types,
    Until,
    Who,
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


# ---- forgetting and erasing ----
@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that would be forgotten; `score` where a question found it. `drawn_from` are the
    memories because of which it would go."""

    id: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_type: str
    tags: tuple[str, ...]
    pinned: bool
    version: int
    occurred_at: datetime
    score: float | None = None
    drawn_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenText:
    """A text in which what is forgotten would be hidden; `left` is what would be shown of it, None
    for nothing."""

    id: str
    content: str
    left: str | None


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """What would be forgotten (`candidates`), and what was drawn from that and nothing else
    (`cascade`); `hides` are the texts in which it would be hidden. `more`: further ones match.
    `needs_confirmation`: they are so many that `forget` wants the `confirm_token`, which stands for
    these memories in these versions."""

    scope: str
    candidates: tuple[Candidate, ...]
    cascade: tuple[Candidate, ...]
    not_found: tuple[str, ...]
    more: bool
    needs_confirmation: bool
    confirm_token: str
    hides: tuple[HiddenText, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Those of the candidates, as `forget` takes them."""
        return tuple(each.id for each in self.candidates)


MemoryIds = Annotated[
    Texts,
    Doc(
        "ids of memories, or their first 8 characters (whole over HTTP)",
        max_length=200,
        item_length=64,
        argument=True,
        metavar="ID…",
    ),
]
Cascade = Annotated[bool, Doc("also what was drawn from nothing else", option="--cascade")]
Force = Annotated[bool, Doc("also pinned ones", option="--force")]
ConfirmToken = Annotated[str | None, Doc("the `confirm_token` of a preview", option="--confirm")]
Mode = Annotated[
    Literal["preview", "execute"],
    Doc(
        "`preview` changes nothing: it shows what would go, with the token that confirms it",
        switch=("--preview", "preview"),
    ),
]
Query = Annotated[
    str | None,
    Doc("what is found for this question", min_length=1, max_length=100_000, not_blank=True),
]
SourceType = Annotated[str | None, Doc("of this kind of source", min_length=1, max_length=256)]
Limit = Annotated[
    int | None, Doc("maximum number of memories; else 200, and 20 of a question", ge=1, le=200)
]


CRITERIA = ("query", "types", "tags", "who", "roles", "source_type", "since", "until")
"""What memories can be chosen by, beside ids."""


@dataclass(frozen=True)
class Selection:
    """What to forget: by ids, by a question, or by what all other fields say."""

    memory_ids: MemoryIds = ()
    scope: Scope = ""
    query: Query = None
    types: Types = ()
    tags: Tags = ()
    who: Who = None
    roles: Roles = ()
    min_score: MinScore = None
    source_type: SourceType = None
    since: Since = None
    until: Until = None
    limit: Limit = None
    cascade: Cascade = False

    def check_selection(self) -> None:
        """Raise RequestError where nothing is said that memories could be chosen by."""
        if not self.memory_ids and not any(getattr(self, name) for name in CRITERIA):
            raise RequestError(
                "nothing says what to forget; name ids, a question, or a type, tag, person, role,"
                " source type or time"
            )

    @property
    def is_by_ids(self) -> bool:
        """Whether memories are named and nothing else, so that none has to be searched for."""
        return bool(self.memory_ids) and not any(getattr(self, name) for name in CRITERIA)

    def selected(self) -> dict[str, Any]:
        """The fields of the selection."""
        return {each.name: getattr(self, each.name) for each in fields(Selection)}


@dataclass(frozen=True, slots=True)
class PreviewForget(Selection, Read[ForgetPreview]):
    """Show what forgetting would forget, with the token that confirms it.

    The token is for exactly these memories in these versions, with `cascade` also for those that
    would go with them. `hard`: what erasing would erase, also of what was forgotten before.
    """

    hard: Annotated[bool, Doc("what erasing would erase")] = False

    surface: ClassVar = Surface(("POST", "/api/memory/forget/preview"), permission="forget")

    def validate(self) -> None:
        self.check_selection()

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.forgetting import preview

        return await preview(sources, self)


@dataclass(frozen=True, slots=True)
class Counted:
    """How many memories a scope holds, forgotten ones among them, and the token to erase them."""

    scope: str
    memories: int
    confirm_token: str


@dataclass(frozen=True, slots=True)
class PreviewEraseScope(Read[Counted]):
    """Count what a scope holds, with the token that confirms erasing it."""

    scope: Scope = ""

    surface: ClassVar = Surface(("POST", "/api/memory/erase-scope/preview"), permission="forget")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.forgetting import count

        return count(sources, self.scope)


@dataclass(frozen=True, slots=True)
class Forgetting(Selection, Write[Changes]):
    """What forget and erase share: the command for a selection."""

    reason: Reason = ""
    mode: Mode = "execute"
    force: Force = False
    if_version: IfVersion = None
    confirm_token: ConfirmToken = None
    hard: ClassVar[bool] = False

    def validate(self) -> None:
        self.check_selection()
        if self.mode == "execute" and not self.reason.strip():
            raise RequestError("a reason is needed to forget; it is kept in the history")
        if self.if_version is not None and not (self.is_by_ids and len(self.memory_ids) == 1):
            raise RequestError("if_version is for one memory by its id")

    def instead(self) -> PreviewForget | None:
        if self.mode == "execute":
            return None
        return PreviewForget(**self.selected(), hard=self.hard)

    def counts_against(self) -> Rate | None:
        is_one = self.is_by_ids and len(self.memory_ids) == 1 and not self.cascade
        return "delete" if is_one and self.mode == "execute" else Write.counts_against(self)

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.ops.forgetting import forget_command

        return await forget_command(ask, self)


@dataclass(frozen=True, slots=True)
class Forget(Forgetting):
    """Forget memories: hidden at once, recoverable for a while.

    By ids, or in a scope by a question or by filters. More than 25 at once need the token of a
    preview; with a token nothing is forgotten unless all is still as the preview showed it.

    Example: palimpsest forget 1f0c9a52 --reason "Ana took it back"
    """

    surface: ClassVar = Surface(
        ("POST", "/api/memory/forget"),
        command="forget",
        panel="Change",
        permission="forget",
        rate="batch_forget",
    )


@dataclass(frozen=True, slots=True)
class Erase(Forgetting):
    """Erase what memories say, for good: from the stores, their files and the embedded log.

    It leaves all tables at once, and the files a moment later: `erasure` says whether that is done.
    What was forgotten before can be erased, too.

    Example: palimpsest erase 1f0c9a52 --cascade --reason "Ana asked for it"
    """

    hard: ClassVar[bool] = True
    patience: ClassVar[float] = 60.0

    surface: ClassVar = Surface(
        ("POST", "/api/memory/erase"),
        command="erase",
        panel="Change",
        permission="forget",
        rate="batch_forget",
    )


@dataclass(frozen=True, slots=True)
class ForgetOne(Write[Change]):
    """Forget one memory: hidden at once, recoverable for a while; with `hard`, erase it."""

    memory_id: MemoryId
    reason: RequiredReason
    force: Force = False
    hard: Annotated[bool, Doc("erase what it says, for good")] = False
    if_version: IfVersion = None
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("DELETE", "/api/memory/{memory_id}"),
        permission="forget",
        routing="id",
        rate="delete",
        tool="forget_fact",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import ForgetCommand

        return ForgetCommand(
            memory_ids=(self.memory_id,),
            reason=self.reason,
            force=self.force,
            if_version=self.if_version,
            hard=self.hard or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedScope(Applied):
    """How many memories of a scope were erased."""

    status: str
    memories: int


@dataclass(frozen=True, slots=True)
class EraseScope(Write[ErasedScope]):
    """Erase all that a scope holds, for good; it needs the token of a preview of it.

    Example: palimpsest erase-scope support --confirm scope-3f9c21 --reason "she left"
    """

    scope: Annotated[
        str, Doc("the memory space", min_length=1, max_length=256, not_blank=True, argument=True)
    ]
    reason: Reason = ""
    mode: Mode = "execute"
    confirm_token: ConfirmToken = None
    memories: Annotated[
        int | None,
        Doc("how many it holds, forgotten ones among them, in place of a token", ge=0),
    ] = None
    patience: ClassVar[float] = 60.0

    surface: ClassVar = Surface(
        ("POST", "/api/memory/erase-scope"),
        command="erase-scope",
        panel="Change",
        permission="forget",
        also="admin",
        rate="batch_forget",
    )

    def validate(self) -> None:
        if self.mode == "preview":
            return
        if not self.reason.strip():
            raise RequestError("a reason is needed to erase; it is kept in the history")
        if (self.confirm_token is None) == (self.memories is None):
            raise RequestError(
                "to erase a whole scope, look at a preview of it and give its confirm_token, or how"
                " many memories it holds"
            )

    def instead(self) -> PreviewEraseScope | None:
        return PreviewEraseScope(self.scope) if self.mode == "preview" else None

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import EraseScopeCommand
        from palimpsest.schemas.identity import erase_token

        token = self.confirm_token
        if token is None:
            token = erase_token(self.scope, cast("int", self.memories))
        return EraseScopeCommand(reason=self.reason, confirm_token=token)


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

        return command_result(sources, self)

    def merge(self, answers: Any) -> Json:
        return next((answer for answer in answers if answer is not None), None)
