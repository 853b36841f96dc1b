"""Every route with every status that the OpenAPI document declares for it, on a real port.

A new route needs its line in `http_samples`; a status that it declares beyond those that are tried
for all, a test that is named in `STATUSES`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest.ops.http.gate import PUBLIC_PATHS, Gate
from palimpsest.ops.http.service import UnprocessedBytes
from palimpsest.ops.replay.branches import keep_branch
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.surfaces.catalogue import OPERATIONS as CATALOGUE
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply import imports as apply_import
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.flows.http_fresh import BRANCH, NUMBERS, dead_letters, fresh, keep_comparison, needs_more
from tests.flows.http_samples import SAMPLES, Sample
from tests.flows.http_server import Served, problem, server
from tests.flows.program import until
from tests.flows.test_http_gateway import AWAY, gateway
from tests.unit.test_openapi import FILE

NOBODY = "00000000-0000-5000-8000-000000000000"
NOWHERE = {"id": NOBODY, "command": NOBODY, "document": NOBODY, "replay": "none"}
NOWHERE |= {"branch": "none", "compared": "none", "dead": "none"}
LARGE = 2**20 + 1
"""Bytes of a body that is too large for every route."""
RATED = ("modify", "delete", "batch_forget")
OPERATIONS: dict[str, dict[str, Any]] = {
    name: part for name, part in json.loads(FILE.read_text("utf-8")).items() if " /" in name
}
"""As they are in the golden file: to make the document takes each process that collects tests
three seconds."""


def route_of(name: str) -> str:
    return name.partition(" ")[2]


def declaring(status: int) -> list[str]:
    return [name for name, each in OPERATIONS.items() if str(status) in each["responses"]]


PUBLIC = [name for name in OPERATIONS if route_of(name) in PUBLIC_PATHS]
GUARDED = [name for name in OPERATIONS if name not in PUBLIC]
WITH_BODY = [name for name, each in OPERATIONS.items() if "requestBody" in each]
TURNS = ("POST /api/turns", "POST /api/ingest")
COMMANDS = [name for name in declaring(202) if name not in TURNS]
NO_CHANGE = {
    *("POST /api/sessions/{session_id}/end", "PUT /api/privacy", "POST /api/flags"),
    "PUT /api/retention",
}
FREEZABLE = [name for name in COMMANDS if name not in NO_CHANGE]
"""What changes memory, which neither the end of a session nor a setting does."""
WITHOUT_KEY = {"POST /api/scopes/{scope}/import", "POST /api/ingest"}
"""What is many: what has been taken is known by its ids."""
FOREIGN = declaring(404)


def statuses(name: str) -> set[int]:
    """The statuses of a route that a test of this file tries."""
    tried = {SAMPLES[name].status, 403, 421, 500}
    tried |= {401, 429, 503} if name in GUARDED else set()
    tried |= {503} if name == "GET /ready" else set()
    tried |= {413, 415} if name in WITH_BODY else set()
    tried |= {400} if name in WITH_BODY and name not in WITHOUT_KEY else set()
    tried |= {202, 409} if name in COMMANDS else set()
    tried |= {404} if name in FOREIGN else set()
    tried |= {422} if SAMPLES[name].wrong is not None else set()
    return tried | STATUSES.get(name, set())


STATUSES = {
    **{f"{method} /api/sql": {400, 406} for method in ("GET", "POST")},  # test_a_form_that_is_not
    "POST /api/memory/erase-scope": {200},  # test_erasing_doors
    "POST /api/turns": {200},  # test_http_turns_and_events
    # test_embedding_migration
    **{f"POST /api/embedding/{action}": {200, 422} for action in ("switch", "back", "cancel")},
}
LIMITED = [
    " ".join(kind.surface.http).replace(":path", "")
    for kind in CATALOGUE.values()
    if kind.surface.http is not None and kind.surface.rate is not None
]
CHANGES = [*COMMANDS, *TURNS]


def test_every_route_and_every_status_it_declares_is_tried() -> None:
    assert set(SAMPLES) == set(OPERATIONS)
    for name, operation in OPERATIONS.items():
        assert {int(status) for status in operation["responses"]} == statuses(name), name


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two scopes, a token for each and one for all."""
    many = ["access.record=false", *(f"http.{kind}_per_minute=1000000" for kind in RATED)]
    larger = ("http.max_import_bytes", "http.max_ingest_bytes", "documents.max_bytes")
    many += [f"{name}={LARGE // 2}" for name in larger]
    folder = tmp_path_factory.mktemp("statuses")
    with server(folder, *many) as running, running.client() as client:
        keep_branch(Settings(data_dir=folder), BRANCH)
        keep_comparison(folder)
        dead_letters(running.up.service, 10)
        for scope in ("ana", "ben"):
            turn = {"turn_id": "t1", "session_id": "s1", "scope": scope, "speaker": "Ana"}
            turn["content"] = f"I live in Oslo with a {scope}fish."
            assert client.post("/api/turns", json=turn).status_code == 202
        running.settle(client)
        yield running


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    made = {scope: served.token(scope, scope) for scope in ("ana", "ben")}
    return {**made, "all": served.token("all", "*"), "none": served.token("none", "*", may=[])}


