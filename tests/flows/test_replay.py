"""`palimpsest replay`: the stores made anew beside the live ones, read, and put in their place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.operations.dead_letters import DeadLetters, Discard, Redrive
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.runtime.output import outgoing
from tests.flows.program import SAID, Program
from tests.messages import published, turn
from tests.rebuilding import opened, rebuilt, settings_of
from tests.servers import ScriptedProvider

EVERYTHING = "SELECT memory_id, content FROM memories ORDER BY ALL"


def test_stores_are_made_anew_read_and_exchanged(program: Program) -> None:
    assert "no branches" in program.ok("replay", "branches")
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("run", "--once")
    live = program.json("sql", EVERYTHING)
    with program.worker():
        done = program.json("replay", "rebuild")
        assert done["equal"] is True
        [partition] = done["partitions"]
        assert partition["compared"] is True
        assert (partition["differing"], partition["embedded"]) == ({}, 0)
        told = program.fails("replay", "rebuild", "--swap")
        assert "stop the worker" in told
        assert program.json("sql", EVERYTHING) == live
    assert program.json("sql", EVERYTHING, "--branch", "rebuild") == live
    said = program.json("recall", "walnuts", "--scope", "home", "--branch", "rebuild")
    assert "walnuts" in str(said)
    refused = program.fails("forget", "x", "--reason", "y", "--branch", "rebuild", code=2)
    assert "--branch is for commands that only read" in refused
    assert "no branch nowhere" in program.fails("sql", "SELECT 1", "--branch", "nowhere")
    swapped = program.json("replay", "rebuild", "--swap")
    assert swapped["swapped"] is True
    assert program.json("sql", EVERYTHING) == live
    [kept] = program.json("replay", "branches")["branches"]
    assert kept["name"] == swapped["kept"]
    assert program.json("sql", EVERYTHING, "--branch", kept["name"]) == live
    program.ok("replay", "drop", kept["name"])
    assert program.json("run", "--once")["balance"]["holds"] is True


def test_stores_made_anew_have_the_vectors_of_long_texts(program: Program) -> None:
    long = "The zebra report is long. " * 1_000
    program.ok("ingest", program.turns(long, *SAID), "--scope", "home")
    program.ok("run", "--once")
    live = program.json("stats")
    assert live["embedded"] == live["active"]
    assert program.json("replay", "rebuild")["equal"] is True
    assert program.json("stats", "--branch", "rebuild")["embedded"] == live["embedded"]


def test_as_of_a_moment_it_tells_what_was_known_then(program: Program) -> None:
    program.ok("ingest", program.turns(SAID[0]), "--scope", "home")
    program.ok("run", "--once")
    then = program.json("sql", EVERYTHING)
    [[moment]] = [
        [*row.values()]
        for row in program.json("sql", "SELECT max(created_at) AS at FROM memory_history")
    ]
    program.ok("ingest", program.turns("I am allergic to nuts.", name="more.jsonl", turn_id="u"))
    program.ok("run", "--once")
    assert program.json("sql", EVERYTHING) != then
    done = program.json("replay", "rebuild", "--until", moment, "--name", "then")
    assert done["partitions"][0]["not_compared"] == "as of a moment"
    assert program.json("sql", EVERYTHING, "--branch", "then") == then
    told = program.fails("replay", "rebuild", "--until", "99999", "--name", "x")
    assert "lies past it" in told
    assert "neither an offset nor a time" in program.fails(
        "replay", "rebuild", "--until", "some day", code=2
    )


def told(settings: Settings, *turns: ConversationTurn) -> None:
    async def telling() -> None:
        async with application(settings) as app:
            app.log.append([outgoing(CONVERSATION_TURNS, published(each)) for each in turns])
            await app.run(until_drained=True)

    asyncio.run(telling())


def test_no_model_is_asked(tmp_path: Path) -> None:
    async def all_of_it() -> tuple[int, int, bool]:
        async with ScriptedProvider() as server:
            flags = [
                *("llm.provider=openai", f"llm.base_url={server.url}", "llm.model=scripted"),
                *("embedding.provider=openai", f"embedding.base_url={server.url}"),
                *("embedding.model=scripted", "embedding.dimensions=256"),
            ]
            settings = load_settings(flags, tmp_path, None).settings
            turns = [turn(f"I have {number} bees and a dog.", number) for number in range(6)]
            await asyncio.to_thread(told, settings, *turns)
            before = len(server.calls)
            done = await asyncio.to_thread(rebuilt, settings, swap=True)
            return before, len(server.calls), done.is_equal and done.kept is not None

    before, after, is_equal = asyncio.run(all_of_it())
    assert before > 6
    assert after == before
    assert is_equal


def test_what_was_decided_of_dead_letters_is_in_the_log(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)

    async def deciding() -> None:
        async with queries(settings) as found:
            rows: Any = await found.answer(DeadLetters())
            one, other = sorted(str(row["id"]) for row in rows["dead_letters"])
            await found.answer(Discard((one,)))
            await found.answer(Redrive((other,)))

    with opened(tmp_path) as pipeline:
        pipeline.say("? one", "? other", "Ana lives in Oslo")
        pipeline.run()
    asyncio.run(deciding())
    with opened(tmp_path) as pipeline:
        pipeline.run()
        status = "SELECT status FROM dead_letter_rows ORDER BY ALL"
        assert pipeline.values(status) == ["dead", "dropped", "redriven"]
    done = rebuilt(settings, swap=True)
    assert (done.partitions[0].not_compared, done.partitions[0].differing) == (None, {})
    assert done.kept is not None


def test_as_of_an_offset_of_one_partition_the_others_are_as_they_were_then(tmp_path: Path) -> None:
    flags = ["llm.provider=rules", "embedding.provider=hashing", "log.partitions=2"]
    settings = load_settings(flags, tmp_path, None).settings
    scopes = {partition_for(scope, 2): scope for scope in ("ana", "ben", "cleo", "dora", "eva")}
    ends: list[tuple[int, int]] = []

    def say(partition: int, content: str, number: int) -> None:
        message = published(turn(content, number), scopes[partition])

        async def saying() -> None:
            async with application(settings) as app:
                app.log.append([outgoing(CONVERSATION_TURNS, message)])
                await app.run(until_drained=True)
                first, second = (app.log.end_offset(MEMORY_WRITES.name, each) for each in (0, 1))
                ends.append((first, second))

        asyncio.run(saying())

    for number, partition in enumerate((0, 1, 0, 1)):
        say(partition, f"I have {number} bees and a dog.", number)
    assert ends[0][1] == 0 < ends[1][1] < ends[3][1]
    assert 0 < ends[1][0] < ends[2][0]
    for name, until, then in (("begun", ends[1][1], ends[1]), ("whole", ends[3][1], ends[3])):
        done = rebuilt(settings, name=name, partition=1, until=until)
        assert tuple(each.offset for each in done.partitions) == then
