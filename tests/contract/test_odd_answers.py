"""Answers of compatible servers that are in another form than expected, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from palimpsest.streams.models.base import PermanentModelError, TransientModelError
from palimpsest.streams.models.ollama import OllamaEmbeddingModel, OllamaLanguageModel
from palimpsest.streams.models.openai import OpenAIEmbeddingModel
from palimpsest.streams.prompting.replies import MalformedReply
from tests.contract.test_language_models import a_prompt, connect
from tests.servers import MODEL, Call, Raw, ScriptedProvider, Text, fails
from tests.unit.reply_texts import GOOD, read_extraction

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

HALF = len(GOOD) // 2


def choice(message: JsonValue, **more: JsonValue) -> Raw:
    return Raw(200, json.dumps({"choices": [{"message": message, **more}]}).encode())


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": GOOD}]},
        {"content": [{"type": "text", "text": GOOD[:HALF]}, {"type": "text", "text": GOOD[HALF:]}]},
        {"content": [{"type": "reasoning", "summary": []}, GOOD]},
        {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": GOOD}}]},
        {"content": "", "tool_calls": [{"function": {"arguments": json.loads(GOOD)}}]},
        {"function_call": {"name": "f", "arguments": GOOD}},
        {"content": json.loads(GOOD)},
    ],
    ids=["part", "parts", "thoughts", "tool", "tool-object", "function", "object"],
)
async def test_a_reply_in_parts_or_in_a_call_of_a_function_is_read(message: JsonValue) -> None:
    async with ScriptedProvider([choice(message, finish_reason="tool_calls")]) as server:
        model = connect("openai", server.url)
        read = read_extraction((await model.generate(a_prompt())).text)
        assert read.facts == read_extraction(GOOD).facts
        await model.close()


@pytest.mark.parametrize(
    ("message", "reason", "why"),
    [
        ({"content": None, "refusal": "I cannot help."}, "stop", "the model refused"),
        ({"content": "", "reasoning_content": "hm"}, "length", "limit of tokens"),
        ({"content": None}, "content_filter", "filter"),
        ({"content": ""}, "stop", "the reply is empty"),
    ],
)
async def test_why_there_is_no_text_is_handed_on(message: JsonValue, reason: str, why: str) -> None:
    async with ScriptedProvider([choice(message, finish_reason=reason)]) as server:
        model = connect("openai", server.url)
        with pytest.raises(MalformedReply, match=why):
            read_extraction((await model.generate(a_prompt())).text)
        await model.close()


async def test_ollama_tells_that_the_limit_was_reached_while_thinking() -> None:
    body = {"response": "", "thinking": "hm", "done_reason": "length"}
    async with ScriptedProvider([Raw(200, json.dumps(body).encode())]) as server:
        model = connect("ollama", server.url)
        with pytest.raises(MalformedReply, match="limit of tokens"):
            read_extraction((await model.generate(a_prompt())).text)
        await model.close()


async def test_a_failure_inside_a_choice_is_waited_for() -> None:
    error: JsonValue = {"code": 502, "message": "the model behind is down"}
    async with ScriptedProvider([choice({"content": ""}, error=error), Text(GOOD)]) as server:
        model = connect("openai", server.url)
        with pytest.raises(TransientModelError, match="the model behind is down"):
            await model.generate(a_prompt())
        assert (await model.generate(a_prompt())).text == GOOD
        await model.close()


@pytest.mark.parametrize(
    ("name", "field", "refusal"),
    [
        ("openai", "response_format", "response_format is not supported"),
        ("openai", "max_tokens", "use max_completion_tokens instead of max_tokens"),
        ("openai", "temperature", "temperature is not supported"),
        ("ollama", "think", "this model does not support thinking"),
    ],
)
async def test_calls_at_the_same_time_all_leave_out_what_the_server_refuses(
    name: str, field: str, refusal: str
) -> None:
    """The first one to be refused must not leave the others without another attempt."""
    arrived = asyncio.Barrier(4)

    def refusing(call: Call) -> Raw | None:
        return fails(400, refusal) if field in call.body else None

    async with ScriptedProvider(refusing=refusing, latency_s=0.05) as server:
        model = connect(name, server.url)

        async def ask() -> None:
            await arrived.wait()
            await model.generate(a_prompt())

        await asyncio.gather(*(ask() for _ in range(4)))
        await model.close()


async def test_a_mark_of_the_byte_order_before_an_answer_is_no_matter() -> None:
    body = json.dumps({"choices": [{"message": {"content": GOOD}}]}).encode("utf-8-sig")
    async with ScriptedProvider([Raw(200, body)]) as server:
        model = connect("openai", server.url)
        assert (await model.generate(a_prompt())).text == GOOD
        await model.close()


async def test_an_embedding_error_inside_a_200_is_waited_for() -> None:
    error = {"error": {"code": 503, "message": "loading the model"}}
    async with ScriptedProvider([Raw(200, json.dumps(error).encode())]) as server:
        model = OpenAIEmbeddingModel(MODEL, 64, f"{server.url}/v1")
        with pytest.raises(TransientModelError, match="loading the model"):
            await model.embed_passages(["one"])
        await model.close()
    async with ScriptedProvider([Raw(200, b'{"error": "loading the model"}')]) as server:
        other = OllamaEmbeddingModel(MODEL, 64, server.url)
        with pytest.raises(TransientModelError, match="loading the model"):
            await other.embed_passages(["one"])
        await other.close()


async def test_a_page_of_a_proxy_is_told_by_its_title() -> None:
    page = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>x</body></html>"
    async with ScriptedProvider([Raw(502, page)]) as server:
        model = connect("openai", server.url)
        with pytest.raises(TransientModelError, match=r"502: a page titled 502 Bad Gateway$"):
            await model.generate(a_prompt())
        await model.close()


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
async def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(PermanentModelError, match="port of the base URL"):
        OllamaLanguageModel(MODEL, f"http://localhost:{port}")


async def test_a_host_that_is_not_found_is_told_in_plain_words() -> None:
    problem = await OllamaLanguageModel(MODEL, "http://nobody.invalid").check()
    assert problem is not None
    assert "no host of this name is found" in problem
    assert "Errno" not in problem


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_what_is_wrong_with_tls_is_told_in_plain_words(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    try:
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl to make a certificate")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    for context, told in ((tls, "its certificate is not trusted"), (None, "no TLS connection")):
        async with listening(context) as port:
            model = connect("ollama", f"https://127.0.0.1:{port}")
            problem = await model.check()
            assert problem is not None
            assert told in problem
            assert "correct the base URL" in problem
            assert "_ssl.c" not in problem
            await model.close()
