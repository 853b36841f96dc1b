"""A scope is exported and imported: all of it, once, and nothing of another scope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest.ops.http.service import UnprocessedBytes
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.portable import Line
from tests.flows.http_server import Served, problem, server
from tests.flows.program import SAID, Program, until

NDJSON = {"Content-Type": "application/x-ndjson"}
Lines = list[dict[str, Any]]
KINDS = ("memory", "state", "event", "edge", "session", "fact", "name", "relation", "mention")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A scope `ana` in which everything happened, and a scope `ben`."""
    with server(tmp_path_factory.mktemp("transfer")) as running, running.client() as client:
        fill(running, client)
        yield running


def fill(served: Served, client: httpx.Client) -> None:
    turns = [
        {"turn_id": f"t{number}", "speaker": "Ana", "content": text, "session_id": "s1"}
        for number, text in enumerate(SAID)
    ]
    for scope in ("ana", "ben"):
        told = [{**turn, "scope": scope} for turn in turns]
        assert client.post("/api/turns", json=told).json()["accepted"] == len(SAID)
    served.settle(client)
    kept = remember(client, "ana", "Nora works at Initech in Oslo.", structured=STRUCTURE)
    change = {"content": "Nora works at Globex in Oslo.", "reason": "she changed"}
    assert client.patch(f"/api/memory/{kept}", json=change).json()["status"] == "updated"
    gone = remember(client, "ana", "Ana's password is on a note.", pinned=False)
    assert client.request("DELETE", f"/api/memory/{gone}?reason=private").status_code == 200
    pinned = remember(client, "ana", '„Ключ" under the mat 🗝', pinned=True, tags=["home"])
    assert client.post(f"/api/memory/{pinned}/confirm", json={}).status_code == 200
    named = client.post("/api/entities/Nora/aliases", json={"alias": "Eleonora", "scope": "ana"})
    assert named.status_code == 200, named.text
    quiet(served, client, "ana", "ben")


def quiet(served: Served, client: httpx.Client, *scopes: str) -> None:
    """Until nothing more happens: between what a stage commits and what it sends on, no stage is
    behind."""
    for scope in scopes:
        seen: Lines = []

        def is_as_before(scope: str = scope) -> bool:
            nonlocal seen
            served.settle(client)
            before, seen = seen, exported(client, scope)[1][1:]
            facts = {line["id"] for line in seen if line.get("kind") == "fact"}
            said = {line["id"] for line in seen if line.get("kind") == "memory"}
            return before == seen and bool(facts) and bool(said)

        until(is_as_before)


STRUCTURE = {
    "entities": [{"name": "Nora", "type": "person"}, {"name": "Initech", "type": "company"}],
    "attributes": [{"entity": "Nora", "aspect": "work"}],
    "relations": [{"source": "Nora", "relationship": "works at", "target": "Initech"}],
}


def remember(client: httpx.Client, scope: str, text: str, **given: Any) -> str:
    answer = client.post("/api/memory/remember", json={"content": text, "scope": scope, **given})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def exported(client: httpx.Client, scope: str, deleted: bool = True) -> tuple[bytes, Lines]:
    answer = client.get(f"/api/scopes/{scope}/export", params={"deleted": deleted})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return answer.content, [json.loads(line) for line in answer.content.splitlines()]


def imported(client: httpx.Client, scope: str, body: bytes | str, status: int = 200) -> Any:
    answer = client.post(f"/api/scopes/{scope}/import?wait=60", content=body, headers=NDJSON)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_everything_comes_back_in_a_new_folder(served: Served, tmp_path: Path) -> None:
    with served.client() as client:
        body, lines = exported(client, "ana")
    assert {line["kind"] for line in lines[1:-1]} >= {*KINDS, "aspect", "attribute"}
    with server(tmp_path) as other, other.client() as client:
        for new in (True, False):
            told = imported(client, "ana", body)
            memories = sum(line.get("kind") == "memory" for line in lines)
            assert told == {
                "applied": True,
                "taken": len(lines) - 2,
                "memories": memories if new else 0,
                "refused": [],
                "refused_lines": 0,
                "complete": True,
                "pending": [],
            }
            other.settle(client)
            again = exported(client, "ana")[1]
            assert again[1:] == lines[1:]
        assert client.get("/api/pipeline/status").json()["balance"]["holds"]
        check_alive(other, client, "ana")


