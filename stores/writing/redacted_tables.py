"""The tables that hold texts of messages and outcomes, and the removal of erased texts from them;
and which records of a log may hold such texts.

An erasure concerns only few rows of a scope. DuckDB preselects them by ids and patterns; only these
are parsed. A pattern matches everything that `Redaction.node` would change, and little else: a text
that is searched for occurs in a row character by character, in any case, where a normal form leaves
its characters unchanged."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa

from palimpsest.schemas.erasure.quotations import ERASED, LONG
from palimpsest.schemas.erasure.redaction import CHANGING, GRAPH_LINES, OWN, QUOTING, Redaction
from palimpsest.schemas.identity import (
    FACT_MEMORY_NAME,
    UNREADABLE_SCOPE,
    command_memory_id,
    command_memory_name,
    turn_memory_name,
)
from palimpsest.schemas.normal_forms import folded
from palimpsest.schemas.rows.columns import columns_of
from palimpsest.schemas.rows.row_types import ROW_TYPES

MOST: Final = 200
"""For more texts than this no pattern is made: everything may be changed."""
_LONGEST: Final = 48
"""Characters of a phrase; more of them would exclude little more."""

_GAP: Final = "[^!-~]+"
# One character of these becomes two, and the others vanish in a normal form.
ODD: Final = (
    r"[\x{130}\x{340}\x{341}\x{343}\x{344}\x{374}\x{37E}\x{387}\x{958}-\x{95F}\x{9DC}-\x{9DF}"
    r"\x{A33}-\x{A5E}\x{B5C}\x{B5D}\x{F43}-\x{FB9}\x{1F71}-\x{1FFD}\x{2000}\x{2001}\x{2126}"
    r"\x{212A}\x{212B}\x{2329}\x{232A}\x{2ADC}\x{F900}-\x{FAFF}\x{FB1D}-\x{FB4E}"
    r"\x{1D15E}-\x{1D1C0}\x{2F800}-\x{2FA1F}]"
)
"""Characters that may stand for others: a text with one of them, or with NUL, may be any."""
_ANY: Final = ""
_NONE: Final = r"[^\x{0}-\x{10FFFF}]"

CHANGING_FIELDS: Final = '"(?:' + "|".join(sorted(CHANGING)) + ')"'
"""Matches all JSON that can be changed, if none of its characters is escaped."""
_DERIVING: Final = ("turn_id", "item_id", "command", "value_base64")
"""Fields of JSON from which it follows that something is an erased memory's without its id."""


@dataclass(frozen=True, slots=True)
class Screen:
    """RE2 patterns of what some redactions may change: of fields that hold a text as a whole
    (`own`), that quote (`quoting`), and of JSON without escapes (`json`). It may have one of the
    `words` as a string instead."""

    own: str
    quoting: str
    json: str
    words: tuple[str, ...]


def screen_of(redactions: Sequence[Redaction]) -> Screen:
    """Returns the screen of redactions of one scope."""
    texts = [known for each in redactions for text in each.quoted if (known := folded(text))]
    quoted = {given[:LONG] for each in redactions for given in each.quotations}
    long = [given for given in quoted if len(given) == LONG]
    words = {word for each in redactions for word in (*each.erased, *each.hashes)}
    return Screen(
        _either([*map(_beginning, texts), *map(_within, long)]),
        _either(map(_within, quoted)),
        _either(map(_within, [*texts, *quoted])),
        tuple(sorted(words)),
    )


def _either(given: Iterable[str]) -> str:
    phrases = sorted({*given})
    if "" in phrases or len(phrases) > MOST:
        return _ANY
    return f"(?i){'|'.join(phrases)}" if phrases else _NONE


def _beginning(text: str) -> str:
    """The start of a text that is a whole field: only white space may precede it."""
    if not text or text[0].isspace() or not _stays(text[0]):
        return _within(text)
    return f"^[^!-~]*{next(_phrases(text))[1]}"


def _within(text: str) -> str:
    """The longest phrase of a text."""
    return max(_phrases(text))[1]


def _phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yields the parts of a text that occur unchanged in every text with this normal form, with
    their lengths."""
    plain = "".join(char if _stays(char) else "\0" for char in text)
    for part in plain.split("\0"):
        words = part[:_LONGEST].split()
        yield sum(map(len, words)), _GAP.join(map(re.escape, words))


def _stays(char: str) -> bool:
    """Whether no other character becomes this one in a normal form, except its capital."""
    if char.isascii():
        return True
    composed = unicodedata.normalize("NFD", char) != char or "\u1100" <= char <= "\u11ff"
    return not composed and not unicodedata.category(char).startswith("M")


AT_ONCE: Final = 16
"""Number of a scope's redactions that are applied in one pass over the tables."""
FEW_ROWS: Final = 300
"""Scanning this many rows takes no longer than selecting those needed."""


