"""Which clauses of a text state something of a name, and which only deny it. Pure, in linear time.

"Ana no longer works at Oceano" has both names of a relation that it denies. So a text supports the
relations of two names only by a clause that does not deny what it says of them. Only English is
read; questions, conditions and quotations deny nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from palimpsest.streams.claims.english import FINITE, expanded, is_english
from palimpsest.streams.claims.language import expression
from palimpsest.streams.text.quotes import masked

EVERY_CLAUSE: Final = -1
"""All bits: nothing in the text is denied."""
MAX_CHARACTERS: Final = 1_000
"""Length of a text that is read; a longer one denies nothing."""
MAX_CLAUSES: Final = 60
CACHED_TEXTS: Final = 256
"""All names of a text are looked for at once."""

_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+")
_JOINT: Final = re.compile(r"(?P<mark>, | - | \u2013 | \u2014 )|(?P<and> and )|(?P<word> (?=\S))")
_JOINED: Final = re.compile(r"(?i)(?:and|but|so|while|whereas|because|although|though|since) ")
_PRONOUN: Final = re.compile(r"(?i)(?:she|he|they|it|i|we|her|his|their|its|my|our)\b")
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2019\u02bc\u2018`\u00b4", "'"))
_PRONOUNS: Final = frozenset("i we he she they it you there".split())


class _Clause(NamedTuple):
    """A part of a text: whether it denies what it says, whether it begins a sentence, and whether
    it goes on about the subject of the clause before."""

    text: str
    denies: bool
    begins: bool
    continues: bool


def stated_clauses(text: str, name: str) -> int:
    """A bit for each clause of the text that states something of the name, as it is spelled there:
    two names without a common bit are named together only in what is denied. All bits where the
    text denies nothing, or where the name is not in it."""
    clauses = () if len(text) > MAX_CHARACTERS else _clauses(text)
    if not any(clause.denies for clause in clauses):
        return EVERY_CLAUSE
    named, bits, is_subject = False, 0, False
    spelled = re.escape(expanded(name.translate(_APOSTROPHES)))
    wanted = re.compile(rf"(?<!\w){spelled}(?!\w)", re.IGNORECASE)
    for number, clause in enumerate(clauses):
        found = wanted.search(clause.text)
        if clause.begins and not clause.continues:
            is_subject = found is not None and not found.start()
        named = named or found is not None
        goes_on = is_subject and clause.continues
        if (found is not None or goes_on) and not clause.denies:
            bits |= 1 << number
    return bits if named else EVERY_CLAUSE


@lru_cache(CACHED_TEXTS)
def _clauses(text: str) -> tuple[_Clause, ...]:
    """The clauses of a text; none where it has no word that denies."""
    plain = text.translate(_APOSTROPHES)
    if not _may_deny(plain):
        return ()
    found: list[_Clause] = []
    for sentence in _SENTENCE.split(masked(" ".join(plain.split())).text):
        reads = not sentence.endswith("?") and is_english(sentence)
        before = ""
        for number, part in enumerate(_parts(expanded(sentence).rstrip(" .!;"))):
            said = _JOINED.sub("", part) if number else part
            continues = _PRONOUN.match(said) is not None or (number > 0 and not _has_subject(said))
            before = _completed(said, before)
            found.append(_Clause(before, reads and _denies(part), not number, continues))
    return tuple(found[:MAX_CLAUSES])


def _may_deny(text: str) -> bool:
    return (
        "n't" in text
        or expression("denied_word").search(text) is not None
        or expression("ended_word").search(text) is not None
        or "cannot" in text
    )


def _denies(clause: str) -> bool:
    """Whether a clause says that something is not, or no longer, so: "never left" does not, nor
    does "not on Fridays"."""
    if expression("undecided").search(clause):
        return False
    sure = expression("not_yet_ended").sub(" ", clause)
    denials = len(expression("denied_word").findall(sure))
    ends = len(expression("ended_word").findall(sure))
    if not ends and expression("at_times").search(sure) and not expression("no_more").search(sure):
        return False
    return (denials + ends) % 2 == 1


def _has_subject(clause: str) -> bool:
    """Whether a clause begins with a name and its verb."""
    return clause[:1].isupper() and not FINITE.isdisjoint(clause.split()[1:4])


def _completed(part: str, before: str) -> str:
    """ "Ben does" after "Ana works at Oceano" has "works at Oceano", too."""
    subject, _, rest = part.partition(" ")
    if expression("echoed").fullmatch(rest) is None:
        return part
    _, _, predicate = before.partition(" ")
    return f"{subject} {predicate} {rest}"


def _parts(sentence: str) -> Iterator[str]:
    """The clauses of a sentence. Names that are listed stay together."""
    start = 0
    for joint in _JOINT.finditer(sentence):
        if joint.start() > start and _begins_clause(joint, sentence[joint.end() :][:40]):
            yield from _ways(sentence[start : joint.start()])
            start = joint.end()
    yield from _ways(sentence[start:])


def _begins_clause(joint: re.Match[str], rest: str) -> bool:
    words = rest.lower().split()[:3]
    first = words[0] if words else ""
    if joint["word"]:
        return first not in ("not", "now") and _is_conjunction(first)
    verbs = words[:2] if joint["and"] else words
    return _is_conjunction(first) or first in _PRONOUNS or not FINITE.isdisjoint(verbs)


def _is_conjunction(word: str) -> bool:
    return expression("clause_begins").fullmatch(word) is not None


def _ways(clause: str) -> Iterator[str]:
    """A clause, or what was left and what came after: "left Oceano", "for Brightwave"."""
    ended = expression("ended_word").search(clause)
    went = None if ended is None else expression("ended_and_went").search(clause, ended.end())
    if went is None:
        yield clause
    else:
        yield clause[: went.start()]
        yield clause[went.end() :]
