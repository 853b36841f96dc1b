"""Simple triples in a sentence that stands alone ("Caroline lives in Boston."). Pure.

Only what the main clause says: what somebody thinks, says or would do is no relation.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_TARGET_WORDS: Final = 5
MAX_NAME_CHARACTERS: Final = 200


class FoundTriple(NamedTuple):
    """Source, relationship and target with the kinds of both ends."""

    source: str
    source_type: str
    relationship: str
    target: str
    target_type: str


_NAME: Final = r"[^\W\d_a-z][\w\-.]*[\w](?: (?!Is |Has |The )[^\W\d_a-z][\w\-]*){0,3}"
_TIME: Final = (
    r"(?:(?:Yesterday|Today|Recently|Finally|(?:Last|This) (?:week|weekend|month|year|summer|winter"
    r"|spring|autumn|fall|night|[A-Z][a-z]+)|In (?:\d{4}|[A-Z][a-z]+)),? )?"
)
_ADVERB: Final = (
    r"(?: (?:really|also|just|always|usually|still|currently|now|often|absolutely|actually|mostly"
    r"|recently|finally|already))*"
)
_VERBS: Final = {
    "likes": ("likes", "concept"),
    "loves": ("loves", "concept"),
    "enjoys": ("enjoys", "concept"),
    "prefers": ("prefers", "concept"),
    "hates": ("hates", "concept"),
    "dislikes": ("dislikes", "concept"),
    "doesn't like": ("dislikes", "concept"),
    "works at": ("works_at", "organization"),
    "works for": ("works_at", "organization"),
    "works as": ("works_as", "concept"),
    "works on": ("works_on", "project"),
    "lives in": ("lives_in", "place"),
    "moved to": ("moved_to", "place"),
    "moved from": ("moved_from", "place"),
    "is from": ("is_from", "place"),
    "comes from": ("is_from", "place"),
    "was born in": ("born_in", "place"),
    "visited": ("visited", "place"),
    "uses": ("uses", "tool"),
    "runs on": ("runs_on", "system"),
    "depends on": ("depends_on", "system"),
    "is written in": ("written_in", "tool"),
    "owns": ("owns", "concept"),
    "adopted": ("adopted", "concept"),
    "bought": ("bought", "concept"),
    "studies": ("studies", "concept"),
    "studied": ("studied", "concept"),
    "teaches": ("teaches", "concept"),
    "plays": ("plays", "concept"),
    "speaks": ("speaks", "concept"),
    "is married to": ("married_to", "person"),
    "married": ("married_to", "person"),
    "is allergic to": ("allergic_to", "concept"),
    "is a fan of": ("likes", "concept"),
    "is a big fan of": ("likes", "concept"),
    "is a huge fan of": ("likes", "concept"),
    "is passionate about": ("likes", "concept"),
    "is into": ("likes", "concept"),
    "is learning": ("learns", "concept"),
    "started": ("started", "concept"),
    "joined": ("joined", "organization"),
    "signed up for": ("signed_up_for", "event"),
    "went to": ("went_to", "place"),
    "wants to": ("wants_to", "concept"),
    "decided to": ("decided_to", "concept"),
}
_RELATIVES: Final = (
    "mother|mom|mum|father|dad|sister|brother|wife|husband|partner|girlfriend|boyfriend|son"
    "|daughter|child|friend|cousin|aunt|uncle|grandmother|grandma|grandfather|grandpa|boss"
    "|manager|colleague|coworker|roommate|neighbor|neighbour|teacher|mentor|doctor|dog|cat|pet"
)
_PETS: Final = frozenset({"dog", "cat", "pet"})

_VERB: Final = "|".join(sorted(_VERBS, key=len, reverse=True))
# A full stop inside a name ends no object: "Dr. J. Okafor", "U.S.", "node.js".
_INSIDE: Final = (
    r"[^.,;:!?()]|(?<=\b[A-Z])\.|(?<=\bDr)\.|(?<=\bMr)\.|(?<=\bSt)\.|(?<=\bMrs)\.|\.(?=\w)"
)

_BEFORE: Final = re.compile(_TIME)
_SOURCE: Final = re.compile(rf"(?:{_NAME}'s (?:{_RELATIVES}) (?={_NAME} ))?(?P<source>{_NAME})")
_PREDICATE: Final = re.compile(rf"{_ADVERB} (?P<verb>{_VERB}) (?P<rest>(?:{_INSIDE})+)")
# Caroline's sister Rita … / Caroline's sister, Rita, … / Caroline's sister is called Rita
_POSSESSIVE: Final = re.compile(
    rf"\b(?P<owner>{_NAME})'s (?P<kin>{_RELATIVES})(?: is called| is named|,(?= {_NAME}, (?!and"
    rf"|or)))?"
    rf" (?P<name>{_NAME})"
)
# Rita is Caroline's sister
_IS_KIN: Final = re.compile(
    rf"\b(?P<name>{_NAME}) is (?P<owner>{_NAME})'s (?:\w+ )?(?P<kin>{_RELATIVES})\b"
)
# a dog named Oscar
_NAMED: Final = re.compile(
    rf"^(?P<owner>{_NAME}) (?:\w+ )?(?:has|adopted|got|owns|bought) (?:an?|the|two) "
    rf"(?:[\w-]+ ){{0,2}}?(?P<kind>[\w-]+) (?:named|called) (?P<name>{_NAME})"
)
_IS_A: Final = re.compile(rf"^(?P<name>{_NAME}) is an? (?P<kind>[\w-]+(?: [\w-]+)?)\b(?= *[.,;]|$)")
_TARGET_END: Final = re.compile(
    r" (?:and|but|because|when|while|since|so|with|at|on|for|from|to|as|after|before|which|who"
    r"|that|if|over|than|by|during|about|near|until|yesterday|today|tomorrow|last|next|this|now"
    r"|in|too|also|every|here|there|though|lol|haha|it|rn|the most|better|very|without|into)\b.*$"
)
_DETERMINER: Final = re.compile(r"^(?:an?|the|some|any|his|her|their|its|our) ", re.IGNORECASE)
_VAGUE_WORDS: Final = (
    "to not going getting doing seeing it that this them him her you us me one so how"
    " what when where being having all those these there here something anything everything"
    " things stuff"
)
_VAGUE: Final = frozenset(_VAGUE_WORDS.split())
_NO_NAME_WORDS: Final = (
    "i we he she they everyone everybody someone somebody nobody noone no none neither either both"
    " all each every most many some any few who which apparently supposedly allegedly reportedly"
    " maybe perhaps probably possibly presumably seemingly unfortunately luckily fortunately sadly"
    " hopefully actually honestly basically clearly obviously however although though if unless"
    " when"
    " while whenever because since after before until then also only even just not never always"
    " yesterday today tomorrow tonight last this next in on at by for from with without as my our"
    " your his her their its people and but or so yes now once later another other one"
)
_NO_NAME: Final = _VAGUE | frozenset(_NO_NAME_WORDS.split())


def triples(sentence: str, speaker: str) -> list[FoundTriple]:
    """The relations that `sentence` states plainly, in a fixed order. `speaker` is a person."""
    found: list[FoundTriple] = []
    source, end = _source(sentence, speaker)
    predicate = _PREDICATE.match(sentence, end) if source else None
    if predicate is not None:
        relationship, kind = _VERBS[predicate["verb"]]
        target = _target(predicate["rest"])
        if target:
            typed = "person" if source == speaker else "unknown"
            found.append(FoundTriple(source, typed, relationship, target, kind))
    if "'s " in sentence:
        for kin in (*_POSSESSIVE.finditer(sentence), *_IS_KIN.finditer(sentence)):
            if kin["owner"].lower() in _VAGUE:
                continue  # "Here's my cousin"
            typed = "animal" if kin["kin"] in _PETS else "person"
            found.append(
                FoundTriple(kin["name"], typed, f"{kin['kin']}_of", kin["owner"], "person")
            )
    if "named" in sentence or "called" in sentence:
        named = _NAMED.match(sentence)
        if named is not None:
            found.append(FoundTriple(named["owner"], "person", "has", named["name"], named["kind"]))
    if " is a" in sentence:
        described = _IS_A.match(sentence)
        if described is not None:
            typed = "person" if described["name"] == speaker else "unknown"
            found.append(
                FoundTriple(described["name"], typed, "is_a", described["kind"], "concept")
            )
    return [triple for triple in found if _names(triple.source) and _names(triple.target)]


def _names(end: str) -> bool:
    """Whether the end of a relation is a name: its first word is none that only begins a"
    " sentence."""
    return (
        len(end) <= MAX_NAME_CHARACTERS
        and end.partition(" ")[0].rstrip(".,").lower() not in _NO_NAME
    )


def _source(sentence: str, speaker: str) -> tuple[str, int]:
    """The subject of the main clause and where it ends; empty where none is named."""
    before = _BEFORE.match(sentence)
    begin = before.end() if before is not None else 0
    # A speaker's name may be written in any way: "ana_b", "The user".
    if sentence.startswith(f"{speaker} ", begin):
        return speaker, begin + len(speaker)
    named = _SOURCE.match(sentence, begin)
    return (named["source"], named.end()) if named is not None else ("", 0)


def _target(rest: str) -> str:
    """The first few words of an object, without determiner; empty when it names nothing."""
    target = _DETERMINER.sub("", _TARGET_END.sub("", rest)).strip(" \"'-")
    if target.count(".") == 1:
        target = target.rstrip(".")
    words = target.split()
    if not words or len(words) > MAX_TARGET_WORDS or words[0].lower() in _VAGUE:
        return ""
    return target
