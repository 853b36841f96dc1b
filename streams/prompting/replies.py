"""What a model answered, read strictly and without ever failing for a part of it. Pure.

Whatever is wrong with one item costs that item (or one field of it) and leaves a warning; only a
reply without a usable object raises. The runner then asks again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

from pydantic import JsonValue

from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.normal_forms import canonical_name
from palimpsest.schemas.rows.enumerations import FACT_TYPES, Action, FactType, TemporalKind
from palimpsest.streams.prompting.json_text import JsonObject, find_object
from palimpsest.streams.prompting.prompts import MAX_CATEGORIES, MAX_FACTS, MAX_TRIPLES, MAX_TURNS
from palimpsest.streams.text.dates import end_of

MIN_FACT_CHARACTERS: Final = 10
"""Of a statement in an alphabet. One in characters that stand for a syllable or a word (Chinese,
Japanese, Korean) says as much with fewer: each counts as `WIDE_CHARACTER`."""
WIDE_CHARACTER: Final = 3
MAX_FACT_CHARACTERS: Final = 2_000
MAX_NAME_CHARACTERS: Final = 256
"""Of a triple's source, relationship and target: what is longer is no name."""
MAX_CATEGORY_CHARACTERS: Final = 40
MAX_REASON_CHARACTERS: Final = 1_000
MAX_WARNINGS: Final = 50
MAX_NAMED: Final = 8
"""Names of fields of another form that are told."""
MAX_ITEMS_READ: Final = 500
"""Items of one list that are looked at, valid or not."""
UNRATED_CONFIDENCE: Final = 0.8
"""Of what has no confidence, or one that cannot be read: a model that rates nothing states it, so
that it passes `pipeline.min_fact_confidence`."""
CONFIDENCE_WORDS: Final = {
    **dict.fromkeys(("very high", "high", "very likely", "certain", "very certain"), 0.9),
    **dict.fromkeys(("medium", "moderate", "likely"), 0.7),
    **dict.fromkeys(("low", "very low", "unlikely", "very unlikely"), 0.3),
}
"""What a confidence that is told in words counts as."""
LEAST_COPIED: Final = 16
"""Characters of a sentence that also stands in a turn from which on it was copied."""

_ACTIONS: Final = ("ADD", "UPDATE", "DELETE", "NONE")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ENVELOPES: Final = (
    (re.compile(r'"refusal":\s*"'), "the model refused"),
    (re.compile(r'_reason":\s*"length"'), "the limit of tokens was reached before its text"),
    (re.compile(r'_reason":\s*"content_filter"'), "the provider's filter held its text back"),
)
"""What a provider tells of a reply without a text, which is then its whole answer."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_NOT_SNAKE: Final = re.compile(r"[\W_]+")
_SHARE: Final = re.compile(r"(?P<number>[0-9]{1,4}(?:\.[0-9]{1,9})?)\s?(?P<percent>%|percent)?")
_CONTENT_NAMES: Final = ("content", "text")
"""Names under which the statement of a fact is read, the one that is asked for first."""
_TRIPLE_NAMES: Final = ("source", "relationship", "target")


class MalformedReply(ValueError):
    """A reply that cannot be used at all; the text says why, without quoting the reply."""


def without_object(text: str, *keys: str) -> MalformedReply:
    """Why no object with one of these keys could be read in a reply."""
    named = " or ".join(f'"{key}"' for key in keys)
    wanted = f"JSON object with {named}"
    if not text.strip():
        return MalformedReply(f"the reply is empty, where a {wanted} belongs")
    for sign, why in _ENVELOPES:
        if text.startswith("{") and sign.search(text):
            return MalformedReply(f"no {wanted} in the reply: {why}")
    if any(f'"{key}"' in text for key in keys):
        return MalformedReply(f"the {wanted} in the reply is cut or not valid JSON")
    return MalformedReply(f"no {wanted} in the reply")


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact as the model gave it, validated; the stage gives it its id.

    `confidence` and `importance` are shares from 0 to 1; `valid_until` is in UTC.
    """

    content: str
    type: FactType = "fact"
    confidence: float = UNRATED_CONFIDENCE
    importance: float | None = None
    temporal_kind: TemporalKind = "persistent"
    valid_until: datetime | None = None
    categories: tuple[str, ...] = ()
    turns: tuple[int, ...] = ()
    """The numbers of the turns that it rests on, of a session as a whole."""


