"""Which messages each stage has processed: all of them, at eight bytes each.

The table `seen_messages` is the truth. It has no index, which for so many short rows would take
more memory than all else; in its place the first 64 bits of every id's hash are kept, and only an
id whose hash is known is looked for in the table.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stores.readers import Reading

MERGE_AT = 50_000
"""So many new hashes are kept as a set before they join the sorted array."""

_Hashes = NDArray[np.uint64]


class SeenMessages:
    """Looked up and added to by the stages of one shard, each from one thread at a time."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sorted: dict[str, _Hashes] = {}
        self._new: dict[str, set[int]] = defaultdict(set)
        with reading() as reader:
            stages = reader.execute("SELECT DISTINCT stage FROM seen_messages").fetchall()
            for (stage,) in stages:
                found = reader.execute(
                    "SELECT md5_number_lower(message_id) AS hash FROM seen_messages"
                    " WHERE stage = ?",
                    [stage],
                ).fetchnumpy()
                self._sorted[stage] = np.sort(np.asarray(found["hash"], dtype=np.uint64))

    def among(self, stage: str, message_ids: Sequence[str]) -> set[str]:
        """Those of the messages that the stage has processed."""
        if not message_ids:
            return set()
        hashes = [_hash(message_id) for message_id in message_ids]
        new = self._new[stage]
        maybe = {i for i, found in zip(message_ids, hashes, strict=True) if found in new}
        older = self._sorted.get(stage)
        if older is not None and len(older):
            asked = np.asarray(hashes, dtype=np.uint64)
            places = np.minimum(np.searchsorted(older, asked), len(older) - 1)
            maybe |= {message_ids[n] for n in np.flatnonzero(older[places] == asked).tolist()}
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
        new = self._new[stage]
        new.update(map(_hash, message_ids))
        if len(new) >= MERGE_AT:
            joined = np.fromiter(new, dtype=np.uint64, count=len(new))
            older = self._sorted.get(stage, np.zeros(0, dtype=np.uint64))
            self._sorted[stage] = np.sort(np.concatenate((older, joined)))
            self._new[stage] = set()


def _hash(message_id: str) -> int:
    """What DuckDB calls md5_number_lower."""
    digest = hashlib.md5(message_id.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little")
