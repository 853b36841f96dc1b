"""What is true follows from when it was said, never from the order of delivery."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import ApplyProposalsCommand
from palimpsest.schemas.messages import MemoryWrite, ProposalsIntent
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.recall.marks import marks_of
from palimpsest.streams.decide.proposal_policy import SAID_BEFORE
from palimpsest.streams.models.base import Prompt, Reply
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.settings import Flags
from palimpsest.streams.stage import Message
from tests.harness import CAREFUL, FULL, Pipeline, pipeline_settings
from tests.messages import published, turn

NOW = datetime(2027, 1, 1, tzinfo=UTC)
NEAR = 0.3

Said = tuple[int, str]
"""The year in which something was said, and what."""

GRAZ, PORTO, AGAIN = (
    (2023, "I live in Graz."),
    (2025, "I live in Porto."),
    (2026, "I live in Graz."),
)


def loaded(
    folder: Path, said: Sequence[Said], flags: Flags, batches: Sequence[int] = ()
) -> Pipeline:
    """A pipeline that took the statements in this order, in batches that end at these places."""
    pipeline = Pipeline(folder, pipeline_settings(flags, near=NEAR))
    ends = [*batches, len(said)]
    for begin, end in zip([0, *ends], ends, strict=False):
        say(pipeline, said[begin:end])
    return pipeline


def say(pipeline: Pipeline, said: Sequence[Said]) -> None:
    turns = [
        published(turn(text, f"{year} {text}"), occurred_at=datetime(year, 1, 1, tzinfo=UTC))
        for year, text in said
    ]
    pipeline.publish(*turns)
    pipeline.run()


def active(pipeline: Pipeline, scope: str = "ana") -> list[tuple[Any, ...]]:
    """Contents of the memories that hold, with the years of their first and newest statement."""
    rows = pipeline.rows(
        "SELECT content, occurred_at, first_occurred_at FROM memory_rows WHERE NOT is_deleted"
        " AND type <> 'episodic' AND (valid_until IS NULL OR valid_until > ?) AND scope = ?"
        " ORDER BY ALL",
        NOW,
        scope,
    )
    return [
        (row["content"], (row["first_occurred_at"] or row["occurred_at"]).year,
         row["occurred_at"].year)
        for row in rows
    ]  # fmt: skip


def past(pipeline: Pipeline) -> list[tuple[str, int, int]]:
    """Contents of the memories that ended, with the years from and until which they held."""
    rows = pipeline.rows(
        "SELECT content, valid_from, valid_until FROM memory_rows WHERE NOT is_deleted"
        " AND type <> 'episodic' AND valid_until <= ? ORDER BY ALL",
        NOW,
    )
    return [(row["content"], row["valid_from"].year, row["valid_until"].year) for row in rows]


def pending(pipeline: Pipeline, scope: str = "ana") -> list[str]:
    return pipeline.values(
        "SELECT h.item_id FROM held_proposals h JOIN outcomes o ON o.item_id = h.item_id"
        " WHERE o.event = 'blocked' AND h.scope = ? ORDER BY ALL",
        scope,
    )


def marks(pipeline: Pipeline) -> dict[str, list[tuple[str, str | None]]]:
    """The marks of the turns, by what and when they were said, without the dates of the marks."""
    return {
        turn: [(kind, text) for kind, text, _ in each]
        for turn, each in dated_marks(pipeline).items()
    }


def dated_marks(pipeline: Pipeline) -> dict[str, list[tuple[str, str | None, int | None]]]:
    """The marks of the turns with their years, by what and when the turns were said."""
    rows = pipeline.rows(
        "SELECT memory_id, content, occurred_at FROM memory_rows WHERE type = 'episodic'"
    )
    said = {row["memory_id"]: f"{row['occurred_at'].year} {row['content']}" for row in rows}
    with pipeline.shard.reading() as reader:
        found = marks_of(reader, "ana", None, NOW)
    return {
        said[key]: [(m.kind, m.text, None if m.since is None else m.since.year) for m in each]
        for key, each in found.items()
        if key in said
    }


@pytest.mark.parametrize("flags", [CAREFUL, FULL])
def test_an_older_statement_is_stored_as_ended(tmp_path: Path, flags: Flags) -> None:
    with loaded(tmp_path, [PORTO, GRAZ], flags, [1]) as pipeline:
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Porto."]
        assert past(pipeline) == [("Ana lives in Graz.", 2023, 2025)]
        assert marks(pipeline) == {"2023 I live in Graz.": [("superseded", "Ana lives in Porto.")]}
        assert pending(pipeline) == []
        assert ("created", SAID_BEFORE) in pipeline.facts_settled()


def test_the_word_now_of_a_later_source_counts(tmp_path: Path) -> None:
    said = [(2025, "I now work at Siemens."), (2023, "I work at Bosch.")]
    for number, order in enumerate((said, said[::-1])):
        with loaded(tmp_path / str(number), order, FULL) as pipeline:
            assert [row[0] for row in active(pipeline)] == ["Ana now works at Siemens."]


def test_a_later_source_that_says_more_ends_nothing(tmp_path: Path) -> None:
    said = [(2025, "I live in Porto, as my aunt says."), (2023, "I live in Graz.")]
    with loaded(tmp_path, said, FULL) as pipeline:
        assert past(pipeline) == []


def test_a_repeat_renews_a_memory_and_settles_what_waits(tmp_path: Path) -> None:
    with loaded(tmp_path, [GRAZ, PORTO, AGAIN], CAREFUL, [2]) as pipeline:
        assert active(pipeline) == [("Ana lives in Graz.", 2023, 2026)]
        assert past(pipeline) == [("Ana lives in Porto.", 2025, 2026)]
        assert pending(pipeline) == []
        assert marks(pipeline) == {"2025 I live in Porto.": [("superseded", "Ana lives in Graz.")]}
        assert pipeline.balance().holds


def test_an_older_repeat_settles_nothing(tmp_path: Path) -> None:
    said = [GRAZ, PORTO, (2024, "I live in Graz.")]
    with loaded(tmp_path, said, CAREFUL) as pipeline:
        [waiting] = pending(pipeline)
        pipeline.command(ApplyProposalsCommand(item_ids=(waiting,), reason="she moved"))
        pipeline.run()
        assert [row[0] for row in active(pipeline)] == ["Ana lives in Porto."]


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ("I'm allergic to nuts and milk.", "I'm not allergic to milk."),
        ("My boss is Frank.", "My boss is Olga now."),
        ("I drive a Volvo.", "I drive a Tesla now."),
        ("I work at Lidl.", "I got fired from Lidl."),
        ("I'm learning Greek.", "I gave up Greek."),
        ("My favourite drink is green tea.", "My favourite drink is black coffee."),
        ("I'm vegan.", "I love cheese."),
        ("My name is Sara.", "My name is Zara."),
    ],
)
def test_a_repeat_settles_what_may_not_hold_beside_it(
    tmp_path: Path, known: str, other: str
) -> None:
    with loaded(tmp_path, [(2020, known), (2022, other), (2024, known)], CAREFUL) as pipeline:
        [(_, first, newest)] = active(pipeline)
        assert (first, newest) == (2020, 2024)
        assert pending(pipeline) == []
        assert pipeline.balance().holds


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("I'm allergic to nuts and milk.", "I'm not allergic to milk."),
        ("I'm not allergic to milk.", "I'm allergic to nuts and milk."),
        ("Rex died.", "I have a dog named Rex."),
        ("I have a daughter.", "I have no children."),
        ("I live in Graz.", "I moved to Chur."),
    ],
)
def test_an_older_statement_that_is_approved_becomes_past(
    tmp_path: Path, newer: str, older: str
) -> None:
    with loaded(tmp_path, [(2024, newer), (2022, older)], CAREFUL, [1]) as pipeline:
        before = active(pipeline)
        assert not {kind for each in marks(pipeline).values() for kind, _ in each} & {"pending"}
        for waiting in pending(pipeline):
            pipeline.command(ApplyProposalsCommand(item_ids=(waiting,), reason="all of them"))
        pipeline.run()
        assert active(pipeline) == before
        assert pending(pipeline) == []
        assert pipeline.balance().holds


SETS: dict[str, list[Said]] = {
    "homes": [GRAZ, PORTO, AGAIN],
    "coffee": [
        (2024, "I like coffee."), (2025, "I don't like coffee anymore."), (2026, "I like coffee."),
    ],
    "own name": [
        (2021, "My name is Petra."), (2022, "I live in Graz."), (2024, "I moved to Linz."),
    ],
    "between": [
        (2020, "I live in Graz."), (2022, "I live in Rome."), (2024, "I live in Linz."),
    ],
    "several": [
        (2020, "I like coffee."), (2021, "I love coffee."), (2022, "I don't like coffee."),
    ],
    "work again": [
        (2019, "I work at Siemens."), (2021, "I work at Bosch now."),
        (2023, "I work at Siemens again."),
    ],
    "employer": [
        (2020, "I work at Lidl."), (2021, "I quit Lidl."), (2022, "I work at Bosch."),
    ],
    "boss": [
        (2020, "My boss is Frank."), (2021, "Frank is no longer my boss."),
        (2022, "My boss is Olga."),
    ],
    "work": [(2023, "I work at Bosch."), (2024, "I now work at Siemens."), (2025, "I have a dog.")],
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_every_order_and_batching_gives_the_same(tmp_path: Path, name: str) -> None:
    expected = None
    for number, order in enumerate(permutations(SETS[name])):
        with loaded(tmp_path / str(number), order, FULL, [1 + number % 2]) as pipeline:
            found = active(pipeline), dated_marks(pipeline), pending(pipeline)
        expected = expected or found
        assert found == expected, order


@pytest.mark.parametrize(
    "said",
    [
        [(2022, "I'm married."), (2024, "I'm divorced."), (2020, "I'm single.")],
        [(2020, "I hate jazz."), (2022, "I like jazz."), (2019, "I love jazz.")],
        [(2021, "I moved back to Rome."), (2022, "I live in Oslo."), (2020, "I moved to Oslo.")],
    ],
)
def test_what_a_memory_said_before_ends_what_is_older(tmp_path: Path, said: list[Said]) -> None:
    """Divorced does not exclude single, but the marriage did, which the divorce replaced."""
    (middle, _), (newest, _), (oldest, _) = said
    with loaded(tmp_path, said, FULL, [2]) as pipeline:
        assert [row[2] for row in active(pipeline)] == [newest]
        assert [row[1:] for row in past(pipeline)] == [(oldest, middle)]
        assert pending(pipeline) == []


def test_what_is_folded_from_the_log_is_the_same(tmp_path: Path) -> None:
    with loaded(tmp_path / "a", [AGAIN, PORTO, GRAZ], CAREFUL, [1]) as pipeline:
        records = pipeline.messages(MEMORY_WRITES)
        expected = active(pipeline), past(pipeline), marks(pipeline), pending(pipeline)
    with Pipeline(tmp_path / "b", pipeline.settings) as again:
        again.publish(*records, topic=MEMORY_WRITES)
        again.run("apply-writes")
        assert (active(again), past(again), marks(again), pending(again)) == expected


def test_older_records_are_carried_out_in_the_order_of_delivery(tmp_path: Path) -> None:
    with loaded(tmp_path / "a", [GRAZ, PORTO, AGAIN], CAREFUL) as pipeline:
        records = [unmarked(message) for message in pipeline.messages(MEMORY_WRITES)]
    with Pipeline(tmp_path / "b", pipeline.settings) as again:
        again.publish(*records, topic=MEMORY_WRITES)
        again.run("apply-writes")
        assert [row[1:] for row in active(again)] == [(2023, 2023)]
        assert len(pending(again)) == 1


def unmarked(message: Message) -> Message:
    """The record as it was written before statements were ordered by their dates."""
    assert isinstance(message.body, MemoryWrite)
    write = message.body.write
    if not isinstance(write, ProposalsIntent):
        return message
    old = write.model_copy(update={"by_date": None})
    return message.model_copy(update={"body": message.body.model_copy(update={"write": old})})


class Deciding(RulesLanguageModel):
    """A model that decides the same about every fact's only candidate."""

    def __init__(self, action: str) -> None:
        self.action = action

    async def generate(self, prompt: Prompt) -> Reply:
        if prompt.purpose != "decide":
            return await super().generate(prompt)
        candidates: Any = prompt.subject["candidates"]
        decided = {"action": self.action, "targetId": candidates[0]["id"], "confidence": 0.9}
        return Reply(json.dumps({**decided, "reason": "she moved"}), "scripted-1", "scripted")


