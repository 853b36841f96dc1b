"""A memory as the methods of the library work with it: its scope, its actor, asking, commanding."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Self, cast

from pydantic import JsonValue

from palimpsest.ops.commanding import DONE, CommandError, Order
from palimpsest.ops.library.arguments import flag
from palimpsest.ops.library.background import Background
from palimpsest.ops.library.results import Change, NotDoneError, changes_of
from palimpsest.ops.queries.requests import JsonObject, Request, ScopeRequest
from palimpsest.ops.queries.sources import no_memory
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.commands import Actor, Command, ForgetCommand

USER = Actor()


class Opened:
    """What every method of `AsyncMemory` works with."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        scope: str = "default",
        settings: Mapping[str, object] | None = None,
        actor: Actor = USER,
        wait_seconds: float = 30.0,
        loaded: Settings | None = None,
    ) -> None:
        """`loaded` are settings that were loaded already, which nothing is added to."""
        if loaded is None:
            flags = [f"{key}={flag(value)}" for key, value in (settings or {}).items()]
            loaded = load_settings(flags, None if data_dir is None else Path(data_dir)).settings
        self.scope = scope
        self.actor = actor
        self.wait_seconds = wait_seconds
        self.background = Background(loaded)

    async def __aenter__(self) -> Self:
        await self.background.run(self.background.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish the batches under way, and let go of the folder. A later use opens it anew."""
        await asyncio.to_thread(self.background.close)

    def _in(self, scope: str | None) -> str:
        return self.scope if scope is None else scope

    async def _ask(self, request: Request) -> JsonValue:
        return await self.background.run(self.background.answer(request))

    async def _known(self, memory_id: str, scope: str | None) -> str:
        """The full id. One of another scope is as unknown as one that never was."""
        said = cast("JsonObject", await self._ask(ScopeRequest(memory_id)))
        if said["scope"] != self._in(scope):
            raise no_memory(memory_id)
        return str(said["id"])

    async def _command(self, command: Command, scope: str | None) -> tuple[Change, ...]:
        result = await self._carried_out(command, scope)
        # What was forgotten cannot be changed, but it can be forgotten again.
        is_forget = isinstance(command, ForgetCommand)
        return changes_of(result, DONE if is_forget else DONE - {"deleted"})

    async def _carried_out(self, command: Command, scope: str | None) -> JsonValue:
        order = Order(self._in(scope), command, self.actor)
        try:
            return await self.background.run(self.background.carry_out(order, self.wait_seconds))
        except CommandError as error:
            raise NotDoneError(str(error)) from error
