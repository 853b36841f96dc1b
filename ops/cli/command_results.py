"""Giving commands to the pipeline, and telling what became of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias, cast

import typer

from palimpsest.ops.cli.common import Cli, complain, echo, print_json, wrong_use
from palimpsest.ops.command_kinds import was_applied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

LOOK_SECONDS = 0.1
IN_NO_FILE = "no file of the stores has it any more"
STILL_IN_FILES = "files of the stores still have it; a worker that starts begins with erasing that"

Said: TypeAlias = dict[str, object]
"""A command with its result as JSON; without `error` and `result` until it is carried out."""


def said_of(command_id: str, result: Said | None) -> Said:
    """The command with its result, None for one that has none yet."""
    if result is None:
        return {"command_id": command_id, "applied": False}
    told = {name: value for name, value in result.items() if name != "digest"}
    return {
        "command_id": command_id,
        "applied": was_applied(result["error"], result["result"]),
        **told,
    }


def carry_out(
    settings: Settings, scope: str, order: Command, seconds: float, key: str | None = None
) -> Said:
    """Append the command, and wait for its result as long as `seconds` and a worker allow."""
    import asyncio

    from palimpsest.ops.commanding import Order, commands_of

    def waiting() -> None:
        typer.echo(
            f"the running worker is busy with what came before; waiting up to {seconds:g} s for it",
            err=True,
        )

    commands = commands_of(settings)
    given = asyncio.run(commands.submit(Order(scope, order, key=key), seconds, waiting))
    return said_of(given.command_id, cast("Said | None", given.answer))


def tell(said: Said, quiet: bool, settings: Settings, waited: float) -> bool:
    """Print what became of a command, unless `quiet`; whether any of it was refused."""
    from palimpsest.ops.command_kinds import DONE

    if "error" not in said:
        if not quiet:
            echo(f"accepted as command {said['command_id']}; {_applied_when(settings, waited)}")
        return False
    if said["error"] is not None:
        if not quiet:
            complain(str(said["error"]))
        return True
    result = said["result"]
    outcomes = cast("list[Said]", result if isinstance(result, list) else [result])
    if not quiet:
        for outcome in outcomes:
            echo(", ".join(f"{name} {value}" for name, value in outcome.items()))
    return any(outcome.get("status", "set") not in DONE for outcome in outcomes)


def _applied_when(settings: Settings, waited: float) -> str:
    """Who will carry out a command that has no result yet."""
    from palimpsest.ops.commanding import worker_is_there

    if not worker_is_there(settings):
        return "no worker runs, so the next `palimpsest run` applies it"
    if waited <= 0:
        return "the running worker applies it"
    return f"the running worker is still busy after {waited:g} s and applies it when its turn comes"


def found(cli: Cli, memory_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Full id and scope of each memory."""
    from palimpsest.ops.queries.requests import ScopeRequest

    async def asking(queries: Queries) -> list[tuple[str, str]]:
        known = []
        for memory_id in memory_ids:
            said = cast("dict[str, str]", await queries.answer(ScopeRequest(memory_id)))
            known.append((said["id"], said["scope"]))
        return known

    return cli.with_queries(asking)


def carry_out_and_tell(
    cli: Cli, scope: str, order: Command, wait: float, as_json: bool, key: str | None = None
) -> None:
    """Append the command; tell its result when a worker gives one in time."""
    settings = cli.settings
    if not scope.strip():
        raise wrong_use("the scope is empty")
    said = carry_out(settings, scope, order, wait, key)
    if said.get("erasure") == "pending" and settings.log.kind == "embedded":
        typer.echo("erased from the tables; erasing from the files", err=True)
        said = _in_files(settings, said, wait)
    tell_or_fail(said, as_json, settings, wait)


def tell_or_fail(said: Said, as_json: bool, settings: Settings, waited: float = 0.0) -> None:
    """Raises Exit with code 1 where the command was refused."""
    if as_json:
        print_json(said)
    refused = tell(said, as_json, settings, waited)
    if "erasure" in said and not as_json:
        done = said["erasure"] == "done"
        echo(IN_NO_FILE if done else STILL_IN_FILES)
        for left in cast("list[str]", said["left"]):
            echo(f"not reached: {left}")
    if refused:
        raise typer.Exit(1)


def _in_files(settings: Settings, said: Said, seconds: float) -> Said:
    """What became of an erasure once no file has its texts, or after so many seconds."""
    import asyncio

    from palimpsest.ops.commanding import commands_of

    async def until_done() -> Said:
        commands, found = commands_of(settings), said
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while found.get("erasure") == "pending":
                    await asyncio.sleep(LOOK_SECONDS)
                    answer = await commands.result(str(said["command_id"]), seconds)
                    if answer is None:  # nobody works any more
                        break
                    found = said_of(str(said["command_id"]), cast("Said", answer))
        return found

    return asyncio.run(until_done())
