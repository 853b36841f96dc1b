"""Pending changes, for a person to apply or dismiss."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Ask, Doc, Json, Read, Surface, Texts, Write
from palimpsest.ops.reading.rows import SHORTEST_ID, all_rows, at_own_clock
from palimpsest.stores.recall.query import IS_PENDING

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

_REVIEW = partial(
    Surface,
    tag="proposals",
    panel="Explain and review",
    permission="modify",
    routing="any",
    rate="modify",
)

MOST = 200
"""Maximum number of proposals in one command."""


class PendingProposal(Answer):
    """A change of a memory that awaits review. `state` is `ready`, or what has become of the
    memory: it is gone, says something else since, or is pinned. The evidence is the `turn` from
    which `model` extracted the fact, said by `who`; None if it is no longer stored."""

    id: str
    scope: str
    action: str
    memory_id: str
    memory: str | None
    fact: str
    reason: str
    confidence: float
    occurred_at: datetime
    held_at: datetime
    state: Literal["ready", "target_gone", "version_conflict", "pinned"]
    model: str
    turn_id: str
    turn: str | None
    who: str | None


class PendingProposals(Answer):
    """Changes awaiting review, in the order in which their facts were stated, without those whose
    turn was forgotten."""

    proposals: tuple[PendingProposal, ...]


class Proposals(Read[PendingProposals]):
    """List the proposed updates and deletes that await review, oldest first.

    Example: palimpsest proposals list --scope support
    """

    scope: shared.AnyScope = None
    ids: Annotated[
        Texts,
        shared.some_ids_doc("only these ids, or their first 8 characters", max_length=MOST),
    ] = ()
    limit: shared.LongLimit = 50

    surface: ClassVar = Surface(
        ("GET", "/api/proposals"),
        tag="proposals",
        command="proposals list",
        panel="Explain and review",
    )
    order: ClassVar = ("occurred_at", "id")

    def read(self, sources: Sources) -> Json:
        parameters = {"scope": self.scope, "ids": [*self.ids], "limit": self.limit}
        found = map(at_own_clock, all_rows(sources, _PENDING, parameters))
        return self.merge([{"proposals": [*found]}])


_PENDING = f"""
SELECT h.item_id AS id, h.scope, h.action, h.target_id AS memory_id,
    CASE WHEN NOT m.is_deleted THEN m.content END AS memory,
    h.content AS fact, h.reason, h.confidence, h.occurred_at, h.recorded_at AS held_at,
    CASE WHEN m.memory_id IS NULL OR m.is_deleted THEN 'target_gone'
         WHEN m.content <> (SELECT arg_min(a.content, a.version) FROM archived_states a
             WHERE a.memory_id = m.memory_id AND a.version >= coalesce(h.target_version, 1))
         THEN 'version_conflict'
         WHEN m.pinned THEN 'pinned' ELSE 'ready' END AS state,
    h.model, h.turn_memory_id AS turn_id, t.content AS turn, t.who, t.utc_offset_minutes
FROM held_proposals h
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id
LEFT JOIN memory_rows m ON m.memory_id = h.target_id
LEFT JOIN memory_rows t ON t.memory_id = h.turn_memory_id AND t.scope = h.scope AND NOT t.is_deleted
WHERE {IS_PENDING} AND coalesce(h.scope = $scope, true)
  AND (len($ids) = 0 OR list_contains($ids, h.item_id) OR len(list_filter($ids,
      lambda prefix: len(prefix) >= {SHORTEST_ID} AND starts_with(h.item_id, prefix))) > 0)
ORDER BY h.occurred_at, h.item_id LIMIT $limit
"""


class ReviewedProposal(Answer, kw_only=True):
    """The outcome of a proposal, and its memory."""

    id: str
    status: str
    memory_id: str | None = None
    why: str = ""


class ReviewedProposals(Applied, kw_only=True):
    """The outcome of each proposal, in order."""

    changes: tuple[ReviewedProposal, ...]


Ids = Annotated[
    Texts, shared.ids_doc("ids of proposals, or their first 8 characters", max_length=MOST)
]
All = Annotated[
    bool, Doc(f"all pending ones, the oldest {MOST} of one scope at a time", option="--all")
]


class Reviewing(Write[ReviewedProposals]):
    """Base of applying and dismissing: selects the proposals."""

    ids: Ids = ()
    all: All = False
    scope: shared.AnyScope = None

    def validate(self) -> None:
        if bool(self.ids) == self.all:
            raise RequestError("name the proposals by their ids, or say all")

    async def scope_of(self, ask: Ask) -> str:
        return str((await self._pending(ask))[0]["scope"])

    async def _pending(self, ask: Ask) -> list[dict[str, Any]]:
        """The selected proposals, all of one scope. Raises NotFoundError and RequestError."""
        found = (await ask(Proposals(self.scope, self.ids, 10_000)))["proposals"]
        for prefix in self.ids:
            matches = [row for row in found if row["id"].startswith(prefix)]
            if not matches:
                raise NotFoundError(
                    f"{prefix} does not wait for review;"
                    " `palimpsest proposals list` shows what does"
                )
            if len(matches) > 1:
                raise RequestError(f"more than one proposal begins with {prefix}; write more of it")
        if not found:
            raise NotFoundError("no proposal waits for review")
        scopes = sorted({row["scope"] for row in found})
        if len(scopes) > 1:
            raise RequestError(
                f"these proposals lie in several scopes; name one of {', '.join(scopes)}"
            )
        return list(found[:MOST])

    async def _ids(self, ask: Ask) -> tuple[str, ...]:
        return tuple(str(row["id"]) for row in await self._pending(ask))


class ApplyProposals(Reviewing):
    """Apply pending changes. A statement older than the memory becomes what held until then; one
    whose memory is gone, or says something else since, beside which it may hold, becomes a memory
    of its own. Any other memory that says something else since stays unchanged.

    Example: palimpsest proposals apply 5b1f22aa --reason "she did move"
    """

    reason: shared.RequiredReason = "applied by hand"
    force: Annotated[
        bool,
        Doc(
            "also change pinned memories, those that say something else since, and by older"
            " statements",
            option="--force",
        ),
    ] = False

    surface: ClassVar = _REVIEW(("POST", "/api/proposals/apply"), command="proposals apply")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import ApplyProposalsCommand

        ids = await self._ids(ask)
        return ApplyProposalsCommand(item_ids=ids, reason=self.reason, force=self.force)


class DismissProposals(Reviewing):
    """Dismiss pending changes; the memories stay unchanged.

    Example: palimpsest proposals dismiss 5b1f22aa --reason "it was a joke"
    """

    reason: shared.RequiredReason = "dismissed by hand"

    surface: ClassVar = _REVIEW(("POST", "/api/proposals/dismiss"), command="proposals dismiss")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import DismissProposalsCommand

        return DismissProposalsCommand(item_ids=await self._ids(ask), reason=self.reason)
