"""Privacy levels: of a speaker at `full` nothing but a count is kept, from the level on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.entities import AddToGraphCommand, Structure
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.messages import published, turn
from tests.privacy_by_hand import AGENT, KEPT, REJECTED, SECRET, STORED, level, tidy, turns, words


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        yield running


def test_of_a_private_speaker_only_a_count_is_kept(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "full"))
    pipeline.run()
    pipeline.say(SECRET)
    pipeline.say(KEPT, first=2, speaker="Ben")
    pipeline.run()
    tidy(pipeline)
    pipeline.shard.vector_table().sync()
    assert turns(pipeline) == {REJECTED: 1, STORED: 1}
    assert where(pipeline.folder, SECRET, "flowerpot") == []
    assert where(pipeline.folder, KEPT)
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["rejected"], balance.turns["stored"]) == (1, 1)


STAGES = ("normalize", "apply-writes", "extract", "decide")


@pytest.mark.parametrize("done", range(len(STAGES) + 1))
@pytest.mark.parametrize("batch", [1, 256])
def test_a_level_that_is_raised_while_turns_are_under_way(
    done: int, batch: int, tmp_path: Path
) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL), batch=batch) as pipeline:
        pipeline.say("I live in Oslo.")
        for stage in STAGES[:done]:
            pipeline.run(stage)
        pipeline.command(level("Ana", "full"))
        pipeline.run("normalize")  # the level's place in memory-writes is before what follows
        pipeline.say(SECRET, first=2)
        assert pipeline.balance().holds
        pipeline.run()
        tidy(pipeline)
        balance = pipeline.balance()
        assert balance.holds
        assert balance.turns["in_flight"] == balance.facts["in_flight"] == 0
        # Also of the turn that was captured before, unless all was decided before the level.
        is_decided = done == len(STAGES)
        assert words(pipeline) == (["Ana lives in Oslo."] if is_decided else [])
        assert where(pipeline.folder, SECRET, "flowerpot") == []
        # The first turn was kept if its intent came before the level's.
        is_before = pipeline.values("SELECT count(*) FROM memory_rows WHERE type = 'episodic'")
        assert is_before == [int(done > 0 or turns(pipeline)[STORED] == 1)]
        assert sum(turns(pipeline).values()) == 2
        if not is_decided and turns(pipeline)[STORED]:
            assert set(pipeline.facts_settled()) == {("skipped", "privacy_full")}


def test_what_was_withheld_is_withheld_in_a_rebuild_too(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as pipeline:
        pipeline.say("I live in Oslo.")
        pipeline.run()
        pipeline.command(level("Ana", "full"))
        pipeline.clock.advance(seconds=1)
        pipeline.say(SECRET, first=2)
        pipeline.run()
        pipeline.command(level("Ana", "none"), first=2)
        pipeline.run()
        pipeline.say("I like green tea.", first=3)
        pipeline.run()
        # Published again, it is the turn that was not kept: lowering brings nothing back.
        pipeline.publish(published(turn(SECRET, 2), message_id="again"))
        pipeline.run()
        tidy(pipeline)
        assert where(pipeline.folder, "flowerpot") == []
        assert words(pipeline) == ["Ana likes green tea.", "Ana lives in Oslo."]
        before = pipeline.state_by_table()
        pipeline.close()
        shutil.copytree(tmp_path / "live" / "log", tmp_path / "again" / "log")
        clock = pipeline.clock
        with Pipeline(tmp_path / "again", pipeline_settings(FULL), clock=clock) as again:
            again.run("decide").run("apply-writes").run()
            # Of what decide thinks of every fact anew, nothing depends: it is sent already.
            assert set(differing(before, again.state_by_table())) <= {"proposals"}
            assert again.balance().holds
        # The records alone, without the level, tell the same of them.
        intents = [m.body.write.intent for m in pipeline_messages(tmp_path / "again")]
        assert intents.count("turn-rejected") == 2


def pipeline_messages(folder: Path) -> list[Any]:
    with Pipeline(folder, pipeline_settings(FULL)) as pipeline:
        return pipeline.messages(MEMORY_WRITES)


SAME = (
    ("Ana", "ana"),
    ("ANA", "Ａｎａ"),
    ("José", "Jose\u0301"),
    ("山田 太郎", "山田\u3000太郎"),
    ("タロウ", "ﾀﾛｳ"),
    ("Straße", "STRASSE"),
    ("Ana", " A\u200bna "),
    (None, "Ana"),
    (None, ""),
)


def test_a_name_is_the_same_however_it_is_written(pipeline: Pipeline) -> None:
    for number, (named, _) in enumerate(SAME):
        pipeline.command(level(named, "full"), scope=f"s{number}")
    pipeline.run()
    for number, (_, speaker) in enumerate(SAME):
        pipeline.say(SECRET, speaker=speaker, scope=f"s{number}")
    pipeline.run()
    assert pipeline.values("SELECT scope FROM memory_rows WHERE content <> ''") == []
    assert turns(pipeline) == {REJECTED: len(SAME)}


def test_another_name_is_another_person(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "full"))
    pipeline.run()
    for number, speaker in enumerate(("", "Anna", "Ana M", "Aná")):
        pipeline.say(SECRET, speaker=speaker, first=number)
    pipeline.say(SECRET, scope="ben")
    pipeline.run()
    assert turns(pipeline) == {STORED: 5}


def test_a_turn_that_asks_for_it_itself_lies_nowhere(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as pipeline:
        pipeline.say(SECRET, privacy="full", metadata={"where": "flowerpot"})
        pipeline.run()
        tidy(pipeline)
        assert turns(pipeline) == {REJECTED: 1}
        assert where(pipeline.folder, SECRET, "flowerpot") == []
        assert pipeline.balance().holds


@pytest.mark.parametrize("own", ['"privacy":"full"', '"speaker":"ＡＮＡ"'])
def test_a_private_turn_that_is_no_valid_one_leaves_no_text(own: str, tmp_path: Path) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as pipeline:
        pipeline.command(level("Ana", "full"))
        pipeline.run()
        record = (
            '{"id":"x","schema":"conversation-turn/1","scope":"ana","correlation_id":"x",'
            f'"body":{{"turn_id":7,{own},"content":"under the flowerpot"}}}}'
        )
        pipeline.raw(CONVERSATION_TURNS, record.encode())
        pipeline.run()
        assert tidy(pipeline) == 1
        assert len(pipeline.dead_letters()) == 1
        assert pipeline.balance().holds
        assert where(pipeline.folder, "flowerpot") == []


def test_raising_a_level_offers_to_erase_and_twice_is_once(pipeline: Pipeline) -> None:
    pipeline.say("I live in Oslo.")
    pipeline.say("I like green tea.", first=2, speaker="ANA")
    pipeline.say(KEPT, first=3, speaker="Ben")
    pipeline.run()
    pipeline.command(level("Ana", "full"), level("ana", "full"))
    pipeline.run()
    error, first = pipeline.result(1)
    assert error is None
    assert (first["status"], first["before"], first["memories"]) == ("set", "none", 4)
    assert first["names"] == {"ANA": 2, "Ana": 2}
    assert "4 memories" in first["offer"]
    _, second = pipeline.result(2)
    assert (second["status"], second["since"]) == ("no_changes", first["since"])
    assert pipeline.values("SELECT person FROM privacy_rows") == ["Ana"]
    pipeline.command(level("Ana", "none"), first=3)
    pipeline.run()
    assert pipeline.result(3)[1]["offer"] is None


def test_only_a_person_lowers_a_level(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "full"), actor=AGENT)
    pipeline.command(level("Ana", "none"), first=2, actor=AGENT)
    pipeline.run()
    assert pipeline.result(1)[0] is None
    error, _ = pipeline.result(2)
    assert error is not None
    assert error.startswith("forbidden: only a person")
    assert pipeline.values("SELECT level FROM privacy_rows") == ["full"]


def test_a_name_of_nothing_is_not_the_whole_scope(pipeline: Pipeline) -> None:
    pipeline.command(*(level(name, "full") for name in ("", "  ", "\u200b")))
    pipeline.run()
    for number in (1, 2, 3):
        error, _ = pipeline.result(number)
        assert str(error).startswith("invalid_request: the person's name is empty")


def test_what_agents_and_people_may_remember_of_a_private_person(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "partial"), level("Ben", "full"))
    taught = RememberCommand(content="Ana likes tea", who="ANA", self_taught=True)
    pipeline.command(taught, RememberCommand(content="Ana likes tea", who="Ana"), first=3)
    pipeline.command(RememberCommand(content="Ben likes tea", who="ben"), first=5)
    pipeline.command(RememberCommand(content="Ana likes oil", who="ana"), first=6, actor=AGENT)
    pipeline.run("normalize", "apply-writes")
    errors = [pipeline.result(number)[0] for number in (3, 4, 5, 6)]
    assert [None if each is None else each.partition(":")[0] for each in errors] == [
        "forbidden",
        None,
        "private",
        "private",
    ]


def test_the_graph_takes_nothing_of_a_private_person(pipeline: Pipeline) -> None:
    """By whichever part names them: nothing by anybody of one at full, by agents of one at partial;
    and no attribute leaves its text."""
    lives = {"relationship": "lives in", "target": "Oslo"}
    parts: tuple[dict[str, Any], ...] = (
        {"entities": [{"name": "BEN"}]},
        {"entities": [{"name": "Benjamin", "aliases": ["Ben"]}]},
        {"aspects": [{"entity": "ben", "aspect": "diet"}]},
        {"attributes": [{"entity": "Ben", "aspect": "diet", "content": "No nuts."}]},
        {"relations": [lives | {"source": "Ben"}]},
        {"relations": [lives | {"source": "Oslo", "target": "Ben"}]},
    )
    pipeline.command(level("Ana", "partial"), level("Ben", "full"))
    pipeline.command(
        *(AddToGraphCommand(structured=Structure.model_validate(each)) for each in parts), first=3
    )
    about_ana = Structure.model_validate({"relations": [lives | {"source": "Ana"}]})
    noted = RememberCommand(content="Somebody likes tea", structured=about_ana, who="Cay")
    pipeline.command(noted, AddToGraphCommand(structured=about_ana), first=10, actor=AGENT)
    pipeline.command(AddToGraphCommand(structured=about_ana), first=12)
    pipeline.run()
    errors = [str(pipeline.result(number)[0]) for number in (*range(3, 9), 10, 11)]
    assert {each.partition(":")[0] for each in errors} == {"private"}
    assert pipeline.result(12)[0] is None
    assert pipeline.memories() == []
    assert sorted(pipeline.values("SELECT name FROM name_rows")) == ["Ana", "Oslo"]
