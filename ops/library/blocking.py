"""`Memory`: the methods of AsyncMemory for programs without an event loop."""

from __future__ import annotations

from typing import Any

from palimpsest.ops.library.memory import AsyncMemory
from palimpsest.ops.library.methods import BlockingMethods, arguments_of


class Memory(BlockingMethods):
    """Long-term memory in this process. `AsyncMemory` tells what the arguments are, and has the
    same methods for programs with an event loop. Usable from any thread.

    >>> from palimpsest import Memory
    >>> with Memory(folder, scope="ana") as memory:
    ...     added = memory.add("I moved to Lisbon in March 2025.", speaker="Ana")
    ...     memory.recall("where does Ana live?").results[0].content
    'I moved to Lisbon in March 2025.'
    """

    @arguments_of(AsyncMemory)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncMemory(*args, **kwargs))
