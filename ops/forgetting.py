"""From what is to be forgotten, however it is chosen, to the command that forgets it."""

from __future__ import annotations

from typing import cast

from palimpsest.ops.command_kinds import CommandError
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.requests import ForgetPreviewRequest
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand


async def forget_command(
    queries: Queries,
    selection: ForgetPreviewRequest,
    reason: str,
    confirm_token: str | None = None,
    force: bool = False,
) -> ForgetCommand:
    """The command for what the selection finds now. It holds only while that is as it is now.

    Raises CommandError when nothing is found, when so much is found that a preview's token is
    needed, and when that token was given for something else.
    """
    answer = cast("dict[str, object]", await queries.answer(selection))
    candidates = cast("list[dict[str, object]]", answer["candidates"])
    if not candidates:
        raise CommandError("not_found", f"nothing in scope {selection.scope} matches")
    token = str(answer["confirm_token"])
    if confirm_token is None and answer["needs_confirmation"]:
        count = f"more than {len(candidates)}" if answer["more"] else str(len(candidates))
        raise CommandError(
            "confirmation_required",
            f"{count} memories match; look at a preview and give its token to confirm",
        )
    if confirm_token not in (None, token):
        raise CommandError(
            "confirm_mismatch",
            "the token is for other memories than match now, or for other versions of them; look"
            " at a new preview and confirm that",
        )
    return ForgetCommand(
        memory_ids=tuple(str(row["id"]) for row in candidates),
        reason=reason,
        force=force,
        cascade=selection.cascade or None,
        confirm_token=token,
        hard=selection.hard or None,
    )


def forget_by_ids(
    selection: ForgetPreviewRequest,
    reason: str,
    confirm_token: str | None = None,
    force: bool = False,
    if_version: int | None = None,
) -> ForgetCommand | None:
    """The command for memories that are named and nothing else, whatever they are by now; None for
    a selection that has to be looked for."""
    named, cascade, hard = selection.memory_ids, selection.cascade, selection.hard
    by_ids = ForgetPreviewRequest(selection.scope, named, cascade=cascade, hard=hard)
    if not named or selection != by_ids:
        return None
    return ForgetCommand(
        memory_ids=named,
        reason=reason,
        force=force,
        if_version=if_version,
        cascade=cascade or None,
        confirm_token=confirm_token,
        hard=hard or None,
    )


async def erase_command(
    queries: Queries,
    selection: ForgetPreviewRequest,
    reason: str,
    confirm_token: str | None = None,
    force: bool = False,
) -> ForgetCommand | EraseScopeCommand:
    """The same for what is to be erased; a whole scope always needs the token of a preview."""
    if not selection.whole_scope:
        return await forget_command(queries, selection, reason, confirm_token, force)
    if confirm_token is None:
        raise CommandError(
            "confirmation_required",
            "to erase a whole scope, look at a preview of it and give its token to confirm",
        )
    return EraseScopeCommand(reason=reason, confirm_token=confirm_token)
