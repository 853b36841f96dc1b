"""Whether two statements say of one thing that it holds of somebody, and that it does not. Pure.

Wider than what `conflict` finds sure: a part of a list, other words for liking, a kind of what is
denied ("no children", "a daughter"), a retraction with more in its source. What is found here is
for a person to judge. Two that are surely compatible are not found: where only a kind of the thing
is denied ("tea", "not green tea"), or with a time, a frequency, a place or a companion beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.conflict import (
    CACHED_STATEMENTS,
    base_form,
    is_unlike_favourite,
    time_beside,
)
from palimpsest.streams.claims.english import third_person
from palimpsest.streams.claims.grammar import claim_of
from palimpsest.streams.claims.language import expression, word_set
from palimpsest.streams.claims.subjects import PETS
from palimpsest.streams.claims.values import liked_by, without_determiner

MAX_TOPICS: Final = 8


class Side(NamedTuple):
    """That something holds, or does not, of a holder: `topics` in one `matter`, as what they like
    or speak. `when`: the date from which, as far as it is told."""

    holder: str
    matter: str
    topics: frozenset[str]
    holds: bool
    when: tuple[int, ...]


_MATTERS: Final = word_set("matters")
_NONE_OF: Final = re.compile(r"(?i)(?:no|any) ")
_APART: Final = re.compile(r",? (?:and|or) |, ")
_LATELY: Final = re.compile(r" (?:now|again)$")
_USED_TO: Final = re.compile(r"(?P<verb>[a-z]+)(?P<rest>(?: .+)?)")


def opposes(new: str, known: str, known_on: date | None = None) -> bool:
    """Whether one of the two says what the other denies, or each names another favourite.

    `known` was stated on `known_on`: what ended before that day denies nothing."""
    return is_unlike_favourite(new, known) or any(
        one.holds != other.holds
        and (one.holder, one.matter) == (other.holder, other.matter)
        and (_denies(one, other) if other.holds else _denies(other, one))
        and not _is_before(one.when, known_on)
        for one in sides(new)
        for other in sides(known)
    )


def _denies(denial: Side, said: Side) -> bool:
    return not denial.topics.isdisjoint(said.topics) or any(
        _is_kind_of(each, topic, denial.matter) for each in said.topics for topic in denial.topics
    )


def _is_kind_of(topic: str, denied: str, matter: str) -> bool:
    """Whether a topic is a kind of a denied one: of what somebody may be allergic to any that is
    called after it, of all else those of some adjectives ("hot dogs" are no dogs)."""
    kind = topic.removesuffix(f" {denied}")
    return kind != topic and (matter == "allergy" or kind in _KINDS_OF)


def _is_before(when: tuple[int, ...], known_on: date | None) -> bool:
    if not when or known_on is None:
        return False
    return when < (known_on.year, known_on.month, known_on.day)[: len(when)]


def words_of_its_topics(statement: str) -> str:
    """Words by which to find what is known of the same things; empty where it takes no side."""
    return " ".join(
        sorted({word for side in sides(statement) for word in (side.holder, *side.topics)})
    )


@lru_cache(CACHED_STATEMENTS)
def sides(statement: str) -> tuple[Side, ...]:
    """The sides that a statement takes; none where it is not one plain claim."""
    plain = _LATELY.sub("", statement.rstrip(" .!"))
    plain, when = time_beside(plain)
    claim = claim_of(plain)
    if claim is None:
        return ()
    if claim.slot == "event" and claim.key == "used to":
        was = _USED_TO.fullmatch(claim.value)
        does = "" if was is None else f"{third_person(was['verb'])}{was['rest']}"
        claim = claim_of(f"{claim.holder} {does}")
        claim = None if claim is None else claim._replace(holds=not claim.holds)
    if claim is None or claim.qualified or not _ends_with(plain, claim.value):
        return ()
    return tuple(_sides(claim, when))


def _ends_with(statement: str, value: str) -> bool:
    """Whether nothing stands behind the value, which may be in the verb ("smokes")."""
    words, wanted = (text.casefold().split() for text in (statement, value))
    last = words[-len(wanted) :]
    return [*map(base_form, last)] == [*map(base_form, wanted)]


def _sides(claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    holder = claim.holder.casefold()
    if claim.slot in ("family", "pet"):
        has_none = _NONE_OF.match(claim.value) is not None
        holds, key = claim.holds and not has_none, _topic(claim.key)
        kinds = frozenset() if holds else _KINDS.get(claim.key, frozenset())
        # Whose husband is not Tom may have one.
        if holds or has_none or _topic(claim.value) == key:
            yield Side(holder, "has", kinds | {key}, holds, when)
    if claim.slot == "relationship" and claim.holds and claim.key == "partner":
        yield Side(holder, "has", frozenset(("partner",)), True, when)
    elif claim.slot == "relationship" and claim.holds and claim.value.casefold() == "single":
        yield Side(holder, "has", _PARTNERS, False, when)
    matter = f"{claim.slot}_{claim.key}" if claim.key else claim.slot
    if matter not in _MATTERS:
        return
    parts = _APART.split(liked_by(claim.value) if claim.slot == "likes" else claim.value)
    if len(parts) > MAX_TOPICS:
        return
    done = [expression("done_with").match(part) for part in parts]
    topics = [
        _topic(part[found.end() if found else 0 :]) for part, found in zip(parts, done, strict=True)
    ]
    yield Side(holder, claim.slot, frozenset(topics) - {""}, claim.holds, when)
    if claim.slot == "likes" and claim.holds:
        # Who does not drink coffee any more hardly likes drinking it.
        for topic, found in zip(topics, done, strict=True):
            if found is not None and topic:
                deed = "hobby" if found["deed"].lower() == "playing" else "diet"
                yield Side(holder, deed, frozenset((topic,)), True, when)


_KINDS: Final = {
    general: frozenset(map(base_form, kinds))
    for kinds, generals in (
        (word_set("children"), "child children kid kids"),
        (word_set("siblings"), "sibling siblings"),
        (PETS, "pet pets"),
    )
    for general in generals.split()
}
"""What somebody has none of who has none of these."""
_PARTNERS: Final = frozenset(map(base_form, word_set("partners")))
_KINDS_OF: Final = frozenset(map(base_form, word_set("kinds_of")))


def _topic(text: str) -> str:
    plain = without_determiner(expression("of_the_thing").sub("", text.casefold().strip()))
    return " ".join(base_form(word) for word in plain.split())
