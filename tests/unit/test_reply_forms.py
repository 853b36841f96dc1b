"""Replies of several objects, short statements of scripts with wide characters, and what is said of
a reply that has no object."""

from __future__ import annotations

import json

import pytest

from palimpsest.streams.prompting.replies import MalformedReply, read_decision
from tests.unit.reply_texts import FACT, IDS, TRIPLE, one, read_extraction, reply

OTHER = {**FACT, "content": "Ben moved to Lisbon last year."}
A, B, T = json.dumps(FACT), json.dumps(OTHER), json.dumps(TRIPLE)


@pytest.mark.parametrize(
    ("text", "facts", "triples"),
    [
        (f'Format: {{"facts": [], "entities": []}}\nHere: {{"facts": [{A}]}}', 1, 0),
        (f'{{"facts": [{A}]}}\n{{"facts": [{B}]}}', 2, 0),
        (f'{{"facts": [{A}]}} {{"entities": [{T}]}}', 1, 1),
        (f'{{"entities": [{T}]}} {{"facts": [{A}, {B}]}}', 2, 1),
        (f'<reasoning>{{"facts": []}}?</reasoning> {{"facts": [{A}]}}', 1, 0),
        (f'{{"facts": null}} {{"facts": [{A}]}}', 1, 0),
        (f'{{"facts": [{A}], "facts": [{B}], "entities": []}}', 2, 0),
        (f'{{"facts": [{A}]}} {{"facts": [{B}, {{"content": "Ana li', 2, 0),
        ("\n".join(reply({**FACT, "content": f"Ana has {n} dogs"}) for n in range(20)), 20, 0),
    ],
)
def test_no_object_of_a_reply_is_lost_in_silence(text: str, facts: int, triples: int) -> None:
    draft = read_extraction(text)
    assert (len(draft.facts), len(draft.triples)) == (facts, triples)
    assert draft.warnings


def test_objects_over_the_limit_are_told() -> None:
    draft = read_extraction('{"facts": []}' * 60)
    assert "only the first 50 JSON objects of the reply are used" in draft.warnings


@pytest.mark.parametrize("said", ["安娜养了一只狗", "アナは犬が好き", "안나는 개를 키워"])
def test_a_sentence_of_few_wide_characters_is_a_fact(said: str) -> None:
    assert [fact.content for fact in one(content=said).facts] == [said]


@pytest.mark.parametrize("said", ["没问题", "はい", "好的", "🐕🐕🐕🐕🐕", "Ana runs"])
def test_a_word_or_two_is_none(said: str) -> None:
    draft = one(content=said)
    assert draft.facts == ()
    assert any("shorter than 10 characters" in warning for warning in draft.warnings)


def test_a_fact_without_a_text_is_told_as_that() -> None:
    draft = read_extraction(reply(FACT, {"content": ["Ana has a cat."]}, {"fact": "Ana has a cat"}))
    told = [line for line in draft.warnings if "no text as content or text" in line]
    assert [line[:6] for line in told] == ["fact 2", "fact 3"]


def test_control_characters_of_terminals_do_not_stay() -> None:
    assert one(content="Ana \x9badopted a\x85dog").facts[0].content == "Ana adopted a dog"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" \n", "the reply is empty"),
        ("I am sorry.", 'no JSON object with "facts" or "entities"'),
        ('{"facts": [{"content": "Ana has a d', "is cut or not valid JSON"),
        ('{"choices": [{"message": {"refusal": "No."}}]}', "the model refused"),
        ('{"choices": [{"finish_reason":"length"}]}', "limit of tokens"),
        ('{"response": "", "done_reason": "length"}', "limit of tokens"),
        ('{"choices": [{"finish_reason": "content_filter"}]}', "filter"),
    ],
)
def test_a_reply_without_an_object_says_why(text: str, why: str) -> None:
    with pytest.raises(MalformedReply, match=why):
        read_extraction(text)


def test_a_decision_that_is_cut_says_so() -> None:
    with pytest.raises(MalformedReply, match=r'"action" in the reply is cut'):
        read_decision('{"action": "UPDATE", "targetId": 1, "rea', IDS)
