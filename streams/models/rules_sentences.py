"""Sentences of a turn that are worth keeping, rewritten to stand alone. Pure.

Made for English; text in other scripts and languages is kept whole and attributed to its
speaker. What cannot be rewritten safely is kept as it was said: "Caroline: …".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from schemas.messages import FactType

MAX_SENTENCE_CHARACTERS: Final = 600
MIN_WORDS: Final = 3
MIN_LETTERS: Final = 4
"""Of a sentence in a script that sets no spaces."""


class Statement(NamedTuple):
    """A sentence that stands alone. `confidence` is a share from 0 to 1."""

    text: str
    type: FactType
    confidence: float


_SPLIT: Final = re.compile(r"(?<=[.!?…][\"')])\s+|(?<=[.!?…])\s+|(?<=[。\uff01\uff1f])\s*|\n+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ABBREVIATION: Final = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|Prof|Jr|Sr|No)\.$")
_VOCATIVE: Final = r"(?:,? (?!I\b|I'|My\b|We\b)[A-Z][a-z]+(?=[,!]))?"
_LEAD: Final = re.compile(
    r"^(?:(?:(?i:hey|hi|hello|wow|oh|yeah|yes|yep|no|nope|well|so|and|but|also|actually|okay|ok"
    rf"|haha|lol|btw|by the way|fyi|anyway|honestly|plus)\b{_VOCATIVE}[,!.\-\u2013\u2014 ]+)"
    r"|(?:(?i:thanks|thank you|great|cool|awesome|nice|please|right|sure|congrats|totally"
    rf"|absolutely|definitely|of course)\b{_VOCATIVE} ?[,!.\-\u2013\u2014]+ *))+"
)
_ADDRESS: Final = re.compile(r"^[A-Z][a-z]+, (?=(?:that|you|what|how|it|this|thank|i)\b)")
_INTENT: Final = re.compile(
    r"^(?:(?:can|could|would) you )?(?:please )?(?:remember|note|don't forget|keep in mind"
    r"|commit to memory|for future reference|for future conversations)(?: this| down)?"
    r"(?:,? that\b|[:,])? *",
    re.IGNORECASE,
)
_CHAT: Final = re.compile(
    r"^(?:good (?:morning|night|evening|to see|to hear|luck|for you|idea|point|job)|thank|bye|see y"
    r"|take care|talk (?:to you )?(?:soon|later)|sounds|that(?:'s| is| was| must| sounds)|you\b"
    r"|your\b|you're|what\b|how\b|let me know|glad|happy to|no (?:problem|worries)|nice"
    r"|have (?:a|fun)|keep (?:it )?up|go for it|can't wait"
    r"|it(?:'s| is| was) (?:so|great|good|nice|really|been)"
    r"|long time|same here|me too|of course|let's|we (?:can|got|should|all)\b|take a look|look at"
    r"|check (?:it|this|out)|here(?:'s| is) (?:a|the|my|another) (?:pic|photo)|missed you"
    r"|looking forward|spill|keep |love (?:the|that|your)|being (?:a|an)\b|seems|feels"
    r"|i (?:\d+% )?(?:agree|see|hope|guess|bet|know|understand|get it"
    r"|appreciate|totally agree|can (?:imagine|see|relate)|can't (?:wait|imagine)|couldn't agree)\b"
    r"|i'm (?:so |really |very )?(?:glad|sorry|here for|sure|good|fine|doing|happy (?:for|to hear)"
    r"|proud of you|excited|listening)|i'd love to (?:hear|see|know)|i'll (?:be|let you"
    r"|talk|see)\b)",
    re.IGNORECASE,
)
_EPHEMERAL: Final = re.compile(
    r"\b(?:right now|at the moment|brb|be right back|just a sec|one moment|gotta go|have to go"
    r"|talk (?:soon|later)|on my way|see you|catch you later|wish me luck)\b",
    re.IGNORECASE,
)
_HEDGE: Final = re.compile(
    r"\b(?:maybe|perhaps|probably|might|not sure|i guess|possibly|apparently|i suppose)\b",
    re.IGNORECASE,
)
_PREFERENCE: Final = re.compile(
    r"\b(?:loves?|likes?|prefers?|hates?|enjoys?|dislikes?|favou?rites?|can't stand|fan of|keen on"
    r"|allergic|wants?|always wanted|rather|my go-to|passionate about)\b",
    re.IGNORECASE,
)
_DECISION: Final = re.compile(
    r"\b(?:decided|decide|agreed|chose|chosen|settled on|going with|we'll use|we will use|let's use"
    r"|we'll go|made up my mind|the plan is|switched to|opted for|from now on)\b",
    re.IGNORECASE,
)
_PROCEDURE: Final = re.compile(
    r"^(?:to [a-z]+\b[^.]{0,80}, (?:you )?[a-z]+|(?:first|then|next|finally),? [a-z]+"
    r"|(?:always|never) [a-z]+ |make sure |(?:run|use|install|set|call|open|click|press"
    r"|restart|deploy|configure|enable|disable|export|mix|add|bake|boil) )|\bhow to\b"
    r"|\bsteps? (?:to|are|is)\b",
    re.IGNORECASE,
)
_OPINION: Final = re.compile(
    r"\b(?:i (?:think|believe|feel|find)|in my opinion|imo|imho|seems|should|overrated|underrated"
    r"|the (?:best|worst))\b",
    re.IGNORECASE,
)
_FIRST: Final = re.compile(r"\b(?:I|I'(?:m|ve|d|ll)|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_WE: Final = re.compile(r"\b(?:we|our|us|ours|let's)\b", re.IGNORECASE)
_YOU: Final = re.compile(r"\b(?:you|your|yours|you're|you've)\b", re.IGNORECASE)
_PRONOUN_START: Final = re.compile(
    r"^(?:it|this|that|these|those|he|she|they|his|her|their|its|there|here|him|them)\b",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(r"^(?:(?:The|A|An|Our) )?[^\W\d_]")
_DEFINITION: Final = re.compile(r"^[^\W\d_a-z][\w\- ]{1,60}? (?:is|are|means) (?:an?|the|when) ")

_ADVERBS: Final = (
    r"(?:(?:really|also|just|always|never|usually|still|recently|currently|actually|finally|often"
    r"|sometimes|already|mostly|absolutely|definitely|totally|even|once|only|now|kind of|mainly"
    r"|especially|truly) )*"
)
_I_VERB: Final = re.compile(
    rf"\b(?:I'(?P<short>m|ve|d|ll)(?P<after> {_ADVERBS}[a-z']+)?|I (?P<adverbs>{_ADVERBS})"
    r"(?P<verb>[a-z]+(?:'t)?)|(?P<bare>I|[Mm]yself|[Mm]ine)|(?P<my>[Mm]y)|(?P<me>me))\b"
)
_SAME_IN_THIRD_PERSON: Final = (
    "was wasn't had hadn't did didn't can can't cannot could couldn't will won't would"
    " wouldn't should shouldn't must may might went got made took saw met found bought told"
    " said thought felt left ran began wrote read spent gave came became lost won built kept"
    " held taught caught brought drove flew grew knew paid sold sent slept spoke stood swam"
    " wore ate drank fell chose broke heard led put set cut hit hurt quit let understood"
    " forgot dreamt learnt rode sang sat threw woke drew hid fed sought bred"
)
_AUXILIARY: Final = {
    "am": "is",
    "have": "has",
    "haven't": "hasn't",
    "do": "does",
    "don't": "doesn't",
} | {word: word for word in _SAME_IN_THIRD_PERSON.split()}
_BASES: Final = (
    "love like prefer hate enjoy dislike work live use want need think know play go study own"
    " drive run speak teach read write eat drink cook bake paint draw sing dance swim hike ride"
    " travel visit volunteer collect follow watch listen practice practise train build make"
    " create develop manage lead design code believe feel find plan try start keep take get see"
    " meet call help share spend save buy sell grow wear sleep wake walk exercise meditate hope"
    " wish miss remember mean look come give say tell ask learn understand care support own stay"
    " move deploy test attend suffer struggle consider identify belong commute dream"
    " cherish value admire treasure adore host bring hang rely depend tend trust recommend jog bike"
    " ski surf camp fish knit coach perform record compete prioritize mentor lose win"
)
_BASE_VERBS: Final = frozenset(_BASES.split())
_PAST: Final = re.compile(r"[a-z]{2,}(?<!e)ed$")


class _UnsafeError(Exception):
    """The sentence cannot be rewritten without guessing."""


def sentences(text: str) -> list[str]:
    """`text` in sentences, trimmed; an abbreviation's full stop ends none."""
    parts: list[str] = []
    for part in _SPLIT.split(text):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + part
        elif part := part.strip():
            parts.append(part)
    return parts


