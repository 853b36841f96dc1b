"""Which statements in the memories shown no longer hold, from the stored changes.

A statement of a turn is a fact derived from it. It no longer holds once the fact's memory was
changed, was deleted because of a newer statement, or has ended. The extracted fact determines which
text of the memory came from the turn, so the turn of the newest text has no mark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import duckdb

from palimpsest.schemas.envelope import local_time
from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.derivations import says_it
from palimpsest.stores.database.tables import parsed
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.recall.query import IS_PENDING, Mark, MarkKind
from palimpsest.streams.store_port import BETWEEN, FADED, MERGED

Marks = dict[str, tuple[Mark, ...]]
_Ask = Callable[..., list[tuple[Any, ...]]]
"""Runs a query over the scope, with more values."""

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

# One query for all of this takes DuckDB 16 ms to plan, and most scopes need none but the first two.
_HELD: Final = f"""
SELECT h.target_id, h.turn_memory_id, h.content, h.occurred_at
FROM held_proposals h JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id
WHERE h.scope = $scope AND {IS_PENDING}"""
_CHANGED: Final = """
SELECT memory_id FROM memory_rows
WHERE scope = $scope AND (version > 1 OR is_deleted OR valid_until <= $now)"""
_COUNT: Final = f"SELECT count(*) FROM ({_CHANGED})"
_CHANGED_OF: Final = f"{_CHANGED} AND memory_id IN (SELECT unnest($ids))"
MOST_CHANGED: Final = 5_000
"""Changed memories of a scope of which all marks are read at once: that takes 43 ms a thousand."""
AS_LONG: Final = 300
"""Of so many it takes as long as to read the marks of what one recall shows."""
_SAID: Final = f"""
SELECT f.turn_memory_id, o.memory_id, f.content, {says_it("false")}
FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
WHERE o.item_kind = 'fact' AND o.scope = $scope AND f.scope = $scope AND {says_it("true")}
    AND f.turn_memory_id <> o.memory_id AND {{column}} IN (SELECT unnest($ids))"""
_TEXTS: Final = """
SELECT memory_id, content FROM memory_rows
WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))
UNION SELECT memory_id, content FROM archived_states
WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))"""
_DERIVED: Final = """
SELECT target_id, source_id FROM memory_edges
WHERE scope = $scope AND relation_type = 'derived_from'
    AND (source_id IN (SELECT unnest($ids)) OR target_id IN (SELECT unnest($ids)))"""
_ROWS: Final = """
SELECT memory_id, content, is_deleted, valid_from, valid_until, occurred_at,
    coalesce(utc_offset_minutes, 0) FROM memory_rows
WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))"""
_ARCHIVED: Final = """
SELECT DISTINCT memory_id, version, content, reason, archived_at,
    json_extract_string(state, '$.occurred_at')
FROM archived_states WHERE scope = $scope AND memory_id IN (SELECT unnest($ids))
ORDER BY memory_id, version"""
_TAKEN_BACK: Final = """
SELECT o.memory_id, max(f.occurred_at)
FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
WHERE o.item_kind = 'fact' AND o.scope = $scope AND o.event = 'deleted'
    AND o.memory_id IN (SELECT unnest($ids))
GROUP BY o.memory_id"""
_INSTEAD: Final = """
SELECT e.target_id, arg_max(n.content, (n.occurred_at, n.memory_id))
FROM memory_edges e JOIN memory_rows n ON n.memory_id = e.source_id
WHERE e.scope = $scope AND e.relation_type = 'supersedes'
    AND NOT n.is_deleted AND n.valid_from IS NULL AND e.target_id IN (SELECT unnest($ids))