@pytest.fixture(scope="module")
def clients(served: Served, tokens: dict[str, str]) -> Iterator[dict[str, httpx.Client]]:
    """One for each token."""
    with contextlib.ExitStack() as undo:
        yield {name: undo.enter_context(served.client(each)) for name, each in tokens.items()}


@pytest.fixture(scope="module")
def known(clients: dict[str, httpx.Client]) -> dict[str, str]:
    """A memory and a document of ben's, for what changes neither."""
    document = SAMPLES["GET /api/documents/{document_id}"]
    return {**NOWHERE, **fresh(clients["all"], "ben", document)}


def sent(client: httpx.Client, name: str, request: dict[str, Any]) -> httpx.Response:
    """The answer; of a stream its head and its first line."""
    with client.stream(name.partition(" ")[0], **request) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            next(answer.iter_lines())
        else:
            answer.read()
        return answer


def owner(clients: dict[str, httpx.Client], sample: Sample) -> httpx.Client:
    return clients["all" if sample.of_all else "ben"]


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uses of the store and the log by what answers requests, on the thread that all requests
    share: nobody else is answered until they end."""
    found: list[str] = []

    def watched(kind: type, name: str) -> None:
        called = getattr(kind, name)

        def call(self: Any, *given: Any, **named: Any) -> Any:
            if asyncio._get_running_loop() is not None:
                frames = traceback.extract_stack()[:-1]
                asking = [each for each in frames if ANSWERS.search(each.filename)]
                found.extend(f"{each.filename}:{each.lineno} {name}" for each in asking[-1:])
            return called(self, *given, **named)

        monkeypatch.setattr(kind, name, call)

    for name in ("reading", "writing"):
        watched(Shard, name)
    for name in ("append", "read", "end_offset"):
        watched(EmbeddedLog, name)
    return found


ANSWERS = re.compile(r"/ops/(?:operations/|http/(?!serving)|redriving)")


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_right_is_answered(
    clients: dict[str, httpx.Client],
    known: dict[str, str],
    on_the_loop: list[str],
    name: str,
) -> None:
    sample = SAMPLES[name]
    client = owner(clients, sample)
    changes = not name.startswith("GET") or needs_more(sample)
    values = fresh(client, "ben", sample) if changes else known
    answer = sent(client, name, sample.request(**values))
    assert answer.status_code == sample.status, answer.text
    assert on_the_loop == []


@pytest.mark.parametrize("name", COMMANDS)
def test_who_does_not_wait_is_answered_at_once(clients: dict[str, httpx.Client], name: str) -> None:
    sample = SAMPLES[name]
    client = owner(clients, sample)
    request = sample.request(**fresh(client, "ben", sample))
    request["url"] += ("&" if "?" in request["url"] else "?") + "wait=0"
    answer = sent(client, name, request)
    assert answer.status_code == 202, answer.text
    said = answer.json()
    assert said["applied"] is False
    if name not in WITHOUT_KEY:  # one command: the next tests must not meet it on its way
        until(partial(_is_executed, clients["all"], said["command_id"]))


def _is_executed(client: httpx.Client, command_id: str) -> bool:
    found = client.get(f"/api/commands/{command_id}")
    assert found.status_code == 200, found.text
    return found.json()["applied"] or "error" in found.json()


def test_nobody_without_a_token_or_its_permission(
    served: Served, clients: dict[str, httpx.Client], known: dict[str, str]
) -> None:
    for name in GUARDED:
        request = SAMPLES[name].request(**known)
        with served.client() as anyone:
            answer = sent(anyone, name, request)
        problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer", name
        problem(sent(clients["none"], name, request), 403, "forbidden")


@pytest.mark.parametrize("name", GUARDED)
def test_what_is_anothers_is_not_there(
    clients: dict[str, httpx.Client], known: dict[str, str], name: str
) -> None:
    """For the owner of one scope, another one is like one that nobody has; and what tells of all
    is not for them."""
    sample = SAMPLES[name]
    client = clients["all"]
    values = fresh(client, "ben", sample) if needs_more(sample) else known
    before = client.get(f"/api/memory/{values['id']}").json()
    nowhere = {**values, **NOWHERE, "scope": "nobody"}
    client = clients["ana"]
    told = []
    for asked in (values, nowhere):
        answer = sent(client, name, sample.request(**asked))
        assert "benfish" not in answer.text.replace(values["text"], "")
        if sample.of_all:
            problem(answer, 403, "forbidden")
            continue
        if name == "GET /api/scopes":
            assert [each["scope"] for each in answer.json()["scopes"]] == ["ana"]
            continue
        assert name in FOREIGN
        detail = problem(answer, 404, "not_found")["detail"]
        for value in (asked["scope"], asked["id"], asked["command"], asked.get("document", "")):
            detail = detail.replace(value, "…") if value else detail
        told.append(detail)
    assert told[:1] == told[1:] or sample.of_all
    client = clients["all"]
    assert client.get(f"/api/memory/{values['id']}").json() == before


def test_a_foreign_page_and_another_host(served: Served, tokens: dict[str, str]) -> None:
    for name, sample in SAMPLES.items():
        request = sample.request(scope="ben", text="x", **NOWHERE)
        for header, value, status, code in (
            ("Origin", "https://evil.example", 403, "forbidden"),
            ("Host", "evil.example", 421, "misdirected"),
        ):
            headers = {**request.get("headers", {}), header: value}
            with served.client(tokens["all"]) as client:
                problem(sent(client, name, {**request, "headers": headers}), status, code)


def test_bodies_that_cannot_be_read(
    served: Served, tokens: dict[str, str], known: dict[str, str]
) -> None:
    def refused(name: str, status: int, code: str, **changed: Any) -> None:
        with served.client(tokens["all"]) as client:  # of a body that is not read no more comes
            answer = sent(client, name, {**SAMPLES[name].request(**known), **changed})
        problem(answer, status, code)

    for name in WITH_BODY:
        refused(name, 415, "unsupported_media_type", headers={"Content-Type": "text/html"})
        refused(name, 413, "too_large", content=b" " * LARGE)
        untold = (b" " * 100_000 for _ in range(LARGE // 100_000 + 1))
        refused(name, 413, "too_large", content=untold)
        if name not in WITHOUT_KEY:  # of lines that are no JSON each is told
            refused(name, 400, "malformed", content=b"{")


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].wrong is not None])
def test_what_makes_no_sense(
    clients: dict[str, httpx.Client], known: dict[str, str], name: str
) -> None:
    sample = SAMPLES[name]
    client = owner(clients, sample)
    problem(sent(client, name, sample.wrong_request(**known)), 422, "invalid")


def test_a_key_for_two_things_is_a_conflict(
    clients: dict[str, httpx.Client], known: dict[str, str]
) -> None:
    key = {"Idempotency-Key": f"key {next(NUMBERS)}"}
    client = clients["all"]
    said = {"content": f"The benfish met {next(NUMBERS)} whales.", "scope": "ben"}
    assert client.post("/api/memory/remember", json=said, headers=key).status_code == 200
    for name in COMMANDS:
        if name in WITHOUT_KEY:
            continue
        sample = SAMPLES[name]
        values = fresh(client, "ben", sample) if needs_more(sample) else known
        request = sample.request(**values)
        request["headers"] = {**request.get("headers", {}), **key}
        problem(sent(client, name, request), 409, "idempotency_conflict")


def test_an_import_that_the_stage_fails_at_is_a_conflict(
    clients: dict[str, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("a secret")

    monkeypatch.setattr(apply_import, "memory_row", fails)
    name = "POST /api/scopes/{scope}/import"
    client = clients["all"]
    request = SAMPLES[name].request(scope="failing", text="x")
    problem(sent(client, name, request), 409, "command_failed")


def test_a_form_that_there_is_not(clients: dict[str, httpx.Client]) -> None:
    client = clients["all"]
    query, headers = {"query": "SELECT 1"}, {"Accept": "text/html"}
    problem(client.post("/api/sql", json=query, headers=headers), 406, "not_acceptable")
    problem(client.get("/api/sql", params=query, headers=headers), 406, "not_acceptable")
    problem(client.get("/api/sql?query=SELECT nowhere"), 400, "sql_invalid")


def test_a_domain_that_there_is_not(clients: dict[str, httpx.Client]) -> None:
    client = clients["all"]
    problem(client.get("/api/diagnostics?domain=weather"), 404, "not_found")


def test_methods_that_a_route_has_not(clients: dict[str, httpx.Client]) -> None:
    client = clients["all"]
    for path in {route_of(name) for name in OPERATIONS}:
        own = {name.partition(" ")[0] for name in OPERATIONS if route_of(name) == path}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - own:
            answer = client.request(method, re.sub("{[^}]+}", "x", path))
            said = answer.headers.get("allow", "")
            if said or answer.status_code == 405:
                problem(answer, 405, "method_not_allowed")
                assert method not in said
            else:  # another route has this address with this method
                shaped = [name for name in OPERATIONS if name.startswith(f"{method} ")]
                assert any("{" in name for name in shaped)


def test_a_failure_of_the_service_tells_nothing_of_it(
    served: Served, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("a secret")

    monkeypatch.setattr(Gate, "_check_host", fails)
    for name, sample in SAMPLES.items():
        with served.client(tokens["all"]) as client:
            answer = sent(client, name, sample.request(scope="ben", text="x", **NOWHERE))
        problem(answer, 500, "failed")
        assert answer.headers["connection"] == "close"
        assert "secret" not in answer.text
        assert "Arithmetic" not in answer.text


def test_tokens_that_cannot_be_read_let_nobody_in(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        token = running.token("a", "*")
        (tmp_path / "tokens.json").write_text("{")
        with running.client(token) as client:
            for name in GUARDED:
                request = SAMPLES[name].request(scope="a", text="x", **NOWHERE)
                answer = sent(client, name, request)
                problem(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            assert client.get("/health").status_code == 200


async def test_no_worker_is_told_with_when_to_ask_again(tmp_path: Path) -> None:
    """Of what needs no store is the answer the same, and a change is taken for later."""
    async with gateway(tmp_path) as (client, _):
        for name, sample in SAMPLES.items():
            if sample.streams:
                continue
            request = sample.request(scope=AWAY, text="x", **NOWHERE)
            if name in COMMANDS:
                request["url"] += ("&" if "?" in request["url"] else "?") + "wait=0"
            answer = await client.request(name.partition(" ")[0], **request)
            if sample.asks:
                problem(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            else:
                expected = 202 if name in COMMANDS else sample.status
                if any(each in sample.path for each in ("{replay}", "{branch}", "{compared}")):
                    expected = 404
                assert answer.status_code == expected, (name, answer.text)


def requests_of(client: httpx.Client, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A right request for each of these, none of which is carried out."""
    one = fresh(client, "ben")
    return {
        name: sample.request(**(fresh(client, "ben", sample) if needs_more(sample) else one))
        for name in names
        for sample in [SAMPLES[name]]
    }


