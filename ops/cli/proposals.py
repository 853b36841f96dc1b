"""proposals: changes that were held back, for a person to apply or dismiss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ops.cli.common import AsJson, Cli, command, complain, print_json, wrong_use

if TYPE_CHECKING:
    from schemas.messages import ApplyProposalsCommand, DismissProposalsCommand

DONE = ("updated", "deleted", "deduped", "dismissed")
MOST = 200
"""Proposals that one command names."""

ItemIds = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids, or their first 8.")]
All = Annotated[bool, typer.Option("--all", help="All that are held back.")]
OfScope = Annotated[str | None, typer.Option("--scope", "-s", help="Only of this memory space.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the history.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for a running worker's answer.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Changes that were held back: look, let them happen, or dismiss them.",
        no_args_is_help=True,
    )
    command(group, "list")(list_)
    command(group)(apply)
    command(group)(dismiss)
    app.add_typer(group, name="proposals")


def list_(
    cli: Cli,
    scope: OfScope = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most.")] = 50,
    json: AsJson = False,
) -> None:
    """List the updates and deletes that were proposed and not allowed, oldest first.

    Example: palimpsest proposals list --scope support
    """
    from ops.requests import HeldRequest

    answer = cast("dict[str, object]", cli.ask(HeldRequest(scope, (), limit)))
    if json:
        print_json(answer)
        return
    from ops.cli.tables import console, table

    held = cast("list[dict[str, object]]", answer["proposals"])
    names = ("id", "state", "scope", "action", "memory", "fact", "occurred_at")
    console().print(
        table(
            names,
            [tuple(str(row[n])[:8] if n == "id" else row[n] for n in names) for row in held],
        )
        if held
        else "nothing is held back"
    )


def apply(
    cli: Cli,
    item_ids: ItemIds = None,
    reason: Reason = "applied by hand",
    all_: All = False,
    scope: OfScope = None,
    force: Annotated[bool, typer.Option("--force", help="To pinned memories too.")] = False,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Let changes happen that were held back. A memory that changed since stays as it is.

    Example: palimpsest proposals apply 5b1f22aa --reason "she did move"
    """
    from schemas.messages import ApplyProposalsCommand

    held = _held(cli, item_ids, all_, scope)
    orders = [
        (where, ApplyProposalsCommand(item_ids=ids, reason=_said(reason), force=force))
        for where, ids in held
    ]
    _carry_out(cli, orders, wait, json)


def dismiss(
    cli: Cli,
    item_ids: ItemIds = None,
    reason: Reason = "dismissed by hand",
    all_: All = False,
    scope: OfScope = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Give changes up that were held back; the memories stay as they are.

    Example: palimpsest proposals dismiss 5b1f22aa --reason "it was a joke"
    """
    from schemas.messages import DismissProposalsCommand

    held = _held(cli, item_ids, all_, scope)
    orders = [
        (where, DismissProposalsCommand(item_ids=ids, reason=_said(reason))) for where, ids in held
    ]
    _carry_out(cli, orders, wait, json)


def _said(reason: str) -> str:
    if not reason.strip():
        raise wrong_use("the reason is empty")
    return reason


def _held(
    cli: Cli, item_ids: list[str] | None, all_: bool, scope: str | None
) -> list[tuple[str, tuple[str, ...]]]:
    """Scopes, each with full ids of what is held back there, no more than a command takes."""
    from ops.requests import HeldRequest

    if bool(item_ids) == all_:
        raise wrong_use("name the proposals, or say --all")
    asked = HeldRequest(scope, tuple(item_ids or ()), 1_000_000)
    answer = cast("dict[str, list[dict[str, str]]]", cli.ask(asked))
    found = answer["proposals"]
    for given in item_ids or ():
        matches = [row["id"] for row in found if row["id"].startswith(given)]
        if not matches:
            complain(f"{given} is not held back; `palimpsest proposals list` shows what is")
            raise typer.Exit(1)
        if len(matches) > 1:
            complain(f"more than one proposal begins with {given}; write more of it")
            raise typer.Exit(1)
    by_scope: dict[str, list[str]] = defaultdict(list)
    for row in found:
        by_scope[row["scope"]].append(row["id"])
    return [
        (where, tuple(ids[start : start + MOST]))
        for where, ids in by_scope.items()
        for start in range(0, len(ids), MOST)
    ]


def _carry_out(
    cli: Cli,
    orders: Sequence[tuple[str, ApplyProposalsCommand | DismissProposalsCommand]],
    wait: float,
    as_json: bool,
) -> None:
    """Append the commands; tell their results when a worker gives them in time."""
    import asyncio

    from ops.commanding import publish, result_of

    settings = cli.settings
    commands: list[dict[str, object]] = []
    for scope, order in orders:
        command_id = publish(settings, scope, order)
        result = asyncio.run(result_of(settings, command_id, wait))
        commands.append(
            {"command_id": command_id, "scope": scope, "applied": False}
            if result is None
            else {
                "command_id": command_id,
                "scope": scope,
                "applied": result["error"] is None,
                **result,
            }
        )
    if as_json:
        print_json({"commands": commands})
    elif not commands:
        typer.echo("nothing is held back")
    refused = [_told(result, as_json) for result in commands]
    if any(refused):
        raise typer.Exit(1)


def _told(result: dict[str, object], as_json: bool) -> bool:
    """Print what became of one command, unless that was done; whether anything was refused."""
    if "error" not in result:
        if not as_json:
            typer.echo(
                f"accepted as command {result['command_id']}; it is applied by the running worker,"
                " or by the next `palimpsest run`"
            )
        return False
    if result["error"] is not None:
        if not as_json:
            complain(str(result["error"]))
        return True
    outcomes = cast("list[dict[str, object]]", result["result"])
    if not as_json:
        for outcome in outcomes:
            typer.echo(", ".join(f"{name} {value}" for name, value in outcome.items()))
    return any(outcome["status"] not in DONE for outcome in outcomes)
