"""Executes `remember`: stores a text on request, which is then extracted from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.identity import command_memory_id
from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import TURNS_NORMALIZED
from palimpsest.streams.apply.authoring import (
    EXPLICIT_IMPORTANCE,
    own_memories,
    own_texts,
    structure_work,
)
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import (
    LOWERED,
    Refused,
    Work,
    command_id,
    is_guarded,
    load_names,
    refuse_frozen,
    refuse_others,
    refuse_untaught,
)
from palimpsest.streams.apply.privacy import refuse_about_private, refuse_in_private_scope
from palimpsest.streams.claims.contradiction import same_fact
from palimpsest.streams.claims.grammar import categories_of
from palimpsest.streams.claims.turn import sentences
from palimpsest.streams.memory_rows import (
    as_owned,
    edge_rows,
    is_of_another,
    owned_hash,
    protected,
    text_columns,
)
from palimpsest.streams.stage import Asking, Emit
from palimpsest.streams.store_port import FindCandidates, Load, Put
from palimpsest.streams.text.dates import stated_end

MOST_COMPARED: Final = 2_000
"""Maximum length, in characters, of a text that is compared with what is known in other words, as
of a fact."""
MOST_CANDIDATES: Final = 20
LEAST_WORDS: Final = 3
"""Of a statement that goes with another one."""
_JOINED: Final = re.compile(r"[;,]? (?:and|but|und|aber) |; ")
_ORDINAL: Final = re.compile(r"(?<=\d)\.(?= (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez))")
"""The point of a German date ends no sentence."""

_PREFIX = re.compile(r"^\s*(?:(critical)\s*:\s*)?(?:\[([^\]]{1,400})\]\s*:\s*)?", re.IGNORECASE)
_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference", ("prefers", "likes", "wants")),
    ("decision", ("decided", "agreed", "will use")),
    ("rule", ("never", "always", "must")),
    ("learning", ("learned", "discovered")),
    ("issue", ("bug", "broken", "problem")),
)


def parse_prefix(content: str) -> tuple[bool, tuple[str, ...], str]:
    """(critical, tags, rest) of `critical: [a,b]: text`; both prefixes are optional."""
    match = _PREFIX.match(content)
    assert match is not None
    tags = tuple(tag.strip() for tag in (match.group(2) or "").split(",") if tag.strip())
    rest = content[match.end() :]
    return (match.group(1) is not None, tags, rest) if rest.strip() else (False, (), content)


def inferred_type(text: str) -> str:
    """Returns the type of a remembered text by whole words; `fact` if none indicates one."""
    lowered = text.lower()
    for kind, words in _TYPES:
        if any(re.search(rf"\b{word}\b", lowered) for word in words):
            return kind
    return "fact"


def remember(work: Work, command: RememberCommand) -> Asking[JsonValue]:
    """Returns the new memory, or the existing one with the same source, or that says the same of
    the same owner, which gets what the command wishes of it."""
    critical, tags, text = parse_prefix(command.content)
    stored = storage_content(text)
    texts = (stored, *own_texts(command.structured))
    yield from work.embed(texts)
    owner = work.intent.actor.id if command.who is None else command.who
    known = replace(
        load_names(work.scope, texts),
        content_hashes=(
            content_hash(stored),
            owned_hash(stored, owner),
            *map(content_hash, texts[1:]),
        ),
        source_ids=() if command.source_id is None else (command.source_id,),
        categories=bool(work.edition),
    )
    drawn_from = [each.memory_id for each in command.drawn_from or ()]
    yield from work.begin([*drawn_from, *own_memories(command.structured)], known)
    refuse_frozen(work)
    refuse_untaught(work, command)
    refuse_about_private(work, command, {})
    if command.drawn_from is not None:
        _replace_drawn(work, command)
    importance, is_pinned, is_lowered = _granted(work, command, critical)
    lowered: dict[str, JsonValue] = {"lowered": LOWERED} if is_lowered else {}
    new = _row(work, command, stored, importance, is_pinned, tags)
    is_rated = critical or command.importance is not None
    same, is_anothers = yield from _same(work, command, stored, owner)
    if same is not None and command.drawn_from is None:
        wished = _wished(work, command, same, new, is_rated)
        left = _left(command, wished, new, is_rated)
        return {**_known(work, command, same, wished, left, lowered), **lowered}
    existing = work.loaded.by_source.get(command.source_id or "")
    if existing is not None and command.drawn_from is None:
        work.tell("deduped", existing.memory_id, "same content or source")
        return _result(work, existing, _left(command, existing, new, is_rated))
    if work.edition:
        categories = ScopeCategories.of(work.scope, work.loaded)
        new = categories.folded(new)
        work.writes += categories.writes()
    row = work.put(as_owned(new) if is_anothers else new)
    work.tell("created", row.memory_id, "remembered", after=row, metadata=lowered)
    work.graph = structure_work(work, command.structured, (row.memory_id,))
    if command.drawn_from is not None:
        work.writes += map(Put, edge_rows(row, drawn_from))
    elif work.flags.enabled:
        work.emits.append(Emit(TURNS_NORMALIZED, _to_extract(row, command), "extract"))
    return {**_result(work, row), **lowered}


def _granted(work: Work, command: RememberCommand, critical: bool) -> tuple[float, bool, bool]:
    """Returns the importance of the text, whether it is pinned, and whether that is less than was
    asked for: only a person may protect a memory, and what a machine asks to protect is stored as
    an ordinary one."""
    importance = 1.0 if critical else EXPLICIT_IMPORTANCE
    importance = importance if command.importance is None else command.importance
    is_pinned = command.pinned or critical
    if is_guarded(work) and (is_pinned or importance > EXPLICIT_IMPORTANCE):
        return min(importance, EXPLICIT_IMPORTANCE), False, True
    return importance, is_pinned, False


def _same(
    work: Work, command: RememberCommand, stored: str, owner: str
) -> Asking[tuple[MemoryRow | None, bool]]:
    """Returns the owner's memory that says the same, and whether another owner has one with the
    same text."""
    is_named = command.who is not None
    same = work.loaded.by_hash.get(content_hash(stored))
    is_anothers = same is not None and is_of_another(same, owner, is_named)
    if same is None or is_anothers:
        same = work.loaded.by_hash.get(owned_hash(stored, owner))
    is_compared = work.edition and command.drawn_from is None
    is_item = command.source_id in work.loaded.by_source
    if same is not None or not is_compared or is_item or len(stored) > MOST_COMPARED:
        return same, is_anothers
    # By words alone: a vector may come late, and a rebuild has to find the same.
    found = yield from FindCandidates(work.scope, stored, None, MOST_CANDIDATES, 0.0)
    alike = tuple(each.memory_id for each in found.found if same_fact(each.content, stored))
    if alike:
        work.add((yield from Load(work.scope, memory_ids=alike)))
    for key in alike:
        row = work.memories.get(key)
        if row is not None and row.dedup_key and not is_of_another(row, owner, is_named):
            return row, is_anothers
    return None, is_anothers


def _result(work: Work, row: MemoryRow, left: Sequence[str] | None = None) -> dict[str, JsonValue]:
    """Returns what became of the text, and how the memory that has it is stored. `left`, of one
    that was known: the fields in which it stays different from the request."""
    result: dict[str, JsonValue] = {
        "id": row.memory_id,
        "deduped": left is not None,
        "version": row.version,
    }
    if not work.edition:
        return result
    result |= {
        "importance": row.importance,
        "categories": [*row.categories],
        "temporal_kind": row.temporal_kind,
        "valid_until": None if row.valid_until is None else row.valid_until.isoformat(),
    }
    return {**result, "not_merged": [*left]} if left else result


def _left(command: RememberCommand, known: MemoryRow, new: MemoryRow, is_rated: bool) -> list[str]:
    """Returns the fields that the request gives and the known memory has otherwise."""
    given = [name for name in _GIVEN if getattr(command, name)]
    given += ["importance"] if is_rated else []
    left = [name for name in ("content", *given) if getattr(known, name) != getattr(new, name)]
    own = json.loads(known.metadata)
    is_kept = all(own.get(name) == value for name, value in _metadata(command).items())
    return left if is_kept else [*left, "metadata"]


def _known(
    work: Work,
    command: RememberCommand,
    same: MemoryRow,
    wished: MemoryRow,
    left: Sequence[str],
    lowered: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    """Gives the memory that has the text what the command wishes of it. Returns the result, which
    names the fields that changed."""
    work.graph = structure_work(work, command.structured, (same.memory_id,))
    changes = [name for name in _WISHES if getattr(wished, name) != getattr(same, name)]
    if not changes:
        work.tell("deduped", same.memory_id, "same content or source")
        return _result(work, same, left)
    row = work.change(same, wished, "modified", "remembered again", lowered)
    why = f"the text was known; changed: {', '.join(changes)}"
    return {**_result(work, row, left), "status": "updated", "why": why}


_BY_HAND: Final = RememberCommand.model_fields["source_type"].default
_WISHES = (
    *("pinned", "importance", "tags", "type", "project", "metadata"),
    *("temporal_kind", "valid_until"),
)
_GIVEN = ("type", "who", "project", "session_id", "source_id")


def _wished(
    work: Work, command: RememberCommand, same: MemoryRow, new: MemoryRow, is_rated: bool
) -> MemoryRow:
    """Returns the known memory with what the command says of it beyond its text, as it would be
    stored in a `new` one: nothing that it has gets lost, except for a value that is replaced.

    What another program keeps (`source_type`) has type, project and metadata of its own: the memory
    of another item with the same text does not take them over."""
    source = (command.source_type, command.source_id)
    is_same_item = command.source_id is not None and source == (same.source_type, same.source_id)
    if command.source_type != _BY_HAND and not is_same_item:
        command = command.model_copy(update={"type": None, "project": None, "metadata": {}})
    is_open = not (work.by_machine and protected(same))
    rated = new.importance if is_rated else same.importance
    if is_guarded(work) and same.importance > EXPLICIT_IMPORTANCE:
        rated = same.importance
    metadata = {**json.loads(same.metadata), **_metadata(command)}
    lasting = new if work.edition and is_open and _holds_longer(work, same, new) else same
    return replace(
        same,
        pinned=same.pinned or new.pinned,
        importance=rated,
        tags=tuple(dict.fromkeys((*same.tags, *new.tags))),
        type=command.type if command.type and is_open else same.type,
        project=command.project or same.project,
        metadata=json.dumps(metadata, sort_keys=True, ensure_ascii=False),
        temporal_kind=lasting.temporal_kind,
        valid_until=lasting.valid_until,
    )


def _holds_longer(work: Work, same: MemoryRow, new: MemoryRow) -> bool:
    """Whether the text, said again, holds past the end of the known memory: "until Friday" is
    another Friday a week later."""
    if same.valid_until is None:
        return new.valid_until is not None
    has_ended = same.valid_until <= work.message.occurred_at
    return has_ended or (new.valid_until is not None and new.valid_until > same.valid_until)


def _row(
    work: Work,
    command: RememberCommand,
    stored: str,
    importance: float,
    is_pinned: bool,
    tags: tuple[str, ...],
) -> MemoryRow:
    kind = command.type or inferred_type(stored)
    columns = text_columns(work.scope, kind, stored)
    until = None
    if work.edition and command.drawn_from is None:
        until = end_of_text(stored, work.message.occurred_at)
    if command.drawn_from:
        columns["dedup_key"] = None
    return row_of(
        MemoryRow,
        command,
        **columns,
        memory_id=command_memory_id(work.scope, command_id(work.message)),
        scope=work.scope,
        type=kind,
        importance=importance,
        confidence=1.0,
        pinned=is_pinned,
        tags=command.tags or tags,
        categories=categories_of(stored),
        temporal_kind="persistent" if until is None else "temporal",
        valid_until=until,
        who=work.intent.actor.id if command.who is None else command.who,
        why="drawn" if command.drawn_from else "explicit",
        occurred_at=work.message.occurred_at,
        created_at=work.at,
        updated_at=work.at,
        updated_by=work.intent.actor.id,
        metadata=json.dumps(_metadata(command), sort_keys=True, ensure_ascii=False),
    )


def end_of_text(stored: str, said_at: datetime) -> datetime | None:
    """Returns when the text as a whole ends, if it says so."""
    end = stated_end(stored, said_at) if says_one_thing(stored) else None
    return None if end is None else end.astimezone(UTC)


def says_one_thing(stored: str) -> bool:
    """Whether a text is one statement, so that it ends as a whole: of several the others go on."""
    if "\n" in stored or len(sentences(_ORDINAL.sub("", stored))) > 1:
        return False
    return sum(len(part.split()) >= LEAST_WORDS for part in _JOINED.split(stored)) <= 1


def _replace_drawn(work: Work, command: RememberCommand) -> None:
    """Forgets what was drawn before. Raises Refused where a source was changed meanwhile, or a
    person had a hand in what is to be replaced."""
    refuse_others(work, "only the worker says that a memory was drawn from others")
    refuse_in_private_scope(work)
    for each in command.drawn_from or ():
        row = work.memories.get(each.memory_id)
        if row is None or row.is_deleted or row.version != each.version:
            raise Refused(f"version_conflict: memory {each.memory_id} was changed meanwhile")
    before = work.loaded.by_source.get(command.source_id or "")
    if before is None:
        return
    if protected(before) or before.updated_by != work.intent.actor.id:
        raise Refused(f"forbidden: a person had a hand in memory {before.memory_id}")
    work.memories[before.memory_id] = before
    work.remove(before, "drawn again", archive="replaced")


def _metadata(command: RememberCommand) -> dict[str, JsonValue]:
    if command.lineage is None:
        return command.metadata
    return {**command.metadata, "lineage": command.lineage}


def _to_extract(row: MemoryRow, command: RememberCommand) -> NormalizedTurn:
    """Returns the text in the form of a turn for extract. Its speaker is the one named by the
    request, since the actor may be a program."""
    return NormalizedTurn(
        turn_id=row.memory_id,
        memory_id=row.memory_id,
        item_id=row.memory_id,
        session_id=row.session_id,
        speaker=command.who or "",
        content=row.content,
        normalized_content=row.normalized_content,
        content_hash=row.content_hash,
        explicit_long_term_memory_intent=True,
        project=row.project,
    )
