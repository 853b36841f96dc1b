"""What apply-writes reports of its work: settlements, changes, mentions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from palimpsest.schemas.commands import ModifyCommand
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.messages import CacheInvalidation, MemoryChange, Outcome
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.schemas.rows import MemoryRow, MentionRow, OutcomeRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from palimpsest.streams.memory_rows import is_erased
from palimpsest.streams.stage import Emit, Message
from palimpsest.streams.store_port import Load, Put, Write
from palimpsest.streams.text.linker import candidate_names, names_in, unspaced_part

MOST_INVALIDATED = 5_000
"""Maximum number of memories in one record: an erased scope may have had any number."""


def load_names(scope: str, texts: Sequence[str]) -> Load:
    """Returns what to load for `link_writes`: the names that may occur in these texts."""
    return Load(
        scope,
        names=tuple(dict.fromkeys(name for text in texts for name in candidate_names(text))),
        unspaced_text=" ".join(filter(None, map(unspaced_part, texts))),
    )


def texts_after(command: ModifyCommand, memories: Mapping[str, MemoryRow]) -> list[str]:
    """Returns the texts that the memories may have afterwards, in which names are looked for: each
    patch of a memory may change its text or its speaker, and any patch may be refused."""
    texts = []
    for row in memories.values():
        patches = [patch for patch in command.patches if patch.memory_id == row.memory_id]
        for who in {row.who, *(p.who for p in patches if p.who is not None)}:
            contents = (storage_content(p.content) for p in patches if p.content is not None)
            texts += [linked_text(row.type, who, text) for text in {row.content, *contents}]
    return sorted(texts)


def link_writes(row: MemoryRow, names: Mapping[str, str]) -> list[Write]:
    """Returns mentions of those known names (canonical, with their ids) that occur in the memory's
    text."""
    text = linked_text(row.type, row.who, row.content)
    return [
        Put(mention_row(row, name_id, shown))
        for name, name_id in names.items()
        if (shown := names_in(text, name)) is not None
    ]


def mention_row(row: MemoryRow, name_id: str, shown: str) -> MentionRow:
    """Returns a mention of the name in the memory's present text, as it is spelled there."""
    return MentionRow(
        memory_id=row.memory_id,
        text_key=row.embedding_key,
        name_id=name_id,
        scope=row.scope,
        mention_text=shown,
        confidence=1.0,
    )


def outcome_row(message: Message, outcome: Outcome) -> OutcomeRow:
    """Returns the settlement of an item of the balance."""
    return OutcomeRow(
        item_kind=outcome.item_kind,
        item_id=outcome.item_id,
        scope=message.scope,
        event=outcome.event,
        memory_id=outcome.memory_id,
        reason=outcome.reason,
        recorded_at=message.recorded,
    )


InvalidationKind = Literal["server", "personal"]
Touched = Iterable[tuple[str, InvalidationKind]]
"""Changed memories in order, each with the kind of caches that hold it."""


def kinds_of(before: MemoryRow | None, after: MemoryRow) -> tuple[InvalidationKind, ...]:
    """Returns which caches hold a changed memory: `personal` if it belongs to a person (`who`),
    `server` if it belongs to the scope as a whole; both if that has changed. An erased one belongs
    to no one, and its caches are those of its previous state."""
    rows = (after,) if before is None else (before, after)
    if before is not None and is_erased(after):
        rows = (before,)
    kinds: list[InvalidationKind] = ["personal" if row.who else "server" for row in rows]
    return tuple(dict.fromkeys(kinds))


def changes(change: MemoryChange, touched: Touched = ()) -> tuple[Emit, ...]:
    """Returns the outcome of an intent and, if long-term memory changed, one invalidation for each
    kind of cache."""
    emits = [Emit(MEMORY_CHANGES, change, "change")]
    changed = tuple(touched)
    for kind, name in (("personal", "invalidate"), ("server", "invalidate-server")):
        ids = tuple(dict.fromkeys(memory_id for memory_id, of in changed if of == kind))
        for first in range(0, len(ids), MOST_INVALIDATED):
            some = CacheInvalidation.model_validate(
                {"memory_ids": ids[first : first + MOST_INVALIDATED], "kind": kind}
            )
            emits.append(Emit(CACHE_INVALIDATIONS, some, name if first == 0 else f"{name}-{first}"))
    return tuple(emits)
