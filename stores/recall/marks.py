"""Which statements in the memories shown no longer hold, from the stored changes.

A statement of a turn is a fact derived from it. It no longer holds once the fact's memory was
changed, was deleted because of a newer statement, or has ended. The extracted fact determines which
text of the memory came from the turn, so the turn of the newest text has no mark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

import duckdb

from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.derivations import says_it
from palimpsest.stores.index.analysis import query_tokens
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.recall.query import Mark, MarkKind
from palimpsest.streams.store_port import BETWEEN, FADED, MERGED

Marks = dict[str, tuple[Mark, ...]]

_NEXT_END: Final = (
    "SELECT min(valid_until) FROM memory_rows WHERE scope = $scope AND valid_until > $now"
)
REPLACED_BY: Final = "replaced by "
"""Prefix of the reason of an archived state that a newer statement replaced."""
DELETED_BY: Final = "deleted by "
"""Prefix of the reason of one that a newer statement took back."""
RE_EXTRACTED: Final = ("replaced by branch ", "rolled back")
"""Prefixes of the reasons of states that a promotion or its rollback replaced: what follows is
another reading of the same turns, not a newer statement."""
MODIFIED: Final = "modified"

_HAS_TEXT: Final = (
    "f.content = c.content OR (o.memory_id, f.content) IN"
    " (SELECT (memory_id, content) FROM archived_states WHERE scope = $scope)"
)
_CHANGES: Final = f"""
WITH held AS MATERIALIZED (
    SELECT h.target_id AS memory_id, h.turn_memory_id, h.content, h.occurred_at
    FROM held_proposals h JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id
    WHERE h.scope = $scope AND o.event = 'blocked'),
changed AS MATERIALIZED (
    SELECT memory_id, content, is_deleted, valid_from, valid_until, occurred_at FROM memory_rows
    WHERE scope = $scope AND (version > 1 OR is_deleted OR valid_until <= $now
        OR memory_id IN (SELECT memory_id FROM held))),
said AS MATERIALIZED (
    SELECT f.turn_memory_id AS id, o.memory_id, f.content AS statement
    FROM changed c JOIN outcomes o ON o.memory_id = c.memory_id AND o.item_kind = 'fact'
        JOIN fact_rows f ON f.item_id = o.item_id
    WHERE f.scope = $scope AND o.scope = $scope AND {says_it(_HAS_TEXT)}
        AND f.turn_memory_id <> o.memory_id),
taken_back AS (
    SELECT o.memory_id, max(f.occurred_at) AS stated
    FROM changed c JOIN outcomes o ON o.memory_id = c.memory_id AND o.item_kind = 'fact'
        JOIN fact_rows f ON f.item_id = o.item_id
    WHERE c.is_deleted AND o.event = 'deleted' GROUP BY o.memory_id),
edges AS MATERIALIZED (
    SELECT source_id AS derived, target_id AS source FROM memory_edges
    WHERE scope = $scope AND relation_type = 'derived_from'
        AND (source_id IN (SELECT memory_id FROM changed)
            OR target_id IN (SELECT memory_id FROM changed))),
statements AS (
    SELECT memory_id AS id, memory_id, NULL AS statement, 'itself' AS part FROM changed
    UNION ALL SELECT id, memory_id, statement, 'derived' FROM said
    UNION ALL SELECT source, derived, NULL, 'derived' FROM edges
        WHERE (source, derived) NOT IN (SELECT (id, memory_id) FROM said)
    UNION ALL SELECT derived, source, r.content, 'source'
        FROM edges JOIN memory_rows r ON r.memory_id = derived)
SELECT t.id, m.memory_id, t.part, t.statement, s.occurred_at, m.content, m.is_deleted,
    m.valid_until, m.occurred_at, b.stated, m.valid_from IS NOT NULL,
    arg_max(n.content, (n.occurred_at, n.memory_id)),
    list(DISTINCT {{'version': a.version, 'content': a.content,
        'reason': a.reason, 'until': a.archived_at,
        'stated': json_extract_string(a.state, '$.occurred_at')}})
        FILTER (WHERE a.version IS NOT NULL),
    list(DISTINCT {{'content': h.content, 'stated': h.occurred_at}})
        FILTER (WHERE h.content IS NOT NULL AND h.turn_memory_id <> t.id),
    list(DISTINCT {{'content': p.content, 'stated': p.valid_from}})
        FILTER (WHERE p.content IS NOT NULL)