@pytest.mark.parametrize(
    ("action", "ended"), [("UPDATE", [("Ana lives in Graz.", 2023, 2025)]), ("DELETE", [])]
)
def test_what_a_model_decides_about_something_said_later(
    tmp_path: Path, action: str, ended: list[tuple[str, int, int]]
) -> None:
    """Its UPDATE stores the older statement as ended, its DELETE does nothing."""
    settings = pipeline_settings(FULL, "model", near=NEAR)
    with Pipeline(tmp_path, settings, Deciding(action)) as pipeline:
        say(pipeline, [PORTO, GRAZ])
        assert active(pipeline)[0][0] == "Ana lives in Porto."
        assert past(pipeline) == ended


FAR = 0.999
"""A band that no two statements of another wording reach."""
OTHER_THINGS = ["I have a dog.", "I like hiking.", "My sister is called Rita.", "I play chess."]


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("I live in Graz.", "I moved to Linz."),
        ("I work at Bosch.", "I now work at Siemens."),
        ("I am married.", "I got divorced."),
        ("I am a vegan.", "I eat meat."),
        ("I'm 41 years old.", "I turned 42."),
        ("My birthday is on 3 May.", "I was born on June 4."),
    ],
)
@pytest.mark.parametrize("name", ["Petra", "Jonas"])
def test_statements_in_one_slot_meet_however_far_apart_they_are_in_meaning(
    tmp_path: Path, name: str, known: str, new: str
) -> None:
    said = [f"My name is {name}.", known, *OTHER_THINGS, new]
    settings = pipeline_settings(CAREFUL, near=FAR, min_score=1.0)
    with Pipeline(tmp_path, settings) as pipeline:
        say(pipeline, [(2020 + number, text) for number, text in enumerate(said)])
        assert len(pending(pipeline)) == 1


