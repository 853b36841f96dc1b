"""A log in another number of partitions: every record once, in its scope's partition and order."""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.ops.replay.log_reading import SAW_ALL, followed, repartition_log
from palimpsest.ops.replay.requests import UNWATCHED
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    FACTS_EXTRACTED,
    MEMORY_CHANGES,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.logs.base import Outgoing, Position, Record, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.examples import examples
from tests.messages import BEGIN

TOPICS = (CONVERSATION_TURNS, MEMORY_WRITES, TURNS_NORMALIZED, FACTS_EXTRACTED, MEMORY_CHANGES)
SCOPES = tuple(f"scope-{number}" for number in range(7))
Message = dict[str, Any]


class Partition:
    """One partition of a log as stages write it: each goes through what it reads in order, as
    far behind the others as it happens."""

    def __init__(self, number: int, append: Callable[[Topic, Message], None]) -> None:
        self.number = number
        self.append = append
        self.records: dict[Topic, list[Message]] = defaultdict(list)
        self.read: dict[str, int] = defaultdict(int)

    def say(self, topic: Topic, scope: str, cause: Message | None, **body: Any) -> None:
        number = len(self.records[topic])
        message = {
            "id": f"{self.number}-{topic.name}-{number}",
            "causation_id": None if cause is None else cause["id"],
            "scope": scope,
            "body": body,
        }
        self.records[topic].append(message)
        self.append(topic, message)

    def step(self, stage: str) -> None:
        reads = {"extract": TURNS_NORMALIZED, "decide": FACTS_EXTRACTED, "apply": MEMORY_WRITES}
        topic = reads.get(stage, CONVERSATION_TURNS)
        offset = self.read[stage]
        if offset >= len(self.records[topic]):
            return
        self.read[stage] += 1
        message = self.records[topic][offset]
        scope = message["scope"]
        if stage == "normalize":
            self.say(MEMORY_WRITES, scope, message, write={"intent": "turn"})
        elif stage == "extract":
            self.say(FACTS_EXTRACTED, scope, message)
        elif stage == "decide":
            write = {"intent": "proposals", "as_of": offset, "decision_order": offset}
            self.say(MEMORY_WRITES, scope, message, write=write)
        else:
            is_turn = message["body"]["write"]["intent"] == "turn"
            event = "created" if is_turn or offset % 3 else "reconsidered"
            outcome = {
                **{"event": event, "item_kind": "fact", "item_id": "i", "reason": ""},
                **{"changed_by": "pipeline", "memory_id": None},
            }
            self.say(MEMORY_CHANGES, scope, message, outcomes=[outcome])
            if is_turn:
                self.say(TURNS_NORMALIZED, scope, message)


STAGES = ("normalize", "extract", "decide", "apply")
STEPS = 150
Step = tuple[str, int, int]


def played(seed: int) -> list[Step]:
    """Many things in some order, so that stages of one partition fall behind those of another."""
    chance = random.Random(seed)
    doing = [*SCOPES, *(stage for stage in STAGES for _ in range(chance.randint(2, 9)))]
    return [
        (chance.choice(doing), chance.randint(0, 2), chance.randint(0, 2)) for _ in range(STEPS)
    ]


