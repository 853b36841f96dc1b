"""The tables that hold texts of messages and outcomes, and the removal of erased texts from them.

An erasure concerns only few rows of a scope. DuckDB preselects them by ids and patterns; only these
are parsed. A pattern matches everything that `Redaction.node` would change, and little else: a text
that is searched for occurs in a row character by character, in any case, where a normal form leaves
its characters unchanged."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa

from palimpsest.schemas.identity import FACT_MEMORY_NAME, UNREADABLE_SCOPE
from palimpsest.schemas.quotations import ERASED, LONG
from palimpsest.schemas.redaction import CHANGING, OWN, QUOTING, Redaction

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
_FEW: Final = 32
"""Maximum number of words for which a pattern is faster."""


@dataclass(frozen=True, slots=True)
class Screen:
    """RE2 patterns of what some redactions may change: of fields that hold a text as a whole
    (`own`), that quote (`quoting`), and of JSON without escapes (`json`). It may have one of the
    `words` as a string instead; `few_words` is their pattern, empty where they are too many."""

    own: str
    quoting: str
    json: str
    words: tuple[str, ...]
    few_words: str


def screen_of(redactions: Sequence[Redaction]) -> Screen:
    """Returns the screen of redactions of one scope."""
    texts = [text for each in redactions for text in each.texts]
    quoted = {given[:LONG] for each in redactions for given in each.quotations}
    long = [given for given in quoted if len(given) == LONG]
    words = {word for each in redactions for word in (*each.erased, *each.hashes)}
    words |= {*_DERIVING}
    return Screen(
        _either([*map(_beginning, texts), *map(_within, long)]),
        _either(map(_within, quoted)),
        _either(map(_within, [*texts, *quoted])),
        tuple(sorted(words)),
        '"(?:' + "|".join(map(re.escape, sorted(words))) + ')"' if len(words) <= _FEW else "",
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


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table holds texts: the columns `about` identify their owner; `json` are columns that
    hold JSON, `lists` columns that hold texts. `source` is what to select from, by `$scope`, if the
    table alone does not have all columns."""

    name: str
    key: tuple[str, ...]
    about: tuple[str, ...]
    changed: tuple[str, ...]
    json: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    source: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.about, *self.changed)

    @property
    def query(self) -> str:
        """All rows of `$scope`."""
        source = self.source or f"(FROM {self.name} WHERE scope = $scope)"
        return f"SELECT {', '.join(self.columns)} FROM {source}"


TABLES: Final = (
    Table(
        "fact_rows",
        ("item_id",),
        ("turn_memory_id",),
        ("content", "categories"),
        lists=("categories",),
    ),
    Table(
        "proposals",
        ("item_id", "round"),
        ("action", "turn_memory_id"),
        ("reason", "dropped", "candidates"),
        json=("candidates",),
        source="(SELECT p.*, f.turn_memory_id FROM proposals p"
        " LEFT JOIN fact_rows f USING (item_id) WHERE p.scope = $scope)",
    ),
    Table(
        "held_proposals",
        ("item_id",),
        ("action", "turn_memory_id"),
        ("content", "reason", "categories"),
        lists=("categories",),
    ),
    Table(
        "shadow_proposals",
        ("item_id", "round", "decider"),
        ("action", "turn_memory_id"),
        ("reason", "error"),
    ),
    Table("extractions", ("message_id",), ("turn_memory_id",), ("warnings",), lists=("warnings",)),
    Table(
        "outcomes",
        ("item_kind", "item_id"),
        ("event", "turn_memory_id", "memory_id"),
        ("reason",),
        # A decision about an erased turn's fact belongs to the turn, regardless of the memory it
        # was about, as in the record of the decision.
        source="(SELECT o.* REPLACE (CASE WHEN t.content_hash = '' THEN NULL ELSE o.memory_id END"
        " AS memory_id), f.turn_memory_id FROM outcomes o"
        " LEFT JOIN fact_rows f ON f.item_id = o.item_id AND o.item_kind = 'fact'"
        " LEFT JOIN memory_rows t ON t.memory_id = f.turn_memory_id WHERE o.scope = $scope)",
    ),
    Table(
        "history_rows",
        ("event_id",),
        ("memory_id", "event", "changed_by"),
        ("old_content", "new_content", "reason", "metadata"),
        json=("metadata",),
    ),
    Table(
        "dead_letter_rows",
        ("letter_id",),
        (),
        ("value_base64", "reason", "raw_output"),
        source=f"(FROM dead_letter_rows WHERE scope IN ($scope, '{UNREADABLE_SCOPE}'))",
    ),
    Table("command_results", ("command_id",), (), ("error", "result"), json=("result",)),
    Table("promotion_part_rows", ("scope", "plan_id", "part"), (), ("payload",), json=("payload",)),
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
        _update(connection, table, changed)
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
        "words": [*screen.words],
        "few_words": screen.few_words,
        "fields": CHANGING_FIELDS,
        "odd": ODD,
        "name": FACT_MEMORY_NAME,
    }
    query = f"SELECT * FROM ({table.query}) WHERE {_changing(table, bool(screen.few_words))}"
    used = {name: value for name, value in given.items() if re.search(rf"\${name}\b", query)}
    found = connection.execute(query, used).fetchall()
    return [dict(zip(table.columns, row, strict=True)) for row in found]


@cache
def _changing(table: Table, few_words: bool) -> str:
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
            if few_words:
                word = f"regexp_matches({name}, $few_words)"
            matches = f"regexp_matches({name}, $json) OR {odd} OR {word}"
            conditions.append(f"contains({name}, '\\')")
            conditions.append(f"regexp_matches({name}, $fields) AND ({matches})")
        else:
            pattern = "$own" if name in OWN else "$quoting"
            conditions.append(
                f"regexp_matches({text}, {pattern}) OR {odd} OR contains({text}, chr(0))"
            )
    return " OR ".join(f"({each})" for each in conditions)


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


def _update(
    connection: duckdb.DuckDBPyConnection, table: Table, rows: Collection[dict[str, Any]]
) -> None:
    if not rows:
        return
    columns = (*table.key, *table.changed)
    empty = connection.sql(f"SELECT {', '.join(columns)} FROM {table.name} LIMIT 0")
    schema = empty.to_arrow_table().schema
    arrays = {
        name: pa.array([row[name] for row in rows], schema.field(name).type) for name in columns
    }
    connection.register("redacted", pa.table(arrays))
    sets = ", ".join(f"{name} = redacted.{name}" for name in table.changed)
    where = " AND ".join(f"{table.name}.{name} = redacted.{name}" for name in table.key)
    connection.execute(f"UPDATE {table.name} SET {sets} FROM redacted WHERE {where}")
    connection.unregister("redacted")
