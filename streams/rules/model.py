"""`rules-2`: a language model made of rules. No network, no weights, the same answer always.

It reads `prompt.subject` and gives the same JSON text as a model would, so that everything works
with nothing else installed. Facts are the claims of `streams/claims`, which is English; a turn in
another language gives none, and is kept as a turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.streams.claims.change import may_tell_change
from palimpsest.streams.claims.claim import CATEGORIES, Claim
from palimpsest.streams.claims.conflict import contradicts
from palimpsest.streams.claims.contradiction import same_fact
from palimpsest.streams.claims.grammar import USER
from palimpsest.streams.claims.language import ENGLISH
from palimpsest.streams.claims.triples import triples_of
from palimpsest.streams.claims.turn import claims_of_turn, plays_after
from palimpsest.streams.models.base import PermanentModelError, Prompt, Reply
from palimpsest.streams.prompting.prompts import TRUNCATED
from palimpsest.streams.prompting.replies import MIN_FACT_CHARACTERS
from palimpsest.streams.text.dates import stated_end
from palimpsest.streams.text.quotes import without_marks

MODEL: Final = "rules-2"
MAX_SPEAKER_CHARACTERS: Final = 80

DEFAULT_IMPORTANCE: Final = 5
EXPLICIT_IMPORTANCE: Final = 9
DEFAULT_CONFIDENCE: Final = 0.98
"""The share of a slot's facts that were correct and useful, and never more than .98: of all
437 that the rules drew from the three development sets (LoCoMo, REALTALK, LongMemEval),
on which they were written, read one by one by one reader. Slots without one had 117 facts
together."""
OF_ANYTHING: Final = 0.9
"""Of a remembered statement that is no claim about a person."""
_UNNAMED: Final = frozenset(("", "user", "the user", "human", "i", "me", "you"))


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


def _listed(subject: Mapping[str, JsonValue], key: str) -> list[dict[str, JsonValue]]:
    listed = subject.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _extract(subject: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # With the offset that it came with: "yesterday" is a day of the speaker's.
    occurred_at = datetime.fromisoformat(_string(subject, "occurred_at"))
    explicit = subject.get("explicit_intent") is True
    content = _string(subject, "content")
    whole = content.removesuffix(TRUNCATED)
    if whole != content:  # it ends where the text was cut
        whole = whole[: max(whole.rfind("."), whole.rfind("\n"), 0)]
    context = _listed(subject, "context")
    plays = False
    for earlier in context:
        if _string(earlier, "role") == "user":
            plays = plays_after(_string(earlier, "content"), plays)
    claims = claims_of_turn(
        whole, _speaker(subject), occurred_at, _before(context), in_a_part=plays
    )
    relations: list[JsonValue] = []
    for claim in claims:
        for triple in triples_of(claim):
            relations.append({**triple._asdict(), "confidence": _confidence(claim)})
    facts: list[JsonValue] = [_fact(claim, occurred_at, explicit) for claim in claims]
    if not claims and subject.get("is_remembered") is True and may_tell_change(whole):
        # No claim about a person: compared as it is with what is known of the same thing.
        facts = [{"content": whole, "type": "fact", "confidence": OF_ANYTHING}]
    return {"facts": facts, "entities": relations}


def _speaker(subject: Mapping[str, JsonValue]) -> str:
    named = " ".join(without_marks(_string(subject, "speaker")).split())[:MAX_SPEAKER_CHARACTERS]
    if named.casefold() not in _UNNAMED:
        return named.strip()
    role = _string(subject, "role") or "user"
    return USER if role == "user" else f"The {role}"


def _before(context: Sequence[Mapping[str, JsonValue]]) -> str:
    """The turn right before, where it is an assistant's."""
    last = context[-1] if context else {}
    return _string(last, "content") if last.get("role") == "assistant" else ""


def _confidence(claim: Claim) -> float:
    return ENGLISH["slots"][claim.slot].get("confidence", DEFAULT_CONFIDENCE)


def _fact(claim: Claim, occurred_at: datetime, explicit: bool) -> dict[str, JsonValue]:
    until = stated_end(claim.text, occurred_at)
    categories: list[JsonValue] = [*CATEGORIES[claim.slot]]
    slot = ENGLISH["slots"][claim.slot]
    importance = slot.get("importance", DEFAULT_IMPORTANCE)
    content = claim.text
    if len(content) < MIN_FACT_CHARACTERS:  # that a pet of a short name died is a fact, too
        content = content.replace(" died.", " has died.")
    return {
        "content": content,
        "type": slot.get("type", "fact"),
        "confidence": _confidence(claim),
        "importance": EXPLICIT_IMPORTANCE if explicit else importance,
        "temporal": "temporal" if until else "persistent",
        "valid_until": None if until is None else until.isoformat(),
        "categories": categories,
    }


def _decide(subject: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Repeats are NONE, contradictions UPDATE, all else ADD; the first candidate that fits."""
    fact = subject.get("fact")
    content = _string(fact, "content") if isinstance(fact, dict) else ""
    candidates = _listed(subject, "candidates")
    action, target, reason = "ADD", None, "no memory says it"
    for candidate in candidates:
        known = _string(candidate, "content")
        if same_fact(content, known):
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
