"""What the benchmarks count, and what they make up."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.bench.data_sets import Question, conversation_files, of_half, questions
from palimpsest.ops.bench.latency_texts import (
    Original,
    copied,
    names_of,
    other_names,
    renamed,
)
from palimpsest.ops.bench.measures import judged, resident_mib, summary
from palimpsest.ops.bench.retrieval import ABLATIONS, HYBRID, METHODS
from palimpsest.schemas.codec import decode
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from tests.conversations import write_conversations
from tests.soak.text_costs import measure

# --- conversations and what is found of them --------------------------------------------------


def test_the_first_three_fifths_choose_and_the_others_check(tmp_path: Path) -> None:
    data = write_conversations(tmp_path / "data", "1", "3", "10", "7", "9")
    assert [file.stem for file in conversation_files(data)] == ["1", "3", "7", "9", "10"]
    assert [file.stem for file in of_half(data, "choose")] == ["1", "3", "7"]
    assert [file.stem for file in of_half(data, "check")] == ["9", "10"]
    assert len(of_half(data, None)) == 5


def test_a_single_conversation_has_no_half_to_check(tmp_path: Path) -> None:
    data = write_conversations(tmp_path / "data", "1")
    with pytest.raises(ValueError, match="too few conversations for a half to check: 1"):
        of_half(data, "check")


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
            judged(Question("x", "?", 1, ("D1:1",), "choose"), ["D1:1"], 1.0),
            judged(Question("x", "?", 2, ("D1:1",), "check"), [], 3.0),
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


def test_copies_differ_in_names_ids_and_times() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    turn = ConversationTurn(
        turn_id="D1:1", session_id="s1", speaker="Ana", content="Ben met Ana in Oslo."
    )
    original = Original((("x", at, turn),), (), ("Ana", "Ben", "Oslo"))
    found = []
    for number in range(3):
        [record] = copied(original, number, 0)
        found.append(decode(record.value, CONVERSATION_TURNS, None))
    turns = [each.body for each in found if isinstance(each.body, ConversationTurn)]
    assert turns[0].content == turn.content
    for column in ("turn_id", "session_id", "speaker", "content"):
        assert len({getattr(each, column) for each in turns}) == 3, column
    assert {each.scope for each in found} == {"bench"}
    assert [(at - each.occurred_at).days for each in found] == [0, 28, 56]


def test_what_a_text_costs_is_measured_by_kind() -> None:
    found = json.loads(json.dumps(measure(texts=3, names=20)))
    assert {"prose", "numbers", "settings"} < {*found["secrets_ms"]}
    assert found["linking_ms"]["count"] == 3


def test_mapped_memory_is_a_part_of_what_is_resident() -> None:
    whole, mapped = resident_mib()
    assert 0 <= mapped < whole
