"""Reads the short-term memory of a session."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from palimpsest.ops.sources import Sources
from palimpsest.schemas.rows import ShortTermRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.recall.marks import marks_of
from palimpsest.stores.recall.short_term import KeptTurn, ShortTerm, within
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.sessions import alive
from palimpsest.streams.settings import ShortTermSettings
from palimpsest.streams.text.hiding import PLACEHOLDER


def short_term(sources: Sources, scope: str, session_id: str) -> ShortTerm | None:
    """Returns the unexpired short-term memory of a session."""
    settings, shard = sources.settings.short_term, sources.shard_of(scope)
    return short_term_of(shard, settings, sources.now(), scope, session_id)


def short_term_of(
    shard: Shard, settings: ShortTermSettings, at: datetime, scope: str, session_id: str
) -> ShortTerm | None:
    """Returns the short-term memory that is unexpired at a time. Texts come from the turns' current
    memories. Forgotten turns are left out, and so is a summary written after a turn that is
    forgotten in whole or in part."""
    with shard.reading() as reader:
        found = select(reader, ShortTermRow, "scope = ? AND session_id = ?", [scope, session_id])
        row = alive(found[0] if found else None, at)
        if row is None:
            return None
        texts = reader.execute(
            "SELECT memory_id, who, content, occurred_at FROM memory_rows"
            " WHERE scope = ? AND NOT is_deleted AND memory_id IN (SELECT unnest(?))",
            [scope, list(row.turns)],
        ).fetchall()
        marks = marks_of(reader, scope, row.turns, at)
    known = {
        key: KeptTurn(key, who, content, said_at.astimezone(UTC), marks.get(key, ()))
        for key, who, content, said_at in texts
    }
    position = -1
    if row.summarized_through in row.turns:
        position = row.turns.index(row.summarized_through)
    rests_on = row.turns[: position + 1]
    is_whole = all(turn in known and PLACEHOLDER not in known[turn].content for turn in rests_on)
    turns = [known[turn] for turn in row.turns if turn in known]
    later = [known[turn] for turn in row.turns[position + 1 :] if turn in known]
    kept = ShortTerm(
        turns=within(turns, settings.turns, settings.characters),
        turns_expire_at=row.turns_expire_at,
        explicit_intent=row.explicit_intent,
        since_summary=within(later, settings.turns, settings.characters),
    )
    if row.summary is not None and is_whole:
        kept = replace(
            kept,
            summary=row.summary,
            summary_by=row.summary_by,
            summary_at=row.summary_at,
            summary_expires_at=row.summary_expires_at,
        )
    return kept if kept.turns or kept.summary is not None else None
