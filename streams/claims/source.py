"""Whether the source of a fact says the fact and nothing beside it. Pure, in linear time.

What draws facts takes clauses out of sentences. To remember one is harmless; to end another memory
with it is not: "I don't have a dog, I have two", "I'm not vegetarian, as my aunt says".
"""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.conflict import base_form
from palimpsest.streams.claims.english import expanded
from palimpsest.streams.claims.grammar import clause_claim
from palimpsest.streams.claims.language import expression, word_set
from palimpsest.streams.text.dates import MONTHS

MAX_CHARACTERS: Final = 20_000
"""Length of a source that is read; a longer one says more than a fact."""
MAX_NAME_WORDS: Final = 3
"""Of the one who speaks, whom the fact names."""

_SENTENCES: Final = re.compile(r"(?<=[.!?…])\s+|\n+| and (?=(?:I|we|my)\b)")
_LEAD: Final = expression("source_lead")
_AND_THEN: Final = re.compile(r" and (?:then )?(?=(?:joined|started|got|bought|moved|went)\b)")
"""What someone did next: it takes nothing back of what was said before it."""
_NOW: Final = re.compile(r"\b(?:now|new|again)\b", re.IGNORECASE)
_FIRST_PERSON: Final = re.compile(r"(?:I|My)(?=['\u2019 ])")
_JOINED: Final = re.compile(r"[,;:?()\"“”„»«「」『』\u2013\u2014]| - |\.\.")
_WORD: Final = re.compile(r"[\w@+][\w@.+'/-]*")
_LIGHT: Final = word_set("source_light")
_EVENTS: Final = frozenset(map(base_form, word_set("event_verbs")))
_LONG_AGO: Final = frozenset("ago year".split()) | frozenset(MONTHS)
_YEAR: Final = re.compile(r"\b\d{4}\b")
_TIMES: Final = word_set("source_times") | frozenset(MONTHS)


def as_stated(source: str, fact: str) -> str | None:
    """The fact, with the "now" of its source where it was left out; None unless a sentence of the
    source is all of the fact, in its words."""
    if len(source) > MAX_CHARACTERS:
        return None
    sentences = _SENTENCES.split(source)
    sentences += [_AND_THEN.split(sentence, 1)[0] for sentence in sentences]
    found = next((sentence for sentence in sentences if _is_only(sentence, fact)), None)
    if found is None or _NOW.search(found) is None or _NOW.search(fact) is not None:
        return None if found is None else fact
    return f"{fact.rstrip(' .!')} now."


def is_first_person(statement: str) -> bool:
    """Whether the statement begins with the one who makes it."""
    return _FIRST_PERSON.match(statement) is not None


def in_third_person(statement: str, speaker: str) -> str:
    """The statement about `speaker`, where it is one plain claim; else as it is."""
    plain = expanded(statement.replace("\u2019", "'")).strip().rstrip(".!")
    found = clause_claim(plain, speaker, None)
    if found is None or found.qualified or as_stated(statement, found.text) is None:
        return statement
    return found.text


def _is_only(sentence: str, fact: str) -> bool:
    plain = expression("tail").sub("", _LEAD.sub("", sentence.strip(), count=1).rstrip(" .!"))
    listed = fact.partition(",")
    if listed[1]:  # "Tokyo, Japan"
        plain = plain.replace(f",{listed[2].rstrip('.!')}", listed[2])
    if not plain or _JOINED.search(plain):
        return False
    said, held = _words(plain), _words(fact)
    dated = _YEAR.search(fact) is not None
    if not dated and (_YEAR.search(plain) or not _LONG_AGO.isdisjoint(said - held)):
        return False
    beside = _LIGHT | _TIMES if dated or not held.isdisjoint(_EVENTS) else _LIGHT
    telling = {word for word in said - beside if not word.isdecimal()}
    missing = {word for word in held - said - _LIGHT - _TIMES if not word.isdecimal()}
    return telling <= held and len(missing) <= MAX_NAME_WORDS


def _words(text: str) -> frozenset[str]:
    found = _WORD.findall(expanded(text.replace("\u2019", "'").replace("'s ", " ")))
    return frozenset(
        word if word in _LIGHT or word in _TIMES else base_form(word)
        for word in (each.casefold().rstrip(".'") for each in found)
    )
