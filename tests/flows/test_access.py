"""Reads are recorded, and reinforce what they returned."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory
from palimpsest.ops.lifecycle.access import RECORDER, AccessRecorder
from palimpsest.ops.lifecycle.accesses import MOST_NOTED, AccessBuffer, Accessed
from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.ops.operations.memories import Context, Get, Recall
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.provenance import Explain
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import AccessSettings, Settings
from palimpsest.schemas.commands import (
    EraseScopeCommand,
    ForgetCommand,
    RecalledMemory,
    RecordAccessCommand,
    RecordedRecall,
    RememberCommand,
    SetFlagsCommand,
    SetPrivacyCommand,
)
from palimpsest.schemas.identity import command_memory_id, erase_token
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import LogError, Outgoing
from palimpsest.streams.sensitive.settings import PiiSettings
from tests.erased_bytes import where
from tests.flows.test_erasing import assert_rebuilt_is_the_same
from tests.harness import FULL, Crash, Pipeline, pipeline_settings
from tests.messages import commanded

TEXTS = ("Ana likes green tea", "Ben works at a bakery in Ghent", "Rita lives in Porto")
TEA, BAKERY, PORTO = (command_memory_id("ana", commanded(RememberCommand(content=""), n).id)
                      for n in (1, 2, 3))  # fmt: skip


class Reader:
    """A process that answers reads of a pipeline's store, and records them."""

    def __init__(self, running: Pipeline, settings: Settings | None = None) -> None:
        self.running = running
        self.settings = settings or running.settings
        self.buffer = AccessBuffer(self.settings.access.record)
        self.fails = False

    def append(self, records: Any) -> object:
        if self.fails:
            raise LogError("the disk is full")
        given: list[Outgoing] = list(records)
        return self.running.log.append(given)

    def asks(self, *operations: Read[Any]) -> list[Any]:
        running = self.running
        known = (self.settings, running.log, {0: running.shard}, 1, running.embedding)
        sources = Sources(*known, self.append, now=running.clock, accesses=self.buffer)

        async def ask() -> list[Any]:
            return [await DirectQueries(sources).answer(each) for each in operations]

        found = asyncio.run(ask())
        sources.sql.close()
        return found

    @property
    def recorder(self) -> AccessRecorder:
        shards = {0: self.running.shard}
        return AccessRecorder(
            self.buffer, lambda: shards, self.append, self.settings, self.running.clock
        )

    def records(self, *operations: Read[Any]) -> list[Any]:
        """Answers, records and applies."""
        answers = self.asks(*operations)
        self.recorder.flush()
        self.running.run()
        return answers


@pytest.fixture
def running(tmp_path: Path) -> Any:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as made:
        made.command(*(RememberCommand(content=text) for text in TEXTS))
        made.run()
        yield made


def accesses(running: Pipeline) -> dict[str, int]:
    rows = running.rows("SELECT content, access_count FROM memory_rows WHERE access_count > 0")
    return {row["content"]: row["access_count"] for row in rows}


def recorded(running: Pipeline) -> int:
    [count] = running.values("SELECT count(*) FROM recalls")
    return int(count)


