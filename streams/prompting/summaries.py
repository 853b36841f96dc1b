"""Asking a model to sum up a session or an entity, for causes, or to which aspects of an entity
facts belong, and reading its answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pydantic import JsonValue

from palimpsest.schemas.normal_forms import canonical_name, storage_content
from palimpsest.schemas.rows.enumerations import EntityType
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.prompting.json_text import find_object
from palimpsest.streams.prompting.prompts import (
    ONLY_JSON,
    PROMPTS,
    TEXT,
    choice,
    fence,
    list_of,
    object_of,
)
from palimpsest.streams.prompting.replies import MalformedReply

OUTPUT_TOKENS: Final = 1_024
LEAST_TELLING: Final = 4
"""Length of a list from which on a model that goes through it has not read it."""


def profile_prompt(name: str, notes: Sequence[str], most_characters: int) -> Prompt:
    """Ask for a summary of what notes say of an entity. `subject`: name and notes."""
    lines = [" ".join(note.split()) for note in notes]
    asked = f"The one that is asked for: {' '.join(name.split())}"
    return _prompt("profile", lines, asked, most_characters, {"name": name, "notes": [*notes]})


def summary_prompt(turns: Sequence[tuple[str, str]], most_characters: int) -> Prompt:
    """Ask for the summary of the turns (who, what was said; oldest first), in at most so many
    characters. `subject`: turns (speaker, content)."""
    # A line each, so that no name and no text can open lines of its own.
    lines = [" ".join(f"{who or 'unknown'}: {said}".split()) for who, said in turns]
    subject: JsonValue = [{"speaker": who, "content": said} for who, said in turns]
    return _prompt("session", lines, "", most_characters, {"turns": subject})


def _prompt(
    name: str, lines: Sequence[str], of: str, most_characters: int, subject: Mapping[str, JsonValue]
) -> Prompt:
    asked = "\n".join(filter(None, (of, f"At most {most_characters} characters.")))
    return fenced("summarize", PROMPTS[name], lines, asked, {"summary": TEXT}, subject)


def fenced(
    purpose: str,
    system: str,
    lines: Sequence[str],
    asked: str,
    answer: Mapping[str, JsonValue],
    subject: Mapping[str, JsonValue],
) -> Prompt:
    """A question about lines that are material to read."""
    told = "\n".join(lines)
    edge = fence("turns", told)
    return Prompt(
        purpose=purpose,
        system=system,
        user="\n".join((edge, told, edge, f"{asked} {ONLY_JSON}".strip())),
        schema=object_of(answer),
        max_output_tokens=OUTPUT_TOKENS,
        subject=subject,
    )


def causes_prompt(pairs: Sequence[tuple[str, str]]) -> Prompt:
    """Ask which of these pairs of texts, numbered from 1, are cause and effect."""
    lines = [
        line
        for number, pair in enumerate(pairs, 1)
        for first, second in [[" ".join(each.split()) for each in pair]]
        for line in (f"{number}. first: {first}", f"{number}. second: {second}")
    ]
    numbers = list_of({"type": "integer", "minimum": 1, "maximum": len(pairs)})
    subject: JsonValue = [[*pair] for pair in pairs]
    system = PROMPTS["causes"]
    return fenced("infer-causes", system, lines, "", {"causal": numbers}, {"pairs": subject})


def read_causes(text: str, count: int) -> list[int] | None:
    """The places (from 0) of the pairs that a reply names; None for a reply that names most of
    several pairs, as small models do. Raises MalformedReply."""
    found = find_object(text, ("causal",))
    numbers = None if found is None else found.value.get("causal")
    if not isinstance(numbers, list):
        raise MalformedReply('no JSON object with a list "causal" in the reply')
    named = {each for each in numbers if isinstance(each, int) and not isinstance(each, bool)}
    places = [number - 1 for number in sorted(named) if 1 <= number <= count]
    return None if count >= LEAST_TELLING and len(places) > count / 2 else places


def read_summary(text: str, most_characters: int) -> str:
    """The summary in a reply, cut to so many characters. Raises MalformedReply where there is
    none."""
    found = find_object(text, ("summary",))
    summary = None if found is None else found.value.get("summary")
    if not isinstance(summary, str):
        raise MalformedReply('no JSON object with a text "summary" in the reply')
    kept = storage_content(summary)[:most_characters].rstrip()
    if not kept:
        raise MalformedReply('"summary" of the reply is empty')
    return kept


# --- aspects --------------------------------------------------------------------------------

MOST_CHARACTERS: Final = 40
"""Maximum length of the name of an aspect."""
MOST_WORDS: Final = 4
"""Of the name of an aspect: small models repeat the fact instead."""
MOST_KNOWN: Final = 30
"""Maximum number of known aspects that a model is shown."""
TYPES: Final = get_args(EntityType)
Kind = Literal["attribute", "constraint"]
_KINDS: Final[tuple[Kind, ...]] = ("attribute", "constraint")
_NO_ASPECTS: Final = frozenset((*_KINDS, "aspect", "aspects", "fact", "facts", "unknown", "none"))
"""What small models answer instead of the name of an aspect."""
_WORK: Final = ("purpose", "status", "deployment", "rules", "people")
_SUGGESTED: Final[Mapping[str, Sequence[str]]] = {
    "person": (
        *("identity", "home", "work", "family", "health", "diet"),
        *("preferences", "hobbies", "plans", "possessions"),
    ),
    "organization": ("purpose", "people", "location", "products", "rules"),
    "place": ("location", "features", "access", "events"),
    **dict.fromkeys(("product", "project", "system", "tool"), _WORK),
    **dict.fromkeys(("concept", "skill", "task"), ("definition", "status", "steps", "rules")),
}


@dataclass(frozen=True, slots=True)
class Place:
    """The aspect that a fact belongs to, in its canonical form."""

    aspect: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a reply says: places by the index of the fact, from 0; `refused` tells what of the reply
    cannot be used."""

    entity_type: EntityType | None
    places: Mapping[int, Place]
    refused: tuple[str, ...]


