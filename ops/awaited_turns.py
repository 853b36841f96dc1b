"""Fetches the outcomes of published turns: one query for many turns of a scope."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from palimpsest.ops.awaited_results import LOOK_SECONDS
from palimpsest.ops.operations.pipeline import TurnResults
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import Queries
from palimpsest.schemas.codec import decode
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing

AT_ONCE = 1_000
"""Maximum number of turns in one query."""


class TurnKey(NamedTuple):
    """A published turn: its scope, and its id in the balance."""

    scope: str
    item_id: str


def key_of(record: Outgoing) -> tuple[TurnKey, ConversationTurn]:
    """Returns the key to wait for a turn's record by, and the turn."""
    value = record.value or b""
    message = decode(value, CONVERSATION_TURNS, None, len(value))
    assert isinstance(message.body, ConversationTurn)
    [item_id] = items_of(message).item_ids
    return TurnKey(message.scope, item_id), message.body


async def results_of(queries: Queries, keys: Sequence[TurnKey]) -> Mapping[TurnKey, JsonObject]:
    """Returns the outcomes of the settled turns. Raises RequestError."""
    by_scope: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        by_scope[key.scope].append(key.item_id)
    found: dict[TurnKey, JsonObject] = {}
    for scope, ids in by_scope.items():
        for first in range(0, len(ids), AT_ONCE):
            asked = TurnResults(tuple(ids[first : first + AT_ONCE]), scope)
            turns = cast("JsonObject", await queries.answer(asked))["turns"]
            for turn in cast("list[JsonObject]", turns):
                found[TurnKey(scope, str(turn["item_id"]))] = turn
    return found


async def settled(
    queries: Queries, keys: Sequence[TurnKey], seconds: float
) -> Mapping[TurnKey, JsonObject]:
    """Waits up to `seconds` for the turns to settle, in this or another process; returns the
    outcomes by then. Raises RequestError."""
    found: dict[TurnKey, JsonObject] = {}
    left = [*dict.fromkeys(keys)]
    deadline = time.monotonic() + seconds
    while True:
        found |= await results_of(queries, left)
        left = [key for key in left if key not in found]
        if not left or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(LOOK_SECONDS)