def one_line(text: str) -> str:
    """`text` without control characters, white space folded."""
    return " ".join(_CONTROL.sub(" ", text).split())


def statement(sentence: str, speaker: str, explicit: bool) -> Statement | None:
    """What `sentence` states, standing alone; None when it is not worth keeping.

    `explicit`: the speaker asked to have this remembered, so all but questions is kept.
    """
    text = one_line(sentence.replace("\u2019", "'")).strip("-*• ")
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or text[-1] in "?\uff1f":
        return None
    if explicit:
        text = _INTENT.sub("", text)
    text = _LEAD.sub("", text)
    if sum(map(str.isalpha, text)) < MIN_LETTERS:
        return None
    if not text.isascii() and not _FIRST.search(text) and _foreign(text):
        return Statement(f"{speaker}: {text}", "fact", 0.7)
    if len(text.split()) < MIN_WORDS:
        return None
    if not explicit and (_CHAT.match(_ADDRESS.sub("", text)) or _EPHEMERAL.search(text)):
        return None
    return _attributed(text, speaker, explicit)


def _foreign(text: str) -> bool:
    """Mostly beyond ASCII, or long without one of English's commonest words."""
    beyond = sum(not character.isascii() for character in text)
    return beyond * 3 > len(text) or (
        re.search(r"\b(?:the|a|an|is|are|was|to|of|in|and|has|at|on|for)\b", text) is None
    )


