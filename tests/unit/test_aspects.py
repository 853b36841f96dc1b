"""What a model is asked about facts of an entity, and what of its answers can be used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palimpsest.streams.prompting.replies import MalformedReply
from palimpsest.streams.prompting.summaries import Place, aspects_prompt, read_aspects


def read(reply: object, count: int = 2) -> Any:
    return read_aspects(json.dumps(reply), "Ana", count)


def fact(**given: Any) -> dict[str, Any]:
    return {"i": 1, "aspect": "Home ", "kind": "attribute", **given}


def test_the_prompt_names_what_is_known() -> None:
    prompt = aspects_prompt("Ana\nB", "person", ["diet", "sea"], ["Ana\n2. sails", "b"])
    assert "1. Ana 2. sails\n2. b" in prompt.user
    assert "about: Ana B (person)\nKnown aspects: diet, sea\nSuggested aspects: id" in prompt.user
    assert prompt.user.count("diet") == 1
    unknown = aspects_prompt("Ana", "unknown", [], ["a"]).user
    assert "(unknown)" not in unknown
    assert "Known aspects" not in unknown


def test_a_good_reply() -> None:
    reply = {"type": "person", "facts": [fact(), fact(i=2, aspect="diet", kind="constraint")]}
    found = read(reply)
    assert found.entity_type == "person"
    assert found.places == {0: Place("home", "attribute"), 1: Place("diet", "constraint")}
    assert found.refused == ()
    assert read({"type": "unknown", "facts": []}).refused == ()


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (fact(i=0), "a number"), (fact(i=3), "a number"), (fact(i=True), "a number"),
        (fact(i="1"), "a number"), ("1", "a number"), (None, "a number"), ([], "a number"),
        (fact(aspect=None), "no aspect"), (fact(aspect={}), "no aspect"),
        (fact(aspect=""), "without a word"), (fact(aspect="123"), "without a word"),
        (fact(aspect="a\u0000b"), "without a word"), (fact(aspect="x" * 41), "over 40"),
        (fact(aspect="has a cat and a dog"), "over 4 words"),
        (fact(aspect="ANA"), "is none"), (fact(aspect="Constraint"), "is none"),
        (fact(kind=None), "no kind"), (fact(kind="rule"), "no kind"), (fact(kind=[]), "no kind"),
    ],
)  # fmt: skip
def test_what_of_a_reply_is_refused(item: Any, why: str) -> None:
    found = read({"type": "person", "facts": [item, fact(i=2)]})
    assert [*found.places] == [1]
    assert len(found.refused) == 1
    assert why in found.refused[0]


def test_a_fact_has_one_place_and_a_type_is_one_of_those() -> None:
    found = read({"type": ["person"], "facts": [fact(), fact(aspect="sea")]})
    assert found.places == {0: Place("home", "attribute")}
    assert found.entity_type is None
    assert len(found.refused) == 2


def test_a_list_of_aspects_repeated_in_its_order_is_no_reading_of_facts() -> None:
    shown = ["identity", "home", "work", "family", "health"]

    def places(*aspects: str) -> int:
        facts = [fact(i=number, aspect=aspect) for number, aspect in enumerate(aspects, 1)]
        reply = json.dumps({"type": "person", "facts": facts})
        return len(read_aspects(reply, "Ana", 6, shown).places)

    assert places(*shown) == places(*shown[:4]) == 0
    assert places(*shown[:3]) == 3
    assert places("home", *shown[1:]) == 5
    assert places(*shown, "home") == 6


@pytest.mark.parametrize("reply", ["", "no", "[]", '{"facts": 1}', '{"type": "person"}', "{" * 99])
def test_what_is_no_reply(reply: str) -> None:
    with pytest.raises(MalformedReply):
        read_aspects(reply, "Ana", 2)
