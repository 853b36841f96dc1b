"""proposals: changes that were held back, for a person to apply or dismiss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli.command_results import carry_out, tell
from palimpsest.ops.cli.common import AsJson, Cli, command, complain, echo, print_json, wrong_use
from palimpsest.ops.cli.options import OfScope, Reason, Rows, Wait

if TYPE_CHECKING:
    from palimpsest.schemas.commands import ApplyProposalsCommand, DismissProposalsCommand

MOST = 200
"""Proposals that one command names."""

ItemIds = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids, or their first 8.")]
All = Annotated[bool, typer.Option("--all", help="All that are held back.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Changes that were held back: look, apply, or dismiss them.",
        no_args_is_help=True,
    )
    command(group, "list", reads=True)(list_)
    command(group)(apply)
    command(group)(dismiss)
    app.add_typer(group, name="proposals")


def list_(
    cli: Cli,
    scope: OfScope = None,
    limit: Rows = 50,
    json: AsJson = False,
) -> None:
    """List the updates and deletes that were proposed and not allowed, oldest first.

    Example: palimpsest proposals list --scope support
    """
    from palimpsest.ops.queries.requests import HeldProposalsRequest

    answer = cast("dict[str, object]", cli.ask(HeldProposalsRequest(scope, (), limit)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    names = ("id", "state", "scope", "action", "memory", "fact", "occurred_at")
    print_listed(names, answer["proposals"], "nothing is held back")


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
    """Apply changes that were held back. A memory that changed since stays as it is.

    Example: palimpsest proposals apply 5b1f22aa --reason "she did move"
    """
    from palimpsest.schemas.commands import ApplyProposalsCommand

    held = _held(cli, item_ids, all_, scope)
    orders = [
        (where, ApplyProposalsCommand(item_ids=ids, reason=_said(reason), force=force))
        for where, ids in held
    ]
    _carry_out_all(cli, orders, wait, json)


def dismiss(
    cli: Cli,
    item_ids: ItemIds = None,
    reason: Reason = "dismissed by hand",
    all_: All = False,
    scope: OfScope = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Dismiss changes that were held back; the memories stay as they are.

    Example: palimpsest proposals dismiss 5b1f22aa --reason "it was a joke"
    """
    from palimpsest.schemas.commands import DismissProposalsCommand

    held = _held(cli, item_ids, all_, scope)
    orders = [
        (where, DismissProposalsCommand(item_ids=ids, reason=_said(reason))) for where, ids in held
    ]
    _carry_out_all(cli, orders, wait, json)


def _said(reason: str) -> str:
    if not reason.strip():
        raise wrong_use("the reason is empty")
    return reason


def _held(
    cli: Cli, item_ids: list[str] | None, all_: bool, scope: str | None
) -> list[tuple[str, tuple[str, ...]]]:
    """Scopes, each with full ids of its held-back changes, at most MOST at a time."""
    from palimpsest.ops.queries.requests import HeldProposalsRequest

    if bool(item_ids) == all_:
        raise wrong_use("name the proposals, or say --all")
    asked = HeldProposalsRequest(scope, tuple(item_ids or ()), 1_000_000)
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


def _carry_out_all(
    cli: Cli,
    orders: Sequence[tuple[str, ApplyProposalsCommand | DismissProposalsCommand]],
    wait: float,
    as_json: bool,
) -> None:
    """Append the commands; tell their results when a worker gives them in time."""
    settings = cli.settings
    commands = [
        {"scope": scope, **carry_out(settings, scope, order, wait)} for scope, order in orders
    ]
    if as_json:
        print_json({"commands": commands})
    elif not commands:
        echo("nothing is held back")
    refused = [tell(said, as_json, settings, wait) for said in commands]
    if any(refused):
        raise typer.Exit(1)
