"""Forgetting and erasing memories, with previews."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied, Change, Changes
from palimpsest.ops.operations.operation import Answer, Ask, Doc, Json, Rate, Read, Surface, Write
from palimpsest.ops.operations.selection import ForgetPreview, PreviewForget, Selection
from palimpsest.ops.reading.rows import rows

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

_FORGET = partial(Surface, panel="Change", permission="forget", rate="batch_forget")

Force = Annotated[bool, Doc("also pinned ones", option="--force")]
ConfirmToken = Annotated[str | None, Doc("the `confirm_token` of a preview", option="--confirm")]
Mode = Annotated[
    Literal["preview", "execute"] | None,
    Doc(
        "`preview` shows the memories and a confirmation token, and changes nothing; by default,"
        " ids or a confirmation token execute, and anything else is a preview"
    ),
]


class Counted(Answer):
    """How many memories a scope holds, including forgotten ones, and the token to erase them."""

    scope: str
    memories: int
    confirm_token: str


class PreviewEraseScope(Read[Counted]):
    """Count the memories of a scope and return the token that confirms erasing it."""

    scope: shared.Scope = ""

    surface: ClassVar = Surface(("POST", "/api/memory/erase-scope/preview"), permission="forget")

    def read(self, sources: Sources) -> Json:
        from palimpsest.schemas.identity import erase_token

        [found] = rows(
            sources.shard_of(self.scope),
            "SELECT count(*) AS memories FROM memory_rows WHERE scope = ? AND content_hash <> ''",
            [self.scope],
        )
        token = erase_token(self.scope, found["memories"])
        return {"scope": self.scope, "memories": found["memories"], "confirm_token": token}


class Forgetting(Selection, Write[Changes | ForgetPreview]):
    """Base of forget and erase: the command for a selection."""

    reason: shared.Reason = ""
    mode: Mode = None
    force: Force = False
    if_version: shared.IfVersion = None
    confirm_token: ConfirmToken = None
    hard: ClassVar[bool] = False

    @property
    def is_executed(self) -> bool:
        is_exact = self.is_by_ids or self.confirm_token is not None
        return self.mode == "execute" or (self.mode is None and is_exact)

    def validate(self) -> None:
        self.check_selection()
        if self.is_executed and not self.reason.strip():
            raise RequestError("a reason is needed to forget; it is kept in the history")
        if self.if_version is not None and not (self.is_by_ids and len(self.memory_ids) == 1):
            raise RequestError("if_version is for one memory by its id")

    def instead(self) -> PreviewForget | None:
        if self.is_executed:
            return None
        return PreviewForget(**self.selected(), hard=self.hard)

    def counts_against(self) -> Rate | None:
        is_one = self.is_by_ids and len(self.memory_ids) == 1 and not self.cascade
        return "delete" if is_one and self.is_executed else Write.counts_against(self)

    async def command(self, ask: Ask, settings: Settings) -> Command:
        """The command for the memories that the selection matches now; it applies only while they
        are unchanged. Raises CommandError if nothing matches, if so many match that a preview's
        token is required, and if the token is for other memories."""
        from palimpsest.schemas.commands import ForgetCommand

        ids, token = await self._ids(ask)
        return ForgetCommand(
            memory_ids=ids,
            reason=self.reason,
            force=self.force,
            if_version=self.if_version,
            cascade=self.cascade or None,
            confirm_token=token,
            hard=self.hard or None,
        )

    async def _ids(self, ask: Ask) -> tuple[tuple[str, ...], str | None]:
        """The selected ids, with their token. A few memories named by id need no preview: the
        result has the outcome of each."""
        from palimpsest.ops.errors import CommandError
        from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED

        # A request repeated under its key may arrive when the memories are already forgotten.
        few = len(self.memory_ids) <= FORGOTTEN_UNCONFIRMED and self.confirm_token is None
        if self.is_by_ids and (few or self.key is not None):
            return tuple(self.memory_ids), self.confirm_token
        preview = await ask(PreviewForget(**self.selected(), hard=self.hard))
        candidates, token = preview["candidates"], self.confirm_token
        if not candidates:
            raise CommandError("not_found", f"nothing in scope {self.scope} matches")
        if token is None and preview["needs_confirmation"]:
            count = f"more than {len(candidates)}" if preview["more"] else str(len(candidates))
            raise CommandError(
                "confirmation_required",
                f"{count} memories match; look at a preview and give its token to confirm",
            )
        if token not in (None, preview["confirm_token"]):
            raise CommandError(
                "confirm_mismatch",
                "the token is for other memories than match now, or for other versions of them;"
                " look at a new preview and confirm that",
            )
        return tuple(str(row["id"]) for row in preview["candidates"]), str(preview["confirm_token"])


class Forget(Forgetting):
    """Forget memories: they are hidden at once and recoverable for a while.

    Select them by ids, or in a scope by a question or filters. A question or filters return a
    preview, which `mode` execute or the preview's token carries out. More than 25 memories need the
    token, which forgets nothing if any of them has changed since the preview.

    Example: palimpsest forget 1f0c9a52 --reason "Ana took it back"
    """

    surface: ClassVar = _FORGET(("POST", "/api/memory/forget"), command="forget")


class Erase(Forgetting):
    """Erase the texts of memories permanently: from the stores, their files and the embedded log.

    The tables are erased at once, the files a moment later: `erasure` says whether that is done.
    Forgotten memories can be erased, too.

    Example: palimpsest erase 1f0c9a52 --cascade --reason "Ana asked for it"
    """

    hard: ClassVar[bool] = True
    patience: ClassVar[float] = 60.0

    surface: ClassVar = _FORGET(("POST", "/api/memory/erase"), command="erase")


class ForgetOne(Write[Change]):
    """Forget one memory: it is hidden at once and recoverable for a while; `hard` erases it."""

    memory_id: shared.MemoryId
    reason: shared.RequiredReason
    force: Force = False
    hard: Annotated[bool, Doc("erase its text permanently")] = False
    if_version: shared.IfVersion = None
    scope: shared.ScopeOfId = None
    self_taught: Annotated[
        bool,
        Doc(
            "by an agent unprompted, which the scope must allow; only what one wrote so",
            surfaces=("library",),
        ),
    ] = False

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
            self_taught=self.self_taught or None,
        )


class ErasedScope(Applied, kw_only=True):
    """How many memories of a scope were erased."""

    status: str
    memories: int


class EraseScope(Write[ErasedScope | Counted]):
    """Erase everything in a scope permanently; this needs the token of its preview.

    Example: palimpsest erase-scope support --confirm scope-3f9c21 --reason "she left"
    """

    scope: shared.NamedScope
    reason: shared.Reason = ""
    mode: Mode = None
    confirm_token: ConfirmToken = None
    memories: Annotated[
        int | None,
        Doc("how many memories it holds, including forgotten ones, instead of a token", ge=0),
    ] = None
    patience: ClassVar[float] = 60.0

    surface: ClassVar = _FORGET(
        ("POST", "/api/memory/erase-scope"), command="erase-scope", also="admin"
    )

    @property
    def is_executed(self) -> bool:
        is_exact = self.confirm_token is not None or self.memories is not None
        return self.mode == "execute" or (self.mode is None and is_exact)

    def validate(self) -> None:
        if not self.is_executed:
            return
        if not self.reason.strip():
            raise RequestError("a reason is needed to erase; it is kept in the history")
        if (self.confirm_token is None) == (self.memories is None):
            raise RequestError(
                "to erase a whole scope, look at a preview of it and give its confirm_token, or how"
                " many memories it holds"
            )

    def instead(self) -> PreviewEraseScope | None:
        return None if self.is_executed else PreviewEraseScope(self.scope)

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import EraseScopeCommand
        from palimpsest.schemas.identity import erase_token

        token = self.confirm_token
        if token is None:
            token = erase_token(self.scope, cast("int", self.memories))
        return EraseScopeCommand(reason=self.reason, confirm_token=token)
