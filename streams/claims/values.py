"""What the rest of a predicate must be to fill a slot, by kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from palimpsest.streams.claims import lexicon
from palimpsest.streams.claims.nouns import (
    MOODS,
    is_activity,
    is_deed,
    is_listed,
    is_name,
    is_noun_phrase,
    is_place,
    is_verb_phrase,
    without_determiner,
)
from palimpsest.streams.claims.patterns import Kind
from palimpsest.streams.claims.subjects import KIN, KIN_MODIFIER, NAME, PETS
from palimpsest.streams.claims.times import CALENDAR

_NUMBER: Final = r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,2}|some|no|my|our)"
_NAMES: Final = rf"(?:{NAME})(?:(?:,| and|, and|,? &) (?:{NAME})){{0,4}}"
_PETS: Final = "|".join(sorted(PETS, key=len, reverse=True))
_ADJECTIVES: Final = r"(?:(?!and\b|or\b|the\b|of\b|to\b)[a-z0-9-]{2,20} ){0,3}?"
_ANIMAL: Final = re.compile(
    rf"(?:{_NUMBER} )?{_ADJECTIVES}(?<!hot )(?P<animal>(?i:{_PETS}))(?: and {_NUMBER}"
    rf" {_ADJECTIVES}(?i:{_PETS})){{0,2}}(?:,? (?:named|called) {_NAMES}|, {_NAMES})?"
)
_RELATIVE: Final = re.compile(
    rf"(?:{_NUMBER} )?{_ADJECTIVES}{KIN_MODIFIER}(?P<relation>{KIN})(?: and {_NUMBER}"
    rf" {KIN_MODIFIER}(?:{KIN})){{0,2}}(?:,? (?:named|called) {_NAMES}|, {_NAMES})?"
)
_PERSON: Final = re.compile(
    rf"{_NAMES}|(?:my|his|her|their|our|{_NUMBER}) {KIN_MODIFIER}(?:{KIN})(?:,? {_NAMES})?|(?:two"
    rf"|three|four|five|\d)"
)
_AGES: Final = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
)
_AGE: Final = re.compile(
    rf"(?:(?:about|almost|nearly|now) )?(?P<age>\d{{1,3}}|{_AGES})"
    r"(?: (?:years?|months?|weeks?) old|)"
)
_SOME: Final = (
    r"(?:(?:some|a little|a bit of|fluent|basic|good|conversational|only|both|American) )?"
)
_LANGUAGE: Final = re.compile(
    rf"{_SOME}(?P<languages>[A-Za-z]+(?: Sign Language)?(?:(?:, and|,| and| or)"
    rf" {_SOME}[A-Za-z]+){{0,5}})"
    r"(?: fluently| well| at home| natively)?"
)
_ILLNESS_WORDS: Final = re.compile(
    r"(?:.+ )?(?:syndrome|disease|disorder|deficiency|intolerance|sclerosis|condition|palsy|failure"
    r"|blood pressure|cholesterol|blood sugar|back pain|knee pain|heart murmur|kidney stones"
    r"|thyroid|hearing loss|slipped disc|herniated disc|vision|eyesight|apnea|\w+itis|\w+osis"
    r"|\w+emia|\w+pathy)"
)
_ILLNESS_MODIFIER: Final = re.compile(
    r"^(?:(?:a|an|the|some|severe|mild|chronic|bad|really bad|type [12]|stage [1-4]|early|late"
    r"|onset|seasonal|social|generalized|clinical|postpartum|breast|lung|skin|colon|prostate|brain"
    r"|rheumatoid|sleep|food|pollen|peanut|nut|shellfish|gestational|high|low|terrible|frequent"
    r"|my) ){0,4}",
    re.IGNORECASE,
)
_MEAL: Final = re.compile(
    r"(?:(?:an?|the|my|strict|strictly|mostly|a strict|fully|purely|100%|lifelong|lacto-ovo)"
    r" ){0,3}(?P<kind>vegan|vegetarian|pescatarian|pescetarian|flexitarian|gluten-free|gluten free"
    r"|keto|kosher|halal|dairy-free|dairy free|lactose[ -]intolerant|gluten[ -]intolerant|paleo"
    r"|plant-based|low-carb|low carb|ketogenic|mediterranean|fodmap|low-fodmap|low-sodium|celiac"
    r"|coeliac|sugar-free|teetotal|teetotaler|intermittent fasting|carnivore|raw vegan"
    r"|omnivore)(?: diet)?",
    re.IGNORECASE,
)
_JOB: Final = re.compile(
    r"(?:(?:an?|the|one of the) )?(?P<job>(?:[\w/&'-]+ ){0,4}?(?P<head>[\w-]+))(?P<where> (?:at|for"
    r"|in|with|on|of) .+)?"
)
_MONEY: Final = re.compile(
    r"(?:(?:about|around|over|almost|nearly|a total of|more than) )?[$€£]\d[\d,.]{0,12}k?(?: (?:on"
    r"|for|in|from|at|by) (?P<what>.+))?"
)
_FIGURE: Final = re.compile(
    r"(?:(?:about|around|now|over|almost|only) )?[$€£]?\d[\d,.:/-]{0,12}k?(?: ?(?:%|percent"
    r"|a\.?m\.?|p\.?m\.?|years? old|years?|months?|weeks?|days?|hours?|minutes?|seconds?|miles?|km"
    r"|kilometers|kilometres|meters|metres|feet|inches|cm|kg|kilos|pounds|lbs?|dollars|euros|mbps"
    r"|gb|tb|square feet|calories|people|pages)){0,2}(?: (?:a|per|each) (?:day|week|month|year"
    r"|night|hour)| each way| long| away| to [\d:]+ ?(?:am|pm)?)?",
    re.IGNORECASE,
)
_OUTING: Final = re.compile(
    r"(?:camping|hiking|swimming|skiing|snowboarding|surfing|kayaking|fishing|rock climbing"
    r"|climbing|diving|snorkeling|sailing|dancing|bowling|horseback riding|ice skating|canoeing"
    r"|paragliding|skydiving|scuba diving|biking)(?: |$)"
)
_GOOD_TIME: Final = re.compile(r"(?:an? )?(?:[a-z]+ )?(?:time|blast|fun) (?:at|in|\w+ing) [^ ]")
_NEW: Final = re.compile(
    r"(?:an?|my|some|two|three) (?:new|used|own|second-hand|pair of|set of) (?!\d)"
)
_TOOK_THEM: Final = re.compile(rf"(?:my|our) {KIN_MODIFIER}(?:{KIN}) (?:to|on|out)\b")
_HOUSEHOLD: Final = re.compile(
    rf"(?:my|his|her|their|our|{_NUMBER})(?: other)? {_ADJECTIVES}(?:{KIN}|people|girls|guys|women"
    rf"|men|cats|dogs)(?:,? {_NAMES})?(?:,? and (?:(?:my|his|her|their|our|{_NUMBER})"
    rf" )?{_ADJECTIVES}(?:{KIN})(?:,? {_NAMES})?){{0,2}}"
)
_RESOLVES: Final = re.compile(
    r"(?:become|adopt|move|quit|stop|start \w+ing|buy|sell|study|pursue|learn|apply|join|open|hire"
    r"|switch|go vegan|go vegetarian|leave|retire|major|enroll|enrol|propose|foster|give up|launch"
    r"|rent|invest|marry|get married|get divorced|go back to (?:school|college|university)|take up"
    r"|have (?:kids|children|another baby)|use) ?.*"
)
_DEGREE: Final = re.compile(
    rf"(?:an?|the)?\s*(?:[\w'-]+ ){{0,4}}?(?:student|freshman|sophomore|undergraduate|grad student"
    rf"|phd candidate|PhD student|PhD candidate|junior|senior)(?: (?:at|in|of) .+)?|(?:the"
    rf" )?(?:{NAME})(?: (?:of )?(?:{NAME})){{0,4}}(?: University| College| High School| School|"
    rf" State)|(?:the )?University of .+|(?:law|medical|med|nursing|art|culinary|graduate|grad"
    rf"|business|beauty|night|dental|film|music) school(?: (?:at|in) .+)?|(?:community )?college(?:"
    rf" (?:at|in) .+)?"
)
_DATE: Final = re.compile(rf"(?:the )?(?:{CALENDAR})", re.IGNORECASE)


def _last(text: str, words: frozenset[str]) -> bool:
    """Whether a noun phrase's head is one of `words` (two words joined by "_")."""
    before = re.split(
        r" (?:of|for|in|with|from|at|on|named|called|to|about)\b", text.lower(), maxsplit=1
    )[0]
    parts = before.split()
    if not parts:
        return False
    return parts[-1] in words or "_".join(parts[-2:]) in words


