"""`AsyncMemory`: the product as a library. The methods are those of the command line;
what they ask and command is what every other way in asks and commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from palimpsest.ops.library.arguments import flag
from palimpsest.ops.library.in_process import InProcess
from palimpsest.ops.library.methods import Methods
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.commands import Actor

USER = Actor()


class AsyncMemory(Methods):
    """Long-term memory in this process, for programs with an event loop.

    Log and stores lie in `data_dir`; the stages that turn conversation turns into memories run in
    a thread of their own, from the first use until `close`. If another process has the folder
    open, that one's stages do the work and this one asks it. `scope` is the memory space of every
    method that is not given another, `actor` who gives commands, and `settings` those of
    `palimpsest.toml`, by their dotted names; `loaded` are settings that were loaded already, which
    nothing is added to. A command, and a turn that is waited for, must be applied within
    `wait_seconds`: what is asked afterwards sees it.

    Raises RequestError for what cannot be asked or done, and SettingsError, SetupError, LogError,
    StoreError or FolderInUse where the folder cannot be used; each says what to do.

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
            flags = [f"{key}={flag(value)}" for key, value in (settings or {}).items()]
            loaded = load_settings(flags, None if data_dir is None else Path(data_dir)).settings
        super().__init__(InProcess(loaded, actor), scope, wait_seconds)
