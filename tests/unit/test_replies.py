from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from palimpsest.streams.prompting.replies import (
    MAX_WARNINGS,
    ExtractionDraft,
    MalformedReply,
    read_contradiction,
    read_decision,
)
from palimpsest.streams.settings import PipelineSettings
from tests.unit.reply_texts import FACT, GOOD, IDS, TRIPLE, one, read_extraction, reply


def test_a_good_reply_is_read_without_warnings() -> None:
    draft = read_extraction(GOOD)
    (fact,) = draft.facts
    (triple,) = draft.triples
    assert draft.warnings == ()
    assert fact.content == "Ana adopted a dog in March 2024."
    assert (fact.type, fact.confidence, fact.importance) == ("fact", 0.9, 0.7)
    assert (fact.temporal_kind, fact.valid_until) == ("persistent", None)
    assert fact.categories == ("pets",)
    assert (triple.source, triple.relationship, triple.target) == ("Ana", "adopted", "Oscar")
    assert (triple.source_type, triple.target_type, triple.confidence) == ("person", "animal", 0.8)


@pytest.mark.parametrize(
    "text",
    [
        f"<think>Is this a fact? {{maybe}}</think>{GOOD}",
        f'<think>{{"facts": []}} would be empty</think>\n{GOOD}',
        f"<think>one</think><think>two</think>{GOOD}",
        f"<thinking>\nhm\n</thinking>{GOOD}",
        f"let me think, {{so}}\n</think>\n{GOOD}",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\nDone.",
        f"Sure! Here is {{the}} object you asked for:\n{GOOD}\nAnything else?",
        f'First {{"note": "an aside"}} and then {GOOD}',
        f"{GOOD} {GOOD[:40]}",
        f'{{"result": {GOOD}}}',
        GOOD.replace("}]", "},]").replace("]}", "],}"),
        GOOD.replace("Ana adopted a dog", "Ana\nadopted\ta dog"),
        "\ufeff" + GOOD,
    ],
    ids=range(14),
)
def test_what_stands_around_the_object_does_not_matter(text: str) -> None:
    draft = read_extraction(text)
    assert draft.facts == read_extraction(GOOD).facts
    assert draft.triples == read_extraction(GOOD).triples


def test_thoughts_and_fences_inside_a_text_stay() -> None:
    said = "Ana writes <think> and ``` in her notes, and a trailing ,] too"
    assert one(content=said).facts[0].content == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no object here",
        "{}",
        "[]",
        "null",
        '"facts"',
        '{"action": "ADD"}',
        '{"facts": null}',
        '{"facts": {"a": 1}, "entities": "none"}',
        '{"facts": ["only", "texts"]}',
        '{"facts": [1, 2], "entities": [null]}',
        '{"facts": [{"content": "Ana adop',
        '{"facts": [{"content": oops}]}',
        f"<think>{GOOD}",
        "[" * 100_000,
        '{"facts": ' + "[" * 1_000 + "]" * 1_000 + "}",
    ],
)
def test_no_usable_list_is_malformed(text: str) -> None:
    with pytest.raises(MalformedReply):
        read_extraction(text)


def test_nothing_to_keep_is_no_failure() -> None:
    assert read_extraction('{"facts": [], "entities": []}') == ExtractionDraft((), (), ())
    assert read_extraction('{"facts": []}').warnings == ("entities is missing",)


@pytest.mark.parametrize(
    "other",
    [
        {"facts": [{}], "entities": []},
        {"facts": [], "entities": [{"from": "Ana", "to": "Oscar"}]},
        {"facts": [{"fact": "Ana adopted a dog."}], "entities": [{"subject": "Ana"}]},
        {"facts": [{"fact": "Ana adopted a dog."}], "entities": [TRIPLE]},
        {"facts": [{"content": None}], "entities": []},
        {"facts": [{"content": ["Ana adopted a dog."]}, {"content": {"text": "so"}}]},
        {"facts": {"content": "Ana adopted a dog."}, "entities": []},
        {"facts": ["none", 5], "entities": []},
    ],
)
def test_a_reply_in_another_form_is_no_turn_without_facts(other: object) -> None:
    with pytest.raises(MalformedReply, match="of the reply"):
        read_extraction(json.dumps(other))


@pytest.mark.parametrize(
    "said",
    [
        {"Facts": [{"content": "Ana adopted a dog."}], "entities": []},
        {"FACTS": [{"Content": "Ana adopted a dog."}]},
        {"facts": [{"CONTENT": "Ana adopted a dog."}]},
        {"facts": ["Ana adopted a dog."], "entities": []},
        {"facts": [{"text": "Ana adopted a dog."}], "entities": []},
        {"facts": [{"content": None, "Text": "Ana adopted a dog."}], "entities": [TRIPLE]},
    ],
)
def test_a_fact_that_can_plainly_be_read_is_read(said: object) -> None:
    [fact] = read_extraction(json.dumps(said)).facts
    assert fact.content == "Ana adopted a dog."
    assert fact.confidence >= PipelineSettings().min_fact_confidence


