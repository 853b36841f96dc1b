"""What the MCP server answers to lines and arguments that are wrong, without a process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import anyio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from palimpsest.ops.mcp.server import memory_server
from palimpsest.ops.mcp.stdio import Answered

HALF = r"\ud83d"


def call(inside: str, id_: str = "7") -> str:
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"tools/call","params":{inside}}}'


async def passed_and_answered(
    lines: Iterable[str],
) -> tuple[list[SessionMessage | Exception], list[JSONRPCError]]:
    """What reaches the server of these lines, and what is answered without it."""
    writer, received = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    sent, answers = anyio.create_memory_object_stream[SessionMessage](100)
    for line in lines:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            writer.send_nowait(SessionMessage(message))
        except ValidationError as error:
            writer.send_nowait(error)
    writer.close()
    async with received, sent, answers:
        received.last_context = None  # type: ignore[attr-defined]
        passed = [each async for each in Answered(received, sent)]  # type: ignore[arg-type]
        sent.close()
        told = [each.message async for each in answers]
    assert all(isinstance(each, JSONRPCError) for each in told)
    return passed, told  # type: ignore[return-value]


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def asking(method: str, params: object, id_: int) -> str:
    named = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, **named})


async def answers_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """What the server answers to each line, one after the other."""
    writer, received = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    sent, answers = anyio.create_memory_object_stream[SessionMessage](9)
    server = memory_server(lambda: None)._lowlevel_server  # type: ignore[arg-type, return-value]
    found: list[dict[str, Any]] = []
    async with writer, answers, anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, received, sent, server.create_initialization_options())
        for line in lines:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            await writer.send(SessionMessage(message))
            found.append((await answers.receive()).message.model_dump(exclude_unset=True))
        tasks.cancel_scope.cancel()
    return found


@pytest.mark.parametrize(
    ("line", "id_", "why"),
    [
        (
            call(f'{{"name":"x","arguments":{{"query":"{HALF}"}}}}'),
            7,
            "params.arguments.query: has",
        ),
        (call('{"name":"x","arguments":{"query":"a \\ude00 b"}}'), 7, "half an emoji"),
        (call(f'{{"name":"x","arguments":{{"{HALF}":1}}}}'), 7, "params.arguments: has half"),
        (call(f'{{"tags":["a","{HALF}{HALF}"]}}', '"seven"'), "seven", "params.tags[1]: has half"),
        (call("{}", f'"{HALF}"'), None, "id: has half"),
        (call("[" * 300 + "]" * 300), 7, "recursion limit"),
        (call("[1]"), 7, "params: Input should be a valid object"),
        (call("{}", "null"), None, "a call needs an id"),
        (call("{}", "1.5"), None, "a call needs an id"),
        ('{"id":3,"method":"ping"}', 3, "jsonrpc: is missing"),
        ('{"jsonrpc":"2.0","id":3,"method":5}', 3, "method: Input should be a valid string"),
        ('{"jsonrpc":"2.0","id":3,', None, "is no valid JSON"),
        ("hello", None, "is no valid JSON"),
        ("[]", None, "give an object"),
        ('"text"', None, "give an object"),
    ],
)
async def test_every_call_over_stdio_is_answered(line: str, id_: object, why: str) -> None:
    good = call("{}", "8")
    passed, told = await passed_and_answered([line, good])
    assert [each.id for each in told] == [id_]
    assert why in told[0].error.message
    assert "pydantic" not in told[0].error.message
    assert told[0].model_dump_json()  # can be written
    assert [each.message.id for each in passed] == [8]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"a":"{HALF}"}}}}',
        '{"jsonrpc":"2.0","id":3,"result":5}',
    ],
)
async def test_what_asks_for_no_answer_gets_none(line: str) -> None:
    passed, told = await passed_and_answered([line])
    assert (passed, told) == ([], [])


async def test_a_byte_order_mark_does_not_hide_a_call() -> None:
    passed, told = await passed_and_answered(["\ufeff" + call("{}")])
    assert ([each.message.id for each in passed], told) == ([7], [])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("search_memory", {"query": 5}, "query: Input should be a valid string"),
        ("search_memory", {}, "query: is missing"),
        ("search_memory", {"query": None}, "query: Input should be a valid string"),
        ("search_memory", {"query": "a", "limit": "many"}, "limit: "),
        ("search_memory", {"query": "a", "since": "soon"}, "since: "),
        ("search_memory", {"query": "a", "typs": "fact"}, "typs: there is no such argument"),
        ("remember_fact", {"content": ["a"]}, "content: Input should be a valid string"),
        ("remember_fact", {"content": "a", "structured": 5}, "structured: Input should be a valid"),
        ("remember_fact", {"content": "a", "tags": [1]}, "tags.0: "),
        ("update_short_term_memory", {"memory": 5}, "memory: there is no such argument"),
    ],
)
async def test_wrong_arguments_are_told_in_plain_words(
    tool: str, arguments: dict[str, Any], why: str
) -> None:
    def nobody() -> Any:
        raise AssertionError("no memory is asked")

    async with Client(memory_server(nobody)) as client:
        result = await client.call_tool(tool, arguments)
    told = result.content[0].text  # type: ignore[union-attr]
    assert result.is_error
    assert why in told
    for hint in ("pydantic", "input_value", "type=", "validation error", "dict", "None", "["):
        assert hint not in told


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("tools/call", {"name": "search_memory", "arguments": '{"query":"a"}'}, "arguments: Input"),
        ("tools/call", {"name": "search_memory", "arguments": ["a"]}, "arguments: Input"),
        ("tools/call", {"arguments": {}}, "name: is missing"),
        ("tools/call", {"name": 5, "arguments": {}}, "name: Input should be a valid string"),
        ("tools/call", None, "is missing"),
        ("logging/setLevel", {"level": "loud"}, "level: Input should be"),
    ],
)
async def test_a_request_of_a_wrong_form_is_told_what_is_wrong(
    method: str, params: Any, why: str
) -> None:
    lines = [asking("initialize", HELLO, 1), asking(method, params, 2), asking("ping", None, 3)]
    first, told, alive = await answers_of(lines)
    assert "result" in first
    assert told["error"]["code"] == -32602
    assert told["error"]["message"].startswith(f"{method}: ")
    assert why in told["error"]["message"]
    assert "pydantic" not in told["error"]["message"]
    assert alive["result"] == {}


async def test_who_does_not_begin_is_told_to() -> None:
    [told] = await answers_of([asking("tools/list", None, 1)])
    assert told["error"]["message"] == "tools/list: send `initialize` first"


@pytest.mark.parametrize(
    ("tool", "why"),
    [("search_memories", "did you mean search_memory?"), ("zzz", "there are search_memory, ")],
)
async def test_an_unknown_tool_is_told_with_the_nearest(tool: str, why: str) -> None:
    async with Client(memory_server(lambda: None)) as client:  # type: ignore[arg-type, return-value]
        result = await client.call_tool(tool, {})
        assert result.is_error
        assert why in result.content[0].text  # type: ignore[union-attr]
