"""remember, modify, forget, recover, confirm, flags: commands that change memory; and result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli.command_results import Said, carry_out, said_of, tell
from palimpsest.ops.cli.common import AsJson, Cli, command, not_done, print_json, wrong_use
from palimpsest.ops.cli.options import MemoryId, Reason, Wait
from palimpsest.ops.cli.scopes import tell_unknown

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.messages import Command

MemoryIds = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids, or their first 8.")]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", help="Only when the memory is at this version.")
]


def register(app: typer.Typer) -> None:
    for function in (remember, modify, forget, recover, confirm, flags, result):
        command(app)(function)


def remember(
    cli: Cli,
    content: Annotated[str, typer.Argument(help="What to remember.")],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space.")],
    type: Annotated[  # noqa: A002
        str | None, typer.Option(help="Its type; else inferred from its words.")
    ] = None,
    importance: Annotated[
        float | None, typer.Option(min=0, max=1, help="From 0 to 1; else 0.8.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="No machine may change it.")] = False,
    who: Annotated[str | None, typer.Option(help="Whose memory it is.")] = None,
    project: Annotated[str | None, typer.Option(help="The project it belongs to.")] = None,
    session: Annotated[str, typer.Option(help="The session it belongs to.")] = "",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Remember a text on your wish. `critical:` before it pins it, `[a,b]:` tags it.

    Example: palimpsest remember "Ana is allergic to peanuts" --scope support --pinned
    """
    from palimpsest.schemas.messages import RememberCommand

    order = RememberCommand(
        content=content,
        type=type,
        importance=importance,
        tags=tuple(tag or ()),
        pinned=pinned,
        who=who,
        project=project,
        session_id=session,
    )
    _carry_out(cli, scope, order, wait, json)


