"""Checks turns against published ones: new, a repeat, or a conflict under the same id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from pydantic_core import from_json

from palimpsest.schemas.normal_forms import storage_content
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import LogReader, Outgoing, partition_for

LOOKED_AT: Final = 200_000
"""Number of records read from the end of a partition: at most a few seconds and 40 MB."""
_READ_RECORDS: Final = 5_000

_BESIDE_TEXT: Final = (("session_id", ""), ("speaker", ""), ("role", "user"), ("privacy", "none"))
Standing = Literal["new", "known", "conflict"]


class Published:
    """The turns on a log and those checked since. Without a readable log (None) it knows only the
    latter.

    A turn is `known` if the log has it with the same text, speaker, role, session and privacy: the
    pipeline deduplicates it. It is a `conflict` if its scope has its turn_id with other content,
    which came first and stays.
    """

    def __init__(self, log: LogReader | None) -> None:
        self._log = log
        self._texts: dict[int, int] = {}
        self._looked: set[int] = set()
        self.complete = log is not None
        """Whether all published turns were read."""

    def standing(self, record: Outgoing) -> Standing:
        """Returns how `record` relates to turns that were published or checked before."""
        if self._log is not None:
            partition = partition_for(record.scope, self._log.partitions(record.topic))
            if partition not in self._looked:
                self._looked.add(partition)
                self._look(self._log, partition)
        found = _identity(record.value)
        if found is None:
            return "new"
        turn, text = found
        before = self._texts.get(turn)
        if before is None:
            self._texts[turn] = text
            return "new"
        return "known" if before == text else "conflict"

    def _look(self, log: LogReader, partition: int) -> None:
        if log.end_offset(CONVERSATION_TURNS.name, partition) > LOOKED_AT:
            self.complete = False
        for value in _values(log, partition):
            found = _identity(value)
            if found is not None:
                self._texts.setdefault(*found)


def _values(log: LogReader, partition: int) -> Iterator[bytes | None]:
    topic = CONVERSATION_TURNS.name
    end = log.end_offset(topic, partition)
    offset = max(0, end - LOOKED_AT)
    while offset < end:
        records = log.read(topic, partition, offset, _READ_RECORDS)
        if not records:
            return
        offset = records[-1].offset + 1
        yield from (record.value for record in records)


def _identity(value: bytes | None) -> tuple[int, int] | None:
    """Returns a hash of a turn's identity and one of its text, speaker, role, session and privacy;
    None for a record that is not a turn."""
    try:
        raw = from_json(value or b"")
        body = raw["body"]
        said = tuple(body.get(name, otherwise) for name, otherwise in _BESIDE_TEXT)
        text = storage_content(body["content"])
        return hash((raw["scope"], body["turn_id"])), hash((text, *said))
    except (ValueError, TypeError, KeyError):
        return None
