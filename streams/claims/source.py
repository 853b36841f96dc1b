"""Whether the source of a fact says the fact and nothing beside it. Pure, in linear time.

What draws facts takes clauses out of sentences. To remember one is harmless; to end another memory
with it is not: "I don't have a dog, I have two", "I'm not vegetarian, as my aunt says".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from palimpsest.streams.claims.conflict import CACHED_STATEMENTS, base_form
from palimpsest.streams.claims.english import expanded
from palimpsest.streams.claims.grammar import STAND_IN, clause_claim
from palimpsest.streams.claims.language import expression, word_set
from palimpsest.streams.claims.subjects import subject_of
from palimpsest.streams.text.dates import MONTHS

MAX_CHARACTERS: Final = 20_000
"""Length of a source that is read; a longer one says more than a fact."""
MAX_NAME_WORDS: Final = 3
"""Of the one who speaks, whom the fact names."""

_SENTENCES: Final = re.compile(r"(?<=[.!?…])\s+|\n+| and (?=(?:I|we|my)\b)")
_LEAD: Final = expression("source_lead")
_AND_THEN: Final = re.compile(r" and (?:then )?(?=(?:joined|started|got|bought|moved|went)\b)")
"""What someone did next: it takes nothing back of what was said before it."""
_FROM: Final = re.compile(r"(?<= moved) from [A-Z][^,.]{1,40}?(?= to [A-Z])")
"""Where somebody lived before, which the fact of a move leaves out."""
_GOES_BACK: Final = re.compile(r"\b(?:again|back|rejoined|returned)\b")
"""Takes back what was said before: "I quit smoking and started again"."""
_NOW: Final = re.compile(r"\b(?:now|new|again)\b", re.IGNORECASE)
_FIRST_PERSON: Final = re.compile(r"(?:I|My)(?=['\u2019 ])")
_JOINED: Final = re.compile(r"[,;:?()\"“”„»«「」『』\u2013\u2014]| - |\.\.")
MAX_SENTENCE: Final = 200
MAX_CLAUSES: Final = 4
_CLAUSES: Final = re.compile(r"(?:, (?:and |but |so )?|; | (?:and|but) )(?:then )?")
_OWN: Final = re.compile(r"(?:my|we|our)\b")
_OF_ANOTHER: Final = re.compile(
    r"(?i)\b(?:it|its|that|this|those|these|there|them|one|ones|both|either|neither|other|only|just"
    r"|except|instead|back|returned|rejoined|was|were|used|would|could|might|may|if|when|while)\b"
)
"""What tells more of another clause, or of another time."""
_WORD: Final = re.compile(r"[\w@+][\w@.+'/-]*")
_LIGHT: Final = word_set("source_light")
_EVENTS: Final = frozenset(map(base_form, word_set("event_verbs")))
_LONG_AGO: Final = frozenset("ago year".split()) | frozenset(MONTHS)
_YEAR: Final = re.compile(r"\b\d{4}\b")
_TIMES: Final = word_set("source_times") | frozenset(MONTHS)


def as_stated(source: str, fact: str, *, by_clause: bool = True) -> str | None:
    """The fact, with the "now" of its source where it was left out; None unless a sentence of the
    source is all of the fact, in its words, or `by_clause` one of several plain statements that it
    consists of ("I left Bosch, I'm at Siemens now")."""
    if len(source) > MAX_CHARACTERS:
        return None
    sentences = _SENTENCES.split(source)
    for sentence in tuple(sentences):
        first, *then = _AND_THEN.split(sentence, maxsplit=1)
        if not (by_clause and any(map(_GOES_BACK.search, then))):
            sentences.append(first)
    if by_clause:
        sentences += [clause for each in sentences for clause in _plain_clauses(each)]
    found = next((sentence for sentence in sentences if _is_only(sentence, fact)), None)
    if found is None or _NOW.search(found) is None or _NOW.search(fact) is not None:
        return None if found is None else fact
    return f"{fact.rstrip(' .!')} now."


@lru_cache(CACHED_STATEMENTS)
def _plain_clauses(sentence: str) -> tuple[str, ...]:
    """The clauses of a sentence; none unless each is a claim that says nothing of another one: "I
    have no dog, I have two dogs"."""
    plain = expanded(_LEAD.sub("", sentence.strip(), count=1).replace("\u2019", "'").rstrip(" .!"))
    clauses = _CLAUSES.split(plain) if len(plain) <= MAX_SENTENCE else []
    if not 1 < len(clauses) <= MAX_CLAUSES:
        return ()
    parsed = subject_of(clauses[0], STAND_IN)
    if parsed is None:
        return ()
    subject = clauses[0].removesuffix(parsed[1])
    clauses = [
        f"{subject}{each}" if each[:1].islower() and not _OWN.match(each) else each
        for each in clauses
    ]
    about: set[str] = set()
    for clause in clauses:
        is_alone = _JOINED.search(clause) is None and _OF_ANOTHER.search(clause) is None
        claim = clause_claim(clause, STAND_IN, None) if is_alone else None
        if claim is None:
            return ()
        words = _words(f"{claim.key} {claim.value}") - _LIGHT
        if not about.isdisjoint(words):
            return ()
        about |= words
    return tuple(clauses)


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
    plain = expression("tail").sub("", _LEAD.sub("", sentence.strip(), count=1).rstrip(" .!,"))
    plain = _FROM.sub("", plain, count=1)
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
