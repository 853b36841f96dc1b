"""What the settings of stages and workers change."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import open_log
from palimpsest.schemas.commands import ForgetCommand, RecoverCommand, RememberCommand
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.models.base import Prompt, Reply
from palimpsest.streams.runtime.failures import StageFailed
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Context, Message, Stage
from palimpsest.streams.topology import stages
from tests.messages import commanded, published, turn
from tests.setting_lab import REMOTE_LLM, Case, Lab
from tests.unit import by_hand

BY_MODEL = ("decision.decider=model",)


async def turns_extracted(lab: Lab) -> object:
    spoken = turn("I like tea", 1)
    used = turn("The kettle is on", 2).model_copy(update={"role": "tool"})
    async with lab.ran(published(spoken), published(used)) as seen:
        return seen.purposes()["extract"]


async def context_shown(lab: Lab) -> object:
    """Earlier turns in what the model is asked about the last one."""
    async with lab.ran("Anise", "Borage", "Chervil", "Dill") as seen:
        last = next(p for p in seen.prompts if p.subject["content"] == "Dill")
        return [herb for herb in ("Anise", "Borage", "Chervil") if herb in last.user]


async def extraction_prompt(lab: Lab) -> Prompt:
    async with lab.ran("tea " * 100 + "saffron") as seen:
        return next(prompt for prompt in seen.prompts if prompt.purpose == "extract")


async def output_asked_for(lab: Lab) -> object:
    return (await extraction_prompt(lab)).max_output_tokens


async def whole_turn_is_shown(lab: Lab) -> object:
    return "saffron" in (await extraction_prompt(lab)).user


TOLD = "my pw is hunter2"
THE_NOTE = "my password is on the note"


async def what_is_kept(lab: Lab) -> object:
    async with lab.ran(TOLD, THE_NOTE) as seen:
        return seen.column("SELECT content FROM memory_rows WHERE type = 'episodic' ORDER BY 1")


async def raw_turns_left(lab: Lab) -> object:
    async with lab.ran(TOLD, THE_NOTE) as seen:
        return [record.offset for record in seen.app.log.read(CONVERSATION_TURNS.name, 0, 0, 10)]


LIKING = "Ana likes green tea with milk"
ALIKE = "Ana likes green tea with lemon"
NOW = "Now Ana likes green tea with lemon"


async def decisions_asked(lab: Lab) -> object:
    async with lab.ran(LIKING, ALIKE) as seen:
        return seen.purposes()["decide"]


async def decisions_asked_of_the_same(lab: Lab) -> object:
    async with lab.ran(LIKING, "Ana likes the green tea with milk") as seen:
        return seen.purposes()["decide"]


async def candidates_of(lab: Lab, *facts: str) -> list[list[dict[str, Any]]]:
    """The candidates that each proposal was decided with."""
    async with lab.ran(*facts) as seen:
        return [json.loads(found) for found in seen.column("SELECT candidates FROM proposals")]


async def candidates_seen(lab: Lab) -> object:
    herbs = [f"Ana grows {herb} in her garden" for herb in ("anise", "borage", "chervil", "dill")]
    return max(len(found) for found in await candidates_of(lab, *herbs))


async def leg_of_candidates(lab: Lab) -> object:
    """Which leg the score of a candidate is."""
    [known] = [one for found in await candidates_of(lab, LIKING, ALIKE) for one in found]
    return [leg for leg in ("keyword", "cosine") if known["score"] == known[leg]]


async def contradictions_asked(lab: Lab) -> object:
    async with lab.ran(LIKING, NOW) as seen:
        return seen.purposes()["contradict"]


async def memories_left(lab: Lab) -> object:
    async with lab.ran(LIKING, NOW) as seen:
        return seen.column(
            "SELECT content FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted ORDER BY 1"
        )


async def facts_of_doubt(lab: Lab) -> object:
    async with lab.ran("Ana may like tea~0.5") as seen:
        return len(seen.column("SELECT 1 FROM memory_rows WHERE type <> 'episodic'"))


async def remembering(lab: Lab) -> object:
    command = commanded(RememberCommand(content="Ana plays the harp"), 1)
    async with lab.ran(command) as seen:
        [error] = seen.column("SELECT error FROM command_results")
        return error


async def old_record_left(lab: Lab) -> object:
    with open_log(lab.settings, "process", lab.clock) as log:
        log.append([Outgoing("cache-invalidations", "ana", b"ana", b"{}", {})])
    lab.clock.advance(days=2)
    async with lab.ran() as seen:
        return len(seen.app.log.read("cache-invalidations", 0, 0, 10))


async def fate_of_a_late_decision(lab: Lab) -> object:
    """A decision on a version that has changed since."""
    settings = lab.loaded(*lab.flags, "pipeline.allow_update_delete=true")
    tea = by_hand.memory("tea", "Ana likes green tea", version=4)
    update = by_hand.proposal("Ana likes black tea", "UPDATE", target_id="tea", target_version=3)
    from palimpsest.schemas.messages import MemoryWrite

    message = by_hand.write_message(MemoryWrite(write=by_hand.proposals(update)))
    process = apply_writes_stage(settings).process(message, by_hand.context())
    return by_hand.drive(process, by_hand.Store.of(tea)).ends()[0][0]


async def recovering(lab: Lab) -> object:
    """The error of a recovery ten days after the forgetting."""
    async with lab.ran(commanded(RememberCommand(content="Ana plays the harp"), 1)) as seen:
        [memory_id] = seen.column("SELECT memory_id FROM memory_rows")
    forget = commanded(ForgetCommand(memory_ids=(memory_id,), reason="asked"), 2)
    async with lab.ran(forget):
        pass
    lab.clock.advance(days=10)
    late = commanded(RecoverCommand(memory_id=memory_id), 3)
    late = late.model_copy(update={"occurred_at": lab.clock.time})
    async with lab.ran(late) as seen:
        return seen.column("SELECT is_deleted FROM memory_rows")


async def entities_written(lab: Lab) -> object:
    async with lab.ran("Ana > likes > Lima / Ana likes Lima") as seen:
        return seen.column("SELECT name FROM entities ORDER BY 1")


async def batches_of_normalize(lab: Lab) -> object:
    async with lab.ran(*("tea " * 300 + str(n) for n in range(4))) as seen:
        return seen.batches("normalize")


async def kept_of_what_a_stop_meets(lab: Lab) -> object:
    """How many turns a stage has done that waited for its model when the worker was stopped."""
    begun, answered = asyncio.Event(), asyncio.Event()

    async def slow(prompt: Prompt) -> Reply:
        begun.set()
        await answered.wait()
        return Reply('{"facts": []}', "slow", "slow")

    async with application(lab.settings, clock=lab.clock) as app:
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn("Ana likes tea")))])
        lab.patch.setattr(app.language, "generate", slow)
        running = asyncio.create_task(app.run(until_drained=False))
        await begun.wait()
        app.stop()
        ending = asyncio.shield(running)
        if not await lab.happens(ending, 0.3, lab.expected == 0):
            answered.set()
        await running
        return app.log.position("extract", "turns-normalized", 0)


async def batches_of_extract(lab: Lab) -> object:
    async with lab.ran("a", "b", "c", "d") as seen:
        return seen.batches("extract")


async def fate_of_a_broken_stage(lab: Lab) -> object:
    """Dead letters of two records that the program has a bug with."""

    def broken(message: Message, context: Context) -> Any:
        raise ZeroDivisionError(message.id)

    def with_a_bug(settings: StageSettings, _: object) -> list[Stage]:
        return [
            replace(stage, process=broken) if stage.name == "normalize" else stage
            for stage in stages(settings)
        ]

    lab.patch.setattr("palimpsest.ops.maintenance.embedded.stages", with_a_bug)
    try:
        async with lab.ran("tea", "mint") as seen:
            return len(seen.column("SELECT 1 FROM dead_letter_rows"))
    except StageFailed:
        return "stopped"


async def fate_of_slow_records(lab: Lab) -> object:
    """Dead letters of two records for which the program takes a second, and for ever where that is
    expected to be too long: a busy machine must not let them through, nor stop others."""
    is_endless = lab.expected == 2

    def slowed(stage: Stage) -> Stage:
        def slow(message: Message, context: Context) -> Any:
            end = time.monotonic() + 1.0
            while is_endless or time.monotonic() < end:
                pass
            return (yield from stage.process(message, context))

        return replace(stage, process=slow) if stage.name == "normalize" else stage

    def slowed_stages(settings: StageSettings, _: object) -> list[Stage]:
        return [slowed(stage) for stage in stages(settings)]

    lab.patch.setattr("palimpsest.ops.maintenance.embedded.stages", slowed_stages)
    async with lab.ran("tea", "mint") as seen:
        return len(seen.column("SELECT 1 FROM dead_letter_rows"))


async def tries_to_read(lab: Lab) -> object:
    async with lab.ran("? no JSON") as seen:
        return len(seen.prompts)


CASES: dict[str, Case] = {
    "extraction.roles": Case(turns_extracted, ("user", "user,tool"), (1, 2)),
    "extraction.context_turns": Case(context_shown, (0, 2), ([], ["Borage", "Chervil"])),
    "extraction.max_output_tokens": Case(output_asked_for, (64, 128), (64, 128)),
    "extraction.max_input_characters": Case(whole_turn_is_shown, (100, 10_000), (False, True)),
    "decision.decider": Case(decisions_asked, ("rules", "model"), (0, 1)),
    "decision.exact": Case(decisions_asked_of_the_same, (0.2, 1.0), (0, 1), BY_MODEL),
    "decision.near": Case(
        decisions_asked, (0.0, 1.0), (1, 0), (*BY_MODEL, "decision.min_score=0.5")
    ),
    "decision.candidates": Case(candidates_seen, (1, 3), (1, 3)),
    "decision.min_score": Case(candidates_seen, (1.0, 0.0), (0, 3)),
    "decision.semantic_contradiction": Case(
        contradictions_asked, ("false", "true"), (0, 1), BY_MODEL
    ),
    "pipeline.enabled": Case(memories_left, ("false", "true"), ([], [LIKING, NOW])),
    "pipeline.shadow_mode": Case(memories_left, ("true", "false"), ([], [LIKING, NOW])),
    "pipeline.allow_update_delete": Case(
        memories_left, ("false", "true"), ([LIKING], [NOW]),
        BY_MODEL,
    ),
    "pipeline.mutations_frozen": Case(
        remembering, ("true", "false"),
        ("frozen: memory may not be changed now (flag mutations_frozen)", None),
    ),
    "pipeline.autonomous_frozen": Case(old_record_left, ("true", "false"), (1, 0)),
    "pipeline.min_fact_confidence": Case(facts_of_doubt, (0.7, 0.4), (0, 1)),
    "pipeline.max_reconsiderations": Case(
        fate_of_a_late_decision, (0, 3), ("created", "reconsidered")
    ),
    # Past the window the memory is swept when the worker starts.
    "pipeline.recovery_days": Case(recovering, (5, 30), ([], [False])),
    "pii.mode": Case(
        what_is_kept, ("reject", "off"), (["my pw is [REDACTED:password]"], [THE_NOTE, TOLD])
    ),
    "pii.kinds": Case(
        what_is_kept, ("phone", "phone,password"),
        ([THE_NOTE, TOLD], [THE_NOTE, "my pw is [REDACTED:password]"]),
    ),
    "pii.purge_raw": Case(raw_turns_left, ("true", "false"), ([1], [0, 1])),
    "search.candidate_alpha": Case(leg_of_candidates, (0.0, 1.0), (["keyword"], ["cosine"])),
    "graph.enabled": Case(entities_written, ("false", "true"), ([], ["Ana", "Lima"])),
    "graph.extraction_writes_enabled": Case(
        entities_written, ("false", "true"), ([], ["Ana", "Lima"])
    ),
    "worker.batch_records": Case(batches_of_normalize, (1, 512), (4, 1)),
    "worker.batch_bytes": Case(batches_of_normalize, (1_024, 4_194_304), (4, 1)),
    "worker.model_batch_records": Case(batches_of_extract, (1, 8), (4, 1), REMOTE_LLM),
    "worker.batch_seconds": Case(
        batches_of_extract, (0.000001, 60), (4, 2), (*REMOTE_LLM, "llm.concurrency=1")
    ),
    "worker.stop_seconds": Case(kept_of_what_a_stop_meets, (0.0, 60), (0, 1)),
    "worker.max_failures": Case(fate_of_a_broken_stage, (0, 100), ("stopped", 2)),
    "worker.record_seconds": Case(fate_of_slow_records, (1.5, 60), (2, 0)),
    "worker.max_attempts": Case(tries_to_read, (1, 3), (1, 3)),
}  # fmt: skip
