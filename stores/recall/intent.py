"""What a query asks for (why, when, who, what, or nothing special), whose statements it asks for,
and its complexity.

Three methods, the most reliable first: English key words; question words of other languages; and,
with an embedding model, the nearest of the example questions below. Pure except for
`Exemplars.embed`."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Intent = Literal["why", "when", "who", "what", "general"]
Embed = Callable[[str], Awaitable[Vector]]
"""A query's unit vector."""

THRESHOLD: Final = 0.45
"""Minimum cosine to an exemplar."""
AT_ONCE: Final = 8
"""Number of exemplars embedded concurrently: a provider over the network takes long for each."""
NEAREST: Final = 2
"""Exemplars of an intent whose mean cosine counts: .88 right on 42 queries in 13 languages, by the
nearest alone .83 (multilingual e5-small)."""

KEYWORDS: Final[Mapping[Intent, tuple[str, ...]]] = {
    "why": ("why", "cause", "caused", "reason", "because", "led to", "resulted in"),
    "when": (
        "when", "after", "before", "during", "timeline", "sequence", "then", "next", "previous",
    ),
    "who": ("who", "whom", "whose"),
    "what": ("what", "which", "everything about", "tell me about"),
}  # fmt: skip
"""Whole words; the first intent with one of them, in this order."""

OTHER_KEYWORDS: Final[Mapping[Intent, tuple[str, ...]]] = {
    "why": (
        "почему", "зачем", "отчего", "из-за чего", "по какой причине",
        "warum", "wieso", "weshalb", "pourquoi", "por qué", "perché",
    ),
    "when": ("когда", "в какой день", "в каком году", "wann", "quand", "cuándo", "quando"),
    "who": (
        "кто", "кого", "кому", "кем", "о ком", "чей", "чья", "чьё", "чьи",
        "wer", "wem", "wen", "wessen", "qui", "quién", "quiénes",
    ),
    "what": (
        "что", "чем", "чего", "какой", "какая", "какое", "какие", "какую", "каким", "расскажи",
        "welche", "welcher", "welches", "welchen", "quel", "quelle", "qué", "cuál",
    ),
}  # fmt: skip
"""Words that are not English ones (neither "was" nor "die" is here)."""

UNSPACED_KEYWORDS: Final[Mapping[Intent, tuple[str, ...]]] = {
    "why": ("なぜ", "何故", "どうして", "なんで", "理由", "原因", "为什么", "為什麼", "왜"),
    "when": ("いつ", "何月", "何日", "何時", "何年", "什么时候", "언제"),
    "who": ("誰", "だれ", "どなた", "谁", "누가", "누구"),
    "what": ("何", "なに", "どんな", "どの", "どれ", "どちら", "について教えて", "什么", "무엇"),
}
"""Matched anywhere, since these scripts do not separate words; the longest match decides."""

EXEMPLARS: Final[Mapping[Intent, tuple[str, ...]]] = {
    "why": (
        "Why did this happen?", "What was the reason for that decision?",
        "What caused the problem?", "How come they left?", "What made her change her mind?",
        "Почему так получилось?", "Из-за чего это произошло?", "なぜそうなったのですか",
        "どうしてそれを選んだの", "Warum ist das passiert?", "Pourquoi avez-vous choisi cela ?",
        "¿Por qué pasó eso?", "为什么会这样？", "왜 그랬어?", "Perché è successo?",
        "Por que isso aconteceu?",
    ),
    "when": (
        "When did that happen?", "What time was the meeting?", "On which date did it start?",
        "What happened before and after it?", "How long ago was it?", "Когда это произошло?",
        "В какой день была встреча?", "いつそれが起きましたか", "何月何日に始まりましたか",
        "Wann ist das passiert?", "Quand est-ce arrivé ?", "¿Cuándo ocurrió eso?",
        "这是什么时候发生的？", "언제 일어났어?", "Quando è successo?", "Quando isso aconteceu?",
    ),
    "who": (
        "Who is this person?", "Who did it?", "Whose is this?", "Who told you about it?",
        "Кто это сделал?", "Кто этот человек?", "Кому она помогла?", "誰がそれをしましたか",
        "あの人は誰ですか", "Wer hat das gemacht?", "Qui a fait cela ?", "¿Quién lo hizo?",
        "这是谁做的？", "누가 그랬어?", "Chi l'ha fatto?", "Quem fez isso?",
    ),
    "what": (
        "What is it?", "Which one did they choose?", "Tell me everything about it.",
        "What kind of dog do they have?", "Что это такое?", "Какой из них выбрали?",
        "Расскажи мне об этом.", "Какую книгу она читает?", "それは何ですか", "どれを選びましたか",
        "それについて教えてください", "彼はどんな犬を飼っていますか", "Was ist das?",
        "Was mag sie am liebsten?", "Qu'est-ce que c'est ?", "¿Qué es eso?", "你喜欢什么？",
        "무엇을 샀어?", "Che cosa ha comprato?", "O que ela comprou?",
    ),
    "general": (
        "Ana's favourite food", "server password", "good morning", "thanks for your help",
        "the release was deployed on the new server", "I am hungry today", "кличка кошки",
        "доброе утро", "рецепт супа", "помоги мне с письмом", "猫の名前", "お腹がすいた",
        "手伝ってください", "Lieblingsessen", "recette de soupe", "hilf mir bitte",
    ),
}  # fmt: skip
"""Models such as e5 give any two texts a cosine above the threshold, so texts that are not
questions need examples of their own."""