def test_a_cut_reply_with_its_keys_in_capitals_keeps_its_whole_items() -> None:
    text = reply(FACT, FACT).replace('"facts"', '"Facts"')[:-30]
    assert len(read_extraction(text).facts) == 1


def test_a_key_as_it_was_asked_for_goes_before_one_in_capitals() -> None:
    [fact] = read_extraction(json.dumps({"facts": [FACT], "Facts": ["Ana has a cat."]})).facts
    assert fact.content == FACT["content"]


def test_what_is_usable_of_a_reply_in_two_forms_is_taken() -> None:
    entities = [{"from": "Ana", "to": "Oscar"}]
    assert len(read_extraction(reply(FACT, {"fact": "x"}, entities=entities)).facts) == 1
    assert read_extraction(json.dumps({"facts": [{"content": "Ok."}]})).facts == ()


def test_a_fact_without_a_confidence_passes_the_least_one() -> None:
    stated = {name: value for name, value in FACT.items() if name != "confidence"}
    [fact] = read_extraction(reply(stated)).facts
    assert fact.confidence >= PipelineSettings().min_fact_confidence


def test_a_cut_reply_keeps_its_whole_items() -> None:
    second = {**FACT, "content": "Ana moved to Lisbon."}
    text = reply(FACT, second)
    begin = text.index(', {"content": "Ana moved')
    for cut in range(1, 60):
        draft = read_extraction(text[: begin + cut])
        assert [fact.content for fact in draft.facts] == [FACT["content"]], cut
        assert any("cut" in warning for warning in draft.warnings), cut


@pytest.mark.parametrize("broken", ["oops", "{oops}", '{"content": oops}', '{"content": "x" "y"}'])
def test_one_broken_item_does_not_cost_the_others(broken: str) -> None:
    other = json.dumps({**FACT, "content": "Ana moved to Lisbon."})
    text = f'{{"facts": [{json.dumps(FACT)}, {broken}, {other}], "entities": []}}'
    assert [fact.content[:9] for fact in read_extraction(text).facts] == ["Ana adopt", "Ana moved"]


def test_ill_nested_brackets_keep_what_came_before() -> None:
    text = f'{{"facts": [{json.dumps(FACT)}}}, "entities": []'
    assert len(read_extraction(text).facts) == 1


@pytest.mark.parametrize(
    ("given_", "expected", "warned"),
    [
        (0.0, 0.0, False),
        (1, 1.0, False),
        (1e15, 1.0, True),
        (-0.1, 0.0, True),
        (95, 1.0, True),
        (10**4_000, 1.0, True),
        ("0.9", 0.9, True),
        ("90%", 0.9, True),
        ("85.5 %", 0.855, True),
        ("900%", 1.0, True),
        ("high", 0.9, True),
        ("Very likely", 0.9, True),
        ("certain", 0.9, True),
        ("medium", 0.7, True),
        ("likely", 0.7, True),
        ("low", 0.3, True),
        ("unlikely", 0.3, True),
        ("who knows", 0.8, True),
        ("9" * 5_000, 0.8, True),
        (None, 0.8, True),
        (True, 0.8, True),
        ([0.9], 0.8, True),
        (float("nan"), 0.8, True),
        (float("inf"), 1.0, True),
    ],
)
def test_confidence(given_: object, expected: float, warned: bool) -> None:
    draft = one(confidence=given_)
    assert draft.facts[0].confidence == expected
    assert bool(draft.warnings) == warned


