"""entity, weak, stats: what is known of somebody, what rests on little, how much there is."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json
from palimpsest.ops.cli.options import InScope, OfScope, Rows
from palimpsest.ops.cli.scopes import tell_unknown


def register(app: typer.Typer) -> None:
    for function in (entity, weak, stats):
        command(app, reads=True)(function)


def entity(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A name of a person or a thing.")],
    scope: InScope,
    limit: Rows = 20,
    json: AsJson = False,
) -> None:
    """Show who or what a name stands for: other names, relations, and the memories that name it.

    Example: palimpsest entity Ana --scope support
    """
    from palimpsest.ops.queries.requests import EntityRequest

    answer = cast("dict[str, object]", cli.ask(EntityRequest(scope, name, limit)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_entity

    print_entity(answer)


def weak(
    cli: Cli,
    scope: InScope,
    below: Annotated[float, typer.Option(min=0, max=1, help="Confidence under this.")] = 0.8,
    limit: Rows = 20,
    json: AsJson = False,
) -> None:
    """List memories that rest on little and that nobody confirmed, the least sure first.

    `palimpsest confirm` settles one that is right, `palimpsest modify` or `forget` one that is not.

    Example: palimpsest weak --scope support
    """
    from palimpsest.ops.queries.requests import WeakRequest

    answer = cast("dict[str, object]", cli.ask(WeakRequest(scope, below, limit)))
    if not answer["memories"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    columns = ("id", "confidence", "type", "content")
    print_listed(columns, answer["memories"], f"no memory is under {below:g}")


def stats(cli: Cli, scope: OfScope = None, json: AsJson = False) -> None:
    """Count what is remembered, by state and type, of a scope or of all.

    Example: palimpsest stats --scope support
    """
    from palimpsest.ops.queries.requests import StatsRequest

    answer = cast("dict[str, object]", cli.ask(StatsRequest(scope)))
    if scope is not None:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    types = cast("dict[str, int]", answer["types"])
    for name, count in {**answer, "types": ", ".join(f"{n} {types[n]}" for n in types)}.items():
        if name != "scope":
            echo(f"{name}: {count}")