JSON_COLUMNS: Final = frozenset({"metadata", "candidates", "payload", "headers", "result"})
"""Columns that hold JSON."""
_ROWS: Final = {each.TABLE: each for each in ROW_TYPES}


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table holds texts: the columns `about` identify their owner. `source` is what to
    select from, by `$scope`, if the table alone does not have all columns."""

    name: str
    about: tuple[str, ...]
    changed: tuple[str, ...]
    source: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return _ROWS[self.name].KEY

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.about, *self.changed)

    @property
    def json(self) -> tuple[str, ...]:
        """The changed columns that hold JSON."""
        return tuple(name for name in self.changed if name in JSON_COLUMNS)

    @property
    def lists(self) -> tuple[str, ...]:
        """The changed columns that hold lists of texts."""
        known = columns_of(_ROWS[self.name])
        return tuple(name for name in self.changed if known[name].is_list)

    @property
    def query(self) -> str:
        """All rows of `$scope`."""
        source = self.source or f"(FROM {self.name} WHERE scope = $scope)"
        return f"SELECT {', '.join(self.columns)} FROM {source}"


TABLES: Final = (
    Table("fact_rows", ("turn_memory_id",), ("content", "categories")),
    Table(
        "proposals",
        ("action", "turn_memory_id"),
        ("reason", "dropped", "candidates"),
        "(SELECT p.*, f.turn_memory_id FROM proposals p"
        " LEFT JOIN fact_rows f USING (item_id) WHERE p.scope = $scope)",
    ),
    Table("held_proposals", ("action", "turn_memory_id"), ("content", "reason", "categories")),
    Table("shadow_proposals", ("action", "turn_memory_id"), ("reason", "error")),
    Table("extractions", ("turn_memory_id",), ("warnings",)),
    Table(
        "outcomes",
        ("event", "turn_memory_id", "memory_id"),
        ("reason",),
        # A decision about an erased turn's fact belongs to the turn, regardless of the memory it
        # was about, as in the record of the decision.
        "(SELECT o.* REPLACE (CASE WHEN t.content_hash = '' THEN NULL ELSE o.memory_id END"
        " AS memory_id), f.turn_memory_id FROM outcomes o"
        " LEFT JOIN fact_rows f ON f.item_id = o.item_id AND o.item_kind = 'fact'"
        " LEFT JOIN memory_rows t ON t.memory_id = f.turn_memory_id WHERE o.scope = $scope)",
    ),
    Table(
        "history_rows",
        ("memory_id", "event", "changed_by"),
        ("old_content", "new_content", "reason", "metadata"),
    ),
    Table(
        "dead_letter_rows",
        (),
        ("value_base64", "reason", "raw_output"),
        f"(FROM dead_letter_rows WHERE scope IN ($scope, '{UNREADABLE_SCOPE}'))",
    ),
    Table("command_results", (), ("error", "result")),
    Table("recalls", (), ("question",)),
    Table("promotion_part_rows", (), ("payload",)),
)


def redact_tables(connection: duckdb.DuckDBPyConnection, redactions: Sequence[Redaction]) -> None:
    """Removes erased texts from the tables of messages and outcomes, and from outboxes; in the
    running transaction. Those of a scope are executed in order."""
    # The result for a row depends on the row alone, and no redaction changes its owner: applying
    # all of them row by row equals applying each to all rows.
    by_scope = sorted(redactions, key=lambda each: each.scope)
    for _, of_scope in itertools.groupby(by_scope, key=lambda each: each.scope):
        left = [*of_scope]
        while left:
            _redact_scope(connection, left[:AT_ONCE])
            del left[:AT_ONCE]


def _redact_scope(connection: duckdb.DuckDBPyConnection, redactions: Sequence[Redaction]) -> None:
    for table in TABLES:
        rows = affected(connection, table, redactions)
        changed = [new for row in rows if (new := redacted_row(table, row, redactions))]
        keyed = [(tuple(row[name] for name in table.key), row) for row in changed]
        update_rows(connection, table.name, table.key, table.changed, keyed)
    outbox = connection.execute(
        "SELECT stage, seq, value FROM outbox WHERE scope = ? AND value IS NOT NULL",
        [redactions[0].scope],
    ).fetchall()
    for stage, seq, value in outbox:
        redacted = value
        for redaction in redactions:
            redacted = redaction.value(redacted)
        if redacted != value:
            connection.execute(
                "UPDATE outbox SET value = ? WHERE stage = ? AND seq = ?", [redacted, stage, seq]
            )


def affected(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    redactions: Sequence[Redaction],
    few_rows: int = FEW_ROWS,
) -> list[dict[str, Any]]:
    """Returns all rows that redactions of one scope change, and few others, by column. If the scope
    has no more than `few_rows` in the table, returns all of them."""
    scope = redactions[0].scope
    rows = connection.execute(f"SELECT count(*) FROM {table.name} WHERE scope = ?", [scope])
    if rows.fetchall() <= [(few_rows,)] or "value_base64" in table.columns:
        # What a dead letter holds must be opened.
        found = connection.execute(table.query, {"scope": scope}).fetchall()
        return [dict(zip(table.columns, row, strict=True)) for row in found]
    screen = screen_of(redactions)
    given = {
        "scope": scope,
        "erased": [*{key for each in redactions for key in each.erased}],
        "own": screen.own,
        "quoting": screen.quoting,
        "json": screen.json,
        "words": [*screen.words, *_DERIVING],
        "fields": CHANGING_FIELDS,
        "odd": ODD,
        "name": FACT_MEMORY_NAME,
    }
    query = f"SELECT * FROM ({table.query}) WHERE {_changing(table)}"
    used = {name: value for name, value in given.items() if re.search(rf"\${name}\b", query)}
    found = connection.execute(query, used).fetchall()
    return [dict(zip(table.columns, row, strict=True)) for row in found]


@cache
def _changing(table: Table) -> str:
    """Returns a condition that holds for every row that `Redaction.node` changes; both make the
    same distinctions."""
    left = " OR ".join(_left(table, name) for name in table.changed)
    conditions = [f"({left}) AND ({_owned(table)})"]
    for name in table.changed:
        text = f"array_to_string({name}, ' ')" if name in table.lists else name
        odd = f"strlen({text}) > length({text}) AND regexp_matches({text}, $odd)"
        if name in table.json:
            # Without a backslash, everything between quotation marks is unescaped.
            word = f"list_has_any(string_split({name}, '\"'), $words)"
            matches = f"regexp_matches({name}, $json) OR {odd} OR {word}"
            conditions.append(f"contains({name}, '\\')")
            conditions.append(f"regexp_matches({name}, $fields) AND ({matches})")
        else:
            pattern = "$own" if name in OWN else "$quoting"
            conditions.append(
                f"regexp_matches({text}, {pattern}) OR {odd} OR contains({text}, chr(0))"
            )
    return " OR ".join(f"({each})" for each in conditions)


_ANYWAY: Final = (
    '"(?:value_base64|from_scope|add-document|update-short-term-memory)"|"turn_id"\\s*:\\s*[^"\\s]'
    '|"(?:turn_id|item_id|id|causation_id|correlation_id)"\\s*:\\s*"[^"\\\\]*\\\\'
    f'|"kind"\\s*:\\s*"(?:{"|".join(GRAPH_LINES)})"'
)
"""What must be parsed to see whose it is."""


def _derived(fields: str, name: str, records: str = "unescaped") -> str:
    """Returns a query for the records in which one of these fields has an id that an erased
    memory's is derived from, as `derived_id` makes it of the bytes `name` and the id."""
    ids = f'regexp_extract_all(raw, \'"(?:{fields})"\\s*:\\s*"([^"]*)"\', 1)'
    return (
        f"SELECT number FROM (SELECT number, unnest({ids}) AS id FROM {records})"
        f" WHERE left(sha1(${name} || encode(id)), 8) IN (FROM digests)"
    )