def test_reads_reinforce_what_they_returned(running: Pipeline, tmp_path: Path) -> None:
    reader = Reader(running)
    before = running.rows("FROM memory_rows WHERE memory_id = ?", TEA)[0]
    running.clock.advance(minutes=1)
    at = running.clock()
    found, block, _ = reader.asks(
        Recall("What does Ana like?", "ana", limit=2, session_id=None),
        Context("green tea", "ana", session_id="s9"),
        Get(TEA),
    )
    running.clock.advance(seconds=5)
    reader.recorder.flush()
    events = running.values("SELECT count(*) FROM history_rows")
    running.run()
    assert running.values("SELECT count(*) FROM history_rows") == events
    after = running.rows("FROM memory_rows WHERE memory_id = ?", TEA)[0]
    times = 1 + (TEA in [each["id"] for each in found["results"]])
    times += any(TEA in ids for ids in block["ids"].values())
    assert times == 3
    assert (after["access_count"], after["last_accessed"]) == (3, at)
    more = sum(0.05 * math.log(1 + n / 20) for n in (1, 2, 3))
    assert after["confidence"] == min(1.0, before["confidence"] + more)
    same = before | {name: after[name] for name in ("access_count", "last_accessed", "confidence")}
    assert after == same
    told = running.rows("FROM recalls ORDER BY kind")
    assert [(row["kind"], row["question"], row["session_id"]) for row in told] == [
        ("context", "green tea", "s9"),
        ("get", None, ""),
        ("recall", "What does Ana like?", ""),
    ]
    results = running.rows(
        "SELECT memory_id, rank, score FROM recall_results WHERE recall_id = ? ORDER BY rank",
        told[2]["recall_id"],
    )
    assert [(r["memory_id"], r["score"]) for r in results] == [
        (each["id"], each["score"]) for each in found["results"]
    ]
    [memory, explained] = reader.asks(Get(TEA), Explain(TEA))
    assert [each["kind"] for each in memory["recalls"]] == [
        each["kind"] for each in explained["memory"]["recalls"]
    ]
    assert {each["question"] for each in memory["recalls"]} == {
        "What does Ana like?", "green tea", None,
    }  # fmt: skip
    [again] = reader.asks(Recall("What does Ana like?", "ana", limit=1))
    assert again["results"][0]["last_accessed"][:19] == at.isoformat()[:19]
    assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_what_is_not_recorded(running: Pipeline) -> None:
    reader = Reader(running)
    now = running.clock()
    reader.records(
        Recall("tea", "ana", as_of=now),
        Recall("tea", "ana", record=False),
        Context("tea", "ana", record=False),
        Explain(TEA),
    )
    off = Settings(access=AccessSettings(record=False))
    Reader(running, off).records(Recall("tea", "ana"), Get(TEA))
    assert (recorded(running), accesses(running)) == (0, {})
    assert len(running.records(MEMORY_COMMANDS)) == len(TEXTS)


@pytest.mark.parametrize(
    "forbidding",
    [SetFlagsCommand(mutations_frozen=True), SetPrivacyCommand(level="full")],
)
def test_frozen_and_private_scopes(running: Pipeline, forbidding: Any) -> None:
    reader = Reader(running)
    reader.asks(Recall("tea", "ana"))
    early = reader.recorder
    running.command(forbidding, first=10)
    running.run()
    count = len(running.records(MEMORY_COMMANDS))
    early.flush()
    assert len(running.records(MEMORY_COMMANDS)) == count
    # One that was appended before the store knew.
    recall = RecordedRecall(recall_id="r", kind="get", at=running.clock(), question="q")
    running.command(RecordAccessCommand(recalls=(recall,)), first=11, actor=RECORDER)
    running.run()
    assert str(running.result(11)[0]).startswith(("frozen", "private"))
    assert (recorded(running), accesses(running)) == (0, {})


def test_a_person_of_whom_nothing_is_kept_leaves_no_question(running: Pipeline) -> None:
    running.command(SetPrivacyCommand(person="Eva", level="full"), first=10)
    running.run()
    recall = RecordedRecall(
        recall_id="r",
        kind="get",
        at=running.clock(),
        asked_by="Eva",
        results=(RecalledMemory(memory_id=TEA, rank=1),),
    )
    running.command(RecordAccessCommand(recalls=(recall,)), first=11, actor=RECORDER)
    running.run()
    assert (recorded(running), accesses(running)) == (0, {TEXTS[0]: 1})


def test_only_the_worker_records(running: Pipeline) -> None:
    recall = RecordedRecall(recall_id="r", kind="get", at=running.clock())
    running.command(RecordAccessCommand(recalls=(recall,)), first=11)
    running.run()
    assert str(running.result(11)[0]).startswith("forbidden")


