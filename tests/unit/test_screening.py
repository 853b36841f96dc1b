"""What an erasure does not look at: nothing of it would have been changed."""

from __future__ import annotations

import base64
import json
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.erasure.quotations import LONG, marks_of
from palimpsest.schemas.erasure.redaction import CHANGING, Redaction
from palimpsest.schemas.identity import command_memory_id, fact_memory_id, turn_memory_id
from palimpsest.schemas.normal_forms import folded
from palimpsest.stores.writing.redacted_tables import (
    MOST,
    ODD,
    TABLES,
    RecordScreen,
    Table,
    affected,
    redacted_row,
    screen_of,
)
from tests.examples import examples

GONE, KEPT = turn_memory_id("s", "t1"), turn_memory_id("s", "t2")
GONE_FACT, GONE_COMMAND = fact_memory_id("i1"), command_memory_id("s", "c1")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Tables that take any row."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for table in TABLES:
            scope = () if "scope" in table.key else ("scope",)
            columns = [
                f"{name} VARCHAR{'[]' if name in table.lists else ''}"
                for name in (*scope, *table.key, *table.about, *table.changed)
            ]
            connection.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
        connection.execute("CREATE TABLE memory_rows (memory_id VARCHAR, content_hash VARCHAR)")
        yield connection


def of_texts(*texts: str, kept: Sequence[str] = ()) -> Redaction:
    return Redaction(
        "s",
        frozenset({GONE, GONE_FACT, GONE_COMMAND}),
        marks_of({GONE: texts}),
        texts,
        frozenset({KEPT}),
        frozenset(map(folded, kept)),
    )


def insert(connection: duckdb.DuckDBPyConnection, table: Table, row: Mapping[str, Any]) -> None:
    connection.execute(f"DELETE FROM {table.name}")
    connection.execute("DELETE FROM fact_rows")
    row = {"scope": "s"} | row
    if table.name in ("proposals", "outcomes"):
        # Whose a fact is stands with the fact.
        about = {"scope": "s", "item_id": row["item_id"], "turn_memory_id": row["turn_memory_id"]}
        insert(connection, TABLES[0], about)
        row = {name: value for name, value in row.items() if name != "turn_memory_id"}
    names = ", ".join(row)
    connection.execute(
        f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
    )


def check(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    row: Mapping[str, Any],
    redactions: Sequence[Redaction],
) -> bool:
    """Whether the row is changed; it is found then."""
    insert(connection, table, row)
    [all_of_it] = connection.execute(table.query, {"scope": "s"}).fetchall()
    whole = dict(zip(table.columns, all_of_it, strict=True))
    changed = redacted_row(table, whole, redactions) is not None
    found = affected(connection, table, redactions, 0)
    assert found in ([], [whole])
    assert found or not changed, (table.name, whole)
    return changed


WORDS = st.sampled_from(
    [
        *(
            "Ana",
            "keeps",
            "the",
            "spare",
            "KEY",
            "4711",
            "yes",
            "it's",
            "a.b",
            "c++",
            "100%",
            "\\n",
        ),
        *("Königsstraße", "cafe\u0301", "café", "Å", "Å", "İstanbul", "istanbul", "ΟΔΟΣ", "οδος"),
        *(
            "Йод",
            "йод",
            "и\u0306од",
            "мой",
            "дом",
            "한국어",
            "\u1112\u1161\u11ab",
            "東京",
            "豈",
            "豈",
        ),
        *("हिन्दी", "क़लम", "क\u093cलम", "ไทย", "שָׁלוֹם", "سلام", "Kelvin", "kelvin", "ſ", "ǅ", "Ⅷ"),
        *("😀", "q\u0307", "a\u0323\u0308", "\u037e", ";", "!", "...", "[erased", '"', "'", "\x1f"),
    ]
)
SPACES = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u2003", "\x1c", ". ", ", "])
TEXTS = st.lists(st.tuples(WORDS, SPACES), min_size=1, max_size=6).map(
    lambda parts: "".join(map("".join, parts)).strip()
) | st.text(max_size=12).filter(lambda text: "\ud800" not in text and text.isprintable())


def shown(text: str) -> st.SearchStrategy[str]:
    """A text as it may stand somewhere."""
    ways = (
        lambda each: each,
        str.upper,
        str.lower,
        str.title,
        lambda each: unicodedata.normalize("NFD", each),
        lambda each: unicodedata.normalize("NFC", each),
        lambda each: f"  {each} .!?",
        lambda each: each.replace(" ", " \u3000\n"),
        lambda each: f"{each[:2]}\0{each[2:]}",
        lambda each: f"he said '{each}', as always",
        lambda each: f"a model: {json.dumps(each)}",
        lambda each: f"a model: {json.dumps(each, ensure_ascii=False).upper()}",
        lambda each: f"shown as {each!r}, {json.dumps(each)!r}",
        lambda each: f"{each} {each}" + " and so on" * 12,
        lambda each: (each * 80)[:LONG] + " [truncated]",
    )
    return st.sampled_from(ways).map(lambda way: way(text))


