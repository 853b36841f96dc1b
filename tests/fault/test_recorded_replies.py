"""Replies that were paid for outlive the process: who goes on asks for what is missing only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path

from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.operations.dead_letters import Redrive
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.commands import ForgetCommand
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.streams.models.recorded import FILE_NAME
from palimpsest.streams.runtime.output import outgoing
from tests.erased_bytes import where
from tests.flows.program import Program, until
from tests.harness import Clock
from tests.messages import commanded, published, turn
from tests.servers import Late, ScriptedProvider, Text

TURNS = tuple(f"I have visited the town of Number{number}" for number in range(6))
SECRET = "I keep the spare key under the third flowerpot"
PATIENCE_S = 60.0


def flags(server: ScriptedProvider, *more: str) -> list[str]:
    return [
        "llm.provider=openai",
        f"llm.base_url={server.url}/v1",
        "llm.model=scripted",
        "llm.concurrency=1",
        "embedding.provider=hashing",
        *more,
    ]


def settings_of(folder: Path, server: ScriptedProvider, *more: str) -> Settings:
    return load_settings(flags(server, *more), folder, None, {}).settings


def asked(server: ScriptedProvider) -> Counter[str]:
    """How often the model was asked about each turn or fact."""
    return Counter(json.dumps(call.body["messages"]) for call in server.posts)


def kept(folder: Path, query: str = "SELECT count(*) FROM replies") -> int:
    if not (folder / FILE_NAME).exists():
        return 0
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as file:
        return int(file.execute(query).fetchone()[0])


def say(app: Application, *texts: str, first: int = 0) -> None:
    for number, text in enumerate(texts, first):
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn(text, number)))])


async def test_a_killed_extraction_batch_is_paid_for_once(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(*TURNS), "--scope", "ana")
    never = asyncio.Event()
    good = [Text(json.dumps({"facts": [], "entities": []}))] * 3
    async with ScriptedProvider([*good, Late(never, good[0])]) as server:
        given = [part for each in flags(server) for part in ("--set", each)]
        process = await asyncio.create_subprocess_exec(
            *program.command("run", "--once", *given),
            cwd=program.folder,
            env=program.environment,
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE_S):
            await server.called(1 + 4)  # the first is the check of the model
            await asyncio.to_thread(until, lambda: kept(program.data) == 3)
            process.kill()
            await process.wait()
        first = asked(server)
        assert len(first) == 4
        server.script = []
        await asyncio.to_thread(program.ok, "run", "--once", *given)
        calls = asked(server)
        extractions = {said: count for said, count in calls.items() if "----- turn" in said}
        # The one that was under way came to no end, so nobody has its reply.
        lost = list(first)[3]
        assert extractions == dict.fromkeys(extractions, 1) | {lost: 2}
        assert len(extractions) == len(TURNS)
        told = json.loads(program.ok("status", "--json"))
        assert told["balance"]["turns"]["stored"] == len(TURNS)


async def test_a_reply_that_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    """By the next attempt, and by a redrive; what was recorded is the same again otherwise."""
    garbage = Text("I would rather not say.")
    async with ScriptedProvider([garbage]) as server:
        settings = settings_of(tmp_path, server)
        async with application(settings, clock=Clock()) as app:
            say(app, TURNS[0])
            await app.run(until_drained=True)
            assert len(server.posts) == 3
            server.script = [garbage, Text(json.dumps({"facts": [], "entities": []}))]
            server._answered = 0
            answer = await Redrive(all=True).read(sources_of(app))
            assert answer["refused"] == []
        async with application(settings, clock=Clock()) as app:
            await app.run(until_drained=True)
            assert len(server.posts) == 5
            # The dead letter, and that it was sent again.
            assert app.shards[0].cursor_of("audit", "dead-letters") == 2


async def test_what_no_stage_can_read_is_not_read_again_by_who_repeats_the_record(
    tmp_path: Path,
) -> None:
    """A model that gave nothing usable in all attempts has been mended: it is asked."""
    other = Text(json.dumps({"facts": [{"fact": "Ana adopted a dog."}]}))
    good = Text(json.dumps({"facts": [{"content": "Ana adopted a dog."}], "entities": []}))
    async with ScriptedProvider([other]) as server:
        settings = settings_of(tmp_path, server, "worker.max_attempts=2")
        async with application(settings) as app:
            say(app, "I adopted a dog.")
            await app.run(until_drained=True)
            assert kept(tmp_path) == 0
            [(reason,)] = app.shards[0].fetch("SELECT reason FROM dead_letter_rows")
            assert "of the reply has a text as content or text; they have 'fact'" in reason
        server.script = [good]
        async with application(settings) as app:
            say(app, "I adopted a dog.", first=1)
            await app.run(until_drained=True)
            stated = "SELECT count(*) FROM memory_rows WHERE content = 'Ana adopted a dog.'"
            assert app.shards[0].fetch(stated) == [(1,)]


async def test_erasing_takes_the_recorded_replies_of_the_scope(tmp_path: Path) -> None:
    async with ScriptedProvider() as server:
        settings = settings_of(tmp_path, server)
        async with application(settings, clock=Clock()) as app:
            say(app, SECRET, *TURNS[:2])
            other = published(turn(TURNS[3], 7), "ben")
            app.log.append([outgoing(CONVERSATION_TURNS, other)])
            await app.run(until_drained=True)
            of_ana = "SELECT count(*) FROM replies WHERE scope = 'ana'"
            assert kept(tmp_path, of_ana) >= 3
            [sealed] = _sealed(tmp_path)
            assert _holds(tmp_path, sealed)
            ids = (turn_memory_id("ana", "t0"),)
            order = ForgetCommand(memory_ids=ids, reason="asked", hard=True, cascade=True)
            app.log.append([outgoing(MEMORY_COMMANDS, commanded(order, 50))])
        async with application(settings, clock=Clock()) as app:
            await app.run(until_drained=True)
        assert kept(tmp_path, of_ana) == 0
        assert kept(tmp_path) == 1
        assert where(tmp_path, SECRET, "flowerpot") == []
        assert not _holds(tmp_path, sealed)


def _holds(folder: Path, sealed: bytes) -> bool:
    return any(sealed in path.read_bytes() for path in folder.rglob("replies*"))


def _sealed(folder: Path) -> list[bytes]:
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as file:
        found = file.execute("SELECT sealed FROM replies WHERE scope = 'ana' LIMIT 1").fetchall()
    return [sealed for (sealed,) in found]


async def test_two_processes_and_another_folder_share_the_replies(tmp_path: Path) -> None:
    """As a re-extraction does that asks the same: it pays for nothing."""
    async with ScriptedProvider() as server:
        live = settings_of(tmp_path / "live", server)
        branch = settings_of(tmp_path / "branch", server)
        async with application(live, clock=Clock()) as app:
            say(app, *TURNS)
            await app.run(until_drained=True)
            paid = len(server.posts)
            async with application(branch, clock=Clock(), replies=app.replies) as again:
                say(again, *TURNS)
                await again.run(until_drained=True)
                used = again.models.usage.of("llm:openai")
                assert (used.calls, used.input_tokens) == (0, 0)
                assert used.recorded == paid
                with app.shards[0].reading() as one, again.shards[0].reading() as two:
                    assert state_hash(one) == state_hash(two)
            assert len(server.posts) == paid
        assert not (tmp_path / "branch" / FILE_NAME).exists()
