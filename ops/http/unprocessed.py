"""How much of what a token sent still waits for the stages. One that sends more than they can take
is refused, before the changes of others wait behind it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from palimpsest.ops.http.problems import Problem
from palimpsest.ops.ingest.records import in_batches
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import LogReader, Outgoing

FIRST_STAGE: Final = "normalize"
LAST_STAGE: Final = "apply-writes"
"""With these two a turn can be found, and a change is made."""

Append: TypeAlias = Callable[[Sequence[Outgoing]], Sequence[tuple[int, int]]]
"""Appends to the log; returns the partition and the offset of each record."""
PositionOf: TypeAlias = Callable[[str, str, int], int]


@dataclass(slots=True, eq=False)
class _Sent:
    """`size` bytes of one request. They are processed when the stage has reached the offsets in
    `until`, by topic and partition; first the one stage, then the other."""

    size: int
    until: dict[tuple[str, int], int] = field(default_factory=dict)
    is_appended: bool = False
    is_normalized: bool = False

    def reached(self, stage: str, position: PositionOf) -> bool:
        return all(position(stage, *place) >= end for place, end in self.until.items())


class UnprocessedBytes:
    """The bytes that each caller has sent and that are not processed, of `limit` each. For any
    thread."""

    def __init__(self, log: LogReader, append: Append, limit: int) -> None:
        self._log = log
        self._append = append
        self._limit = limit
        self._lock = threading.Lock()
        self._sent: defaultdict[str, list[_Sent]] = defaultdict(list)

    def append(self, caller: str, records: Sequence[Outgoing], begun: bool = False) -> None:
        """Append what a request holds. Raises Problem where the caller has reached the limit: a
        single request may go beyond it, so that whatever a body may hold can be sent. `begun`: of
        a request that has appended before, or may."""
        sent = _Sent(sum(len(record.value or b"") for record in records))
        with self._lock:
            if not begun:
                self._check(caller)
            self._sent[caller].append(sent)
        try:
            for batch in in_batches(records):
                for record, (partition, offset) in zip(batch, self._append(batch), strict=True):
                    sent.until[record.topic, partition] = offset + 1
        finally:
            sent.is_appended = True

    def check(self, caller: str) -> None:
        """Raises Problem where the caller has reached the limit, before anything is read."""
        with self._lock:
            self._check(caller)

    def _check(self, caller: str) -> None:
        # Each time, not only at the limit: what was written since a look counts as waiting too.
        self._drop_processed(caller)
        waiting = sum(sent.size for sent in self._sent[caller])
        if waiting >= self._limit:
            raise Problem(
                "rate_limited",
                f"{waiting} bytes that this token sent are not processed yet, of"
                f" {self._limit} (setting http.unprocessed_bytes_per_token); send this again"
                " when they are",
                {"Retry-After": "1"},
            )

    def _drop_processed(self, caller: str) -> None:
        position = cache(self._log.position)
        self._sent[caller] = [
            sent for sent in self._sent[caller] if not self._is_processed(sent, position)
        ]

    def _is_processed(self, sent: _Sent, position: PositionOf) -> bool:
        if not sent.is_appended:
            return False
        if not sent.is_normalized:
            if not sent.reached(FIRST_STAGE, position):
                return False
            topic = MEMORY_WRITES.name
            places = {(topic, partition) for _, partition in sent.until}
            sent.until = {place: self._log.end_offset(*place) for place in places}
            sent.is_normalized = True
        return sent.reached(LAST_STAGE, position)