# Escapes that real texts are full of are undone; where others are left, or a string ends with a
# backslash, the record is parsed. Joins, since a scope may have many erased memories.
_AFFECTED: Final = f"""
WITH records AS (SELECT number, try(decode(value)) AS raw FROM batch),
unescaped AS MATERIALIZED (
    SELECT *, replace(replace(raw, '\\"', '"'), '\\n', chr(10)) AS text FROM records
), remembering AS (FROM unescaped WHERE contains(raw, '"remember"'))
SELECT number FROM unescaped WHERE raw IS NULL
    OR contains(text, '\\') OR contains(text, chr(0)) OR regexp_matches(raw, $anyway)
    OR regexp_matches(text, $json)
    OR strlen(text) > length(text) AND regexp_matches(text, $odd)
UNION SELECT number FROM (SELECT number, unnest(string_split(text, '"')) AS word FROM unescaped)
    WHERE word IN (FROM words)
UNION {_derived("item_id", "of_fact")}
UNION {_derived("turn_id", "of_turn")}
UNION {_derived("id|causation_id|correlation_id", "of_command", "remembering")}"""


class RecordScreen:
    """Finds the records of a log that redactions change, and few others."""

    def __init__(self, redactions: Sequence[Redaction]) -> None:
        self._of_scopes: list[tuple[dict[str, object], dict[str, pa.Table]]] = []
        by_scope: dict[str, list[Redaction]] = {}
        for redaction in redactions:
            by_scope.setdefault(redaction.scope, []).append(redaction)
        # `derived_id` escapes what separates its parts.
        self._is_any = any("\x1e" in scope or "\x1f" in scope for scope in by_scope)
        for scope, some in by_scope.items():
            screen = screen_of(some)
            given: dict[str, object] = {
                "anyway": _ANYWAY,
                "json": screen.json,
                "odd": ODD,
                "of_fact": FACT_MEMORY_NAME,
                "of_turn": turn_memory_name(scope),
                "of_command": command_memory_name(scope),
            }
            words = [*screen.words, *{document for each in some for document in each.documents}]
            words += {version.split()[0] for each in some for version in each.earlier}
            digests = [*{key[:8] for each in some for key in each.erased}]
            digests += [command_memory_id(scope, key)[:8] for each in some for key in each.repeats]
            listed = {"words": words, "digests": digests}
            tables = {
                name: pa.table({name: pa.array(of, pa.string())}) for name, of in listed.items()
            }
            self._of_scopes.append((given, tables))

    def affected(
        self, connection: duckdb.DuckDBPyConnection, values: Sequence[bytes | None]
    ) -> list[int]:
        """Returns the positions of these records among them, given as their values, in order."""
        if self._is_any:
            return [*range(len(values))]
        numbers = pa.array(range(len(values)), pa.int64())
        batch = pa.table({"number": numbers, "value": pa.array(values, pa.binary())})
        batch = batch.filter(batch["value"].is_valid())
        found: set[int] = set()
        for given, tables in self._of_scopes:
            views = {**tables, "batch": batch}
            for name, table in views.items():
                connection.register(name, table)
            try:
                rows = connection.execute(_AFFECTED, given).fetchall()
                found.update(number for (number,) in rows)
            finally:
                for name in views:
                    connection.unregister(name)
        return sorted(found)


