"""MCP over standard input and output: every call is answered, also one that cannot be read.

The SDK passes over a line that its parser refuses, such as one with half an emoji, and its client
waits for ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Protocol

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from palimpsest.schemas.failures import HALF_A_PAIR, describe, says
from palimpsest.schemas.surrogates import halves

BYTE_ORDER_MARK: Final = "\ufeff"


class Received(Protocol):
    """The SDK's stream of messages, and of errors of lines that are none."""

    @property
    def last_context(self) -> contextvars.Context | None: ...
    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class Sent(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class Answered:
    """The messages of `received`. What is none is answered through `sent`, and passed over."""

    def __init__(self, received: Received, sent: Sent) -> None:
        self._received = received
        self._sent = sent

    @property
    def last_context(self) -> contextvars.Context | None:
        return self._received.last_context

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._received.receive()
            if isinstance(item, SessionMessage):
                refusal = not_a_notification(item.message)
            elif (message := _without_mark(item)) is not None:
                return message
            else:
                refusal = refusal_of(item)
            if refusal is None:
                if isinstance(item, SessionMessage):
                    return item
                continue
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._sent.send(SessionMessage(refusal))

    async def aclose(self) -> None:
        await self._received.aclose()

    def __aiter__(self) -> Answered:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Answered:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.aclose()


def refusal_of(error: Exception) -> JSONRPCError | None:
    """The answer to a line that is no message, with the id of the call if that can be read. None
    for lines that ask for no answer: blank ones, notifications and answers."""
    if not isinstance(error, ValidationError):
        return error_of(None, INVALID_REQUEST, str(error))
    first = error.errors(include_url=False)[0]
    if first["type"] != "json_invalid":
        found = next((each for each in _inputs(error) if "method" in each or "id" in each), None)
        if found is None:
            return error_of(None, INVALID_REQUEST, "not a JSON-RPC request: give an object")
        if "method" not in found and ("result" in found or "error" in found):
            return None
        of_request = [each for each in error.errors() if each["loc"][:1] == ("JSONRPCRequest",)]
        why = "; ".join(f"{each['loc'][-1]}: {says(each)}" for each in of_request)
        return error_of(found.get("id"), INVALID_REQUEST, f"not a JSON-RPC request: {why}")
    line = str(first["input"])
    if not line.strip():
        return None
    try:
        message = json.loads(line.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return error_of(None, PARSE_ERROR, describe(error).removeprefix("record: "))
    if not isinstance(message, dict):
        return error_of(None, PARSE_ERROR, describe(error).removeprefix("record: "))
    if "id" not in message:
        return None
    where = next(halves(message), None)
    why = describe(error).removeprefix("record: ") if where is None else f"{where}: {HALF_A_PAIR}"
    return error_of(message["id"], PARSE_ERROR, why)


def _inputs(error: ValidationError) -> Iterator[dict[str, object]]:
    """The whole messages among what failed."""
    for each in error.errors(include_url=False):
        if each["type"] == "missing" and isinstance(each["input"], dict):
            yield each["input"]


def _without_mark(error: Exception) -> SessionMessage | None:
    """The message of a line with a byte order mark."""
    if not isinstance(error, ValidationError):
        return None
    line = error.errors(include_url=False)[0]["input"]
    if not isinstance(line, str) or not line.startswith(BYTE_ORDER_MARK):
        return None
    with contextlib.suppress(ValidationError):
        text = line.removeprefix(BYTE_ORDER_MARK)
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    return None


def not_a_notification(message: JSONRPCMessage) -> JSONRPCError | None:
    """The answer to a call whose id is neither a text nor an integer, which the SDK takes for a
    notification."""
    if not isinstance(message, JSONRPCNotification) or message.method.startswith("notifications/"):
        return None
    why = "a call needs an id: a text or an integer"
    return error_of(None, INVALID_REQUEST, f"{message.method}: {why}")


def error_of(of: object, code: int, why: str) -> JSONRPCError:
    """The refusal of a call; without its id where that is none."""
    known = of if isinstance(of, str | int) and not isinstance(of, bool) else None
    if isinstance(known, str) and next(halves(known), None) is not None:
        known = None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=why))
