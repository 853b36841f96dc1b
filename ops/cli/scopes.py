"""scopes: which memory spaces there are."""

from __future__ import annotations

from typing import cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, complain, echo, print_json


def register(app: typer.Typer) -> None:
    command(app, reads=True)(scopes)


def scopes(cli: Cli, json: AsJson = False) -> None:
    """List the memory spaces with how much is in each, the one last active first.

    Example: palimpsest scopes
    """
    found = _scopes(cli)
    if json:
        print_json({"scopes": found})
        return
    if not found:
        echo("no scopes yet; `palimpsest run` makes them from published turns")
        return
    from palimpsest.ops.cli.tables import console, table

    names = ("scope", "turns", "memories", "facts", "last_activity")
    shown = [{**row, "last_activity": str(row["last_activity"] or "")[:19]} for row in found]
    console().print(
        table(
            tuple(name.replace("_", " ") for name in names),
            [tuple(row[name] for name in names) for row in shown],
        )
    )


def tell_unknown(cli: Cli, scope: str) -> None:
    """Say on stderr when there is no such scope, with the nearest name. This is no failure: a
    scope begins with its first turn, and a new one is empty."""
    import difflib

    known = [str(row["scope"]) for row in _scopes(cli)]
    if scope in known:
        return
    near = difflib.get_close_matches(scope, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else "."
    complain(f"there is no scope {scope} yet{meant} `palimpsest scopes` lists them all")


def _scopes(cli: Cli) -> list[dict[str, object]]:
    from palimpsest.ops.queries.requests import ScopesRequest

    answer = cast("dict[str, object]", cli.ask(ScopesRequest()))
    return cast("list[dict[str, object]]", answer["scopes"])
