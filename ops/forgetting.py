"""From what is to be forgotten, however it is chosen, to the command that forgets it."""

from __future__ import annotations

from palimpsest.ops.command_kinds import CommandError
from palimpsest.ops.operations.changing import Forgetting, PreviewForget
from palimpsest.ops.operations.operation import Ask, Json
from palimpsest.schemas.commands import ForgetCommand
from palimpsest.streams.normalize import FORGOTTEN_UNCONFIRMED


async def forget_command(ask: Ask, asked: Forgetting) -> ForgetCommand:
    """The command for what a selection finds now. It holds only while that is as it is now.

    Few memories that are named by their ids need not be looked at: the result says what became of
    each. Raises CommandError when nothing is found, when so much is found that the token of a
    preview is needed, and when that token was given for something else.
    """
    # Under a key the same may come again, when the memories are forgotten already.
    few = len(asked.memory_ids) <= FORGOTTEN_UNCONFIRMED and asked.confirm_token is None
    if asked.is_by_ids and (few or asked.key is not None):
        return _command(asked, tuple(asked.memory_ids), asked.confirm_token)
    preview = await ask(PreviewForget(**asked.selected(), hard=asked.hard))
    _check(asked, preview)
    ids = tuple(str(row["id"]) for row in preview["candidates"])
    return _command(asked, ids, str(preview["confirm_token"]))


def _check(asked: Forgetting, preview: Json) -> None:
    candidates, token = preview["candidates"], asked.confirm_token
    if not candidates:
        raise CommandError("not_found", f"nothing in scope {asked.scope} matches")
    if token is None and preview["needs_confirmation"]:
        count = f"more than {len(candidates)}" if preview["more"] else str(len(candidates))
        raise CommandError(
            "confirmation_required",
            f"{count} memories match; look at a preview and give its token to confirm",
        )
    if token not in (None, preview["confirm_token"]):
        raise CommandError(
            "confirm_mismatch",
            "the token is for other memories than match now, or for other versions of them; look"
            " at a new preview and confirm that",
        )


def _command(asked: Forgetting, ids: tuple[str, ...], token: str | None) -> ForgetCommand:
    return ForgetCommand(
        memory_ids=ids,
        reason=asked.reason,
        force=asked.force,
        if_version=asked.if_version,
        cascade=asked.cascade or None,
        confirm_token=token,
        hard=asked.hard or None,
    )
