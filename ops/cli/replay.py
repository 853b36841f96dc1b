"""replay: stores rebuilt from the log, and branches alongside the live memory."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.cli import replay_branches, replay_promotion
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, usage_error, warn

if TYPE_CHECKING:
    from palimpsest.ops.replay.rebuild import Rebuilt, RebuiltPartition

Name = Annotated[str, typer.Option(help="The branch to create.")]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="OFFSET|TIME", help="As of this offset of memory-writes, or this time (RFC 3339)."
    ),
]


def register(group: typer.Typer) -> None:
    command(group)(rebuild)
    replay_branches.register(group)
    replay_promotion.register(group)


def rebuild(
    cli: Cli,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Replace the live stores.")] = False,
    until: Until = None,
    name: Name = "rebuild",
    shards: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Change the number of partitions of log and stores."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="With --swap: replace even if they differ.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Rebuild the stores from the log, alongside the live ones, and compare both.

    Calls no model: facts and decisions are read from the log, and vectors are copied from the live
    stores. A worker may keep running. After an interruption, the same command resumes. With --swap
    the new stores replace the live ones, which are kept as a branch until `palimpsest replay drop`.
    With --until they are as of that time, to read with --branch. With --shards the log is rewritten
    with that number of partitions, too; stop the worker first.

    Example: palimpsest replay rebuild
    """
    import asyncio

    from palimpsest.ops.cli.progress import replaying
    from palimpsest.ops.replay.answers import rebuilt_json
    from palimpsest.ops.replay.rebuild import RebuildRequest
    from palimpsest.ops.replay.rebuild import rebuild as rebuilding
    from palimpsest.ops.replay.resharding import ReshardRequest, reshard

    if anyway and not swap:
        raise usage_error("--anyway is for --swap")
    if shards is not None and partition is not None:
        raise usage_error("--shards is of all partitions")
    moment = _moment(until)
    with replaying() as (report, stopping):
        if shards is None:
            request = RebuildRequest(name, partition, moment, swap, anyway)
            doing = rebuilding(cli.settings, request, report, stopping)
        else:
            dealing = ReshardRequest(name, shards, moment, swap, anyway)
            doing = reshard(cli.settings, dealing, report, stopping)
        done = asyncio.run(doing)
    if json:
        print_json(rebuilt_json(done))
    else:
        _print(done, swap, "stores" if shards is None else "log and stores")
    configured = cli.settings.log.partitions
    if shards is not None and done.kept is not None and configured not in (None, shards):
        warn(f"log.partitions is set to {configured}; set it to {shards} before anything else")
    if done.stopped or not (done.is_equal or anyway):
        raise typer.Exit(1)


def _moment(until: str | None) -> int | datetime | None:
    if until is None:
        return None
    if until.isdecimal():
        return int(until)
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        raise usage_error(
            f"--until {until}: neither an offset nor a time like 2026-03-01T10:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise usage_error(f"--until {until}: a time needs its zone, as 2026-03-01T10:00:00Z")
    return moment


def _print(done: Rebuilt, swap: bool, made: str) -> None:
    for each in done.partitions:
        echo(f"partition {each.partition}: {each.rows} rows, {_comparison(each)}")
    rate = f", {done.turns / done.seconds:,.0f} turns a second" if done.records else ""
    echo(f"{done.records} records folded in {done.seconds:.1f} s{rate}")
    if done.stopped:
        warn("interrupted: the same command resumes")
    elif done.kept is not None:
        echo(
            f"the new {made} are live; those of before are the branch {done.kept}, which"
            f" `palimpsest replay drop {done.kept}` removes"
        )
    elif swap:
        warn(
            "not swapped, because they differ: the live stores are not what this program makes of"
            f" the log. Where an earlier release wrote them that may be so. See the branch"
            f" {done.name} (`--branch {done.name}` with list, sql and others); --swap --anyway puts"
            " it in their place and keeps them as a branch"
        )
    else:
        echo(f"the new {made} are the branch {done.name}")


def _comparison(each: RebuiltPartition) -> str:
    if each.live is not None:
        return f"not compared with the live store: {each.live}"
    if not each.differing:
        return f"equal to the live store (state hash {each.state_hash[:16]}…)"
    tables = ", ".join(f"{rows} rows of {table}" for table, rows in each.differing.items())
    return f"DIFFERS from the live store in {tables}"
