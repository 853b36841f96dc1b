"""What looks at many memories at once: an entity's profile, what rests on little, counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.graph import GetEntity
from palimpsest.ops.operations.lifecycle.fading import Weak
from palimpsest.ops.operations.lifecycle.pipeline import not_drawn
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.scopes import Stats
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    AliasCommand,
    ConfirmCommand,
    ForgetCommand,
    RememberCommand,
)
from palimpsest.schemas.entities import Structure
from palimpsest.schemas.envelope import Triple
from tests.flows.test_graph import memory_id
from tests.harness import Pipeline


def told(text: str, *triple: str) -> RememberCommand:
    source, relation, target = triple
    relations = (Triple(source=source, relationship=relation, target=target, confidence=0.8),)
    return RememberCommand(content=text, structured=Structure(relations=relations))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with Pipeline(tmp_path_factory.mktemp("overviews")) as made:
        made.command(
            told("Ana O'Hara works at Globex", "Ana O'Hara", "works_at", "Globex"),
            told("Ana O'Hara lives in Lisbon", "Ana O'Hara", "lives_in", "Lisbon"),
            RememberCommand(content="Globex is a bakery"),
            RememberCommand(content="Never ring before nine"),
            AliasCommand(name="Ana O'Hara", alias="アナ"),
        )
        made.command(told("Initech sues Globex", "Initech", "sues", "Globex"), scope="other")
        made.run()
        made.command(ForgetCommand(memory_ids=(memory_id(4),), reason="test"), first=10)
        made.command(ConfirmCommand(memory_id=memory_id(3)), first=11)
        made.say("I like rye bread.")
        made.run()
        yield made


def ask(pipeline: Pipeline, request: Read[Any]) -> Any:
    known = (Settings(), pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding)
    sources = Sources(*known, lambda _: None, now=pipeline.clock)
    return asyncio.run(DirectQueries(sources).answer(request))


def test_a_worker_without_partitions_counts_no_turns(pipeline: Pipeline) -> None:
    """As `run --once` on Kafka, where others have all partitions."""
    nothing = Sources(Settings(), pipeline.log, {}, 1, pipeline.embedding, lambda _: None)
    assert not_drawn(nothing) == {"without_facts": [0, 0], "failed_turns": 0, "facts_over_limit": 0}


def contents(answer: Any) -> list[str]:
    return [memory["content"] for memory in answer["memories"]]


@pytest.mark.parametrize("name", ["Ana O'Hara", "ANA  o'hara", "アナ"])
def test_an_entity_is_known_by_any_of_its_names(pipeline: Pipeline, name: str) -> None:
    answer = ask(pipeline, GetEntity(name, "ana"))
    assert (answer["name"], answer["aliases"]) == ("Ana O'Hara", ["アナ"])
    assert {(each["relation"], each["name"]) for each in answer["relations"]} == {
        ("lives_in", "Lisbon"),
        ("works_at", "Globex"),
    }
    assert sorted(contents(answer)) == ["Ana O'Hara lives in Lisbon", "Ana O'Hara works at Globex"]


def test_an_entity_shows_nothing_of_another_scope(pipeline: Pipeline) -> None:
    globex = ask(pipeline, GetEntity("Globex", "ana"))
    assert "Initech" not in json.dumps(globex)
    assert "Initech" in json.dumps(ask(pipeline, GetEntity("Globex", "other")))
    with pytest.raises(NotFoundError, match="nothing called Initech"):
        ask(pipeline, GetEntity("Initech", "ana"))


def test_a_name_that_is_not_known_is_told_with_the_nearest(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="did you mean Globex"):
        ask(pipeline, GetEntity("Globx", "ana"))
    with pytest.raises(RequestError, match="the name is empty"):
        ask(pipeline, GetEntity(" ", "ana"))


def test_weak_is_what_nobody_is_sure_of(pipeline: Pipeline) -> None:
    assert contents(ask(pipeline, Weak("ana", below=0.95))) == ["Ana likes rye bread."]
    assert contents(ask(pipeline, Weak("ana", below=0.1))) == []
    everything = contents(ask(pipeline, Weak("ana", below=1.1)))
    assert "Globex is a bakery" not in everything  # confirmed
    assert "Never ring before nine" not in everything  # forgotten
    assert contents(ask(pipeline, Weak("other", below=1.1))) == ["Initech sues Globex"]


def test_counts_of_a_scope_and_of_all(pipeline: Pipeline) -> None:
    own, other = (ask(pipeline, Stats(scope)) for scope in ("ana", "other"))
    assert (own["active"], own["forgotten"], own["turns"]) == (5, 1, 1)
    assert own["types"] == {"episodic": 1, "fact": 3, "preference": 1}
    together = ask(pipeline, Stats())
    assert together["active"] == own["active"] + other["active"]
    assert together["types"]["fact"] == own["types"]["fact"] + other["types"]["fact"]
