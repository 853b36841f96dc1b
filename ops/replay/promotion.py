"""Promotes a branch into the live memory.

A promotion consists of commands on the live log, so a rebuild gives the same result, and it works
on Kafka as in a folder. An interrupted promotion starts again and promotes nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from palimpsest.ops.commanding import CommandRequest, Commands, commands_of
from palimpsest.ops.errors import RequestError
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.replay.branches import Branch, read_branch
from palimpsest.ops.replay.diff import scope_diff, scopes_of, sides
from palimpsest.ops.replay.differences import FactDifference, FactState, ScopeDiff
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.promotions import (
    PromotionEnd,
    ScopeEnd,
    alone,
    awaited,
    ends_of,
    keep_id,
    promotion_id_of,
    unfinished,
)
from palimpsest.ops.replay.reading import Record
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.replay.reextraction import Reextraction, reextract
from palimpsest.ops.replay.standing import check_log
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    Actor,
    GainChange,
    KeepChange,
    LoseChange,
    PromoteCommand,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)
from palimpsest.schemas.envelope import derived_id

# --- promotion plan -------------------------------------------------------------------------------
# Turns the differences of a scope into the commands that promote them.

PART_BYTES: Final = 256 * 1024
"""Size limit of the changes of a command; a longer change goes alone."""
SHARE: Final = 3
"""The changes may fill a third of a record: a command gets an envelope on its way, and non-ASCII
text may be encoded in a longer form."""
_SAID: Final = {"created": "created", "updated": "modified", "none": "none", "deduped": "deduped"}
_OF_MEMORY: Final = (
    *("memory_id", "content", "type", "confidence", "importance", "categories"),
    *("extraction_model", "temporal_kind", "valid_from", "valid_until", "occurred_at"),
    *("first_occurred_at", "project", "session_id", "source_id", "sources"),
)
_OF_FACT: Final = (
    *("item_id", "turn_memory_id", "content", "type", "confidence", "importance"),
    *("temporal_kind", "valid_until", "categories", "model", "prompt_version", "occurred_at"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a promotion does in one scope."""

    scope: str
    changes: tuple[PromotionChange, ...]
    after: str | None
    losses: tuple[str, ...] = ()
    """The texts of the facts that the live memory would lose."""

    @property
    def changes_something(self) -> bool:
        return any(not isinstance(change, KeepChange) for change in self.changes)

    def counts(self) -> dict[str, int]:
        """Returns the number of changes of each kind."""
        found = Counter(change.change for change in self.changes)
        return {name: found[name] for name in ("gain", "replace", "lose", "keep")}

    def kept_because(self) -> dict[str, int]:
        kept = (change for change in self.changes if isinstance(change, KeepChange))
        return dict(sorted(Counter(change.why for change in kept).items()))

    def commands(
        self, promotion_id: str, branch: str, reason: str, max_record_bytes: int
    ) -> Iterator[PromoteCommand]:
        """Returns the parts in order. The same plan yields the same commands."""
        limit = min(PART_BYTES, max_record_bytes // SHARE)
        plan = derived_id("promotion-plan", self.after or "", *map(_json, self.changes))
        parts = [*_parts(self.changes, limit)]
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


def _json(change: PromotionChange) -> str:
    return change.model_dump_json(exclude_defaults=True)


def _parts(changes: Sequence[PromotionChange], limit: int) -> Iterator[list[PromotionChange]]:
    some: list[PromotionChange] = []
    size = 0
    for change in changes:
        length = len(change.model_dump_json().encode())
        if some and size + length > limit:
            yield some
            some, size = [], 0
        some.append(change)
        size += length
    yield some


def plan_of(diff: ScopeDiff) -> Plan:
    """What makes the scope's live facts those of the branch."""
    changes = tuple(_change(diff, each) for each in diff.facts)
    losses = tuple(
        each.live.content
        for each in diff.facts
        if each.live is not None and each.branch is None and each.keep is None
    )
    return Plan(diff.scope, changes, diff.newest_promotion, losses)


def _change(diff: ScopeDiff, each: FactDifference) -> PromotionChange:
    live, branch = each.live, each.branch
    if each.keep is not None:
        state = live or branch
        assert state is not None
        other = None if live is None or branch is None else branch.memory_id
        return KeepChange(
            memory_id=state.memory_id, why=each.keep, counterpart=each.counterpart or other
        )
    if live is None:
        assert branch is not None
        return GainChange(memory=_promoted_fact(diff, branch))
    if branch is None:
        return LoseChange(memory_id=live.memory_id, if_version=live.version)
    memory = _promoted_fact(diff, branch)
    return ReplaceChange(memory_id=live.memory_id, if_version=live.version, memory=memory)


def _promoted_fact(diff: ScopeDiff, state: FactState) -> PromotedMemory:
    row = diff.drawn[state.memory_id]
    told = [each for each in diff.told.get(state.memory_id, ()) if each["outcome"] in _SAID]
    told.sort(key=lambda each: (each["occurred_at"], each["item_id"]))
    return PromotedMemory.model_validate(
        {
            **{name: row[name] for name in _OF_MEMORY},
            "facts": [_fact(each) for each in told],
            "triples": [_triple(each) for each in diff.relations.get(state.memory_id, ())],
        }
    )


def _fact(row: Record) -> Record:
    sure = row["sure"]
    return {
        **{name: row[name] for name in _OF_FACT},
        "event": _SAID[row["outcome"]],
        "action": row["action"] or "ADD",
        "decision_reason": row["reason"] or "",
        "decision_confidence": 1.0 if sure is None else sure,
        "decider": row["decider"],
    }


def _triple(row: Record) -> Record:
    return {
        "source": row["source"],
        "source_type": row["source_type"],
        "relationship": row["relation_type"],
        "target": row["target"],
        "target_type": row["target_type"],
        "confidence": row["confidence"],
    }


# --- promotion ------------------------------------------------------------------------------------

MOST_BEHIND: Final = 1_000
"""Records of the live log that a branch may not have read yet. What they say stays with the facts
that the live memory drew from them."""


@dataclass(frozen=True, slots=True)
class PromoteRequest:
    """Promote this branch, in all scopes or in those that are named; with `dry_run` only tell what
    would be done. `allow_loss`: also where live facts have no counterpart in the branch and are
    forgotten; a scope with such facts is refused otherwise, with what they say. `catch_up`: let the
    branch read first what came in since, with its own model. `wait_seconds`: for the results of
    each scope."""

    branch: str
    scopes: tuple[str, ...] = ()
    reason: str = ""
    actor: Actor = Actor()
    dry_run: bool = False
    allow_loss: bool = False
    catch_up: bool = False
    most_behind: int = MOST_BEHIND
    wait_seconds: float = 600.0


async def promote(
    settings: Settings,
    request: PromoteRequest,
    report: Report = unreported,
) -> PromotionEnd:
    """Bring what the branch has other than the live memory into that, scope by scope, each at once.

    Raises NotFoundError for an unknown branch or scope, RequestError for a branch that cannot be
    promoted now, and while another promotion is under way; of catching up what `reextract` does.
    """
    branch = read_branch(settings, request.branch)
    _check_kind(branch)
    with alone(settings):
        if request.catch_up and not request.dry_run:
            branch = (await reextract(settings, Reextraction(branch.name), report)).branch
        if not branch.whole:
            raise RequestError(
                f"the branch {branch.name} is not whole: not all that it read is carried out in"
                " it; let its replay finish first"
            )
        with reading_log(settings) as log:
            check_log(branch, log)
        async with queries(settings) as live:
            behind = await _behind(live, branch)
            promotion_id = await promotion_id_of(settings, live, branch.name)
        if behind > request.most_behind:
            raise RequestError(
                f"the branch {branch.name} is {behind} records behind the live log, more than the"
                f" {request.most_behind} allowed; let it catch up first"
            )
        if not request.dry_run:
            keep_id(settings, branch.name, promotion_id)
        ends = await _promoted(settings, request, branch, promotion_id, report)
        end = PromotionEnd(promotion_id, branch.name, ends, behind)
        if end.complete and not request.dry_run:
            unfinished(settings, branch.name).unlink(missing_ok=True)
    return end


def _check_kind(branch: Branch) -> None:
    if branch.kind != "reextraction":
        raise RequestError(
            f"the branch {branch.name} is a {branch.kind}: only a re-extraction can be promoted"
        )


async def _behind(live: Queries, branch: Branch) -> int:
    status = cast("JsonObject", await live.answer(Status()))
    stages = cast("list[Record]", status["stages"])
    return sum(
        max(0, int(each["end"]) - branch.read_through.get(int(each["partition"]), 0))
        for each in stages
        if each["stage"] == "apply-writes"
    )


async def _promoted(
    settings: Settings,
    request: PromoteRequest,
    branch: Branch,
    promotion_id: str,
    report: Report,
) -> tuple[ScopeEnd, ...]:
    """Compares one scope after the other and gives its commands; then waits for their results, with
    the stores free for a worker."""
    found: list[ScopeEnd] = []
    waiting: list[tuple[Plan, str]] = []
    with publisher(settings) as append:
        commands = commands_of(settings, append)
        async with sides(settings, branch) as (live, own):
            done = await ends_of(live.queries, promotion_id)
            scopes = scopes_of(live, own, request.scopes)
            for number, scope in enumerate(scopes):
                report(Progress("comparing", number, len(scopes), "scopes"))
                if scope in done:
                    found.append(done[scope])
                    continue
                plan = plan_of(await scope_diff(live, own, branch, scope))
                counted, kept = plan.counts(), plan.kept_because()
                end = ScopeEnd(scope, "nothing", counted, kept, losses=plan.losses)
                if plan.losses and not (request.allow_loss or request.dry_run):
                    found.append(replace(end, status="refused", error=_would_lose(plan.losses)))
                elif plan.changes_something and not request.dry_run:
                    given = await _give(commands, settings, request, plan, promotion_id)
                    waiting.append((replace(plan, changes=()), given))
                else:
                    planned = "planned" if plan.changes_something else "nothing"
                    found.append(replace(end, status=planned))
        for number, (plan, command_id) in enumerate(waiting):
            report(Progress("promoting", number, len(waiting), "scopes"))
            found.append(await awaited(commands, plan.scope, command_id, request.wait_seconds))
    report(Progress("promoting", len(waiting), len(waiting), "scopes"))
    return tuple(sorted(found, key=lambda end: end.scope))


def _would_lose(losses: tuple[str, ...]) -> str:
    return (
        f"{len(losses)} fact(s) of the live memory would be forgotten, which the branch has not;"
        " nothing was changed in this scope: promote again with --allow-loss (`allow_loss`) where"
        " that is meant"
    )


async def _give(
    commands: Commands, settings: Settings, request: PromoteRequest, plan: Plan, promotion_id: str
) -> str:
    """Append the commands of a scope; the id of the last one, whose result tells of all."""
    given = ""
    limit = settings.log.max_record_bytes
    for command in plan.commands(promotion_id, request.branch, request.reason, limit):
        order = CommandRequest(plan.scope, command, request.actor)
        given = (await commands.submit(order)).command_id
    return given