def modify(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason,
    content: Annotated[str | None, typer.Option(help="The new text.")] = None,
    type: Annotated[str | None, typer.Option(help="The new type.")] = None,  # noqa: A002
    importance: Annotated[
        float | None, typer.Option(min=0, max=1, help="The new importance, from 0 to 1.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="The new tags, all of them; may be repeated.")
    ] = None,
    pinned: Annotated[bool | None, typer.Option(help="Pin it, or no longer.")] = None,
    who: Annotated[str | None, typer.Option(help="Whose memory it is.")] = None,
    if_version: IfVersion = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Change a memory; the state before stays in its history.

    Example: palimpsest modify 1f0c9a52 --content "Ana lives in Porto" --reason "she moved"
    """
    from palimpsest.schemas.messages import MemoryPatch, ModifyCommand

    if all(given is None for given in (content, type, importance, tag, pinned, who)):
        raise wrong_use("nothing to change; name at least one of --content, --type, --tag …")
    found = _found(cli, (memory_id,))
    patch = MemoryPatch(
        memory_id=found[0][0],
        content=content,
        type=type,
        importance=importance,
        tags=None if tag is None else tuple(tag),
        pinned=pinned,
        who=who,
        if_version=if_version,
    )
    _carry_out(cli, found[0][1], ModifyCommand(patches=(patch,), reason=reason), wait, json)


def forget(
    cli: Cli,
    memory_ids: MemoryIds,
    reason: Reason,
    force: Annotated[bool, typer.Option("--force", help="Pinned ones too.")] = False,
    if_version: IfVersion = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Forget memories: hidden at once, recoverable for pipeline.recovery_days.

    Example: palimpsest forget 1f0c9a52 --reason "Ana asked for it"
    """
    from palimpsest.schemas.messages import ForgetCommand

    found = _found(cli, memory_ids)
    scopes = {scope for _, scope in found}
    if len(scopes) > 1:
        raise wrong_use(f"these memories lie in several scopes: {', '.join(sorted(scopes))}")
    order = ForgetCommand(
        memory_ids=tuple(memory_id for memory_id, _ in found),
        reason=reason,
        force=force,
        if_version=if_version,
    )
    _carry_out(cli, found[0][1], order, wait, json)


def recover(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason = "",
    if_version: IfVersion = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Take a forgotten memory back.

    Example: palimpsest recover 1f0c9a52
    """
    from palimpsest.schemas.messages import RecoverCommand

    found = _found(cli, (memory_id,))
    order = RecoverCommand(memory_id=found[0][0], reason=reason, if_version=if_version)
    _carry_out(cli, found[0][1], order, wait, json)


def confirm(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason = "",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Vouch for a memory: it no longer decays, and no machine may change it.

    Example: palimpsest confirm 1f0c9a52
    """
    from palimpsest.schemas.messages import ConfirmCommand

    found = _found(cli, (memory_id,))
    _carry_out(cli, found[0][1], ConfirmCommand(memory_id=found[0][0], reason=reason), wait, json)


def flags(
    cli: Cli,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="The memory space.")],
    enabled: Annotated[bool | None, typer.Option(help="Extract from turns.")] = None,
    shadow_mode: Annotated[bool | None, typer.Option(help="Decide, but write nothing.")] = None,
    allow_update_delete: Annotated[
        bool | None, typer.Option(help="Carry out UPDATE and DELETE.")
    ] = None,
    mutations_frozen: Annotated[bool | None, typer.Option(help="Change nothing at all.")] = None,
    autonomous_frozen: Annotated[bool | None, typer.Option(help="No timers.")] = None,
    reason: Reason = "",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Show the flags of a scope, or set some over those of the settings; a change is audited.

    Example: palimpsest flags support --allow-update-delete
    """
    from palimpsest.schemas.messages import SetFlagsCommand

    given = (enabled, shadow_mode, allow_update_delete, mutations_frozen, autonomous_frozen)
    if all(flag is None for flag in given):
        _show_flags(cli, scope, json)
        return
    order = SetFlagsCommand(
        enabled=enabled,
        shadow_mode=shadow_mode,
        allow_update_delete=allow_update_delete,
        mutations_frozen=mutations_frozen,
        autonomous_frozen=autonomous_frozen,
        reason=reason,
    )
    _carry_out(cli, scope, order, wait, json)


def result(
    cli: Cli,
    command_id: Annotated[str, typer.Argument(metavar="ID", help="The command's id.")],
    json: AsJson = False,
) -> None:
    """Tell what became of a command: of one given here, or published by another program.

    Example: palimpsest result 0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11
    """
    from palimpsest.ops.queries.requests import CommandRequest

    answer = cast("dict[str, object] | None", cli.ask(CommandRequest(command_id)))
    if answer is None:
        raise not_done(f"no command {command_id} was carried out yet; it is on its way, or unknown")
    _tell(said_of(command_id, answer), json, cli.settings)


def _show_flags(cli: Cli, scope: str, as_json: bool) -> None:
    from palimpsest.ops.queries.requests import FlagsRequest

    answer = cast("dict[str, list[dict[str, object]]]", cli.ask(FlagsRequest(scope)))
    tell_unknown(cli, scope)
    if as_json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import console, table

    rows = [(row["flag"], row["value"], row["from"]) for row in answer["flags"]]
    console().print(table(("flag", "value", "from"), [*rows]))


def _found(cli: Cli, memory_ids: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    """Full id and scope of each memory."""
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.queries.requests import ScopeRequest

    async def asking(queries: Queries) -> list[tuple[str, str]]:
        found = []
        for memory_id in memory_ids:
            said = cast("dict[str, str]", await queries.answer(ScopeRequest(memory_id)))
            found.append((said["id"], said["scope"]))
        return found

    return cli.with_queries(asking)


def _carry_out(cli: Cli, scope: str, order: Command, wait: float, as_json: bool) -> None:
    """Append the command; tell its result when a worker gives one in time."""
    settings = cli.settings
    if not scope.strip():
        raise wrong_use("the scope is empty")
    _tell(carry_out(settings, scope, order, wait), as_json, settings, wait)


def _tell(said: Said, as_json: bool, settings: Settings, waited: float = 0.0) -> None:
    """Raises Exit with code 1 where the command was refused."""
    if as_json:
        print_json(said)
    if tell(said, as_json, settings, waited):
        raise typer.Exit(1)
