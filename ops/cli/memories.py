"""recall, get, list, history, explain: what is remembered, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from palimpsest.ops.cli import options
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json
from palimpsest.ops.cli.scopes import tell_unknown

if TYPE_CHECKING:
    from palimpsest.ops.queries.requests import JsonObject, RecallRequest


def register(app: typer.Typer) -> None:
    command(app, reads=True)(recall)
    command(app, reads=True)(context)
    command(app, reads=True)(get)
    command(app, "list", reads=True)(list_)
    command(app, reads=True)(history)
    command(app, reads=True)(explain)


def recall(
    cli: Cli,
    text: Annotated[str, typer.Argument(help="What to look for, in any words.")],
    scope: options.InScope,
    limit: options.Results = 10,
    type: options.OfTypes = None,  # noqa: A002
    tag: options.AnyTags = None,
    all_tags: options.AllTags = None,
    who: options.ByPerson = None,
    pinned: options.Pinned = None,
    importance_min: options.LeastImportance = None,
    project: options.OfProject = None,
    session: options.OfSession = None,
    since: options.Since = None,
    until: options.Until = None,
    as_of: options.AsOf = None,
    category: options.OfCategories = None,
    valid_at: options.ValidAt = None,
    group: options.Grouped = True,
    explain: options.Explained = False,
    neighbours: options.Neighbours = 0,
    rerank: options.Reranked = None,
    role: options.InRoles = None,
    asked_at: options.AskedAt = None,
    min_score: options.LeastScore = None,
    json: AsJson = False,
) -> None:
    """Find memories of a scope by meaning and by words, best first, with the parts of each score.

    Example: palimpsest recall "what does Ana drink?" --scope support
    """
    from palimpsest.ops.queries.requests import RecallRequest

    given: dict[str, Any] = {"types": type, "tags_any": tag, "tags_all": all_tags}
    given |= {"categories": category, "roles": role}
    given = {name: tuple(values or ()) for name, values in given.items()}
    times = {"since": since, "until": until, "as_of": as_of, "valid_at": valid_at}
    times |= {"asked_at": asked_at}
    given |= {name: options.in_utc(time) for name, time in times.items()}
    given |= {"who": who, "pinned": pinned, "importance_min": importance_min, "project": project}
    given |= {"session": session, "group": group, "explain": explain, "min_score": min_score}
    request = RecallRequest(scope, text, limit, neighbours=neighbours, rerank=rerank, **given)
    _recall(cli, request, json)


def _recall(cli: Cli, request: RecallRequest, as_json: bool) -> None:
    answer = cli.ask(request)
    if not cast("JsonObject", answer)["results"]:
        tell_unknown(cli, request.scope)
    if as_json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_recall

    print_recall(answer)


def context(
    cli: Cli,
    text: Annotated[str, typer.Argument(help="What an answer will be about.")],
    scope: options.InScope,
    budget: Annotated[
        int | None, typer.Option(min=50, max=100_000, help="Tokens at most; else by complexity.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Begin with what is kept of this session.")
    ] = None,
    asked_at: options.AskedAt = None,
    min_score: options.LeastScore = None,
    json: AsJson = False,
) -> None:
    """Collect what is known about a question, as Markdown for a model's prompt.

    The standing profile of the persons it is about, then what helps most to answer, by day.

    Example: palimpsest context "what does Ana drink?" --scope support
    """
    from palimpsest.ops.queries.requests import ContextRequest

    request = ContextRequest(scope, text, budget, session, options.in_utc(asked_at), min_score)
    answer = cast("JsonObject", cli.ask(request))
    if answer["text"] is None:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
    elif answer["text"] is None:
        echo("nothing is known about that")
    else:
        echo(str(answer["text"]))


def get(cli: Cli, memory_id: options.MemoryId, json: AsJson = False) -> None:
    """Show one memory with all its fields, also a forgotten one.

    Example: palimpsest get 1f0c9a52
    """
    from palimpsest.ops.queries.requests import GetRequest

    answer = cli.ask(GetRequest(memory_id))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_memory

    print_memory(cast("dict[str, object]", answer))


def list_(
    cli: Cli,
    scope: options.OfScope = None,
    type: options.OfTypes = None,  # noqa: A002
    session: options.OfSession = None,
    who: options.ByPerson = None,
    role: options.InRoles = None,
    category: options.OfCategories = None,
    temporal: options.Temporal = None,
    valid_at: options.ValidAt = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Forgotten ones instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Memories on a page.")] = 20,
    before: Annotated[
        str | None, typer.Option(help="The page after the one whose `next` this is.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List memories, newest first.

    Example: palimpsest list --scope support --type preference
    """
    from palimpsest.ops.queries.requests import ListRequest

    request = ListRequest(
        scope,
        tuple(type or ()),
        session,
        who,
        deleted,
        limit,
        before,
        categories=tuple(category or ()),
        temporal=temporal,
        valid_at=options.in_utc(valid_at),
        roles=tuple(role or ()),
    )
    answer = cast("dict[str, object]", cli.ask(request))
    if scope is not None and not answer["memories"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_memories

    print_memories(cast("list[dict[str, object]]", answer["memories"]))
    if answer["next"] is not None:
        echo(f"\nmore: --before '{answer['next']}'")


def history(
    cli: Cli,
    memory_id: options.MemoryId,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Events at most.")] = 200,
    json: AsJson = False,
) -> None:
    """Show everything that happened to a memory, in order.

    Example: palimpsest history 1f0c9a52
    """
    from palimpsest.ops.queries.requests import HistoryRequest

    answer = cast("dict[str, object]", cli.ask(HistoryRequest(memory_id, limit)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_events

    print_events(cast("list[dict[str, object]]", answer["events"]))


def explain(cli: Cli, memory_id: options.MemoryId, json: AsJson = False) -> None:
    """Explain a memory: the turns it came from, what it was before, what was decided and why.

    Example: palimpsest explain 1f0c9a52
    """
    from palimpsest.ops.queries.requests import ExplainRequest

    answer = cli.ask(ExplainRequest(memory_id))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.provenance import print_provenance

    print_provenance(answer)
