"""A session of the OpenAI Agents SDK: a conversation that goes on after a restart."""

from __future__ import annotations

from typing import Any, cast

from agents.items import TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.memory.session_settings import resolve_session_limit

from palimpsest.ops.adapters.history import ROLES, History, Message
from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods


class PalimpsestSession(SessionABC):
    """Keeps the items of a session as turns, from which memories are drawn meanwhile. With
    `redact`, items come back without secrets.

    session = PalimpsestSession(memory, "support-7")
    result = await Runner.run(agent, "I moved to Lisbon.", session=session)
    """

    def __init__(
        self,
        memory: AsyncMethods | BlockingMethods,
        session_id: str,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        redact: bool = False,
    ) -> None:
        self.session_id = session_id
        self.session_settings = SessionSettings().resolve(session_settings)
        self._history = History(memory, session_id, redact=redact)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, for None those of the settings' limit, oldest first."""
        limit = resolve_session_limit(limit, self.session_settings)
        return cast("list[TResponseInputItem]", await self._history.messages(limit))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items."""
        # One without a known role, for example a tool call, has the role `tool`.
        await self._history.append(
            Message(ROLES.get(str(item.get("role")), "tool"), _text(item), item)
            for item in cast("list[dict[str, Any]]", items)
        )

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item back."""
        return cast("TResponseInputItem | None", await self._history.pop())

    async def clear_session(self) -> None:
        """Take all items back; what was drawn from them stays remembered."""
        await self._history.clear()


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(each["text"]) for each in content if "text" in each)
    said = (item.get(name) for name in ("type", "name", "arguments", "output"))
    return " ".join(str(each) for each in said if each)