class Met(NamedTuple):
    """The contents that were active before and after the second statement of a pair, and how many
    proposals wait."""

    before: list[str]
    now: list[str]
    waiting: int


def met(folder: Path, settings: Settings, pairs: Sequence[tuple[str, str]]) -> list[Met]:
    """What came of each pair of statements, of 2020 and 2022: all in one store, each in a scope of
    its own."""
    scopes = [f"pair-{number}" for number in range(len(pairs))]
    contents: list[list[list[str]]] = []
    with Pipeline(folder, settings) as pipeline:
        for place, year in ((0, 2020), (1, 2022)):
            at = datetime(year, 1, 1, tzinfo=UTC)
            pipeline.publish(
                *(
                    published(turn(pair[place], f"{year} {pair[place]}"), scope, occurred_at=at)
                    for scope, pair in zip(scopes, pairs, strict=True)
                )
            )
            pipeline.run()
            contents.append([[each[0] for each in active(pipeline, scope)] for scope in scopes])
        waiting = [len(pending(pipeline, scope)) for scope in scopes]
    return [Met(*each) for each in zip(*contents, waiting, strict=True)]


def test_statements_meet_among_many_that_are_nearer(tmp_path: Path) -> None:
    towns = "Porto Oslo Rome Lyon Bern Kyoto Perth Lima Cusco Quito Turin Split".split()
    nearer = [f"I want to move to {town}." for town in towns]
    nearer += [f"I visited {town}." for town in towns]
    said = ["I live in Graz.", *nearer, "I moved to Linz."]
    with Pipeline(tmp_path, pipeline_settings(CAREFUL, near=FAR, min_score=1.0)) as pipeline:
        say(pipeline, [(2000 + number, text) for number, text in enumerate(said)])
        assert len(pending(pipeline)) == 1
