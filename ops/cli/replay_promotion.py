"""replay diff, promote, rollback, promotions: a branch compared with the live memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, usage_error
from palimpsest.ops.cli.progress import replay_progress

if TYPE_CHECKING:
    from palimpsest.ops.replay.diff import DiffRequest
    from palimpsest.ops.replay.differences import Diff
    from palimpsest.ops.replay.promotions import PromotionEnd

BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", "-s", help="Only this memory space; may be repeated."),
]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the results of a scope.")]
MOST_SHOWN = 200
"""Differences of a kind that a table shows."""


def register(group: typer.Typer) -> None:
    command(group)(diff)
    command(group)(promote)
    command(group)(rollback)
    command(group)(promotions)


def diff(
    cli: Cli,
    name: BranchName,
    scope: Scopes = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            help="Queries to run on both: one JSON object per line, see the documentation."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output: a folder of Parquet, facts as .parquet, lines as .jsonl."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare a branch with the live memory: facts, decisions, graph, tokens, recall.

    Works while a worker runs. Two facts are paired if their texts are equal, or if they come from
    the same turn and are similar; `keep` gives the reason why a promotion would not change one.

    Example: palimpsest replay diff better
    """
    import asyncio

    from palimpsest.ops.replay.diff import DiffRequest
    from palimpsest.ops.replay.diff import diff as compare
    from palimpsest.ops.replay.diff_output import diff_json, write_parquet

    if questions is not None and not questions.is_file():
        raise usage_error(f"there is no file {questions}")
    request = DiffRequest(name, tuple(scope or ()), questions)
    if out is not None and out.suffix == ".jsonl":
        _write_lines(cli, request, out, json)
        return
    with replay_progress() as report:
        found = asyncio.run(compare(cli.settings, request, report))
    written = [] if out is None else write_parquet(found, out)
    if json:
        print_json(diff_json(found))
        return
    _print_diff(found)
    for path in written:
        echo(f"wrote {path}")


def _write_lines(cli: Cli, request: DiffRequest, out: Path, json: bool) -> None:
    import asyncio

    from palimpsest.ops.replay.diff_output import write_lines

    if request.questions is not None:
        raise usage_error(
            "--questions needs the whole comparison at once; it cannot be combined with a .jsonl"
        )
    with replay_progress() as report:
        summary = asyncio.run(write_lines(cli.settings, request, out, report))
    if json:
        print_json(summary)
        return
    totals = ", ".join(
        f"{number} {kind}" for kind, number in cast("Any", summary["totals"]).items()
    )
    echo(f"{totals}\nwrote {out}")


def promote(
    cli: Cli,
    name: BranchName,
    scope: Scopes = None,
    reason: Annotated[str, typer.Option(help="Why; kept in the history.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Also forget facts that the branch lacks."),
    ] = False,
    catch_up: Annotated[
        bool,
        typer.Option(
            "--catch-up/--no-catch-up",
            help="First bring the branch up to date with its own model.",
        ),
    ] = True,
    most_behind: Annotated[
        int,
        typer.Option(min=0, help="Maximum number of log records that the branch may lag behind."),
    ] = 1_000,
    wait: Wait = 600.0,
    json: AsJson = False,
) -> None:
    """Apply the differences of a branch to the live memory, each scope atomically.

    Facts that only the branch has are added, and those with another text are changed in place. With
    --allow-loss, facts that the branch lacks are forgotten; without it, a scope that would lose any
    is refused, and they are shown. Memories that people changed, pinned, confirmed or forgot stay
    unchanged, and so do turns, remembered texts, and facts from later turns. After an interruption,
    the same command resumes. Undo it with `palimpsest replay rollback`.

    Example: palimpsest replay promote better --dry-run
    """
    import asyncio

    from palimpsest.ops.replay.promotion import PromoteRequest
    from palimpsest.ops.replay.promotion import promote as promoting

    request = PromoteRequest(
        name,
        tuple(scope or ()),
        reason,
        dry_run=dry_run,
        allow_loss=allow_loss,
        catch_up=catch_up,
        most_behind=most_behind,
        wait_seconds=wait,
    )
    with replay_progress() as report:
        end = asyncio.run(promoting(cli.settings, request, report))
    _print_end(end, json)


def rollback(
    cli: Cli,
    promotion: Annotated[
        str, typer.Argument(metavar="PROMOTION", help="Its id, or the first 8 characters.")
    ],
    reason: Annotated[str, typer.Option(help="Why; kept in the history.")] = "",
    wait: Wait = 600.0,
    json: AsJson = False,
) -> None:
    """Undo a promotion: remove what it added, restore what it replaced or forgot.

    Memories changed or written since stay unchanged.

    Example: palimpsest replay rollback 6f9619ff
    """
    import asyncio

    from palimpsest.ops.replay.promotions import RollbackRequest
    from palimpsest.ops.replay.promotions import rollback as undo

    request = RollbackRequest(promotion, reason, wait_seconds=wait)
    with replay_progress() as report:
        end = asyncio.run(undo(cli.settings, request, report))
    _print_end(end, json, "rollback")


