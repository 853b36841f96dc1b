"""sessions: which there are, what is kept of one, and ending one."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from palimpsest.ops.cli.command_results import carry_out_and_tell
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, not_done, print_json, wrong_use
from palimpsest.ops.cli.options import InScope, Key, Reason, Rows, Wait
from palimpsest.ops.cli.scopes import tell_unknown

MAX_ID = 256
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
OfScope = Annotated[str, typer.Option("--scope", "-s", help="The memory space.")]


def register(app: typer.Typer) -> None:
    command(app, reads=True)(sessions)
    command(app, "session-memory", reads=True)(session_memory)
    command(app, "session-summary")(session_summary)
    command(app, "session-end")(session_end)


def sessions(
    cli: Cli,
    scope: InScope,
    open: Annotated[  # noqa: A002
        bool, typer.Option("--open", help="Only those that have not ended.")
    ] = False,
    limit: Rows = 20,
    before: Annotated[
        str | None, typer.Option(help="The `next` of the page before, from --json.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the sessions of a memory space, the one with the newest turn first.

    Example: palimpsest sessions --scope support
    """
    from palimpsest.ops.queries.requests import SessionsRequest

    answer = cast("dict[str, object]", cli.ask(SessionsRequest(scope, limit, before, open)))
    tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import console, table

    found = cast("list[dict[str, object]]", answer["sessions"])
    if not found:
        echo("no sessions yet; they begin with turns that name one")
        return
    names = ("session", "turns", "began at", "last at", "ended by")
    shown = [
        (
            row["session_id"],
            row["turns"],
            str(row["began_at"])[:19],
            str(row["last_at"])[:19],
            row["ended_by"] or "(open)",
        )
        for row in found
    ]
    console().print(table(names, [*shown]))


def session_memory(cli: Cli, session_id: SessionId, scope: InScope, json: AsJson = False) -> None:
    """Show what is kept of a session for some hours: its summary and its newest turns.

    Example: palimpsest session-memory chat-17 --scope support
    """
    from palimpsest.ops.queries.requests import SessionMemoryRequest

    answer = cast("dict[str, object] | None", cli.ask(SessionMemoryRequest(scope, session_id)))
    if json:
        print_json(answer)
        return
    if answer is None:
        raise not_done(f"nothing is kept of a session {session_id} in the scope {scope}")
    summary = cast("dict[str, object] | None", answer["summary"])
    if summary is not None:
        echo(f"summary by {summary['by']}, until {str(summary['expires_at'])[:19]}:")
        echo(f"  {summary['text']}")
    for turn in cast("list[dict[str, object]]", answer["turns"]):
        echo(f"{str(turn['occurred_at'])[:19]} {turn['who'] or '-'}: {turn['content']}")


def session_summary(
    cli: Cli,
    session_id: SessionId,
    summary: Annotated[str, typer.Argument(help="What the session is about so far.")],
    scope: OfScope,
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Keep a summary of a session for some hours, in the place of the one before.

    Example: palimpsest session-summary chat-17 "Ana plans a trip to Oslo" --scope support
    """
    from palimpsest.schemas.commands import UpdateShortTermCommand

    order = UpdateShortTermCommand(session_id=_known(session_id), summary=summary)
    carry_out_and_tell(cli, scope, order, wait, json, key)


def session_end(
    cli: Cli,
    session_id: SessionId,
    scope: OfScope,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """End a session; one that has ended stays as it is.

    Example: palimpsest session-end chat-17 --scope support
    """
    from palimpsest.schemas.commands import SessionEndCommand

    order = SessionEndCommand(session_id=_known(session_id), reason=reason)
    carry_out_and_tell(cli, scope, order, wait, json, key)


def _known(session_id: str) -> str:
    if not 0 < len(session_id) <= MAX_ID:
        raise wrong_use(f"a session's id has 1 to {MAX_ID} characters")
    return session_id
