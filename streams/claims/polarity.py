"""Whether two statements say of one thing that it holds of somebody, and that it does not. Pure.

Wider than what `conflict` finds sure: a part of a list, other words for liking, a kind of what is
denied ("no children", "a daughter"; "no alcohol", "red wine"; "vegetarian", "eats chicken"), a
retraction with more in its source, an end that is told of another thing ("Rex died", where he
lives somewhere). What is found here is for a person to judge. Two that are surely compatible are
not found: where only a kind of the thing is denied ("tea", "not green tea"), or with a time, a
frequency, a place or a companion beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from palimpsest.streams.claims.change import tells_change
from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.conflict import (
    AS_JOB,
    CACHED_STATEMENTS,
    COUNTED,
    base_form,
    is_unlike_favourite,
    split_date,
)
from palimpsest.streams.claims.english import predicate, third_person
from palimpsest.streams.claims.grammar import claim_of
from palimpsest.streams.claims.language import ENGLISH, expression, filled, word_set
from palimpsest.streams.claims.subjects import PETS, PLURALS
from palimpsest.streams.claims.succession import (
    FOR_LONG,
    SAME_RELATION,
    is_single,
    plain_claim,
    succeeds,
)
from palimpsest.streams.claims.times import time_at_end
from palimpsest.streams.claims.values import (
    is_activity,
    is_name,
    liked_by,
    relation_in,
    without_determiner,
)

MAX_TOPICS: Final = 8


class Side(NamedTuple):
    """That something holds, or does not, of a holder: `topics` in one `matter`, as what they like
    or speak. `when`: the date from which, as far as it is told."""

    holder: str
    matter: str
    topics: frozenset[str]
    holds: bool
    when: tuple[int, ...]


_MATTERS: Final = {
    listed: matter for matter, slots in ENGLISH["matters"].items() for listed in slots.split()
}
_NONE_OF: Final = re.compile(r"(?i)(?:no|any) ")
_APART: Final = re.compile(r",? (?:and|or) |, ")
_LATELY: Final = re.compile(r" (?:now|again)$")
_AT_ORG: Final = re.compile(r" (?:at|of|for) [A-Z][^,;]{1,40}$")
_USED_TO: Final = re.compile(r"(?P<verb>[a-z]+)(?P<rest>(?: .+)?)")


_ENDS: Final = frozenset(
    "had count owned employed studied expects project training wed unmarried pet".split()
)
"""What ends once and may begin again: who sold a car, and bought one later, says nothing
contrary."""


def opposes(new: str, known: str, known_on: date | None = None) -> bool:
    """Whether one of the two says what the other denies, or each names another favourite, or the
    new one probably takes the place of the other.

    `known` was stated on `known_on`: what ended before that day denies nothing."""
    return (
        is_unlike_favourite(new, known)
        or succeeds(new, known)
        or (_is_of_anything(new, known) and tells_change(new, known))
        or any(
            one.holds != other.holds
            and (one.holder, one.matter) == (other.holder, other.matter)
            and not (one.holds and one.matter in _ENDS)
            and (_denies(one, other) if other.holds else _denies(other, one))
            # Of the dead nothing holds, whenever it is told.
            and (one.matter == "living" or not _is_before(one.when, known_on))
            for one in sides(new)
            for other in sides(known)
        )
    )


def _is_of_anything(new: str, known: str) -> bool:
    """Whether one of the two is no plain claim, or both are preferences, of which only the words
    tell what is preferred to what."""
    claims = (plain_claim(new), plain_claim(known))
    return None in claims or all(each is not None and each.key == "preference" for each in claims)


def _denies(denial: Side, said: Side) -> bool:
    return not denial.topics.isdisjoint(said.topics) or any(
        _is_kind_of(each, topic, denial.matter) for each in said.topics for topic in denial.topics
    )


def _is_kind_of(topic: str, denied: str, matter: str) -> bool:
    """Whether a topic is a kind of a denied one: of what somebody may be allergic to any that is
    called after it, of all else those of some adjectives ("hot dogs" are no dogs); and what is
    listed as one ("red wine" is alcohol)."""
    if matter == "medicine" and denied in _ANY_MEDICINE:
        return topic not in _NO_MEDICINE
    kind = topic.removesuffix(f" {denied}")
    if kind != topic:
        return matter == "allergy" or kind in _KINDS_OF
    return denied in _generals(topic)


def _generals(topic: str) -> frozenset[str]:
    """What a food or drink is a kind of; of what only stands in for it ("oat milk") nothing."""
    words = topic.split()
    if len(words) != 1 and not _SUBSTITUTES.isdisjoint(words):
        return frozenset()
    is_plain = words and _is_plainly_called(words)
    found = _GENERALS.get(topic) or _GENERALS.get(words[-1]) if is_plain else None
    return found or frozenset()


def _is_plainly_called(words: list[str]) -> bool:
    """Whether the last of the words tells the kind: in "red wine", and not in "ginger beer"."""
    return len(words) == 1 or " ".join(words) in _GENERALS or {*words[:-1]} <= _KINDS_OF


def _is_before(when: tuple[int, ...], known_on: date | None) -> bool:
    if not when or known_on is None:
        return False
    return when < (known_on.year, known_on.month, known_on.day)[: len(when)]


def may_be_opposed(statement: str) -> bool:
    """Whether another statement may oppose this one."""
    return bool(sides(statement)) or is_single(statement)


def words_of_its_topics(statement: str) -> str:
    """Words by which to find what is known of the same things; empty where it takes no side."""
    if not may_be_opposed(statement):
        return ""
    words = set(re.findall(r"[\w']+", statement))
    for side in sides(statement):
        words |= {side.holder, *side.topics}
        for topic in side.topics:
            # The thing itself, what it is a kind of, and its kinds.
            words |= {*_generals(topic), *_NAMED_AFTER.get(topic, ())}
        words |= set(_SOUGHT.get(side.matter, ()))
    return " ".join(sorted(words))


@lru_cache(CACHED_STATEMENTS)
def sides(statement: str) -> tuple[Side, ...]:
    """The sides that a statement takes; none where it is not one plain claim."""
    whole = AS_JOB.sub(r"\1", _LATELY.sub("", statement.rstrip(" .!")))
    plain, when = split_date(whole)
    stated = _HOW_WELL.sub("", plain)
    plain = FOR_LONG.sub(r"\1", stated)
    claim = claim_of(plain) or (claim_of(whole) if when or plain != stated else None)
    if claim is None:
        return ()
    if plain != stated:
        claim = claim._replace(qualified=False, text=plain)
    implied = (*_implied(claim, when), *_of_life(claim, when))
    ended = None if claim.qualified else _ended_deed(claim)
    if ended is not None and not ended.qualified and _ends_with(plain, ended.value):
        implied += tuple(_sides(ended, when))
    if claim.qualified and (claim.slot, claim.key) != _ON_A_DAY:
        # Who eats meat on Sundays eats meat; who eats none on Fridays may eat it.
        often, time = time_at_end(plain)
        if time is None or time.kind != "frequency" or not _ends_with(often, claim.value):
            return implied
        done = (each for each in _sides(claim, when) if each.holds and each.matter in _DEEDS)
        return implied if claim.key == "kind" else (*implied, *done)
    # "Tom is no longer Ana's boss": of whom it is denied stands before it.
    is_before = not claim.holds and is_name(claim.value) and _ends_with(plain, claim.key)
    # A student at MIT is a student.
    is_somewhere = claim.slot == "occupation" and claim.holds and _AT_ORG.search(plain) is not None
    if not _ends_with(plain, claim.value) and not is_before and not is_somewhere:
        return implied
    return (*implied, *_sides(claim, when))


def _ended_deed(claim: Claim) -> Claim | None:
    """What is denied by "used to live in Oslo", "gave up learning Dutch", "stopped taking aspirin":
    that they live, learn, take; None where it is no claim."""
    if claim.slot == "event" and claim.key == "used to":
        was = _USED_TO.fullmatch(claim.value)
        does = "" if was is None else f"{third_person(was['verb'])}{was['rest']}"
    elif claim.slot == "event" and claim.key == "was":
        does = f"is {claim.value}"
    elif is_activity(claim.value) and (claim.key == "stopped" or claim.is_news > claim.holds):
        doing = predicate(f"is {claim.value}")
        does = "" if doing is None else f"{third_person(doing.verb)} {doing.rest}".rstrip()
    else:
        return None
    found = claim_of(f"{claim.holder} {does}")
    return None if found is None else found._replace(holds=not found.holds)


def _implied(claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    """Whose dog is black has a dog; whose dog died had one."""
    if claim.slot == "home" and claim.holds and _WITH_SOMEBODY.search(claim.text):
        yield Side(claim.holder.casefold(), "company", frozenset((_topic("people"),)), True, when)
    relative = _OWNER.match(claim.holder)
    is_loss = claim.slot == "event" and claim.key == "loss"
    school = _STUDENT.search(claim.text) if claim.slot == "occupation" and claim.holds else None
    if school is not None:
        yield Side(claim.holder.casefold(), "study", frozenset((_topic(school["at"]),)), True, when)
    if relative is None:
        if is_loss and claim.value in _DIED:
            yield Side(claim.holder.casefold(), "lives", _ALIVE, False, when)
        return
    relation, name = relative["relation"].casefold(), (relative["name"] or "").casefold()
    owner = relative["owner"].casefold()
    if claim.slot == "birthday" and (relation == "baby" or (when and relation in _NEWBORN)):
        yield Side(owner, "expects", frozenset((_topic("baby"),)), False, when)
    if is_loss and base_form(relation) in _PARTNERS:
        yield Side(owner, "status", frozenset(map(_topic, ("married", "engaged"))), False, when)
    if name and not is_loss and base_form(relation) in _PARTNERS:
        yield Side(owner, "with", frozenset((name,)), True, when)
    if not is_loss:
        key = _topic(relation)
        yield Side(owner, "has", _KINDS.get(relation, frozenset()) | {key}, True, when)
    elif name:
        yield Side(name, "lives", _ALIVE, False, when)
    elif relation in PETS and relation not in PLURALS:
        yield Side(owner, "had", frozenset((_topic(relation),)), False, when)
        yield Side(owner, "count", frozenset((_topic(relation),)), False, when)


def _of_life(claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    """Who lives or works somewhere is alive, and so is a relative who plays chess; whoever died
    does so no longer. Of two grandmothers one may have died: a relation counts where most people
    have one, or with a name. After a dog one may have another."""
    if (claim.slot, claim.key) == ("event", "loss"):
        lost = f"{claim.holder}'s {claim.value}" if _LOST.search(claim.text) else claim.holder
        is_told = claim.value in _DIED or lost is not claim.holder
        living = False
    else:
        lost = claim.holder
        is_told = claim.slot in ("home", "work", "study") and claim.holds
        if claim.slot in _OF_THE_LIVING and not claim.is_news and claim.key != "injury":
            is_told = _OWNER.fullmatch(lost) is not None
        living = True
    if not is_told:
        return
    for each in _called(lost):
        yield Side(each, "living", _ALIVE, living, when)
    relative = _OWNER.fullmatch(lost)
    if relative is not None and not relative["name"]:
        animal = relative["relation"].casefold()
        if animal in PETS and animal not in PLURALS:
            yield Side(lost.casefold(), "pet", _ALIVE, living, when)


def _called(holder: str) -> Iterator[str]:
    """The names that one may have in another statement: "Ana's mum Eva" is Ana's mother."""
    relative = _OWNER.fullmatch(holder)
    if relative is None:
        yield holder.casefold()
        return
    relation, name = relative["relation"].casefold(), (relative["name"] or "").casefold()
    owner = relative["owner"].casefold()
    is_only = holder[len(owner) + 3 :].casefold() == f"{relation} {name}".rstrip()
    same = SAME_RELATION.get(relation, relation)
    if is_only and (same in _ONLY_ONE or (same in _NEAREST and not name)):
        yield f"{owner}'s {same}"
    elif name or not is_only:
        yield holder.casefold()
    if name:
        yield name


