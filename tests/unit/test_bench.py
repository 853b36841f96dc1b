"""What the benchmarks count, and what they make up."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from palimpsest.ops.bench.conversations import Question, conversation_files, of_half, questions
from palimpsest.ops.bench.found import judged, summary
from palimpsest.ops.bench.halves import Half
from palimpsest.ops.bench.latency_texts import (
    FETCHED,
    EmbeddingCache,
    Made,
    Retold,
    Told,
    names_of,
    other_names,
    renamed,
    retold,
)
from palimpsest.ops.bench.resident import resident
from palimpsest.ops.bench.variants import ABLATIONS, HYBRID, METHODS
from palimpsest.schemas.rows import EdgeRow
from palimpsest.streams.store_port import Put
from tests.conversations import write_conversations
from tests.memory_rows import memory

# --- conversations and what is found of them --------------------------------------------------


def test_the_first_three_fifths_choose_and_the_others_check(tmp_path: Path) -> None:
    data = write_conversations(tmp_path / "data", "1", "3", "10", "7", "9")
    assert [file.stem for file in conversation_files(data)] == ["1", "3", "7", "9", "10"]
    assert [file.stem for file in of_half(data, Half.choose)] == ["1", "3", "7"]
    assert [file.stem for file in of_half(data, Half.check)] == ["9", "10"]
    assert len(of_half(data, None)) == 5


def test_a_single_conversation_has_no_half_to_check(tmp_path: Path) -> None:
    data = write_conversations(tmp_path / "data", "1")
    with pytest.raises(ValueError, match="too few conversations for a half to check: 1"):
        of_half(data, Half.check)


def test_questions_without_an_answer_are_not_asked(tmp_path: Path) -> None:
    [file] = conversation_files(write_conversations(tmp_path / "data", "x"))
    assert [(q.scope, q.category, q.evidence) for q in questions(file)] == [
        ("x", 4, ("D1:1",)),
        ("x", 1, ("D1:2",)),
    ]


@pytest.mark.parametrize("text", ["[]", "{", '{"qa": [{"category": 1, "evidence": ["D1:1"]}]}'])
def test_a_file_in_another_layout_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json is not a conversation in LoCoMo's layout"):
        questions(file)


def test_a_turn_that_comes_twice_takes_one_place() -> None:
    asked = Question("x", "?", 1, ("D1:2", "D1:3"))
    found = judged(asked, ["D1:1", "D1:1", "D1:2", "D9:9"], 1.0)
    assert found.recall == (0.0, 0.5, 0.5, 0.5)
    assert found.first == 2


def test_means_are_told_by_category_and_by_half() -> None:
    told = summary(
        [
            judged(Question("x", "?", 1, ("D1:1",), Half.choose), ["D1:1"], 1.0),
            judged(Question("x", "?", 2, ("D1:1",), Half.check), [], 3.0),
        ]
    )
    means = json.loads(json.dumps(told))
    assert (means["recall@1"], means["mrr"]) == (0.5, 0.5)
    assert means["by_category"]["multi-hop"]["recall@1"] == 1.0
    assert means["by_category"]["open-domain"] == {"questions": 0}
    assert [means["by_half"][half]["recall@1"] for half in ("choose", "check")] == [1.0, 0.0]
    assert means["ms"]["p50"] == 2.0


def test_means_are_told_by_role_and_type_where_the_data_tells_them() -> None:
    mine, yours = (
        Question("x", "?", 1, ("D1:1",), type=kind, roles=(role,))
        for kind, role in (("update", "user"), ("advice", "assistant"))
    )
    told = json.loads(
        json.dumps(summary([judged(mine, ["D1:1"], 1.0), judged(yours, ["D1:2"], 1.0)]))
    )
    assert {role: means["recall@1"] for role, means in told["by_role"].items()} == {
        "user": 1.0,
        "assistant": 0.0,
    }
    assert {kind: means["recall@1"] for kind, means in told["by_type"].items()} == {
        "update": 1.0,
        "advice": 0.0,
    }
    plain = summary([judged(Question("x", "?", 1, ("D1:1",)), [], 1.0)])
    assert (plain["by_role"], plain["by_type"]) == ({}, {})


def test_a_question_has_its_date_its_type_and_the_roles_of_its_evidence(tmp_path: Path) -> None:
    turns = [
        {"speaker": speaker, "dia_id": f"D1:{number}", "text": "?"}
        for number, speaker in enumerate(("User", "Assistant"), 1)
    ]
    asked = {"question": "?", "evidence": ["D1:1", "D1:2"], "category": 2, "type": "advice"}
    asked["asked_at"] = "2023/05/30 (Tue) 18:40"
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"session_1": turns, "qa": [asked]}))
    [question] = questions(file)
    assert question.asked_at == datetime(2023, 5, 30, 18, 40, tzinfo=UTC)
    assert (question.type, question.roles) == ("advice", ("assistant", "user"))


def test_every_variant_has_a_name_and_a_way_of_its_own() -> None:
    every = METHODS + ABLATIONS
    assert len({variant.name for variant in every}) == len(every)
    for one, other in itertools.combinations(every, 2):
        ways = [(v.settings, v.parameters, v.types, v.group) for v in (one, other)]
        assert ways[0] != ways[1], (one.name, other.name)
    assert HYBRID in METHODS


# --- other names ------------------------------------------------------------------------------


def test_names_are_capitals_inside_sentences_that_are_no_words() -> None:
    texts = [
        "So Mark met Rose in May.",
        "A rose, Mark! Since Monday it was cold. Oslo was, too.",
        "Oslo.",
    ]
    assert names_of(texts) == ("Mark",)
    assert names_of([*texts, "I like Oslo"]) == ("Mark", "Oslo")


def test_a_name_is_another_one_in_every_round_and_the_same_within_it() -> None:
    rounds = [other_names(["Ana", "Lisbon"], number) for number in range(3)]
    assert rounds[0] == {"Ana": "Ana", "Lisbon": "Lisbon"}
    assert len({each["Ana"] for each in rounds}) == 3
    assert rounds[1] == other_names(["Lisbon", "Ana"], 1)
    said = renamed("Ana's Analysis: Ana left Lisbon", {"Ana": "Kalo", "Lisbon": "Mitu"})
    assert said == "Kalo's Analysis: Kalo left Mitu"


def _told() -> Told:
    turn = memory("turn", "Ana met Ben in Oslo.", type="episodic", who="Ana")
    named = memory("named", "Ana knows Ben.")
    nameless = memory("nameless", "The soup was cold.")
    edge = EdgeRow(source_id="named", target_id="turn", relation_type="derived_from", scope="x")
    return Told((turn, named, nameless), (edge,), (), (), (), ("Ana", "Ben", "Oslo"))


def test_copies_differ_and_what_says_the_same_is_told_once() -> None:
    copies: list[Retold] = list(itertools.islice(retold([_told()], "bench"), 7))
    rows = [copy.row for copy in copies]
    assert [row.type for row in rows].count("episodic") == 3
    assert sum(row.content == "The soup was cold." for row in rows) == 1
    for column in ("memory_id", "content", "embedding_key", "write_seq"):
        assert len({getattr(row, column) for row in rows}) == len(rows), column
    assert {row.scope for row in rows} == {"bench"}
    assert next(row.who for row in rows if row.type == "episodic") == "Ana"


def test_edges_lead_to_memories_that_are_there() -> None:
    known: set[str] = set()
    edges = 0
    for copy in itertools.islice(retold([_told()], "bench"), 7):
        known.add(copy.row.memory_id)
        for write in copy.writes:
            if isinstance(write, Put) and isinstance(write.row, EdgeRow):
                assert {write.row.source_id, write.row.target_id} <= known
                edges += 1
    assert edges == 3


# --- embeddings that are kept -----------------------------------------------------------------


async def test_a_text_is_embedded_once_by_each_model(tmp_path: Path) -> None:
    asked: list[str] = []

    async def make(texts: Sequence[str]) -> list[Made]:
        asked.extend(texts)
        return [(np.full(2, len(text), np.float32), text.encode()) for text in texts]

    texts = [f"text {number}" for number in range(FETCHED + 1)]
    file = tmp_path / "new" / "kept.sqlite"
    first = await EmbeddingCache(file, "one", make).of([*texts, texts[0]])
    again = EmbeddingCache(file, "one", make)
    second = await again.of(texts)
    assert asked == texts
    assert again.made == 0
    assert {text: (v.tolist(), tokens) for text, (v, tokens) in first.items()} == {
        text: (v.tolist(), tokens) for text, (v, tokens) in second.items()
    }
    await EmbeddingCache(file, "other", make).of(texts[:2])
    assert asked == [*texts, *texts[:2]]


def test_mapped_memory_is_a_part_of_what_is_resident() -> None:
    told = resident()
    whole, mapped = told["resident_mib"], told["mapped_mib"]
    assert isinstance(whole, float)
    assert isinstance(mapped, float)
    assert 0 <= mapped < whole
