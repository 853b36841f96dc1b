"""The messages of one conversation, kept as turns: what the frameworks' histories are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.library.methods import BlockingMethods, Methods, asynchronous
from palimpsest.ops.library.results import StoredMemory
from palimpsest.ops.parts import utc_now
from palimpsest.schemas.messages import Role

KEPT: Final = "message"
"""The field of a turn's metadata in which the framework's own message lies."""
PAGE: Final = 200
AT_ONCE: Final = 25
"""Turns that are forgotten by one command: more would ask for a preview to be confirmed."""
STEP: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Message:
    """`text` is what can be recalled of it; `whole` what the framework gets back, as JSON."""

    role: Role
    text: str
    whole: JsonValue
    speaker: str = ""


class History:
    """The conversation `session` of the memory's scope. Turns that came another way are none of
    its messages. What is taken back here is forgotten: facts drawn from it stay."""

    def __init__(self, memory: Methods | BlockingMethods, session: str) -> None:
        if not session.strip():
            raise ValueError("the session is empty; name the conversation")
        self.memory = asynchronous(memory)
        self.session = session
        self._last: datetime | None = None

    async def messages(self, limit: int | None = None) -> list[JsonValue]:
        """The newest `limit` of them, all for None, in the order in which they were said."""
        return [each.metadata[KEPT] for each in await self._newest(limit)][::-1]

    async def append(self, messages: Iterable[Message]) -> None:
        """Returns when they can be recalled."""
        turns = [
            {
                "content": each.text.strip() or f"[{each.role}]",
                "role": each.role,
                "speaker": each.speaker,
                "occurred_at": self._now(),
                "metadata": {KEPT: each.whole},
            }
            for each in messages
        ]
        if turns:
            await self.memory.add(turns, session=self.session)

    async def pop(self) -> JsonValue:
        """Take the newest one back; None where there is none."""
        newest = await self._newest(1)
        if not newest:
            return None
        await self._forget(newest)
        return newest[0].metadata[KEPT]

    async def clear(self) -> None:
        """Take all of them back."""
        await self._forget(await self._newest(None))

    async def _newest(self, limit: int | None) -> list[StoredMemory]:
        found: list[StoredMemory] = []
        before: str | None = None
        while limit is None or len(found) < limit:
            page = await self.memory.list(
                types=["episodic"], session=self.session, limit=PAGE, before=before
            )
            found += [each for each in page.memories if KEPT in each.metadata]
            before = page.next
            if before is None:
                break
        return found[:limit]

    async def _forget(self, turns: list[StoredMemory]) -> None:
        for start in range(0, len(turns), AT_ONCE):
            ids = [each.id for each in turns[start : start + AT_ONCE]]
            await self.memory.forget(*ids, reason="taken back from the conversation", force=True)

    def _now(self) -> datetime:
        """Later than any before, so that messages keep their order."""
        now = utc_now()
        if self._last is not None:
            now = max(now, self._last + STEP)
        self._last = now
        return now
