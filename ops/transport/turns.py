"""Converts the turns that programs pass to records for the log."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from palimpsest.ops.errors import RequestError
from palimpsest.ops.ingest.lines import FIELDS, Watch, near_miss, turn_of, without_effect
from palimpsest.ops.ingest.parsers.base import Bad, ReadOptions
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy

Turn: TypeAlias = str | Mapping[str, object]
"""A text, or the fields of a turn: `content`, and optionally `role`, `speaker`, `turn_id`,
`session_id`, `occurred_at`, `source_id`, `tags`, `metadata`."""


def turn_records(
    turns: Turn | Sequence[Turn],
    scope: str,
    max_bytes: int,
    now: datetime,
    defaults: Mapping[str, object],
    policy: Policy,
) -> tuple[list[Outgoing], tuple[str, ...]]:
    """Returns the records in order, and the ids of their future memories. `defaults` fill missing
    fields; a turn without a `turn_id` is new, one without a time gets `now`. Raises RequestError
    with the number of an invalid turn; then nothing is published."""
    options = ReadOptions(scope, max_bytes, now, policy=policy)
    watch = Watch()
    items = [turns] if isinstance(turns, str | Mapping) else turns
    if not isinstance(items, Iterable) or isinstance(items, bytes):
        raise RequestError("turns: give a text, the fields of a turn, or a list of them")
    records, ids = [], []
    for number, each in enumerate(items):
        fields: dict[str, object] = {"turn_id": uuid.uuid4().hex, **defaults}
        given = {"content": each} if isinstance(each, str) else each
        if not isinstance(given, Mapping):
            raise RequestError(f"turn {number}: give a text or the fields of a turn")
        fields |= given
        if "body" in fields and "content" not in fields:
            raise RequestError(f"turn {number}: give the fields of the turn, not an envelope")
        if fields.get("scope", scope) != scope:
            raise RequestError(f"turn {number}: scope: name it as an argument, for all turns")
        record = turn_of(fields, f"turn {number}", options, watch)
        if isinstance(record, Bad):
            raise RequestError(f"{record.place}: {record.reason}")
        for name in given:
            meant = None if name in (*FIELDS, "schema") else near_miss(name, {**defaults, **given})
            if meant is not None:
                raise RequestError(f"turn {number}: {without_effect(name, meant)}")
        records.append(record)
        ids.append(turn_memory_id(scope, str(fields["turn_id"])))
    return records, tuple(ids)