def written(log: EmbeddedLog, steps: list[Step]) -> None:
    """Play: a scope says something, or a stage of a partition takes its next record; each some
    time after the one before, or in the same moment."""
    now = BEGIN
    timed: list[tuple[datetime, Outgoing]] = []

    def append(topic: Topic, message: Message) -> None:
        value = json.dumps(message, separators=(",", ":")).encode()
        scope = str(message["scope"])
        timed.append((now, Outgoing(topic.name, scope, scope.encode(), value)))

    partitions = [Partition(number, append) for number in range(log.partitions("dead-letters"))]
    for what, number, passed in steps:
        now += timedelta(seconds=passed)
        if what in SCOPES:
            partition = partitions[partition_for(what, len(partitions))]
            partition.say(CONVERSATION_TURNS, what, None)
        else:
            partitions[number % len(partitions)].step(what)
    log.append_at(timed)
    for partition in partitions:
        for topic in TOPICS:
            end = len(partition.records[topic])
            log.seek(Position("reader", topic.name, partition.number, end // 2))


def records_of(log: EmbeddedLog, topic: Topic) -> list[Record]:
    partitions = range(log.partitions(topic.name))
    return [r for each in partitions for r in log.read(topic.name, each, 0, 10_000)]


def raw(record: Record) -> Message:
    found: Message = json.loads(record.value or b"")
    return found


def by_scope(records: list[Record]) -> dict[str, list[tuple[str, datetime]]]:
    found: dict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for record in records:
        found[raw(record)["scope"]].append((raw(record)["id"], record.timestamp))
    return dict(found)


@settings(max_examples=examples(10))
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4))
def test_order_and_places(seed: int, olds: int, news: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with EmbeddedLog(here / "old", olds, lambda: BEGIN) as old:
            written(old, played(seed))
            (here / "new").mkdir()
            assert repartition_log(here / "new", old, news, UNWATCHED)
            with EmbeddedLog(here / "new", news, lambda: BEGIN) as new:
                for topic in TOPICS:
                    same_by_scope(old, new, topic)
                no_stage_is_out_of_order(new)
                decisions_saw_what_came_of_them(new)
                nothing_unread_is_passed(old, new)


@settings(max_examples=examples(10))
@given(st.integers(0, 10_000))
def test_what_followed_from_the_first_writes(seed: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedLog(Path(folder), 1, lambda: BEGIN) as log,
    ):
        written(log, played(seed))
        by_id = {raw(each)["id"]: each.offset for each in records_of(log, MEMORY_WRITES)}
        causes: dict[str, int] = {}
        for each in records_of(log, MEMORY_WRITES):
            causes.setdefault(raw(each)["causation_id"], each.offset)
        for writes in range(0, len(by_id) + 1, 5):
            read = followed(Settings(), log, 0, writes)["audit"]
            for topic in (CONVERSATION_TURNS, FACTS_EXTRACTED, MEMORY_CHANGES):
                for each in records_of(log, topic):
                    found = raw(each)
                    write = causes.get(found["id"], by_id.get(found["causation_id"]))
                    if write is not None:
                        assert (each.offset < read[topic.name]) == (write < writes)


def same_by_scope(old: EmbeddedLog, new: EmbeddedLog, topic: Topic) -> None:
    moved = records_of(new, topic)
    assert by_scope(moved) == by_scope(records_of(old, topic))
    for record in moved:
        assert record.partition == partition_for(raw(record)["scope"], new.partitions(topic.name))
    for partition in range(new.partitions(topic.name)):
        offsets = [r.offset for r in new.read(topic.name, partition, 0, 10_000)]
        assert offsets == [*range(new.end_offset(topic.name, partition))]


def no_stage_is_out_of_order(log: EmbeddedLog) -> None:
    """What came of records lies in their order; memory-writes are in that of their times."""
    for partition in range(log.partitions(MEMORY_WRITES.name)):
        read = {topic: log.read(topic.name, partition, 0, 10_000) for topic in TOPICS}
        times = [record.timestamp for record in read[MEMORY_WRITES]]
        assert times == sorted(times)
        place = {raw(r)["id"]: r.offset for topic in TOPICS for r in read[topic]}
        for topic, of in (
            (MEMORY_WRITES, CONVERSATION_TURNS),
            (MEMORY_WRITES, FACTS_EXTRACTED),
            (TURNS_NORMALIZED, MEMORY_WRITES),
            (MEMORY_CHANGES, MEMORY_WRITES),
        ):
            causes = [raw(record)["causation_id"] for record in read[topic]]
            found = [place[cause] for cause in causes if of.name in cause]
            assert found == sorted(found), (topic, of)
        for record in read[MEMORY_WRITES]:
            write = raw(record)["body"]["write"]
            if write["intent"] == "proposals":
                assert write["decision_order"] == place[raw(record)["causation_id"]]


def decisions_saw_what_came_of_them(log: EmbeddedLog) -> None:
    """One that was sent back had seen nothing of what commands wrote; another one had seen all, and
    the later one of two saw more."""
    sent_back = {
        raw(record)["causation_id"]
        for record in records_of(log, MEMORY_CHANGES)
        if raw(record)["body"]["outcomes"][0]["event"] == "reconsidered"
    }
    for partition in range(log.partitions(MEMORY_WRITES.name)):
        last = SAW_ALL - 1
        for record in log.read(MEMORY_WRITES.name, partition, 0, 10_000):
            message = raw(record)
            if message["body"]["write"]["intent"] != "proposals":
                continue
            as_of = message["body"]["write"]["as_of"]
            if message["id"] in sent_back:
                assert as_of == 0
            else:
                assert as_of > last
                last = as_of


def nothing_unread_is_passed(old: EmbeddedLog, new: EmbeddedLog) -> None:
    for topic in TOPICS:
        unread = {
            raw(record)["id"]
            for record in records_of(old, topic)
            if record.offset >= old.position("reader", topic.name, record.partition)
        }
        waiting = {
            raw(record)["id"]
            for record in records_of(new, topic)
            if record.offset >= new.position("reader", topic.name, record.partition)
        }
        assert unread <= waiting
