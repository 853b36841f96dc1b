"""Commands that change memory, all but to forget and recover; and `result`."""

from __future__ import annotations

from typing import Annotated, TypeAlias, cast

import typer

from palimpsest.ops.cli.command_results import (
    carry_out_and_tell,
    found,
    said_of,
    tell_or_fail,
)
from palimpsest.ops.cli.common import AsJson, Cli, command, not_done, print_json, wrong_use
from palimpsest.ops.cli.options import IfVersion, Key, MemoryId, Reason, Wait
from palimpsest.ops.cli.scopes import tell_unknown

Patch: TypeAlias = dict[str, object]
"""Fields of a MemoryPatch."""


def register(app: typer.Typer) -> None:
    for function in (remember, modify, correct, pin, unpin, confirm, alias, flags, result):
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
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Remember a text on your wish. `critical:` before it pins it, `[a,b]:` tags it.

    Example: palimpsest remember "Ana is allergic to peanuts" --scope support --pinned
    """
    from palimpsest.schemas.commands import RememberCommand

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
    carry_out_and_tell(cli, scope, order, wait, json, key)


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
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Change a memory; the state before stays in its history.

    Example: palimpsest modify 1f0c9a52 --content "Ana lives in Porto" --reason "she moved"
    """
    if all(given is None for given in (content, type, importance, tag, pinned, who)):
        raise wrong_use("nothing to change; name at least one of --content, --type, --tag …")
    patch: Patch = {
        "content": content,
        "type": type,
        "importance": importance,
        "tags": None if tag is None else tuple(tag),
        "pinned": pinned,
        "who": who,
        "if_version": if_version,
    }
    _patch(cli, memory_id, patch, reason, wait, json, key)


def correct(
    cli: Cli,
    memory_id: MemoryId,
    content: Annotated[str, typer.Argument(help="What it shall say.")],
    reason: Reason = "corrected",
    if_version: IfVersion = None,
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Say what a memory should say; what it said stays in its history.

    Example: palimpsest correct 1f0c9a52 "Ana lives in Porto"
    """
    patch: Patch = {"content": content, "if_version": if_version}
    _patch(cli, memory_id, patch, reason, wait, json, key)


def pin(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason = "pinned",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Pin a memory: no machine may change or forget it, and its importance does not decay.

    Example: palimpsest pin 1f0c9a52
    """
    _patch(cli, memory_id, {"pinned": True}, reason, wait, json)


def unpin(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason = "unpinned",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Unpin a memory.

    Example: palimpsest unpin 1f0c9a52
    """
    _patch(cli, memory_id, {"pinned": False}, reason, wait, json)


def confirm(
    cli: Cli,
    memory_id: MemoryId,
    reason: Reason = "",
    if_version: IfVersion = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Vouch for a memory: it no longer decays, and no machine may change it.

    Example: palimpsest confirm 1f0c9a52
    """
    from palimpsest.schemas.commands import ConfirmCommand

    full_id, scope = found(cli, (memory_id,))[0]
    order = ConfirmCommand(memory_id=full_id, reason=reason, if_version=if_version)
    carry_out_and_tell(cli, scope, order, wait, json)


def alias(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A name.")],
    alias: Annotated[str, typer.Argument(help="Another name of the same.")],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space.")],
    reason: Reason = "",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Tell that two names mean the same: a person, a place, a thing.

    Example: palimpsest alias PostgreSQL Postgres --scope support
    """
    from palimpsest.schemas.commands import AliasCommand

    if not (name and alias):
        raise wrong_use("a name is empty")
    order = AliasCommand(name=name, alias=alias, reason=reason)
    carry_out_and_tell(cli, scope, order, wait, json)


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
    self_teaching_enabled: Annotated[
        bool | None, typer.Option(help="Let agents' tools write long-term memories.")
    ] = None,
    reason: Reason = "",
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Show the flags of a scope, or set some over those of the settings; a change is audited.

    Example: palimpsest flags support --allow-update-delete
    """
    from palimpsest.schemas.commands import SetFlagsCommand

    given = {
        "enabled": enabled,
        "shadow_mode": shadow_mode,
        "allow_update_delete": allow_update_delete,
        "mutations_frozen": mutations_frozen,
        "autonomous_frozen": autonomous_frozen,
        "self_teaching_enabled": self_teaching_enabled,
    }
    if all(flag is None for flag in given.values()):
        _show_flags(cli, scope, json)
        return
    order = SetFlagsCommand.model_validate({**given, "reason": reason})
    carry_out_and_tell(cli, scope, order, wait, json)


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
    tell_or_fail(said_of(command_id, answer), json, cli.settings)


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


def _patch(
    cli: Cli,
    memory_id: str,
    patch: Patch,
    reason: str,
    wait: float,
    as_json: bool,
    key: str | None = None,
) -> None:
    from palimpsest.schemas.commands import MemoryPatch, ModifyCommand

    full_id, scope = found(cli, (memory_id,))[0]
    patched = MemoryPatch.model_validate({**patch, "memory_id": full_id})
    order = ModifyCommand(patches=(patched,), reason=reason)
    carry_out_and_tell(cli, scope, order, wait, as_json, key)