def shown_aspects(entity_type: str, known: Sequence[str]) -> tuple[list[str], list[str]]:
    """The known and the suggested aspects that a model is shown, in order."""
    suggested = _SUGGESTED.get(entity_type, _SUGGESTED["person"])
    return [*known[:MOST_KNOWN]], [each for each in suggested if each not in known]


def aspects_prompt(
    name: str, entity_type: str, known: Sequence[str], facts: Sequence[str]
) -> Prompt:
    """Ask for the aspects of an entity that the facts, numbered from 1, belong to, given the
    aspects that it has."""
    asked = [f"The one that the facts are about: {' '.join(name.split())}"]
    if entity_type in TYPES:
        asked[0] += f" ({entity_type})"
    shown, suggested = shown_aspects(entity_type, known)
    if shown:
        asked.append(f"Known aspects: {', '.join(shown)}")
    if suggested:
        asked.append(f"Suggested aspects: {', '.join(suggested)}")
    item = object_of(
        {
            "i": {"type": "integer", "minimum": 1, "maximum": len(facts)},
            "aspect": {"type": "string", "maxLength": MOST_CHARACTERS},
            "kind": choice(*_KINDS),
        }
    )
    answer = {"type": choice(*TYPES, "unknown"), "facts": list_of(item, len(facts))}
    lines = [f"{number}. {' '.join(fact.split())}" for number, fact in enumerate(facts, 1)]
    subject: dict[str, JsonValue] = {"name": name, "facts": [*facts]}
    system = PROMPTS["aspects"].replace("TYPES", ", ".join(TYPES))
    return fenced("classify-facts", system, lines, "\n".join(asked), answer, subject)


def read_aspects(text: str, name: str, count: int, shown: Sequence[str] = ()) -> Sorted:
    """What a reply says of `count` facts about an entity, whose prompt listed the `shown` aspects.
    Raises MalformedReply for one without a list of facts."""
    found = find_object(text, ("facts",))
    items = None if found is None else found.value.get("facts")
    if found is None or not isinstance(items, list):
        raise MalformedReply('no JSON object with a list "facts" in the reply')
    given = found.value.get("type")
    entity_type = next((each for each in TYPES if each == given), None)
    is_odd = entity_type is None and given not in (None, "", "unknown")
    refused = [f"a type that is none of {', '.join(TYPES)}"] if is_odd else []
    places: dict[int, Place] = {}
    for item in items:
        number = item.get("i") if isinstance(item, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= count:
            refused.append(f"a number that is not from 1 to {count}")
        elif number - 1 in places:
            refused.append(f"fact {number} again")
        elif isinstance(place := _place(item, name), Place):
            places[number - 1] = place
        else:
            refused.append(f"{place} of fact {number}")
    named = [place.aspect for place in places.values()]
    if len(named) >= LEAST_TELLING and named == [*shown[: len(named)]]:
        # Small models go through the list instead of the facts.
        return Sorted(entity_type, {}, (*refused, "the list of aspects in its own order"))
    return Sorted(entity_type, places, tuple(refused))


def _place(item: JsonValue, name: str) -> Place | str:
    """The place of a fact, or what of it cannot be used."""
    assert isinstance(item, dict)
    aspect = item.get("aspect")
    if not isinstance(aspect, str):
        return "no aspect"
    aspect = canonical_name(aspect)
    if len(aspect) > MOST_CHARACTERS:
        return f"an aspect of over {MOST_CHARACTERS} characters"
    if len(aspect.split()) > MOST_WORDS:
        return f"an aspect of over {MOST_WORDS} words"
    if not any(each.isalpha() for each in aspect) or not aspect.isprintable():
        return "an aspect without a word"
    if aspect in _NO_ASPECTS or aspect == canonical_name(name):
        return "an aspect that is none"
    kind = next((each for each in _KINDS if each == item.get("kind")), None)
    return "no kind" if kind is None else Place(aspect, kind)
