"""Whether a text is one query that only reads the views, decided from its parsed form.

Refuses whatever is not known to be harmless: tables other than the views, table functions that
could read a file or change the program, functions with effects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import duckdb

from palimpsest.schemas.rows import columns_of
from palimpsest.stores.database.view_columns import COLUMNS, PARTITION
from palimpsest.stores.database.views import VIEWS

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
    *(view.columns for view in VIEWS.values()),
    *(columns_of(row_type) for view in VIEWS.values() for row_type in view.rows),
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
        found = _Found()
        found.walk(_parsed(connection, text), frozenset())
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


def _parsed(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    try:
        [(parsed,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    except duckdb.Error as error:
        raise QueryInvalid(str(error)) from error
    tree: dict[str, Node] = json.loads(parsed)
    if tree["error"]:
        raise QueryRefused(f"this cannot be checked, so it is not run: {tree['error_message']}")
    return tree["statements"]


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
            for name, body in _named_queries(node):
                self._walk_named(name, body, known)
                known |= {name}
            for key, child in node.items():
                if key != "cte_map":
                    self.walk(child, known)

    def _walk_named(self, name: str, body: Node, known: frozenset[str]) -> None:
        """Only the second half of a recursive one knows its own name."""
        if isinstance(body, dict) and body.get("type") == "RECURSIVE_CTE_NODE":
            self.walk({**body, "right": None}, known)
            self.walk(body.get("right"), known | {name})
        else:
            self.walk(body, known)

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
            _check_function(node)
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
            self.matches.append(_match(function))


def _named_queries(node: dict[str, Node]) -> Iterator[tuple[str, Node]]:
    """Name and query of every WITH of the node, in order."""
    held = node.get("cte_map")
    entries = held.get("map") if isinstance(held, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        assert isinstance(entry, dict)
        value = entry["value"]
        yield str(entry["key"]).lower(), value["query_node"] if isinstance(value, dict) else None


def _path(node: dict[str, Node]) -> tuple[str, ...]:
    """Catalog, schema and name, as far as they are given."""
    named = node.get("qualified_name")
    path = named.get("path") if isinstance(named, dict) else None
    return tuple(str(part).lower() for part in path) if isinstance(path, list) else ()


def _check_function(node: dict[str, Node]) -> None:
    name = str(node["function_name"]).lower()
    if name in REFUSED_FUNCTIONS:
        raise QueryRefused(f"the function {name} is not allowed here: it is not about memory")


def _match(function: dict[str, Node]) -> tuple[str, str] | None:
    """Scope and words, where both are texts."""
    arguments = function["arguments"]
    texts = [_text(argument) for argument in arguments] if isinstance(arguments, list) else []
    if len(texts) != 2 or texts[0] is None or texts[1] is None:
        return None
    return texts[0], texts[1]


def _text(argument: Node) -> str | None:
    given = argument.get("expression") if isinstance(argument, dict) else None
    literal = given.get("literal") if isinstance(given, dict) else None
    if not isinstance(literal, dict) or literal.get("kind") != "STRING":
        return None
    return str(literal["text"])
