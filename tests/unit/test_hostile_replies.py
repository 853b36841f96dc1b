"""Replies of any text and any value are read within bounds, or refused as malformed."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.streams.prompting.json_text import MAX_REPLY_CHARACTERS, find_object
from palimpsest.streams.prompting.replies import (
    MalformedReply,
    read_contradiction,
    read_decision,
    says_enough,
)
from tests.examples import examples
from tests.processor_time import takes_at_most
from tests.unit.reply_texts import FACT, IDS, SLOW_S, TRIPLE, read_extraction, reply

HOSTILE = {
    "brackets": "[" * 1_000_000,
    "objects": '{"a":' * 200_000,
    "quotes": '"\\' * 500_000,
    "braces and quotes": '{"' * 500_000,
    "closed braces": '{"}' * 300_000,
    "commas": '{"facts":[' + "," * 1_000_000,
    "commas and spaces": '{"facts":[' + ", " * 500_000,
    "spaces": "{" + " " * 1_000_000,
    "escapes": '{"facts":["' + "\\u" * 500_000,
    "surrogates": '{"facts":[{"content":"' + "\\ud800" * 100_000,
    "thoughts": "<think></think>" * 70_000,
    "open thoughts": "<think>" * 140_000,
    "thoughts ended": "</think>" * 140_000,
    "fences": "```json\n" * 140_000,
    "items": '{"facts":[' + '{"content":"x"},' * 60_000,
    "deep items": '{"facts":[{' * 100_000,
    "objects in a row": '{"facts":1}' * 90_000,
    "lines": "\n" * 1_000_000,
    "digits": '{"facts":[' + "9" * 1_000_000,
    "text": '{"facts": [{"content": "' + "x" * 1_000_000 + '"}]}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_megabytes_are_bounded(text: str) -> None:
    def all_read() -> None:
        for read in (read_extraction, read_contradiction, lambda said: read_decision(said, IDS)):
            with contextlib.suppress(MalformedReply):
                read(text)

    assert takes_at_most(SLOW_S * 3, all_read)


def test_a_reply_over_the_limit_is_cut_and_salvaged() -> None:
    filler = {**FACT, "content": "Ana has a dog", "note": "x" * MAX_REPLY_CHARACTERS}
    draft = read_extraction(reply(FACT, filler))
    assert len(draft.facts) == 1
    assert draft.warnings[0] == f"reply cut at {MAX_REPLY_CHARACTERS} characters"


PIECES = st.sampled_from(
    [
        *'{}[],:"\\ \n',
        '{"facts":[',
        '"content":"Ana adopted a dog"',
        '"confidence":1e999',
        '"entities":[',
        '{"action":"UPDATE","targetId":',
        "<think>",
        "</think>",
        "```json",
        "\\ud800",
        "\ud800",
        "NaN",
        "9" * 50,
        json.dumps(FACT),
        json.dumps(TRIPLE),
        "\u2028é日",
    ]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*FACT, *TRIPLE, "facts", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)


def read_all(text: str) -> None:
    try:
        draft = read_extraction(text)
    except MalformedReply:
        pass
    else:
        assert len(draft.facts) <= 20
        assert len(draft.triples) <= 50
        for fact in draft.facts:
            assert says_enough(fact.content)
            assert len(fact.content) <= 2_000
            assert 0.0 <= fact.confidence <= 1.0
            assert fact.importance is None or 0.1 <= fact.importance <= 1.0
            assert len(fact.categories) <= 8
            fact.content.encode()
    for read in (read_contradiction, lambda said: read_decision(said, IDS)):
        with contextlib.suppress(MalformedReply):
            read(text)


@given(st.text() | st.lists(PIECES, max_size=30).map("".join))
@settings(max_examples=examples(50))
def test_no_text_makes_reading_fail(text: str) -> None:
    read_all(text)


@given(st.lists(JSON_VALUES, max_size=5), st.lists(JSON_VALUES, max_size=5), JSON_VALUES)
@settings(max_examples=examples(37))
def test_no_value_makes_reading_fail(facts: list[object], entities: object, other: object) -> None:
    read_all(json.dumps({"facts": facts, "entities": entities}))
    read_all(json.dumps({"facts": other, "entities": entities, "action": other}))
    read_all(json.dumps({"action": "UPDATE", "targetId": other, "contradicts": other}))


@given(st.data())
@settings(max_examples=examples(25))
def test_a_reply_cut_anywhere_loses_only_its_end(data: st.DataObject) -> None:
    contents = data.draw(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5))
    facts = [{**FACT, "content": f"{n}: Ana said {text}"} for n, text in enumerate(contents)]
    text = reply(*facts)
    whole = [fact.content for fact in read_extraction(text).facts]
    end = data.draw(st.integers(0, len(text)))
    try:
        kept = [fact.content for fact in read_extraction(text[:end]).facts]
    except MalformedReply:
        kept = []
    assert kept == whole[: len(kept)]


def test_find_object_joins_the_lists_that_are_wanted() -> None:
    text = '{"a": 1} {"facts": [1], "n": 1} {"facts": [2], "n": 2}'
    found = find_object(text, ("facts",))
    assert found is not None
    assert found.value == {"facts": [1, 2], "n": 1}
    assert find_object(text, ("b",)) is None
    first = find_object('{"action": "ADD"} {"action": "NONE"}', ("action",))
    assert first is not None
    assert first.value == {"action": "ADD"}
