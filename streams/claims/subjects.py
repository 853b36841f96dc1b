"""Whom a clause is about (the speaker, somebody of theirs, a name), and claims about what is
somebody's: "my favourite colour is teal", "Rita is my sister". Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, cast

from palimpsest.streams.claims.claim import Claim, Slot
from palimpsest.streams.claims.english import FINITE, SINGULAR, Predicate
from palimpsest.streams.claims.language import ENGLISH, expression, spaced_set, word_set
from palimpsest.streams.claims.values import (
    fits,
    is_activity,
    is_listed,
    is_name,
    is_noun_phrase,
    is_verb_phrase,
    without_determiner,
)

FAMILY: Final = word_set("family")
PEOPLE: Final = spaced_set("people")
PETS: Final = spaced_set("pets")
PLURALS: Final = word_set("plurals")


SubjectKind = Literal["self", "plural", "relative", "attribute"]


class Subject(NamedTuple):
    """`holder` as it is written in a claim; `owner` whose relative or attribute it is; `relation`
    the relative's relation ("older sister") and `name` theirs; `attribute` the words of what is
    theirs ("favourite colour")."""

    kind: SubjectKind
    holder: str
    owner: str
    relation: str = ""
    name: str = ""
    attribute: str = ""
    is_first: bool = False


_ATTRIBUTE: Final = expression("attribute")
_NAMES: Final = expression("subjects_names")
_THE_USER: Final = re.compile(r"(?:(?:the|The) user\b|User(?= [a-z]|['\u2019]s ))")
"""Agents write both: "User prefers dark mode"."""


def subject_of(text: str, speaker: str) -> tuple[Subject, str] | None:
    """Whom the clause `text` is about, and its predicate. None where no one is named whom the
    clause could be about. `speaker` stands for "I"."""
    first, _, rest = text.partition(" ")
    if first in ("I", "i"):
        return Subject("self", speaker, speaker, is_first=True), rest
    if first in ("We", "we"):
        return Subject("plural", speaker, speaker, is_first=True), rest
    if first in ("My", "my", "Our", "our"):
        return _possessed(speaker, rest, is_first=True)
    the_user = _THE_USER.match(text)
    if the_user is not None:
        return _named("The user", text[the_user.end() :])
    folded = first.lower().removesuffix("'s")
    if folded in word_set("no_subject") or folded in FINITE or folded.endswith("ing"):
        return None
    if text.startswith((f"{speaker} ", f"{speaker}'s ")):
        return _named(speaker, text[len(speaker) :])
    return _any_name(text)


TITLE_DOT: Final = re.compile(r"\b(Dr|Prof|Mr|Mrs|Ms|St)\. ")
"""A full stop that ends no sentence."""
_SPEAKING: Final = frozenset("I i We we My my Our our".split())


def _any_name(text: str) -> tuple[Subject, str] | None:
    """A name of up to three words; the fewest that leave a verb or a possessive."""
    words = text.split(maxsplit=4)
    for count in range(1, min(3, len(words) - 1) + 1):
        last = words[count - 1]
        if last in _SPEAKING:
            return None  # "Assume I am vegan": what comes before is no name
        written = " ".join(words[:count])
        name = TITLE_DOT.sub(r"\1 ", written)
        if last.endswith(("'s", "’s")):
            if _NAMES.fullmatch(name[:-2]) is None:
                return None
            return _named(written[:-2], text[len(written) - 2 :])
        if TITLE_DOT.fullmatch(f"{written} ") is not None:
            continue
        if _NAMES.fullmatch(name) is None:
            return None
        if words[count].lower() in FINITE:
            if not name[0].isupper() and count > 1:
                return None
            return _named(written, text[len(written) :])
    return None


def _named(name: str, rest: str) -> tuple[Subject, str] | None:
    if rest.startswith(("'s ", "’s ")):
        return _possessed(name, rest[3:], is_first=False)
    if not rest.startswith(" "):
        return None
    return Subject("self", name, name), rest[1:]


def _possessed(owner: str, rest: str, *, is_first: bool) -> tuple[Subject, str] | None:
    attribute = _ATTRIBUTE.match(rest)
    if attribute is not None:
        # A favourite's kind may be of any words: it ends before the verb.
        return _with_attribute(owner, rest, is_first)
    of_relative = expression("of_relative").match(rest) if "s " in rest else None
    if of_relative is not None:
        name = f" {of_relative['name']}" if of_relative["name"] else ""
        holder = f"{owner}'s {of_relative['relation']}{name}"
        return _with_attribute(holder, rest[of_relative.end() :], is_first)
    relative = expression("possessed").match(rest)
    if relative is None:
        return _ending(owner, rest, is_first) or _with_figure(owner, rest, is_first)
    relation = relative["relation"]
    name = (relative["name"] or "").strip(", ")
    after = rest[relative.end() :]
    if name.endswith(("'s", "’s")):
        name, after = name[:-2], f"'s{after}"
    if relation.endswith("'s"):
        return None
    holder = f"{owner}'s {relation}{f' {name}' if name else ''}"
    if after.startswith(("'s ", "’s ")):
        return None
    predicate = after.strip()
    if predicate.partition(" ")[0].lower() not in (
        FINITE if relation.rpartition(" ")[2] in PLURALS else SINGULAR
    ):
        return None
    return Subject("relative", holder, owner, relation, name, is_first=is_first), predicate


_ATTRIBUTE_VERB: Final = re.compile(r" (?:is|are|was|has been|has always been) ")


def _with_attribute(owner: str, rest: str, is_first: bool) -> tuple[Subject, str] | None:
    verb = _ATTRIBUTE_VERB.search(rest)
    if verb is None or verb.start() > 60:
        return None
    words = rest[: verb.start()]
    if _ATTRIBUTE.fullmatch(words + " ", 0, len(words)) is None and not _whole(words):
        return None
    subject = Subject("attribute", owner, owner, attribute=words, is_first=is_first)
    return subject, rest[verb.start() + 1 :]


def _ending(owner: str, rest: str, is_first: bool) -> tuple[Subject, str] | None:
    """ "My lease ends in August"."""
    found = expression("ending").match(rest)
    if found is None:
        return None
    what = found["relation"]
    return Subject("relative", f"{owner}'s {what}", owner, what, is_first=is_first), rest[
        found.end() :
    ]


def _with_figure(owner: str, rest: str, is_first: bool) -> tuple[Subject, str] | None:
    """ "My commute is 45 minutes"."""
    found = expression("figured").match(rest)
    if found is None:
        return None
    attribute = found["attribute"]
    return Subject("attribute", owner, owner, attribute=attribute, is_first=is_first), rest[
        found.end() :
    ]


def _whole(words: str) -> bool:
    found = _ATTRIBUTE.match(f"{words} ")
    return found is not None and (
        found.end() == len(words)
        or words.startswith(
            ("favo", "all-time", "absolute", "current", "new", "personal", "number one")
        )
    )


_OWN: Final = re.compile(r"\b(?:my|our)\b")


def in_third_person(text: str) -> str:
    return _OWN.sub("their", text).replace(" I was ", " they were ")


def named_relative(subject: Subject, said: Predicate) -> Claim | None:
    """ "My dog is called Rex", "my sister is named Rita", "my wife is Nadia"."""
    if subject.kind != "relative" or said.verb != "be" or said.tense != "present":
        return None
    rest = said.rest.removesuffix(" now")
    name = _CALLED.sub("", rest)
    if name == rest and (subject.name or not _is_only_a_name(name, subject.relation)):
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
        and not any(map(expression("adjective").fullmatch, text.casefold().split()))
    )


def relative_claim(owner: str, relation: str, name: str) -> Claim:
    """That somebody's relative, friend or pet is called `name`."""
    key = relation.rpartition(" ")[2].lower()
    slot: Slot = "pet" if key in PETS else "family" if key in FAMILY else "people"
    named = "are called" if key in PLURALS else "is called"
    text = f"{owner}'s {relation} {named} {name}."
    return Claim(slot, owner, relation.lower(), name, True, False, False, text)


