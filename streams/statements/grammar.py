"""What a language with spaces between its words must tell so that its statements can be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from palimpsest.streams.statements.claims import Claim, Words


class Token(NamedTuple):
    """A word in its plain form, folded, and as it was written."""

    word: str
    raw: str

    @property
    def is_name(self) -> bool:
        return self.raw[:1].isupper()


Tokens = tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Sense:
    """A clause without what carries no statement: its tokens and their words, whether it denies
    them, the habits and durations in it, and whether it tells that this is new, or one more."""

    tokens: Tokens
    words: Words
    denies: bool
    qualifiers: frozenset[str]
    is_news: bool
    adds: bool


class Relation(NamedTuple):
    """A relation of which one holds at a time, by the words that say it. `tells`: that it came to
    be, which as an event stays true, so it never stands as what holds now."""

    name: str
    phrase: Words
    tells: bool = False


@dataclass(frozen=True, slots=True)
class Grammar:
    """The words of a language, folded (`stem` is applied to those of a statement first, except
    where "as written" is said)."""

    expand: Callable[[str], str]
    """Contractions to whole words."""
    stem: Callable[[str], str]
    """A folded word to the form in which those that only agree with their subject meet."""
    habits: re.Pattern[str]
    """Habits and durations, as written; what they match is a qualifier."""
    speaker: frozenset[str]
    """"I" and "me", as written."""
    speakers: frozenset[str]
    """"My", as written."""
    we: frozenset[str]
    """Words for a group of the speaker's, as written."""
    articles: frozenset[str]
    """Articles that are pronouns, too, unless a noun follows, as written."""
    unclear_subjects: frozenset[str]
    """Words that begin a statement whose subject is not known, or is not one, as written."""
    unclear: frozenset[str]
    """Words that stand for what another sentence named, as written."""
    doubtful: frozenset[str]
    """Words of what may be, of conditions, and of the past, as written."""
    past: re.Pattern[str]
    """What tells of an event that is over, in the clause's plain words."""
    negations: frozenset[str]
    """Words that deny, as written."""
    no_negation: frozenset[str]
    """Words after which a negation denies something else than the statement, as written."""
    in_denials: frozenset[str]
    """Words that only go with a negation, as written."""
    helpers: frozenset[str]
    """Verbs that carry nothing but a negation, as written."""
    light: frozenset[str]
    """Determiners and adverbs that change nothing, as written."""
    news: frozenset[str]
    """Adverbs that say that something is new, as written."""
    more: frozenset[str]
    """Words that say that something holds beside what is known, as written."""
    synonyms: tuple[tuple[Words, Words], ...]
    """Wordings that are made one, the first found first."""
    relations: tuple[Relation, ...]
    copula: str
    several: frozenset[str]
    """Forms of the copula, and of the verbs of the relations, that speak of several, as written."""
    indefinite: frozenset[str]
    """Articles of what is one of many, as written."""
    before_nouns: frozenset[str]
    """Words after which no verb stands, as written."""
    open_ends: frozenset[str]
    """Words that, last in a clause, leave to another sentence what they speak of, as written."""
    favourite: re.Pattern[str]
    """The word in a subject that makes it a favourite."""
    attributes: frozenset[str]
    """Nouns of which a thing has one, with a figure or a day as value."""
    of: frozenset[str]
    """What may follow an attribute's noun inside the subject."""
    opposites: Mapping[str, tuple[str, str]]
    """A word to its group and its side in it."""
    states: frozenset[str]
    """Groups that count only as what the subject is said to be."""
    diets: Mapping[str, Words]
    """A word for people with a diet to the foods that they do not eat."""
    eat: str
    stops: frozenset[str]
    """Words that end a value."""
    narrows: frozenset[str]
    """Words that, in what follows a value, say that it does not hold always."""
    tails: frozenset[str]
    """Words that begin a clause of time or reason, as written; it is a qualifier."""
    elsewhen: frozenset[str]
    """Words after an event that leave open what came after it."""
    spans: frozenset[str]
    """Words for how long, or how long ago."""
    last: frozenset[str]
    """Words that make a span or a year the latest one."""
    vague: frozenset[str]
    """Words that describe a value and do not name it."""
    restricts: frozenset[str]
    """Words in a second clause that take something of the first one back, as written."""
    breaks: frozenset[str]
    """Conjunctions that end a first clause, as written."""
    endings: Callable[[Sense], tuple[Claim, ...]]
    """What a statement says to have ended."""


def folded(text: str) -> frozenset[str]:
    """The words of `text`, folded."""
    return frozenset(text.casefold().split())


def rewritten(text: str, wordings: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """`text` with each of the wordings replaced, one after another."""
    for pattern, plain in wordings:
        text = pattern.sub(plain, text)
    return text


def opposites(
    groups: Mapping[str, tuple[str, ...]], stem: Callable[[str], str] = str
) -> dict[str, tuple[str, str]]:
    """A stem to its group and its side, which is called by its first word."""
    return {
        stem(word): (group, side.split()[0])
        for group, sides in groups.items()
        for side in sides
        for word in side.split()
    }
