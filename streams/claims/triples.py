"""The relations in a claim, for the graph: names and nouns only, never a phrase. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.language import ENGLISH, expression, fragment
from palimpsest.streams.claims.subjects import PETS
from palimpsest.streams.claims.values import is_name, liked_by, without_determiner

MAX_NAME_CHARACTERS: Final = 200
MAX_NOUN_WORDS: Final = 3


class ClaimTriple(NamedTuple):
    """Source, relationship and target with the kinds of both ends."""

    source: str
    source_type: str
    relationship: str
    target: str
    target_type: str


_RELATIVE: Final = expression("triples_relative")
_LISTED: Final = re.compile(r",? and |, | or ")
_RELATIONS: Final = {
    (slot, key): (relation, kind) for slot, key, relation, kind in ENGLISH["relations"]
}
_NAMES_ONLY: Final = frozenset(("lives_in", "works_at", "is_from", "visited", "graduated_from"))
_OF_DOING: Final = frozenset(("likes", "dislikes", "learns", "plays", "practises"))
_PARTNERS: Final = (
    ("engaged", "engaged_to"),
    ("dating", "in_relationship_with"),
    ("relationship", "in_relationship_with"),
)


def triples_of(claim: Claim) -> list[ClaimTriple]:
    """All that the claim relates: its value, and whose relatives its holder and the one who is
    with the holder are. Jordan, who lives in Jordan, does not live in himself."""
    found = (*_of_holder(claim.holder), *_of_value(claim), *_of_companion(claim))
    return [each for each in found if each.source.casefold() != each.target.casefold()]


def _of_holder(holder: str) -> list[ClaimTriple]:
    found = _RELATIVE.fullmatch(holder)
    if found is None or not found["name"] or "'s " in found["owner"]:
        return []
    return [_relative(found["name"], found["relation"], found["owner"])]


def _of_companion(claim: Claim) -> list[ClaimTriple]:
    source, found = _source(claim.holder), expression("triples_companion").search(claim.text)
    if source is None or found is None or not claim.holds:
        return []
    return [_relative(found["name"], found["relation"], source)]


def _relative(name: str, relation: str, owner: str) -> ClaimTriple:
    kind = "animal" if relation.lower() in PETS else "person"
    return ClaimTriple(name, kind, f"{relation.lower().replace(' ', '_')}_of", owner, "person")


def _of_value(claim: Claim) -> list[ClaimTriple]:
    source = _source(claim.holder)
    if source is None:
        return []
    if claim.slot in ("family", "people", "pet"):
        return _of_relatives(claim, source) if claim.holds else []
    if claim.slot == "relationship" and claim.key == "partner" and claim.holds:
        said = (named for word, named in _PARTNERS if word in claim.text)
        relation = next(said, "married_to")
        return _targets(source, relation, "person", [claim.value]) if is_name(claim.value) else []
    if claim.slot == "favourite":
        return _targets(source, "likes", "concept", [claim.value])
    relation, kind = _RELATIONS.get((claim.slot, claim.key), ("", ""))
    if not relation:
        return []
    if not claim.holds:
        if relation != "likes":
            return []
        relation = "dislikes"
    if relation == "is_a" and not re.search(r" (?:is|as|became) an? ", claim.text):
        return []  # "teaches chemistry"
    if relation in _OF_DOING and f" to {claim.value}" in claim.text:
        return []  # "likes to collect stamps"
    if relation == "is_from" and " born in " in claim.text:
        relation = "born_in"
    value = liked_by(claim.value)
    values = [value] if relation in _NAMES_ONLY else _LISTED.split(value)
    if relation not in _NAMES_ONLY and not all(map(_is_node, map(without_determiner, values))):
        return []  # "finding deals and discounts" lists one thing
    return _targets(source, relation, kind, values)


def _source(holder: str) -> str | None:
    found = _RELATIVE.fullmatch(holder)
    if found is None:
        return holder if "'s " not in holder else None
    return found["name"] or None


def _of_relatives(claim: Claim, source: str) -> list[ClaimTriple]:
    if is_name(claim.value):
        relation = claim.key.rpartition(" ")[2]
        return [_relative(claim.value, relation, source)]
    named = expression("triples_called").fullmatch(claim.value)
    if named is None:
        return []
    relation = _SINGULAR.get(claim.key, claim.key.removesuffix("s"))
    return [
        _relative(name, relation, source) for name in re.split(r",? (?:and|&) |, ", named["names"])
    ]


_SINGULAR: Final = {"children": "child", "puppies": "puppy", "fish": "fish", "twins": "child"}


def _targets(source: str, relation: str, kind: str, values: list[str]) -> list[ClaimTriple]:
    found = []
    for value in values:
        target = without_determiner(value).strip()
        if relation in _NAMES_ONLY:
            target = re.split(r" (?:in|at|with|on|for|near) ", target)[0]
            good = is_name(target) and _IS_KIN.fullmatch(target) is None
        else:
            good = _is_node(target)
        if good and len(target) <= MAX_NAME_CHARACTERS:
            found.append(ClaimTriple(source, "person", relation, target, kind))
    return found


_IS_KIN: Final = re.compile(fragment("kin"), re.IGNORECASE)
_NO_NODE: Final = expression("no_node")


def _is_node(target: str) -> bool:
    words = target.split()
    if not words or len(words) > (5 if is_name(target) else MAX_NOUN_WORDS):
        return False
    if is_name(target):
        return True
    return _NO_NODE.search(target) is None and not (len(words) > 1 and words[0].endswith("ing"))
