"""Reading sessions for a batch: those that are asked for, and all that are open beside them."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.schemas.session_rows import OpenSessionsRow, SessionRow, ShortTermRow
from palimpsest.stores.writing.batch_rows import BatchRows
from palimpsest.stores.writing.stored_rows import StoredRows
from palimpsest.streams.store_port import Load


def prefetch_sessions(stored: StoredRows, loads: Sequence[Load]) -> list[tuple[str]]:
    """Read what `Load.session_id` wants, in bulk. Returns the keys of the turns that are asked for
    next, once the sessions are known."""
    keys = [(load.scope, load.session_id) for load in loads if load.session_id is not None]
    scopes = [(scope,) for scope in dict.fromkeys(scope for scope, _ in keys)]
    stored.fetch(OpenSessionsRow, scopes)
    opened = [stored.rows[OpenSessionsRow][scope] for scope in scopes]
    open_keys = [
        (row.scope, session_id)
        for row in opened
        if isinstance(row, OpenSessionsRow)
        for session_id in row.session_ids
    ]
    stored.fetch(SessionRow, [*keys, *open_keys])
    stored.fetch(ShortTermRow, keys)
    known = stored.rows[SessionRow]
    sessions = [known[key] for key in dict.fromkeys(keys)]
    return [
        (turn_id,)
        for session in sessions
        if isinstance(session, SessionRow)
        for turn_id in session.extracted_turns
    ]


def open_sessions(rows: BatchRows, scope: str) -> tuple[SessionRow, ...]:
    """The open sessions of a scope, as the batch has left them."""
    opened = rows.get(OpenSessionsRow, (scope,))
    ids = () if opened is None else opened.session_ids
    found = [rows.get(SessionRow, (scope, session_id)) for session_id in ids]
    return tuple(session for session in found if session is not None)