@pytest.mark.parametrize(
    ("given_", "expected", "warned"),
    [
        (1, 0.1, False),
        (10, 1.0, False),
        (7.5, 0.75, False),
        (None, None, False),
        (0, 0.1, True),
        (11, 1.0, True),
        ("high", None, True),
        (float("nan"), None, True),
    ],
)
def test_importance(given_: object, expected: float | None, warned: bool) -> None:
    draft = one(importance=given_)
    assert draft.facts[0].importance == expected
    assert bool(draft.warnings) == warned


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("2024-03-15T12:00:00Z", datetime(2024, 3, 15, 12, tzinfo=UTC)),
        ("2024-03-15T12:00:00+02:00", datetime(2024, 3, 15, 10, tzinfo=UTC)),
        ("2024-03-15T12:00:00", datetime(2024, 3, 15, 12, tzinfo=UTC)),
        ("2024-03-15", datetime(2024, 3, 15, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_valid_until_in_utc_makes_a_fact_temporal(given_: str, expected: datetime) -> None:
    draft = one(valid_until=given_)
    assert draft.facts[0].valid_until == expected
    assert draft.facts[0].temporal_kind == "temporal"
    assert draft.warnings == ()


@pytest.mark.parametrize(
    "given_", ["when it is done", "9999-12-31T23:59:59-14:00", "9999-12-31x", 17, ["2024"], {}]
)
def test_another_valid_until_is_left_out_with_a_warning(given_: object) -> None:
    draft = one(valid_until=given_)
    assert draft.facts[0].valid_until is None
    assert len(draft.warnings) == 1


def test_words_for_an_end_are_counted_from_the_turn() -> None:
    [fact] = one(valid_until="until next Friday").facts
    assert fact.valid_until == datetime(2024, 3, 15, 23, 59, 59, tzinfo=UTC)
    tokyo = datetime(2024, 3, 15, 1, tzinfo=timezone(timedelta(hours=9)))  # a Friday there
    text = reply({**FACT, "valid_until": "来週の金曜日"})
    [fact] = read_extraction(text, tokyo).facts
    assert fact.valid_until == datetime(2024, 3, 22, 14, 59, 59, tzinfo=UTC)
    [fact] = read_extraction(reply({**FACT, "valid_until": "2024-03-16"}), tokyo).facts
    assert fact.valid_until == datetime(2024, 3, 16, 14, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "kept"), [("temporal", "temporal"), (None, "temporal"), ("persistent", "persistent")]
)
def test_an_end_that_cannot_be_read_leaves_a_fact_temporal(kind: object, kept: str) -> None:
    draft = one(valid_until="when the harvest is in", temporal=kind)
    assert (draft.facts[0].temporal_kind, draft.facts[0].valid_until) == (kept, None)
    assert draft.warnings == (
        "fact 1: valid_until 'when the harvest is in' is no time that can be read, left out",
    )


@pytest.mark.parametrize("given_", [None, "", "null", "None"])
def test_no_valid_until_needs_no_warning(given_: object) -> None:
    assert one(valid_until=given_).warnings == ()


def test_temporal_kind() -> None:
    assert one(temporal="temporal").facts[0].temporal_kind == "temporal"
    assert one(temporal="Persistent").facts[0].temporal_kind == "persistent"
    odd = one(temporal="sometimes")
    assert odd.facts[0].temporal_kind == "persistent"
    assert len(odd.warnings) == 1


def test_types() -> None:
    assert one(type="Preference").facts[0].type == "preference"
    odd = one(type="memory")
    assert odd.facts[0].type == "fact"
    assert "'memory'" in odd.warnings[0]


def test_categories_are_snake_case_and_at_most_eight() -> None:
    given_ = ["Road Trip", "road-trip", "Éducation", 5, "", "!!", *"abcdefghi", "x" * 500]
    draft = one(categories=given_)
    assert draft.facts[0].categories == ("road_trip", "éducation", *"abcdef")
    assert "categories" in draft.warnings[0]
    assert one(categories="pets").facts[0].categories == ()
    assert one(categories=None).warnings == ()


def test_length_limits() -> None:
    draft = read_extraction(
        reply({**FACT, "content": "123456789"}, {**FACT, "content": "1234567890"})
    )
    assert [fact.content for fact in draft.facts] == ["1234567890"]
    assert "fact 1 rejected" in draft.warnings[0]
    long = one(content="x" * 2_001)
    assert long.facts[0].content == "x" * 2_000
    assert "cut" in long.warnings[0]
    assert len(read_extraction(reply(FACT, {**FACT, "content": 17})).facts) == 1
    assert one(content="a \0 b \x1b[31m c\n\n d long enough").facts[0].content.isprintable()


def test_number_limits_count_what_is_valid() -> None:
    facts = [{**FACT, "content": f"Ana has {n} dogs"} for n in range(30)]
    triples = [{**TRIPLE, "target": f"dog {n}"} for n in range(60)]
    draft = read_extraction(reply({"content": "short"}, *facts, entities=triples))
    assert len(draft.facts) == 20
    assert len(draft.triples) == 50
    assert "10 facts over the limit of 20 left out" in draft.warnings
    assert "10 entities over the limit of 50 left out" in draft.warnings


def test_exact_duplicates_are_merged() -> None:
    again = {**FACT, "confidence": 0.95, "importance": None, "categories": ["dogs"]}
    draft = read_extraction(reply(FACT, again, entities=[TRIPLE, {**TRIPLE, "confidence": 0.9}]))
    (fact,) = draft.facts
    assert (fact.confidence, fact.importance, fact.categories) == (0.95, 0.7, ("pets", "dogs"))
    assert [triple.confidence for triple in draft.triples] == [0.9]


@pytest.mark.parametrize("name", ["source", "relationship", "target"])
@pytest.mark.parametrize("value", ["", "  ", None, 5, "x" * 300])
def test_a_triple_needs_its_three_names(name: str, value: object) -> None:
    draft = read_extraction(reply(FACT, entities=[{**TRIPLE, name: value}, TRIPLE]))
    assert len(draft.triples) == 1
    assert "entity 1 rejected" in draft.warnings[0]


def test_warnings_are_bounded() -> None:
    draft = read_extraction(reply(*[{"content": "x"}] * 400, FACT))
    assert len(draft.facts) == 1
    assert len(draft.warnings) == MAX_WARNINGS + 1
    assert draft.warnings[-1] == "and 350 more warnings"


def test_half_a_surrogate_pair_becomes_a_mark() -> None:
    content = read_extraction('{"facts": [{"content": "an emoji \\ud83d cut in half"}]}').facts[0]
    assert content.content == "an emoji \ufffd cut in half"
    whole = read_extraction('{"facts": [{"content": "a dog \\ud83d\\udc15 and no comma",}]}')
    assert whole.facts[0].content == "a dog \U0001f415 and no comma"


def decision(**changes: object) -> str:
    base = {"action": "UPDATE", "targetId": "m-17", "confidence": 0.9, "reason": "she moved"}
    return json.dumps({**base, **changes})


@pytest.mark.parametrize(
    "named", ["m-17", " m-17 ", "id m-17", 1, "1", "#1", "[1]", "(m-17)", '"m-17"']
)
def test_a_target_by_id_or_number(named: object) -> None:
    draft = read_decision(decision(targetId=named), IDS)
    assert (draft.action, draft.target_id, draft.dropped) == ("UPDATE", "m-17", None)


def test_an_id_that_looks_like_a_number_is_an_id_first() -> None:
    assert read_decision(decision(targetId="2"), ["2", "1"]).target_id == "2"


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
@pytest.mark.parametrize(
    "named", [None, "", "m-99", 0, 3, -1, True, 1.0, [1], {}, "9" * 9_999, 10**4_000, "²"]
)
def test_no_known_target_drops_the_proposal(action: str, named: object) -> None:
    draft = read_decision(decision(action=action, targetId=named), IDS)
    assert draft.dropped is not None
    assert action in draft.dropped
    assert draft.target_id is None
    assert draft.warnings == (f"proposal dropped: {draft.dropped}",)
    assert len(draft.dropped) < 150


@pytest.mark.parametrize("action", ["ADD", "NONE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("reason", ["", "  ", None, 5])
def test_no_reason_drops_the_proposal(action: str, reason: object) -> None:
    draft = read_decision(decision(action=action, reason=reason), IDS)
    assert draft.dropped == f"{action} without a reason"


@pytest.mark.parametrize("action", ["MERGE", "", None, 5, "ADD | UPDATE", "x" * 10_000])
def test_an_unknown_action_drops_the_proposal(action: object) -> None:
    draft = read_decision(decision(action=action), IDS)
    assert draft.dropped is not None
    assert "unknown action" in draft.dropped
    assert draft.action == "NONE"


def test_add_and_none() -> None:
    added = read_decision(decision(action="add"), IDS)
    assert (added.action, added.target_id, added.dropped) == ("ADD", None, None)
    same = read_decision(decision(action="NONE", targetId="2"), IDS)
    assert (same.target_id, same.dropped) == ("m-3", None)
    odd = read_decision(decision(action="NONE", targetId="m-99"), IDS)
    assert (odd.target_id, odd.dropped) == (None, None)
    assert "m-99" in odd.warnings[0]


def test_a_decision_is_parsed_like_an_extraction() -> None:
    text = f"<think>hm {{</think>```json\n{decision()[:-1]},}}\n```"
    assert read_decision(text, IDS).target_id == "m-17"
    assert read_decision(decision(confidence=1e15), IDS).confidence == 1.0


@pytest.mark.parametrize("text", ["", "ADD", "{}", GOOD, decision()[:-5]])
def test_no_decision_is_malformed(text: str) -> None:
    with pytest.raises(MalformedReply):
        read_decision(text, IDS)


def test_a_verdict() -> None:
    draft = read_contradiction('{"contradicts": true, "confidence": 0.8, "reason": "opposite"}')
    assert (draft.contradicts, draft.confidence, draft.reason) == (True, 0.8, "opposite")
    for text in ('{"contradicts": "yes"}', "true", "{}"):
        with pytest.raises(MalformedReply):
            read_contradiction(text)


def test_nothing_is_related_to_itself() -> None:
    entities = [
        {"source": "Jordan", "relationship": "lives_in", "target": "jordan "},
        {"source": "Jordan", "relationship": "lives_in", "target": "Amman"},
    ]
    draft = read_extraction(json.dumps({"facts": [], "entities": entities}))
    assert [triple.target for triple in draft.triples] == ["Amman"]
    assert any("have one name" in warning for warning in draft.warnings)
