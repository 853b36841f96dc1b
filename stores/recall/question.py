"""The question in a long text: people tell of something at length and ask at its end, or paste a
page after what they ask.

A search by all the words of such a text finds what its preamble is about. So a text of more than
`LONG` words is read by the sentences in it that ask, and by as much of what precedes them as they
need to be understood. A text in which nothing asks is read whole. Pure, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from palimpsest.stores.database.analysis import STOP_WORDS, asks, query_tokens
from palimpsest.stores.recall.intent import OTHER_KEYWORDS

LONG: Final = 50
"""Words; questions by themselves have up to 46 (LongMemEval)."""
MAX_WORDS: Final = 40
"""Maximum number of words of the part that is read, for the words of all questions weigh alike."""
LEAST_TERMS: Final = 2
"""A sentence with fewer terms that are searched for asks nothing by itself ("What do you think?",
"Any idea?")."""
UNDERSTOOD_TERMS: Final = 4
"""What precedes such a question is read with it up to this number of terms."""
MAX_CHARACTERS: Final = 20_000
"""Of a longer text half of them at its beginning and half at its end are read."""
_EMPTY_WORDS: Final = frozenset().union(*STOP_WORDS.values())

_UNSPACED: Final = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_UNSPACED}]{{1,2}}|[^\W{_UNSPACED}]+(?:['’.-][^\W{_UNSPACED}]+)*")
"""Two characters of a script without spaces count as a word."""
_SENTENCE: Final = re.compile(
    r"(?<=[.!?…\u061f\u037e])[\"'”’)\]]?\s+|(?<=[。！？])|\n\s*|(?<!\s)\s++(?:[-*•]|\d{1,2}[.)])\s+"
)
_AUXILIARY: Final = (
    "am|are|is|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must"
)
_ASKING: Final = (
    rf"(?:who|whom|what|when|where|why|how)(?:['’](?:s|re|d|ll|ve))? (?:{_AUXILIARY})(?:n['’]t)?"
    r"|(?:who|what|when|where|why|how)['’](?:s|re|d|ll|ve)"
    r"|how (?:many|much|long|often|old|far|big|tall|soon|late|early)"
    rf"|(?:what|which|whose) [\w'’-]{{1,30}} (?:[\w'’-]{{1,30}} )?(?:{_AUXILIARY})"
    rf"|(?:on|in|at|from|to|for|with|by|of|about|since|until) (?:which|what|whom|whose)"
    r"|(?:do|did|can|could|would|will) you (?:know|remember|recall|tell|remind|find|say|look|check)"
)
_REQUEST: Final = (
    r"(?:tell|remind|show|give|help) (?:me|us)|find(?: out)?|look up|list|summari[sz]e|recall"
    r"|i(?:['’]d| would) (?:like|love) (?:to know|you to)|i (?:need|want) (?:to know|you to)"
    r"|i(?:['’]m| am)? wonder(?:ing)?|let me know|answer|check"
)
_LEAD: Final = (
    r"\W*+(?:(?:so|and|but|or|now|then|well|anyway|also|please|ok|okay|hence|therefore|finally"
    r"|question|my question(?: is)?|just|still|again|actually|basically|today)\b[\s,:;–—-]*+)*+"
)
_OPENS: Final = re.compile(
    rf"{_LEAD}(?:{_ASKING}|{_REQUEST}|"
    + "|".join(re.escape(word) for words in OTHER_KEYWORDS.values() for word in words)
    + r")\b",
    re.IGNORECASE,
)
"""A sentence without a mark that asks, by the words that it begins with."""
_BEGINS: Final = re.compile(
    rf"\b(?:{_ASKING}|(?:{_AUXILIARY}) (?:i|you|we|he|she|it|they|my|our|the|there)\b"
    r"|(?:tell|remind|show) (?:me|us)\b)",
    re.IGNORECASE,
)
"""Where a question may begin within a long sentence."""


@lru_cache(maxsize=256)
def question_of(text: str) -> str:
    """Returns the part of a query that asks: all of one with up to `LONG` words, or in which
    nothing asks."""
    if len(text) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    elif len(_WORD.findall(text)) <= LONG:
        return text
    sentences = [each for each in _SENTENCE.split(text) if _WORD.search(each)]
    asking = [number for number, each in enumerate(sentences) if asks(each) or _OPENS.match(each)]
    # Small talk ("How are you?") asks nothing.
    telling = [number for number in asking if len(_terms(sentences[number])) >= LEAST_TERMS]
    if telling:
        # Unless it follows up: "…, and why?"
        follow_ups = [number for number in asking if number - 1 in telling]
        return " ".join(_last(sentences, sorted({*telling, *follow_ups})))
    last = len(sentences) - 1
    if asking and asking[-1] == last:
        # The last sentence, and of those that precede it as many as give something to search for.
        kept: list[str] = []
        terms: set[str] = set()
        left = MAX_WORDS
        for sentence in reversed(sentences):
            if kept and (left <= 0 or len(terms) >= UNDERSTOOD_TERMS):
                break
            part = _cut(sentence, left)
            terms |= _terms(part)
            left -= len(_WORD.findall(part))
            kept.insert(0, part)
        return " ".join(kept)
    end = _end(sentences[last]) if sentences else ""
    return end if _BEGINS.match(end) else text


def _terms(text: str) -> set[str]:
    return set(query_tokens(text)) - _EMPTY_WORDS


def _last(sentences: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """The last of these sentences, as many as `MAX_WORDS` allow, in their order."""
    kept: list[str] = []
    left = MAX_WORDS
    for number in reversed(numbers):
        sentence = _end(sentences[number])
        left -= len(_WORD.findall(sentence))
        if kept and left < 0:
            break
        kept.insert(0, sentence)
    return kept


def _end(sentence: str) -> str:
    """A sentence; of a long one the question at its end, or else its last words."""
    if len(_WORD.findall(sentence)) <= MAX_WORDS:
        return sentence
    end = _cut(sentence, MAX_WORDS)
    for match in reversed([*_BEGINS.finditer(end)]):
        if len(_terms(end[match.start() :])) >= LEAST_TERMS:
            return end[match.start() :]
    return end


def _cut(sentence: str, words: int) -> str:
    """The last words of a sentence."""
    starts = [match.start() for match in _WORD.finditer(sentence)]
    return sentence[starts[-words] :] if len(starts) > words else sentence
