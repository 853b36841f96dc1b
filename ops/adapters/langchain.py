"""A retriever and a chat history for LangChain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from palimpsest.ops.adapters.history import History, Message
from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods, asynchronous
from palimpsest.schemas.messages import Role
from palimpsest.stores.recall.query import with_marks

ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system"}


class PalimpsestRetriever(BaseRetriever):
    """Memories as documents, best first: `k` of them, narrowed by `filters` as a recall. Both may
    be given with the question instead: `invoke("…", k=2, types=["fact"])`.

    documents = PalimpsestRetriever(memory=memory, k=4).invoke("where does Ana live?")
    """

    memory: Any
    k: int = 10
    filters: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **asked: Any
    ) -> list[Document]:
        return _asynchronous(self.memory).background.blocking(self._recall(query, **asked))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **asked: Any
    ) -> list[Document]:
        return await self._recall(query, **asked)

    async def _recall(self, query: str, k: int | None = None, **filters: Any) -> list[Document]:
        if not query.strip():
            return []
        limit, narrowed = self.k if k is None else k, {**self.filters, **filters}
        recalled = await _asynchronous(self.memory).recall(query, limit=limit, **narrowed)
        return [
            Document(
                id=each.id,
                page_content=with_marks(each.content, each.marks),
                metadata={
                    "score": each.score,
                    "type": each.type,
                    "who": each.who,
                    "role": each.role,
                    "unlikely": each.unlikely,
                    "session_id": each.session_id,
                    "occurred_at": each.occurred_at.isoformat(),
                    "derived_from": [*each.derived_from],
                },
            )
            for each in recalled.results
        ]


class PalimpsestChatHistory(BaseChatMessageHistory):
    """The messages of a conversation, kept as turns, from which memories are drawn meanwhile. With
    `redact`, messages come back without secrets. The asynchronous forms are those of LangChain,
    which call these in a thread.

    RunnableWithMessageHistory(chain, lambda session: PalimpsestChatHistory(memory, session))
    """

    def __init__(
        self, memory: AsyncMethods | BlockingMethods, session_id: str, *, redact: bool = False
    ) -> None:
        self._history = History(memory, session_id, redact=redact)
        self._background = self._history.memory.background

    @property
    def messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""
        kept: Any = self._background.blocking(self._history.messages())
        return cast("list[BaseMessage]", messages_from_dict(kept))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages."""
        converted = [
            Message(
                ROLES.get(each.type, "tool"), str(each.text), message_to_dict(each), each.name or ""
            )
            for each in messages
        ]
        self._background.blocking(self._history.append(converted))

    def clear(self) -> None:
        """Take all messages back; what was drawn from them stays remembered."""
        self._background.blocking(self._history.clear())


def _asynchronous(memory: Any) -> AsyncMethods:
    if isinstance(memory, AsyncMethods | BlockingMethods):
        return asynchronous(memory)
    raise TypeError(f"memory is a {type(memory).__name__}; give a Memory or a Client")
