"""How far each stage is to be folded: to where a store is, to what the log knows of, or to what
followed from all before an offset of memory-writes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime

from palimpsest.ops.errors import RequestError
from palimpsest.ops.replay.recorded import is_of_turn, names_of, recorded
from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.logs.base import LogReader, Record

Offsets = dict[str, dict[str, int]]
"""The next offset by stage and topic."""

LOOKED_BACK_RECORDS = 5_000
"""In which the newest record is looked for that has had its consequences."""


def offsets(
    writes: int, facts: int, changes: int, graph: int, turns: int, dead_letters: int
) -> Offsets:
    """Returns the offsets of all stages with a store, by the topics that they read."""
    return {
        "apply-writes": {MEMORY_WRITES.name: writes},
        "graph-persist": {MEMORY_CHANGES.name: changes},
        "audit": {
            CONVERSATION_TURNS.name: turns,
            FACTS_EXTRACTED.name: facts,
            MEMORY_CHANGES.name: changes,
            GRAPH_CHANGES.name: graph,
            DEAD_LETTERS.name: dead_letters,
        },
    }


def known_to_log(log: LogReader, partition: int) -> Offsets:
    """All that was executed as far as the log tells, for a store that is gone: what has had its
    consequences. The rest is for the stages, which append what follows from it."""

    def end(topic: Topic) -> int:
        return log.end_offset(topic.name, partition)

    done = offsets(
        _carried_out(log, partition, MEMORY_WRITES, MEMORY_CHANGES),
        end(FACTS_EXTRACTED),
        end(MEMORY_CHANGES),
        end(GRAPH_CHANGES),
        end(CONVERSATION_TURNS),
        end(DEAD_LETTERS),
    )
    done["graph-persist"][MEMORY_CHANGES.name] = _carried_out(
        log, partition, MEMORY_CHANGES, GRAPH_CHANGES
    )
    return done


def _carried_out(log: LogReader, partition: int, topic: Topic, consequences: Topic) -> int:
    """After the newest record that others follow from."""
    end = log.end_offset(consequences.name, partition)
    first = max(0, end - LOOKED_BACK_RECORDS)
    causes = {
        names_of(record).cause for record in recorded(log, consequences.name, partition, first, end)
    }
    end = log.end_offset(topic.name, partition)
    while end > 0:
        first = max(0, end - LOOKED_BACK_RECORDS)
        found = [
            record.offset
            for record in recorded(log, topic.name, partition, first, end)
            if names_of(record).id in causes
        ]
        if found:
            return found[-1] + 1
        end = first
    return 0


# --- as of a moment ----------------------------------------------------------------------------


def offset_at(log: LogReader, partition: int, moment: datetime) -> int:
    """Returns the offset of memory-writes before which all was appended at `moment` or earlier."""
    low, high = 0, log.end_offset(MEMORY_WRITES.name, partition)
    while low < high:
        middle = (low + high) // 2
        found = log.read(MEMORY_WRITES.name, partition, middle, 1)
        if not found or found[0].timestamp > moment:
            high = middle
        else:
            low = found[0].offset + 1
    return min(low, log.end_offset(MEMORY_WRITES.name, partition))


def followed(log: LogReader, partition: int, writes: int) -> Offsets:
    """What followed from the records of memory-writes before the offset `writes`, and nothing that
    came of a later one. Raises RequestError for an offset past the end."""
    end = log.end_offset(MEMORY_WRITES.name, partition)
    if not 0 <= writes <= end:
        raise RequestError(
            f"memory-writes[{partition}] ends at offset {end}; --until {writes} lies past it"
        )
    later = {names_of(record) for record in recorded(log, MEMORY_WRITES.name, partition, writes)}
    written = {names.id for names in later}
    normalized = _first_of(log, partition, TURNS_NORMALIZED, causes=written)
    unextracted = {
        names_of(record).id
        for record in recorded(log, TURNS_NORMALIZED.name, partition, normalized)
    }
    decided = {names.cause for names in later} - {""}
    facts = _first_of(log, partition, FACTS_EXTRACTED, decided, written | unextracted)
    changes = _first_of(log, partition, MEMORY_CHANGES, causes=written)
    changed = {
        names_of(record).id for record in recorded(log, MEMORY_CHANGES.name, partition, changes)
    }
    graph = _first_of(log, partition, GRAPH_CHANGES, causes=changed)
    turns = _first_turn(log, partition, writes)
    read = {
        CONVERSATION_TURNS.name: turns,
        TURNS_NORMALIZED.name: normalized,
        FACTS_EXTRACTED.name: facts,
        MEMORY_WRITES.name: writes,
        MEMORY_CHANGES.name: changes,
        GRAPH_CHANGES.name: graph,
    }
    first_later = next(recorded(log, MEMORY_WRITES.name, partition, writes), None)
    dead = _dead_letters(log, partition, read, first_later)
    return offsets(writes, facts, changes, graph, turns, dead)


def _first_of(
    log: LogReader,
    partition: int,
    topic: Topic,
    ids: Container[str] = (),
    causes: Container[str] = (),
) -> int:
    """The first offset of the topic at which lies one of `ids`, or what one of `causes` caused."""
    end = log.end_offset(topic.name, partition)
    for record in recorded(log, topic.name, partition, 0, end):
        names = names_of(record)
        if names.id in ids or names.cause in causes:
            return record.offset
    return end


def _first_turn(log: LogReader, partition: int, writes: int) -> int:
    """The first offset of conversation-turns of which a write lies at `writes` or later. Turns and
    their writes are held against each other in their order: a producer may give an id twice."""
    end = log.end_offset(CONVERSATION_TURNS.name, partition)
    told = recorded(log, CONVERSATION_TURNS.name, partition, 0, end)
    known: set[str] = set()
    for record in recorded(log, MEMORY_WRITES.name, partition):
        names = names_of(record)
        if names.id in known or not is_of_turn(record):
            continue  # a repeat after a crash
        known.add(names.id)
        offset = next((turn.offset for turn in told if names_of(turn).id == names.cause), end)
        if record.offset >= writes or offset == end:
            return offset
    return end


def _dead_letters(
    log: LogReader,
    partition: int,
    read: Mapping[str, int],
    first_later: Record | None,
) -> int:
    end = log.end_offset(DEAD_LETTERS.name, partition)
    for record in recorded(log, DEAD_LETTERS.name, partition, 0, end):
        if _is_later(record, read, first_later):
            return record.offset
    return end


def _is_later(record: Record, read: Mapping[str, int], first_later: Record | None) -> bool:
    try:
        body = decode(record.value, DEAD_LETTERS, record.timestamp).body
    except InvalidRecord:
        body = None
    if isinstance(body, DeadLetter) and body.topic in read:
        return body.offset >= read[body.topic]
    return first_later is not None and record.timestamp > first_later.timestamp
