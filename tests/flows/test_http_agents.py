"""MCP within `palimpsest serve`, and beyond this machine, by the SDK's own client: each token has
its own memory spaces and its own permissions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.flows.http_server import JSON, Served, problem, server
from tests.flows.program import Program
from tests.flows.test_mcp import TOOLS, Agent, over_http

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {**JSON, "Accept": "application/json, text/event-stream"}


@contextlib.asynccontextmanager
async def agent(url: str, token: str | None, mode: str = "auto") -> AsyncIterator[Agent]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Agent(client)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("agents")) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    made = {scope: served.token(scope, scope) for scope in ("ana", "ben")}
    reader = served.token("reader", "ana", may=["recall"])
    writer = served.token("writer", "ana", may=["remember", "modify", "forget"])
    return {**made, "all": served.token("all", "*"), "reader": reader, "writer": writer}


async def test_an_agent_works_in_the_scope_of_its_token(
    served: Served, tokens: dict[str, str]
) -> None:
    url = f"{served.address}/mcp"
    async with agent(url, tokens["ana"], "legacy") as ana, agent(url, tokens["ben"]) as ben:
        assert {tool.name for tool in (await ana.client.list_tools()).tools} == TOOLS
        text = "Ana keeps a quokka."
        done = await ana.use("remember_fact", content=text)
        found = await ana.use("search_memory", query="quokka")
        assert done["id"] in {each["id"] for each in found["memories"]}
        assert (await ben.use("search_memory", query="quokka"))["memories"] == []
        said = await ben.fails("explain_fact", memory_id=done["id"])
        assert "there is no memory" in said
        said = await ben.fails("forget_fact", memory_id=done["id"], reason="x")
        assert "there is no memory" in said
        fixed = await ana.use(
            "correct_fact", memory_id=done["id"], content=f"{text} Two.", reason="she said"
        )
        assert fixed["version"] == 2
        assert "there is no memory" in await ana.fails("explain_fact", memory_id=done["id"][:8])
    with served.client(tokens["ana"]) as client:
        events = client.get(f"/api/memory/{done['id']}/history").json()["events"]
        told = {(each["changed_by"], each["actor_type"]) for each in events}
        assert told <= {("ana", "agent"), ("pipeline", "pipeline")}
        assert ("ana", "agent") in told


async def test_many_at_once_are_kept_apart(served: Served, tokens: dict[str, str]) -> None:
    """Requests of two tokens that are answered at the same time."""
    url = f"{served.address}/mcp"
    async with agent(url, tokens["ana"]) as ana, agent(url, tokens["ben"]) as ben:
        for name, one in (("ana", ana), ("ben", ben)):
            await one.use("remember_fact", content=f"The parrot of {name} says {name}.")

        async def looks(one: Agent, name: str) -> None:
            for _ in range(10):
                found = await one.use("search_memory", query="what does the parrot say?")
                told = " ".join(each["content"] for each in found["memories"])
                other = "ben" if name == "ana" else "ana"
                assert f"parrot of {name}" in told
                assert f"parrot of {other}" not in told

        await asyncio.gather(*(looks(ana, "ana"), looks(ben, "ben")) * 2)


async def test_the_permission_of_each_tool_is_asked_for(
    served: Served, tokens: dict[str, str]
) -> None:
    memory = {"memory_id": "x", "reason": "x"}
    changing: dict[str, tuple[str, dict[str, Any]]] = {
        "remember_fact": ("remember", {"content": "x"}),
        "update_short_term_memory": ("remember", {"session_id": "x", "summary": "x"}),
        "create_long_term_memory": ("remember", {"content": "x", "memory_type": "server"}),
        "correct_fact": ("modify", {**memory, "content": "x"}),
        "add_to_graph": ("modify", {"structured": {"entities": [{"name": "Oslo"}]}}),
        "remove_from_graph": (
            "modify",
            {"structured": {"aspects": [{"entity": "Oslo", "aspect": "x"}]}},
        ),
        "confirm_fact": ("modify", {"memory_id": "x"}),
        "update_long_term_memory": ("modify", {**memory, "content": "x", "memory_type": "server"}),
        "forget_fact": ("forget", memory),
        "delete_long_term_memory": ("forget", {**memory, "memory_type": "server"}),
    }
    reading: dict[str, dict[str, Any]] = {
        "search_memory": {"query": "x"},
        "get_context": {"query": "x"},
        "get_entity_info": {"name": "x"},
        "explain_fact": {"memory_id": "x"},
        "graph_stats": {},
        "memory_stats": {},
        "weak_facts": {},
    }
    assert {*changing, *reading} == TOOLS
    url = f"{served.address}/mcp"
    async with agent(url, tokens["reader"]) as reader, agent(url, tokens["writer"]) as writer:
        await reader.use("memory_stats")
        for tool, (permission, given) in changing.items():
            said = await reader.fails(tool, **given)
            assert said.endswith(f"this token lacks the permission {permission}")
        for tool, given in reading.items():
            said = await writer.fails(tool, **given)
            assert said.endswith("this token lacks the permission recall")


async def test_a_scope_is_named_by_who_has_several(served: Served, tokens: dict[str, str]) -> None:
    async with agent(f"{served.address}/mcp?scope=cay", tokens["all"]) as one:
        await one.use("remember_fact", content="Cay dives for sponges.")
    with served.client(tokens["all"]) as client:
        found = client.get("/api/memories", params={"scope": "cay"}).json()["memories"]
        assert "Cay dives for sponges." in {each["content"] for each in found}


def test_others_are_not_answered(served: Served, tokens: dict[str, str]) -> None:
    with served.client() as client:
        answer = client.post("/mcp", json=LIST, headers=HEADERS)
        problem(answer, 401, "unauthorized")
    with served.client(tokens["ana"]) as client:
        answer = client.post("/mcp?scope=ben", json=LIST, headers=HEADERS)
        problem(answer, 404, "not_found")
        for header, value, status, code in (
            ("Origin", "https://evil.example", 403, "forbidden"),
            ("Host", "evil.example", 421, "misdirected"),
        ):
            answer = client.post("/mcp", json=LIST, headers={**HEADERS, header: value})
            problem(answer, status, code)
        large = client.post("/mcp", content=b" " * (2**20 + 1), headers=HEADERS)
        assert large.status_code == 413
        assert client.post("/mcp", content=b"{", headers=HEADERS).status_code == 400


async def test_changes_are_counted_as_over_http(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server(tmp_path_factory.mktemp("counted"), "http.delete_per_minute=1") as running:
        async with agent(f"{running.address}/mcp", running.token("a", "a")) as one:
            said = await one.fails("forget_fact", memory_id="x", reason="x")
            assert "there is no memory" in said
            said = await one.fails("forget_fact", memory_id="x", reason="x")
            assert "in a minute" in said


async def test_beyond_this_machine_a_token_is_needed(program: Program) -> None:
    said = program.fails("mcp", "--scope", "ana", "--http", "--host", "0.0.0.0", "--port", "0")
    assert "make a token first" in said
    made = {
        scope: program.json("tokens", "create", scope, "-s", scope)["token"]
        for scope in ("ana", "ben")
    }
    with over_http(program, "--host", "0.0.0.0") as address:
        url = address.replace("0.0.0.0", "127.0.0.1")
        async with agent(url, made["ana"]) as ana:
            await ana.use("remember_fact", content="Ana sails.")
            assert "permission modify" in await ana.fails("confirm_fact", memory_id="x")
        for token, status in ((None, 401), ("wrong", 401), (made["ben"], 404)):
            headers = HEADERS if token is None else {**HEADERS, "Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                answer = await client.post(url, json=LIST, headers=headers)
            assert answer.status_code == status, answer.text


async def test_a_personal_space_is_for_tokens_that_have_it(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon.", name="a.jsonl"), "--scope", "ana")
    program.ok("ingest", program.turns("The quokka is mine.", name="b.jsonl"), "--scope", "ben")
    program.ok("run", "--once")
    made = {
        name: program.json("tokens", "create", name, *scopes)["token"]
        for name, scopes in (("ben-alone", ("-s", "ben")), ("both", ("-s", "ben", "-s", "ana")))
    }
    options = ("--scope", "ben", "--personal-scope", "ana")
    with over_http(program, *options, "--host", "0.0.0.0") as address:
        url = address.replace("0.0.0.0", "127.0.0.1")
        new = {"content": "Ana hums.", "memory_type": "personal"}
        async with agent(f"{url}?scope=ben", made["both"]) as one:
            found = await one.use("search_memory", query="where does Ana live?")
            assert {each["scope"] for each in found["memories"]} == {"ana", "ben"}
        async with agent(url, made["ben-alone"]) as one:
            for tool in ("search_memory", "get_context"):
                found = await one.use(tool, query="where does Ana live?")
                assert "Lisbon" not in str(found)
                assert "quokka" in str(found)
                assert found["notices"] == ["ana: there is no scope ana"]
            assert "ana: there is no scope ana" in await one.fails("get_entity_info", name="Nora")
            assert "there is no scope ana" in await one.fails("create_long_term_memory", **new)


@pytest.mark.parametrize(
    ("body", "id_", "why"),
    [
        ("", None, "EOF while parsing"),
        ("{", None, "EOF while parsing"),
        ("[]", None, "give an object"),
        ("null", None, "give an object"),
        (json.dumps([LIST, LIST]), None, "give an object"),
        (json.dumps({**LIST, "jsonrpc": "1.0"}), 1, "jsonrpc: "),
        (json.dumps({**LIST, "params": [1]}), 1, "params: "),
        (json.dumps({**LIST, "id": None}), None, "tools/list: a call needs an id"),
        (json.dumps({**LIST, "id": 1.5}), None, "tools/list: a call needs an id"),
        (json.dumps({**LIST, "id": {"a": 1}}), None, "tools/list: a call needs an id"),
        (json.dumps({**LIST, "params": {"cursor": "\ud83d"}}), 1, "half a surrogate pair"),
        (b"\xff\xfe", None, "not UTF-8 at byte 1"),
    ],
)
def test_what_is_no_call_is_answered_with_what_is_wrong(
    served: Served, tokens: dict[str, str], body: str | bytes, id_: int | None, why: str
) -> None:
    with served.client(tokens["ana"]) as client:
        answer = client.post("/mcp", content=body, headers=HEADERS)
    assert answer.status_code == 400
    told = answer.json()
    assert told["id"] == id_
    assert why in told["error"]["message"]
    assert "Error" not in told["error"]["message"]
    assert "JSONRPC" not in told["error"]["message"]


def test_calls_of_what_is_not_there(served: Served, tokens: dict[str, str]) -> None:
    wrong = {
        "prompts/get": ({"name": "zz"}, "prompts/get: Unknown prompt: zz"),
        "resources/read": ({"uri": "file:///etc/passwd"}, "Unknown resource"),
        "nothing": ({}, "Method not found"),
    }
    with served.client(tokens["ana"]) as client:
        for method, (params, why) in wrong.items():
            asked = {**LIST, "method": method, "params": params}
            told = client.post("/mcp", json=asked, headers=HEADERS).json()
            assert why in told["error"]["message"]
            assert told["error"]["code"] in (-32601, -32602)
        # A mark at the beginning is no fault, and a notification needs no answer.
        marked = b"\xef\xbb\xbf" + json.dumps({**LIST, "method": "ping"}).encode()
        assert client.post("/mcp", content=marked, headers=HEADERS).json()["result"] == {}
        noted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post("/mcp", json=noted, headers=HEADERS).status_code == 202
        long = {"name": "search_memory", "arguments": {"query": "x" * 100_001}}
        asked = {**LIST, "method": "tools/call", "params": long}
        told = client.post("/mcp", json=asked, headers=HEADERS).json()["result"]
        assert told["isError"]
        assert told["content"][0]["text"].startswith("query: ")


def test_a_client_that_leaves_in_its_request_is_no_error(
    served: Served, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nAuthorization: Bearer {tokens['ana']}\r\n"
        "Content-Length: 100\r\n\r\n{"
    )
    url = httpx.URL(served.address)
    with socket.create_connection((url.host, url.port)) as left:
        left.sendall(head.encode())
    with served.client(tokens["ana"]) as client:
        answer = client.post("/mcp", json={**LIST, "method": "ping"}, headers=HEADERS)
    assert answer.json()["result"] == {}
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