def test_another_scope_and_unknown_or_forgotten_memories_are_skipped(running: Pipeline) -> None:
    running.command(ForgetCommand(memory_ids=(BAKERY,), reason="wrong"), first=10)
    running.run()
    later = running.clock() + timedelta(days=9)
    ids = (TEA, BAKERY, "no such memory", TEA)
    results = tuple(RecalledMemory(memory_id=each, rank=n) for n, each in enumerate(ids, 1))
    recall = RecordedRecall(recall_id="r", kind="recall", at=later, results=results)
    command = RecordAccessCommand(recalls=(recall,))
    running.command(command, first=11, actor=RECORDER, scope="ben")
    running.run()
    assert accesses(running) == {}
    other = command.model_copy(update={"recalls": (recall.model_copy(update={"recall_id": "s"}),)})
    running.command(other, first=12, actor=RECORDER)
    running.run()
    assert accesses(running) == {TEXTS[0]: 1}
    [row] = running.rows("FROM memory_rows WHERE memory_id = ?", TEA)
    assert row["last_accessed"] == running.clock()  # not later than its record
    found = running.rows("FROM recall_results")
    assert [(each["scope"], each["memory_id"], each["rank"]) for each in found] == [("ana", TEA, 1)]
    [seen] = Reader(running).asks(Get(TEA))
    assert [each["kind"] for each in seen["recalls"]] == ["recall"]


def test_questions_lose_secrets_or_are_not_kept(running: Pipeline) -> None:
    said = "my password is hunter2secret, what does Ana like?"
    Reader(running).records(Recall(said, "ana"), Recall("what does ana  like", "ana"))
    plain = Settings(access=AccessSettings(keep_questions=False))
    Reader(running, plain).records(Recall("What does Ana like?", "ana"))
    refusing = Settings(pii=PiiSettings(mode="reject"))
    Reader(running, refusing).records(
        Recall("my password is the name of my dog, which one?", "ana")
    )
    rows = running.rows("FROM recalls ORDER BY question NULLS LAST")
    texts = [row["question"] for row in rows]
    assert "hunter2secret" not in str(rows)
    assert texts[0] == "my password is [REDACTED:password], what does Ana like?"
    assert texts[1:] == ["what does ana like", None, None]
    # Equal questions have one id, a refused one has none.
    assert len({row["question_id"] for row in rows}) == 3
    assert None in {row["question_id"] for row in rows}


def test_an_erased_memory_leaves_the_recalls_that_returned_it(
    running: Pipeline, tmp_path: Path
) -> None:
    reader = Reader(running)
    reader.records(Recall("what is the green secret of Ana", "ana"), Get(PORTO))
    assert where(tmp_path, "green secret")
    returned = running.values("SELECT memory_id FROM recall_results WHERE rank <= 3")
    assert {TEA, PORTO} <= set(returned)
    running.command(ForgetCommand(memory_ids=(TEA,), reason="asked for", hard=True), first=20)
    running.run()
    execute_in(running.log, 0, running.shard)
    assert where(tmp_path, "green secret", TEXTS[0]) == []
    [row] = running.rows("FROM recalls WHERE kind = 'recall'")
    assert (row["question"], row["question_id"]) == (None, None)
    assert TEA not in running.values("SELECT memory_id FROM recall_results")
    assert TEA.encode() not in b"".join(
        part.partition(b'"erased"')[0]
        for record in running.records(MEMORY_COMMANDS)
        if b"record-access" in (part := record.value or b"")
    )
    assert accesses(running)[TEXTS[2]] == 2
    assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_recall_that_is_recorded_after_the_erasure(running: Pipeline, tmp_path: Path) -> None:
    """It was answered before, and appended when the log had been gone through."""
    reader = Reader(running)
    reader.asks(Recall("what is the green secret of Ana", "ana"))
    running.command(ForgetCommand(memory_ids=(TEA,), reason="asked for", hard=True), first=20)
    running.run()
    execute_in(running.log, 0, running.shard)
    reader.recorder.flush()
    running.run()
    assert running.values("SELECT question FROM recalls") == [None]
    assert running.shard.has_erasures
    execute_in(running.log, 0, running.shard)
    assert where(tmp_path, "green secret") == []
    assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_an_erased_scope_has_no_recalls(running: Pipeline, tmp_path: Path) -> None:
    running.command(RememberCommand(content=TEXTS[0]), scope="ben")
    running.run()
    Reader(running).records(Recall("green secret", "ana"), Recall("blue secret", "ben"))
    token = erase_token("ana", len(TEXTS))
    running.command(EraseScopeCommand(reason="asked", confirm_token=token), first=20)
    running.run()
    execute_in(running.log, 0, running.shard)
    assert where(tmp_path, "green secret") == []
    assert running.values("SELECT DISTINCT scope FROM recalls") == ["ben"]
    assert running.values("SELECT DISTINCT scope FROM recall_results") == ["ben"]
    assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize("step", ["step", "commit", "send"])
