"""One suite for every language model, over real HTTP where the provider is a server."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TypeAlias

import pytest
import pytest_asyncio
from pydantic import SecretStr

from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.streams.models.anthropic import AnthropicLanguageModel
from palimpsest.streams.models.base import (
    LanguageModel,
    PermanentModelError,
    Prompt,
    TransientModelError,
)
from palimpsest.streams.models.ollama import OllamaLanguageModel
from palimpsest.streams.models.openai import OpenAILanguageModel
from palimpsest.streams.prompting.prompts import extraction_prompt
from palimpsest.streams.prompting.replies import MalformedReply
from palimpsest.streams.rules.model import RulesLanguageModel
from tests.servers import (
    MODEL,
    HalfBody,
    Late,
    Never,
    Raw,
    Reset,
    ScriptedProvider,
    Text,
    Trickle,
    fails,
)
from tests.unit.reply_texts import read_extraction

AnyRemote: TypeAlias = OllamaLanguageModel | OpenAILanguageModel | AnthropicLanguageModel
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

KEY = "sk-test-0123456789-never-shown"
SHORT_S = 0.3
REMOTE = ("ollama", "openai", "anthropic")
AT = datetime(2024, 3, 12, 9, 30, tzinfo=UTC)


def a_prompt(content: str = "I adopted a dog in Lisbon.") -> Prompt:
    turn = NormalizedTurn(
        turn_id="t1",
        speaker="Ana",
        content=content,
        normalized_content=content.lower(),
        content_hash="0" * 64,
    )
    return extraction_prompt(turn, AT, [])


def connect(
    name: str, url: str, timeout_s: float = 60.0, model: str = MODEL, check_s: float = 60.0
) -> LanguageModel:
    if name == "rules":
        return RulesLanguageModel()
    key = SecretStr(KEY)
    made: AnyRemote = OllamaLanguageModel(model, url, timeout_s=timeout_s)
    if name == "openai":
        made = OpenAILanguageModel(model, f"{url}/v1", key, timeout_s=timeout_s)
    if name == "anthropic":
        made = AnthropicLanguageModel(model, key, url, timeout_s=timeout_s)
    made.check_timeout_s = check_s
    return made


@dataclass
class Bench:
    """A model and the server behind it (unused by a model that has none)."""

    name: str
    server: ScriptedProvider
    model: LanguageModel

    def short(self) -> LanguageModel:
        return connect(self.name, self.server.url, timeout_s=SHORT_S, check_s=SHORT_S)


@pytest_asyncio.fixture(params=(*REMOTE, "rules"))
async def any_model(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with ScriptedProvider() as server:
        model = connect(request.param, server.url)
        yield Bench(request.param, server, model)
        await model.close()


@pytest_asyncio.fixture(params=REMOTE)
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with ScriptedProvider() as server:
        model = connect(request.param, server.url)
        yield Bench(request.param, server, model)
        await model.close()


async def test_a_reply_can_be_read_and_names_its_model(any_model: Bench) -> None:
    reply = await any_model.model.generate(a_prompt())
    assert reply.provider == any_model.name == any_model.model.provider
    assert reply.model == any_model.model.model
    assert reply.latency_ms >= 0
    (fact,) = read_extraction(reply.text).facts
    assert "adopted a dog" in fact.content


async def test_a_usable_model_checks_as_none(any_model: Bench) -> None:
    assert await any_model.model.check() is None


async def test_closing_twice_is_fine(any_model: Bench) -> None:
    await any_model.model.close()
    await any_model.model.close()


async def test_tokens_and_the_limit_are_told(remote: Bench) -> None:
    reply = await remote.model.generate(a_prompt())
    assert (reply.input_tokens, reply.output_tokens) == (11, 7)
    (call,) = remote.server.posts
    asked = json.dumps(call.body)
    assert "2048" in asked
    assert "valid_until" in asked


async def test_calls_run_side_by_side(remote: Bench) -> None:
    released = asyncio.Event()
    remote.server.script = [Late(released, Text("{}"))]
    waiting = [asyncio.create_task(remote.model.generate(a_prompt())) for _ in range(4)]
    await remote.server.called(4)
    released.set()
    assert [reply.text for reply in await asyncio.gather(*waiting)] == ["{}"] * 4


@pytest.mark.parametrize(
    "said",
    [
        "I am sorry, I cannot do that.",
        '{"facts": [{"content": "Ana adop',
        '{"action": "ADD"}',
        "対応できません。",
        "x" * 1_000_000,
        "",
    ],
    ids=["garbage", "half", "wrong-schema", "another-language", "1MB", "empty"],
)
async def test_a_bad_text_is_handed_on_and_found_malformed(remote: Bench, said: str) -> None:
    remote.server.script = [Text(said)]
    reply = await remote.model.generate(a_prompt())
    assert reply.text == said
    with pytest.raises(MalformedReply):
        read_extraction(reply.text)


@pytest.mark.parametrize("body", [b"<html>no model here</html>", b'{"response": ', b"[1, 2]", b""])
async def test_a_body_that_is_no_envelope_is_handed_on(remote: Bench, body: bytes) -> None:
    remote.server.script = [Raw(200, body)]
    reply = await remote.model.generate(a_prompt())
    assert reply.text == body.decode()


async def test_an_endless_answer_is_refused(remote: Bench) -> None:
    remote.server.script = [Raw(200, b" " * (5 * 1024 * 1024))]
    with pytest.raises(PermanentModelError, match="more than 4194304 bytes"):
        await remote.model.generate(a_prompt())


@pytest.mark.parametrize("silent", [Never(), Trickle()], ids=["never", "trickle"])
async def test_the_total_time_is_bounded(remote: Bench, silent: Never | Trickle) -> None:
    remote.server.script = [silent]
    model = remote.short()
    with pytest.raises(TransientModelError, match=r"did not answer within 0\.3 s"):
        await model.generate(a_prompt())
    await model.close()


async def test_cancelling_is_no_model_error(remote: Bench) -> None:
    remote.server.script = [Never()]
    task = asyncio.create_task(remote.model.generate(a_prompt()))
    await remote.server.called(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_too_many_requests_then_fine(remote: Bench) -> None:
    remote.server.script = [fails(429, "slow down", Retry_After="7"), Text("{}")]
    with pytest.raises(TransientModelError, match="slow down") as caught:
        await remote.model.generate(a_prompt())
    assert caught.value.retry_after == 7.0
    assert (await remote.model.generate(a_prompt())).text == "{}"


async def test_retry_after_may_be_a_date(remote: Bench) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=3_000), usegmt=True)
    remote.server.script = [fails(503, "down", Retry_After=later)]
    with pytest.raises(TransientModelError) as caught:
        await remote.model.generate(a_prompt())
    assert caught.value.retry_after is not None
    assert 2_000 < caught.value.retry_after <= 3_000


@pytest.mark.parametrize("value", ["nan", "soon", "-5", "1e300", ""])
async def test_a_strange_retry_after_does_no_harm(remote: Bench, value: str) -> None:
    remote.server.script = [fails(429, "slow down", Retry_After=value)]
    with pytest.raises(TransientModelError) as caught:
        await remote.model.generate(a_prompt())
    assert caught.value.retry_after in (None, 0.0, 3600.0)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_what_passes_with_time_is_transient(remote: Bench, status: int) -> None:
    remote.server.script = [*[fails(status, "not now")] * 5, Text("{}")]
    for _ in range(5):
        with pytest.raises(TransientModelError, match=str(status)):
            await remote.model.generate(a_prompt())
    assert (await remote.model.generate(a_prompt())).text == "{}"


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "not accepted as it is"),
        (401, "API key"),
        (403, "rights"),
        (404, "ollama pull|model's name"),
        (413, "context is too long"),
        (302, "correct the base URL"),
        (422, "not accepted"),
    ],
)
async def test_what_does_not_pass_is_permanent(remote: Bench, status: int, advice: str) -> None:
    remote.server.script = [fails(status, "never so")]
    with pytest.raises(PermanentModelError, match=advice) as caught:
        await remote.model.generate(a_prompt())
    assert "never so" in str(caught.value)
    assert len(remote.server.posts) == 1


async def test_a_prompt_too_long_says_so(remote: Bench) -> None:
    said = "This model's maximum context length is 4096 tokens; lower max_tokens or temperature"
    remote.server.script = [fails(400, said)]
    with pytest.raises(PermanentModelError, match="context is too long"):
        await remote.model.generate(a_prompt())


@pytest.mark.parametrize("broken", [Reset(), HalfBody()], ids=["reset", "half-body"])
async def test_a_broken_connection_is_transient(remote: Bench, broken: Reset | HalfBody) -> None:
    remote.server.script = [broken, Text("{}")]
    with pytest.raises(TransientModelError, match="broke the connection"):
        await remote.model.generate(a_prompt())
    assert (await remote.model.generate(a_prompt())).text == "{}"


@pytest.mark.parametrize("name", REMOTE)
async def test_nobody_there_is_transient_and_checked(name: str) -> None:
    with socket.socket() as taken:  # nobody listens there, and no other process can take it
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        model = connect(name, url)
        with pytest.raises(TransientModelError, match="cannot be reached"):
            await model.generate(a_prompt())
        problem = await model.check()
        assert problem is not None
        assert url in problem
        await model.close()


async def test_a_missing_model_is_told(remote: Bench) -> None:
    model = connect(remote.name, remote.server.url, model="qwen3:4b")
    problem = await model.check()
    assert problem is not None
    wanted = "ollama pull qwen3:4b" if remote.name == "ollama" else "correct the model's name"
    assert wanted in problem
    await model.close()


async def test_the_key_is_never_shown(remote: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    remote.server.script = [fails(401, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(PermanentModelError) as caught:
        await remote.model.generate(a_prompt())
    if remote.name != "ollama":
        assert any(KEY in value for value in remote.server.calls[0].headers.values())
        assert KEY not in str(caught.value)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    inside = repr(remote.model) + repr(vars(remote.model)) + str(vars(remote.model))
    assert KEY not in logged + inside


async def test_a_password_in_the_url_is_never_shown() -> None:
    model = OllamaLanguageModel(MODEL, "http://me:hush@127.0.0.1:1")
    problem = await model.check()
    assert problem is not None
    assert "hush" not in problem
    await model.close()


@pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://x", "http://"])
async def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(PermanentModelError, match="base URL"):
        OllamaLanguageModel(MODEL, url)


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("'response_format' of type 'json_schema' is not supported", "response_format"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'", "max_tokens"),
        ("'temperature' does not support 0 with this model", "temperature"),
    ],
)
async def test_openai_leaves_out_what_the_server_refuses(refusal: str, left: str) -> None:
    async with ScriptedProvider([fails(400, refusal), Text("{}")]) as server:
        model = connect("openai", server.url)
        assert (await model.generate(a_prompt())).text == "{}"
        assert (await model.generate(a_prompt())).text == "{}"
        first, second, third = server.posts
        assert left in first.body
        # Remembered: the second turn does not ask in vain again.
        assert left not in second.body
        assert left not in third.body
        await model.close()


async def test_openai_does_not_adapt_for_ever() -> None:
    refusal = "response_format, max_completion_tokens, temperature: all wrong"
    async with ScriptedProvider([fails(400, refusal)]) as server:
        model = connect("openai", server.url)
        with pytest.raises(PermanentModelError):
            await model.generate(a_prompt())
        assert len(server.posts) == 4
        await model.close()


@pytest.mark.parametrize(
    ("code", "error"), [(429, TransientModelError), (401, PermanentModelError)]
)
async def test_openai_finds_an_error_inside_a_200(code: int, error: type[Exception]) -> None:
    body = json.dumps({"error": {"message": "upstream", "code": code}}).encode()
    async with ScriptedProvider([Raw(200, body)]) as server:
        model = connect("openai", server.url)
        with pytest.raises(error, match="upstream"):
            await model.generate(a_prompt())
        await model.close()


async def test_half_a_surrogate_pair_does_not_break_the_request(remote: Bench) -> None:
    reply = await remote.model.generate(a_prompt("an emoji cut in half: \ud83d"))
    assert read_extraction(reply.text).facts[0].content == "an emoji cut in half: ?"


async def test_anthropic_takes_the_input_of_the_tool() -> None:
    blocks = [{"type": "text", "text": "Here:"}, {"type": "tool_use", "input": {"facts": []}}]
    async with ScriptedProvider([Raw(200, json.dumps({"content": blocks}).encode())]) as server:
        model = connect("anthropic", server.url)
        assert json.loads((await model.generate(a_prompt())).text) == {"facts": []}
        assert server.calls[0].headers["anthropic-version"]
        await model.close()


async def test_ollama_is_asked_for_one_constrained_answer() -> None:
    async with ScriptedProvider() as server:
        model = connect("ollama", server.url)
        await model.generate(a_prompt())
        body = server.calls[0].body
        assert body["stream"] is False
        assert isinstance(body["format"], dict)
        await model.close()


async def test_a_model_of_ollama_may_refuse_to_be_told_not_to_think() -> None:
    refusal = fails(400, '"scripted" does not support thinking')
    async with ScriptedProvider([refusal, Text("{}")]) as server:
        model = connect("ollama", server.url)
        for _ in range(2):
            assert (await model.generate(a_prompt())).text == "{}"
        assert ["think" in call.body for call in server.posts] == [True, False, False]
        await model.close()


async def test_the_latest_tag_of_ollama_is_implied() -> None:
    async with ScriptedProvider(models=["qwen3:latest"]) as server:
        model = connect("ollama", server.url, model="qwen3")
        assert await model.check() is None
        await model.close()