IDS = st.sampled_from(
    [GONE, KEPT, GONE_FACT, turn_memory_id("s", "t3"), "t1", "t2", "i1", "i\x1f1"]
)
NAMES = st.sampled_from(sorted(CHANGING))
IDS_AT = st.sampled_from(
    ["turn_memory_id", "source_memory", "memory_id", "turn_id", "item_id", "id", "target_id"]
)


def node(
    draw: st.DrawFn, texts: Sequence[str], said: st.SearchStrategy[str], depth: int = 2
) -> Any:
    """A part of a message, with ids and with texts as they may stand somewhere."""
    # What stands beside decides whose it is: all in one object, or in one within.
    made: dict[str, Any] = {draw(NAMES): draw(said) for _ in range(draw(st.integers(0, 2)))}
    made |= {draw(IDS_AT): draw(IDS) for _ in range(draw(st.integers(0, 2)))}
    if draw(st.booleans()):
        made |= {draw(NAMES | st.sampled_from(["list", "memory_ids"])): [draw(said), draw(IDS)]}
    made |= draw(
        st.sampled_from(
            [
                {},
                {"command": "add-document", "text": texts[0]},
                {"command": "update-short-term-memory", "summary": "x"},
                {"event": "created", "item_kind": "fact"},
                {"triples": [{"source": "A", "target": "B", "relationship": "r"}]},
            ]
        )
    )
    if depth and draw(st.booleans()):
        made[draw(st.sampled_from(["within", "candidates", "turn"]))] = node(
            draw, texts, said, depth - 1
        )
    made.pop("value_base64", None)
    return made if draw(st.booleans()) else [made]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Table, dict[str, Any], list[Redaction]]:
    table = draw(st.sampled_from(TABLES))
    texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    texts += [text * 40 for text in texts if draw(st.booleans())]
    said = st.sampled_from(texts).flatmap(shown) | TEXTS | st.sampled_from(["", "[erased]"])

    row: dict[str, Any] = {}
    for name in table.columns:
        if name in table.json:
            row[name] = json.dumps(node(draw, texts, said), ensure_ascii=draw(st.booleans()))
        elif name in table.lists:
            row[name] = draw(st.lists(said, max_size=2))
        elif name in table.changed:
            row[name] = draw(said | st.none()) if name != "value_base64" else "e30="
        elif name in ("turn_memory_id", "memory_id"):
            row[name] = draw(IDS | st.none())
        else:
            row[name] = draw(
                {
                    "item_id": st.sampled_from(["i1", "i2", "i\x1f1"]),
                    "item_kind": st.sampled_from(["fact", "turn"]),
                    "event": st.sampled_from(["created", "none", "blocked"]),
                }.get(name, st.just("s"))
            )
    kept = draw(st.lists(st.sampled_from(texts), max_size=1))
    half = len(texts) // 2
    return table, row, [of_texts(*texts[half:], kept=kept), of_texts(*texts[:half])]


@settings(
    max_examples=examples(18),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases())
def test_every_row_that_changes_is_found(
    connection: duckdb.DuckDBPyConnection, case: tuple[Table, dict[str, Any], list[Redaction]]
) -> None:
    check(connection, *case)


@st.composite
def messages(draw: st.DrawFn) -> tuple[list[bytes], list[Redaction]]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    said = st.sampled_from(texts).flatmap(shown) | TEXTS
    values = []
    for _ in range(draw(st.integers(1, 4))):
        message = {"id": draw(IDS | st.just("c1")), "scope": draw(st.sampled_from(["s", "t"]))}
        command = {"command": "remember", "content": draw(said), "tags": ["a label"]}
        body = draw(st.sampled_from([{"command": command}, {}])) or node(draw, texts, said)
        if draw(st.booleans()):
            held = base64.b64encode(json.dumps(node(draw, texts, said)).encode()).decode()
            body = {"value_base64": held, "reason": draw(said)}
        indent = draw(st.sampled_from([None, 1]))
        form = json.dumps(message | {"body": body}, ensure_ascii=draw(st.booleans()), indent=indent)
        values.append((draw(said) if draw(st.integers(0, 9)) == 0 else form).encode())
    kept = draw(st.lists(st.sampled_from(texts), max_size=1))
    half = len(texts) // 2
    return values, [of_texts(*texts[half:], kept=kept), of_texts(*texts[:half])]


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=messages())
def test_every_record_that_changes_is_found(
    connection: duckdb.DuckDBPyConnection, case: tuple[list[bytes], list[Redaction]]
) -> None:
    values, redactions = case
    found = RecordScreen(redactions).affected(connection, values)
    for number, value in enumerate(values):
        redacted = value
        for redaction in redactions:
            redacted = redaction.value(redacted)
        assert redacted == value or number in found, value


