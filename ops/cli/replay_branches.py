"""replay reextract, branches, curation and drop: branches of the memory and their content."""

from __future__ import annotations

import signal
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.cli.common import (
    AsJson,
    Cli,
    OfScope,
    command,
    echo,
    print_json,
    time_option,
    usage_error,
    warn,
)
from palimpsest.ops.cli.progress import duration, replay_progress

if TYPE_CHECKING:
    from palimpsest.ops.replay.estimates import Estimate
    from palimpsest.ops.replay.ledger import Curated
    from palimpsest.ops.replay.reextraction import Reextracted, Reextraction
    from palimpsest.ops.settings.sections import Settings

LIVE = ("log.", "kafka.", "data_dir")
"""The settings of the live log."""

BranchArgument = Annotated[str, typer.Argument(metavar="NAME", help="The branch's name.")]


def register(group: typer.Typer) -> None:
    command(group)(reextract)
    command(group)(branches)
    command(group)(curation)
    command(group)(drop)


def reextract(
    cli: Cli,
    branch: Annotated[str, typer.Option(help="The branch to create or to resume.")],
    provider: Annotated[
        str | None, typer.Option(help="The extractor: rules, ollama, openai or anthropic.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name.")] = None,
    scope: OfScope = None,
    since: Annotated[datetime | None, time_option("Turns of this time or later.")] = None,
    until: Annotated[datetime | None, time_option("Turns before this time.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of these turns, spread evenly.")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Maximum turns per second.")] = None,
    budget_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum tokens read and written, over all runs."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the estimate.")] = False,
    json: AsJson = False,
) -> None:
    """Extract facts from old turns again with another model or settings, into a branch.

    --provider, --model and --set define the differences; people's changes are applied again to the
    corresponding facts. The live memory is only read. After an interruption, the same command
    resumes; run later, it adds what has arrived since.

    Example: palimpsest replay reextract --branch better --provider rules --dry-run
    """

    import asyncio

    from palimpsest.ops.replay.branches import Selection
    from palimpsest.ops.replay.reextraction import Reextraction

    selection = Selection(scope=scope, since=since, until=until, sample=sample)
    settings, overrides = _changed(cli, provider, model)
    request = Reextraction(branch, overrides, selection, rate, budget_tokens)
    if dry_run:
        from palimpsest.ops.replay.estimates import estimate

        _print_estimate(estimate(settings, request), json)
        return
    done = asyncio.run(_reextract(settings, request))
    _print_done(done, json)


def _changed(cli: Cli, provider: str | None, model: str | None) -> tuple[Settings, tuple[str, ...]]:
    """The live settings, and the differing ones of the branch, except those of the log."""
    from palimpsest.ops.replay.reextraction import differing

    of_log = tuple(flag for flag in cli.overrides if flag.strip().startswith(LIVE))
    others = tuple(flag for flag in cli.overrides if flag not in of_log)
    settings = Cli(cli.data_dir, cli.config, of_log).settings
    return settings, differing(settings, others, provider, model)


async def _reextract(settings: Settings, request: Reextraction) -> Reextracted:
    import asyncio

    from palimpsest.ops.replay.reextraction import reextract as extract_anew

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        warn("stopping: what is under way is finished first")
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    with replay_progress() as report:
        return await extract_anew(settings, request, report, stopping)


def _print_estimate(found: Estimate, json: bool) -> None:
    if json:
        print_json(asdict(found))
        return
    basis = "as the live model's calls took" if found.recorded else "counted by characters"
    echo(f"{found.turns:,} of {found.all_turns:,} turns would be sent to the model")
    echo(f"tokens: about {found.input_tokens:,} read and {found.output_tokens:,} written, {basis}")
    if found.seconds is not None:
        echo(f"time: about {duration(found.seconds)}")
    if found.cost is not None:
        echo(f"cost: about {found.cost:,.4f}")
    echo("nothing was done; run it without --dry-run")


