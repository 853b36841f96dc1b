"""The stores of another number of partitions, to be read: made anew from the log as of a moment, or
from Kafka's, and then dealt out by scope. What a scope holds is the same in any number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from palimpsest.ops.parts import shard_folder, utc_now
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.replay.branches import (
    Branch,
    branch_folder,
    branch_settings,
    drop_branch,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.fold import never
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.rebuild import (
    RebuildRequest,
    Rebuilt,
    make_branch,
    rebuild,
    working_on,
)
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.database.splitting import gather_store, scopes_in
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import partition_for


@dataclass(frozen=True, slots=True)
class DealRequest:
    """`shards` stores in the branch `name`; `until` as of a rebuild."""

    name: str
    shards: int
    until: int | datetime | None = None


async def deal_out(
    settings: Settings,
    request: DealRequest,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> Rebuilt:
    """What was made anew and compared, before it was dealt out; where it differs from what is live
    it is not dealt out. Raises as `rebuild` does, and RequestError for a branch that is there."""
    if (branch_folder(settings, request.name) / "branch.json").exists():
        raise RequestError(
            f"there is a branch {request.name} already; choose another --name, or remove it with"
            f" `palimpsest replay drop {request.name}`"
        )
    parts = f"{request.name}.parts"
    wanted = RebuildRequest(parts, until=request.until)
    done = await rebuild(settings, wanted, report, stopping)
    if done.is_equal and not done.stopped:
        branch = read_branch(settings, parts)
        # Nobody erases from half of the stores meanwhile.
        with working_on(settings, parts), working_on(settings, request.name):
            await asyncio.to_thread(_deal, settings, branch, request, report)
        drop_branch(settings, parts)
        done.name = request.name
    return done


def _deal(settings: Settings, parts: Branch, request: DealRequest, report: Report) -> None:
    own = branch_settings(settings, parts)
    files = [shard_folder(own, each) / DATABASE_FILE for each in range(parts.partitions)]
    branch = Branch(
        name=request.name, kind="rebuild", created_at=utc_now(), partitions=request.shards
    )
    make_branch(settings, branch)
    dealt: dict[int, list[str]] = {}
    for scope in sorted(scopes_in(files)):
        dealt.setdefault(partition_for(scope, request.shards), []).append(scope)
    target = branch_settings(settings, branch)
    for partition in range(request.shards):
        folder = shard_folder(target, partition)
        folder.mkdir(parents=True, exist_ok=True)
        gather_store(folder / DATABASE_FILE, files, dealt.get(partition, []))
        report(Progress("dealing out", partition + 1, request.shards, "shards"))
    keep_branch(settings, branch.model_copy(update={"whole": True}))