def reversed_claim(clause: str, speaker: str) -> Claim | None:
    """ "Rita is my sister", "Tom is no longer my boss", "Emma is my favourite book"."""
    denied = _NO_MORE.search(clause)
    is_past = denied is not None and (denied["past"] or clause.endswith(" anymore"))
    if denied is not None:
        rest = clause[denied.end() :].removesuffix(" anymore")
        clause = f"{clause[: denied.start()]} {denied['be']} {rest}"
    found = expression("reversed").fullmatch(clause.removesuffix(" now"))
    if found is None:
        return None
    owner = speaker if found["my"] else found["owner"]
    value = found["value"]
    if found["relation"]:
        if not is_name(value) or value in word_set("no_names") or value.casefold() in NO_PERSONS:
            return None
        claim = relative_claim(owner, found["relation"], value)
        if denied is None:
            return claim
        how = "no longer" if is_past else "not"
        text = f"{value} {denied['be']} {how} {owner}'s {found['relation']}."
        return claim._replace(holds=False, text=text)
    if not is_name(value) and not is_activity(value):
        return None
    if value.partition(" ")[0].lower() in _POINTING:
        return None
    return _favourite(owner, found["favourite"], value, False, holds=denied is None)


NO_PERSONS: Final = (
    frozenset(
        name.strip()
        for general, kinds in ENGLISH["consumed"].items()
        for name in (general, *kinds.split(","))
    )
    | word_set("nobody")
    | word_set("games")
    | word_set("disciplines")
) - {"brandy", "melody", "viola", "harmony"}
"""What begins a sentence with a capital, and is nobody: "Coffee is my best friend"."""
_NO_MORE: Final = re.compile(
    r" (?P<be>is|are) (?:(?P<past>no longer)|not)(?: (?:really|actually))? (?=(?:my|our|[\w ]+'s) )"
)
_POINTING: Final = frozenset("it this that these those which he she they what".split())
_KIND_OF_FAVOURITE: Final = re.compile(r"^.*?favou?rite (?P<kind>.+)$")