def promotions(cli: Cli, json: AsJson = False) -> None:
    """List the promotions, newest first, including those rolled back.

    `palimpsest sql "FROM promotion_items"` shows the effect of a promotion on each memory.

    Example: palimpsest replay promotions
    """
    import asyncio
    from dataclasses import asdict

    from palimpsest.ops.cli.tables import console, table
    from palimpsest.ops.replay.promotions import promotions as listed

    found = asyncio.run(listed(cli.settings))
    if json:
        print_json({"promotions": [asdict(each) for each in found]})
        return
    rows: list[tuple[object, ...]] = [
        (
            *(each.promotion_id[:8], each.branch, each.status, len(each.scopes)),
            *(each.gained, each.changed, each.lost, each.kept, each.recorded_at),
        )
        for each in found
    ]
    names = ("id", "branch", "status", "scopes", "gained", "changed", "lost", "kept", "at")
    console().print(table(names, rows) if rows else "nothing was promoted yet")


# --- what is shown ----------------------------------------------------------------------------


def _print_diff(found: Diff) -> None:
    from palimpsest.ops.cli.tables import console, table
    from palimpsest.ops.replay.differences import KINDS
    from palimpsest.ops.replay.recall_difference import recall_at

    out = console()
    counted: list[tuple[object, ...]] = [
        (each.scope, kind, *(counts[name] for name in KINDS))
        for each in found.scopes
        for kind, counts in each.counts().items()
    ]
    out.print(table(("scope", "type", *KINDS), counted) if counted else "no facts on either side")
    facts: list[tuple[object, ...]] = [
        (
            *(each.scope, each.kind, each.keep, each.similarity),
            "" if each.live is None else each.live.content,
            "" if each.branch is None else each.branch.content,
            " | ".join(each.evidence),
        )
        for each in found.facts()
    ]
    if facts:
        names = ("scope", "kind", "keep", "similarity", "live", found.branch, "evidence")
        out.print(table(names, facts[:MOST_SHOWN], title="\nfacts"))
        _print_rest(len(facts))
    _print_others(found)
    spent: list[tuple[object, ...]] = [
        (name, each.turns, each.facts, each.input_tokens, each.output_tokens, each.cost)
        for name, each in zip(("live", found.branch), found.spent(), strict=True)
    ]
    columns = ("extraction", "turns", "facts", "input tokens", "output tokens", "cost")
    out.print(table(columns, spent, title="\nturns extracted again"))
    if found.recall:
        at: list[tuple[object, ...]] = [
            (f"recall@{k}", before, after) for k, (before, after) in recall_at(found.recall).items()
        ]
        title = f"\n{len(found.recall)} questions"
        out.print(table(("", "live", found.branch), at, title=title))


def _print_others(found: Diff) -> None:
    from palimpsest.ops.cli.tables import console, table

    out = console()
    decisions: list[tuple[object, ...]] = [
        (
            *(each.scope, each.live.fact),
            *(each.live.action, each.live.target, each.branch.action, each.branch.target),
        )
        for scope in found.scopes
        for each in scope.decisions
    ]
    if decisions:
        names = ("scope", "fact", "live", "about", found.branch, "about")
        out.print(table(names, decisions[:MOST_SHOWN], title="\ndecisions"))
        _print_rest(len(decisions))
    graph: list[tuple[object, ...]] = [
        (part.scope, part.kind, part.what, part.name)
        for scope in found.scopes
        for part in scope.graph
    ]
    if graph:
        out.print(table(("scope", "kind", "what", "name"), graph[:MOST_SHOWN], title="\ngraph"))
        _print_rest(len(graph))


def _print_rest(count: int) -> None:
    if count > MOST_SHOWN:
        echo(f"and {count - MOST_SHOWN} more; --json or --out gives all")


def _print_end(end: PromotionEnd, json: bool, what: str = "promotion") -> None:
    """Print what became of a promotion, or of its rollback. Raises Exit where a scope was
    refused."""
    from dataclasses import asdict

    from palimpsest.ops.cli.tables import console, table

    if json:
        print_json({**asdict(end), "complete": end.complete})
    else:
        rows: list[tuple[object, ...]] = [
            (each.scope, each.status, _shown(each.counts), _shown(each.kept_because), each.error)
            for each in end.scopes
        ]
        names = ("scope", "status", "done", "kept because", "error")
        is_done = any(each.status not in ("planned", "nothing") for each in end.scopes)
        if is_done:
            of = "" if what == "promotion" else f"{what} of "
            console().print(f"{of}promotion {end.promotion_id} of branch {end.branch}")
        console().print(table(names, rows) if rows else "there is no scope in both memories")
        _print_losses(end)
        if end.behind:
            echo(
                f"{end.behind} records came in since the branch read the log: what was drawn from"
                " them stays as it is"
            )
        if any(each.status == "waiting" for each in end.scopes):
            echo(
                f"the {what} of some scopes waits for the next `palimpsest run`; `palimpsest replay"
                " promotions` shows what became of it"
            )
    if any(each.status == "refused" for each in end.scopes):
        raise typer.Exit(1)


def _print_losses(end: PromotionEnd) -> None:
    from palimpsest.ops.cli.tables import console, table

    lost: list[tuple[object, ...]] = [
        (each.scope, text) for each in end.scopes for text in each.losses
    ]
    if lost:
        title = "\nwould be forgotten, with --allow-loss"
        console().print(table(("scope", "fact"), lost[:MOST_SHOWN], title=title))
        _print_rest(len(lost))


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
