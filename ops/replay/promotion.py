"""Promotes a branch, scope by scope, and rolls promotions back."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, cast

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.opening import publisher
from palimpsest.ops.reading.rows import SHORTEST_ID
from palimpsest.ops.replay.branches import (
    BranchManifest,
    check_log,
    keep_branch,
    locked,
    read_branch,
    records_behind,
)
from palimpsest.ops.replay.diff import scope_diffs
from palimpsest.ops.replay.differences import FactDifference, Record, ScopeDiff, rows_of
from palimpsest.ops.replay.log_reading import reading_log
from palimpsest.ops.replay.reextraction import reextract
from palimpsest.ops.replay.requests import (
    Promote,
    Reextract,
    ReplayProgress,
    Report,
    Rollback,
    unreported,
)
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.commanding import CommandRequest, Commands, commands_of
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import PromoteCommand, RollbackPromotionCommand
from palimpsest.schemas.envelope import Frozen, Triple, derived_id
from palimpsest.schemas.promotions import (
    GainChange,
    KeepChange,
    LoseChange,
    PromotedFact,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)
from palimpsest.streams.text.counts import counted

_PROMOTIONS: Final = "SELECT * FROM promotions ORDER BY recorded_at DESC, promotion_id, scope"


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The result of one scope. `status`: `planned` (dry run), `nothing` to do, `applied`,
    `rolled-back`, `waiting` for a worker, or `refused` with an `error`. `counts` are by kind of
    change, `kept_because` by the reason for keeping; `losses` are the facts that the live memory
    would lose, if nothing was changed yet."""

    scope: str
    status: str
    counts: dict[str, int] = field(default_factory=dict)
    kept_because: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromotionEnd:
    """The result of a promotion or of its rollback. `behind` counts the records of the live log
    that the branch had not read."""

    promotion_id: str
    branch: str
    scopes: tuple[ScopeEnd, ...]
    behind: int = 0

    @property
    def complete(self) -> bool:
        return all(each.status not in ("waiting", "refused") for each in self.scopes)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "complete": self.complete}


async def rollback(
    settings: Settings, request: Rollback, report: Report = unreported
) -> PromotionEnd:
    """Undoes a promotion in all its scopes, each atomically; later changes stay. Raises
    NotFoundError for an unknown promotion, RequestError for an ambiguous prefix of an id and while
    another promotion or rollback is running."""
    is_prefix = len(request.promotion) >= SHORTEST_ID
    with alone(settings):
        async with queries(settings) as live:
            found = [
                row
                for row in await rows_of(live, _PROMOTIONS)
                if row["promotion_id"] == request.promotion
                or (is_prefix and row["promotion_id"].startswith(request.promotion))
            ]
        ids = sorted({row["promotion_id"] for row in found})
        if not ids:
            raise NotFoundError(
                f"there is no promotion {request.promotion}; `palimpsest replay promotions`"
                " lists them"
            )
        if len(ids) > 1:
            raise RequestError(
                f"more than one promotion begins with {request.promotion}; write more of it"
            )
        given: dict[str, str] = {}
        with publisher(settings) as append:
            commands = commands_of(settings, append)
            for row in sorted(found, key=lambda each: each["scope"]):
                command = RollbackPromotionCommand(promotion_id=ids[0], reason=request.reason)
                order = CommandRequest(row["scope"], command)
                given[row["scope"]] = (await commands.submit(order)).command_id
            ends = await _ends(commands, given, request.wait, report, "rolling back")
    return PromotionEnd(ids[0], found[0]["branch"], tuple(ends))


async def _ends(
    commands: Commands, given: Mapping[str, str], wait: float, report: Report, phase: str
) -> list[ScopeEnd]:
    """Waits for the last command that each scope was given, by its id, whose result tells of all.
    Returns the results of the scopes."""
    ends = []
    for number, (scope, command_id) in enumerate(given.items()):
        report(ReplayProgress(phase, number, len(given), "scopes"))
        ends.append(_end_of(scope, await commands.result(command_id, scope, wait)))
    report(ReplayProgress(phase, len(ends), len(ends), "scopes"))
    return ends


