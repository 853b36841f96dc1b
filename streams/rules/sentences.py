"""Sentences of a turn that are worth keeping, rewritten to stand alone. Pure.

Made for English; text in other scripts and languages is kept whole and attributed to its
speaker. What cannot be rewritten safely is kept as it was said: "Caroline: …". A fact that names
no subject of its own always names its speaker, so that two speakers' same words stay two facts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from palimpsest.schemas.messages import FactType
from palimpsest.streams.rules.clauses import clauses
from palimpsest.streams.rules.kinds import (
    asks,
    is_chat,
    is_conditional,
    is_doubtful,
    is_question,
    is_request,
    states_nothing,
    takes_back,
    type_of,
)
from palimpsest.streams.rules.language import doubts, is_english, without_courtesy
from palimpsest.streams.rules.quotes import ENDED_MARK
from palimpsest.streams.rules.words import (
    AUXILIARY,
    BASE_VERBS,
    PAST,
    Phrases,
    is_past,
    third_person,
    with_apostrophes,
)

MAX_SENTENCE_CHARACTERS: Final = 600
MIN_WORDS: Final = 3
MIN_LETTERS: Final = 4
"""Of a sentence in a script that sets no spaces."""
DOUBTFUL: Final = 0.55
"""Below the gate of apply-writes: never written, and no relation is read from it."""


_LETTERS: Final = re.compile(rf"(?:[^\W\d_].*?){{{MIN_LETTERS}}}")


class Statement(NamedTuple):
    """A sentence that stands alone. `confidence` is a share from 0 to 1; `plain`: it holds as it
    is said, so relations may be read from it."""

    text: str
    type: FactType
    confidence: float
    plain: bool = False


_SPLIT: Final = re.compile(
    r"(?<=[.!?…؟।][\"')])\s+|(?<=[.!?…؟।])\s+|(?<=[。\uff01\uff1f])\s*"
    rf"|(?<={ENDED_MARK})\s+(?=[A-Z])|\n+"
)
_SPLIT_ASCII: Final = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"')])\s+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ABBREVIATION: Final = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|Prof|Jr|Sr|No|approx|Mt|(?<!\.)[A-HJ-Z])\.$"
)
# These end a sentence as often as not: what begins small, or with a figure, goes on.
_DOTTED: Final = re.compile(r"\b(?:(?:[A-Za-z]\.){2,}|approx\.|ca\.|bzw\.)$")
_ORDINAL: Final = re.compile(
    r"\b(?:am|den|der|dem|vom|zum|ab|bis|im|seit) \d{1,2}\.$", re.IGNORECASE
)
_GOES_ON: Final = re.compile(r"[a-z\d(]")
_VOCATIVE: Final = r"(?:,? (?!I\b|I'|My\b|We\b)[A-Z][a-z]+(?=[,!]))?"
_LEAD: Final = re.compile(
    r"^(?:(?:(?i:hey|hi|hello|wow|oh+|yeah|yes|yep|yup|well|so|and|but|also|actually|okay"
    r"|ok|(?:ha){2,}h?|lol|lmao|omg|h+m+|u+h+m*|m{2,}|a+h+|aw+|ugh|btw|by the way|fyi|anyway"
    r"|honestly"
    rf"|plus|sorry(?= I))\b{_VOCATIVE}[,!.\-\u2013\u2014 ]+)"
    r"|(?:(?i:no|nope|nah|thanks|thank you|great|cool|awesome|nice|please|right|sure|congrats"
    r"|totally"
    rf"|absolutely|definitely|of course)\b{_VOCATIVE} ?[,!.\-\u2013\u2014]+ *))+"
)
_ADDRESS: Final = re.compile(r"^[A-Z][a-z]+, (?=(?:that|you|what|how|it|this|thank|i)\b)")
_INTENT: Final = re.compile(
    r"^(?:(?:can|could|would) you )?(?:please )?(?:remember|note|don't forget|keep in mind"
    r"|commit to memory|for future reference|for future conversations)(?: this| down)?"
    r"(?:,? that\b|[:,])? *",
    re.IGNORECASE,
)
_FIRST: Final = re.compile(r"\b(?:I|I'(?:m|ve|d|ll)|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_SMALL_I: Final = re.compile(r"(?<![\w.'-])i(?=(?:'(?:m|ve|d|ll))?(?: |$))")
_WE: Final = Phrases("we|our|us|ours|let's")
_WE_START: Final = re.compile(r"(?:we|our|us|let's)\b", re.IGNORECASE)
_I: Final = re.compile(r"\bI\b")
_YOU: Final = Phrases("you|your|yours|you're|you've")
_PRONOUN_START: Final = re.compile(
    r"^(?:it|this|that|these|those|he|she|they|his|her|their|its|there|here|him|them)\b",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(r"^(?:(?:The|A|An|Our) )?[^\W\d_]")
_LABELLED: Final = re.compile(r"^[^\W\d_]\w*(?: \w+)?: ")
_TRANSCRIPT: Final = re.compile(
    # The time that a chat's export sets before each line: "[10:02] ", "3/12/26, 10:02 - ".
    r"^(?:\[?(?:[\d/.\-]{6,10},? )?\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]?(?: -)? )?"
    r"(?P<name>[^\W\d_a-z][\w'.-]*(?: [^\W\d_a-z][\w'.-]*){0,2}): (?P<said>.+)$"
)
_LABELS: Final = frozenset(
    "note update ps fyi edit todo reminder tip warning important correction news fact question"
    " answer"
    " btw tldr summary example context problem solution deadline stack status goal plan".split()
)

_ADVERBS: Final = (
    r"(?:(?:really|also|just|always|never|usually|still|recently|currently|actually|finally|often"
    r"|sometimes|already|mostly|absolutely|definitely|totally|even|once|only|now|kind of|mainly"
    r"|especially|truly|no longer|rarely|seldom|hardly|barely|not) )*"
)
_AND_I: Final = re.compile(
    r"^(?P<others>(?:(?:[Mm]y|[Tt]he|[Oo]ur) [a-z]+(?: [A-Z]\w+)?|[A-Z]\w+(?: [A-Z]\w+)?)) and I"
    r" (?P<rest>(?!am\b)[a-z])"
)
_ME_AND: Final = re.compile(r"^[Mm]e and (?P<others>my [a-z]+(?: [A-Z]\w+)?|[A-Z]\w+) (?=[a-z])")
_I_VERB: Final = re.compile(
    # Not inside "my-package" or "/me/".
    rf"(?<![\w./@-])(?:I'(?P<short>m|ve|d|ll)(?P<after> {_ADVERBS}[a-z']+)?"
    rf"|I (?P<adverbs>{_ADVERBS})(?P<verb>[a-z]+(?:'t)?)"
    r"|(?P<bare>I|[Mm]yself|[Mm]ine)|(?P<my>[Mm]y)|(?P<me>[Mm]e))\b(?![-/@]\w)"
)


class _UnsafeError(Exception):
    """The sentence cannot be rewritten without guessing."""


def sentences(text: str) -> list[str]:
    """`text` in sentences, trimmed; an abbreviation's full stop ends none."""
    parts: list[str] = []
    for part in (_SPLIT_ASCII if text.isascii() else _SPLIT).split(text):
        if parts and parts[-1][-1] == "." and _ends_short(parts[-1], part):
            parts[-1] += " " + part
        elif part := part.strip():
            parts.append(part)
    return parts


