"""Every topic: what it is called, what may lie on it, how long it is kept.

The one list that the embedded log, the Kafka adapter, `topics create` and the docs read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["keep", "compact", "delete"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, keyed by scope unless `keyed_by` says otherwise.

    `retention_days` is None where records are kept for ever. `open_to_producers` tells the
    topics that others than the pipeline write: there the size of a record is bounded.
    """

    name: str
    schemas: tuple[str, ...]
    cleanup: Cleanup = "keep"
    retention_days: int | None = None
    keyed_by: str = "scope"
    open_to_producers: bool = False


CONVERSATION_TURNS = Topic("conversation-turns", ("conversation-turn/1",), open_to_producers=True)
MEMORY_COMMANDS = Topic("memory-commands", ("memory-command/1",), open_to_producers=True)
TURNS_NORMALIZED = Topic("turns-normalized", ("turn-normalized/1",))
FACTS_EXTRACTED = Topic("facts-extracted", ("facts-extracted/1",))
MEMORY_WRITES = Topic("memory-writes", ("memory-write/1",))
MEMORY_CHANGES = Topic("memory-changes", ("memory-change/1",))
GRAPH_CHANGES = Topic("graph-changes", ("graph-change/1",))
MEMORY_HISTORY = Topic(
    "memory-history", ("history-event/1",), cleanup="compact", keyed_by="event id"
)
CACHE_INVALIDATIONS = Topic(
    "cache-invalidations", ("cache-invalidation/1",), cleanup="delete", retention_days=1
)
DEAD_LETTERS = Topic(
    "dead-letters", ("dead-letter/1", "dead-letter-mark/1"), keyed_by="the failed record's key"
)

ALL_TOPICS: tuple[Topic, ...] = tuple(
    each for each in [*globals().values()] if isinstance(each, Topic)
)
TOPICS: dict[str, Topic] = {topic.name: topic for topic in ALL_TOPICS}