_NO_KINDS: Final = ("thing", "part", "one", "things", "place", "places", "is", "parts", "ones")


def _favourite(
    owner: str, attribute: str, value: str, news: bool, *, holds: bool = True
) -> Claim | None:
    kind = _KIND_OF_FAVOURITE.match(attribute)
    if kind is None or kind["kind"].split()[0] in _NO_KINDS:
        return None
    text = f"{owner}'s {attribute} is {'' if holds else 'no longer '}{value}."
    key = kind["kind"].lower().replace("color", "colour")
    return Claim(
        "favourite",
        owner,
        key,
        without_determiner(value),
        holds,
        news,
        False,
        in_third_person(text),
    )


def attribute_claim(subject: Subject, said: Predicate) -> Claim | None:
    """ "My favourite colour is teal", "my name is Ana", "my birthday is on 3 May"."""
    if said.verb not in ("be", "take") or said.tense not in ("present", "perfect"):
        return None
    name, value = subject.attribute.lower(), said.rest.rstrip(" ,.").removeprefix("me ")
    if said.verb == "take" and not fits("figure", value):
        return None
    if said.negated and not (
        name == "name" or (said.ended and ("favourite" in name or "favorite" in name))
    ):
        return None
    news = said.is_news or value.endswith(" now")
    value = value.removesuffix(" now")
    if "favourite" in name or "favorite" in name:
        if (
            is_name(value)
            or is_activity(value)
            or is_listed(value)
            or is_noun_phrase(value, definite=True)
        ):
            holds = not said.negated
            return _favourite(subject.owner, subject.attribute, value, news, holds=holds)
        return None
    if fits("figure", value) and subject.attribute not in ("age",):
        key = subject.attribute.lower()
        text = f"{subject.owner}'s {subject.attribute} {said.third_person()} {value}."
        return Claim("figure", subject.owner, key, value, True, news, False, in_third_person(text))
    if name.endswith(("goal", "dream")) and value.startswith("to ") and is_verb_phrase(value[3:]):
        text = in_third_person(f"{subject.owner}'s {subject.attribute} is {value}.")
        return Claim("plan", subject.owner, "goal", value[3:], True, news, False, text)
    name = name.replace("current ", "")
    slot, key, kind = _ATTRIBUTES.get(name, (None, "", ""))
    if slot is None or not fits(kind, value.removeprefix("on ") if slot == "birthday" else value):
        return None
    verb = "are" if name in ("hobbies", "pronouns") else "is not" if said.negated else "is"
    text = f"{subject.owner}'s {subject.attribute} {verb} {value}."
    kept = without_determiner(value.removeprefix("on "))
    holds = not said.negated
    return Claim(slot, subject.owner, key, kept, holds, news, False, in_third_person(text))


_ATTRIBUTES: Final = {
    name: (cast("Slot", slot), key.replace("*", name), kind)
    for slot, key, kind, names in ENGLISH["attributes"]
    for name in names.split("|")
}
