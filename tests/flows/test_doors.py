"""What others reach: a service whose last token was revoked, the files of the data folder, and
records that no stage would take."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pyarrow as pa

from palimpsest import Memory
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.sql.output import as_csv
from tests.flows.http_server import problem, server
from tests.flows.program import Program


def test_to_revoke_the_last_token_lets_no_one_in(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        token = served.token("one")
        Tokens(tmp_path).revoke("one")
    with server(tmp_path) as served, served.client() as anyone, served.client(token) as revoked:
        for client in (anyone, revoked):
            problem(client.get("/api/memory"), 401, "unauthorized")


def loose(folder: Path) -> list[str]:
    return [
        f"{path} {mode:o}"
        for path in (folder, *folder.rglob("*"))
        if not path.is_socket() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077
    ]


def test_no_other_user_reads_what_the_program_writes(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Oslo."), "--scope", "ana")
    program.ok("run", "--once")
    assert loose(program.data) == []
    log = program.data / "log" / "log.sqlite"
    for path in (program.data, log.parent):
        path.chmod(0o755)
    log.chmod(0o644)
    program.ok("run", "--once")
    assert stat.S_IMODE(program.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_no_other_user_looks_into_the_folder_of_a_library(tmp_path: Path) -> None:
    settings = {"embedding.provider": "hashing"}
    with Memory(tmp_path / "data", scope="ana", settings=settings, wait_seconds=60.0) as memory:
        memory.add("I live in Oslo.")
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]
    with server(tmp_path) as served, served.client() as client:
        turn = {"turn_id": "t1", "content": "I live in Oslo.", "metadata": {"deep": deep}}
        answer = client.post("/api/turns", json=turn)
        assert answer.status_code in (400, 422), answer.text
        assert "64 levels" in answer.text
        given = {"content": "I live in Oslo.", "metadata": {"deep": deep}}
        answer = client.post("/api/memory/remember", json=given)
        assert answer.status_code in (400, 422), answer.text
        assert "64 levels" in answer.text


ODD = "Ana \x1b[31mred\x9b0m \u202edr\u200bow\U000e0041"


def test_a_terminal_obeys_nothing_that_a_memory_says(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(f"I like {ODD} tea."), "--scope", "ana")
    program.ok("run", "--once")
    for command in (
        ("recall", "tea", "--scope", "ana"),
        ("list", "--scope", "ana"),
        ("context", "tea", "--scope", "ana"),
        ("recall", "tea", "--scope", "ana", "--json"),
        ("sql", "SELECT content FROM memories"),
        ("sql", "SELECT content FROM memories", "--format", "json"),
        ("sql", f'SELECT content, 1 AS "{ODD} [/x]" FROM memories'),
    ):
        said = program.ok(*command)
        assert not set(said) & {"\x1b", "\x9b", "\u202e", "\u200b", "\U000e0041"}, command
        assert "red" in said, command


def test_no_cell_of_a_sheet_is_a_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\n=1", "＝1", "a=1", None]
    lines = as_csv(pa.table({"v": texts, "n": [-1] * len(texts)})).decode("utf-8")
    for text in texts[:8]:
        assert f'"\'{text}",-1' in lines
    assert '"a=1",-1' in lines


def test_answers_are_kept_nowhere_and_are_what_they_are_called(tmp_path: Path) -> None:
    with server(tmp_path) as served, served.client() as client:
        for path in ("/health", "/api/memory", "/nowhere"):
            headers = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["cache-control"] == "no-store", path
        with served.connected() as connection:
            connection.sendall(b"nothing that is HTTP\r\n\r\n")
            said = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b" 400 " in said
        assert b"x-content-type-options: nosniff" in said
        assert b"cache-control: no-store" in said


def test_settings_show_no_password_of_an_address(tmp_path: Path) -> None:
    program = Program(tmp_path)
    address = "http://ana:p%40ss@example.org:8080/v1"
    said = program.ok("settings", "--set", f"llm.base_url={address}")
    assert "p%40ss" not in said
    assert "example.org:8080" in said