def _all_last(text: str, words: frozenset[str]) -> bool:
    parts = re.split(r",? (?:and|or) |, ", text)
    return len(parts) < 7 and all(
        _last(part, words) and is_noun_phrase(re.sub(r"^the ", "", part)) for part in parts
    )


def _is_title(text: str) -> bool:
    """A game's name is in capitals: "Dungeons & Dragons"."""
    return is_name(text) and not text.startswith(("The ", "the "))


_COUNT: Final = re.compile(
    r"(?:around |about |over )?(?:one|two|three|four|five|six|seven|eight|nine|ten|\d+) "
)
_ON_A_TRIP: Final = re.compile(r" on an? (?:[\w-]+ ){0,3}(?:trip|vacation|cruise|hike)\b")


def _counted(text: str) -> bool:
    """ "25 rare coins", and not "two questions"."""
    return (
        _COUNT.match(text) is not None
        and re.split(r" (?:on|in|of|from|for) ", text)[0].endswith("s")
        and is_noun_phrase(text)
        and not _last(text, lexicon.NOT_COUNTED)
        and text.rsplit(maxsplit=1)[-1].lower() not in lexicon.NOT_COUNTED
    )


def _taken(text: str) -> bool:
    heads = lexicon.LESSONS | lexicon.TRIPS | lexicon.APPOINTMENTS
    trip = _ON_A_TRIP.search(text) or _TOOK_THEM.match(text)
    return is_deed(text) and (_last(text, heads) or trip is not None)