@dataclass(frozen=True, slots=True)
class ExtractionDraft:
    """Facts and triples of one turn in the order given, duplicates merged, with warnings."""

    facts: tuple[FactDraft, ...]
    triples: tuple[Triple, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """A decided action. `dropped` tells why it must not be used; `action` is then only a record.

    `target_id` is one of the candidates' ids, None for ADD.
    """

    action: Action
    target_id: str | None
    confidence: float
    reason: str
    dropped: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContradictionDraft:
    contradicts: bool
    confidence: float
    reason: str
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Warnings:
    """Warnings of one reply, limited in number."""

    lines: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, line: str) -> None:
        if len(self.lines) < MAX_WARNINGS:
            self.lines.append(line)
        else:
            self.left_out += 1

    def all(self) -> tuple[str, ...]:
        more = (f"and {self.left_out} more warnings",) if self.left_out else ()
        return (*self.lines, *more)


def read_extraction(text: str, said_at: datetime) -> ExtractionDraft:
    """The facts and triples in a reply to an extraction prompt about a turn of `said_at`, with the
    offset from UTC of who said it: "next Friday" is counted from there.

    A fact may be a plain text, or have its statement as `text`. Raises MalformedReply when there is
    no object with a list `facts` or `entities`, when there are facts and none of them has a
    statement, and when, without a fact, no entity has a name: that is another form, not a turn
    without facts.
    """
    found = find_object(text, ("facts", "entities"))
    if found is None:
        raise without_object(text, "facts", "entities")
    notes = _Warnings(list(found.warnings))
    facts = _list_of_objects(found.value, "facts", notes, plain_as="content")
    entities = _list_of_objects(found.value, "entities", notes)
    if facts is None and (entities is None or found.value.get("facts") is not None):
        raise MalformedReply('"facts" of the reply is no list of objects')
    _check_form("facts", _CONTENT_NAMES, facts or ())
    kept, triples = _facts(facts or (), said_at, notes), _triples(entities or (), notes)
    if not kept and not triples:
        _check_form("entities", _TRIPLE_NAMES, entities or ())
    return ExtractionDraft(kept, triples, notes.all())


def _check_form(key: str, names: Sequence[str], items: Sequence[tuple[int, JsonObject]]) -> None:
    """Raises MalformedReply for a list of objects of which none has a text under these names."""
    if items and not any(isinstance(item.get(name), str) for _, item in items for name in names):
        given = ", ".join(sorted({name for _, item in items for name in item})[:MAX_NAMED])
        raise MalformedReply(
            f'none of the "{key}" of the reply has a text as {" or ".join(names)};'
            f" they have {_shown(given) if given else 'nothing'}"
        )


def read_consolidation(
    text: str, said_at: datetime, shown: Mapping[int, tuple[str, str]]
) -> ExtractionDraft:
    """The facts in a reply about a session until `said_at` of which these turns (speaker, text),
    by their numbers, were shown. What rests on another turn is rejected, and what one turn alone
    says, unless it is a procedure or an opinion. Raises MalformedReply."""
    found = find_object(text, ("facts",))
    if found is None:
        raise without_object(text, "facts")
    notes = _Warnings(list(found.warnings))
    items = _list_of_objects(found.value, "facts", notes)
    if items is None:
        raise MalformedReply('"facts" of the reply is no list of objects')
    _check_form("facts", _CONTENT_NAMES, items)
    said = _plain("\n".join(text for _, text in shown.values()))
    valid = []
    for number, item in items:
        why = _not_drawn(item, shown)
        if why is None and _is_copied(item, said):
            why = "repeats a turn instead of telling who did what"
        if why is None:
            valid.append((number, item))
        else:
            notes.add(f"fact {number} rejected: {why}")
    return ExtractionDraft(_facts(valid, said_at, notes), (), notes.all())


def _not_drawn(item: JsonObject, shown: Mapping[int, tuple[str, str]]) -> str | None:
    """Why a fact does not rest on turns that were shown; None where it does."""
    turns, holder = _turns(item), _text(item.get("holder"))
    kind = _text(item.get("type")).lower()
    unknown = [each for each in turns if each not in shown]
    why = None
    if not turns or unknown:
        why = f"names turn {unknown[0]}, which was not shown" if unknown else "names no turn"
    elif len(turns) >= MAX_TURNS:
        why = f"names {len(turns)} turns, so none in particular"
    elif kind == "opinion" and not (holder and holder in _content(item)):
        why = "an opinion that does not say whose it is"
    elif kind == "opinion" and not any(holder in said for n in turns for said in shown[n]):
        why = "an opinion of somebody whom its turns do not name"
    elif len(turns) == 1 and kind not in ("opinion", "procedural"):
        why = "rests on one turn, which was extracted from by itself"
    return why


