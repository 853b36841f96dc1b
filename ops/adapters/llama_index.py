"""A memory for LlamaIndex: the conversation, and before it what is remembered for the question."""

from __future__ import annotations

from typing import Any, Self, cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemory

from palimpsest.ops.adapters.history import History, Message
from palimpsest.ops.library.methods import BlockingMethods, Methods
from palimpsest.schemas.messages import Role

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
REMEMBERED = "What is remembered of earlier conversations:\n\n"


class PalimpsestMemory(BaseMemory):
    """Gives the newest `messages` of the conversation, and with a question first a system message
    of at most `budget` tokens that tells what is known about it.

    agent = SimpleChatEngine.from_defaults(
        memory=PalimpsestMemory.from_defaults(memory=memory, session_id="support-7")
    )
    """

    messages: int = 50
    budget: int = 800
    _history: Any = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        return "PalimpsestMemory"

    @classmethod
    def from_defaults(
        cls, *, memory: Methods | BlockingMethods, session_id: str, **given: Any
    ) -> Self:
        """The memory of one conversation; `given` are the fields."""
        made = cls(**given)
        made._history = History(memory, session_id)
        return made

    async def aget(self, input: str | None = None, **_: Any) -> list[ChatMessage]:  # noqa: A002
        """The conversation, with what is remembered for the question `input`."""
        kept = _messages(await self._history.messages(self.messages))
        if input is None or not input.strip():
            return kept
        known = await self._history.memory.context(input, budget=self.budget)
        if known.text is None:
            return kept
        return [ChatMessage(role=MessageRole.SYSTEM, content=REMEMBERED + known.text), *kept]

    async def aget_all(self) -> list[ChatMessage]:
        """The whole conversation."""
        return _messages(await self._history.messages())

    async def aput(self, message: ChatMessage) -> None:
        """Append a message."""
        await self.aput_messages([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Append messages."""
        await self._history.append(map(_message, messages))

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Take the conversation back, and keep these messages instead."""
        await self._history.clear()
        await self._history.append(map(_message, messages))

    async def areset(self) -> None:
        """Take the conversation back; what was drawn from it stays remembered."""
        await self._history.clear()

    def get(self, input: str | None = None, **_: Any) -> list[ChatMessage]:  # noqa: A002
        return cast("list[ChatMessage]", self._blocking(self.aget(input)))

    def get_all(self) -> list[ChatMessage]:
        return cast("list[ChatMessage]", self._blocking(self.aget_all()))

    def put(self, message: ChatMessage) -> None:
        self._blocking(self.aput(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        self._blocking(self.aput_messages(messages))

    def set(self, messages: list[ChatMessage]) -> None:
        self._blocking(self.aset(messages))

    def reset(self) -> None:
        self._blocking(self.areset())

    def _blocking(self, work: Any) -> Any:
        return self._history.memory.background.blocking(work)


def _messages(kept: list[Any]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(each) for each in kept]


def _message(message: ChatMessage) -> Message:
    role = ROLES.get(str(message.role.value), "tool")
    return Message(role, message.content or "", message.model_dump(mode="json"))