def _money(text: str) -> bool:
    found = _MONEY.fullmatch(text)
    return found is not None and (found["what"] is None or is_deed(found["what"]))


def _journey(text: str) -> bool:
    """A trip with a name in it: "a trip to the East Coast"."""
    where = re.search(r" (?:to|in|through|across|around|from) (?P<where>.+)$", text)
    return (
        where is not None
        and re.search(r"[A-Z]", where["where"]) is not None
        and is_deed(text)
        and _last(
            text.partition(" to ")[0].partition(" in ")[0],
            lexicon.TRIPS | {"hike", "trek", "drive", "ride"},
        )
    )


def _illness(text: str) -> bool:
    plain = _ILLNESS_MODIFIER.sub("", text)
    parts = re.split(r",? and |, ", plain)
    return (
        len(parts) < 6
        and all(
            part.lower() in lexicon.ILLNESSES or _ILLNESS_WORDS.fullmatch(part.lower()) is not None
            for part in (_ILLNESS_MODIFIER.sub("", part) for part in parts)
        )
        and is_listed(text)
    )


def _job(text: str) -> bool:
    found = _JOB.fullmatch(text)
    if found is None:
        return False
    head = found["head"].lower()
    if not lexicon.PRAISE.isdisjoint(found["job"].lower().split()):
        return False
    known = head in lexicon.JOBS or (head.endswith("s") and head[:-1] in lexicon.JOBS)
    where = found["where"]
    return (
        known
        and is_noun_phrase(found["job"], definite=True)
        and (where is None or is_noun_phrase(where.split(" ", 2)[2], definite=True))
    )


_LOOSE: Final = frozenset("team charm group unit result reminder treat couple".split())


def _trade(text: str) -> bool:
    """What "works as" may lead to: any noun, where "is" takes those alone that name a job."""
    found = _JOB.fullmatch(text)
    return _job(text) or (
        found is not None
        and text.startswith(("a ", "an "))
        and lexicon.PRAISE.isdisjoint(found["job"].lower().split())
        and found["head"].lower() not in _LOOSE
        and is_noun_phrase(text, definite=True)
    )