def _owned(table: Table) -> str:
    """Returns a condition for rows that may belong to an erased memory."""
    owners = [
        f"{name} IN (SELECT unnest($erased))"
        for name in ("turn_memory_id", "source_memory", "memory_id")
        if name in table.columns
    ]
    if "item_id" in table.columns:
        # As `derived_id` makes the fact's memory, with what it escapes left out.
        digest = "left(sha1($name || encode(item_id)), 8)"
        owners.append(f"{digest} IN (SELECT left(unnest($erased), 8))")
        owners.append("contains(item_id, chr(30)) OR contains(item_id, chr(31))")
    return " OR ".join(owners) or "false"


def _left(table: Table, name: str) -> str:
    """Returns a condition for unredacted content in an erased memory's column."""
    if name in table.json:
        return f"{name} <> '{{}}'"
    if name == "categories":
        return f"len({name}) > 0"
    if name in table.lists:
        return f"len(list_filter({name}, lambda each: each <> '{ERASED}')) > 0"
    if name in QUOTING:
        # A reason is given also where there was none.
        return f"{name} {'IS DISTINCT FROM' if name == 'reason' else '<>'} '{ERASED}'"
    return (
        f"{name} <> '' AND NOT regexp_full_match({name}, '\\[erased [0-9a-f-]{{36}}( [0-9]+)?\\]')"
    )


def redacted_row(
    table: Table, row: dict[str, Any], redactions: Sequence[Redaction]
) -> dict[str, Any] | None:
    """Returns the row after all redactions; None if nothing changes."""
    node = {
        name: json.loads(value) if name in table.json and value is not None else value
        for name, value in row.items()
    }
    redacted: Any = node
    for redaction in redactions:
        redacted = redaction.node(redacted)
    if redacted == node:
        return None
    # As the stages write them.
    form: dict[str, Any] = {} if table.name == "proposals" else {"ensure_ascii": False}
    if table.name != "proposals":
        form["sort_keys"] = True
    return {
        name: json.dumps(value, **form) if name in table.json and value is not None else value
        for name, value in redacted.items()
    }


def update_rows(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    key: Sequence[str],
    changed: Sequence[str],
    rows: Sequence[tuple[Sequence[object], Mapping[str, Any]]],
) -> None:
    """Updates the changed columns, which may be part of the key, of rows with these keys."""
    if not rows:
        return
    schema = connection.sql(f"FROM {table} LIMIT 0").to_arrow_table().schema
    arrays = {
        f"key_{name}": pa.array([old[number] for old, _ in rows], schema.field(name).type)
        for number, name in enumerate(key)
    }
    for name in changed:
        arrays[name] = pa.array([row[name] for _, row in rows], schema.field(name).type)
    connection.register("redacted", pa.table(arrays))
    sets = ", ".join(f"{name} = redacted.{name}" for name in changed)
    where = " AND ".join(f"{table}.{name} = redacted.key_{name}" for name in key)
    connection.execute(f"UPDATE {table} SET {sets} FROM redacted WHERE {where}")
    connection.unregister("redacted")
