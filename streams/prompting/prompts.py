"""The questions that the pipeline asks a model about turns, facts and sessions, as values. Pure.

A prompt's version names its text and its schema together: a change of either raises it, so
that a recorded reply is never taken for the answer to another question. The texts that say what is
to be done are in `prompts.toml`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final, cast

from pydantic import JsonValue

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.extraction import CONSOLIDATION, Fact
from palimpsest.schemas.messages import ContextTurn, NormalizedTurn, ScoredCandidate
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.schemas.rows.enumerations import FACT_TYPES
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.text.dates import DAY_NAMES
from palimpsest.streams.text.tables import read_table

EXTRACTION_PROMPT_VERSION: Final = "extract-2"
DECISION_PROMPT_VERSION: Final = "decide-1"
CONSOLIDATION_PROMPT_VERSION: Final = f"{CONSOLIDATION}1"

DEFAULT_MAX_CHARACTERS: Final = 12_000
MAX_CONTEXT_CHARACTERS: Final = 1_000
"""Characters kept of each preceding turn: enough to resolve a pronoun."""
MAX_CANDIDATE_CHARACTERS: Final = 2_000
TRUNCATED: Final = "[truncated]"
ONLY_JSON: Final = "Answer with the JSON object only."

MAX_FACTS: Final = 20
MAX_TRIPLES: Final = 50
MAX_CATEGORIES: Final = 8
MAX_TURNS: Final = 10
"""That one statement about a session may name; one that names so many rests on none of them."""

DEFAULT_OUTPUT_TOKENS: Final = 2_048
DECISION_OUTPUT_TOKENS: Final = 256

PROMPTS: Final = cast("dict[str, str]", read_table(__name__, "prompts.toml"))
"""The system texts by the name of the question."""
TEXT: Final[JsonValue] = {"type": "string"}
NUMBER: Final[JsonValue] = {"type": "number"}
_TEXT_OR_NULL: Final[JsonValue] = {"type": ["string", "null"]}

Schema = dict[str, JsonValue]


def choice(*names: str) -> JsonValue:
    """The schema of one of these names."""
    return {"type": "string", "enum": [*names]}


def list_of(items: JsonValue, most: int | None = None) -> JsonValue:
    """The schema of a list of at most so many items."""
    listed: Schema = {"type": "array", "items": items}
    return listed if most is None else {**listed, "maxItems": most}


def object_of(properties: Mapping[str, JsonValue]) -> Schema:
    """The schema of an object, every property required and no other allowed: what strict structured
    output demands."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_FACT_FIELDS: Final[Schema] = {
    "content": TEXT,
    "type": choice(*FACT_TYPES),
    "confidence": NUMBER,
    "importance": {"type": "integer"},
    "temporal": choice("persistent", "temporal"),
    "valid_until": _TEXT_OR_NULL,
    "categories": list_of(TEXT, MAX_CATEGORIES),
}
_ENDS: Final = ("source", "source_type", "relationship", "target", "target_type")
_TRIPLE: Final = object_of({**dict.fromkeys(_ENDS, TEXT), "confidence": NUMBER})
EXTRACTION_SCHEMA: Final = object_of(
    {
        "facts": list_of(object_of(_FACT_FIELDS), MAX_FACTS),
        "entities": list_of(_TRIPLE, MAX_TRIPLES),
    }
)
_SESSION_FACT: Final = object_of(
    {
        "turns": list_of({"type": "integer"}, MAX_TURNS),
        **_FACT_FIELDS,
        "holder": _TEXT_OR_NULL,
    }
)
CONSOLIDATION_SCHEMA: Final = object_of({"facts": list_of(_SESSION_FACT, MAX_FACTS)})
DECISION_SCHEMA: Final = object_of(
    {
        "action": choice("ADD", "UPDATE", "DELETE", "NONE"),
        "targetId": _TEXT_OR_NULL,
        "confidence": NUMBER,
        "reason": TEXT,
    }
)
CONTRADICTION_SCHEMA: Final = object_of(
    {"contradicts": {"type": "boolean"}, "confidence": NUMBER, "reason": TEXT}
)


def _of_facts(name: str) -> str:
    return PROMPTS[name].replace("FIELDS_OF_FACTS", PROMPTS["fields_of_facts"])


def cut(text: str, limit: int) -> str:
    """`text`, or its first `limit` characters with the mark that something is missing."""
    return text if len(text) <= limit else f"{text[:limit]} {TRUNCATED}"