_BEGINS_PLAINLY: Final = re.compile(
    r"(?:an?|the|my|our|his|her|their|some|two|three|four|five|six|seven|\d+|in|at|to|for|with|up"
    r"|on|from|out) [^ ]|[A-Z]"
)
_LIGHT_OBJECTS: Final = frozenset(
    """look break nap shower notes care turn advantage plunge breath sip seat walk bath minute
    while effort sure mistake mind order account drive note selfie selfies pics shot shots eye
    sense fun difference decision progress changes lot bit""".split()
)


def _plain_deed(text: str) -> bool:
    """What was done of any kind: with an object or a place, and one verb alone."""
    return (
        _BEGINS_PLAINLY.match(text) is not None
        and is_deed(text)
        and not _last(text, _LIGHT_OBJECTS)
    )


_FAN: Final = re.compile(
    r"an? (?P<what>(?:[\w'&-]+ ){1,4}?)(?:fan|lover|enthusiast|buff|nerd|geek|fanatic|addict)|an?"
    r" (?:morning|night|dog|cat|coffee|tea|early|outdoors|outdoor|winter|summer|beach|people|book)"
    r" person|an? (?:night owl|early bird|introvert|extrovert|foodie|bookworm|homebody)"
)
_DEGREES_OF: Final = frozenset("huge big massive total real true such".split())
_MEDICINE: Final = re.compile(
    r"(?:(?:my|some|\w+) )?(?:(?:[a-z]{3,14})?(?:formin|prazole|statin|pril|sartan|olol|cillin"
    r"|mycin|oxetine|traline|profen|nesin|thyroxine|azepam|oxacin|dronate|triptan|lone|lukast)"
    r"|insulin|antidepressants|antihistamines|blood thinners|birth control|lithium|aspirin"
    r"|antibiotics|steroids|melatonin|statins|beta blockers|(?:[\w-]+ )?(?:medication|medicine"
    r"|meds|pills|supplements|vitamins))(?: for (?P<what>.+))?",
    re.IGNORECASE,
)
_DECADE: Final = re.compile(
    r"(?:early |mid |mid-|late )?(?:[2-9]0s|(?:twen|thir|for|fif|six|seven|eigh|nine)ties)"
)
_FAN_OF: Final = re.compile(
    r"(?:an? (?:[a-z-]+ ){0,2}|not (?:much|too much) of an? )(?:fan|lover|supporter|admirer"
    r"|follower) of (?P<what>.+)"
)
_POST: Final = re.compile(
    r"(?:the|an?) (?:[\w-]+ ){0,2}(?:trains?|ships?|ferry|ferries|boats?|railways?|buses|trams?"
    r"|farm|rig|ward|assembly line|night shift|help desk|front desk)"
)
"""What somebody works on for a living, of all that they may work on."""
_TREATMENT: Final = re.compile(
    r"(?:dialysis|chemo(?:therapy)?|physio(?:therapy)?|physical therapy|radiation|insulin|(?:an?"
    r" )?(?:insulin|allergy) (?:injections?|shots?|pump)|infusions?|(?:an? )?(?:hearing aids?"
    r"|pacemaker|wheelchair|walker|inhaler))"
)
_GOAL: Final = re.compile(
    r"(?:quit|stop|give up|cut (?:back|down)|reduce|learn|lose|gain|get (?:pregnant|fit|sober|in"
    r" shape)|eat (?:less|more|health)|save (?:up|for|money)|get more into|become) ?.*"
)


def _language(text: str) -> bool:
    found = _LANGUAGE.fullmatch(text)
    if found is None:
        return False
    parts = re.split(rf"(?:,? and |, | or ){_SOME}", found["languages"])
    return all(
        part.lower() in lexicon.LANGUAGES or part.endswith("Sign Language") for part in parts
    )


_NO_ORG: Final = frozenset(
    """my job|work|my work|home|my desk|my best|his job|her job|their job|night|nights|day|noon
    |midnight|dawn|dusk|weekend|weekends|the weekend|christmas|easter|short notice|full speed|free
    |fun|money|cash|tips|myself""".replace("\n    ", "").split("|")
)
"""Also when one does it, and what for."""


