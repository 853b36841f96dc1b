"""Giving commands to the pipeline, and telling what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

import typer

from palimpsest.ops.cli.common import complain

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.messages import Command

Said: TypeAlias = dict[str, object]
"""A command with its result as JSON; without `error` and `result` until it is carried out."""
DONE = frozenset(
    {"updated", "no_changes", "forgotten", "recovered", "confirmed", "set"}
    | {"deleted", "deduped", "dismissed"}
)


def said_of(command_id: str, result: Said | None) -> Said:
    """The command with its result, None for one that has none yet."""
    if result is None:
        return {"command_id": command_id, "applied": False}
    return {"command_id": command_id, "applied": result["error"] is None, **result}


def carry_out(settings: Settings, scope: str, order: Command, seconds: float) -> Said:
    """Append the command, and wait for its result as long as `seconds` and a worker allow."""
    import asyncio

    from palimpsest.ops.commanding import publish, result_of

    def waiting() -> None:
        typer.echo(
            f"the running worker is busy with what came before; waiting up to {seconds:g} s for it",
            err=True,
        )

    command_id = publish(settings, scope, order)
    return said_of(command_id, asyncio.run(result_of(settings, command_id, seconds, waiting)))


def tell(said: Said, quiet: bool, settings: Settings, waited: float) -> bool:
    """Print what became of a command, unless `quiet`; whether any of it was refused."""
    if "error" not in said:
        if not quiet:
            typer.echo(
                f"accepted as command {said['command_id']}; {_applied_when(settings, waited)}"
            )
        return False
    if said["error"] is not None:
        if not quiet:
            complain(str(said["error"]))
        return True
    result = said["result"]
    outcomes = cast("list[Said]", result if isinstance(result, list) else [result])
    if not quiet:
        for outcome in outcomes:
            typer.echo(", ".join(f"{name} {value}" for name, value in outcome.items()))
    return any(outcome.get("status", "set") not in DONE for outcome in outcomes)


def _applied_when(settings: Settings, waited: float) -> str:
    """Who will carry out a command that has no result yet."""
    from palimpsest.ops.commanding import worker_is_there

    if not worker_is_there(settings):
        return "no worker runs, so the next `palimpsest run` applies it"
    if waited <= 0:
        return "the running worker applies it"
    return f"the running worker is still busy after {waited:g} s and applies it when its turn comes"
