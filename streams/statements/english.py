"""English, for `parsing`."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.statements.claims import SAYS, Claim, Words
from palimpsest.streams.statements.grammar import (
    Grammar,
    Relation,
    Sense,
    folded,
    opposites,
    rewritten,
)

_CONTRACTIONS: Final = (
    (re.compile(r"\b(ca)n't\b", re.IGNORECASE), r"\1n not"),
    (re.compile(r"\b(w)on't\b", re.IGNORECASE), r"\1ill not"),
    (re.compile(r"\bcannot\b", re.IGNORECASE), "can not"),
    (re.compile(r"n't\b", re.IGNORECASE), " not"),
    (re.compile(r"'m\b", re.IGNORECASE), " am"),
    (re.compile(r"'re\b", re.IGNORECASE), " are"),
    (re.compile(r"'ve\b", re.IGNORECASE), " have"),
    (re.compile(r"'ll\b", re.IGNORECASE), " will"),
    (re.compile(r"'s (?=(?:not|an?|\w+ing)\b)", re.IGNORECASE), " is "),
)
_WORDINGS: Final = (
    (re.compile(r",? \b(?:by the way|of course|to be honest|as you know)\b", re.IGNORECASE), ""),
    (re.compile(r"^(?:and|but|so|also|yes|no|well|actually|now),? ", re.IGNORECASE), ""),
    (re.compile(r"(?<=\w)'s\b"), " 's"),
    (re.compile(r"\bno longer\b", re.IGNORECASE), "not"),
    (re.compile(r"\bany (?:more|longer)\b", re.IGNORECASE), "anymore"),
    (re.compile(r"\b(?:at|after) all\b", re.IGNORECASE), "anymore"),
    (re.compile(r"\b(?:these days|at the moment|from now on)\b", re.IGNORECASE), "now"),
    (re.compile(r"\bno (one|doubt|matter|wonder|time)\b", re.IGNORECASE), r"no-\1"),
    (re.compile(r"\bas well\b(?! as\b)", re.IGNORECASE), "also"),
    (re.compile(r"\bfavorite", re.IGNORECASE), "favourite"),
    (re.compile(r"\bcolor", re.IGNORECASE), "colour"),
)

_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SPAN: Final = r"(?:day|night|morning|afternoon|evening|week|weekend|month|year|summer|winter)"
_HABITS: Final = re.compile(
    rf"\b(?:every (?:other |single |second )?(?:{_SPAN}|{_DAY})s?|on (?:{_DAY}s|weekends|weekdays)"
    rf"|(?:once|twice|\w+ times) (?:an?|per|each) {_SPAN}|in the (?:morning|afternoon|evening)s?"
    r"|at night|daily|weekly|monthly|all the time|always|usually|often|regularly|every time"
    r"|since (?:\d{4}|last \w+|\w+ \d{4}|childhood)|for (?:\w+ )?(?:years|months|weeks)"
    rf"|all (?:day|night|year)|each {_SPAN})\b(?! of\b)",
    re.IGNORECASE,
)
_IRREGULAR: Final = {
    "am": "be",
    "is": "be",
    "are": "be",
    "has": "have",
    "does": "do",
    "goes": "go",
    "'s": "'s",
    "can": "can",
    "news": "news",
}


def _stem(word: str) -> str:
    """Without the -s of the third person, which is also the plural's."""
    known = _IRREGULAR.get(word)
    if known is not None:
        return known
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "'s")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "xes", "zes", "ches", "shes", "oes")) else word[:-1]


_PROGRESSIVE: Final = {
    "living": "live",
    "working": "work",
    "studying": "study",
    "staying": "stay",
    "teaching": "teach",
    "renting": "rent",
    "driving": "drive",
    "using": "use",
    "learning": "learn",
    "taking": "take",
    "training": "train",
    "playing": "play",
    "smoking": "smoke",
    "running": "run",
}
"""Verbs whose progressive says what holds for long, as their simple present does."""

_SYNONYMS: Final[tuple[tuple[Words, Words], ...]] = (
    *((("be", doing), (verb,)) for doing, verb in _PROGRESSIVE.items()),
    (("work", "for"), ("work", "at")),
    (("be", "employed", "by"), ("work", "at")),
    (("be", "employed", "at"), ("work", "at")),
    (("reside", "in"), ("live", "in")),
    (("be", "based", "in"), ("live", "in")),
    (("can", "not", "stand"), ("hate",)),
    (("be", "fan", "of"), ("like",)),
    (("be", "big", "fan", "of"), ("like",)),
    (("have", "got"), ("have",)),
    (("have", "moved"), ("moved",)),
    (("have", "relocated"), ("moved",)),
    (("relocated", "to"), ("moved", "to")),
    (("moved", "back", "to"), ("moved", "to")),
    (("be", "wed", "to"), ("be", "married", "to")),
    (("like", "more"), ("prefer",)),
)
_RELATIONS: Final = (
    Relation("residence", ("live", "in")),
    Relation("residence", ("moved", "to"), tells=True),
    Relation("employer", ("work", "at")),
    Relation("employer", ("started", "working", "at"), tells=True),
    Relation("employer", ("started", "at"), tells=True),
    Relation("occupation", ("work", "as")),
    Relation("spouse", ("be", "married", "to")),
    Relation("preference", ("prefer",)),
)

