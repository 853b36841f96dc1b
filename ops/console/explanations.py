"""What the views of a recall and of a memory show, computed from the answers of operations."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from palimpsest.ops.operations.operation import Json

Change = Literal["same", "removed", "added"]
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def word_changes(old: str, new: str) -> list[tuple[Change, str]]:
    """The differences of two texts by words: pieces that join to the new text without what was
    `removed`, and to the old one without what was `added`."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    pieces: list[tuple[Change, str]] = []
    removed = added = ""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, j, k, n in matcher.get_opcodes():
        was, now = "".join(before[i:j]), "".join(after[k:n])
        # A space between two changed words belongs to both.
        if kind != "equal" or (was.isspace() and removed and added and j < len(before)):
            removed, added = removed + was, added + now
            continue
        pieces += _changes(removed, added)
        pieces.append(("same", was))
        removed = added = ""
    return pieces + _changes(removed, added)


def _changes(removed: str, added: str) -> list[tuple[Change, str]]:
    both: tuple[tuple[Change, str], ...] = (("removed", removed), ("added", added))
    return [(kind, text) for kind, text in both if text]


# ---- a recall ----
PARTS: Final[Mapping[str, str]] = {
    "keyword": "words in common with the question",
    "vector": "similar meaning",
    "rrf": "the ranks by words and by meaning",
    "role": "who said it, the assistant or a person",
    "facts": "its facts, or the turn that it was extracted from",
    "neighbours": "the turns next to it",
    "questions": "a turn that only asks is no answer",
    "named": "it is about the person whom the question names",
    "when": "the question asks when, and it tells a time",
    "ended": "it is no longer valid",
    "profile": "how recent, important and often used it is",
    "graph": "it mentions what the question names, or something related",
    "times": "whether it happened at the time that the question names",
    "rerank": "the second look at the first results",
}
"""What each part of a score stands for."""
COLOURS: Final[Mapping[str, int]] = {
    "keyword": 1,
    "rrf": 1,
    "vector": 2,
    "neighbours": 3,
    "facts": 5,
}
"""The colours of the usual parts; the others have 4."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a score as a piece of a bar; `x` and `width` are in thousandths of the bar.
    `colour` is from 1 to 5, 0 for what was taken away."""

    name: str
    value: float
    x: float
    width: float
    colour: int


def bar(parts: Mapping[str, float], longest: float) -> list[Segment]:
    """The parts of a score one after the other, first what was added, then, from the end back,
    what was taken away. `longest` is the sum that fills the bar."""
    scale, segments, at = 1000 / max(longest, 1e-9), [], 0.0
    shown = {name: value for name, value in parts.items() if abs(value) >= 0.0005}
    for name, value in sorted(shown.items(), key=lambda part: part[1] < 0):
        start = at if value > 0 else at + value
        x, width = round(start * scale, 1), round(abs(value) * scale, 1)
        segments.append(Segment(name, value, x, width, COLOURS.get(name, 4) if value > 0 else 0))
        at += value
    return segments


def longest_bar(results: Sequence[Json]) -> float:
    """The greatest sum of added parts among explained results."""
    parts = (each["explanation"]["parts"].values() for each in results if each["explanation"])
    return max((sum(v for v in values if v > 0) for values in parts), default=1.0)


def found_by(result: Json) -> list[str]:
    """Why a result was considered: its ranks by words and by meaning, and the graph."""
    names = {"keyword": "words", "vector": "meaning"}
    ranks = result["explanation"]["ranks"].items()
    reasons = [f"no. {rank} by {names[leg]}" for leg, rank in ranks if rank is not None]
    if result["scores"]["graph"]:
        reasons.append("linked in the graph")
    return reasons or ["near a hit: in its session, its turn or its fact"]


ABSENCES: Final[Mapping[str, str]] = {
    "inactive": "It is forgotten, or no memory of this scope.",
    "filtered": "A filter leaves it out.",
    "not_considered": "Neither words nor meaning had it among the candidates.",
    "returned": "It is among the results.",
    "grouped": "It is among the results, represented by another memory.",
    "min_score": "Its score is below the minimum.",
    "limit": "Other memories rank before it.",
}
"""What each reason of `why_not` means."""


# ---- a memory ----
@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened to a memory: a `turn` was said, a model made an `extraction`, a
    `decision` was made, a `change` applied, or a `recall` returned the memory. `item` is the part
    of the answer that tells it; `changes` are the differences of a change's texts."""

    kind: Literal["turn", "extraction", "decision", "change", "recall"]
    at: str
    item: Json
    changes: tuple[tuple[Change, str], ...] = ()


_ORDER: Final = ("turn", "extraction", "decision", "change")
"""What came of a turn, in order."""


def timeline(provenance: Json) -> list[Entry]:
    """What happened to a memory, in order, from the answer of Explain."""
    of_kind = {"turn": "created_at", "extraction": "recorded_at", "decision": "recorded_at"}
    items = {
        "turn": provenance["derived_from"],
        "extraction": provenance["extractions"],
        "decision": provenance["decisions"],
    }
    entries = [
        Entry(kind, item[of_kind[kind]], item)  # type: ignore[arg-type]
        for kind, found in items.items()
        for item in found
    ]
    entries += [
        Entry("change", each["created_at"], each, tuple(_changed(each)))
        for each in provenance["history"]
    ]
    entries += [Entry("recall", each["asked_at"], each) for each in provenance["memory"]["recalls"]]
    decided = {each["turn_memory_id"]: each["recorded_at"] for each in provenance["decisions"]}
    said = {each["id"]: each for each in provenance["derived_from"]}

    def place(entry: Entry) -> tuple[datetime, datetime, int]:
        """What came of a turn stands together, at the time of its decision."""
        turn = said.get(_turn_of(entry))
        at = datetime.fromisoformat(entry.at)
        if turn is None:
            return at, at, 0
        begins = datetime.fromisoformat(decided.get(turn["id"], turn["created_at"]))
        return begins, datetime.fromisoformat(turn["occurred_at"]), _ORDER.index(entry.kind)

    return sorted(entries, key=place)


def _turn_of(entry: Entry) -> str:
    """The id of the turn that an entry followed from; empty for what a person did, and recalls."""
    item = entry.item
    if entry.kind == "turn":
        return str(item["id"])
    if entry.kind == "change":
        return str(item["metadata"].get("source_memory", ""))
    return str(item.get("turn_memory_id", ""))


def _changed(event: Json) -> Iterator[tuple[Change, str]]:
    old, new = event["old_content"], event["new_content"]
    if old is not None and new is not None and old != new:
        yield from word_changes(old, new)


def versions(provenance: Json) -> list[dict[str, Any]]:
    """The texts of a memory, newest first, each with its differences from the one before."""
    memory = provenance["memory"]
    texts = [{**memory, "archived_at": None, "reason": ""}, *provenance["before"]]
    pairs = itertools.pairwise([*texts, None])
    return [
        {
            **newer,
            "changes": [] if older is None else word_changes(older["content"], newer["content"]),
        }
        for newer, older in pairs
    ]