def check_alive(served: Served, client: httpx.Client, scope: str) -> None:
    """What was imported is found, explained, changed and recovered like what was told here."""
    asked = {"query": "Where does Nora work?", "scope": scope}
    best = client.post("/api/memory/recall", json=asked).json()["results"][0]
    assert best["content"] == "Nora works at Globex in Oslo."
    explained = client.get(f"/api/memory/{best['id']}/explain").json()
    assert [state["content"] for state in explained["before"]] == ["Nora works at Initech in Oslo."]
    nora = client.get("/api/entities/Eleonora", params={"scope": scope}).json()
    assert nora["name"] == "Nora"
    listed = {"scope": scope, "deleted": True}
    [gone] = client.get("/api/memories", params=listed).json()["memories"]
    assert client.post(f"/api/memory/{gone['id']}/recover", json={}).status_code == 200
    turn = {"turn_id": "t0", "speaker": "Ana", "content": SAID[0], "session_id": "s1"}
    before = client.get("/api/stats", params={"scope": scope}).json()
    assert client.post("/api/turns", json={**turn, "scope": scope}).status_code == 202
    served.settle(client)
    assert client.get("/api/pipeline/status").json()["balance"]["holds"]
    after = client.get("/api/stats", params={"scope": scope}).json()
    assert after["types"]["episodic"] == before["types"]["episodic"]  # the same turn is a repeat


IDS = (
    *("id", "memory_id", "source_id", "target_id", "turn_memory_id", "last_turn"),
    *("source_memory", "drawn_from"),
)


