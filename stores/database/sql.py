"""Read-only SQL for analysts, over everything a shard holds, also while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import duckdb
import pyarrow as pa

from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.database.balance import install_balance
from palimpsest.stores.database.cursors import Readable, connected, interrupted_after
from palimpsest.stores.database.damage import as_duckdb_error, is_damage
from palimpsest.stores.database.view_columns import COLUMNS, PARTITION, quoted
from palimpsest.stores.database.views import VIEWS, columns_in
from palimpsest.streams.store_port import FindItems

# Whether a text is one query that only reads the views, decided from its parsed form. Refuses
# whatever is not known to be harmless: tables other than the views, table functions that could
# read a file or change the program, functions with effects.

Node: TypeAlias = "dict[str, Node] | list[Node] | str | int | float | None"

MAX_CHARACTERS = 100_000
STATEMENTS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
MATCH = "match_bm25"
TABLE_FUNCTIONS = frozenset(
    {MATCH, "duckdb_columns", "duckdb_views", "generate_series", "json_each", "json_tree"}
    | {"range", "repeat", "unnest"}
)
REFUSED_FUNCTIONS = frozenset(
    {"current_setting", "getenv", "nextval", "currval", "setval", "setseed", "write_log"}
    | {"sleep_ms", "pg_sleep", "current_query", "current_connection_id"}
)
"""Functions of values that have an effect, or reveal something of the machine."""
QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_NAMED = frozenset({PARTITION, *COLUMNS}).union(
    *({*view.columns, *columns_in(view.query)} for view in VIEWS.values())
)
_BY_PLACE = frozenset({"STAR", "POSITIONAL_REFERENCE"})


class QueryRefused(ValueError):
    """A query that is not run because it reads or does what is not allowed; the text says why."""


class QueryInvalid(QueryRefused):
    """SQL that cannot be run, with the database's own message."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a query reads: `views`, of these the `columns` (None for all), and `matches`, scope and
    words of every `match_bm25`, or None where some are not written out."""

    views: tuple[str, ...]
    columns: tuple[str, ...] | None
    matches: tuple[tuple[str, str], ...] | None


def checked(connection: duckdb.DuckDBPyConnection, query: str) -> Reading:
    """Returns what the query reads, if it is one statement that only reads. Raises QueryRefused."""
    if len(query) > MAX_CHARACTERS:
        raise QueryRefused(f"the query has more than {MAX_CHARACTERS} characters")
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise QueryInvalid(str(error)) from error
    if len(statements) != 1:
        raise QueryRefused(f"one statement at a time; this has {len(statements)}")
    kind = statements[0].type
    if kind not in STATEMENTS:
        raise QueryRefused(
            f"only SELECT, EXPLAIN, DESCRIBE and SHOW are allowed here, not {kind.name}; memory is"
            " changed by commands"
        )
    text = _explained(query) if kind == duckdb.StatementType.EXPLAIN else query
    try:
        [(parsed,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    except duckdb.Error as error:
        raise QueryInvalid(str(error)) from error
    try:
        tree: dict[str, Node] = json.loads(parsed)
        if tree["error"]:
            raise QueryRefused(f"this cannot be checked, so it is not run: {tree['error_message']}")
        found = _Found()
        found.walk(tree["statements"], frozenset())
    except RecursionError:
        raise QueryRefused("the query is nested too deeply") from None
    return found.reading()


def _explained(query: str) -> str:
    """What comes after EXPLAIN and its options."""
    text = query.encode()
    tokens = [start for start, kind in duckdb.tokenize(query) if kind != duckdb.token_type.comment]
    words = [
        text[start:end].split(b"/*")[0].split(b"--")[0].strip().lower()
        for start, end in zip(tokens, [*tokens[1:], len(text)], strict=True)
    ]
    place = 1
    if words[place : place + 1] == [b"analyze"]:
        place += 1
    if words[place : place + 1] == [b"("] and b")" in words and b"select" not in words[:3]:
        place = words.index(b")") + 1
    return text[tokens[place] :].decode() if place < len(tokens) else ""


@dataclass(slots=True)
class _Found:
    """What was found in a parsed query."""

    views: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    """Names and aliases of what is read from."""
    columns: set[str] = field(default_factory=set)
    """Columns that are named without a table: such a name may also be that of a whole row."""
    matches: list[tuple[str, str] | None] = field(default_factory=list)
    by_place: bool = False

    def reading(self) -> Reading:
        whole = self.by_place or bool(self.tables & self.columns)
        matches = [match for match in self.matches if match is not None]
        return Reading(
            tuple(sorted(self.views)),
            None if whole else tuple(sorted(_NAMED & self.words | {PARTITION})),
            tuple(dict.fromkeys(matches)) if len(matches) == len(self.matches) else None,
        )

    def walk(self, node: Node, known: frozenset[str]) -> None:
        """`known` are the names defined by enclosing WITH clauses."""
        if isinstance(node, list):
            for child in node:
                self.walk(child, known)
        elif isinstance(node, str):
            self.words.add(node.lower())
        elif isinstance(node, dict):
            self._note(node, known)
            held = node.get("cte_map")  # every WITH of the node, in order
            entries = held.get("map") if isinstance(held, dict) else None
            for entry in entries if isinstance(entries, list) else []:
                assert isinstance(entry, dict)
                name, value = str(entry["key"]).lower(), entry["value"]
                body = value["query_node"] if isinstance(value, dict) else None
                if isinstance(body, dict) and body.get("type") == "RECURSIVE_CTE_NODE":
                    # Only the second half of a recursive one knows its own name.
                    self.walk({**body, "right": None}, known)
                    self.walk(body.get("right"), known | {name})
                else:
                    self.walk(body, known)
                known |= {name}
            for key, child in node.items():
                if key != "cte_map":
                    self.walk(child, known)

    def _note(self, node: dict[str, Node], known: frozenset[str]) -> None:
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in QUERY_NODES:
            raise QueryRefused(
                f"only what reads is allowed here, not {kind.partition('_')[0]}; memory is changed"
                " by commands"
            )
        if node.get("class") in _BY_PLACE or node.get("ref_type") == "NATURAL":
            self.by_place = True
        if kind == "BASE_TABLE":
            self._table(_path(node), known)
            self.tables.add(str(node["alias"]).lower())
        elif kind in ("SHOW_REF", "PIVOT"):
            self._shown(node, known)
        elif kind == "TABLE_FUNCTION":
            self._table_function(node)
        elif node.get("class") == "FUNCTION":
            name = str(node["function_name"]).lower()
            if name in REFUSED_FUNCTIONS:
                raise QueryRefused(
                    f"the function {name} is not allowed here: it is not about memory"
                )
        elif node.get("class") == "COLUMN_REF":
            names = node["column_names"]
            if isinstance(names, list) and len(names) == 1:
                self.columns.add(str(names[0]).lower())
        if node.get("column_name_alias"):
            self.by_place = True

    def _table(self, path: tuple[str, ...], known: frozenset[str]) -> None:
        name = path[-1]
        self.tables.add(name)
        if len(path) == 1 and name in known:
            return
        if path[:-1] not in ((), ("main",)) or name not in VIEWS:
            raise QueryRefused(f"there is no view {'.'.join(path)}; .tables lists those there are")
        self.views.add(name)

    def _shown(self, node: dict[str, Node], known: frozenset[str]) -> None:
        self.by_place = True
        path = _path(node)
        special = node.get("show_type") == "SHOW_SPECIAL"
        if special and path != ('"tables"',):
            raise QueryRefused("of what is not in views, only SHOW TABLES is allowed here")
        if path and path != ("",) and not special:
            self._table(path, known)

    def _table_function(self, node: dict[str, Node]) -> None:
        function = node["function"]
        assert isinstance(function, dict)
        path = _path(function)
        if path[-1] not in TABLE_FUNCTIONS or path[:-1] not in ((), ("main",)):
            raise QueryRefused(
                f"the table function {path[-1]} is not allowed here: a query reads the views, no"
                " files, settings or networks"
            )
        if path[-1] == MATCH:
            # Scope and words, where both are texts.
            arguments = function["arguments"]
            given = arguments if isinstance(arguments, list) else []
            texts = [text for each in given if (text := _text(each)) is not None]
            self.matches.append((texts[0], texts[1]) if len(given) == len(texts) == 2 else None)


def _path(node: dict[str, Node]) -> tuple[str, ...]:
    """Catalog, schema and name, as far as they are given."""
    named = node.get("qualified_name")
    path = named.get("path") if isinstance(named, dict) else None
    return tuple(str(part).lower() for part in path) if isinstance(path, list) else ()


def _text(argument: Node) -> str | None:
    given = argument.get("expression") if isinstance(argument, dict) else None
    literal = given.get("literal") if isinstance(given, dict) else None
    if not isinstance(literal, dict) or literal.get("kind") != "STRING":
        return None
    return str(literal["text"])


AS_OF_NOW = {
    "pipeline_items": "temp.items_now",
    "pipeline_balance": "temp.balance_now",
    "pipeline_total": "temp.total_now",
}
"""Views that are made for the query: they look into the log."""
BATCH_ROWS = 10_000


class QueryTooSlow(QueryRefused):
    """A query that was stopped after its time."""


class QueryTooLarge(QueryRefused):
    """A query with a larger result, or with more memory, than it may have."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """`seconds` a query may take; `rows` and `megabytes` it may return."""

    seconds: float = 30.0
    rows: int = 1_000_000
    megabytes: int = 512


def read_only_query(
    shard: Readable,
    find_items: FindItems,
    query: str,
    limits: QueryLimits = QueryLimits(),
    partition: int = 0,
) -> pa.Table:
    """The result of one SELECT (or EXPLAIN, DESCRIBE, SHOW) as an Arrow table. The views have a
    column `partition`.

    Nothing can be written: the parsed statement is checked (`sql_check`), the transaction is
    read-only, and the connection has no access to files or the network. Raises QueryRefused for
    anything else, QueryInvalid for SQL that cannot be run, QueryTooSlow and QueryTooLarge past the
    limits; StoreClosed.
    """
    with shard.reading() as reader:
        reading = checked(reader, query)
        if AS_OF_NOW.keys() & set(reading.views):
            install_balance(reader, find_items)
        reader.execute("SET search_path = 'main'")
        [(database,)] = reader.execute("SELECT current_database()").fetchall()
        for view in reading.views:  # with the column `partition`, and before those of the store
            source = AS_OF_NOW.get(view, f'"{database}".main.{view}')
            reader.execute(
                f"CREATE TEMP VIEW {view} AS SELECT {int(partition)}::BIGINT AS {PARTITION},"
                f" COLUMNS(lambda c: c <> '{PARTITION}') FROM {source}"
            )
        return run_query(reader, query, limits)


def run_query(connection: duckdb.DuckDBPyConnection, query: str, limits: QueryLimits) -> pa.Table:
    """The result of a query that was checked, in a read-only transaction and within the limits."""
    with interrupted_after(limits.seconds, connection) as is_late:
        try:
            with _errors_told():
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return _within(connection.sql(query).to_arrow_reader(BATCH_ROWS), limits)
        except duckdb.InterruptException as error:
            if is_late.is_set():
                raise QueryTooSlow(f"the query took longer than {limits.seconds:g} s") from error
            raise  # the store is being closed


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow's: as rows are fetched
        known = as_duckdb_error(error)
        if isinstance(known, duckdb.InterruptException):
            raise known from error
        if is_damage(known):
            raise known from error
        if isinstance(known, duckdb.OutOfMemoryException):
            # Further lines are advice about settings, which no query may change here.
            why = str(error).partition("\n")[0]
            raise QueryTooLarge(f"the query needs more memory than it may have: {why}") from error
        raise QueryInvalid(str(error)) from error


def _within(batches: pa.RecordBatchReader, limits: QueryLimits) -> pa.Table:
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > limits.rows:
            raise QueryTooLarge(f"the result has more than {limits.rows} rows; add a LIMIT")
        if size > limits.megabytes * 1024 * 1024:
            raise QueryTooLarge(
                f"the result is larger than {limits.megabytes} MiB; add a LIMIT, or name the"
                " columns that you need"
            )
        kept.append(batch)
    return pa.Table.from_batches(kept, batches.schema)


MATCH_BM25 = """
CREATE OR REPLACE MACRO main.match_bm25(in_scope, query) AS TABLE
WITH asked AS (SELECT DISTINCT unnest(bm25_terms(query)) AS term),
hits AS (
    SELECT p.term, p.memory_id, p.tf, d.length,
        count(*) OVER (PARTITION BY p.term) AS df
    FROM internal.fts_postings p JOIN asked USING (term)
    JOIN internal.fts_docs d USING (memory_id)
    WHERE p.scope = in_scope
), stats AS (
    SELECT count(*) AS documents, avg(length) AS average FROM internal.fts_docs
    WHERE scope = in_scope
)
SELECT h.memory_id,
    sum(ln(1 + (s.documents - h.df + 0.5) / (h.df + 0.5)) * h.tf * 2.2
        / (h.tf + 1.2 * (0.25 + 0.75 * h.length / s.average))) AS score,
    any_value(m.content) AS content
