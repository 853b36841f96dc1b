"""`AsyncMemory` and `Memory`: the product as a library. Methods have the names of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods
from palimpsest.ops.library.methods import arguments_of
from palimpsest.ops.service.executing import Unrestricted
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.telemetry.setup import set_up
from palimpsest.ops.transport.attached import InProcess
from palimpsest.schemas.envelope import Actor

USER = Actor()


class AsyncMemory(AsyncMethods):
    """Long-term memory in this process, for programs with an event loop.

    Log and stores are in `data_dir`; the stages that turn conversation turns into memories run in
    their own thread, from the first use until `close`. If another process has the folder open, its
    stages do the work and this process sends it requests. `scope` is the default memory space of
    every method, `actor` the author of commands, and `settings` override those of
    `palimpsest.toml`, by their dotted names; `loaded` are settings loaded before, without
    overrides. A command, and a turn that is waited for, must be applied within `wait_seconds`;
    later reads see it.

    Raises RequestError for an invalid request, and SettingsError, SetupError, LogError, StoreError
    or FolderInUse if the folder cannot be used; each says what to do.

        async with AsyncMemory("memory", scope="ana") as memory:
            await memory.add("I moved to Lisbon.", speaker="Ana")
            found = await memory.recall("where does Ana live?")
    """

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
        if loaded is None:
            flags = [f"{key}={_flag(value)}" for key, value in (settings or {}).items()]
            loaded = load_settings(flags, None if data_dir is None else Path(data_dir)).settings
        set_up(loaded)
        super().__init__(InProcess(loaded, Unrestricted(scope, actor)), scope, wait_seconds)


class Memory(BlockingMethods):
    """Long-term memory in this process. `AsyncMemory` describes the arguments, and has the same
    methods for programs with an event loop. Usable from any thread.

    >>> from palimpsest import Memory
    >>> with Memory(folder, scope="ana") as memory:
    ...     added = memory.add("I moved to Lisbon in March 2025.", speaker="Ana")
    ...     memory.recall("where does Ana live?").results[0].content
    'I moved to Lisbon in March 2025.'
    """

    @arguments_of(AsyncMemory)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncMemory(*args, **kwargs))


def _flag(value: object) -> str:
    """The value of a setting, as on the command line."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
