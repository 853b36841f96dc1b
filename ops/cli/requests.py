"""search, entities, embeddings, diagnostics: what is asked over HTTP, too."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json
from palimpsest.ops.cli.options import InRoles, InScope, OfTypes, Results, Rows
from palimpsest.ops.cli.scopes import tell_unknown

if TYPE_CHECKING:
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.queries.requests import JsonObject


def register(app: typer.Typer) -> None:
    for function in (search, entities, embeddings, diagnostics):
        command(app)(function)


def search(
    cli: Cli,
    text: Annotated[str, typer.Argument(help="Words to look for.")],
    scope: InScope,
    limit: Results = 10,
    type: OfTypes = None,  # noqa: A002
    role: InRoles = None,
    json: AsJson = False,
) -> None:
    """Find memories of a scope by their words alone, best first.

    Example: palimpsest search "coffee" --scope support
    """
    from palimpsest.ops.queries.requests import SearchRequest

    request = SearchRequest(scope, text, limit, tuple(type or ()), tuple(role or ()))
    answer = cast("JsonObject", cli.ask(request))
    if not answer["results"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_recall

    print_recall(answer)


def entities(
    cli: Cli,
    scope: InScope,
    text: Annotated[str | None, typer.Option("--name", help="Part of a name.")] = None,
    limit: Rows = 50,
    after: Annotated[
        str | None, typer.Option(help="The `next` of the page before, with --json.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List who and what a scope tells of, the most often told of first.

    Example: palimpsest entities --scope support
    """
    from palimpsest.ops.queries.requests import EntitiesRequest

    answer = cast("JsonObject", cli.ask(EntitiesRequest(scope, text, limit, after)))
    if not answer["entities"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    print_listed(("name", "type", "mentions"), answer["entities"], "no entity has such a name")


def embeddings(cli: Cli, scope: InScope) -> None:
    """Print the vectors of a scope's active memories, a JSON object a line.

    Example: palimpsest embeddings --scope support
    """
    from palimpsest.ops.queries.requests import EmbeddingsRequest

    async def printing(queries: Queries) -> None:
        after: str | None = None
        while True:
            page = cast("JsonObject", await queries.answer(EmbeddingsRequest(scope, after)))
            for row in cast("list[JsonObject]", page["embeddings"]):
                echo(json_module.dumps(row))
            if page["next"] is None:
                return
            after = str(page["next"])

    cli.with_queries(printing)


def diagnostics(
    cli: Cli,
    domain: Annotated[str | None, typer.Argument(help="Only this domain, as `queue`.")] = None,
    json: AsJson = False,
) -> None:
    """Tell how healthy the memory is, domain by domain, each with a score from 0 to 1.

    Exit code 1 where a domain is unhealthy.

    Example: palimpsest diagnostics
    """
    from palimpsest.ops.queries.requests import DiagnosticsRequest

    answer = cast("JsonObject", cli.ask(DiagnosticsRequest(domain)))
    domains = cast("dict[str, JsonObject]", answer["domains"])
    if json:
        print_json(answer)
    else:
        for name, found in domains.items():
            counts = cast("dict[str, int]", found["counts"])
            told = ", ".join(f"{label} {count}" for label, count in counts.items())
            echo(f"{name}: {found['status']} {found['score']} ({told})")
    if answer["status"] == "unhealthy":
        raise typer.Exit(1)