FROM hits h CROSS JOIN stats s JOIN internal.memory_rows m USING (memory_id)
GROUP BY h.memory_id ORDER BY score DESC, h.memory_id
"""


def install_terms(connection: duckdb.DuckDBPyConnection, language: str) -> None:
    """What `match_bm25(scope, query)` needs: memories by BM25 (k1 1.2, b 0.75, statistics of the
    scope). The terms come from the same analyzer as the index, as a function of the open database.
    """

    def bm25_terms(query: str) -> list[str]:
        return query_tokens(query, language)

    connection.create_function(
        "bm25_terms", bm25_terms, ["VARCHAR"], "VARCHAR[]", side_effects=False
    )


# One query over the stores of several partitions. Each partition gives the columns that the query
# reads of its views, in one answer and so as of one moment; the query then runs over all of them
# together. Partitions are read one after another.

MEMORY_LIMIT_MIB = 1024
_MATCHES = "matches"
_FOUND = f"""
CREATE MACRO {MATCH}(in_scope, query) AS TABLE
SELECT memory_id, score, content FROM {_MATCHES} found
WHERE found.asked_scope = in_scope AND found.asked_words = query ORDER BY score DESC, memory_id"""


class UnitedQuery:
    """`part` is what to ask every partition; None when the query reads nothing of theirs, and any
    one can answer it. Raises QueryRefused. To be closed."""

    def __init__(self, query: str, memory_mib: int = MEMORY_LIMIT_MIB) -> None:
        self._query = query
        self._connection = connected(
            ":memory:",
            memory_mib,
            enable_external_access="false",
            python_enable_replacements="false",
        )
        self._reading = checked(self._connection, query)
        if self._reading.matches is None:
            raise QueryRefused(
                f"over several partitions, {MATCH} needs its scope and its words written out as"
                " texts; or name a partition"
            )
        columns = self._reading.columns
        parts: list[str] = []
        for view in self._reading.views:
            source = view
            if columns is not None:
                named = ", ".join(map(quoted, columns))
                source = f"(SELECT COLUMNS(lambda c: c IN ({named})) FROM {view})"
            parts.append(f"(SELECT list(r) FROM {source} r) AS {view}")
        found = [
            f"SELECT {quoted(scope)} AS asked_scope, {quoted(words)} AS asked_words, *"
            f" FROM {MATCH}({quoted(scope)}, {quoted(words)})"
            for scope, words in self._reading.matches
        ]
        if found:
            parts.append(f"(SELECT list(r) FROM ({' UNION ALL '.join(found)}) r) AS {_MATCHES}")
        self.part = f"SELECT {', '.join(parts)}" if parts else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def answer(self, parts: Sequence[pa.Table], limits: QueryLimits) -> pa.Table:
        """The result over what the partitions answered. Raises as `read_only_query` does."""
        for name in parts[0].column_names:
            # The rows of all lists of structs, one list a partition.
            chunks = (chunk for part in parts for chunk in part.column(name).chunks)
            try:
                rows = pa.concat_tables(pa.Table.from_struct_array(c.flatten()) for c in chunks)
            except pa.ArrowException as error:
                raise QueryTooLarge(
                    f"the partitions hold too much for one answer: {error}"
                ) from error
            self._connection.register(name, rows)
        if self._reading.matches:
            self._connection.execute(_FOUND)
        self._connection.execute("SET lock_configuration = true")
        return run_query(self._connection, self._query, limits)