@dataclass(frozen=True, slots=True)
class IntentGuess:
    """`by` is `keyword`, `question word`, `exemplar` or `default`; `matched` the word or the
    nearest exemplar; `score` 1 for words, else the mean cosine."""

    intent: Intent
    by: str
    matched: str = ""
    score: float = 0.0


GENERAL: Final = IntentGuess("general", "default")


def classify(
    query: str, vector: Vector | None = None, exemplars: Exemplars | None = None
) -> IntentGuess:
    """The intent of a query. `vector` is its unit vector by the exemplars' model."""
    found = by_keyword(query)
    if found.intent == "general" and vector is not None and exemplars is not None:
        return exemplars.nearest(vector)
    return found


def by_keyword(query: str) -> IntentGuess:
    """The intent by whole words: KEYWORDS first, then those of other languages."""
    text = unicodedata.normalize("NFKC", query).casefold()
    words = " " + " ".join(_WORD.findall(text)) + " "
    for by, table in (("keyword", KEYWORDS), ("question word", OTHER_KEYWORDS)):
        for intent, listed in table.items():
            for word in listed:
                if f" {word} " in words:
                    return IntentGuess(intent, by, word, 1.0)
    if text.isascii():
        return GENERAL
    text = _NO_QUESTION.sub(" ", text)
    for word, intent in _UNSPACED:
        if word in text:
            return IntentGuess(intent, "question word", word, 1.0)
    return GENERAL


def asks_when(question: str) -> bool:
    """Whether a question asks for a time, by the words that it begins with: "when did …", "what
    day …", but not "when Ana moved, …"; in scripts without spaces by a word anywhere."""
    text = unicodedata.normalize("NFKC", question[:MAX_SPEAKER_CHARACTERS]).casefold()
    if _WHEN.match(text):
        return True
    text = "" if text.isascii() else _NO_QUESTION.sub(" ", text)
    return any(word in text for word in UNSPACED_KEYWORDS["when"])


class Exemplars:
    """The example questions as unit vectors of one model, embedded once."""

    def __init__(self, vectors: Vector, threshold: float = THRESHOLD) -> None:
        """`vectors` (n, d) in the order of `texts()`. Raises ValueError for a different number."""
        if len(vectors) != len(_LABELS):
            raise ValueError(f"{len(_LABELS)} exemplars need as many vectors, not {len(vectors)}")
        self._vectors = vectors
        self._threshold = threshold

    @staticmethod
    def texts() -> tuple[str, ...]:
        return tuple(text for texts in EXEMPLARS.values() for text in texts)

    @classmethod
    async def embed(cls, embed: Embed, threshold: float = THRESHOLD) -> Self:
        """Embeds all exemplars with the model's query side, `AT_ONCE` concurrently. Propagates
        errors of `embed`."""
        texts, vectors = cls.texts(), []
        for first in range(0, len(texts), AT_ONCE):
            some = texts[first : first + AT_ONCE]
            vectors += await asyncio.gather(*(embed(text) for text in some))
        return cls(np.stack(vectors), threshold)

    def nearest(self, vector: Vector) -> IntentGuess:
        """The intent with the highest mean cosine of its two nearest exemplars; general below the
        threshold."""
        cosines = self._vectors @ vector
        best = GENERAL
        for intent in EXEMPLARS:
            own = [place for place, label in enumerate(_LABELS) if label == intent]
            order = sorted(own, key=lambda place: (-cosines[place], place))[:NEAREST]
            score = float(np.mean(cosines[order]))
            if score >= self._threshold and score > best.score:
                best = IntentGuess(intent, "exemplar", self.texts()[order[0]], score)
        return best


# --- complexity -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Complexity:
    """How far a search goes: graph `depth` in edges, `budget` in tokens of context."""

    name: Literal["simple", "complex"]
    depth: int
    budget: int


