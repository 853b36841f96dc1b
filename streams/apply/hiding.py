"""Hides what was forgotten in its source texts, and shows it again after recovery."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from palimpsest.schemas.enumerations import OutcomeEvent
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.normal_forms import content_hash
from palimpsest.schemas.rows import DOCUMENT_CHUNK, SOURCE_TYPES
from palimpsest.streams.apply.command_work import Work
from palimpsest.streams.apply.outcomes import load_names
from palimpsest.streams.memory_rows import (
    archived,
    changed,
    deleted,
    is_erased,
    protected,
    with_content,
)
from palimpsest.streams.stage import Answer, Ask
from palimpsest.streams.store_port import HIDDEN, Load, Loaded, Put, Source
from palimpsest.streams.text.hiding import Hidden, without_sentences, without_statements


@dataclass(frozen=True, slots=True)
class _Change:
    """The new state of a source; `left` has no text if all of it is hidden."""

    source: Source
    left: Hidden


def hide_or_show(
    work: Work, memory_ids: Iterable[str], reason: str
) -> Generator[Ask, Answer, Mapping[str, list[str]]]:
    """Updates the sources of memories that a command forgot or recovered to what remains visible.
    Returns the changed sources, by memory."""
    ids = tuple(dict.fromkeys(memory_ids))
    if not ids:
        return {}
    found = yield Load(work.message.scope, sources_of=ids)
    assert isinstance(found, Loaded)
    changes = [_change(work, source) for _, source in sorted(found.sources.items())]
    making = [each for each in changes if each is not None]
    texts = [
        linked_text(each.source.row.type, each.source.row.who, each.left.text) for each in making
    ]
    loaded = yield replace(
        load_names(work.message.scope, texts),
        content_hashes=tuple(content_hash(each.left.text) for each in making),
    )
    assert isinstance(loaded, Loaded)
    work.know(loaded)
    work.names = loaded.entities
    changed: dict[str, list[str]] = {}
    for each in making:
        _carry_out(work, each, reason)
        for statement in each.source.statements:
            source_ids = changed.setdefault(statement.memory_id, [])
            if each.source.row.memory_id not in source_ids:
                source_ids.append(each.source.row.memory_id)
    return changed


def hidden_text(source: Source, forgotten: Iterable[str]) -> Hidden:
    """Returns what remains of a source without what these memories say."""
    gone = set(forgotten)
    statements = [each.text for each in source.statements if each.memory_id in gone]
    return without_statements(source.text, statements, source.row.who)


def _change(work: Work, source: Source) -> _Change | None:
    row = work.memories.get(source.row.memory_id, source.row)
    if row.type == DOCUMENT_CHUNK or is_erased(row) or (row.is_deleted and not source.is_hidden):
        return None
    if work.by_machine and protected(row):
        return None
    left = hidden_text(source, _forgotten(work, source))
    is_as_it_is = row.is_deleted if not left.text else left.text == row.content
    if is_as_it_is and row.is_deleted == (not left.text):
        return None
    return _Change(source, left)


def _forgotten(work: Work, source: Source) -> set[str]:
    """Returns the forgotten memories derived from it, including the command's changes."""
    now = {memory_id for memory_id, _ in work.touched}
    return {
        each.memory_id
        for each in source.statements
        if (
            work.memories[each.memory_id].is_deleted if each.memory_id in now else each.is_forgotten
        )
    }


def _carry_out(work: Work, change: _Change, reason: str) -> None:
    row, left = change.source.row, change.left
    after = changed(row, work.at, work.intent.actor.id, 0)
    work.writes.append(Put(archived(row, HIDDEN, work.at)))
    if not left.text:
        gone = work.put(deleted(after, work.at))
        work.tell("deleted", row.memory_id, reason, row, gone, {"hidden": True})
        return
    after = with_content(replace(after, is_deleted=False, deleted_at=None), left.text)
    after = replace(after, metadata=_metadata(change.source.metadata, left))
    if after.type not in SOURCE_TYPES and work.same_content(after) is not None:
        # Memories are unique by content: this one only keeps the remaining text.
        after = replace(after, dedup_key=None)
    shown = work.put(after)
    event: OutcomeEvent = "recovered" if row.is_deleted else "modified"
    work.tell(event, row.memory_id, reason, row, shown, {"hidden": bool(left.sentences)})


def _metadata(kept: str, left: Hidden) -> str:
    if not left.sentences:
        return kept
    value = without_sentences(json.loads(kept), left.sentences)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def told_hiding(result: JsonValue, hidden: Mapping[str, list[str]]) -> JsonValue:
    """Returns a command's result that lists, with each memory, the texts in which it is hidden or
    shown."""
    if isinstance(result, list):
        return [told_hiding(each, hidden) for each in result]
    if not isinstance(result, dict):
        return result
    sources = hidden.get(str(result.get("id")))
    return result if not sources else result | {"hidden_in": [*sources]}