def _moment(value: datetime) -> str:
    """RFC 3339 to the second, with Z in UTC and else with the offset. Any year has four digits."""
    return value.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _day(value: datetime) -> str:
    # Models reckon "last Friday" wrongly unless they are told which weekday it is.
    return f"{_moment(value)} ({_weekday(value)})"


def _weekday(day: date) -> str:
    return DAY_NAMES[day.weekday()].capitalize()


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _quoted(text: str) -> str:
    """One line in quotes, so that a name or a memory cannot open lines of its own."""
    return json.dumps(text, ensure_ascii=False)


def fence(of: str, *texts: str) -> str:
    """The line before and after texts that are material to read. A text cannot contain the hash of
    itself, so it cannot close its own fence."""
    digest = hashlib.sha256("\x1f".join(texts).encode("utf-8", "replace")).hexdigest()
    return f"----- {of} {digest[:12]} -----"


def context_text(role: str, content: str) -> str:
    """What of an earlier turn is shown; of an assistant's long one the end, where a user agrees."""
    if role != "assistant" or len(content) <= MAX_CONTEXT_CHARACTERS:
        return cut(content, MAX_CONTEXT_CHARACTERS)
    return f"{TRUNCATED} {content[-MAX_CONTEXT_CHARACTERS:]}"


def _extraction_question(
    turn: NormalizedTurn, content: str, occurred_at: datetime, earlier: Sequence[ContextTurn]
) -> str:
    lines: list[str] = []
    if earlier:
        lines.append(
            "Earlier in the conversation (to understand names and what is agreed to, not to extract"
            " from):"
        )
        lines += [
            f"- {_quoted(before.speaker or str(before.role))}, {_day(_utc(before.occurred_at))}:"
            f" {_quoted(before.content)}"
            for before in earlier
        ]
        lines.append("")
    lines.append(f"Speaker: {_quoted(turn.speaker or turn.role)} ({turn.role})")
    lines.append(f"Time of the turn: {_day(occurred_at)}")
    if turn.explicit_long_term_memory_intent:
        lines.append(
            "The speaker asks to have this remembered: keep what is to be remembered as a fact."
        )
    edge = fence("turn", content, turn.speaker, *(before.content for before in earlier))
    return "\n".join((*lines, edge, content, edge, ONLY_JSON))


def extraction_prompt(
    turn: NormalizedTurn,
    occurred_at: datetime,
    context: Sequence[ContextTurn],
    max_characters: int = DEFAULT_MAX_CHARACTERS,
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
    *,
    utc_offset_minutes: int = 0,
) -> Prompt:
    """Ask for the facts and triples of one turn.

    The turn's text has its line breaks: lists, code and quoted mail show only there.
    `utc_offset_minutes` is the offset that `occurred_at` was published with (540
    for Japan): the day that "yesterday" is counted from. Text beyond `max_characters` is cut and
    marked, and echoed context left out. `context` comes oldest first and is marked as not to be
    extracted from. `subject`:
    content, speaker, role, occurred_at (RFC 3339 with that offset), explicit_intent,
    is_remembered (on request), context (speaker, role, occurred_at in UTC, content).
    """
    published = turn.published_content
    said = spoken(turn.content if published is None else storage_content(published))
    content = cut(said, max_characters)
    occurred_at = local_time(occurred_at, utc_offset_minutes)
    earlier = [
        before.model_copy(
            update={
                "role": before.role or "user",
                "content": context_text(before.role or "user", before.content),
            }
        )
        for before in context
    ]
    return Prompt(
        purpose="extract",
        system=_of_facts("extract"),
        user=_extraction_question(turn, content, occurred_at, earlier),
        schema=EXTRACTION_SCHEMA,
        max_output_tokens=max_output_tokens,
        subject={
            "content": content,
            "speaker": turn.speaker,
            "role": turn.role,
            "occurred_at": _moment(occurred_at),
            "explicit_intent": turn.explicit_long_term_memory_intent,
            "is_remembered": turn.memory_id is not None,
            "context": [
                {
                    "speaker": before.speaker,
                    "role": before.role,
                    "occurred_at": _moment(_utc(before.occurred_at)),
                    "content": before.content,
                }
                for before in earlier
            ],
        },
    )