def _ends_with(statement: str, value: str) -> bool:
    """Whether nothing stands behind the value, which may be in the verb ("smokes")."""
    words, wanted = (text.casefold().split() for text in (statement, value))
    last = words[-len(wanted) :]
    return [*map(base_form, last)] == [*map(base_form, wanted)]


def _sides(claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    holder = claim.holder.casefold()
    if claim.slot in ("family", "people", "pet") and is_name(claim.value):
        called = frozenset((claim.value.casefold(),))
        yield Side(holder, f"called {claim.key}", called, claim.holds, when)
    if claim.slot in ("family", "pet"):
        yield from _of_kin(holder, claim, when)
    if claim.slot == "relationship" and claim.key == "partner" and claim.holds:
        yield Side(claim.value.casefold(), "lives", _ALIVE, True, when)
    yield from _of_table(claim, when)
    matter = _MATTERS.get(f"{claim.slot}_{claim.key}" if claim.key else claim.slot)
    if matter is None:
        return
    holds = claim.holds and _NONE_OF.match(claim.value) is None  # "eats no meat"
    value = _NONE_OF.sub("", claim.value)
    parts = _APART.split(liked_by(value) if claim.slot == "likes" else value)
    if len(parts) > MAX_TOPICS:
        return
    done = [expression("done_with").match(part) for part in parts]
    topics = [
        _topic(part[found.end() if found else 0 :]) for part, found in zip(parts, done, strict=True)
    ]
    yield Side(holder, matter, frozenset(topics) - {""}, holds, when)
    if matter == "likes" and holds:
        # Who does not drink coffee any more hardly likes drinking it.
        for topic, found in zip(topics, done, strict=True):
            if topic and (found is not None or _is_consumed(topic)):
                played = found is not None and found["deed"].lower() == "playing"
                deed = "hobby" if played else "diet"
                yield Side(holder, deed, frozenset((topic,)), True, when)


def _of_kin(holder: str, claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    has_none = _NONE_OF.match(claim.value) is not None or claim.value.endswith("only child")
    holds, key = claim.holds and not has_none, _topic(claim.key)
    if claim.is_news and not claim.holds:  # "sold their horse"
        yield Side(holder, "had", frozenset((key,)), False, when)
        yield Side(holder, "count", frozenset((key,)), False, when)
        return
    kinds: frozenset[str] = frozenset()
    for each in () if holds else (claim.key, *map(relation_in, _APART.split(claim.value))):
        kinds |= _KINDS.get(each, frozenset((_topic(each),)))
    # Whose husband is not Tom may have one.
    if not claim.holds and is_name(claim.value) and base_form(claim.key) in _PARTNERS:
        yield Side(holder, "with", frozenset((claim.value.casefold(),)), False, when)
    if holds or has_none or _topic(claim.value) == key:
        yield Side(holder, "has", kinds | {key}, holds, when)
    if not holds:
        return
    many = COUNTED.fullmatch(claim.value) if claim.slot == "pet" else None
    if many is not None:
        yield Side(holder, "count", frozenset((base_form(many[2]),)), True, when)
    if claim.slot == "pet":
        if claim.key.rpartition(" ")[2] not in PLURALS:
            yield Side(holder, "had", frozenset((key,)), True, when)
        named = _NAMED.search(claim.value)
        name = claim.value if is_name(claim.value) else "" if named is None else named["name"]
        if name:
            yield Side(name.casefold(), "lives", _ALIVE, True, when)
    elif is_name(claim.value):
        relation = claim.key.rpartition(" ")[2]
        is_former = relation == "ex" or relation.startswith("ex-")
        if is_former or base_form(relation) in _PARTNERS:
            yield Side(holder, "with", frozenset((claim.value.casefold(),)), not is_former, when)


_SIDES: Final = [
    (slot, key, re.compile(filled(said)), state, matters.split(), filled(topics))
    for slot, key, said, state, matters, topics in ENGLISH["sides"]
]


def _of_table(claim: Claim, when: tuple[int, ...]) -> Iterator[Side]:
    """The sides that a table lists for the slot: what began or ended with the claim, too."""
    has_none = _NONE_OF.match(claim.value) is not None
    holds = claim.holds and not has_none
    state = "holds" if holds else "ended" if claim.is_news and not has_none else "denied"
    for slot, key, said, only, matters, written in _SIDES:
        if slot != claim.slot or key not in ("*", claim.key) or only not in ("", state):
            continue
        found = said.search(claim.text.rstrip(".!"))
        if found is None:
            continue
        topics = found.expand(written).split("|") if written else [_NONE_OF.sub("", claim.value)]
        if written == "*":
            topics = _APART.split(claim.value)[:MAX_TOPICS]
        for sign, matter in ((each[0], each[1:].replace("*", claim.key)) for each in matters):
            is_so = {"+": True, "-": False, "=": holds, "!": not holds}[sign]
            yield Side(claim.holder.casefold(), matter, frozenset(map(_topic, topics)), is_so, when)


_WITH_SOMEBODY: Final = re.compile(
    r" with (?:their|her|his) (?!.{0,40}\b(?:dog|cat|pet|rabbit|parrot)s?\b)"
)
_OWNER: Final = expression("owner_of_kin")
_ALIVE: Final = frozenset(("alive",))
_DIED: Final = ("die", "pass", "away", "died", "passed")
_NAMED: Final = re.compile(r" (?:named|called) (?P<name>[^\W\d_a-z][\w'-]*)$")
_STUDENT: Final = re.compile(r" student at (?P<at>[^,;]{1,60})$")
_HOW_WELL: Final = re.compile(r" (?:fluently|well|natively|at home|(?<!a )diet)$")
_LOST: Final = re.compile(r" (?:has )?lost their ")
_ONLY_ONE: Final = frozenset("mother father husband wife spouse".split())
_NEAREST: Final = frozenset("sister brother son daughter roommate flatmate".split())
"""Of several of these one hardly tells without saying of which, if one died."""
_OF_THE_LIVING: Final = frozenset(
    "age allergy diet family figure health hobby language likes occupation pet plan possession"
    " relationship trait".split()
)
"""What these slots tell of a relative is so while they are alive."""
_DEEDS: Final = frozenset("diet eats hobby health medicine work".split())
"""Done regularly, it is done."""
_ANY_MEDICINE: Final = frozenset(("medication", "medicine", "med", "pill"))
_NO_MEDICINE: Final = frozenset(("vitamin", "supplement", "melatonin"))
_NEWBORN: Final = ("son", "daughter")
_ON_A_DAY: Final = ("plan", "appointment")
"""It has a day, which limits it to nothing less."""
_GENERALS: Final[dict[str, frozenset[str]]] = {}
for _general, _listed in ENGLISH["consumed"].items():
    for _each in _listed.replace("_", " ").split(", "):
        _name = " ".join(map(base_form, _each.split()))
        _GENERALS[_name] = _GENERALS.get(_name, frozenset()) | {base_form(_general)}
_NAMED_AFTER: Final = {
    base_form(general): tuple(listed.replace(",", " ").split())
    for general, listed in ENGLISH["consumed"].items()
}
"""The kinds of what is consumed, as they are written."""
_ANIMALS: Final = frozenset(map(base_form, PETS | word_set("eaten_animals")))
_SUBSTITUTES: Final = frozenset(map(base_form, word_set("substitutes")))
_SOUGHT: Final = {
    "employed": ("works", "working", "job"),
    "employer": ("works", "working", "job", "unemployed", "retired"),
    "diet": ("vegan", "vegetarian", "pescatarian", "eat", "drink"),
    "lives": ("died", "passed", "dog", "cat"),
    "pet": ("died", "passed"),
    "eats": ("allergic", "allergy", "intolerant", "free", "eats", "drinks", "takes"),
    "medicine": ("takes", "medication", "medicine"),
    "living": ("died", "passed", "lost", "lives", "living", "works", "working", "studies"),
    "count": ("died", "passed", "sold", "gave", "two", "three", "four"),
    "owns": ("car", "drives"),
    "with": ("broke", "split", "dating", "married", "girlfriend", "boyfriend"),
    "has": ("single", "only", "child", "no"),
    "status": ("married", "engaged", "dating"),
    "company": ("lives", "moved", "alone"),
    "near": ("lives", "moved"),
    "nights": ("works", "working"),
    "remote": ("works", "working"),
    "studied": ("graduated", "student", "dropped"),
    "expects": ("pregnant", "expecting", "born", "birth"),
}
"""By matter, words of statements that share no topic with this one."""


def _is_consumed(topic: str) -> bool:
    """Whether who likes it likes to eat or drink it: chickens may be liked otherwise."""
    return topic not in _ANIMALS and (bool(_generals(topic)) or topic in _NAMED_AFTER)


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