def _employer(text: str) -> bool:
    """A name, where people are employed, or who employs: "Oceano", "two bakeries", "a lawyer";
    never how, when or what for somebody works: "a steady pace", "odd hours", "a living"."""
    if not is_noun_phrase(text, definite=True) or text.lower() in _NO_ORG | MOODS:
        return False
    named = re.split(r",| (?:in|at|on|of|for|with|from|near|named|called)\b", text, maxsplit=1)[0]
    singular = re.sub(r"ies$", "y", named).removesuffix("s")
    if _last(named, lexicon.EMPLOYERS) or _last(singular, lexicon.EMPLOYERS):
        return True
    written_as_name = named != named.lower() and not _last(named, lexicon.MANNERS)
    return written_as_name or _RELATIVE.fullmatch(text) is not None


_DRAWN_OUT: Final = re.compile(r"(\w)\1\1")


_WORK_CALLED: Final = re.compile(
    r"^the (?:movie|film|book|show|series|song|band|game|anime) (?=[A-Z])"
)


def _liked(text: str) -> bool:
    if "'s " in text or _DRAWN_OUT.search(text):
        return False
    if text.startswith("to "):
        return is_verb_phrase(text[3:])
    text = _WORK_CALLED.sub("", text)
    parts = re.split(r", (?:and |or )?| (?:and|or|over|to) ", text)
    return len(parts) <= 6 and (
        is_activity(text) or all(is_activity(part) or (is_noun_phrase(part)) for part in parts)
    )


def _food(text: str) -> bool:
    return is_listed(text) and len(text.split()) <= 6


def _owned(text: str) -> bool:
    plain = re.sub(r"^(?:an?|my|our|two|three|four|\d+|some) ", "", text)
    return (is_noun_phrase(plain) and _last(plain, lexicon.OWNED) and plain != text) or _branded(
        text
    )


def _branded(text: str) -> bool:
    """ "a Honda Civic", "a 2015 Toyota Corolla"."""
    return (
        re.fullmatch(
            rf"(?:a|an) (?:(?:new|used|old|red|blue|black|white|silver|\d{{4}})"
            rf" ){{0,2}}(?:{NAME})(?: (?:{NAME}|\d\w*)){{1,3}}(?: [a-z]+){{0,3}}",
            text,
        )
        is not None
    )


