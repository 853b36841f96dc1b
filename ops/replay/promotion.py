"""Promoting a branch into the live memory.

What is done is commands on the live log, so a rebuild comes to the same, and so it is on Kafka as
in a folder. Whatever is interrupted is begun again: what was promoted is not promoted twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, cast

from palimpsest.ops.bootstrap import publisher
from palimpsest.ops.commanding import Commands, Order, commands_of
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.queries.access import queries
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.replay.branches import Branch, read_branch
from palimpsest.ops.replay.diff import scope_diff, scopes_of, sides
from palimpsest.ops.replay.log_identity import check_log
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.promotion_plan import Plan, plan_of
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
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor

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
        order = Order(plan.scope, command, request.actor)
        given = (await commands.submit(order)).command_id
    return given
