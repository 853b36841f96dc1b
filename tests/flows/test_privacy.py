"""A secret that is sent through every door is nowhere: not in a file, a topic, a log line, a
question to a model or an answer."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest import Memory
from palimpsest.schemas.commands import ModifyCommand, RememberCommand
from palimpsest.schemas.topics import ALL_TOPICS, CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.sensitive.settings import PiiSettings
from tests.flows.http_server import problem, server
from tests.flows.program import PATIENCE_S, Program, until
from tests.flows.test_http_program import serving, told
from tests.harness import Pipeline, pipeline_settings
from tests.messages import commanded, published, turn
from tests.servers import ScriptedProvider

DOORS = (
    *("http-turn", "http-line", "http-remember", "http-modify", "http-recall", "cli-ingest"),
    *("cli-remember", "cli-correct", "cli-recall", "library", "library-remember", "mcp"),
    *("topic-turn", "topic-command", "topic-unreadable"),
)


def secret(door: str) -> str:
    """A password of the door's own, so that a find tells where it came in."""
    return f"Zq7{door.replace('-', '')}9xK"


def forms(text: str) -> dict[str, bytes]:
    """The text as bytes, and what base64 makes of it at its three alignments."""
    plain = text.encode()
    found = {"plain": plain, "utf-16": text.encode("utf-16-le")}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        found[f"base64 at {shift}"] = encoded[4 * (shift > 0) : len(encoded) // 4 * 4 - 4]
    return found


def assert_clean(held: bytes, where: str) -> None:
    for door in DOORS:
        for form, searched in forms(secret(door)).items():
            assert searched not in held, f"the secret of {door} is in {where} ({form})"


def assert_clean_folder(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            assert_clean(path.read_bytes(), str(path.relative_to(folder)))


def assert_clean_topics(data: Path) -> int:
    """The number of records looked at."""
    count = 0
    with EmbeddedLog(data / "log", None, lambda: datetime.now(UTC), "read") as log:
        for topic in ALL_TOPICS:
            for record in log.read(topic.name, 0, 0, 100_000):
                count += 1
                assert_clean((record.key or b"") + (record.value or b""), topic.name)
                assert_clean(
                    json.dumps({k: str(v) for k, v in record.headers.items()}).encode(), ""
                )
    return count


def test_the_search_finds_what_is_there() -> None:
    for shift in range(3):
        with pytest.raises(AssertionError, match="mcp"):
            assert_clean(base64.b64encode(b"x" * shift + secret("mcp").encode() + b"yz"), "")
    with pytest.raises(AssertionError, match="library is in there"):
        assert_clean(b"a" + secret("library").encode(), "there")


@contextmanager
def provider() -> Iterator[ScriptedProvider]:
    """A model server in a thread of its own."""
    loop, serves = asyncio.new_event_loop(), ScriptedProvider()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(serves.start(), loop).result(30)
    try:
        yield serves
    finally:
        asyncio.run_coroutine_threadsafe(serves.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def said(door: str) -> str:
    return f"Ana wrote by {door} that her password is {secret(door)} for now."


def through_http(client: httpx.Client) -> str:
    answers = []
    body = {"turn_id": "h1", "content": said("http-turn"), "metadata": {"pw": secret("http-turn")}}
    answers.append(client.post("/api/turns", json=body))
    line = json.dumps({"turn_id": "h2", "content": said("http-line")})
    kind = {"Content-Type": "application/x-ndjson"}
    answers.append(client.post("/api/turns", content=line, headers=kind))
    kept = client.post(
        "/api/memory/remember?wait=60",
        json={"content": said("http-remember"), "tags": [f"pw={secret('http-remember')}"]},
    )
    answers.append(kept)
    change = {"content": said("http-modify"), "reason": f"password: {secret('http-modify')}"}
    path = f"/api/memory/{kept.json()['id']}"
    answers.append(client.patch(f"{path}?wait=60", json=change))
    question = {"query": f"whose password is {secret('http-recall')}?"}
    answers.append(client.post("/api/memory/recall", json=question))
    for answer in answers:
        assert answer.is_success, answer.text
    return "".join(answer.text for answer in answers[:-1])  # a question is told back to who asks


def through_programs(program: Program) -> str:
    turns = program.turns(said("cli-ingest"), name="cli.jsonl")
    answers = [program.ok("ingest", turns)]
    (program.folder / turns).unlink()
    kept = program.json("remember", said("cli-remember"), "--scope", "default")
    answers.append(json.dumps(kept))
    corrected = program.run("correct", kept["id"], said("cli-correct"), "--reason", "newer")
    answers += [corrected.stdout, corrected.stderr]
    program.ok("recall", f"the password {secret('cli-recall')}", "--scope", "default")
    return "".join(answers)


def through_the_library(program: Program) -> str:
    with Memory(
        program.data, scope="default", settings={"embedding.provider": "hashing"}
    ) as memory:
        memory.add(said("library"), speaker=f"pw={secret('library')}")
        return repr(memory.remember(said("library-remember")))


def through_the_topic(program: Program) -> None:
    """As a producer of another's: straight into the log."""
    odd = published(turn(said("topic-turn"), 7), scope="default")
    command = RememberCommand(content=said("topic-command"))
    refused = ModifyCommand.model_construct(patches=(), reason=said("topic-unreadable"))
    records = [
        outgoing(CONVERSATION_TURNS, odd),
        outgoing(MEMORY_COMMANDS, commanded(command, 7, scope="default")),
        outgoing(MEMORY_COMMANDS, commanded(refused, 8, scope="default")),
    ]
    with EmbeddedLog(program.data / "log", None, lambda: datetime.now(UTC), "publish") as log:
        log.append(records)


async def through_mcp(program: Program) -> str:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from mcp import Client

    from tests.flows.test_mcp import over_stdio

    async with Client(over_stdio(program, scope="default")) as client:
        return str(await client.call_tool("remember_fact", {"content": said("mcp")}))


def through_reading(client: httpx.Client) -> tuple[str, dict[str, Any]]:
    """What is told to who reads, and the status."""
    listed = client.get("/api/memories?limit=100")
    found = client.post("/api/memory/recall", json={"query": "what is Ana's password?"})
    assert (listed.status_code, found.status_code) == (200, 200)
    return listed.text + found.text, client.get("/api/pipeline/status").json()


def settled(client: httpx.Client) -> bool:
    return all(stage["lag"] == 0 for stage in client.get("/api/pipeline/status").json()["stages"])


def purged(program: Program) -> bool:
    with EmbeddedLog(program.data / "log", None, lambda: datetime.now(UTC), "read") as log:
        return all(
            log.position("purge", topic.name, 0) == log.end_offset(topic.name, 0)
            for topic in (CONVERSATION_TURNS, MEMORY_COMMANDS)
        )


async def test_a_secret_that_comes_in_by_any_door_is_nowhere(tmp_path: Path) -> None:
    with provider() as models:
        program = Program(
            tmp_path,
            PALIMPSEST_PII__PURGE_RAW="true",
            PALIMPSEST_LLM__PROVIDER="openai",
            PALIMPSEST_LLM__BASE_URL=f"{models.url}/v1",
            PALIMPSEST_LLM__MODEL="scripted",
            PALIMPSEST_EMBEDDING__PROVIDER="openai",
            PALIMPSEST_EMBEDDING__BASE_URL=f"{models.url}/v1",
            PALIMPSEST_EMBEDDING__MODEL="scripted",
            PALIMPSEST_EMBEDDING__DIMENSIONS="256",
        )
        with (
            serving(program) as (_, url),
            httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client,
        ):
            until(lambda: client.get("/ready").status_code == 200)
            heard = await asyncio.to_thread(through_http, client)
            heard += await asyncio.to_thread(through_programs, program)
            heard += await asyncio.to_thread(through_the_library, program)
            heard += await through_mcp(program)
            through_the_topic(program)
            await asyncio.to_thread(until, lambda: settled(client) and purged(program))
            shown, status = await asyncio.to_thread(through_reading, client)
            heard += shown + json.dumps(program.json("dead-letters", "list"))
            assert_clean_folder(tmp_path)
            assert assert_clean_topics(program.data) > 30
        assert_clean_folder(tmp_path)
        assert_clean(heard.encode(), "an answer")
        assert_clean(told(program).encode(), "a log line")
        asked = json.dumps([[call.path, dict(call.headers), call.body] for call in models.calls])
        assert_clean(asked.encode(), "a question to a model")
        assert asked.count("[REDACTED:password]") > len(DOORS)
        assert status["balance"]["holds"] is True
    contents = [row["content"] for row in program.json("list", "--limit", "100")["memories"]]
    assert sum("[REDACTED:password]" in content for content in contents) >= 8


# --- what is refused ----------------------------------------------------------------------------

UNCLEAR = "my password is on the note under the keyboard"


def test_over_http_a_text_that_cannot_be_made_safe_is_refused(tmp_path: Path) -> None:
    with server(tmp_path, "pii.mode=reject") as served, served.client() as client:
        body = {"turn_id": "t1", "content": UNCLEAR}
        assert "note" not in str(problem(client.post("/api/turns", json=body), 422, "pii_rejected"))
        kept = client.post("/api/memory/remember", json={"content": UNCLEAR})
        assert "note" not in str(problem(kept, 422, "pii_rejected"))
        both = [body, {"turn_id": "t2", "content": "I like tea"}]
        answer = client.post("/api/turns", json=both).json()
        assert (answer["accepted"], len(answer["refused"])) == (1, 1)
        assert "note" not in str(answer)
        served.settle(client)
    assert b"under the keyboard" not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_from_a_topic_it_is_counted_as_refused_and_the_balance_holds(tmp_path: Path) -> None:
    settings = pipeline_settings().model_copy(update={"pii": PiiSettings(mode="reject")})
    with Pipeline(tmp_path, settings) as pipeline:
        pipeline.say("I like tea", UNCLEAR, "my password is hunter2")
        pipeline.command(RememberCommand(content=UNCLEAR))
        assert pipeline.balance().turns["in_flight"] == 3
        assert pipeline.balance().holds
        pipeline.run()
        turns = pipeline.balance().turns
        assert (turns["stored"], turns["rejected"], turns["dead"]) == (2, 1, 0)
        assert pipeline.balance().holds
        [row] = pipeline.rows("SELECT reason FROM outcomes WHERE event = 'rejected'")
        assert row["reason"] == "pii_rejected"
        error, _ = pipeline.result()
        assert str(error).startswith("pii_rejected: ")
        raw = {CONVERSATION_TURNS.name, MEMORY_COMMANDS.name}
        for topic in ALL_TOPICS:
            for record in pipeline.log.read(topic.name, 0, 0, 100):
                assert topic.name in raw or b"keyboard" not in (record.value or b"")


def test_the_same_turn_sent_again_is_known_by_what_is_left_of_it(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.publish(published(turn("my password is hunter2", 1)))
        pipeline.publish(published(turn("my password is hunter3", 1), message_id="again"))
        pipeline.run()
        assert pipeline.balance().turns["stored"] == 1
        assert pipeline.balance().turns["dead"] == 0
        assert pipeline.balance().holds


def test_a_dead_letter_holds_no_secret(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        for value in (b"no JSON: password: hunter2", b'{"schema": "x/1", "text": "pw=hunter2"}'):
            pipeline.log.append([Outgoing(CONVERSATION_TURNS.name, "ana", b"ana", value)])
        pipeline.run()
        rows = pipeline.rows("SELECT value_base64, reason FROM dead_letter_rows")
        held = [base64.b64decode(str(row["value_base64"])) for row in rows]
        assert len(held) == 2
        assert all(b"[REDACTED:password]" in value and b"hunter2" not in value for value in held)
        assert pipeline.balance().turns["dead"] == 2
        assert pipeline.balance().holds