def _ends_short(part: str, following: str) -> bool:
    """Whether the full stop of `part` is an abbreviation's, so that `following` belongs to it."""
    if _ABBREVIATION.search(part) or _ORDINAL.search(part):
        return True
    return _DOTTED.search(part) is not None and _GOES_ON.match(following) is not None


def one_line(text: str) -> str:
    """`text` without control characters, white space folded."""
    return " ".join((text if text.isprintable() else _CONTROL.sub(" ", text)).split())


def in_transcript(passage: str, speaker: str) -> str:
    """What of a line "Name: …" the speaker says: a line of another's, told in the first person,
    becomes a quotation, so that nobody's words are taken for the speaker's."""
    line = _TRANSCRIPT.match(passage) if ": " in passage else None
    if line is None or line["name"].lower() in _LABELS:
        return passage
    if line["name"].casefold() == speaker.casefold():
        return line["said"]
    if not _FIRST.search(line["said"].replace("\u2019", "'")):
        return passage
    said = line["said"].replace('"', "'")
    return f'{speaker} quotes {line["name"]}: "{said}"'


def statements(parts: list[str], speaker: str, explicit: bool) -> list[Statement]:
    """What `parts` (the sentences of one passage, in order) state, standing alone.

    `explicit`: the speaker asked to have this remembered, so all but questions is kept.
    """
    found: list[list[Statement]] = []
    for part in parts:
        if found and takes_back(part):
            found.pop()
        else:
            found.append(_statements(part, speaker, explicit))
    return [statement for each in found for statement in each]


def _statements(sentence: str, speaker: str, explicit: bool) -> list[Statement]:
    text = one_line(sentence.replace("\u2019", "'")).strip("-*• ")
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or asks(text):
        return []
    if explicit:
        text = _INTENT.sub("", text)
    text = _LEAD.sub("", text).rstrip(":")
    if _LETTERS.search(text) is None:
        return []
    if not explicit and (is_request(text) or is_chat(_ADDRESS.sub("", text))):
        return []
    text = with_apostrophes(text)
    if not is_english(text):
        return _kept_as_said(text, speaker, explicit)
    if " i" in text or text[0] == "i":
        text = _SMALL_I.sub("I", text)
    if len(text.split()) < MIN_WORDS or is_question(text):
        return []
    if not explicit and states_nothing(text):
        return []
    return [
        told
        for clause in clauses(text.rstrip("!") + "." if text[-1] == "!" else text)
        for told in [_attributed(clause, speaker, explicit)]
        if told is not None
    ]


