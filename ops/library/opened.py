"""A memory as the methods of the library work with it: its scope, asking, commanding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from pydantic import JsonValue

from palimpsest.ops.command_kinds import DONE
from palimpsest.ops.library.background import Background
from palimpsest.ops.library.results import Change, changes_of
from palimpsest.ops.queries.requests import Request
from palimpsest.schemas.commands import Command, ForgetCommand


class Opened:
    """What every method works with. `background` is what it is reached by."""

    def __init__(self, background: Background, scope: str, wait_seconds: float) -> None:
        self.background = background
        self.scope = scope
        self.wait_seconds = wait_seconds

    async def __aenter__(self) -> Self:
        await self.background.run(self.background.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what is under way, and let go. A later use opens it anew."""
        await asyncio.to_thread(self.background.close)

    def _in(self, scope: str | None) -> str:
        return self.scope if scope is None else scope

    async def _ask(self, request: Request) -> JsonValue:
        return await self.background.run(self.background.answer(request))

    async def _known(self, scope: str | None, *memory_ids: str) -> Sequence[str]:
        return await self.background.run(self.background.known(memory_ids, self._in(scope)))

    async def _carry_out(self, command: Command, scope: str | None, key: str | None) -> JsonValue:
        work = self.background.carry_out(self._in(scope), command, key, self.wait_seconds)
        return await self.background.run(work)

    async def _command(
        self, command: Command, scope: str | None, key: str | None
    ) -> tuple[Change, ...]:
        result = await self._carry_out(command, scope, key)
        # What was forgotten cannot be changed, but it can be forgotten again.
        is_forget = isinstance(command, ForgetCommand)
        return changes_of(result, DONE if is_forget else DONE - {"deleted"})
