"""Further deciders: they propose beside the live one, and never get in its way."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance import shadow_deciding
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import SettingsError, load_settings
from palimpsest.schemas.commands import ForgetCommand, RecordShadowProposalsCommand, ShadowProposal
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.streams.logs.base import LogError, Outgoing
from palimpsest.streams.runtime.output import outgoing
from tests.erased_bytes import where
from tests.flows.program import until
from tests.harness import Clock
from tests.messages import HUMAN, commanded, published, turn
from tests.servers import Behaviour, HalfBody, Late, Raw, Reset, ScriptedProvider, Text, fails

SAID = (
    "I drink coffee every morning.",
    "I don't drink coffee every morning anymore.",
    "I drink coffee in the garden at weekends.",
)
UNREADABLE = Text("I would rather not say.")


def settings_of(folder: Path, *flags: str) -> Settings:
    given = ("embedding.provider=hashing", "store.memory_limit=128", *flags)
    return load_settings(given, folder, None, {}).settings


def say(app: Application, *texts: str, first: int = 0, scope: str = "ana") -> None:
    for number, text in enumerate(texts, first):
        message = published(turn(text, number), scope)
        app.log.append([outgoing(CONVERSATION_TURNS, message)])


def rows(app: Application, query: str) -> list[dict[str, Any]]:
    with app.shards[0].reading() as reader:
        result = reader.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def shadows(app: Application) -> list[dict[str, Any]]:
    return rows(app, "SELECT * FROM main.shadow_proposals ORDER BY decider, item_id")


@contextlib.asynccontextmanager
async def ran(settings: Settings, *texts: str) -> AsyncIterator[Application]:
    """The program after it has processed these turns."""
    async with application(settings, clock=Clock()) as app:
        say(app, *texts)
        await app.run(until_drained=True)
        yield app


def of(server: ScriptedProvider, model: str = "scripted") -> str:
    return f"openai/{model}@{server.url}/v1"


async def test_what_they_propose_is_recorded_and_nothing_of_it_done(tmp_path: Path) -> None:
    async with ScriptedProvider() as server:
        named = f"pipeline.shadow_deciders=rules,{of(server)}"
        async with ran(settings_of(tmp_path / "with", named), *SAID) as app:
            found = shadows(app)
            by_decider = {each["decider"]: each for each in found if each["live_action"] != "ADD"}
            assert len(found) == 2 * len(rows(app, "SELECT DISTINCT item_id FROM shadow_proposals"))
            same = by_decider["rules"]
            assert (same["action"], same["live_action"], same["agrees"]) == (
                "UPDATE",
                "UPDATE",
                True,
            )
            other = by_decider[of(server)]
            assert (other["action"], other["agrees"], other["input_tokens"]) == ("ADD", False, 11)
            assert app.models.usage.by_provider.get("llm:openai") is None
            counted = app.models.usage.of(f"shadow:{of(server)}")
            assert counted.calls == len(server.posts) > 0
            assert counted.output_tokens == 7 * counted.calls
            with app.shards[0].reading() as reader:
                tables = "memory_rows", "proposals", "outcomes", "held_proposals"
                kept = [reader.execute(f"SELECT count(*) FROM {t}").fetchone() for t in tables]
            settings = settings_of(tmp_path / "without")
        async with ran(settings, *SAID) as app:
            with app.shards[0].reading() as reader:
                assert kept == [
                    reader.execute(f"SELECT count(*) FROM {t}").fetchone() for t in tables
                ]


FAILING: list[Behaviour] = [UNREADABLE, Reset(), HalfBody(), fails(401, "no key"), Raw(500)]


@pytest.mark.parametrize("failing", FAILING, ids=lambda behaviour: type(behaviour).__name__)
async def test_one_that_fails_says_why_and_all_else_goes_on(
    failing: Behaviour, tmp_path: Path
) -> None:
    async with ScriptedProvider([failing]) as server:
        named = f"pipeline.shadow_deciders={of(server)},rules"
        async with ran(settings_of(tmp_path, named), *SAID) as app:
            found = shadows(app)
            failed = [each for each in found if each["decider"] == of(server)]
            assert failed
            assert all(each["action"] is None and each["error"] for each in failed)
            assert all(each["agrees"] for each in found if each["decider"] == "rules")
            assert rows(app, "SELECT * FROM dead_letter_rows") == []


async def test_one_that_never_answers_holds_up_no_decision(tmp_path: Path) -> None:
    """Turns are decided while it is silent; then its time is over."""
    async with ScriptedProvider() as server:
        settings = settings_of(tmp_path, f"pipeline.shadow_deciders={of(server)}")
        never = asyncio.Event()
        server.script = [Late(never, Text("{}"))]
        async with application(settings, clock=Clock()) as app:
            say(app, *SAID[:2])
            running = asyncio.create_task(app.run(until_drained=True))
            async with asyncio.timeout(60):
                await server.called(1)
                say(app, "My sister is called Nora.", first=7)
                await asyncio.to_thread(until, lambda: is_decided(app, "Nora"))
            assert shadows(app) == []
            never.set()
            async with asyncio.timeout(60):
                await running
            assert {each["error"] is None for each in shadows(app)} == {False}


def is_decided(app: Application, word: str) -> bool:
    """Whether a fact with the word was decided about."""
    query = "SELECT content FROM proposals JOIN fact_rows USING (item_id)"
    return any(word in row["content"] for row in rows(app, query))


async def test_many_facts_at_once_are_many_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_deciding, "IN_A_COMMAND", 2)
    named = "pipeline.shadow_deciders=rules"
    again = [f"I drink {thing} every morning." for thing in ("coffee", "coffees", "coffee too")]
    async with ran(settings_of(tmp_path, named), *SAID, *again) as app:
        [given] = rows(app, "SELECT count(*) AS n FROM command_results")
        assert given["n"] == -(-len(shadows(app)) // 2) > 1


async def test_its_time_is_over(tmp_path: Path) -> None:
    async with ScriptedProvider(latency_s=5) as server:
        flags = (f"pipeline.shadow_deciders={of(server)}", "pipeline.shadow_seconds=0.05")
        async with ran(settings_of(tmp_path, *flags), *SAID[:2]) as app:
            assert {each["action"] for each in shadows(app)} == {None}


async def test_they_begin_with_what_comes_after_they_were_set(tmp_path: Path) -> None:
    named = "pipeline.shadow_deciders=rules"
    async with ran(settings_of(tmp_path), *SAID[:2]) as app:
        assert shadows(app) == []
    async with application(settings_of(tmp_path, named), clock=Clock()) as app:
        await app.run(until_drained=True)
        assert shadows(app) == []
        say(app, SAID[2], first=5)
    async with application(settings_of(tmp_path, named), clock=Clock()) as app:
        await app.run(until_drained=True)
        first = len(shadows(app))
        assert first == 1
    # While none is set, what comes is not theirs.
    async with application(settings_of(tmp_path), clock=Clock()) as app:
        say(app, "I don't drink coffee in the garden at weekends anymore.", first=6)
        await app.run(until_drained=True)
    async with application(settings_of(tmp_path, named), clock=Clock()) as app:
        await app.run(until_drained=True)
        assert len(shadows(app)) == first


async def test_who_folds_the_log_has_what_they_said_and_asks_nobody(tmp_path: Path) -> None:
    query = "SELECT * FROM internal.shadow_proposals ORDER BY ALL"
    async with ScriptedProvider() as server:
        named = f"pipeline.shadow_deciders=rules,{of(server)}"
        async with ran(settings_of(tmp_path / "live", named), *SAID) as app:
            said = rows(app, query)
        assert said
        asked = len(server.posts)
        shutil.copytree(tmp_path / "live" / "log", tmp_path / "anew" / "log")
        anew = settings_of(tmp_path / "anew", named)
        await rebuild(anew, Rebuild(swap=True))
        async with application(anew, clock=Clock()) as app:
            assert rows(app, query) == said
        assert len(server.posts) == asked


async def test_interrupted_at_any_moment_they_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before and after what they said is in the log, and before they know that."""
    loop = asyncio.get_running_loop()
    query = "SELECT * EXCLUDE (latency_ms) FROM internal.shadow_proposals ORDER BY ALL"
    async with ScriptedProvider() as server:
        named = f"pipeline.shadow_deciders=rules,{of(server)}"
        async with ran(settings_of(tmp_path / "whole", named), *SAID) as app:
            whole = rows(app, query)
        for place in ("before", "after"):
            settings = settings_of(tmp_path / place, named)
            async with application(settings, clock=Clock()) as app:
                say(app, *SAID)
                keep, stopped = app.deciding.append, asyncio.Event()

                def appended(
                    records: Sequence[Outgoing],
                    keep: Callable[[Sequence[Outgoing]], object] = keep,
                    stopped: asyncio.Event = stopped,
                    loop: asyncio.AbstractEventLoop = loop,
                    place: str = place,
                ) -> None:
                    if place == "after":
                        keep(records)
                    loop.call_soon_threadsafe(stopped.set)
                    raise LogError("the process ends here")

                monkeypatch.setattr(app.deciding, "append", appended)
                running = asyncio.create_task(app.run(until_drained=True))
                await stopped.wait()
                app.stop()
                await running
            async with application(settings, clock=Clock()) as app:
                await app.run(until_drained=True)
                assert rows(app, query) == whole
                assert rows(app, "SELECT * FROM dead_letter_rows") == []