def _is_copied(item: JsonObject, said: str) -> bool:
    """Whether a sentence of a fact stands word by word in what was said (`_plain`); all of them of
    a procedure, whose steps may well be told as they were said."""
    sentences = map(_plain, _SENTENCE_END.split(_content(item)))
    copied = [each in said for each in sentences if len(each) >= LEAST_COPIED]
    is_procedure = _text(item.get("type")).lower() == "procedural"
    return bool(copied) and (all(copied) if is_procedure else any(copied))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _turns(item: JsonObject) -> tuple[int, ...]:
    named = item.get("turns")
    if not isinstance(named, list):
        return ()
    return tuple(sorted({n for n in named if isinstance(n, int) and not isinstance(n, bool)}))


def _list_of_objects(
    value: JsonObject, key: str, notes: _Warnings, plain_as: str | None = None
) -> list[tuple[int, JsonObject]] | None:
    """The objects under `key`, numbered from 1; None when there is no usable list. With `plain_as`,
    a text of the length of a fact is an object that has it under that name."""
    items = value.get(key)
    if not isinstance(items, list):
        notes.add(f"{key} is not a list" if key in value else f"{key} is missing")
        return None
    if len(items) > MAX_ITEMS_READ:
        notes.add(f"{key}: only the first {MAX_ITEMS_READ} of {len(items)} items read")
    objects = []
    for number, item in enumerate(items[:MAX_ITEMS_READ], start=1):
        if isinstance(item, dict):
            objects.append((number, item))
        elif plain_as is not None and says_enough(_text(item)):
            objects.append((number, {plain_as: item}))
        else:
            notes.add(f"{key} {number} rejected: not an object")
    return objects if objects or not items else None


def _facts(
    items: Sequence[tuple[int, JsonObject]], said_at: datetime, notes: _Warnings
) -> tuple[FactDraft, ...]:
    kept: dict[str, FactDraft] = {}
    over = 0
    for number, item in items:
        content = _content(item)
        if not any(isinstance(item.get(name), str) for name in _CONTENT_NAMES):
            notes.add(f"fact {number} rejected: no text as {' or '.join(_CONTENT_NAMES)}")
        elif not says_enough(content):
            notes.add(f"fact {number} rejected: shorter than {MIN_FACT_CHARACTERS} characters")
        elif len(kept) == MAX_FACTS and content[:MAX_FACT_CHARACTERS] not in kept:
            over += 1
        else:
            fact = _fact(f"fact {number}", content, item, said_at, notes)
            known = kept.get(fact.content)
            if known is not None:
                categories = tuple(dict.fromkeys(known.categories + fact.categories))
                fact = replace(
                    known,
                    confidence=max(known.confidence, fact.confidence),
                    importance=max(known.importance, fact.importance, key=lambda each: each or 0.0),
                    categories=categories[:MAX_CATEGORIES],
                    turns=tuple(sorted({*known.turns, *fact.turns})),
                )
            kept[fact.content] = fact
    if over:
        notes.add(f"{over} facts over the limit of {MAX_FACTS} left out")
    return tuple(kept.values())


def _fact(
    where: str, content: str, item: JsonObject, said_at: datetime, notes: _Warnings
) -> FactDraft:
    if len(content) > MAX_FACT_CHARACTERS:
        notes.add(f"{where}: content cut to {MAX_FACT_CHARACTERS} characters")
        content = content[:MAX_FACT_CHARACTERS].rstrip()
    given = item.get("valid_until")
    if given is not None and not isinstance(given, str):
        notes.add(f"{where}: valid_until {_shown(given)} is no text, left out")
    ends = _text(given)
    if ends.lower() in ("null", "none"):
        ends = ""
    valid_until = end_of(ends, said_at)
    if ends and valid_until is None:
        notes.add(f"{where}: valid_until {_shown(ends)} is no time that can be read, left out")
    importance = _number(where, "importance", item.get("importance"), (1, 10), notes)
    if importance is None and item.get("importance") is not None:
        notes.add(f"{where}: importance is not a number, left out")
    return FactDraft(
        content=content,
        type=_type(where, item.get("type"), notes),
        confidence=_confidence(where, item.get("confidence"), notes),
        importance=None if importance is None else importance / 10,
        temporal_kind=_temporal(where, item.get("temporal"), bool(ends), valid_until, notes),
        valid_until=valid_until,
        categories=_categories(where, item.get("categories"), notes),
        turns=_turns(item),
    )


