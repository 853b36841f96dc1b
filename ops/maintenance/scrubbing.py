"""The log of a scope that was erased as a whole, without what is told there and of no memory:
commands, names, levels of privacy, and what could not be processed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.maintenance.replaced_records import purge, read_records
from palimpsest.schemas.scrubbing import Scrub
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CONVERSATION_TURNS,
    MEMORY_CHANGES,
    MEMORY_COMMANDS,
    MEMORY_HISTORY,
    MEMORY_WRITES,
    Topic,
)
from palimpsest.streams.logs.base import Record
from palimpsest.streams.logs.embedded import EmbeddedLog

_IN_ORDER: Final = (MEMORY_COMMANDS, MEMORY_WRITES, MEMORY_CHANGES)
"""Topics in which the erasure has its place: what stands before it was told before. Each record of
one follows from a record of the topic before."""


def scrub_log(
    log: EmbeddedLog, partition: int, scrub: Scrub, dead: Collection[tuple[str, int]]
) -> set[str]:
    """`dead`: topics and offsets of records that could not be processed. Returns the ids of all
    that was told before the erasure."""
    told = _Told(scrub, frozenset(dead))
    for topic in (*_IN_ORDER, *(each for each in ALL_TOPICS if each not in _IN_ORDER)):
        for records in read_records(log, topic, partition):
            before = told.before(topic, records)
            changed = {record.offset: value for record, value in before if value != record.value}
            if changed and topic is MEMORY_HISTORY:
                gone = [record for record, _ in before if record.offset in changed]
                purge(log, partition, scrub.scope, gone)
            elif changed:
                log.redact(topic.name, partition, changed)
            if told.is_over:
                break
        told.is_over = False
    return told.causes


@dataclass(slots=True)
class _Told:
    """What was told before the erasure, as far as the topics were read."""

    scrub: Scrub
    dead: frozenset[tuple[str, int]]
    causes: set[str] = field(default_factory=set)
    is_over: bool = False

    def before(self, topic: Topic, records: Sequence[Record]) -> list[tuple[Record, bytes]]:
        """Those of the scope that were told before, scrubbed."""
        found = []
        for record in records:
            raw = _message(record)
            is_dead = (topic.name, record.offset) in self.dead
            own = self.scrub.own
            if topic in _IN_ORDER and not own.isdisjoint(_ids(raw, "id", "causation_id")):
                own |= _ids(raw, "id", "correlation_id")
                self.is_over = True
                break
            if record.value is None or not (is_dead or self._was_before(topic, record, raw)):
                continue
            if topic in _IN_ORDER:
                self.causes |= _ids(raw, "id", "correlation_id")
            is_turn = topic is CONVERSATION_TURNS
            found.append((record, self.scrub.value(record.value, is_dead and is_turn)))
        return found

    def _was_before(self, topic: Topic, record: Record, raw: dict[str, JsonValue]) -> bool:
        if raw.get("scope") != self.scrub.scope:
            return False
        if topic in _IN_ORDER:
            return True
        causes = _ids(raw, "correlation_id")
        if self.scrub.tells_of_others(raw) or not self.scrub.own.isdisjoint(causes):
            return False
        is_known = not self.causes.isdisjoint(causes)
        return is_known or record.timestamp <= self.scrub.at


def _message(record: Record) -> dict[str, JsonValue]:
    try:
        raw: JsonValue = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _ids(raw: dict[str, JsonValue], *names: str) -> set[str]:
    return {each for name in names if isinstance(each := raw.get(name), str)}
