"""forget and recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli import options
from palimpsest.ops.cli.command_results import carry_out_and_tell, found
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, wrong_use

if TYPE_CHECKING:
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.queries.requests import ForgetPreviewRequest, JsonObject
    from palimpsest.schemas.commands import ForgetCommand


def register(app: typer.Typer) -> None:
    for function in (forget, recover):
        command(app)(function)


MemoryIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID…", help="Ids, or their first 8.")
]
Question = Annotated[str | None, typer.Option("--query", help="What is found for this question.")]
SourceType = Annotated[str | None, typer.Option(help="Only of this kind of source.")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=200, help="At most; else 200, of a question 20.")
]
Cascade = Annotated[bool, typer.Option("--cascade", help="Also what was drawn from nothing else.")]
Preview = Annotated[
    bool, typer.Option("--preview", help="Show what would be forgotten, with its token.")
]
Confirm = Annotated[str | None, typer.Option(metavar="TOKEN", help="The token of the preview.")]
Force = Annotated[bool, typer.Option("--force", help="Pinned ones too.")]
Hard = Annotated[bool, typer.Option("--hard", help="Erase what they say, for good.")]


def forget(
    cli: Cli,
    memory_ids: MemoryIds = None,
    reason: options.Reason = "",
    query: Question = None,
    scope: options.OfScope = None,
    type: options.OfTypes = None,  # noqa: A002
    tag: options.AnyTags = None,
    who: options.ByPerson = None,
    source_type: SourceType = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Limit = None,
    cascade: Cascade = False,
    preview: Preview = False,
    confirm: Confirm = None,
    force: Force = False,
    hard: Hard = False,
    role: options.InRoles = None,
    min_score: options.LeastScore = None,
    if_version: options.IfVersion = None,
    key: options.Key = None,
    wait: options.Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Forget memories: hidden at once, recoverable for pipeline.recovery_days; or with --hard
    erased, as `palimpsest erase` does.

    By ids, or in a scope by a question or by filters. More than 25 at once need the token of a
    preview; with a token nothing is forgotten unless all is still as the preview showed it.

    Example: palimpsest forget --query "old project" --scope support --preview
    """
    from palimpsest.ops.queries.requests import ForgetPreviewRequest

    known = found(cli, memory_ids) if memory_ids else []
    selection = ForgetPreviewRequest(
        _one_scope(known, scope),
        tuple(memory_id for memory_id, _ in known),
        query,
        tuple(type or ()),
        tuple(tag or ()),
        who,
        source_type,
        options.in_utc(since),
        options.in_utc(until),
        limit,
        *(cascade, hard),
        roles=tuple(role or ()),
        min_score=min_score,
    )
    if preview:
        show(cast("JsonObject", cli.ask(selection)), json)
        return
    order = _command(cli, selection, reason, confirm, force, if_version)
    carry_out_and_tell(cli, selection.scope, order, wait, json, key)


def recover(
    cli: Cli,
    memory_id: options.MemoryId,
    reason: options.Reason = "",
    if_version: options.IfVersion = None,
    wait: options.Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Take a forgotten memory back.

    Example: palimpsest recover 1f0c9a52
    """
    from palimpsest.schemas.commands import RecoverCommand

    full_id, scope = found(cli, (memory_id,))[0]
    order = RecoverCommand(memory_id=full_id, reason=reason, if_version=if_version)
    carry_out_and_tell(cli, scope, order, wait, json)


def _one_scope(known: list[tuple[str, str]], given: str | None) -> str:
    scopes = {scope for _, scope in known} | ({given} if given else set())
    if len(scopes) > 1:
        raise wrong_use(f"these memories lie in several scopes: {', '.join(sorted(scopes))}")
    if not scopes:
        raise wrong_use("name the memories by their ids, or a --scope and what to look for in it")
    return scopes.pop()


def _command(
    cli: Cli,
    selection: ForgetPreviewRequest,
    reason: str,
    token: str | None,
    force: bool,
    if_version: int | None,
) -> ForgetCommand:
    """The command. By ids alone nothing need be looked at: its result says what became of each."""
    from palimpsest.ops.forgetting import forget_by_ids, forget_command
    from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED

    if not reason.strip():
        raise wrong_use("a --reason is needed to forget; it is kept in the history")
    if if_version is not None and len(selection.memory_ids) != 1:
        raise wrong_use("--if-version is for one memory by its id")
    if token is None and len(selection.memory_ids) <= FORGOTTEN_UNCONFIRMED:
        order = forget_by_ids(selection, reason, None, force, if_version)
        if order is not None:
            return order

    async def choosing(queries: Queries) -> ForgetCommand:
        return await forget_command(queries, selection, reason, token, force)

    return cli.with_queries(choosing)


def show(answer: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    names = ("id", "score", "type", "pinned", "version", "content")
    print_listed(names, answer["candidates"], "nothing matches")
    along = cast("list[JsonObject]", answer["cascade"])
    if along:
        echo(f"drawn from nothing else, and forgotten with --cascade ({len(along)}):")
        print_listed(("id", "type", "pinned", "version", "content"), along, "")
    for each in cast("list[JsonObject]", answer["hides"]):
        left = each["left"] or "nothing is left of it"
        echo(f"hidden in {str(each['id'])[:8]}: {each['content']!r}: {left}")
    if answer["more"]:
        echo("more match than one command forgets; see --limit")
    if answer["candidates"]:
        echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")