def _attributed(text: str, speaker: str, explicit: bool) -> Statement | None:
    kind = _type(text)
    text = re.sub(r"!+$", ".", text)
    if _FIRST.search(text):
        try:
            rewritten = _I_VERB.sub(lambda match: _third_person(match, speaker), text)
            confidence = 0.9 if kind in ("preference", "decision") else 0.85
        except _UnsafeError:
            rewritten, confidence = f"{speaker}: {text}", 0.75
        if _YOU.search(rewritten):
            rewritten, confidence = f"{speaker}: {text}", 0.65
        elif _PRONOUN_START.match(text):
            confidence = 0.65  # "It made me happy": what "it" is, stands in another sentence
    elif _WE.search(text):
        rewritten = f"{speaker}: {text}"
        confidence = 0.65 if _PRONOUN_START.match(text) else 0.75
    elif kind in ("procedural", "decision"):
        rewritten, confidence = text, 0.8
    elif (_PRONOUN_START.match(text) or _YOU.search(text)) and not explicit:
        return None
    elif _without_subject(text):
        rewritten, confidence = f"{speaker}: {text}", 0.7
    elif _NAMED.match(text) and text[0].isupper() and not _PRONOUN_START.match(text):
        rewritten, confidence = text, 0.75
    else:
        rewritten, confidence = f"{speaker}: {text}", 0.7
    if explicit:
        confidence = 0.95
    elif _HEDGE.search(text):
        confidence = min(confidence, 0.55)
    return Statement(rewritten[0].upper() + rewritten[1:], kind, confidence)


def _without_subject(text: str) -> bool:
    """Whether `text` begins with its verb: "Took a trip to Rome"."""
    first = text.partition(" ")[0].lower()
    return (
        first in _AUXILIARY
        or first in _BASE_VERBS
        or first == "been"
        or _PAST.match(first) is not None
    )


def _type(text: str) -> FactType:
    if _DECISION.search(text):
        return "decision"
    if _PROCEDURE.search(text):
        return "procedural"
    if _OPINION.search(text):
        return "opinion"
    if _PREFERENCE.search(text):
        return "preference"
    if _DEFINITION.match(text) and not _FIRST.search(text):
        return "semantic"
    return "fact"


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
        word = after.rpartition(" ")[2]
        return f"{'would' if word in _BASE_VERBS or word == 'be' else 'had'}{after}"
    return {"m": "is", "ve": "has", "ll": "will"}[short] + after


def _conjugated(verb: str) -> str:
    """The third person of `verb` after "I"; raises _UnsafeError for a word that is not known."""
    known = _AUXILIARY.get(verb)
    if known is not None:
        return known
    if verb in _BASE_VERBS:
        if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
            return verb + "es"
        if verb.endswith("y") and verb[-2] not in "aeiou":
            return verb[:-1] + "ies"
        return verb + "s"
    if _PAST.match(verb):
        return verb
    raise _UnsafeError