def row_of(table: Table, **given: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {name: [] if name in table.lists else "" for name in table.columns}
    return empty | dict.fromkeys(table.json, "{}") | given


BY_NAME = {table.name: table for table in TABLES}
TEXT = "Ana keeps the spare key under the third flowerpot"
HAN = "\u8c48 was written on the door"
FOREIGN = "Ана держит ключ под мостом в Твери"


@pytest.mark.parametrize(
    ("name", "given", "changed"),
    [
        ("fact_rows", {"content": f"  {TEXT.upper()} .!"}, True),
        ("fact_rows", {"content": FOREIGN.upper()}, True),
        ("fact_rows", {"content": f"She said: {TEXT}"}, False),
        ("fact_rows", {"content": "anything", "turn_memory_id": GONE}, True),
        ("fact_rows", {"content": "anything", "item_id": "i1"}, True),
        ("fact_rows", {"content": f"[erased {GONE}]", "turn_memory_id": GONE}, False),
        ("fact_rows", {"content": "anything", "turn_memory_id": KEPT}, False),
        ("proposals", {"candidates": json.dumps([{"memory_id": GONE, "score": 1.5}])}, False),
        ("proposals", {"candidates": json.dumps([{"content": FOREIGN}])}, True),
        ("extractions", {"warnings": ["x"], "turn_memory_id": GONE}, True),
        ("fact_rows", {"categories": ["[erased]"], "turn_memory_id": GONE}, True),
        ("extractions", {"warnings": ["[erased]"], "turn_memory_id": GONE}, False),
        ("extractions", {"warnings": ["a", f"it says '{TEXT}'"]}, True),
        ("history_rows", {"metadata": json.dumps({"source_memory": GONE, "fact": "x"})}, True),
        ("history_rows", {"metadata": json.dumps({"a": [{"turn_id": "t1", "fact": "x"}]})}, True),
        ("history_rows", {"metadata": json.dumps({"source_memory": KEPT, "fact": "x"})}, False),
        ("history_rows", {"reason": f"quotes {json.dumps(FOREIGN)}"}, True),
    ],
)
def test_rows(
    name: str, given: dict[str, Any], changed: bool, connection: duckdb.DuckDBPyConnection
) -> None:
    """What is not changed is not fetched either, of these."""
    table = BY_NAME[name]
    row = row_of(table, **given)
    assert check(connection, table, row, [of_texts(TEXT, FOREIGN)]) == changed
    assert bool(affected(connection, table, [of_texts(TEXT, FOREIGN)], 0)) == changed


@pytest.mark.parametrize(
    ("message", "is_parsed"),
    [
        ({"turn_id": "t9", "content": "anything"}, False),
        ({"turn_id": "t9", "content": 'of "two"\nlines'}, False),
        ({"turn_id": "t1", "content": "anything"}, True),
        ({"turn_id": 't9", "turn_id": "t1', "content": "anything"}, True),
        ({"content": '"turn_id": ', "turn_id": "t1"}, True),
        ({"item_id": "i1", "fact": "anything"}, True),
        ({"item_id": "i2", "fact": f"she said: {TEXT.upper()}"}, True),
        ({"item_id": "i2", "fact": f"a model: {json.dumps(FOREIGN)}"}, True),
        ({"item_id": "i2", "fact": "Ana keeps the key"}, False),
        ({"command": {"command": "remember", "content": "anything"}}, False),
        ({"memory_ids": [KEPT, GONE]}, True),
        ({"text": "a tab:\t"}, True),
        ({"text": f"she said: \uf900{HAN[1:]}"}, True),
    ],
)
def test_records(
    message: dict[str, Any], is_parsed: bool, connection: duckdb.DuckDBPyConnection
) -> None:
    values = [
        json.dumps({"id": "m", "scope": "s", "body": body}, ensure_ascii=False).encode()
        for body in ({}, message)
    ]
    found = RecordScreen([of_texts(TEXT, FOREIGN, HAN)]).affected(connection, [None, *values])
    assert found == ([2] if is_parsed else [])


@pytest.mark.parametrize("field", ["id", "causation_id", "correlation_id"])
@pytest.mark.parametrize("command_id", ["c1", "c2"])
def test_what_was_remembered_is_found_by_its_command(
    field: str, command_id: str, connection: duckdb.DuckDBPyConnection
) -> None:
    command = {"command": "remember", "content": "anything"}
    message = {"scope": "s", field: command_id, "body": {"write": {"command": command}}}
    found = RecordScreen([of_texts(TEXT)]).affected(connection, [json.dumps(message).encode()])
    assert found == ([0] if command_id == "c1" else [])


def test_what_is_no_text_is_parsed(connection: duckdb.DuckDBPyConnection) -> None:
    values = [b"\xff", b"nothing", TEXT.encode(), b"nul \0"]
    assert RecordScreen([of_texts(TEXT)]).affected(connection, values) == [0, 2, 3]


def test_records_of_several_scopes_are_found_with_many_erased_memories(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    others = frozenset(derived_id("other", number) for number in range(1_000))
    of_other = Redaction("t", others | {turn_memory_id("t", "t5")}, {})
    values = [
        json.dumps({"scope": scope, "body": {"turn_id": turn_id, "content": "x"}}).encode()
        for scope, turn_id in (("s", "t1"), ("s", "t2"), ("t", "t5"))
    ]
    screen = RecordScreen([of_texts(TEXT), of_other])
    assert screen.affected(connection, values) == [0, 2]


def test_a_scope_with_a_separator_in_its_name_is_read_whole(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    redaction = Redaction("a\x1fb", frozenset({GONE}), {})
    assert RecordScreen([redaction]).affected(connection, [b"{}", b"{}"]) == [0, 1]


@pytest.mark.parametrize("many", [1, MOST + 1])
def test_of_many_texts_each_is_found(many: int, connection: duckdb.DuckDBPyConnection) -> None:
    redaction = of_texts(TEXT, *(f"Ana had {number} apples" for number in range(many)))
    for table, name in (("fact_rows", "content"), ("command_results", "error")):
        assert check(
            connection, BY_NAME[table], row_of(BY_NAME[table], **{name: TEXT}), [redaction]
        )


def test_many_erased_memories_are_found(connection: duckdb.DuckDBPyConnection) -> None:
    others = frozenset(derived_id("other", number) for number in range(100))
    redaction = Redaction("s", others | {GONE}, {})
    metadata = json.dumps({"memory_ids": [GONE], "fact": "x"})
    table = BY_NAME["history_rows"]
    assert check(connection, table, row_of(table, metadata=metadata), [redaction])


def test_a_character_is_found_in_all_that_become_it(connection: duckdb.DuckDBPyConnection) -> None:
    """All there are: what a normal form makes of one either is found by what is looked for, or is
    let through."""
    missed = []
    characters = [chr(code) for code in range(1, sys.maxunicode) if not 0xD800 <= code <= 0xDFFF]
    odd = {
        char
        for (char,) in connection.execute(
            "SELECT c FROM (SELECT unnest($all) AS c) WHERE regexp_matches(c, $odd)",
            {"all": characters, "odd": ODD},
        ).fetchall()
    }
    for char in characters:
        if char in odd or char.isspace():
            continue
        if unicodedata.normalize("NFC", char) != char or len(char.lower()) > 1:
            missed.append(char)
    assert missed == []
    cased = [char for char in characters if char.lower() != char and char not in odd]
    pairs = [(char, screen_of([of_texts(char * 3)]).own) for char in cased] + [
        ("Σ", screen_of([of_texts(text)]).own) for text in ("ς", "σ")
    ]
    assert len(pairs) > 1000
    left_out = connection.execute(
        "SELECT c FROM (SELECT unnest($c) AS c, unnest($p) AS p)"
        " WHERE NOT regexp_matches(repeat(c, 3), p) AND NOT regexp_matches(repeat(nfc_normalize(c),"
        " 3), p)",
        {"c": [char for char, _ in pairs], "p": [pattern for _, pattern in pairs]},
    ).fetchall()
    assert left_out == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_walk_knows_json_columns_by_their_fields_alone(table: Table) -> None:
    assert not CHANGING & {*table.json}
    assert {*table.lists, *table.json} <= {*table.changed}


@pytest.mark.parametrize(
    ("name", "column", "held"),
    [
        ("fact_rows", "content", "{}"),
        ("history_rows", "metadata", '{{"fact": "{}"}}'),
        ("command_results", "result", '{{"content": "{}"}}'),
    ],
)
def test_a_row_with_a_character_that_stands_for_another_is_found(
    name: str, column: str, held: str, connection: duckdb.DuckDBPyConnection
) -> None:
    row = row_of(BY_NAME[name], **{column: held.format(f"\uf900{HAN[1:]}")})
    assert check(connection, BY_NAME[name], row, [of_texts(HAN)])
