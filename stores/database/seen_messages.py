"""Which messages each stage has processed.

The table `seen_messages` is the truth. It has no index, which for so many short rows would take
more memory than all else; in its place their hashes are cached, as of other keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.database.membership import HashSet


class SeenMessages:
    """Looked up and added to by the stages of one shard, each from one thread at a time."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._stages: dict[str, HashSet] = {}
        with reading() as reader:
            stages = reader.execute("SELECT DISTINCT stage FROM seen_messages").fetchall()
            for (stage,) in stages:
                found = reader.execute(
                    "SELECT md5_number_lower(message_id) AS hash FROM seen_messages"
                    " WHERE stage = ?",
                    [stage],
                ).fetchnumpy()
                self._stages[stage] = HashSet(np.asarray(found["hash"], dtype=np.uint64))

    def among(self, stage: str, message_ids: Sequence[str]) -> set[str]:
        """Those of the messages that the stage has processed."""
        known = self._stages.get(stage)
        maybe = known.among(message_ids) if known is not None and message_ids else set()
        if not maybe:
            return set()
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT message_id FROM seen_messages WHERE stage = ? AND message_id IN"
                " (SELECT unnest(?))",
                [stage, sorted(maybe)],
            ).fetchall()
        return {row[0] for row in rows}

    def add(self, stage: str, message_ids: Sequence[str]) -> None:
        """After these were committed to the table."""
        known = self._stages.get(stage)
        if known is None:
            known = self._stages[stage] = HashSet(np.zeros(0, dtype=np.uint64))
        known.add(message_ids)