_SHOWN: Final = ("type", "content", "score", "cosine", "keyword")
"""What of a candidate is told as plain data, beside its id."""


def decision_prompt(
    fact: Fact, occurred_at: datetime, candidates: Sequence[ScoredCandidate]
) -> Prompt:
    """Ask what to do with `fact` in view of `candidates`, numbered from 1 in the order given.

    `subject`: fact (content, type, confidence), occurred_at, candidates (id, type, content,
    score, cosine, keyword; the last two null when that leg did not find it).
    """
    lines = [
        f"New fact ({fact.type}, told {_day(_utc(occurred_at))}): {_quoted(fact.content)}",
        "",
        "Memories:",
    ]
    for number, candidate in enumerate(candidates, start=1):
        shown = _quoted(cut(candidate.content, MAX_CANDIDATE_CHARACTERS))
        dated = f", {_day(_utc(candidate.occurred_at))}" if candidate.occurred_at else ""
        lines.append(f"{number}. id {candidate.memory_id} ({candidate.type}{dated}): {shown}")
    lines += ["", ONLY_JSON]
    return Prompt(
        purpose="decide",
        system=PROMPTS["decide"],
        user="\n".join(lines),
        schema=DECISION_SCHEMA,
        max_output_tokens=DECISION_OUTPUT_TOKENS,
        subject={
            "fact": {"content": fact.content, "type": fact.type, "confidence": fact.confidence},
            "occurred_at": _moment(_utc(occurred_at)),
            "candidates": [
                {"id": each.memory_id, **{name: getattr(each, name) for name in _SHOWN}}
                for each in candidates
            ],
        },
    )


def contradiction_prompt(a: str, b: str) -> Prompt:
    """Ask whether statement `a` contradicts statement `b`. `subject`: a, b."""
    first = cut(a, MAX_CANDIDATE_CHARACTERS)
    second = cut(b, MAX_CANDIDATE_CHARACTERS)
    return Prompt(
        purpose="contradict",
        system=PROMPTS["contradict"],
        user=f"A: {_quoted(first)}\nB: {_quoted(second)}\n\n{ONLY_JSON}",
        schema=CONTRADICTION_SCHEMA,
        max_output_tokens=DECISION_OUTPUT_TOKENS,
        subject={"a": first, "b": second},
    )


def session_pages(
    turns: Mapping[int, MemoryRow], max_characters: int = DEFAULT_MAX_CHARACTERS
) -> list[list[int]]:
    """The numbers of the turns in order, as many a page as fit into so many characters, one at
    least."""
    pages: list[list[int]] = []
    left = 0
    for number, turn in turns.items():
        left -= (size := len(_session_line(number, turn)))
        if left < 0 or not pages:
            pages.append([])
            left = max_characters - size
        pages[-1].append(number)
    return pages


def _session_line(number: int, turn: MemoryRow) -> str:
    # One line, so that neither a name nor a text can open lines of its own.
    said = cut(" ".join(turn.content.split()), MAX_CANDIDATE_CHARACTERS)
    return f"{number}. {' '.join(turn.who.split()) or 'user'}: {said}"


def consolidation_prompt(
    page: Mapping[int, MemoryRow],
    earlier: Mapping[str, Sequence[int]],
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
) -> Prompt:
    """Ask for what a page of a session's turns, by their numbers, tells as a whole. `earlier` is
    what was drawn from the pages before, with the numbers of its turns. `subject`: turns (number,
    speaker, content), earlier."""
    told: list[str] = []
    day = None
    for number, turn in page.items():
        if day != (day := _utc(turn.occurred_at).date()):
            told.append(f"{day} ({_weekday(day)})")
        told.append(_session_line(number, turn))
    lines = ["Known from the session's turns before (do not repeat it):"] if earlier else []
    lines += [
        f"- turns {', '.join(map(str, turns))}: {_quoted(cut(content, MAX_CONTEXT_CHARACTERS))}"
        for content, turns in earlier.items()
    ]
    edge = fence("session", *told, *lines)
    return Prompt(
        purpose="consolidate",
        system=_of_facts("consolidate"),
        user="\n".join((*lines, edge, *told, edge, ONLY_JSON)),
        schema=CONSOLIDATION_SCHEMA,
        max_output_tokens=max_output_tokens,
        subject={
            "turns": [[number, turn.who, turn.content] for number, turn in page.items()],
            "earlier": [*earlier],
        },
    )