def test_a_crash_between_append_and_apply(running: Pipeline, step: str, tmp_path: Path) -> None:
    reader = Reader(running)
    reader.asks(Recall("tea", "ana"), Get(TEA))
    reader.recorder.flush()
    running.crash_at("apply-writes", step)
    with pytest.raises(Crash):
        running.run()
    running.reopen().run()
    assert recorded(running) == 2
    assert accesses(running)[TEXTS[0]] == 2
    assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_retry_doubles_nothing(running: Pipeline) -> None:
    reader = Reader(running)
    reader.asks(Get(TEA))
    recorder = reader.recorder
    reader.fails = True
    with pytest.raises(LogError):
        recorder.flush()
    reader.fails = False
    reader.asks(Get(TEA))
    unsent = [*recorder._unsent]
    recorder.flush()
    reader.append(unsent)  # as after a time-out of what was appended all the same
    recorder.flush()
    running.run()
    assert accesses(running) == {TEXTS[0]: 2}
    assert recorded(running) == 2


def test_many_reads_are_several_commands(running: Pipeline) -> None:
    reader = Reader(running)
    for number in range(300):
        results = tuple((TEA if n == 0 else f"other{n}", 0.5) for n in range(60))
        read = Accessed("recall", "ana", results, f"question {number} {'x' * 5_000}")
        reader.buffer.note(read, running.clock())
    count = len(running.records(MEMORY_COMMANDS))
    reader.recorder.flush()
    sizes = [len(each.value or b"") for each in running.records(MEMORY_COMMANDS)[count:]]
    assert len(sizes) > 30
    assert max(sizes) < 100_000
    running.run()
    assert accesses(running) == {TEXTS[0]: 300}


def test_the_buffer_is_bounded() -> None:
    buffer = AccessBuffer()
    now = commanded(RememberCommand(content=""), 1).occurred_at
    for number in range(MOST_NOTED + 5):
        buffer.note(Accessed("get", "ana", ((str(number), None),)), now)
    taken = buffer.taken()
    assert len(taken) == MOST_NOTED
    assert taken[0].accessed.results == (("5", None),)
    assert buffer.taken() == []


def test_the_library_records_at_a_clean_stop(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", wait_seconds=60.0) as memory:
        memory.remember(TEXTS[0])
        [found] = memory.recall("tea").results
    with Memory(tmp_path, scope="ana", wait_seconds=60.0) as memory:
        memory.wait_until_processed()
        known = memory.get(found.id)
        assert known.access_count == 1
        assert [(each.question, each.asked_by) for each in known.recalls] == [("tea", "local")]
        assert known.shown_importance == pytest.approx(known.importance, abs=0.01)
