"""SQL over HTTP: what is refused, and why by its code."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.flows.http_server import problem, server


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("sql")
    with server(folder, "http.sql_seconds=2") as running, running.client() as client:
        said = {"content": "Ana lives in Oslo.", "scope": "ana"}
        assert client.post("/api/memory/remember", json=said).status_code == 200
        yield client


SQL_REFUSED = [
    "DROP TABLE internal.memory_rows",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM parquet_scan('/tmp/x.parquet')",
    "SELECT * FROM read_json_auto('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "FROM 'file.csv'",
    "SELECT getenv('HOME')",
    "SELECT current_setting('data_dir')",
    "COPY memories TO '/tmp/x.csv'",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "DETACH memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET threads = 1",
    "RESET threads",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "CREATE TABLE x AS SELECT 1",
    "CREATE MACRO x() AS 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; -- \nDROP VIEW memories",
    "WITH x AS (SELECT 1) INSERT INTO internal.memory_rows SELECT * FROM x",
    "/* SELECT */ DELETE FROM internal.memory_rows",
    "-- SELECT\nUPDATE internal.memory_rows SET content = ''",
    "EXPLAIN ANALYZE DELETE FROM internal.memory_rows",
    "PREPARE x AS SELECT 1",
    "SELECT * FROM internal.memory_rows",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM query('DROP VIEW memories')",
    "SELECT nextval('x')",
]


@pytest.mark.parametrize("query", SQL_REFUSED)
def test_sql_reads_and_nothing_else(client: httpx.Client, query: str) -> None:
    answer = client.post("/api/sql", json={"query": query})
    if answer.status_code == 400:  # it cannot even be read as a query
        problem(answer, 400, "sql_invalid")
    else:
        problem(answer, 403, "sql_refused")
    count = client.post("/api/sql", json={"query": "SELECT count(*) FROM memories"})
    assert count.json()["rows"][0][0] > 0


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELEC 1", 400, "sql_invalid"),
        ("SELECT nothing FROM memories", 400, "sql_invalid"),
        ("SELECT 'x'::INTEGER", 400, "sql_invalid"),
        ("DELETE FROM memories", 403, "sql_refused"),
        (
            "SELECT sum(a.range * b.range) FROM range(1000000) a, range(100000) b",
            422,
            "sql_too_slow",
        ),
        ("SELECT * FROM range(2000000)", 422, "sql_too_large"),
    ],
)
def test_why_sql_is_not_answered(client: httpx.Client, query: str, status: int, code: str) -> None:
    said = problem(client.post("/api/sql", json={"query": query}), status, code)
    assert said["kind"] == code