_OPPOSITES: Final = {
    "liking": ("like love enjoy adore", "hate dislike detest loathe despise"),
    "accepting": ("accept", "reject refuse"),
    "allowing": ("allow permit", "deny forbid prohibit block"),
    "increasing": ("increase", "decrease reduce"),
    "including": ("include", "exclude"),
    "supporting": ("support", "oppose"),
    "passing": ("pass", "fail"),
    "enabled": ("enabled active activated", "disabled inactive deactivated"),
    "on": ("on", "off"),
    "true": ("true", "false"),
    "open": ("open", "closed shut"),
    "locked": ("locked", "unlocked"),
    "allowed": ("allowed permitted", "denied forbidden prohibited banned"),
    "accepted": ("accepted approved", "rejected refused"),
    "alive": ("alive", "dead deceased"),
    "public": ("public", "private"),
    "online": ("online", "offline"),
    "available": ("available", "unavailable"),
    "possible": ("possible", "impossible"),
    "marital": ("single unmarried", "married", "divorced", "widowed", "engaged"),
    "employed": ("employed", "unemployed", "retired"),
    "visible": ("visible", "hidden invisible"),
    "required": ("required mandatory", "optional"),
    "full": ("full", "empty"),
    "healthy": ("healthy", "ill sick"),
    "handed": ("right-handed", "left-handed"),
    "indoors": ("indoors", "outdoors"),
    "safe": ("safe", "unsafe dangerous"),
    "legal": ("legal", "illegal"),
    "religious": ("religious", "atheist"),
}
_ACTS: Final = frozenset(
    "liking accepting allowing increasing including supporting passing".split()
)


_MEAT: Final = (
    "meat beef pork chicken steak ham bacon turkey lamb sausage sausages burger burgers".split()
)
_FISH: Final = "fish seafood salmon tuna shrimp".split()
_ANIMAL: Final = "egg eggs cheese butter honey dairy yoghurt yogurt".split()

_USING: Final = ("eat", "drink", "smoke", "use", "take", "play", "do", "have")
_STOPPED: Final = frozenset({"quit", "stopped", "ceased", "stop"})
_JOB: Final = frozenset({"job", "position", "post"})
_LEFT: Final = frozenset({"quit", "left", "lost", "resigned"})
_HELPERS: Final = {"retired": ("have", "be")} | dict.fromkeys(
    (*_LEFT, *_STOPPED, "moved", "broken", "divorced"), ("have",)
)
_OWN: Final = frozenset({"her", "his", "their", "'s"})


def _bases(doing: str) -> tuple[str, ...]:
    """What "doing" may be a form of: do, make (mak), run (runn)."""
    if not doing.endswith("ing") or len(doing) < 5:
        return ()
    base = doing[:-3]
    undoubled = base[:-1] if len(base) > 2 and base[-1] == base[-2] else base
    return tuple(dict.fromkeys((base, f"{base}e", undoubled)))


def _not(frame: Words, sense: Sense | None = None) -> Claim:
    qualifiers = sense.qualifiers if sense else frozenset[str]()
    return Claim(SAYS, frame, holds=False, qualifiers=qualifiers)


def _endings(sense: Sense) -> tuple[Claim, ...]:
    if sense.denies:
        return ()
    words = _joined(sense.words)
    found: list[Claim] = []
    for place in range(1, len(words)):
        subject = (
            words[: place - 1]
            if words[place - 1] in _HELPERS.get(words[place], ())
            else words[:place]
        )
        word, rest = words[place], words[place + 1 :]
        if not subject:
            continue
        if word in _STOPPED and rest:
            found += [_not((*subject, base, *rest[1:]), sense) for base in _bases(rest[0])]
        if word == "quit" and rest and not _bases(rest[0]):
            found += [_not((*subject, verb, *rest), sense) for verb in _USING]
        if word == "used" and rest[:1] == ("to",):
            found.append(_not((*subject, *rest[1:]), sense))
        found += _left(subject, word, rest)
        found += _parted(subject, word, rest)
    return tuple(found)


def _joined(words: Words) -> Words:
    """With "gave up" as one word."""
    text = f" {' '.join(words)} "
    for said in ("gave up", "given up", "give up"):
        text = text.replace(f" {said} ", " quit ")
    return tuple(text.split())


def _left(subject: Words, word: str, rest: Words) -> list[Claim]:
    """The end of a job or of a home."""
    if word == "moved" and rest[:1] in (("from",), ("away",), ("out",)):
        places = tuple(w for w in rest if w not in ("from", "away", "out", "of"))
        if "to" in places:
            places = places[: places.index("to")]
        return [Claim("residence", subject, places, holds=False)] if places else []
    if word == "retired" and not rest:
        return _jobless(subject, ())
    if word not in _LEFT or not rest:
        return []
    while rest and (rest[0] in _OWN or rest[0] == "from" or rest[0] in subject):
        rest = rest[1:]
    if rest and rest[0] in _JOB:
        at = rest[2:] if rest[1:2] in (("at",), ("with",)) else ()
        return _jobless(subject, _before_time(at)) if len(rest) == 1 or at else []
    if word == "lost" or not rest:
        return []
    return [Claim("employer", subject, _before_time(rest), holds=False)]


