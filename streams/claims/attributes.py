"""Claims about what is somebody's: "my favourite colour is teal", "Rita is my sister". Pure."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.claim import Claim, Slot
from palimpsest.streams.claims.lexicon import ADJECTIVE
from palimpsest.streams.claims.nouns import (
    is_activity,
    is_listed,
    is_name,
    is_noun_phrase,
    is_place,
    is_verb_phrase,
    without_determiner,
)
from palimpsest.streams.claims.subjects import FAMILY, KIN, NAME, PETS, PLURALS, Subject
from palimpsest.streams.claims.values import fits
from palimpsest.streams.claims.verbs import Predicate

_OWN: Final = re.compile(r"\b(?:my|our)\b")


def in_third_person(text: str) -> str:
    return _OWN.sub("their", text).replace(" I was ", " they were ")


def named_relative(subject: Subject, said: Predicate) -> Claim | None:
    """ "My dog is called Rex", "my sister is named Rita", "my wife is Nadia"."""
    if subject.kind != "relative" or said.verb != "be" or said.tense != "present":
        return None
    name = _CALLED.sub("", said.rest)
    if name == said.rest and (subject.name or not _is_only_a_name(name, subject.relation)):
        return None
    if said.negated or not is_name(name):
        return None
    return relative_claim(subject.owner, subject.relation, name)


_CALLED: Final = re.compile(r"^(?:called|named) ")


def _is_only_a_name(text: str, relation: str) -> bool:
    """Whether capitals make `text` a name: no "Catholic", and no "Labradors" of several dogs."""
    one = relation.rpartition(" ")[2] not in PLURALS
    return (
        not text.isupper()
        and not text.endswith("tic")
        and (one or " and " in text)
        and not any(map(ADJECTIVE.fullmatch, text.casefold().split()))
    )


def relative_claim(owner: str, relation: str, name: str) -> Claim:
    """That somebody's relative, friend or pet is called `name`."""
    key = relation.rpartition(" ")[2].lower()
    slot: Slot = "pet" if key in PETS else "family" if key in FAMILY else "people"
    named = "are called" if key in PLURALS else "is called"
    text = f"{owner}'s {relation} {named} {name}."
    return Claim(slot, owner, relation.lower(), name, True, False, False, text)


_REVERSED: Final = re.compile(
    rf"(?P<value>.{{1,60}}?) (?:is|are) (?:(?P<my>my|our)|(?P<owner>(?:{NAME})(?: (?:{NAME}))?"
    rf"|[Tt]he user)'s) (?:(?P<favourite>(?:all-time )?favou?rite(?: \w+){{1,3}})"
    rf"|(?P<relation>(?:\w+ ){{0,2}}?(?:{KIN})))"
)


def reversed_claim(clause: str, speaker: str) -> Claim | None:
    """ "Rita is my sister", "Emma is my favourite book"."""
    found = _REVERSED.fullmatch(clause)
    if found is None:
        return None
    owner = speaker if found["my"] else found["owner"]
    value = found["value"]
    if found["relation"]:
        return (
            relative_claim(owner, found["relation"], value)
            if is_name(value) and value not in ("He", "She", "They", "It", "This", "That")
            else None
        )
    if not is_name(value) and not is_activity(value):
        return None
    if value.partition(" ")[0].lower() in _POINTING:
        return None
    return _favourite(owner, found["favourite"], value, False)


_POINTING: Final = frozenset("it this that these those which he she they what".split())
_KIND_OF_FAVOURITE: Final = re.compile(r"^.*?favou?rite (?P<kind>.+)$")


_NO_KINDS: Final = ("thing", "part", "one", "things", "place", "places", "is", "parts", "ones")


def _favourite(owner: str, attribute: str, value: str, news: bool) -> Claim | None:
    kind = _KIND_OF_FAVOURITE.match(attribute)
    if kind is None or kind["kind"].split()[0] in _NO_KINDS:
        return None
    text = f"{owner}'s {attribute} is {value}."
    key = kind["kind"].lower().replace("color", "colour")
    return Claim(
        "favourite", owner, key, without_determiner(value), True, news, False, in_third_person(text)
    )


def attribute_claim(subject: Subject, said: Predicate) -> Claim | None:
    """ "My favourite colour is teal", "my name is Ana", "my birthday is on 3 May"."""
    if said.verb != "be" or said.tense not in ("present", "perfect") or said.negated:
        return None
    name, value = subject.attribute.lower(), said.rest.rstrip(" ,.")
    news = said.is_news or value.endswith(" now")
    value = value.removesuffix(" now")
    if "favourite" in name or "favorite" in name:
        if (
            is_name(value)
            or is_activity(value)
            or is_listed(value)
            or is_noun_phrase(value, definite=True)
        ):
            return _favourite(subject.owner, subject.attribute, value, news)
        return None
    if fits("figure", value) and subject.attribute not in ("age",):
        key = subject.attribute.lower()
        text = f"{subject.owner}'s {subject.attribute} {said.third_person()} {value}."
        return Claim("figure", subject.owner, key, value, True, news, False, in_third_person(text))
    if name.endswith(("goal", "dream")) and value.startswith("to ") and is_verb_phrase(value[3:]):
        text = in_third_person(f"{subject.owner}'s {subject.attribute} is {value}.")
        return Claim("plan", subject.owner, "goal", value[3:], True, news, False, text)
    slot, key = _ATTRIBUTES.get(name.replace("current ", ""), (None, ""))
    if slot is None:
        return None
    checks = {
        "name": is_name(value),
        "birthday": fits("date", value.removeprefix("on ")),
        "occupation": fits("job", value) or is_activity(value),
        "hobby": is_listed(value) or is_activity(value),
        "origin": is_place(value),
        "language": fits("language", value),
        "study": is_noun_phrase(value),
    }
    if not checks.get(slot, False):
        return None
    verb = "are" if name == "hobbies" else "is"
    text = f"{subject.owner}'s {subject.attribute} {verb} {value}."
    kept = without_determiner(value.removeprefix("on "))
    return Claim(slot, subject.owner, key, kept, True, news, False, in_third_person(text))


_NAMED: Final[tuple[tuple[Slot, str, str], ...]] = (
    ("name", "", "name"),
    ("name", "full", "full name"),
    ("name", "first", "first name"),
    ("name", "last", "last name"),
    ("name", "nickname", "nickname"),
    ("birthday", "", "birthday"),
    ("birthday", "anniversary", "wedding anniversary|anniversary"),
    ("occupation", "", "job|occupation|profession"),
    ("hobby", "", "hobby|hobbies"),
    ("origin", "", "hometown|home town|home city"),
    ("origin", "country", "home country"),
    ("origin", "state", "home state"),
    ("language", "native", "native language|first language|mother tongue"),
    ("study", "", "major"),
)
_ATTRIBUTES: Final[dict[str, tuple[Slot, str]]] = {
    name: (slot, key) for slot, key, names in _NAMED for name in names.split("|")
}
