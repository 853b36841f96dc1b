"""Is a sentence a question, chat, a request, a joke, a supposition? Pure, made for English."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.schemas.messages import FactType
from palimpsest.streams.rules.words import Phrases

_TAIL: Final = 40
"""Characters at the end of a sentence in which its last mark or word is looked for."""

_QUESTION_MARKS: Final = frozenset("?\uff1f\u061f\u037e")
_JOKE_SIGNS: Final = ("kidding", "jok", "jk", "/s", "/j")
_ASKED: Final = re.compile(r"[?\uff1f؟\u037e][!?\uff01\uff1f.…\"')\s]*$")
_INVERTED: Final = re.compile(
    r"^(?:(?i:do|does|did|is|are|was|were|will|would|should|could|can|shall|have|has|had|isn't"
    r"|aren't"
    r"|wasn't|weren't|won't|wouldn't|shouldn't|couldn't|can't|don't|doesn't|didn't|haven't|hasn't)"
    r" (?:I|you|he|she|it|we|they|there|any(?:one|body|thing)|some(?:one|body))\b"
    r"|(?i:do|does|is|are|was|were|should|could|can|would|will) (?:my|your|the|this|that|these"
    r"|those"
    r"|our)\b"
    r"|(?:Is|Are|Was|Were|Does|Did|Has|Have|Can|Could|Should|Would|Isn't|Doesn't|Didn't) [A-Z]\w+ "
    r"|(?i:what|where|who|whom|why|how|which)(?: \w+){0,2}?"
    r" (?:do|does|did|is|are|was|were|can|could|will|would|should|have|has|had)"
    r" (?:I|i|you|he|she|it|we|they|the|my|your|this|that|there)\b)"
)
_CHAT: Final = re.compile(
    r"^(?:good (?:morning|night|evening|to see|to hear|luck|for you|idea|point|job)|thank|bye|see y"
    r"|take care|talk (?:to you )?(?:soon|later)|sounds|that(?:'s| is| was| must| sounds)|you\b"
    r"|your\b|you're|what\b|how\b|let me know|glad|happy to|no (?:problem|worries)|nice"
    r"|have (?:a|fun)|keep (?:it )?up|go for it|can't wait|hope you"
    r"|it(?:'s| is| was) (?:so|great|good|nice|really|been)"
    r"|long time|same here|me too|of course|let's|we (?:can|got|should|all)\b|take a look|look at"
    r"|check (?:it|this|out)|here(?:'s| is) (?:a|the|my|another) (?:pic|photo)|missed you"
    r"|looking forward|spill|keep |love (?:the|that|your)|being (?:a|an)\b|seems|feels"
    r"|i (?:\d+% )?(?:agree|see|hope|guess|bet|know|understand|get it"
    r"|appreciate|totally agree|can (?:imagine|see|relate)|can't (?:wait|imagine)|couldn't agree)\b"
    r"|i'm (?:so |really |very )?(?:glad|sorry|here for|sure|good|fine|doing|happy (?:for|to hear)"
    r"|proud of you|excited|listening)|i'd love to (?:hear|see|know)|i'll (?:be|let you"
    r"|talk|see)\b|i'm an ai\b|as an ai\b)",
    re.IGNORECASE,
)
_EPHEMERAL: Final = Phrases(
    "right now|at the moment|brb|be right back|just a sec|one moment|gotta go|have to go"
    "|talk soon|talk later|on my way|see you|catch you later|wish me luck"
)
_REQUEST: Final = re.compile(
    r"^(?:(?:please|pls|kindly) [a-z]+\b|(?:can|could|would|will) you\b"
    r"|(?:write|give|tell|show|send|help|bring|get|let|remind|teach|explain|email|text|buy|forgive"
    r"|excuse|believe|ask|call|order|fix|find|read|wake|wish) (?:me|us|my)\b"
    r"|(?:translate|summari[sz]e|rewrite|rephrase|proofread|paraphrase|compose|explain) "
    r"|(?:draft|book|schedule|generate|list|suggest)"
    r" (?:an?|the|this|these|all|some|it|my|two|three) "
    r"|don't (?:cry|worry|forget|be|tell|mention|panic|sweat)\b)",
    re.IGNORECASE,
)
_JOKE: Final = re.compile(
    r"(?:\b(?:jk|just kidding|just joking|only joking|only kidding|i'm kidding|i'm joking"
    r"|(?:just|only) a joke)|(?:^|\s)/(?:s|j|jk))[\s.!)\U0001f300-\U0001faff]*$",
    re.IGNORECASE,
)
_TAKES_BACK: Final = re.compile(
    r"^(?:(?:i'm |i was )?(?:just|only) (?:kidding|joking|teasing)|jk|kidding|i'm (?:kidding"
    r"|joking)"
    r"|not really|psych)\b(?: about (?:that|it))?[\s.!)\U0001f300-\U0001faff]*$",
    re.IGNORECASE,
)
_SUPPOSED: Final = re.compile(
    r"^(?:imagine|suppose|supposing|pretend|what if|let's (?:say|pretend|assume)|say i\b|assume"
    r"|assuming|if only|in (?:a perfect|another) (?:world|life)"
    r"|had (?:i|he|she|we|they)\b.*\bwould\b)",
    re.IGNORECASE,
)
_WOULD: Final = re.compile(
    r"\b(?:would|wouldn't|could've|might|i'd|we'd|he'd|she'd|they'd)\b", re.IGNORECASE
)
_IF: Final = re.compile(r"\bif\b", re.IGNORECASE)
_ANSWER: Final = re.compile(r"^(?:to [a-z]+|because|cause|cuz|so that|in order to)\b(?!.*,)", re.I)
_HEDGE: Final = Phrases(
    "maybe|perhaps|probably|might|not sure|unsure|i guess|possibly|apparently|i suppose"
    "|supposedly|allegedly|reportedly|seemingly|presumably|i doubt|rumor has it"
    "|rumour has it|i heard|iirc|afaik|i'm not certain|as far as i know|if i remember"
    "|could be|may be|may have"
)
_CONDITION: Final = Phrases("if|unless|whether|wish|wishes|in case|provided")
_PREFERENCE: Final = Phrases(
    "love|loves|like|likes|prefer|prefers|hate|hates|enjoy|enjoys|dislike|dislikes"
    "|favourite|favourites|favorite|favorites|can't stand|fan of|keen on|allergic|want"
    "|wants|always wanted|rather|my go-to|passionate about"
)
_DECISION: Final = Phrases(
    "decided|decide|agreed|chose|chosen|settled on|going with|we'll use|we will use"
    "|let's use|we'll go|made up my mind|the plan is|switched to|opted for|from now on"
)
_PROCEDURE: Final = re.compile(
    r"(?:to [a-z]+\b[^.]{0,80}[,:] (?:you )?[a-z]+|(?:first|then|next|finally),? [a-z]+"
    r"|(?:always|never) [a-z]+ |make sure |(?:run|use|install|set|call|open|click|press"
    r"|restart|deploy|configure|enable|disable|export|mix|add|bake|boil) )",
    re.IGNORECASE,
)
_STEPS: Final = Phrases("how to|step to|step is|steps to|steps are|steps is")
_OPINION: Final = Phrases(
    "i think|i believe|i feel|i find|in my opinion|imo|imho|seems|should|overrated"
    "|underrated|the best|the worst"
)
_DEFINITION: Final = re.compile(r"^[^\W\d_a-z][\w\- ]{1,60}? (?:is|are|means) (?:an?|the|when) ")


def is_question(text: str) -> bool:
    """Whether `text` asks, by its last mark or by the order of its first words."""
    return asks(text) or _INVERTED.match(text) is not None


def asks(text: str) -> bool:
    """Whether `text` ends in a question mark."""
    if _QUESTION_MARKS.isdisjoint(text[-_TAIL:]):
        return False
    return _ASKED.search(text, max(len(text) - _TAIL, 0)) is not None


def is_chat(text: str) -> bool:
    """Whether `text` greets, comments or passes with the moment."""
    return _CHAT.match(text) is not None or _EPHEMERAL.within(text.lower())


def states_nothing(text: str) -> bool:
    """Whether `text` jokes, supposes, or answers a question that is gone."""
    if _is_supposed(text):
        return True
    if _PROCEDURE.match(text):
        return False
    if _ANSWER.match(text):
        return True
    end = text[-_TAIL:].lower()
    return any(sign in end for sign in _JOKE_SIGNS) and _JOKE.search(end) is not None


def _is_supposed(text: str) -> bool:
    """Whether `text` says what would be, and not what is: "If I moved to Oslo, I would …"."""
    if _SUPPOSED.match(text):
        return True
    condition = "if " in text or "If " in text
    return condition and _IF.search(text) is not None and _WOULD.search(text) is not None


def is_request(text: str) -> bool:
    """Whether `text` asks for something to be done."""
    return _REQUEST.match(text) is not None


def takes_back(text: str) -> bool:
    """Whether `text` says that what came before it was no earnest: "Just kidding!"."""
    return len(text) <= _TAIL and _TAKES_BACK.match(text) is not None


def is_doubtful(text: str) -> bool:
    return _HEDGE.within(text.lower())


def is_conditional(text: str) -> bool:
    return _CONDITION.within(text.lower())


def type_of(text: str, first_person: bool) -> FactType:
    """What kind of fact `text` (one statement) tells."""
    lowered = text.lower()
    if _DECISION.within(lowered):
        return "decision"
    if _PROCEDURE.match(text) or _STEPS.within(lowered):
        return "procedural"
    if _OPINION.within(lowered):
        return "opinion"
    if _PREFERENCE.within(lowered):
        return "preference"
    if _DEFINITION.match(text) and not first_person:
        return "semantic"
    return "fact"