def _end_of(scope: str, answer: JsonObject | None) -> ScopeEnd:
    if answer is None:
        return ScopeEnd(scope, "waiting")
    if answer["error"] is not None:
        return ScopeEnd(scope, "refused", error=str(answer["error"]))
    told = cast("Record", answer["result"])
    counts = {name: number for name, number in told.items() if isinstance(number, int)}
    return ScopeEnd(scope, told["status"], counts, told.get("kept_because", {}))


# --- what is under way ------------------------------------------------------------------------


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Holds the promotion lock. Raises RequestError while another process promotes or rolls
    back."""
    busy = "another promotion or rollback is under way here; wait until it is done"
    with locked(settings.data_dir / "branches", "promoting", busy):
        yield


async def _begun(live: Queries, branch: BranchManifest) -> tuple[str, dict[str, ScopeEnd]]:
    """Returns the id of the promotion to continue, with the results of its scopes so far, if one
    was begun and not rolled back, else a new id."""
    rows = await rows_of(live, _PROMOTIONS) if branch.promotion else []
    counts = ("gained", "changed", "lost", "kept")
    ends = {
        row["scope"]: ScopeEnd(row["scope"], row["status"], {name: row[name] for name in counts})
        for row in rows
        if row["promotion_id"] == branch.promotion
    }
    if not branch.promotion or any(end.status == "rolled-back" for end in ends.values()):
        return str(uuid.uuid4()), {}
    return branch.promotion, ends


# --- promotion plan -------------------------------------------------------------------------------
# Turns the differences of a scope into the commands that promote them.

PART_BYTES: Final = 256 * 1024
"""Size limit of the changes of a command; a longer change goes alone."""
SHARE: Final = 3
"""The changes may fill a third of a record: a command gets an envelope on its way, and non-ASCII
text may be encoded in a longer form."""
_SAID: Final = {"created": "created", "updated": "modified", "none": "none", "deduped": "deduped"}


class Plan:
    """What a promotion does in one scope, to make its live facts those of the branch."""

    def __init__(self, diff: ScopeDiff) -> None:
        self.scope, self.after = diff.scope, diff.newest_promotion
        self.changes = tuple(_change(diff, each) for each in diff.facts)
        lost = (e.live for e in diff.facts if e.branch is None and e.keep is None)
        self.losses = tuple(state["content"] for state in lost if state is not None)

    def as_end(self, request: Promote) -> ScopeEnd:
        """Returns the result of the scope if nothing is to be given: without changes, in a dry run,
        or refused for its losses; else it is `waiting`."""
        counted = Counter(change.change for change in self.changes)
        kept = Counter(each.why for each in self.changes if isinstance(each, KeepChange))
        status, error = "waiting", None
        if self.losses and not (request.allow_loss or request.dry_run):
            status, error = (
                "refused",
                f"{len(self.losses)} fact(s) of the live memory would be forgotten, which the"
                " branch has not; nothing was changed in this scope: promote again with"
                " --allow-loss (`allow_loss`) where that is meant",
            )
        elif counted["keep"] == len(self.changes):
            status = "nothing"
        elif request.dry_run:
            status = "planned"
        counts = {name: counted[name] for name in ("gain", "replace", "lose", "keep")}
        return ScopeEnd(self.scope, status, counts, dict(sorted(kept.items())), error, self.losses)

    def commands(
        self, promotion_id: str, branch: str, reason: str, max_record_bytes: int
    ) -> Iterator[PromoteCommand]:
        """Returns the parts in order. The same plan yields the same commands."""
        limit = min(PART_BYTES, max_record_bytes // SHARE)
        said = (change.model_dump_json(exclude_defaults=True) for change in self.changes)
        plan = derived_id("promotion-plan", self.after or "", *said)
        parts: list[list[PromotionChange]] = [[]]
        size = 0
        for change in self.changes:
            length = len(change.model_dump_json().encode())
            if parts[-1] and size + length > limit:
                parts.append([])
                size = 0
            parts[-1].append(change)
            size += length
        for number, changes in enumerate(parts):
            yield PromoteCommand(
                promotion_id=promotion_id,
                branch=branch,
                plan_id=plan,
                part=number,
                parts=len(parts),
                after=self.after,
                reason=reason,
                changes=tuple(changes),
            )


def _change(diff: ScopeDiff, each: FactDifference) -> PromotionChange:
    live, branch = each.live, each.branch
    if each.keep is not None:
        other = None if live is None or branch is None else branch["memory_id"]
        return KeepChange(
            memory_id=each.state["memory_id"], why=each.keep, counterpart=each.counterpart or other
        )
    if live is None:
        assert branch is not None
        return GainChange(memory=_promoted_fact(diff, branch))
    if branch is None:
        return LoseChange(memory_id=live["memory_id"], if_version=live["version"])
    memory = _promoted_fact(diff, branch)
    return ReplaceChange(memory_id=live["memory_id"], if_version=live["version"], memory=memory)


def _promoted_fact(diff: ScopeDiff, state: Record) -> PromotedMemory:
    row = diff.drawn[state["memory_id"]]
    told = [each for each in diff.told.get(state["memory_id"], ()) if each["outcome"] in _SAID]
    told.sort(key=lambda each: (each["occurred_at"], each["item_id"]))
    return PromotedMemory.model_validate(
        {
            **_shared(PromotedMemory, row),
            "facts": [
                {
                    **_shared(PromotedFact, each),
                    "event": _SAID[each["outcome"]],
                    "action": each["action"] or "ADD",
                    "decision_reason": each["reason"] or "",
                    "decision_confidence": 1.0 if each["sure"] is None else each["sure"],
                }
                for each in told
            ],
            "triples": [
                {**_shared(Triple, each), "relationship": each["relation_type"]}
                for each in diff.relations.get(state["memory_id"], ())
            ],
        }
    )


def _shared(message: type[Frozen], row: Record) -> Record:
    """Returns the fields of a message that a row has under the same names."""
    return {name: row[name] for name in message.model_fields if name in row}


# --- promotion ------------------------------------------------------------------------------------


async def promote(
    settings: Settings, request: Promote, report: Report = unreported
) -> PromotionEnd:
    """Bring what the branch has other than the live memory into that, scope by scope, each at once.

    Raises NotFoundError for an unknown branch or scope, RequestError for a branch that cannot be
    promoted now, and while another promotion is under way; of catching up what `reextract` does.
    """
    branch = read_branch(settings, request.branch)
    if branch.kind != "reextraction":
        raise RequestError(
            f"the branch {branch.name} is a {branch.kind}: only a re-extraction can be promoted"
        )
    with alone(settings):
        if request.catch_up and not request.dry_run:
            branch = (await reextract(settings, Reextract(branch.name), report)).branch
        if not branch.whole:
            raise RequestError(
                f"the branch {branch.name} is not whole: not all that it read is carried out in"
                " it; let its replay finish first"
            )
        with reading_log(settings) as log:
            check_log(branch, log)
            behind = records_behind(branch.read_through, log)
        async with queries(settings) as live:
            promotion_id, done = await _begun(live, branch)
        if behind > request.most_behind:
            raise RequestError(
                f"the branch {branch.name} is {counted(behind, 'records')} behind the live log,"
                f" more than the {request.most_behind} allowed; let it catch up first"
            )
        if not request.dry_run:
            branch = keep_branch(settings, branch, promotion=promotion_id)
        ends = await _promoted(settings, request, promotion_id, done, report)
        end = PromotionEnd(promotion_id, branch.name, ends, behind)
        if end.complete and not request.dry_run:
            keep_branch(settings, branch, promotion="")
    return end


async def _promoted(
    settings: Settings,
    request: Promote,
    promotion_id: str,
    done: Mapping[str, ScopeEnd],
    report: Report,
) -> tuple[ScopeEnd, ...]:
    """Compares one scope after the other and gives its commands; then waits for their results, with
    the stores free for a worker."""
    found = [end for scope, end in done.items() if not request.scopes or scope in request.scopes]
    most_bytes = settings.log.max_record_bytes
    diffs = contextlib.aclosing(scope_diffs(settings, request, report, done))
    given: dict[str, str] = {}
    with publisher(settings) as append:
        commands = commands_of(settings, append)
        async with diffs as scopes:
            async for diff in scopes:
                plan = Plan(diff)
                end = plan.as_end(request)
                if end.status != "waiting":
                    found.append(end)
                    continue
                for command in plan.commands(
                    promotion_id, request.branch, request.reason, most_bytes
                ):
                    order = CommandRequest(plan.scope, command)
                    given[plan.scope] = (await commands.submit(order)).command_id
        found += await _ends(commands, given, request.wait, report, "promoting")
    return tuple(sorted(found, key=lambda end: end.scope))