async def test_nobody_else_may_say_what_they_said(tmp_path: Path) -> None:
    forged = RecordShadowProposalsCommand(
        proposals=(ShadowProposal(item_id="x", turn_memory_id="y", decider="rules", action="ADD"),)
    )
    async with application(settings_of(tmp_path), clock=Clock()) as app:
        app.log.append([outgoing(MEMORY_COMMANDS, commanded(forged, 1, actor=HUMAN))])
        await app.run(until_drained=True)
        assert rows(app, "SELECT * FROM internal.shadow_proposals") == []
        [result] = rows(app, "SELECT error FROM command_results")
        assert result["error"].startswith("forbidden")


async def test_erasing_takes_what_they_said_of_a_text(tmp_path: Path) -> None:
    secret = "it contradicts the flowerpot"
    reply = Text(f'{{"action": "ADD", "targetId": null, "confidence": 0.9, "reason": "{secret}"}}')
    async with ScriptedProvider([reply]) as server:
        settings = settings_of(tmp_path, f"pipeline.shadow_deciders={of(server)}")
        async with ran(settings, *SAID) as app:
            assert where(tmp_path, secret)
            ids = tuple(turn_memory_id("ana", f"t{n}") for n in range(len(SAID)))
            order = ForgetCommand(memory_ids=ids, reason="asked", hard=True, cascade=True)
            app.log.append([outgoing(MEMORY_COMMANDS, commanded(order, 50))])
        async with application(settings, clock=Clock()) as app:
            await app.run(until_drained=True)
        assert where(tmp_path, secret) == []


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("nobody", "provider/model"),
        ("openai", "provider/model"),
        ("openai/", "provider/model"),
        ("rules,rules", "twice"),
    ],
)
def test_a_decider_that_is_none_is_told(named: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=why):
        settings_of(tmp_path, f"pipeline.shadow_deciders={named}")