def _jobless(subject: Words, at: Words) -> list[Claim]:
    ended = [Claim("employer", subject, at, holds=False)]
    return ended if at else [*ended, Claim("occupation", subject, (), holds=False)]


def _before_time(words: Words) -> Words:
    for place, word in enumerate(words):
        if word in ("in", "last", "after", "this", "on", "because", "to", "yesterday"):
            return words[:place]
    return words


_BOUND: Final = (
    ("be", "dating"),
    ("be", "married", "to"),
    ("be", "engaged", "to"),
    ("be", "in", "relationship", "with"),
    ("be", "together", "with"),
)


def _parted(subject: Words, word: str, rest: Words) -> list[Claim]:
    """The end of a relationship."""
    whom: Words = ()
    if word in ("broke", "split", "broken") and rest[:2] == ("up", "with"):
        whom = rest[2:]
    elif word == "divorced":
        whom = rest
    if not whom:
        return []
    whom = _before_time(whom)
    spouse = Claim("spouse", subject, whom, holds=False)
    return [spouse, *(_not((*subject, *bound, *whom)) for bound in _BOUND)]


def without_contractions(text: str) -> str:
    """`text` with "do not" for "don't"; apostrophes must be plain ones."""
    return rewritten(text, _CONTRACTIONS) if "'" in text or "annot" in text else text


def _expanded(text: str) -> str:
    return rewritten(without_contractions(text), _WORDINGS)


GRAMMAR: Final = Grammar(
    expand=_expanded,
    stem=_stem,
    habits=_HABITS,
    speaker=folded("i me"),
    speakers=folded("my"),
    we=folded("we our"),
    articles=frozenset(),
    unclear_subjects=folded(
        "a an he she it they we you i my our your his her their its this that these those there"
        " here who what some many most few several half part certain other another any each both"
        " somebody someone something people nobody nothing none neither one anybody everybody"
        " if when while unless although though because since before after until no"
    ),
    unclear=folded(
        "he she it they them him you your yours these those this there here myself mine"
        " nobody nothing none neither nor hardly barely"
    ),
    doubtful=folded(
        "maybe perhaps probably possibly apparently might could would should may if unless whether"
        " when while until was were did had sometimes occasionally seldom rarely once supposedly"
        " allegedly seems almost nearly ago yesterday today tomorrow tonight formerly previously"
    ),
    past=re.compile(r"(?!)"),
    negations=folded("not never no"),
    no_negation=folded(
        "only just merely simply always necessarily all every everyone everything entirely"
        " completely fully exactly quite really particularly very that so too much until even stand"
        " because especially usually often many more less better"
    ),
    in_denials=folded("anymore any yet either"),
    helpers=folded("do does"),
    light=folded("a an the also too really actually definitely already just still finally"),
    news=folded("now currently again recently lately meanwhile nowadays"),
    more=folded("also too additionally part-time freelance"),
    synonyms=_SYNONYMS,
    relations=_RELATIONS,
    copula="be",
    several=folded("are live work reside prefer have"),
    indefinite=folded("a an another"),
    before_nouns=folded("the a an 's her his their its our"),
    open_ends=folded(
        "that it her his so there here one same this too is are am be can will do does have has"
        " know knows like likes love loves hate hates want wants need needs agree agrees remember"
        " remembers understand understands care cares mind believe believes see sees forget"
        " forgets enjoy enjoys prefer prefers sure ready able done right wrong interested aware"
        " alone willing"
    ),
    favourite=re.compile("favourite"),
    attributes=folded(
        "deadline birthday anniversary budget price port timeout limit version age height weight"
        " salary rent capacity size rate number code address password date threshold interval"
        " speed length width duration fee quota"
    ),
    of=folded("of for in on at to"),
    opposites=opposites(_OPPOSITES),
    states=frozenset(_OPPOSITES) - _ACTS,
    diets={
        "vegetarian": (*_MEAT, *_FISH),
        "vegan": (*_MEAT, *_FISH, *_ANIMAL),
        "pescatarian": tuple(_MEAT),
    },
    eat="eat",
    stops=folded(
        "with and but or because for since last where near from which who to by as so, at after"
        " next in on until during before"
    ),
    narrows=folded("in on during until when"),
    tails=folded("before after because"),
    elsewhen=folded("before after as back and or when while temporarily once originally first"),
    spans=folded("day week month year semester while decade"),
    last=folded("last this"),
    vague=folded("of anything everything something whatever any that which like"),
    restricts=folded("except only unless if when until before but however although maybe back"),
    breaks=folded("but and or because so since although while who which"),
    endings=_endings,
)