def moved(value: Any, scope: str, key: str = "") -> Any:
    """A line as it is in another scope."""
    if isinstance(value, dict):
        told = "decay_rate" in value and value["source_type"] != "extraction"
        return {
            name: each if told and name == "source_id" else moved(each, scope, name)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [moved(each, scope, key) for each in value]
    if isinstance(value, str) and (key in IDS or key == "extracted_turns"):
        memory_id, at, rest = value.partition("@")
        return f"{derived_id('imported', scope, memory_id)}{at}{rest}"
    return value


def in_order(lines: Lines) -> list[str]:
    return sorted(json.dumps(line, sort_keys=True) for line in lines[1:-1])


def test_into_another_scope_of_the_same_store(served: Served) -> None:
    with served.client() as client:
        body, lines = exported(client, "ana")
        before = exported(client, "ben")[1]
        for _ in range(2):
            told = imported(client, "team/copy", body)
            assert (told["taken"], told["refused"]) == (len(lines) - 2, [])
            served.settle(client)
            copied = exported(client, "team/copy")[1]
            assert in_order(copied) == in_order(moved(lines, "team/copy"))
        assert exported(client, "ana")[1][1:] == lines[1:]
        assert exported(client, "ben")[1][1:] == before[1:]
        assert client.get("/api/pipeline/status").json()["balance"]["holds"]


def test_without_what_was_forgotten(served: Served) -> None:
    with served.client() as client:
        body, lines = exported(client, "ana", deleted=False)
        assert "password" not in body.decode()
        told = imported(client, "kept", body)
        assert (told["refused"], told["complete"]) == ([], True)
        served.settle(client)
        assert in_order(exported(client, "kept")[1]) == in_order(moved(lines, "kept"))


def joined(lines: Lines) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_the_deepest_that_is_taken_comes_back(served: Served) -> None:
    """And what is deeper is told by its line, and takes no other along."""
    with served.client() as client:
        for levels in range(50, 64):
            deep: dict[str, Any] = {"home": "Oslo"}
            for _ in range(levels):
                deep = {"in": deep}
            turn = {"turn_id": f"t{levels}", "content": "I live in Oslo.", "metadata": deep}
            client.post("/api/turns", json={**turn, "scope": "deep"})
            kept = {"content": f"Ana has {levels} homes.", "metadata": deep, "scope": "deep"}
            client.post("/api/memory/remember", json=kept)
        quiet(served, client, "deep")
        body, lines = exported(client, "deep")
        told = imported(client, "deeper", body)
        assert (told["taken"], told["refused"]) == (len(lines) - 2, [])
        quiet(served, client, "deeper")
        assert in_order(exported(client, "deeper")[1]) == in_order(moved(lines, "deeper"))
        memory = next(line for line in lines if line.get("kind") == "memory")
        for _ in range(70):
            deep = {"in": deep}
        told = imported(client, "deepest", joined([lines[0], memory | {"metadata": deep}, memory]))
        assert told["taken"] == 1
        assert "nested deeper than 64 levels" in told["refused"][0]["why"]


def test_a_bad_line_is_told_and_the_rest_goes_on(served: Served) -> None:
    with served.client() as client:
        lines = exported(client, "ana")[1]
        header, memories = lines[0], [line for line in lines if line.get("kind") == "memory"]
        texts = [json.dumps(each) for each in memories]
        bad = [
            "{",
            '{"kind": "nothing"}',
            '{"kind": "memory"}',
            texts[0].replace('"importance": ', '"importance": 9'),
            texts[0].replace('"content": "', '"content": "\\ud800'),
            texts[0].replace(memories[0]["occurred_at"], "yesterday"),
            '{"kind": "memory", "content": "' + "x" * 10_000_000 + '"}',
            json.dumps({**memories[0], "content": " \n "}),
            '{"kind": "mention", "memory_id": "no", "text_key": "k", "name": "n",'
            ' "mention_text": "n"}',
            json.dumps(
                {**next(each for each in lines if each.get("kind") == "fact"), "outcome": "lost"}
            ),
            "[" * 100_000,
        ]
        body = "\n".join([json.dumps(header), texts[0], *bad, texts[1]])
        told = imported(client, "bad", body)
        assert told["taken"] == 2
        assert told["memories"] == 2
        assert not told["complete"]  # there is no last line
        numbers = [each["line"] for each in told["refused"]]
        assert numbers == [*range(3, 3 + len(bad)), 3 + len(bad) + 1]
        assert client.get("/api/pipeline/status").json()["balance"]["holds"]
        assert "longer than" in told["refused"][6]["why"]
        assert "cut off" in told["refused"][-1]["why"]


@pytest.mark.parametrize(
    "first",
    [
        "",
        "{}",
        "[1]",
        '{"kind": "memory"}',
        '{"format": "palimpsest-scope", "version": 2, "scope": "a",'
        ' "exported_at": "2026-03-01T09:30:00Z"}',
        '{"format": "other", "version": 1, "scope": "a", "exported_at": "2026-03-01T09:30:00Z"}',
    ],
)
def test_what_is_no_export_is_refused_whole(served: Served, first: str) -> None:
    with served.client() as client:
        for body in (first, f"{first}\n" * 3):
            answer = client.post("/api/scopes/new/import", content=body, headers=NDJSON)
            problem(answer, 422, "invalid")
        problem(client.get("/api/scopes/new/export"), 404, "not_found")


def test_an_id_of_another_scope_is_not_taken(served: Served) -> None:
    """Nor does a file change what is there."""
    with served.client() as client:
        of_ana, of_ben = exported(client, "ana")[1], exported(client, "ben")[1]
        [first, *_] = [line for line in of_ben if line.get("kind") == "memory"]
        claim = {**first, "content": "Ana says otherwise.", "type": "fact"}
        as_ana = of_ana[0]
        told = imported(client, "ana", joined([as_ana, claim, {"kind": "end", "lines": 1}]))
        assert (told["taken"], told["complete"]) == (0, True)
        assert "another scope" in told["refused"][0]["why"]
        edge = {"kind": "edge", "relation_type": "temporal"}
        mine = next(line["id"] for line in of_ana if line.get("kind") == "memory")
        across = [
            {**edge, "source_id": mine, "target_id": first["id"]},
            {**edge, "source_id": f"{first['id']}@1", "target_id": mine},
        ]
        told = imported(client, "ana", joined([as_ana, *across]))
        assert told["taken"] == 0
        other = {**first, "content": "Something else."}
        told = imported(client, "ben", joined([of_ben[0], other]))
        assert "says something else" in told["refused"][0]["why"]
        facts = [each for each in of_ben if each.get("source_type") == "extraction"]
        twice = {**facts[0], "id": derived_id("y")}
        told = imported(client, "ben", joined([of_ben[0], twice]))
        assert "says the same" in told["refused"][0]["why"]
        assert exported(client, "ben")[1][1:] == of_ben[1:]


def test_a_cut_file_is_told_and_mended_by_the_whole_one(served: Served) -> None:
    with served.client() as client:
        body, lines = exported(client, "ana")
        told = imported(client, "cut", body[: len(body) // 2])
        assert not told["complete"]
        assert told["taken"] < len(lines) - 2
        told = imported(client, "cut", body)
        assert (told["taken"], told["complete"], told["refused"]) == (len(lines) - 2, True, [])
        served.settle(client)
        assert in_order(exported(client, "cut")[1]) == in_order(moved(lines, "cut"))
        shorter = joined([*lines[:3], lines[-1]])
        assert "were written" in imported(client, "cut", shorter)["refused"][0]["why"]


def test_frozen_memory_takes_nothing(served: Served) -> None:
    with served.client() as client:
        body = exported(client, "ana")[0]
    # Flags are set on the command line; here by the file itself, which has them last.
    lines = body.splitlines(keepends=True)
    flags = b'{"kind": "flags", "mutations_frozen": true}\n'
    with served.client() as client:
        told = imported(client, "ice", b"".join([*lines[:-1], flags]))
        assert told["taken"] == len(lines) - 1
        answer = client.post("/api/scopes/ice/import?wait=60", content=body, headers=NDJSON)
        problem(answer, 503, "frozen")
        assert "import the file again" in answer.json()["detail"]


def test_import_is_for_administrators_who_see_all(tmp_path: Path) -> None:
    with server(tmp_path) as served, served.client() as client:
        remember(client, "ana", "Ana lives in Oslo.")
        quiet(served, client, "ana")
        body, _ = exported(client, "ana")
        of_ben = served.token("ben", "ben")
        agent = served.token("agent", "*", actor="agent")
        reader = served.token("reader", "ana", may=["recall"])
        with served.client(of_ben) as ben:
            problem(ben.get("/api/scopes/ana/export"), 404, "not_found")
            answer = ben.post("/api/scopes/ben/import", content=body, headers=NDJSON)
            problem(answer, 403, "forbidden")
        with served.client(agent) as one:
            answer = one.post("/api/scopes/x/import?wait=60", content=body, headers=NDJSON)
            problem(answer, 403, "forbidden")
        with served.client(reader) as one:
            assert exported(one, "ana")[0].splitlines()[1:] == body.splitlines()[1:]


def test_an_import_of_any_size_is_one_request_and_counts_against_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path, "http.unprocessed_bytes_per_token=1024") as served:
        with served.client(served.token("one", "*")) as client:
            told = imported(client, "many", many(1_000))
            assert (told["taken"], told["complete"], told["pending"]) == (1_000, True, [])
        monkeypatch.setattr(UnprocessedBytes, "_is_processed", lambda *_: False)
        with served.client(served.token("other", "*")) as client:
            imported(client, "more", many(10))
            answer = client.post("/api/scopes/more/import", content=many(1), headers=NDJSON)
            problem(answer, 429, "rate_limited")
            said = {"content": "Ana lives in Oslo.", "scope": "ana"}
            problem(client.post("/api/memory/remember", json=said), 429, "rate_limited")


def many(count: int) -> str:
    """An export of so many memories."""
    at = "2026-03-01T09:30:00Z"
    header = {"format": "palimpsest-scope", "version": 1, "scope": "many", "exported_at": at}
    times = dict.fromkeys(("occurred_at", "created_at", "updated_at"), at)
    one = {"kind": "memory", "type": "fact", "importance": 0.5, "confidence": 1.0, **times}
    memories = [
        {**one, "id": derived_id("many", number), "content": f"Locker {number} is free."}
        for number in range(count)
    ]
    return joined([header, *memories, {"kind": "end", "lines": count}])


def test_on_the_command_line(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "ana")
    program.ok("run", "--once")
    said = program.json("export", "ana", "ana.ndjson", "--deleted")
    assert said["bytes"] == (program.folder / "ana.ndjson").stat().st_size
    assert "is there already" in program.fails("export", "ana", "ana.ndjson", code=2)
    assert "there is no scope nobody" in program.fails("export", "nobody", "nobody.ndjson")
    assert not list(program.folder.glob("*nobody*"))
    told = program.json("import", "ana.ndjson", "--scope", "copy")
    assert (told["applied"], len(told["pending"])) == (False, 1)
    program.ok("run", "--once")
    again = program.json("import", "ana.ndjson", "--scope", "copy")
    program.ok("run", "--once")
    assert again["refused_lines"] == 0
    program.ok("export", "copy", "copy.ndjson", "--deleted")
    lines, copied = (
        [json.loads(line) for line in (program.folder / name).read_text().splitlines()]
        for name in ("ana.ndjson", "copy.ndjson")
    )
    assert in_order(copied) == in_order(moved(lines, "copy"))
    cut = (program.folder / "ana.ndjson").read_bytes()[:-30]
    assert "cut off" in program.fails("import", "-", "--scope", "cut", stdin=cut)
    assert "no file" in program.fails("import", "gone.ndjson", "--scope", "cut", code=2)


@pytest.mark.soak
def test_a_killed_worker_goes_on_and_doubles_nothing(program: Program) -> None:
    count = 2_000
    (program.folder / "many.ndjson").write_text(many(count))
    with program.worker() as worker:
        given = program.start("import", "many.ndjson", "--scope", "many")
        until(lambda: stored(program) > 0)
        worker.kill()
        given.kill()
        given.wait()
    assert 0 < stored(program) <= count
    with program.worker():
        told = program.json("import", "many.ndjson", "--scope", "many")
        assert (told["taken"], told["refused_lines"], told["pending"]) == (count, 0, [])
    query = "SELECT count(*), count(DISTINCT content) FROM memories"
    [row] = json.loads(program.ok("sql", query, "--format", "json"))
    assert set(row.values()) == {count}


def stored(program: Program) -> int:
    done = program.run("stats", "--json")
    return int(json.loads(done.stdout)["memories"]) if done.returncode == 0 else 0


def test_every_kind_of_line_is_exported() -> None:
    from palimpsest.ops.service.exporting import _LINES

    kinds = [kind.model_fields["kind"].default for kind in Line.__args__[0].__args__]
    assert sorted(kinds) == sorted(_LINES)
