"""What comes twice, and what is sent again, through the whole pipeline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from palimpsest.streams.models.base import Prompt
from tests.flows.scripted import assert_settled, scripted
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.messages import published, redriven, turn
from tests.spoken_model import ScriptedModel, spoken


def test_the_same_turn_under_another_envelope_is_the_same_turn(tmp_path: Path) -> None:
    said = turn("Ana lives in Oslo / Ana > lives_in > Oslo")
    with scripted(tmp_path / "once") as once:
        once.publish(published(said))
        once.run()
        with scripted(tmp_path / "thrice", batch=2) as thrice:
            for number in range(3):
                thrice.publish(published(said, message_id=f"envelope-{number}"))
            thrice.run()
            assert_settled(thrice)
            for table in ("memory_rows", "memory_edges", "outcomes", "fact_rows", "entities"):
                query = f"SELECT count(*) FROM {table}"
                assert thrice.values(query) == once.values(query), table
            assert thrice.values("SELECT mentions FROM relations") == [1]
            assert thrice.balance().turns["accepted"] == 1


def test_the_same_message_again_does_nothing_at_all(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.say("Ana lives in Oslo / Ana > lives_in > Oslo")
        pipeline.run()
        before = pipeline.state_by_table()
        pipeline.say("Ana lives in Oslo / Ana > lives_in > Oslo")
        pipeline.run()
        assert differing(pipeline.state_by_table(), before) == []


def test_a_turn_id_used_for_something_else_is_refused_and_counted(tmp_path: Path) -> None:
    states = []
    for batch in (1, 256):
        with scripted(tmp_path / str(batch), batch=batch) as pipeline:
            pipeline.publish(published(turn("Ana lives in Oslo / Ana is tall"), message_id="a"))
            pipeline.publish(published(turn(" "), message_id="b"))
            other = turn("Ana sails a lot / Ana swims / Ana sings / a b > c > d")
            pipeline.publish(published(other, message_id="c"))
            pipeline.publish(published(other, message_id="d"))
            pipeline.run()
            assert_settled(pipeline)
            assert pipeline.balance().turns == {
                "accepted": 3,
                "stored": 1,
                "rejected": 1,
                "dead": 1,
                "in_flight": 0,
                "lost": 0,
            }
            # Nothing is derived from what was refused.
            assert pipeline.memories() == ["Ana is tall", "Ana lives in Oslo"]
            assert pipeline.values("SELECT count(*) FROM entities") == [0]
            dead_letters = pipeline.dead_letters()
            assert {dead_letter.stage for dead_letter in dead_letters} == {"apply-writes"}
            assert "Ana lives in Oslo / Ana is tall" in dead_letters[0].reason
            assert "Ana sails a lot" in dead_letters[0].reason
            states.append(pipeline.state_by_table())
    assert differing(*states) == []


def test_redrive(tmp_path: Path) -> None:
    broken = True

    def answer(prompt: Prompt) -> str:
        text = spoken(prompt)
        return "{" if broken and (prompt.purpose == "decide" or "tea" in text) else text

    with Pipeline(tmp_path, pipeline_settings(FULL, "model"), ScriptedModel(answer)) as pipeline:
        pipeline.say("Ana lives in Oslo", "Ana likes green tea")
        pipeline.say("Ana sails often / Now Ana lives in Bergen / Ana > lives_in > Bergen", first=3)
        pipeline.run()
        dead_letters = pipeline.dead_letters()
        assert Counter(dead_letter.stage for dead_letter in dead_letters) == {
            "extract": 1,
            "decide": 1,
        }
        assert pipeline.balance().facts["dead"] == 1
        mentions = pipeline.values("SELECT mentions FROM relations")
        broken = False
        for dead_letter in dead_letters:
            topic, message = redriven(dead_letter)
            pipeline.publish(message, topic=topic)
        pipeline.run()
        assert pipeline.memories() == [
            "Ana likes green tea",
            "Ana sails often",
            "Now Ana lives in Bergen",
        ]
        assert_settled(pipeline)
        assert pipeline.balance().facts["dead"] == 0
        # What had been done the first time is not done again.
        assert pipeline.values("SELECT mentions FROM relations") == mentions == [1]
        assert pipeline.balance().facts["created"] == 3