def _print_done(done: Reextracted, json: bool) -> None:
    """Raises Exit where not all was done."""
    from palimpsest.ops.replay.answers import reextracted_json

    if json:
        print_json(reextracted_json(done))
    else:
        echo(
            f"{done.branch.name}: {done.turns:,} turns and {done.commands:,} commands about facts"
            f" fed; {done.spent.calls:,} calls of the model so far, {done.spent.input_tokens:,}"
            f" tokens read and {done.spent.output_tokens:,} written"
        )
    if done.dead:
        warn(f"the branch has {done.dead:,} dead letters; `dead-letters list` shows them")
    if done.waiting:
        warn(
            f"{done.waiting:,} records of the live memory are not finished there; feed the branch"
            " again when they are"
        )
    if done.ended == "budget":
        warn("the budget of tokens is used up; the same command with a larger one goes on")
    if done.ended == "stopped":
        warn("stopped; the same command goes on from there")
    if done.ended != "done":
        raise typer.Exit(1)


def branches(cli: Cli, json: AsJson = False) -> None:
    """List the branches: their kind, their progress, and how far they lag behind the live memory.

    Example: palimpsest replay branches
    """
    from palimpsest.ops.replay.standing import standings

    found = standings(cli.settings)
    if json:
        print_json({"branches": [each.as_json() for each in found]})
        return
    if not found:
        echo("no branches; `palimpsest replay reextract` makes one")
        return
    from palimpsest.ops.cli.tables import console, table

    columns = ("branch", "kind", "made", "settings", "whole", "behind", "erasures")
    rows: list[tuple[object, ...]] = [
        (
            each.branch.name,
            each.branch.kind,
            each.branch.created_at.strftime("%Y-%m-%d %H:%M"),
            ", ".join(each.branch.settings),
            each.branch.whole,
            each.behind,
            each.erasures,
        )
        for each in found
    ]
    console().print(table(columns, rows))
    if any(each.erasures for each in found):
        warn(
            "what was erased live is still in a branch. The worker of an embedded log takes it out"
            " as soon as no process works on the branch; else feed it again with `palimpsest replay"
            " reextract --branch NAME`, or remove it with `palimpsest replay drop NAME`"
        )


def curation(
    cli: Cli,
    name: BranchArgument,
    status: Annotated[
        str | None, typer.Option(help="Only this outcome, for example 'no counterpart'.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the outcome, in a branch, of all changes made by people.

    Prints a row for each memory that a command named: its counterpart in the branch, their
    similarity, and whether the command was applied again. For SQL, the table is in
    `reextraction.sqlite` of the branch's folder.

    Example: palimpsest replay curation better --status "no counterpart"
    """
    from palimpsest.ops.replay.branches import branch_folder, read_branch
    from palimpsest.ops.replay.ledger import Ledger

    branch = read_branch(cli.settings, name)
    if branch.kind != "reextraction":
        raise usage_error(f"{name} is no re-extraction: what people did was done again as it was")
    with Ledger.opened(branch_folder(cli.settings, name)) as ledger:
        rows = ledger.curated() if status is None else ledger.curated("status = ?", status)
    if json:
        print_json({"branch": name, "curated": [asdict(row) for row in rows]})
        return
    if not rows:
        echo("nothing that people changed is in the branch yet")
        return
    _print_curated(rows)


def _print_curated(rows: list[Curated]) -> None:
    from collections import Counter

    from palimpsest.ops.cli.tables import console, table

    columns = ("command", "live", "branch", "found by", "similarity", "status", "detail")
    console().print(
        table(
            columns,
            [
                (
                    row.command,
                    row.live_id[:8],
                    (row.branch_id or "")[:8],
                    row.matched_by,
                    row.similarity,
                    row.status,
                    row.detail,
                )
                for row in rows
            ],
        )
    )
    counts = Counter(row.status for row in rows)
    echo(", ".join(f"{count:,} {status}" for status, count in counts.most_common()))


def drop(cli: Cli, name: BranchArgument, json: AsJson = False) -> None:
    """Remove a branch and all its files.

    Example: palimpsest replay drop better
    """
    from palimpsest.ops.replay.standing import drop_unused

    drop_unused(cli.settings, name)
    if json:
        print_json({"dropped": name})
    else:
        echo(f"the branch {name} is gone")