def _kept_as_said(text: str, speaker: str, explicit: bool) -> list[Statement]:
    if not explicit:
        text = without_courtesy(text)
    spaced = len(text.split()) >= MIN_WORDS or not text.isascii()
    if not spaced or _LETTERS.search(text) is None:
        return []
    sure = 0.95 if explicit else DOUBTFUL if doubts(text) or is_doubtful(text) else 0.7
    return [Statement(f"{speaker}: {text}", "fact", sure)]


def _attributed(text: str, speaker: str, explicit: bool) -> Statement | None:
    first_person = _FIRST.search(text) is not None
    kind = type_of(text, first_person)
    told = _told(text, kind, speaker, first_person, explicit)
    if told is None:
        return None
    rewritten, confidence = told
    doubtful = is_doubtful(text)
    if explicit:
        confidence = 0.95
    elif doubtful:
        confidence = min(confidence, DOUBTFUL)
    plain = not doubtful and not is_conditional(text)
    return Statement(rewritten[0].upper() + rewritten[1:], kind, confidence, plain)


def _told(
    text: str, kind: FactType, speaker: str, first_person: bool, explicit: bool
) -> tuple[str, float] | None:
    """`text` with its subject named, and how sure that is; None when nobody can tell whose."""
    attributed = f"{speaker}: {text}"
    vague = _PRONOUN_START.match(text) is not None
    if _WE_START.match(text) or (
        _WE.within(text.lower()) and not _I.search(text) and text[:3] != "My "
    ):
        return attributed, 0.65 if vague or (first_person and _YOU.within(text.lower())) else 0.75
    if first_person:
        # "It made me happy": what "it" is, stands in another sentence
        return _in_third_person(text, kind, speaker, 0.65 if vague else 0.85)
    if kind in ("procedural", "decision"):
        return text, 0.8
    if (vague or _YOU.within(text.lower())) and not explicit:
        return None
    if _without_subject(text) or _LABELLED.match(text) or vague:
        return attributed, 0.7
    if _NAMED.match(text) and text[0].isupper():
        return text, 0.75
    return attributed, 0.7


def _in_third_person(
    text: str, kind: FactType, speaker: str, sure: float
) -> tuple[str, float] | None:
    attributed = f"{speaker}: {text}"
    if _YOU.within(text.lower()):
        return attributed, 0.65
    try:
        rewritten = _with_others(text, speaker)
    except _UnsafeError:
        return attributed, min(sure, 0.75)
    return rewritten, 0.9 if kind in ("preference", "decision") and sure > 0.7 else sure


def _with_others(text: str, speaker: str) -> str:
    """`text` with the speaker's name for every first person."""
    together = _AND_I.match(text)
    if together is not None:
        # The verb stays in the plural: "Tom and Ana live in Cork".
        begin = together.start("rest")
        others = _I_VERB.sub(lambda match: _third_person(match, speaker), together["others"])
        rest = _I_VERB.sub(lambda match: _third_person(match, speaker), text[begin:])
        return f"{others} and {speaker} {rest}"
    text = _ME_AND.sub(lambda match: f"{speaker} and {match['others']} ", text)
    return _I_VERB.sub(lambda match: _third_person(match, speaker), text)


def _without_subject(text: str) -> bool:
    """Whether `text` begins with its verb: "Took a trip to Rome"."""
    first = text.partition(" ")[0].lower()
    return (
        first in AUXILIARY
        or first in BASE_VERBS
        or first == "been"
        or PAST.match(first) is not None
    )


def _third_person(match: re.Match[str], speaker: str) -> str:
    if match["my"]:
        return f"{speaker}'s"
    if match["me"]:
        return speaker
    if match["bare"]:
        raise _UnsafeError
    if match["short"]:
        return f"{speaker} {_expanded(match['short'], match['after'] or '')}"
    return f"{speaker} {match['adverbs']}{_conjugated(match['verb'])}"


def _expanded(short: str, after: str) -> str:
    if short == "d":
        return f"{'had' if is_past(after.rpartition(' ')[2]) else 'would'}{after}"
    return {"m": "is", "ve": "has", "ll": "will"}[short] + after


def _conjugated(verb: str) -> str:
    """The third person of `verb` after "I"; raises _UnsafeError for a word that is not known."""
    known = AUXILIARY.get(verb)
    if known is not None:
        return known
    if verb in BASE_VERBS:
        return third_person(verb)
    if PAST.match(verb):
        return verb
    raise _UnsafeError
