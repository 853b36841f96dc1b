"""Sessions of a scope, and what each keeps for a short time."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime

from palimpsest.ops.queries.errors import NotFoundError, RequestError
from palimpsest.ops.queries.memories import list_memories
from palimpsest.ops.queries.pages import cursor
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, plain, rfc3339, rows
from palimpsest.schemas.session_rows import ShortTermRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.recall.marks import marks_of
from palimpsest.stores.recall.short_term import Said, ShortTerm, within
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.sessions import alive
from palimpsest.streams.settings import ShortTermSettings
from palimpsest.streams.text.hiding import PLACEHOLDER

_SESSIONS = """
SELECT session_id, scope, first_turn, last_turn, turns, first_at AS began_at, last_at,
    ended_at, ended_by, ends
FROM session_rows WHERE scope = $scope AND session_id <> ''
    AND ($at::TIMESTAMPTZ IS NULL OR (last_at, session_id) < ($at::TIMESTAMPTZ, $id))
    AND (NOT $open OR ended_at IS NULL)
ORDER BY last_at DESC, session_id DESC LIMIT $limit + 1
"""
_TURNS = """
SELECT memory_id, who, content, occurred_at FROM memory_rows
WHERE scope = ? AND NOT is_deleted AND memory_id IN (SELECT unnest(?))
"""


def sessions(
    sources: Sources, scope: str, is_open: bool, limit: int, after: str | None
) -> JsonObject:
    """A page of `sessions`, the one with the newest turn first, and `next_cursor` for the page
    after (or null). An open one has no `ended_at`."""
    if not scope.strip():
        raise RequestError("the scope is empty")
    at, session_id = (None, "") if after is None else cursor(after)
    found = rows(
        sources.shard_of(scope),
        _SESSIONS,
        {
            "scope": scope,
            "at": at,
            "id": session_id,
            "open": is_open,
            "limit": limit,
        },
    )
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    return {
        "sessions": [*page],
        "next_cursor": None if last is None else f"{last['last_at']}/{last['session_id']}",
    }


def session_memories(
    sources: Sources, scope: str, session_id: str, limit: int, after: str | None
) -> JsonObject:
    """`short_term`, what is kept of a session (null where nothing is, or no more), and a page of
    its `memories`. Raises NotFoundError where both are empty."""
    kept = _short_term_json(sources, scope, session_id)
    found = list_memories(sources, scope=scope, session_id=session_id, limit=limit, after=after)
    if kept is None and not found["memories"] and after is None:
        raise NotFoundError(f"nothing is remembered of a session {session_id} in the scope {scope}")
    return {"short_term": kept, **found}


def _short_term_json(sources: Sources, scope: str, session_id: str) -> JsonObject | None:
    """Its `summary`, and its newest `turns`, oldest first, within the caps of the settings."""
    kept = short_term(sources, scope, session_id)
    if kept is None:
        return None
    summary: JsonObject | None = None
    if kept.summary is not None and kept.summary_at and kept.summary_expires_at:
        summary = {
            "text": kept.summary,
            "by": kept.summary_by,
            "at": rfc3339(kept.summary_at),
            "expires_at": rfc3339(kept.summary_expires_at),
        }
    return {
        "session_id": session_id,
        "scope": scope,
        "summary": summary,
        "turns": [
            {
                "id": said.id,
                "who": said.who,
                "content": said.content,
                "occurred_at": rfc3339(said.at),
                "marks": [plain(asdict(mark)) for mark in said.marks],
            }
            for said in kept.turns
        ],
        "turns_expire_at": None if kept.turns_expire_at is None else rfc3339(kept.turns_expire_at),
        "explicit_intent": kept.explicit_intent,
    }


def short_term(sources: Sources, scope: str, session_id: str) -> ShortTerm | None:
    """What is alive of a session's short-term memory now."""
    settings, shard = sources.settings.short_term, sources.shard_of(scope)
    return short_term_of(shard, settings, sources.now(), scope, session_id)


def short_term_of(
    shard: Shard, settings: ShortTermSettings, at: datetime, scope: str, session_id: str
) -> ShortTerm | None:
    """What is alive of it at a time. Its texts are those of the turns' memories as
    they are now; one that was forgotten is not among them, and a summary that was written after
    such a turn, or one of which something was forgotten, is not shown."""
    with shard.reading() as reader:
        found = select(reader, ShortTermRow, "scope = ? AND session_id = ?", [scope, session_id])
        row = alive(found[0] if found else None, at)
        if row is None:
            return None
        told = reader.execute(_TURNS, [scope, list(row.turns)]).fetchall()
        marks = marks_of(reader, scope, row.turns, at)
    known = {
        key: Said(key, who, content, said_at.astimezone(UTC), marks.get(key, ()))
        for key, who, content, said_at in told
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