GROUP BY e.target_id"""
_BETWEEN: Final = """
SELECT DISTINCT e.source_id, p.content, p.valid_from
FROM memory_edges e JOIN memory_rows p ON p.memory_id = e.target_id
WHERE e.scope = $scope AND e.relation_type = 'supersedes' AND e.evidence = $between
    AND NOT p.is_deleted AND p.valid_from IS NOT NULL AND e.source_id IN (SELECT unnest($ids))"""


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
    """What became of a memory. `taken_back` is when the statement against it was stated. `is_past`:
    it was said before what excludes it, which now says `instead`. `between` is what was said
    meanwhile, and arrived later, with its time. One that faded or was merged with its double is not
    deleted here: what it says may hold. `zone` is the offset from UTC, in minutes, of the clock by
    which it was stated."""

    states: tuple[_State, ...]
    is_deleted: bool
    valid_until: datetime | None
    taken_back: datetime | None
    is_past: bool
    instead: str | None
    between: tuple[tuple[str, datetime], ...]
    zone: int

    @property
    def present(self) -> _State:
        return self.states[-1]


@dataclass(frozen=True, slots=True)
class _Statement:
    """That what the memory `id` says concerns a changed one: `itself`, one `derived` from it, with
    what it states of that where known, or a `source` that it was derived from, with its own text.
    `stated` is when the memory `id` was stated; `held` are the changes of the other memory that are
    pending, with their times."""

    id: str
    memory_id: str
    part: str
    statement: str | None = None
    stated: datetime | None = None
    held: tuple[tuple[str, datetime], ...] = ()


def marks_of(
    reader: duckdb.DuckDBPyConnection, scope: str, ids: Iterable[str] | None, now: datetime
) -> Marks:
    """Returns the marks of those of these memories of the scope (None: of all) that have any, as of
    one moment; for that it begins a transaction and ends it."""

    def ask(query: str, **given: object) -> list[tuple[Any, ...]]:
        answer = reader.execute(parsed(reader, query), {"scope": scope, **given})
        return answer.fetchall()

    reader.execute("BEGIN TRANSACTION READ ONLY")
    try:
        held: defaultdict[str, set[tuple[datetime, str, str]]] = defaultdict(set)
        for memory_id, turn, content, stated in ask(_HELD):
            held[memory_id].add((stated, content, turn))
        wanted = None if ids is None else {*ids}
        some = _CHANGED if wanted is None else f"{_CHANGED} LIMIT 1"
        changed = {memory_id for (memory_id,) in ask(some, now=now)} | held.keys()
        if not changed:
            return {}
        statements = _statements(ask, changed if wanted is None else wanted, wanted is None)
        if wanted is not None:
            about = sorted({each.memory_id for each in statements})
            changed = held.keys() | {key for (key,) in ask(_CHANGED_OF, now=now, ids=about)}
            statements = {
                each for each in statements if each.memory_id in changed and each.id in wanted
            }
        found: dict[str, dict[Mark, None]] = {}
        for each, became in _changes(ask, statements, held):
            marks = found.setdefault(each.id, {})
            for mark in _marks(each, became, now):
                since, zone = mark.since, became.zone if mark.kind == "superseded" else 0
                at = None if since is None else local_time(since, zone)
                marks[replace(mark, since=at)] = None
        return {memory_id: tuple(marks) for memory_id, marks in found.items() if marks}
    finally:
        reader.execute("ROLLBACK")


def _statements(ask: _Ask, ids: Set[str], are_changed: bool) -> set[_Statement]:
    """Returns what is said of these memories, if they `are_changed`, else what they say of others,
    and some more. Of a memory derived from one its text is left to be added."""
    about = sorted(ids)
    column = "o.memory_id" if are_changed else "f.turn_memory_id"
    said: set[_Statement] = set()
    unsure: set[_Statement] = set()
    for turn, memory_id, content, is_sure in ask(_SAID.format(column=column), ids=about):
        each = _Statement(turn, memory_id, "derived", content)
        (said if is_sure else unsure).add(each)
    if unsure:
        texts = {*ask(_TEXTS, ids=sorted({each.memory_id for each in unsure}))}
        said |= {each for each in unsure if (each.memory_id, each.statement) in texts}
    derived = ask(_DERIVED, ids=about)
    unknown = {*derived} - {(each.id, each.memory_id) for each in said}
    found = {
        *(_Statement(memory_id, memory_id, "itself") for memory_id in ids),
        *said,
        *(_Statement(source, each, "derived") for source, each in unknown),
        *(_Statement(each, source, "source") for source, each in derived),
    }
    return {each for each in found if each.memory_id in ids} if are_changed else found


def _changes(
    ask: _Ask,
    statements: Set[_Statement],
    held: Mapping[str, Set[tuple[datetime, str, str]]],
) -> Iterator[tuple[_Statement, _Changed]]:
    """Yields each statement with what became of what it concerns, in order of the memories."""
    if not statements:
        return
    ids = sorted({each.memory_id for each in statements})
    rows = {row[0]: row[1:] for row in ask(_ROWS, ids=sorted({*ids, *(s.id for s in statements)}))}
    became = _became(ask, {each: rows[each] for each in ids if each in rows})
    in_order = [
        replace(
            each,
            statement=rows[each.id][0] if each.part == "source" else each.statement,
            stated=rows[each.id][4],
            held=tuple(
                (text, stated)
                for stated, text, turn in sorted(held.get(each.memory_id, ()))
                if turn != each.id
            ),
        )
        for each in statements
        if each.id in rows and each.memory_id in became
    ]
    in_order.sort(
        key=lambda each: (
            *(each.id, became[each.memory_id].present.stated, each.memory_id),
            *(each.statement is None, each.statement or "", each.part),
        )
    )
    for each in in_order:
        yield each, became[each.memory_id]


def _became(ask: _Ask, rows: Mapping[str, tuple[Any, ...]]) -> dict[str, _Changed]:
    """Returns what became of these memories (columns of `_ROWS`)."""
    ids = [*rows]
    deleted = [each for each in ids if rows[each][1]]
    past = [each for each in ids if rows[each][2]]
    before: defaultdict[str, list[_State]] = defaultdict(list)
    for memory_id, _, content, reason, until, stated in ask(_ARCHIVED, ids=ids):
        state = _State(content, datetime.fromisoformat(stated), until, reason)
        before[memory_id].append(state)
    taken_back: dict[str, datetime] = dict(ask(_TAKEN_BACK, ids=deleted)) if deleted else {}
    instead: dict[str, str] = dict(ask(_INSTEAD, ids=past)) if past else {}
    between: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
    if before:
        for memory_id, content, since in ask(_BETWEEN, ids=[*before], between=BETWEEN):
            between[memory_id].append((content, since))
    found = {}
    for memory_id, (content, is_deleted, valid_from, valid_until, stated, zone) in rows.items():
        states = before[memory_id]
        found[memory_id] = _Changed(
            states=(*states, _State(content, stated)),
            is_deleted=is_deleted and not (states and states[-1].reason in (FADED, MERGED)),
            valid_until=valid_until,
            taken_back=taken_back.get(memory_id),
            is_past=valid_from is not None,
            instead=instead.get(memory_id),
            between=tuple(between[memory_id]),
            zone=zone,
        )
    return found


@dataclass(slots=True)
class _Known:
    """All marks of a scope as they are from `since` until `until`, at this count of changes; None
    until there were so many recalls that reading them all, of `changed` memories, took no longer
    than reading what each of these `recalls` showed."""

    changes: int
    since: datetime
    until: datetime | None
    changed: int
    marks: Marks | None = None
    recalls: int = 0

    def holds(self, changes: int, now: datetime) -> bool:
        ended = self.until is not None and self.until <= now
        return self.changes == changes and self.since <= now and not ended


_KNOWN: WeakKeyDictionary[ScopeIndex, _Known] = WeakKeyDictionary()


def marks_in(shard: Readable, scope: str, index: ScopeIndex, ids: Set[str], now: datetime) -> Marks:
    """Returns the marks of those of these memories that have any. All of a resident scope are kept
    until the next change or end, once enough recalls came since the last."""
    if index.is_whole and not index.has_changes:
        return {}
    # Counted before reading: changes in between are read the next time.
    changes, known = index.changes, _KNOWN.get(index)
    if known is None or known.marks is None or not known.holds(changes, now):
        with shard.reading() as reader:
            if not index.is_whole:
                return marks_of(reader, scope, ids, now)
            if known is None or not known.holds(changes, now):
                [[until]] = reader.execute(_NEXT_END, {"scope": scope, "now": now}).fetchall()
                [[changed]] = reader.execute(_COUNT, {"scope": scope, "now": now}).fetchall()
                known = _KNOWN[index] = _Known(changes, now, until, changed)
            known.recalls += 1
            if known.changed > min(MOST_CHANGED, AS_LONG * known.recalls):
                return marks_of(reader, scope, ids, now)
            known.marks = marks_of(reader, scope, None, now)
    return {memory_id: known.marks[memory_id] for memory_id in ids & known.marks.keys()}


def _marks(each: _Statement, changed: _Changed, now: datetime) -> Iterator[Mark]:
    match each.part:
        case "itself":
            yield from _of_its_own(each, changed, "", now)
        case "derived":
            yield from _of_statement(each, changed, now)
        case "source":
            yield from _of_source(each, changed)


def _of_its_own(
    each: _Statement, changed: _Changed, statement: str, now: datetime
) -> Iterator[Mark]:
    if changed.is_deleted:
        return
    if changed.is_past:
        # What says the same now holds again.
        if changed.instead is None or not _same(changed.instead, changed.present.content):
            yield Mark("superseded", statement, changed.instead, changed.valid_until)
    elif changed.valid_until is not None and changed.valid_until <= now:
        yield Mark("expired", statement, None, changed.valid_until)
    for text, stated in each.held:
        # What is older than the memory says nothing against it.
        if stated >= changed.present.stated:
            yield Mark("pending", statement, text, stated)


def _of_statement(each: _Statement, changed: _Changed, now: datetime) -> Iterator[Mark]:
    """Yields marks of a turn that stated the present or an earlier text of the memory."""
    place = _last_place_of(each, changed)
    said = changed.states[place].content if each.statement is None else each.statement
    if changed.is_deleted:
        last = changed.states[-2] if len(changed.states) > 1 else changed.present
        # A mark never repeats what was forgotten, and what was deleted otherwise may be true.
        if last.reason.startswith(DELETED_BY):
            yield Mark("superseded", said, None, changed.taken_back or last.until)
        return
    if place == len(changed.states) - 1:
        yield from _of_its_own(each, changed, said, now)
        return
    state, after = changed.states[place], changed.states[place + 1]
    superseded = state.reason.startswith(REPLACED_BY)
    kind: MarkKind = "superseded" if superseded else "corrected"
    meanwhile = [
        stated
        for content, stated in changed.between
        if state.stated < stated < after.stated and not _same(content, state.content)
    ]
    since = min([after.stated, *meanwhile]) if superseded else state.until
    yield Mark(kind, said, changed.present.content, since)


def _of_source(each: _Statement, changed: _Changed) -> Iterator[Mark]:
    """Yields marks of a memory derived from a text that a person has corrected since."""
    if changed.is_deleted or each.statement is None:
        return
    own = _words(each.statement)
    still = len(own & _words(changed.present.content))
    for state in reversed(changed.states[:-1]):
        # If the text still contains as much of it as before, the correction concerned something
        # else.
        if state.reason == MODIFIED and len(own & _words(state.content)) > still:
            yield Mark("corrected", "", changed.present.content, state.until)
            return


def _last_place_of(each: _Statement, changed: _Changed) -> int:
    """Returns the index of the last text that says what was stated: the last equal one, or what was
    extracted from the same turns in its place."""
    if each.statement is None:  # the text of the same time
        times = [state.stated for state in changed.states]
        place = times.index(each.stated) if each.stated in times else 0
    else:  # an equal text, else the one with most of its words; of several the first
        words = _words(each.statement)
        shares = [
            (_same(state.content, each.statement), len(words & _words(state.content)), -number)
            for number, state in enumerate(changed.states)
        ]
        place = -max(shares)[2]
    while True:
        content = changed.states[place].content
        like = [n for n, state in enumerate(changed.states) if _same(state.content, content)]
        if not changed.states[like[-1]].reason.startswith(RE_EXTRACTED):
            return like[-1]
        place = like[-1] + 1


def _same(a: str, b: str) -> bool:
    return " ".join(a.split()) == " ".join(b.split())


def _words(text: str) -> set[str]:
    return set(query_tokens(text))