def _triples(items: Sequence[tuple[int, JsonObject]], notes: _Warnings) -> tuple[Triple, ...]:
    kept: dict[tuple[str, str, str], Triple] = {}
    over = 0
    for number, item in items:
        source, relationship, target = (_text(item.get(name)) for name in _TRIPLE_NAMES)
        key = (source, relationship, target)
        if not all(key):
            notes.add(f"entity {number} rejected: source, relationship or target is empty")
        elif canonical_name(source) == canonical_name(target):
            notes.add(f"entity {number} rejected: its source and its target have one name")
        elif max(map(len, key)) > MAX_NAME_CHARACTERS:
            notes.add(f"entity {number} rejected: a name over {MAX_NAME_CHARACTERS} characters")
        elif len(kept) == MAX_TRIPLES and key not in kept:
            over += 1
        else:
            confidence = _confidence(f"entity {number}", item.get("confidence"), notes)
            known = kept.get(key)
            kept[key] = Triple(
                source=source,
                source_type=_kind(item.get("source_type")),
                relationship=relationship,
                target=target,
                target_type=_kind(item.get("target_type")),
                confidence=max(confidence, known.confidence if known else 0.0),
            )
    if over:
        notes.add(f"{over} entities over the limit of {MAX_TRIPLES} left out")
    return tuple(kept.values())


def read_decision(text: str, candidate_ids: Sequence[str]) -> DecisionDraft:
    """The decided action in a reply to a decision prompt that showed `candidate_ids`, in order.

    The target may be named by its id or by its number in the prompt (from 1). `dropped` is set
    when the action is unknown, the reason empty, or UPDATE or DELETE names no candidate.
    Raises MalformedReply when there is no object with an `action`.
    """
    found = find_object(text, ("action",))
    if found is None:
        raise without_object(text, "action")
    value, notes = found.value, _Warnings(list(found.warnings))
    named = value.get("targetid", value.get("target_id"))
    target = _target(named, candidate_ids)
    action = _text(value.get("action")).upper()
    reason = _text(value.get("reason"))[:MAX_REASON_CHARACTERS]
    confidence = _confidence("decision", value.get("confidence"), notes)
    dropped: str | None = None
    if action not in _ACTIONS:
        dropped, action = f"unknown action {_shown(action)}", "NONE"
    elif action in ("UPDATE", "DELETE") and target is None:
        missing = named is None or named == ""
        what = "names no target" if missing else f"names an unknown target {_shown(named)}"
        dropped = f"{action} {what}"
    elif not reason:
        dropped = f"{action} without a reason"
    if dropped is not None:
        notes.add(f"proposal dropped: {dropped}")
    elif action == "NONE" and target is None and named not in (None, ""):
        notes.add(f"NONE names an unknown target {_shown(named)}")
    return DecisionDraft(
        action=cast("Action", action),
        target_id=None if action == "ADD" else target,
        confidence=confidence,
        reason=reason,
        dropped=dropped,
        warnings=notes.all(),
    )


def _target(named: JsonValue, candidate_ids: Sequence[str]) -> str | None:
    if isinstance(named, bool) or not isinstance(named, str | int):
        return None
    if isinstance(named, int):
        return candidate_ids[named - 1] if 1 <= named <= len(candidate_ids) else None
    text = named.strip()
    if text in candidate_ids:
        return text
    text = text.removeprefix("id ").strip("#[]().\"' ")
    if text in candidate_ids:
        return text
    # Six digits are more than any list of candidates has, and never slow to read.
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
    return candidate_ids[number - 1] if 1 <= number <= len(candidate_ids) else None


def read_contradiction(text: str) -> ContradictionDraft:
    """The verdict in a reply to a contradiction prompt.

    Raises MalformedReply when there is no object with a true or false `contradicts`.
    """
    found = find_object(text, ("contradicts",))
    if found is None:
        raise without_object(text, "contradicts")
    verdict = found.value.get("contradicts")
    if not isinstance(verdict, bool):
        raise MalformedReply('"contradicts" of the reply is neither true nor false')
    notes = _Warnings(list(found.warnings))
    return ContradictionDraft(
        contradicts=verdict,
        confidence=_confidence("verdict", found.value.get("confidence"), notes),
        reason=_text(found.value.get("reason"))[:MAX_REASON_CHARACTERS],
        warnings=notes.all(),
    )