_KINDS: Final[dict[Kind, Callable[[str], bool]]] = {
    "place": is_place,
    "employer": _employer,
    "org": lambda text: is_noun_phrase(text, definite=True) and text.lower() not in _NO_ORG,
    "job": _job,
    "thing": lambda text: is_noun_phrase(text, definite=False),
    "list": is_listed,
    "liked": _liked,
    "verb": is_verb_phrase,
    "person": lambda text: (
        _RELATIVE.fullmatch(text) is not None or _PERSON.fullmatch(text) is not None
    ),
    "language": _language,
    "illness": _illness,
    "owned": _owned,
    "nothing": lambda text: not text,
    "degree": lambda text: (
        _DEGREE.fullmatch(text) is not None and is_noun_phrase(text, definite=True)
    ),
    "food": _food,
    "allergies": lambda text: is_noun_phrase(text) and text.endswith((" allergy", " allergies")),
    "game": lambda text: _all_last(text, lexicon.GAMES) or _is_title(text),
    "discipline": lambda text: _all_last(text, lexicon.DISCIPLINES),
    "lessons": lambda text: (
        is_noun_phrase(text) and len(text.split()) > 1 and _last(text, lexicon.LESSONS)
    ),
    "trip": lambda text: (
        is_deed(text)
        and _last(text, lexicon.TRIPS | lexicon.APPOINTMENTS)
        and " " in re.sub(r"^(?:an?|my|our|the) ", "", text)
    ),
    "field": lambda text: is_noun_phrase(text, definite=True) and _last(text, lexicon.FIELDS),
    "journey": _journey,
    "habit": lambda text: (
        not text or (is_noun_phrase(text, definite=True) and _last(text, lexicon.HABIT_PLACES))
    ),
    "award": lambda text: (
        is_noun_phrase(text, definite=True)
        and _last(text, lexicon.AWARDS)
        and len(text.split()) > 2
    ),
    "money": _money,
    "project": lambda text: is_noun_phrase(text) and _last(text, lexicon.PROJECTS),
    "complaint": lambda text: (
        _illness(text) or (is_noun_phrase(text) and _last(text, lexicon.COMPLAINTS))
    ),
    "goods": lambda text: is_noun_phrase(text) and _last(text, lexicon.OWNED),
    "outing": lambda text: _OUTING.match(text) is not None and is_deed(text),
    "new": lambda text: _NEW.match(text) is not None and is_deed(text) and len(text.split()) > 2,
    "brand": lambda text: _branded(text) or (_owned(text) and not text.startswith(("my ", "our "))),
    "counted": _counted,
    "done": lambda text: (
        _COUNT.match(text) is not None
        and is_noun_phrase(text)
        and not _last(text, lexicon.NOT_COUNTED)
    ),
    "title": lambda text: is_name(re.sub(r" by (?=[A-Z])", " of ", text)),
    "occasion": lambda text: (
        is_deed(text) and (_last(text, lexicon.OCCASIONS) or _GOOD_TIME.match(text) is not None)
    ),
    "taken": _taken,
    "deed": is_deed,
    "plain deed": _plain_deed,
    "scheme": lambda text: text.startswith(("a ", "an ", "my ", "our ")) and is_deed(text),
    "trade": _trade,
    "fan": lambda text: (
        (found := _FAN.fullmatch(text)) is not None
        and (found["what"] is None or not _DEGREES_OF.issuperset(found["what"].split()))
    ),
    "medicine": lambda text: (
        (found := _MEDICINE.fullmatch(text)) is not None
        and (found["what"] is None or is_noun_phrase(found["what"], definite=True))
    ),
    "fan of": lambda text: (found := _FAN_OF.fullmatch(text)) is not None and _liked(found["what"]),
    "kept": lambda text: text in lexicon.KEPT,
    "goal": lambda text: (
        _GOAL.fullmatch(text) is not None and is_verb_phrase(text.removeprefix("get "))
    ),
    "activity": is_activity,
    "resolve": lambda text: _RESOLVES.fullmatch(text) is not None and is_verb_phrase(text),
    "named": lambda text: (
        is_name(re.sub(r"^(?:an?|my) ", "", text)) and text.partition(" ")[0] not in ("The", "the")
    ),
    "appointment": lambda text: (
        is_deed(text) and _last(text, lexicon.APPOINTMENTS | lexicon.LESSONS)
    ),
}


_SHAPES: Final[dict[Kind, Callable[[str], re.Match[str] | None]]] = {
    **{
        "age": _AGE.fullmatch,
        "animal": _ANIMAL.fullmatch,
        "date": _DATE.fullmatch,
        "decade": _DECADE.fullmatch,
        "figure": _FIGURE.fullmatch,
    },
    **{
        "household": _HOUSEHOLD.fullmatch,
        "meal": _MEAL.fullmatch,
        "post": _POST.fullmatch,
        "treatment": _TREATMENT.fullmatch,
    },
}


def fits(kind: Kind, text: str) -> bool:
    """Whether `text` is what a slot of that kind takes."""
    shape = _SHAPES.get(kind)
    return _KINDS[kind](text) if shape is None else shape(text) is not None


def relation_in(text: str) -> str:
    """The relation of "two younger sisters", the animal of "a black cat named Tom"; folded."""
    for pattern, group in ((_ANIMAL, "animal"), (_RELATIVE, "relation")):
        found = pattern.fullmatch(text)
        if found is not None:
            return found[group].lower()
    return ""


_INNER: Final[dict[Kind, Callable[[str], re.Match[str] | None]]] = {
    **{
        "age": _AGE.fullmatch,
        "meal": _MEAL.fullmatch,
        "job": _JOB.fullmatch,
        "trade": _JOB.fullmatch,
    },
    **{"fan of": _FAN_OF.fullmatch, "language": _LANGUAGE.fullmatch},
}
"""Of these the value is the first group."""


def value_of(kind: Kind, text: str) -> str:
    """The value in `text`, which fits `kind`."""
    inner = _INNER.get(kind)
    found = None if inner is None else inner(text)
    if found is not None:
        return found[1].lower() if kind == "meal" else without_determiner(found[1])
    return without_determiner(text) if kind not in ("verb", "liked") else text.removeprefix("to ")
