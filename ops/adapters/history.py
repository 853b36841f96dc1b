"""The messages of one conversation, stored as turns: the basis of the frameworks' histories."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods, asynchronous
from palimpsest.ops.operations.answers import Changes, MemoryChange, StoredMemory
from palimpsest.ops.parts import utc_now
from palimpsest.ops.transport.base import NotDoneError
from palimpsest.schemas.messages import Role
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.spans import SECRETS, Kind

ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
"""What frameworks call the roles; all others are as a tool's."""
KEPT: Final = "message"
"""The field of a turn's metadata that holds the framework's own message."""
PAGE: Final = 200
AT_ONCE: Final = 25
"""Memories that one command forgets: more would require a confirmed preview."""
FORGOTTEN: Final = frozenset({"forgotten", "deleted"})
"""What became of a memory that is forgotten now."""
STEP: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Message:
    """`text` can be recalled; `whole` is what the framework gets back, as JSON."""

    role: Role
    text: str
    whole: Any
    speaker: str = ""


class _Clock:
    """Unique times for the messages of this process, so messages keep their order and those of one
    batch stay together, across all histories."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = datetime.min.replace(tzinfo=UTC)

    def times(self, count: int) -> list[datetime]:
        with self._lock:
            first = max(utc_now(), self._last + STEP)
            self._last = first + (count - 1) * STEP
        return [first + number * STEP for number in range(count)]


_CLOCK: Final = _Clock()


class History:
    """The conversation `session` of the memory's scope. Turns from other sources are not its
    messages. A removed message is forgotten; facts extracted from it stay. With `redact`, messages
    come back without secrets."""

    def __init__(
        self, memory: AsyncMethods | BlockingMethods, session: str, *, redact: bool = False
    ) -> None:
        if not session.strip():
            raise ValueError("the session is empty; name the conversation")
        self.memory = asynchronous(memory)
        self.session = session
        self._redact = redact

    async def messages(self, limit: int | None = None) -> list[JsonValue]:
        """Returns the newest `limit` messages, all for None, oldest first."""
        return [whole for _, whole in await self._newest(limit)][::-1]

    async def append(self, messages: Iterable[Message]) -> None:
        """Appends messages; returns when they can be recalled."""
        listed = [*messages]
        if not listed:
            return
        turns = [
            {
                "content": each.text.strip() or f"[{each.role}]",
                "role": each.role,
                "speaker": each.speaker,
                "occurred_at": at,
                "metadata": packed({KEPT: each.whole}, redact=self._redact),
            }
            for each, at in zip(listed, _CLOCK.times(len(listed)), strict=True)
        ]
        await self.memory.add(turns, session_id=self.session)

    async def pop(self) -> JsonValue:
        """Removes and returns the newest message; None if there is none. Concurrent calls get
        different messages."""
        while newest := await self._newest(1):
            [(row, whole)] = newest
            [change] = await self._forget([row])
            if change.status == "forgotten":
                return whole
        return None

    async def clear(self) -> None:
        """Removes all messages."""
        await self._forget([row for row, _ in await self._newest(None)])

    async def _newest(self, limit: int | None) -> list[tuple[StoredMemory, JsonValue]]:
        found: list[tuple[StoredMemory, JsonValue]] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            page = await self.memory.list(
                types=["episodic"], session_id=self.session, limit=PAGE, cursor=cursor
            )
            wholes = [(row, unpacked(row.metadata)) for row in page.memories]
            found += [(row, whole[KEPT]) for row, whole in wholes if KEPT in whole]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found if limit is None else found[: max(limit, 0)]

    async def _forget(self, turns: list[StoredMemory]) -> list[MemoryChange]:
        ids = [each.id for each in turns]
        reason = "taken back from the conversation"
        return await forget(self.memory, ids, reason=reason, force=True)


async def forget(memory: AsyncMethods, ids: list[str], **how: Any) -> list[MemoryChange]:
    """Forgets any number of memories; `how` as in the method of the memory. One that somebody else
    has forgotten meanwhile is `deleted`, which is no error."""
    done: list[MemoryChange] = []
    for start in range(0, len(ids), AT_ONCE):
        try:
            answer = await memory.forget(ids[start : start + AT_ONCE], **how)
        except NotDoneError as error:
            if not error.changes or {each.status for each in error.changes} - FORGOTTEN:
                raise
            done += error.changes
            continue
        assert isinstance(answer, Changes)  # what ids name is not only shown
        done += answer.changes
    return done


# Stores a framework's values so that they come back unchanged, even with secrets. The text of a
# memory is always redacted. The metadata holds the framework's own value: as JSON if redaction
# would not change it, else packed, so that no redaction changes it on the way.

PACKED: Final = "packed"
_DIGITS: Final = "0123456789abcdef"
_SAFE: Final = "ghijklmnopqrstuv"
"""Replaces digits, which could look like a card number."""
_ALL: Final = Policy(frozenset(get_args(Kind)))


def packed(whole: dict[str, Any], *, redact: bool) -> dict[str, JsonValue]:
    """Returns metadata from which `unpacked` restores `whole`; with `redact`, plain metadata that
    redaction may change."""
    plain: dict[str, JsonValue] = to_jsonable_python(whole)
    if redact or not is_redacted(plain):
        return plain
    data = zlib.compress(json.dumps(plain).encode())
    return {PACKED: data.hex().translate(str.maketrans(_DIGITS, _SAFE))}


def unpacked(metadata: dict[str, JsonValue]) -> dict[str, Any]:
    """Returns the value passed to `packed`; returns any other metadata unchanged."""
    text = metadata.get(PACKED)
    if not isinstance(text, str):
        return metadata
    data = bytes.fromhex(text.translate(str.maketrans(_SAFE, _DIGITS)))
    whole: dict[str, Any] = json.loads(zlib.decompress(data))
    return whole


def without_secrets(value: dict[str, Any]) -> JsonValue:
    """Returns the value without secrets, to become text: without member names, redaction no longer
    recognizes the text of `password` as a secret."""
    return Policy(SECRETS).json(to_jsonable_python(value))


def is_redacted(plain: dict[str, JsonValue]) -> bool:
    """Whether redaction of all kinds would change it as metadata."""
    return _ALL.json(plain) != plain
