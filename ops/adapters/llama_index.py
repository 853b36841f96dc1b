"""A memory for LlamaIndex: the conversation, and before it what is remembered for the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import LLM, ChatMessage, MessageRole
from llama_index.core.memory import BaseMemory
from llama_index.core.utils import get_tokenizer

from palimpsest.ops.adapters.history import ROLES, History, Message
from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods

REMEMBERED = "What is remembered of earlier conversations:\n\n"
SHARE_OF_WINDOW = 0.75
"""Of a model's context window, for the conversation: the same as the buffers of LlamaIndex."""


class PalimpsestMemory(BaseMemory):
    """Gives the newest `messages` of the conversation, of at most `token_limit` tokens, and with a
    question first a system message of at most `budget` tokens that tells what is known about it.
    With `redact`, messages come back without secrets. The asynchronous forms are those of
    LlamaIndex, which call these in a thread.

    agent = SimpleChatEngine.from_defaults(
        memory=PalimpsestMemory.from_defaults(memory=memory, session_id="support-7")
    )
    """

    session_id: str
    messages: int = 50
    budget: int = 800
    token_limit: int | None = Field(default=None, gt=0)
    redact: bool = False
    tokenizer_fn: Callable[[str], Sequence[Any]] = Field(
        default_factory=get_tokenizer, exclude=True
    )
    _history: Any = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        return "PalimpsestMemory"

    @classmethod
    def from_defaults(
        cls,
        *,
        memory: AsyncMethods | BlockingMethods,
        session_id: str,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        **given: Any,
    ) -> Self:
        """The memory of one conversation; `given` are the fields. `chat_history` replaces what the
        conversation was, and `llm` sets the `token_limit` where none is given. Raises ValueError
        for what there is none of."""
        unknown = sorted(given.keys() - cls.model_fields.keys())
        if unknown:
            raise ValueError(f"there is no {', '.join(unknown)}; see the fields of {cls.__name__}")
        if llm is not None and given.get("token_limit") is None:
            given["token_limit"] = int(llm.metadata.context_window * SHARE_OF_WINDOW)
        given = {name: value for name, value in given.items() if value is not None}
        made = cls(session_id=session_id, **given)
        made._history = History(memory, session_id, redact=made.redact)
        if chat_history is not None:
            made.set(chat_history)
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The memory that `to_dict` was called on; `memory` is where its conversation lies."""
        if "memory" not in kwargs:
            raise ValueError("give the memory that the conversation lies in: from_dict(…, memory=)")
        fields = {name: value for name, value in data.items() if name != "class_name"}
        return cls.from_defaults(**{**fields, **kwargs})

    def get(
        self,
        input: str | None = None,  # noqa: A002
        initial_token_count: int = 0,
        **_: Any,
    ) -> list[ChatMessage]:
        """The conversation, with what is remembered for the question `input`. Raises ValueError
        where `initial_token_count` alone is more than the `token_limit`."""
        if self.token_limit is not None and initial_token_count > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        newest = self._kept(self.messages + 1)
        known: list[ChatMessage] = []
        if input is not None and input.strip():
            found = self._blocking(self._history.memory.context(input, budget=self.budget))
            if found.text is not None:
                known = [ChatMessage(role=MessageRole.SYSTEM, content=REMEMBERED + found.text)]
        return known + self._window(newest, initial_token_count + self._tokens(known))

    def _window(self, newest: list[ChatMessage], taken: int) -> list[ChatMessage]:
        """As many as there may be, at least the last one. Where older ones are left out, it begins
        with a question: models refuse the result of a tool whose call they do not see."""
        first = max(0, len(newest) - self.messages)
        if self.token_limit is not None:
            while first < len(newest) and taken + self._tokens(newest[first:]) > self.token_limit:
                first += 1
        if first == 0:
            return newest
        left = newest[first:]
        for answers in ((MessageRole.TOOL, MessageRole.ASSISTANT), (MessageRole.TOOL,)):
            for start, each in enumerate(left):
                if each.role not in answers:
                    return left[start:]
        return newest[-1:]

    def _tokens(self, messages: list[ChatMessage]) -> int:
        if self.token_limit is None or not messages:
            return 0
        return len(self.tokenizer_fn(" ".join(str(each.content) for each in messages)))

    def get_all(self) -> list[ChatMessage]:
        """The whole conversation."""
        return self._kept(None)

    def put(self, message: ChatMessage) -> None:
        """Append a message."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Append messages."""
        converted = [
            Message(
                ROLES.get(str(each.role.value), "tool"),
                each.content or "",
                each.model_dump(mode="json"),
            )
            for each in messages
        ]
        self._blocking(self._history.append(converted))

    def set(self, messages: list[ChatMessage]) -> None:
        """Take the conversation back, and keep these messages instead."""
        self.reset()
        self.put_messages(messages)

    def reset(self) -> None:
        """Take the conversation back; what was drawn from it stays remembered."""
        self._blocking(self._history.clear())

    def _kept(self, limit: int | None) -> list[ChatMessage]:
        kept = self._blocking(self._history.messages(limit))
        return [ChatMessage.model_validate(each) for each in kept]

    def _blocking(self, work: Any) -> Any:
        return self._history.memory.background.blocking(work)