def test_frozen_memory_is_told_with_when_to_ask_again(tmp_path: Path) -> None:
    with server(tmp_path) as running, running.client() as client:
        made = requests_of(client, FREEZABLE)
        running.settle(client)
    with server(tmp_path, "pipeline.mutations_frozen=true") as running, running.client() as client:
        for name in FREEZABLE:
            answer = sent(client, name, made[name])
            problem(answer, 503, "frozen")
            assert int(answer.headers["retry-after"]) >= 1


def test_too_many_are_told_when_to_come_back(tmp_path: Path) -> None:
    with server(tmp_path, *(f"http.{kind}_per_minute=1" for kind in RATED)) as running:
        for name in LIMITED:
            request = SAMPLES[name].request(scope="ben", text="x", **NOWHERE)
            with running.client(running.token(name, "*")) as client:
                assert sent(client, name, request).status_code != 429
                answer = sent(client, name, request)
                problem(answer, 429, "rate_limited")
                assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_a_token_that_is_busy_is_told_when_to_come_back(tmp_path: Path) -> None:
    with server(tmp_path, "http.requests_per_token=1") as running:
        busy = running.token("busy", "*")
        with running.client(busy) as client, client.stream("GET", "/api/events?scope=ben") as open_:
            lines = open_.iter_lines()
            assert next(lines) == ": follows"
            for name in GUARDED:
                answer = sent(client, name, SAMPLES[name].request(scope="ben", text="x", **NOWHERE))
                problem(answer, 429, "rate_limited")
                assert int(answer.headers["retry-after"]) >= 1


