"""Giving commands and learning what became of them, as whatever serves others does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from palimpsest.ops.errors import KINDS, CommandError, RequestError, kind_of
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.forgetting import Forget
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.operations.operation import Operation, Read
from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.commanding import CommandRequest, Commands, SubmittedCommand
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.schemas.commands import (
    Command,
    ConfirmCommand,
    ForgetCommand,
    MemoryCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import command_digest, command_memory_id
from palimpsest.schemas.messages import MemoryWrite
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.stage import Context, Message, Process, Stage
from tests.flows.program import PATIENCE_S
from tests.harness import Pipeline
from tests.source_modules import ROOT

BOT = Actor(id="bot", type="agent")
TEA = RememberCommand(content="Ana likes green tea")


@dataclass
class Desk:
    """Takes commands to a pipeline that carries them out once they are in its log."""

    pipeline: Pipeline

    def __post_init__(self) -> None:
        pipeline = self.pipeline
        self.settings = pipeline.settings.model_copy(
            update={"log": pipeline.settings.log.model_copy(update={"max_record_bytes": 5_000})}
        )
        self.sources = Sources(
            self.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, self.append
        )
        self.queries = DirectQueries(self.sources)
        self.appended = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.count = 0
        self.commands = Commands(self.settings, self.append, self.asking)

    def append(self, records: Sequence[Outgoing]) -> None:
        self.pipeline.log.append(records)
        self.count += len(records)
        self.loop.call_soon_threadsafe(self.appended.set)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[DirectQueries]:
        yield self.queries

    async def ask(self, operation: Operation[Any]) -> Any:
        return await self.queries.answer(cast("Read[Any]", operation))

    async def give(self, command: Command, **fields: Any) -> SubmittedCommand:
        """The command with its result."""
        order = CommandRequest(fields.pop("scope", "ana"), command, **fields)
        self.appended.clear()
        submitting = asyncio.create_task(self.commands.submit(order, PATIENCE_S))
        appended = asyncio.create_task(self.appended.wait())
        await asyncio.wait({submitting, appended}, return_when=asyncio.FIRST_COMPLETED)
        appended.cancel()
        if not submitting.done():
            await self.pipeline.drain()
        return await submitting

    async def done(self, command: Command, **fields: Any) -> Any:
        return (await self.give(command, **fields)).result()

    async def refused(self, command: Command, **fields: Any) -> str:
        with pytest.raises(CommandError) as refused:
            (await self.give(command, **fields)).result()
        return refused.value.kind


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    with Pipeline(tmp_path) as pipeline:
        yield Desk(pipeline)


async def test_a_recall_after_an_answered_write_sees_it(desk: Desk) -> None:
    saved = await desk.done(TEA)
    assert (saved["deduped"], saved["version"]) == (False, 1)
    found = await desk.queries.answer(Recall("what does Ana like?", "ana"))
    assert isinstance(found, dict)
    assert saved["id"] in str(found["results"])
    assert (await desk.done(TEA))["deduped"] is True


async def test_what_is_not_waited_for_can_be_asked_later(desk: Desk) -> None:
    given = await desk.commands.submit(CommandRequest("ana", TEA))
    assert (given.answer, given.result()) == (None, None)
    assert await desk.commands.result(given.command_id, "ana", 0.01) is None
    await desk.pipeline.drain()
    answer = await desk.commands.result(given.command_id, "ana", PATIENCE_S)
    assert answer is not None
    assert SubmittedCommand(given.command_id, answer).result() == {
        "id": command_memory_id("ana", given.command_id),
        "deduped": False,
        "dedup": {"action": "stored_new", "existing_id": None},
        "version": 1,
        "current_version": None,
        "new_version": 1,
        "importance": 0.8,
        "categories": ["preferences"],
        "temporal_kind": "persistent",
        "valid_until": None,
    }


# --- idempotency ------------------------------------------------------------------------------


async def test_a_key_makes_a_retry_safe(desk: Desk) -> None:
    first = await desk.give(TEA, key="k")
    assert await desk.give(TEA, key="k") == first
    assert desk.count == 1
    # Not yet known: both are in the log, one is carried out.
    other = RememberCommand(content="Ana has a boat")
    given = [await desk.commands.submit(CommandRequest("ana", other, key="k2")) for _ in range(2)]
    assert desk.count == 3
    await desk.pipeline.drain()
    assert given[0] == given[1]
    [boat] = desk.pipeline.values("SELECT version FROM memory_rows WHERE content LIKE '%boat%'")
    assert boat == 1
    assert desk.pipeline.dead_letters() == []


async def test_a_key_is_for_one_command(desk: Desk) -> None:
    await desk.give(TEA, key="k")
    for other in (RememberCommand(content="Ana likes tea", pinned=True), SetFlagsCommand()):
        assert await desk.refused(other, key="k") == "idempotency_conflict"
    assert desk.count == 1
    # Others may use the same word for theirs.
    assert (await desk.done(TEA, key="k", scope="ben"))["deduped"] is False
    assert (await desk.done(TEA, key="k", actor=BOT))["deduped"] is True


async def test_a_key_that_two_use_at_once_is_for_the_first(desk: Desk) -> None:
    """Both look before either is carried out; who waits is told."""
    await desk.commands.submit(CommandRequest("ana", TEA, key="k"))
    other = RememberCommand(content="Ana has a boat")
    assert await desk.refused(other, key="k") == "idempotency_conflict"
    assert desk.pipeline.memories() == ["Ana likes green tea"]
    [dead] = desk.pipeline.dead_letters()
    assert dead.reason.startswith("command_id_conflict")


async def test_what_was_refused_while_frozen_is_done_under_its_key_later(desk: Desk) -> None:
    await desk.done(SetFlagsCommand(mutations_frozen=True))
    for _ in range(2):
        assert await desk.refused(TEA, key="k") == "frozen"
    await desk.done(SetFlagsCommand(mutations_frozen=False))
    assert (await desk.done(TEA, key="k"))["deduped"] is False
    assert (await desk.done(TEA, key="k"))["deduped"] is False  # the same answer again


def test_the_digest_tells_commands_of_one_form_apart() -> None:
    def digest(command: Command, scope: str = "ana", actor: Actor = BOT) -> str:
        return command_digest(scope, MemoryCommand(command=command, actor=actor))

    recover = RecoverCommand(memory_id="m", reason="r")
    assert digest(recover) != digest(ConfirmCommand(memory_id="m", reason="r"))
    assert digest(recover) != digest(recover, scope="ben")
    assert digest(recover) != digest(recover, actor=Actor(id="bot"))
    assert digest(recover) == digest(RecoverCommand(memory_id="m", reason="r", if_version=None))


# --- refusals ---------------------------------------------------------------------------------


async def test_every_refusal_tells_its_kind(desk: Desk) -> None:
    tea = (await desk.done(RememberCommand(content="Ana likes green tea")))["id"]
    assert await desk.refused(RecoverCommand(memory_id="nobody")) == "not_found"
    assert await desk.refused(RecoverCommand(memory_id=tea)) == "not_deleted"
    stale = ConfirmCommand(memory_id=tea, if_version=9)
    assert await desk.refused(stale) == "version_conflict"
    forget = ForgetCommand(memory_ids=(tea,), reason="private")
    await desk.done(forget)
    await desk.done(RememberCommand(content="ANA LIKES GREEN TEA"))
    recover = RecoverCommand(memory_id=tea)
    assert await desk.refused(recover) == "duplicate_content_hash"
    assert await desk.refused(recover, actor=BOT) == "forbidden"
    desk.pipeline.clock.advance(days=31)
    assert await desk.refused(recover) == "retention_expired"
    odd = forget.model_copy(update={"confirm_token": "odd"})
    assert await desk.refused(odd) == "confirm_mismatch"
    many = forget.model_copy(update={"memory_ids": tuple(map(str, range(26)))})
    assert await desk.refused(many) == "confirmation_required"
    assert await desk.refused(RememberCommand(content=" ")) == "invalid_request"
    long = RememberCommand(content="Ana sails", who="x" * 300)
    assert await desk.refused(long) == "invalid_request"


@pytest.mark.parametrize(
    ("scope", "content", "kind"),
    [
        ("", "Ana sails", "invalid_request"),
        ("x" * 257, "Ana sails", "invalid_request"),
        ("ana", "half \ud800", "invalid_request"),
        ("ana", "x" * 5_000, "too_large"),
    ],
)
async def test_what_is_refused_at_once_is_not_given(
    desk: Desk, scope: str, content: str, kind: str
) -> None:
    assert await desk.refused(RememberCommand(content=content), scope=scope) == kind
    assert desk.count == 0


async def test_a_command_that_fails_has_a_result(tmp_path: Path) -> None:
    """Its dead letter is all that is left of it."""

    def broken(stage: Stage) -> Stage:
        def process(message: Message, context: Context) -> Process:
            if isinstance(message.body, MemoryWrite):
                raise ValueError("a bug")
            return stage.process(message, context)

        return replace(stage, process=process)

    with Pipeline(tmp_path, spoiled=broken) as pipeline:
        desk = Desk(pipeline)
        assert await desk.refused(TEA, key="k") == "failed"
        assert await desk.refused(TEA, key="k") == "failed"
        assert desk.count == 1
        [dead] = pipeline.dead_letters()
        assert "a bug" in dead.reason


def test_every_error_of_a_stage_is_a_known_kind() -> None:
    told = set()
    for path in (ROOT / "streams").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        told |= set(re.findall(r'(?:Refused\(|return|error =|\()\s*f?"([a-z]+_?[a-z_]*): ', text))
    assert {"frozen", "not_found", "confirm_mismatch", "invalid_request"} <= told
    # These are no results of commands: the first command's is, and the others are of turns.
    of_turns = {"turn_id_conflict", "turn_id_erased"}
    of_turns |= {"turn_changed", "turn_forgotten", "turn_protected"}
    assert told - KINDS <= {"command_id_conflict"} | of_turns
    assert kind_of("something else: broke") == "failed"


def test_every_kind_is_documented() -> None:
    page = (ROOT / "ops" / "docs" / "changing.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) == {*KINDS, "deleted"}


# --- what to forget ---------------------------------------------------------------------------

SAID = ("I like green tea", "I have a boat in Oslo", "I work at Globex in Lima")


async def told(desk: Desk) -> dict[str, str]:
    """Ids of turns and facts by their content."""
    desk.pipeline.say(*SAID)
    await desk.pipeline.drain()
    rows = desk.pipeline.rows("SELECT memory_id, content FROM memory_rows")
    return {row["content"]: row["memory_id"] for row in rows}


async def asked(desk: Desk, **fields: Any) -> Any:
    return await desk.queries.answer(PreviewForget(scope=fields.pop("scope", "ana"), **fields))


async def test_a_preview_shows_what_goes_and_its_token_forgets_just_that(desk: Desk) -> None:
    ids = await told(desk)
    shown = await asked(desk, query="boat", types=("episodic",), limit=1, cascade=True)
    [candidate] = shown["candidates"]
    assert candidate["id"] == ids[SAID[1]]
    assert (candidate["version"], candidate["pinned"]) == (1, False)
    assert candidate["score"] > 0
    [along] = shown["cascade"]
    assert (along["content"], along["drawn_from"]) == ("Ana has a boat in Oslo.", [ids[SAID[1]]])
    selection = Forget(
        scope="ana", query="boat", types=("episodic",), limit=1, cascade=True, reason="sold"
    )
    confirmed = replace(selection, confirm_token=shown["confirm_token"])
    order = await confirmed.command(desk.ask, desk.settings)
    # Somebody changes what was shown: the command does not fit any more, at whatever moment.
    patch = MemoryPatch(memory_id=along["id"], pinned=True)
    await desk.done(ModifyCommand(patches=(patch,), reason="dear"))
    assert await desk.refused(order) == "confirm_mismatch"
    with pytest.raises(CommandError) as refused:
        await confirmed.command(desk.ask, desk.settings)
    assert refused.value.kind == "confirm_mismatch"
    again = await replace(selection, force=True).command(desk.ask, desk.settings)
    statuses = [row["status"] for row in await desk.done(again)]
    assert statuses == ["forgotten", "forgotten"]
    assert "boat" not in str(desk.pipeline.memories())


async def test_what_filters_choose(desk: Desk) -> None:
    ids = await told(desk)
    saved = await desk.done(RememberCommand(content="Ben sails", tags=("sea", "x"), who="Ben"))

    async def chosen(**fields: Any) -> set[str]:
        return {row["id"] for row in (await asked(desk, **fields))["candidates"]}

    turns = {ids[content] for content in SAID}
    assert await chosen(types=("episodic",)) == turns
    assert await chosen(tags=("sea", "land")) == {saved["id"]}
    assert await chosen(who="BEN") == {saved["id"]}
    assert await chosen(source_type="manual") == {saved["id"]}
    assert await chosen(source_type="manual", types=("episodic",)) == set()
    assert await chosen(memory_ids=(saved["id"], ids[SAID[0]]), tags=("sea",)) == {saved["id"]}
    assert await chosen(scope="ben", memory_ids=(saved["id"],)) == set()
    limited = await asked(desk, types=("episodic",), limit=2)
    assert (len(limited["candidates"]), limited["more"]) == (2, True)
    assert limited["needs_confirmation"] is True
    with pytest.raises(RequestError, match="nothing says what to forget"):
        checked(PreviewForget, {})
    with pytest.raises(RequestError, match="less than or equal to 200"):
        checked(PreviewForget, {"types": ("fact",), "limit": 201})


async def test_nothing_found_and_too_much_found(desk: Desk) -> None:
    with pytest.raises(CommandError) as refused:
        await Forget(scope="ana", types=("rule",), reason="r").command(desk.ask, desk.settings)
    assert refused.value.kind == "not_found"
    desk.pipeline.say(*(f"word {number}" for number in range(30)))
    await desk.pipeline.drain()
    everything = Forget(scope="ana", types=("episodic",), reason="r")
    with pytest.raises(CommandError, match="30 memories match") as refused:
        await everything.command(desk.ask, desk.settings)
    assert refused.value.kind == "confirmation_required"
    token = (await asked(desk, types=("episodic",)))["confirm_token"]
    order = await replace(everything, confirm_token=token).command(desk.ask, desk.settings)
    assert {row["status"] for row in await desk.done(order)} == {"forgotten"}