SIMPLE: Final = Complexity("simple", depth=2, budget=1_000)
COMPLEX: Final = Complexity("complex", depth=4, budget=3_000)
SIMPLE_WORDS: Final = 10
SIMPLE_CONJUNCTIONS: Final = 2
BROAD: Final = frozenset(
    (
        *("compare", "summarize", "everything", "all", "overview"),
        *("сравни", "всё", "все", "обзор", "alles", "vergleiche", "zusammenfassung"),
    )
)
BROAD_UNSPACED: Final = ("比較", "まとめて", "要約", "全部", "すべて", "概要")
CONJUNCTIONS: Final = frozenset(
    (
        *("and", "or", "but", "because", "while", "although", "however", "whereas", "nor", "yet"),
        *("и", "или", "но", "потому", "хотя", "und", "oder", "aber", "weil", "obwohl"),
    )
)


def complexity(query: str) -> Complexity:
    """Simple with under 10 words, fewer than 2 conjunctions and no word that asks for breadth.

    Two characters of a script without spaces count as a word.
    """
    text = unicodedata.normalize("NFKC", query).casefold()
    words = _WORD.findall(_UNSPACED_RUN.sub(" ", text))
    unspaced = sum(len(run) for run in _UNSPACED_RUN.findall(text))
    broad = BROAD.intersection(words) or any(word in text for word in BROAD_UNSPACED)
    joined = sum(word in CONJUNCTIONS for word in words)
    length = len(words) + unspaced // 2
    return (
        SIMPLE if length < SIMPLE_WORDS and joined < SIMPLE_CONJUNCTIONS and not broad else COMPLEX
    )


_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_UNSPACED_RUN = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
# Always, some day, someone, something: they look like question words but ask nothing.
_NO_QUESTION = re.compile("いつも|いつか|誰[かも]|何[かも]|なにか|なにも|だれ[かも]")
_WHEN = re.compile(
    r"\W*+(?:(?:since|until|in|on|at|around|by|seit|bis|с) )?"
    r"(?:when(?:['’]s| (?:did|do|does|was|were|is|are|am|will|would|has|have|had|can|could|should))"
    r"|(?:what|which) (?:date|day|month|year|time|week)|"
    + "|".join(OTHER_KEYWORDS["when"])
    + r")\b"
)
_UNSPACED: Sequence[tuple[str, Intent]] = sorted(
    ((word, intent) for intent, words in UNSPACED_KEYWORDS.items() for word in words),
    key=lambda pair: -len(pair[0]),
)
_LABELS: tuple[Intent, ...] = tuple(intent for intent, texts in EXEMPLARS.items() for _ in texts)


# --- the requested speaker ------------------------------------------------------------------

RequestedSpeaker = Literal["people", "assistant", "anyone"]
"""Whose statements a question asks for. `anyone`: of either."""

MAX_SPEAKER_CHARACTERS: Final = 2_000
"""Text beyond this is not read."""
_SAID = (
    "said|told|mentioned|recommended|suggested|advised|gave|given|provided|listed|described"
    "|explained|proposed|wrote|written|created|shared|showed|shown|named|noted|referred"
    "|came up with|come up with|talked|made|answered|replied|called|helped|taught|found"
)
_SAY = (
    "say|tell|mention|recommend|suggest|advise|give|provide|list|describe|explain|propose|write"
    "|create|share|show|name|note|refer|come up|talk|make|answer|reply|call|help|teach|find"
)
_ADVERB = "had|have|also|just|once|all|previously|earlier|already|originally"
_EARLIER = "previous|last|earlier|past|prior|first|recent"
_TALK = (
    "conversation|chat|discussion|session|exchange|talk|message|answer|reply|response"
    "|recommendation|suggestion"
)
_OF_ASSISTANT: Final = re.compile(
    rf"\b(?:you(?:['’]ve|['’]d)?(?: (?:{_ADVERB})){{0,2}} (?:{_SAID})"
    rf"|did you (?:\w{{1,20}} )?(?:{_SAY})|(?:had|have) you (?:\w{{1,20}} )?(?:{_SAID})"
    r"|you were (?:saying|referring|talking|recommending|suggesting|describing|explaining)"
    rf"|(?:our|your) (?:\w{{1,20}} )?(?:{_EARLIER}) (?:\w{{1,20}} )?(?:{_TALK})s?"
    r"|(?:the|my) assistant)\b",
    re.IGNORECASE,
)
_OF_EITHER: Final = re.compile(r"\bremind me\b", re.IGNORECASE)


def requested_speaker(question: str) -> RequestedSpeaker:
    """`assistant` for "what did you recommend" or "in our last chat you listed …", `anyone` for
    "remind me of …", `people` for all else. English only."""
    text = question[:MAX_SPEAKER_CHARACTERS]
    if _OF_ASSISTANT.search(text):
        return "assistant"
    return "anyone" if _OF_EITHER.search(text) else "people"