def test_changes_of_a_token_whose_bytes_are_not_processed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path) as running:
        token = running.token("busy", "*")
        with running.client(token) as client:
            made = requests_of(client, CHANGES)
            monkeypatch.setattr(UnprocessedBytes, "_is_processed", lambda *_: False)
            text = {"turn_id": "big", "content": "I like tea. " * 25_000, "scope": "ben"}
            assert client.post("/api/turns", json=text).status_code == 202
            for name in CHANGES:
                answer = sent(client, name, made[name])
                problem(answer, 429, "rate_limited")
                assert int(answer.headers["retry-after"]) >= 1


def test_what_becomes_of_a_change_is_told_in_one_word(clients: dict[str, httpx.Client]) -> None:
    client = clients["ben"]
    one, same, gone, turn = (fresh(client, "ben") for _ in range(4))
    client.delete(f"/api/memory/{gone['id']}", params={"reason": "x"})
    listed = client.get("/api/memories", params={"scope": "ben", "types": "episodic"}).json()
    turn["id"] = listed["memories"][0]["id"]
    patches: list[tuple[dict[str, Any], str]] = [
        ({"memory_id": one["id"], "content": one["text"]}, "updated"),
        ({"memory_id": one["id"], "content": one["text"]}, "no_changes"),
        ({"memory_id": NOBODY, "importance": 0.1}, "not_found"),
        ({"memory_id": gone["id"], "importance": 0.1}, "deleted"),
        ({"memory_id": one["id"], "importance": 0.1, "if_version": 9}, "version_conflict"),
        ({"memory_id": same["id"], "content": one["text"]}, "duplicate_content_hash"),
        ({"memory_id": turn["id"], "type": "fact"}, "invalid_request"),
    ]
    body = {"scope": "ben", "reason": "x", "patches": [patch for patch, _ in patches]}
    said = client.post("/api/memory/modify", json=body).json()["changes"]
    assert [each["status"] for each in said] == [status for _, status in patches]
    client.post(f"/api/memory/{same['id']}/pin", json={})
    ids = [one["id"], gone["id"], NOBODY, same["id"]]
    body = {"mode": "execute", "scope": "ben", "memory_ids": ids, "reason": "x"}
    said = client.post("/api/memory/forget", json=body).json()["changes"]
    assert {each["id"]: each["status"] for each in said} == {
        one["id"]: "forgotten",
        gone["id"]: "deleted",
        NOBODY: "not_found",
        same["id"]: "pinned",
    }
    answer = client.post(f"/api/memory/{one['id']}/recover", json={})
    assert answer.json()["status"] == "recovered"
    problem(client.post(f"/api/memory/{one['id']}/recover", json={}), 409, "not_deleted")
    until(lambda: client.get(f"/api/memory/{one['id']}").status_code == 200)
    assert json.loads(answer.text)["version"] == 4
