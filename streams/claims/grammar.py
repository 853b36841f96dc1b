"""Clauses read as claims: subject, predicate, slot. Pure, in linear time.

A clause is taken whole or not at all. What stands after the value decides: a time, a companion or
a filler is understood, and anything else makes it no claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import cache, lru_cache
from typing import Final, NamedTuple, cast

from palimpsest.streams.claims.claim import CATEGORIES, Claim, Slot
from palimpsest.streams.claims.english import (
    ANY_VERB,
    SAME_PAST,
    Predicate,
    Tense,
    expanded,
    predicate,
)
from palimpsest.streams.claims.language import ENGLISH, expression, word_set
from palimpsest.streams.claims.subjects import (
    FAMILY,
    PEOPLE,
    PETS,
    PLURALS,
    TITLE_DOT,
    Subject,
    attribute_claim,
    in_third_person,
    named_relative,
    reversed_claim,
    subject_of,
)
from palimpsest.streams.claims.times import Time, TimeKind, dated, time_at_end
from palimpsest.streams.claims.values import fits, is_name, relation_in, value_of
from palimpsest.streams.text.tables import joined

STAND_IN: Final = "user_0"
"""A name that is read as one."""
_TENSES: Final = {
    "states": ("present", "progressive", "perfect progressive"),
    "lasting": ("present", "perfect", "progressive", "perfect progressive"),
    "events": ("past", "perfect"),
    "ahead": ("progressive", "future"),
}


class Pattern(NamedTuple):
    """A predicate that fills a slot: a verb, `after`, the words after it, any of them, and `kind`,
    what the rest must be. `value`: the value where it is not the rest. `denies`: what it says is
    that the value does not hold. `news`: it says that it came to be. `dated`: taken only with a
    time beside it."""

    slot: Slot
    verb: str
    after: tuple[str, ...]
    tenses: tuple[str, ...]
    kind: str
    key: str
    value: str
    denies: bool
    news: bool
    dated: bool


_PATTERNS: Final[dict[str, list[Pattern]]] = {}
for _slot, _verbs, _words, _tenses, _kind, _key, _marks, _value in (
    [*row, "", "", ""][:8] for row in ENGLISH["rows"]
):
    for _verb in joined(_verbs).split("|"):
        _PATTERNS.setdefault(_verb, []).append(
            Pattern(
                slot=cast("Slot", _slot),
                verb=_verb,
                after=tuple(joined(_words).split("|")),
                tenses=_TENSES.get(_tenses) or tuple(_tenses.split("|")),
                kind=_kind,
                key=_key,
                value=_value,
                denies="denies" in _marks,
                news="news" in _marks,
                dated="dated" in _marks,
            )
        )

MAX_CLAUSE_CHARACTERS: Final = 240
MAX_TAILS: Final = 4
USER: Final = "The user"
_USER_ALONE: Final = re.compile(r"^User(?= [a-z]|['\u2019]s )")
"""As agents write it: "User prefers dark mode"."""
RECENTLY: Final = Time("point", "recently")

_DATES: Final[dict[Slot, tuple[TimeKind, ...]]] = {
    "birthday": ("point",),
    "home": ("until", "since", "span", "point"),
    "possession": ("since", "span"),
    "plan": ("point", "until"),
    "event": ("point", "since"),
}
"""The times that make a claim that needs one."""
_LASTING: Final = ("home", "work", "occupation", "study", "language")
_HABITUAL: Final[tuple[TimeKind, ...]] = ("frequency", "since", "span")
LEADING_TIME: Final = expression("leading_time")
_THESE_DAYS: Final = re.compile(r"today|tonight|this (?:morning|afternoon|evening)|recently", re.I)
"""What somebody did then is told as news of the day, and not to be kept."""
_MARKS: Final = re.compile(r'[?!;"\n]|(?<!\d):|:(?!\d)')
"""No plain statement has one; "5:30" is a time."""
_AS_OF: Final = re.compile(r" \(as of [A-Z][a-z]+ \d{4}\)")


class _Tails(NamedTuple):
    rest: str
    times: tuple[Time, ...]
    companions: tuple[str, ...]


def claim_of(statement: str, speaker: str = USER) -> Claim | None:
    """The claim that a stored sentence makes, taken whole or not at all.

    In the third person; what stands in the first is about `speaker`. `text` is the statement.
    """
    text = " ".join(statement.replace("\u2019", "'").split()).rstrip()
    text = _of_the_user(text)
    if len(text) > MAX_CLAUSE_CHARACTERS or not text:
        return None
    plain = expanded(_AS_OF.sub("", text).rstrip(".!"))
    if _MARKS.search(plain) or ". " in TITLE_DOT.sub(r"\1 ", plain):
        return None
    found = clause_claim(plain, speaker, None)
    return None if found is None else found._replace(text=text)


def is_somebody_no_more(new: str, known: str) -> bool:
    """ "Tom is no longer Ana's boss" after "Ana's boss is called Tom"."""
    if " no longer " not in new:
        return False
    one, other = claim_of(new), claim_of(known)
    if one is None or other is None or one.slot not in ("people", "family", "pet"):
        return False
    # Not by what says it.
    return one._replace(text="") == other._replace(holds=False, text="") and other.holds


def plainly_named(speaker: str) -> Callable[[str], str]:
    """Returns what gives a statement that begins with the speaker's name one that is read as a
    name, where theirs is not ("Ben 😀", "user 1", "sam@y.org", "Ana B."): claims about them could
    not be compared otherwise. "User" becomes "The user"."""
    if not speaker or _is_read(speaker):
        return _of_the_user

    def named(statement: str) -> str:
        rest = statement.removeprefix(speaker)
        if rest != statement and rest[:1] in " '\u2019":
            return f"{STAND_IN}{rest}"
        return _of_the_user(statement)

    return named


def _of_the_user(statement: str) -> str:
    return _USER_ALONE.sub(USER, statement, count=1)


@lru_cache(1024)
def _is_read(name: str) -> bool:
    claims = (claim_of(f"{name} lives in Graz"), claim_of(f"{name} is not allergic to nuts"))
    return all(claim is not None and claim.holder == name for claim in claims)


_REVERSED: Final = (" is my ", " are my ", " not my ", " longer my ", " my favo", "'s ")


def clause_claim(clause: str, speaker: str, today: date | None) -> Claim | None:
    """The claim of one clause, contractions expanded. Times become dates, seen from `today`."""
    if not clause or len(clause) > MAX_CLAUSE_CHARACTERS:
        return None
    lead = LEADING_TIME.match(clause)
    time: Time | None = None
    if lead is not None:
        _, time = time_at_end(f" {lead['time'][0].lower()}{lead['time'][1:]}")
        if time is not None:
            clause = clause[lead.end() :]
    found = reversed_claim(clause, speaker) if any(map(clause.__contains__, _REVERSED)) else None
    if found is not None:
        return found
    parsed = subject_of(clause, speaker)
    if parsed is None:
        return None
    subject, words = parsed
    said = predicate(words)
    if said is None:
        return None
    if subject.kind == "attribute":
        return attribute_claim(subject, said)
    return _by_pattern(subject, said, time, today)


class _Reading(NamedTuple):
    """A clause taken apart as one pattern sees it."""

    subject: Subject
    said: Predicate
    pattern: Pattern
    after: str
    value: str
    times: tuple[Time, ...]
    companions: tuple[str, ...]

    def has(self, *kinds: TimeKind) -> bool:
        return any(time.kind in kinds for time in self.times)


def _by_pattern(
    subject: Subject, said: Predicate, lead: Time | None, today: date | None
) -> Claim | None:
    patterns = _patterns_of(said.verb, None if said.word in SAME_PAST else said.tense)
    if not patterns:
        return None
    named = named_relative(subject, said)
    if named is not None:
        return named
    rest = said.rest.rstrip(" ,.")
    if lead is None and said.recent and said.tense in ("past", "perfect", "perfect progressive"):
        lead = RECENTLY
    for tails in _readings(rest):
        times = _times(tails, lead)
        if times is None:
            continue
        for pattern in patterns:
            for after in pattern.after:
                value = _after(tails.rest, after)
                if value is None or not fits(pattern.kind, value):
                    continue
                reading = _Reading(subject, said, pattern, after, value, times, tails.companions)
                if reading.has("point") and said.word in SAME_PAST:
                    reading = reading._replace(said=said._replace(tense="past"))
                found = None if _is_left_out(reading, today) else _claim(reading, today)
                if found is not None:
                    return found
    return None


@cache
def _patterns_of(verb: str, tense: Tense | None) -> list[Pattern]:
    """The patterns of a verb, as far as they are of the tense, if that is known."""
    patterns = _PATTERNS.get(verb, [])
    if verb not in word_set("no_deeds"):
        patterns = patterns + _PATTERNS[ANY_VERB]
    return [each for each in patterns if tense is None or tense in each.tenses]


def _times(tails: _Tails, lead: Time | None) -> tuple[Time, ...] | None:
    """The times of a clause, that at its beginning first; None where they are two days."""
    times = tails.times
    if lead is not None and not (lead is RECENTLY and times):
        times = (lead, *times)
    return None if sum(time.kind == "point" for time in times) > 1 else times


def _after(rest: str, after: str) -> str | None:
    if not after:
        return rest
    if rest == after:
        return ""
    return rest[len(after) + 1 :] if rest.startswith(f"{after} ") else None


def _readings(rest: str) -> list[_Tails]:
    """`rest` with ever more of its end taken for tails."""
    times: list[Time] = []
    companions: list[str] = []
    found: list[_Tails] = []
    for _ in range(MAX_TAILS + 1):
        found.append(_Tails(rest, tuple(times), tuple(companions)))
        shorter, time = time_at_end(rest)
        if time is not None:
            times.insert(0, time)
            rest = shorter
            continue
        filler = expression("filler_end").search(f" {rest}")
        if filler is not None:
            rest = f" {rest}"[: filler.start()].strip()
            continue
        companion = expression("grammar_companion").search(f" {rest}")
        if companion is None:
            break
        companions.insert(0, companion["with"])
        rest = f" {rest}"[: companion.start()].strip()
    found.reverse()
    return found


def _is_left_out(reading: _Reading, today: date | None) -> bool:
    """Whether a clause that fits the pattern claims too little, or something else."""
    subject, said, pattern, _, value, _, _ = reading
    if said.tense not in pattern.tenses:
        return True
    if _is_said_of_others(subject, pattern, is_stored=today is None):
        return True
    # Who does not cook does so on no day.
    is_no_deed = said.negated and said.tense == "present" and pattern.kind == "nothing"
    needs_date = pattern.dated and not (is_no_deed or (said.ended and pattern.slot == "plan"))
    if needs_date and not reading.has(*_DATES.get(pattern.slot, _HABITUAL)):
        return True
    if said.negated and _says_little(said, pattern):
        return True
    if not said.negated and value.startswith("any "):
        return True  # agreed to, "do you have any allergies?" names none
    if said.verb == "get" and pattern.slot == "likes":
        is_thing = value.startswith(("a ", "an ", "the "))
        if is_thing or value.replace(" ", "_") in word_set("not_got_into"):
            return True  # "got into a fight", "got into trouble"
    if pattern.key == "year" and any(
        time.words.lower().startswith("on ") for time in reading.times
    ):
        return True  # "born on June 4" tells no year: the day is the value
    if pattern.kind == "plain deed" and pattern.slot == "event":
        days = [time for time in reading.times if time.kind == "point"]
        if not any(_THESE_DAYS.search(time.words) is None for time in days):
            return True
    is_habit = pattern.slot == "hobby" and said.tense == "present"
    if is_habit or (pattern.slot in _LASTING and said.tense in ("present", "progressive")):
        return reading.has("point")  # "I'm working in the bakery today", "I get up early tomorrow"
    # To an assistant this picks one of what it named.
    return said.verb == "like" and subject.holder == USER and is_name(value) and today is not None


def _is_said_of_others(subject: Subject, pattern: Pattern, *, is_stored: bool) -> bool:
    """Whether what the pattern says is not said of such a subject: no dog has a job, and what "we"
    use is the tool of a firm. Of whom a stored fact tells by name ("Rex is a beagle"), it may be an
    animal."""
    is_pet = subject.relation.rpartition(" ")[2].lower() in PETS
    if is_pet and pattern.slot == "occupation":
        return True
    if pattern.key == "breed" and not is_pet:
        return not is_stored or subject.kind != "self" or subject.holder == USER
    if pattern.key == "visit":
        return subject.kind != "relative"
    return subject.kind == "plural" and (
        pattern.slot not in word_set("we_slots")
        or (pattern.key == "uses" and pattern.kind.endswith("tool"))
    )


def _says_little(denied: Predicate, pattern: Pattern) -> bool:
    """What did not happen, and what somebody is not, unless they were it before."""
    if denied.tense in ("past", "perfect") and pattern.slot != "home":
        return True
    if pattern.slot == "occupation":
        return not denied.ended
    return pattern.slot in ("event", "age") or denied.verb == "prefer"


def _claim(reading: _Reading, today: date | None) -> Claim | None:
    subject, said, pattern, after, value, _, _ = reading
    slot, key = pattern.slot, pattern.key
    if key == "*":
        drinks = said.verb == "drink" or after == "drinking"
        key = "drink" if drinks else "eat"
        if slot != "diet":  # who eats chicken has none
            key = relation_in(value) or key
    if slot == "family" and key not in FAMILY:
        if key not in PEOPLE:
            return None
        slot = "people"
    came_to_be = pattern.news or slot == "event"
    limited = reading.has("frequency", "until") or (
        reading.has("span") if came_to_be else reading.has("point", "span")
    )
    return Claim(
        slot=slot,
        holder=subject.holder,
        key=key,
        value=value_of(pattern.kind, value) if value else pattern.value or after or said.verb,
        holds=said.negated == pattern.denies,
        is_news=pattern.news or reading.has("now") or said.is_news,
        qualified=limited or said.is_qualified,
        text=_text(reading, today),
    )


def _text(reading: _Reading, today: date | None) -> str:
    """The canonical sentence, its times dated where `today` is known."""
    subject, said, pattern, after, value, times, companions = reading
    if said.tense == "perfect" and said.verb != "be" and reading.has("point"):
        said = said._replace(tense="past", word=said.verb)  # "has got it on Monday" is no English
    verb = said.third_person(plural=subject.relation.rpartition(" ")[2] in PLURALS)
    words = [subject.holder, verb, after, value, *companions]
    # What somebody is doing in a month is to come: "training for a marathon in October".
    ahead = pattern.slot in ("plan", "family") or said.tense in ("progressive", "future")
    for time in times:
        if today is None or time.kind == "frequency":
            words.append(time.words)
        elif time.kind != "now":
            words.append(dated(time, today, ahead=ahead))
    if today is not None and pattern.slot == "age":
        words.append(f"(as of {today.strftime('%B')} {today.year})")
    return f"{in_third_person(' '.join(filter(None, words)))}."


def categories_of(text: str) -> tuple[str, ...]:
    """The categories of a statement that is one claim; none of any other text."""
    claim = claim_of(text)
    return () if claim is None else CATEGORIES[claim.slot]