FROM statements t JOIN changed m ON m.memory_id = t.memory_id
    JOIN memory_rows s ON s.memory_id = t.id AND s.scope = $scope
    LEFT JOIN archived_states a ON a.memory_id = m.memory_id AND a.scope = $scope
    LEFT JOIN held h ON h.memory_id = m.memory_id
    LEFT JOIN taken_back b ON b.memory_id = m.memory_id
    LEFT JOIN memory_edges e ON e.scope = $scope AND e.relation_type = 'supersedes'
        AND e.target_id = m.memory_id AND m.valid_from IS NOT NULL
    LEFT JOIN memory_rows n ON n.memory_id = e.source_id AND NOT n.is_deleted
        AND n.valid_from IS NULL
    LEFT JOIN memory_edges u ON u.scope = $scope AND u.relation_type = 'supersedes'
        AND u.source_id = m.memory_id AND u.evidence = $between
    LEFT JOIN memory_rows p ON p.memory_id = u.target_id AND NOT p.is_deleted
        AND p.valid_from IS NOT NULL
WHERE $ids IS NULL OR list_contains($ids, t.id)
GROUP BY ALL
ORDER BY t.id, m.occurred_at, m.memory_id, t.statement"""
"""For each requested memory (all if none is given): its own changes; those of the memories derived
from it, with its statement; and those of the texts that it was derived from, with its own text."""


@dataclass(frozen=True, slots=True)
class _State:
    """A text of a memory; `until` and `reason` are when and why it was replaced, None and empty for
    the present one. `stated` is when it was stated."""

    content: str
    stated: datetime
    until: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Changed:
    """A memory that is shown, was derived from one, or is the source of one. `stated` is when the
    memory that is shown was stated; `taken_back` when the statement against this one was.
    `is_past`: it was said before what excludes it, which now says `instead`. `between` is what was
    said meanwhile, and arrived later, with its time. One that faded or was
    merged with its double is not deleted here: what it says may hold."""

    part: str
    statement: str | None
    stated: datetime
    states: tuple[_State, ...]
    is_deleted: bool
    valid_until: datetime | None
    taken_back: datetime | None
    is_past: bool
    instead: str | None
    held: tuple[tuple[str, datetime], ...]
    between: tuple[tuple[str, datetime], ...]

    @property
    def present(self) -> _State:
        return self.states[-1]


def marks_of(
    reader: duckdb.DuckDBPyConnection, scope: str, ids: Iterable[str] | None, now: datetime
) -> Marks:
    """Returns the marks of those of these memories of the scope (None: of all) that have any, in
    one query."""
    wanted = None if ids is None else sorted(set(ids))
    given = {"scope": scope, "ids": wanted, "now": now, "between": BETWEEN}
    rows = reader.execute(_CHANGES, given).fetchall()
    found: dict[str, dict[Mark, None]] = {}
    for memory_id, _, *values in rows:
        marks = found.setdefault(memory_id, {})
        marks.update(dict.fromkeys(_marks(_changed(*values), now)))
    return {memory_id: tuple(marks) for memory_id, marks in found.items() if marks}


@dataclass(frozen=True, slots=True)
class _Known:
    """All marks of a scope as they are from `since` until `until`, at this count of changes."""

    changes: int
    since: datetime
    until: datetime | None
    marks: Marks


_KNOWN: WeakKeyDictionary[ScopeIndex, _Known] = WeakKeyDictionary()


def marks_in(shard: Readable, scope: str, index: ScopeIndex, ids: Set[str], now: datetime) -> Marks:
    """Returns the marks of those of these memories that have any. Those of a resident scope are
    read at once, and again after a change and after an end; most scopes have none."""
    if not index.is_whole:
        with shard.reading() as reader:
            return marks_of(reader, scope, ids, now)
    if not index.has_changes:
        return {}
    known = _KNOWN.get(index)
    if (
        known is None
        or known.changes != index.changes
        or not (known.since <= now and (known.until is None or now < known.until))
    ):
        # Counted before reading: changes in between are read the next time.
        changes = index.changes
        with shard.reading() as reader:
            marks = marks_of(reader, scope, None, now)
            [[until]] = reader.execute(_NEXT_END, {"scope": scope, "now": now}).fetchall()
        known = _KNOWN[index] = _Known(changes, now, until, marks)
    return {memory_id: known.marks[memory_id] for memory_id in ids & known.marks.keys()}


def _changed(
    part: str,
    statement: str | None,
    stated: datetime,
    content: str,
    is_deleted: bool,
    valid_until: datetime | None,
    occurred_at: datetime,
    taken_back: datetime | None,
    is_past: bool,
    instead: str | None,
    archived: list[dict[str, object]] | None,
    held: list[dict[str, object]] | None,
    between: list[dict[str, object]] | None,
) -> _Changed:
    before = sorted(archived or (), key=lambda each: int(str(each["version"])))
    states = [
        _State(
            str(each["content"]),
            datetime.fromisoformat(str(each["stated"])),
            _time(each["until"]),
            str(each["reason"]),
        )
        for each in before
    ]
    waiting = [(str(each["content"]), _time(each["stated"])) for each in held or ()]
    return _Changed(
        part,
        statement,
        stated,
        (*states, _State(content, occurred_at)),
        is_deleted and not (states and states[-1].reason in (FADED, MERGED)),
        valid_until,
        taken_back,
        is_past,
        instead,
        tuple(sorted(waiting, key=lambda each: (each[1], each[0]))),
        tuple((str(each["content"]), _time(each["stated"])) for each in between or ()),
    )


def _time(value: object) -> datetime:
    assert isinstance(value, datetime)
    return value


def _marks(changed: _Changed, now: datetime) -> Iterator[Mark]:
    match changed.part:
        case "itself":
            yield from _of_its_own(changed, "", now)
        case "derived":
            yield from _of_statement(changed, now)
        case "source":
            yield from _of_source(changed)


def _of_its_own(changed: _Changed, statement: str, now: datetime) -> Iterator[Mark]:
    if changed.is_deleted:
        return
    if changed.is_past:
        # What says the same now holds again.
        if changed.instead is None or not _same(changed.instead, changed.present.content):
            yield Mark("superseded", statement, changed.instead, changed.valid_until)
    elif changed.valid_until is not None and changed.valid_until <= now:
        yield Mark("expired", statement, None, changed.valid_until)
    for text, stated in changed.held:
        yield Mark("pending", statement, text, stated)


def _of_statement(changed: _Changed, now: datetime) -> Iterator[Mark]:
    """Yields marks of a turn that stated the present or an earlier text of the memory."""
    place = _last_place_of(changed)
    said = changed.states[place].content if changed.statement is None else changed.statement
    if changed.is_deleted:
        last = changed.states[-2] if len(changed.states) > 1 else changed.present
        # A mark never repeats what was forgotten, and what was deleted otherwise may be true.
        if last.reason.startswith(DELETED_BY):
            yield Mark("superseded", said, None, changed.taken_back or last.until)
        return
    if place == len(changed.states) - 1:
        yield from _of_its_own(changed, said, now)
    else:
        yield _replaced(changed, place, said)


def _replaced(changed: _Changed, place: int, statement: str) -> Mark:
    state, after = changed.states[place], changed.states[place + 1]
    superseded = state.reason.startswith(REPLACED_BY)
    kind: MarkKind = "superseded" if superseded else "corrected"
    meanwhile = [
        stated
        for content, stated in changed.between
        if state.stated < stated < after.stated and not _same(content, state.content)
    ]
    since = min([after.stated, *meanwhile]) if superseded else state.until
    return Mark(kind, statement, changed.present.content, since)


def _of_source(changed: _Changed) -> Iterator[Mark]:
    """Yields marks of a memory derived from a text that a person has corrected since."""
    if changed.is_deleted or changed.statement is None:
        return
    own = _words(changed.statement)
    still = len(own & _words(changed.present.content))
    for state in reversed(changed.states[:-1]):
        # If the text still contains as much of it as before, the correction concerned something
        # else.
        if state.reason == MODIFIED and len(own & _words(state.content)) > still:
            yield Mark("corrected", "", changed.present.content, state.until)
            return


def _last_place_of(changed: _Changed) -> int:
    """Returns the index of the last text that says what was stated: the last equal one, or what was
    extracted from the same turns in its place."""
    place = _place_of(changed)
    while True:
        content = changed.states[place].content
        like = [n for n, state in enumerate(changed.states) if _same(state.content, content)]
        if not changed.states[like[-1]].reason.startswith(RE_EXTRACTED):
            return like[-1]
        place = like[-1] + 1


def _place_of(changed: _Changed) -> int:
    """Returns the index of the memory's text that was stated: an equal one, else the one with most
    of its words; of several the first. If the statement is unknown, the text of the same time."""
    if changed.statement is None:
        times = [state.stated for state in changed.states]
        return times.index(changed.stated) if changed.stated in times else 0
    words = _words(changed.statement)
    shares = [
        (_same(state.content, changed.statement), len(words & _words(state.content)), -number)
        for number, state in enumerate(changed.states)
    ]
    return -max(shares)[2]


def _same(a: str, b: str) -> bool:
    return " ".join(a.split()) == " ".join(b.split())


def _words(text: str) -> set[str]:
    return set(query_tokens(text))
