"""What apply-writes says of what it did: settlements, changes, mentions."""

from __future__ import annotations

from schemas.messages import CacheInvalidation, MemoryChange, Outcome
from schemas.rows import MentionRow, OutcomeRow
from schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from streams.linker import candidate_names, unspaced_part
from streams.stage import Emit, Loaded, Message, Put, Write


def link_writes(scope: str, memory_id: str, loaded: Loaded, text: str) -> list[Write]:
    """Mentions of those loaded entities that the text names."""
    names = candidate_names(text)
    unspaced = unspaced_part(text)
    shown: dict[str, str] = {}
    for name, known in loaded.entities.items():
        if name in names:
            mention = names[name]
        elif unspaced and not name.isascii() and name in unspaced:
            mention = name
        else:
            continue
        shown[known] = min(mention, shown.get(known, mention))
    return [
        Put(
            MentionRow(
                memory_id=memory_id,
                entity_id=known,
                scope=scope,
                mention_text=mention,
                confidence=1.0,
            )
        )
        for known, mention in shown.items()
    ]


def outcome_row(message: Message, outcome: Outcome) -> OutcomeRow:
    """The settlement of an item of the balance."""
    return OutcomeRow(
        item_kind=outcome.item_kind,
        item_id=outcome.item_id,
        scope=message.scope,
        event=outcome.event,
        memory_id=outcome.memory_id,
        reason=outcome.reason,
        recorded_at=message.recorded,
    )


def changes(change: MemoryChange, touched: tuple[str, ...] = ()) -> tuple[Emit, ...]:
    """The outcome of an intent, and for long-term memory that changed, the word to caches."""
    emits = [Emit(MEMORY_CHANGES, change, "change")]
    if touched:
        emits.append(Emit(CACHE_INVALIDATIONS, CacheInvalidation(memory_ids=touched), "invalidate"))
    return tuple(emits)