def _text(value: JsonValue) -> str:
    """`value` as one line without control characters; empty when it is no text."""
    return " ".join(_CONTROL.sub(" ", value).split()) if isinstance(value, str) else ""


def _content(item: JsonObject) -> str:
    """The statement of a fact."""
    return next(filter(None, (_text(item.get(name)) for name in _CONTENT_NAMES)), "")


def says_enough(content: str) -> bool:
    """Whether a statement is long enough to be one."""
    if len(content) >= MIN_FACT_CHARACTERS:
        return True
    wide = sum(char.isalpha() and unicodedata.east_asian_width(char) in "WF" for char in content)
    return len(content) + wide * (WIDE_CHARACTER - 1) >= MIN_FACT_CHARACTERS


def _shown(value: JsonValue) -> str:
    """A short quotation for a warning; only texts and small numbers are quoted."""
    if isinstance(value, str):
        line = _text(value)
        return f"'{line[:60]}…'" if len(line) > 60 else f"'{line}'"
    if isinstance(value, int) and abs(value) < 10**9:
        return str(value)
    return f"of type {type(value).__name__}"


def _number(
    where: str, name: str, value: JsonValue, bounds: tuple[int, int], notes: _Warnings
) -> float | None:
    """`value` within its bounds; None where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
        return None
    low, high = bounds
    if not low <= value <= high:
        notes.add(f"{where}: {name} outside {low} to {high}, clamped")
    return float(min(max(value, low), high))


def _confidence(where: str, value: JsonValue, notes: _Warnings) -> float:
    if value is None:
        notes.add(f"{where}: no confidence, {UNRATED_CONFIDENCE} taken")
        return UNRATED_CONFIDENCE
    share = _share(value)
    number = _number(where, "confidence", value if share is None else share, (0, 1), notes)
    if number is None:
        notes.add(f"{where}: confidence cannot be read, {UNRATED_CONFIDENCE} taken")
        return UNRATED_CONFIDENCE
    if share is not None:
        notes.add(f"{where}: confidence {_shown(value)} read as {number:g}")
    return number


def _share(value: JsonValue) -> float | None:
    """A confidence that is told as a text: in words, as a percentage or as a number."""
    told = _text(value).lower()
    written = _SHARE.fullmatch(told)
    if written is None:
        return CONFIDENCE_WORDS.get(told)
    return float(written["number"]) / (100 if written["percent"] else 1)


def _type(where: str, value: JsonValue, notes: _Warnings) -> FactType:
    name = _text(value).lower()
    for known in FACT_TYPES:
        if name == known:
            return known
    notes.add(f"{where}: unknown type {_shown(value)}, fact taken")
    return "fact"


def _temporal(
    where: str, value: JsonValue, ends: bool, valid_until: datetime | None, notes: _Warnings
) -> TemporalKind:
    """`ends`: the model told an end, be it one that cannot be read."""
    name = _text(value).lower()
    if name not in ("persistent", "temporal"):
        if value is not None:
            notes.add(f"{where}: unknown temporal kind {_shown(value)}")
        return "temporal" if ends else "persistent"
    # What ends at a known time is temporal, whatever the model called it.
    return "temporal" if valid_until or name == "temporal" else "persistent"


def _categories(where: str, value: JsonValue, notes: _Warnings) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        notes.add(f"{where}: categories is not a list, left out")
        return ()
    names: dict[str, None] = {}
    for item in value[:100]:
        if isinstance(item, str):
            folded = unicodedata.normalize("NFKC", item[: MAX_CATEGORY_CHARACTERS * 2]).lower()
            name = _NOT_SNAKE.sub("_", folded).strip("_")[:MAX_CATEGORY_CHARACTERS].rstrip("_")
            names[name] = None
    names.pop("", None)
    if len(names) > MAX_CATEGORIES:
        notes.add(f"{where}: only the first {MAX_CATEGORIES} of {len(names)} categories kept")
    return tuple(names)[:MAX_CATEGORIES]


def _kind(value: JsonValue) -> str:
    return _text(value)[:MAX_CATEGORY_CHARACTERS].lower() or "unknown"
