"""erase: what memories say leaves the stores, their files and the embedded log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli import options
from palimpsest.ops.cli.command_results import carry_out_and_tell, found
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, wrong_use
from palimpsest.ops.cli.forgetting import Cascade, Confirm, Force, MemoryIds, show

if TYPE_CHECKING:
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.queries.requests import ForgetPreviewRequest, JsonObject
    from palimpsest.schemas.commands import Command

All = Annotated[bool, typer.Option("--all", help="All that the scope holds.")]
Preview = Annotated[
    bool, typer.Option("--preview", help="Show what would be erased, with its token.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Without the token of a preview.")]
FilesWait = Annotated[float, typer.Option(min=0, help="Seconds to wait until no file has it.")]


def register(app: typer.Typer) -> None:
    command(app)(erase)


def erase(
    cli: Cli,
    memory_ids: MemoryIds = None,
    reason: options.Reason = "",
    scope: options.OfScope = None,
    all: All = False,  # noqa: A002
    cascade: Cascade = False,
    preview: Preview = False,
    confirm: Confirm = None,
    yes: Yes = False,
    force: Force = False,
    key: options.Key = None,
    wait: FilesWait = 60.0,
    json: AsJson = False,
) -> None:
    """Erase what memories say, for good: by ids, or all of a scope.

    It leaves all tables at once, and the files of the stores and the embedded log a moment later,
    which is waited for. More than 25 memories, and a whole scope, need the token of a preview or
    --yes. What was forgotten before can be erased, too.

    Example: palimpsest erase 1f0c9a52 --cascade --reason "Ana asked for it"
    """
    selection = _selection(cli, memory_ids, scope, all, cascade)
    if preview:
        _show(cast("JsonObject", cli.ask(selection)), json)
        return
    if not reason.strip():
        raise wrong_use("a --reason is needed to erase; it is kept in the history")
    order = _command(cli, selection, reason, confirm, yes, force)
    carry_out_and_tell(cli, selection.scope, order, wait, json, key)


def _selection(
    cli: Cli, memory_ids: list[str] | None, scope: str | None, whole: bool, cascade: bool
) -> ForgetPreviewRequest:
    from palimpsest.ops.queries.requests import ForgetPreviewRequest

    if whole:
        if memory_ids or not scope:
            raise wrong_use("--all is for all of a --scope, without ids")
        return ForgetPreviewRequest(scope, hard=True, whole_scope=True)
    if not memory_ids:
        raise wrong_use("name the memories by their ids, or a --scope with --all")
    known = found(cli, memory_ids)
    scopes = {each for _, each in known} | ({scope} if scope else set())
    if len(scopes) > 1:
        raise wrong_use(f"these memories lie in several scopes: {', '.join(sorted(scopes))}")
    ids = tuple(memory_id for memory_id, _ in known)
    return ForgetPreviewRequest(scopes.pop(), ids, cascade=cascade, hard=True)


def _command(
    cli: Cli,
    selection: ForgetPreviewRequest,
    reason: str,
    token: str | None,
    yes: bool,
    force: bool,
) -> Command:
    """By few ids nothing need be looked at; what became of each is told."""
    from palimpsest.ops.forgetting import erase_command
    from palimpsest.schemas.commands import ForgetCommand
    from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED

    few = len(selection.memory_ids) <= FORGOTTEN_UNCONFIRMED and not selection.whole_scope
    if few and token is None:
        return ForgetCommand(
            memory_ids=selection.memory_ids,
            reason=reason,
            force=force,
            cascade=selection.cascade or None,
            hard=True,
        )

    async def choosing(queries: Queries) -> Command:
        given = token
        if given is None and yes:
            answer = cast("JsonObject", await queries.answer(selection))
            given = str(answer["confirm_token"])
        return await erase_command(queries, selection, reason, given, force)

    return cli.with_queries(choosing)


def _show(answer: JsonObject, as_json: bool) -> None:
    if "memories" not in answer:
        show(answer, as_json)
    elif as_json:
        print_json(answer)
    else:
        echo(f"the scope {answer['scope']} holds {answer['memories']} memories")
        echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")
