"""Turns with the facts that should come of them, and how well the rules do on them.

Each line of a set is one turn: what is said, by whom, and `facts`, each with its acceptable
texts. `wrong` are patterns of facts with the wrong subject; `triples`, where given, are the
relations that may come, as source|relationship|target. Only facts that pass the gate of
apply-writes count, because no other is ever written.

Run as a program it prints the counts: `python tests/labelled_turns.py tests/data/turns.jsonl`.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.streams.prompting.prompts import extraction_prompt
from palimpsest.streams.prompting.replies import ExtractionDraft
from palimpsest.streams.rules.model import answer
from tests.unit.reply_texts import read_extraction

AT = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
GATE = 0.7
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one turn: the verdict on each fact, the facts missed, the false triples."""

    verdicts: tuple[tuple[str, str], ...]
    missed: tuple[str, ...]
    false_triples: tuple[str, ...]

    def counts(self) -> Counter[str]:
        found = Counter(verdict for verdict, _ in self.verdicts)
        found["missed"] = len(self.missed)
        found["false triples"] = len(self.false_triples)
        return found


def read_turns(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def extracted(turn: dict[str, object]) -> ExtractionDraft:
    """What the rules draw from a labelled turn, by the way of the pipeline."""
    stored = storage_content(str(turn["turn"]))
    body = NormalizedTurn(
        turn_id="t",
        speaker=str(turn["speaker"]),
        role=turn.get("role", "user"),
        content=stored,
        normalized_content=stored.lower(),
        content_hash="0" * 64,
        explicit_long_term_memory_intent=bool(turn.get("explicit_intent")),
    )
    return read_extraction(answer(extraction_prompt(body, AT, [])))


def judged(turn: dict[str, object]) -> Outcome:
    """Each fact is good, wrong-subject, garbled (it tells of an expected fact, but not so that it
    can be accepted) or junk (nothing expected, or told twice)."""
    draft = extracted(turn)
    expected = [[_plain(text) for text in one] for one in turn["facts"]]
    wrong = [re.compile(pattern) for pattern in turn.get("wrong", ())]
    found: set[int] = set()
    verdicts = []
    for fact in draft.facts:
        if fact.confidence < GATE:
            continue
        told = _plain(fact.content)
        fits = {number for number, texts in enumerate(expected) if told in texts}
        if any(pattern.search(fact.content) for pattern in wrong):
            verdict = "wrong-subject"
        elif fits - found:
            verdict = "good"
        elif not fits and any(_overlap(told, texts[0]) >= 0.5 for texts in expected):
            verdict = "garbled"
        else:
            verdict = "junk"
        if verdict == "good":
            found |= fits
        verdicts.append((verdict, fact.content))
    missed = [texts[0] for number, texts in enumerate(expected) if number not in found]
    return Outcome(tuple(verdicts), tuple(missed), _false_triples(turn, draft))


def _false_triples(turn: dict[str, object], draft: ExtractionDraft) -> tuple[str, ...]:
    if "triples" not in turn:
        return ()
    told = [f"{triple.source}|{triple.relationship}|{triple.target}" for triple in draft.triples]
    return tuple(triple for triple in told if triple not in turn["triples"])


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFC", text).casefold()
    return " ".join(folded.split()).rstrip(".!。 ")


def _overlap(told: str, expected: str) -> float:
    words, wanted = set(_WORD.findall(told)), set(_WORD.findall(expected))
    return len(words & wanted) / len(wanted) if wanted else 0.0


def total(turns: Iterable[dict[str, object]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for turn in turns:
        counts += judged(turn).counts()
    return counts


def _main() -> None:
    turns = read_turns(Path(sys.argv[1]))
    for turn in turns if "-v" in sys.argv else ():
        outcome = judged(turn)
        if set(outcome.counts()) - {"good"}:
            print(turn["id"], json.dumps(turn["turn"], ensure_ascii=False)[:150])
            for verdict, text in outcome.verdicts:
                print(f"    {verdict}: {text}")
            for text in outcome.missed:
                print(f"    missed: {text}")
            for text in outcome.false_triples:
                print(f"    false triple: {text}")
    print(len(turns), "turns", dict(sorted(total(turns).items())))


if __name__ == "__main__":
    _main()
