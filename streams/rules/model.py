"""`rules-1`: a language model made of rules. No network, no weights, the same answer always.

It reads `prompt.subject` and gives the same JSON text as a model would, so that everything works
with nothing else installed. Made for English; other languages are kept and attributed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.messages import FactType
from palimpsest.streams.models.base import PermanentModelError, Prompt, Reply
from palimpsest.streams.prompting.prompts import MAX_FACTS, MAX_TRIPLES, TRUNCATED
from palimpsest.streams.prompting.replies import MIN_FACT_CHARACTERS
from palimpsest.streams.rules.dates import with_dates
from palimpsest.streams.rules.passages import passages
from palimpsest.streams.rules.quotes import Masked, masked, without_marks
from palimpsest.streams.rules.sentences import (
    Statement,
    in_transcript,
    one_line,
    sentences,
    statements,
)
from palimpsest.streams.rules.stated_ends import stated_end
from palimpsest.streams.rules.triples import MAX_NAME_CHARACTERS, triples
from palimpsest.streams.text.contradiction import contradicts

MODEL: Final = "rules-1"
MAX_SPEAKER_CHARACTERS: Final = 80
MIN_RELATING_CONFIDENCE: Final = 0.7
"""The gate that apply-writes puts before facts by default (pipeline.min_fact_confidence)."""

_IMPORTANCE: Final[dict[FactType, int]] = {
    "decision": 7,
    "preference": 6,
    "procedural": 6,
    "fact": 5,
    "semantic": 4,
    "opinion": 4,
}
EXPLICIT_IMPORTANCE: Final = 9

_CATEGORY_WORDS: Final = {
    "family": "mother mom father dad sister brother wife husband son daughter kids children"
    " family parents grandma grandpa married wedding baby",
    "friends": "friend friends girlfriend boyfriend partner roommate",
    "work": "job work works worked office boss colleague company career interview salary manager",
    "pets": "dog cat pet puppy kitten pets dogs cats",
    "health": "doctor health allergic sick hospital therapy gym yoga exercise injury sleep",
    "food": "eat eats food cook cooking vegan vegetarian recipe restaurant dinner coffee tea",
    "travel": "trip travel vacation flight visited hotel beach camping road",
    "education": "school college university class course study studies degree exam teacher",
    "home": "house apartment home moved lives neighbor garden kitchen",
    "hobbies": "painting music guitar piano hiking running reading book books games movie"
    " photography pottery dance swimming",
    "technology": "code software database server deploy api python computer app bug release",
    "money": "money budget bought loan rent price bank",
}
_CATEGORIES: Final = {
    word: category for category, words in _CATEGORY_WORDS.items() for word in words.split()
}
_WORD: Final = re.compile(r"[a-z]+")


class RulesLanguageModel:
    """Answers every purpose from `prompt.subject`; no call leaves the process."""

    provider = "rules"
    model = MODEL

    async def generate(self, prompt: Prompt) -> Reply:
        """The answer of the rules. Raises PermanentModelError for a purpose it does not know."""
        return Reply(text=answer(prompt), model=self.model, provider=self.provider)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def answer(prompt: Prompt) -> str:
    """The JSON text for `prompt`, a function of its purpose and subject alone."""
    if prompt.purpose == "extract":
        reply = _extract(prompt.subject)
    elif prompt.purpose == "decide":
        reply = _decide(prompt.subject)
    elif prompt.purpose == "contradict":
        reply = _contradict(prompt.subject)
    else:
        raise PermanentModelError(f"{MODEL} has no rules for the purpose {prompt.purpose!r}")
    return json.dumps(reply, ensure_ascii=False)


def _string(subject: Mapping[str, JsonValue], key: str) -> str:
    value = subject.get(key)
    return value if isinstance(value, str) else ""


def _extract(subject: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # With the offset that it came with: "yesterday" is a day of the speaker's.
    occurred_at = datetime.fromisoformat(_string(subject, "occurred_at"))
    named = one_line(without_marks(_string(subject, "speaker")))[:MAX_SPEAKER_CHARACTERS].strip()
    speaker = named or f"The {_string(subject, 'role') or 'user'}"
    explicit = subject.get("explicit_intent") is True
    facts: list[JsonValue] = []
    relations: list[JsonValue] = []
    content = _string(subject, "content")
    whole = content.removesuffix(TRUNCATED)
    read = passages(whole)
    for number, passage in enumerate(read, start=1):
        hidden = masked(in_transcript(passage, speaker))
        parts = sentences(hidden.text)
        if number == len(read) and whole != content:
            parts.pop()  # it ends where the text was cut
        for found in statements(parts, speaker, explicit):
            fact = _fact(found, occurred_at, explicit, hidden)
            if len(_string(fact, "content")) < MIN_FACT_CHARACTERS or len(facts) == MAX_FACTS:
                continue
            facts.append(fact)
            relations += _relations(found, speaker, hidden)
    return {"facts": facts, "entities": relations[:MAX_TRIPLES]}


def _relations(found: Statement, speaker: str, hidden: Masked) -> list[JsonValue]:
    """What a statement relates. What will not be written relates nothing."""
    if not found.plain or found.confidence < MIN_RELATING_CONFIDENCE:
        return []
    listed: list[JsonValue] = []
    for triple in triples(found.text, speaker):
        target = hidden.restored(triple.target).strip(" \"'`“”«»")
        if 0 < len(target) <= MAX_NAME_CHARACTERS:
            told = triple._replace(target=target)
            listed.append({**told._asdict(), "confidence": found.confidence})
    return listed


def _fact(
    found: Statement, occurred_at: datetime, explicit: bool, hidden: Masked
) -> dict[str, JsonValue]:
    until = stated_end(found.text, occurred_at)
    words = _WORD.findall(found.text.lower())
    categories: list[JsonValue] = []
    categories += dict.fromkeys(_CATEGORIES[word] for word in words if word in _CATEGORIES)
    return {
        "content": hidden.restored(with_dates(found.text, occurred_at)),
        "type": found.type,
        "confidence": found.confidence,
        "importance": EXPLICIT_IMPORTANCE if explicit else _IMPORTANCE[found.type],
        "temporal": "temporal" if until else "persistent",
        "valid_until": None if until is None else until.isoformat(),
        "categories": categories[:8],
    }


def _decide(subject: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Repeats are NONE, contradictions UPDATE, all else ADD; the first candidate that fits."""
    fact = subject.get("fact")
    content = _string(fact, "content") if isinstance(fact, dict) else ""
    listed = subject.get("candidates")
    candidates = [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    action, target, reason = "ADD", None, "no memory says it"
    for candidate in candidates:
        known = _string(candidate, "content")
        if known.casefold().rstrip(".!") == content.casefold().rstrip(".!"):
            action, reason = "NONE", "a memory says the same"
        elif contradicts(content, known):
            action, reason = "UPDATE", "the fact contradicts the memory"
        else:
            continue
        target = _string(candidate, "id")
        break
    return {"action": action, "targetId": target, "confidence": 0.8, "reason": reason}


def _contradict(subject: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    a, b = _string(subject, "a"), _string(subject, "b")
    verdict = contradicts(a, b) or contradicts(b, a)
    return {"contradicts": verdict, "confidence": 0.7, "reason": "compared as statements"}
