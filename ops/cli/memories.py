"""recall, get, list, history, explain: what is remembered, and why."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ops.cli.common import AsJson, Cli, command, print_json
from ops.cli.scopes import tell_unknown

if TYPE_CHECKING:
    from ops.requests import JsonObject

MemoryId = Annotated[
    str, typer.Argument(metavar="ID", help="A memory's id, or its first 8 characters.")
]


def register(app: typer.Typer) -> None:
    command(app)(recall)
    command(app)(context)
    command(app)(get)
    command(app, "list")(list_)
    command(app)(history)
    command(app)(explain)


def recall(
    cli: Cli,
    text: Annotated[str, typer.Argument(help="What to look for, in any words.")],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space to search.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Results at most.")] = 10,
    type: Annotated[  # noqa: A002
        list[str] | None, typer.Option(help="Only this type; may be repeated.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only with one of these tags; may be repeated.")
    ] = None,
    all_tags: Annotated[
        list[str] | None, typer.Option("--all-tags", help="Only with all of these tags.")
    ] = None,
    who: Annotated[
        str | None, typer.Option(help="Said or written by this person, or drawn from that.")
    ] = None,
    pinned: Annotated[bool | None, typer.Option(help="Only pinned ones, or only others.")] = None,
    importance_min: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least importance, from 0 to 1.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Not before (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Before this time (UTC).")] = None,
    as_of: Annotated[
        datetime | None, typer.Option("--as-of", help="As known at this time (UTC).")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(help="Only of this category; may be repeated.")
    ] = None,
    group: Annotated[bool, typer.Option(help="A fact with its turns as one result.")] = True,
    explain: Annotated[bool, typer.Option("--explain", help="Tell more of each score.")] = False,
    neighbours: Annotated[
        int, typer.Option(min=0, max=20, help="Turns around a turn, on each side.")
    ] = 0,
    json: AsJson = False,
) -> None:
    """Find memories of a scope by meaning and by words, best first, with the parts of each score.

    Example: palimpsest recall "what does Ana drink?" --scope support
    """
    from ops.requests import RecallRequest

    answer = cli.ask(
        RecallRequest(
            scope=scope,
            text=text,
            limit=limit,
            types=tuple(type or ()),
            tags_any=tuple(tag or ()),
            tags_all=tuple(all_tags or ()),
            who=who,
            pinned=pinned,
            importance_min=importance_min,
            project=project,
            session=session,
            since=_utc(since),
            until=_utc(until),
            as_of=_utc(as_of),
            categories=tuple(category or ()),
            group=group,
            explain=explain,
            neighbours=neighbours,
        )
    )
    if not cast("JsonObject", answer)["results"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from ops.cli.tables import print_recall

    print_recall(answer)


def context(
    cli: Cli,
    text: Annotated[str, typer.Argument(help="What an answer will be about.")],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space to search.")],
    budget: Annotated[
        int | None, typer.Option(min=50, max=100_000, help="Tokens at most; else by complexity.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Put together what is known about a question, as Markdown for a model's prompt.

    Facts, profiles of entities, the timeline and the evidence, each with date and id.

    Example: palimpsest context "what does Ana drink?" --scope support
    """
    from ops.requests import ContextRequest

    answer = cast("JsonObject", cli.ask(ContextRequest(scope, text, budget)))
    if answer["text"] is None:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
    elif answer["text"] is None:
        typer.echo("nothing is known about that")
    else:
        typer.echo(str(answer["text"]))


def _utc(time: datetime | None) -> datetime | None:
    from datetime import UTC

    return None if time is None else time.replace(tzinfo=time.tzinfo or UTC)


def get(cli: Cli, memory_id: MemoryId, json: AsJson = False) -> None:
    """Show one memory with all its fields, also a forgotten one.

    Example: palimpsest get 1f0c9a52
    """
    from ops.requests import GetRequest

    answer = cli.ask(GetRequest(memory_id))
    if json:
        print_json(answer)
        return
    from ops.cli.tables import print_memory

    print_memory(cast("dict[str, object]", answer))


def list_(
    cli: Cli,
    scope: Annotated[str | None, typer.Option("--scope", "-s", help="Only this scope.")] = None,
    type: Annotated[  # noqa: A002
        list[str] | None, typer.Option(help="Only this type; may be repeated.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    who: Annotated[
        str | None, typer.Option(help="Said or written by this person, or drawn from that.")
    ] = None,
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
    from ops.requests import ListRequest

    request = ListRequest(scope, tuple(type or ()), session, who, deleted, limit, before)
    answer = cast("dict[str, object]", cli.ask(request))
    if scope is not None and not answer["memories"]:
        tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from ops.cli.tables import print_memories

    print_memories(cast("list[dict[str, object]]", answer["memories"]))
    if answer["next"] is not None:
        typer.echo(f"\nmore: --before '{answer['next']}'")


def history(
    cli: Cli,
    memory_id: MemoryId,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Events at most.")] = 200,
    json: AsJson = False,
) -> None:
    """Show everything that happened to a memory, in order.

    Example: palimpsest history 1f0c9a52
    """
    from ops.requests import HistoryRequest

    answer = cast("dict[str, object]", cli.ask(HistoryRequest(memory_id, limit)))
    if json:
        print_json(answer)
        return
    from ops.cli.tables import print_events

    print_events(cast("list[dict[str, object]]", answer["events"]))


def explain(cli: Cli, memory_id: MemoryId, json: AsJson = False) -> None:
    """Explain a memory: the turns it came from, what it was before, what was decided and why.

    Example: palimpsest explain 1f0c9a52
    """
    from ops.requests import ExplainRequest

    answer = cli.ask(ExplainRequest(memory_id))
    if json:
        print_json(answer)
        return
    from ops.cli.provenance import print_provenance

    print_provenance(answer)
