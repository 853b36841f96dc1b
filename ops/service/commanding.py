"""Appends commands to the log; a worker executes them and stores their results.

All callers share this path: the command line and the servers. A refused command raises
CommandError, whose `kind` identifies the reason for programs.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pydantic import JsonValue, ValidationError

from palimpsest.ops.documents.adding import fitted, text_record
from palimpsest.ops.errors import CommandError, RequestError, kind_of
from palimpsest.ops.log_folder import has_log, worker_is_there
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.answers import CommandResult
from palimpsest.ops.parts import utc_now
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.threads import in_thread_of
from palimpsest.schemas.codec import InvalidRecord, refuse_depth
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    Command,
    DocumentTextCommand,
    MemoryCommand,
)
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.failures import describe
from palimpsest.schemas.identity import command_digest, document_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published
from palimpsest.streams.sensitive.policy import PiiRejected, Policy

MOMENT_SECONDS = 0.5
"""A wait longer than this calls `on_waiting`."""


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command to submit. If the same actor submits it again under the same `key`, it is still
    executed once."""

    scope: str
    command: Command
    actor: Actor = Actor()
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SubmittedCommand:
    """A command that is in the log. `answer` is its stored result, None until it is executed."""

    command_id: str
    answer: JsonObject | None

    def result(self) -> JsonValue:
        """Returns the result, None until it is known. Raises CommandError for a refused command."""
        if self.answer is None:
            return None
        error = self.answer["error"]
        if error is not None:
            raise CommandError(kind_of(str(error)), str(error), self.command_id)
        return self.answer["result"]


class Commands:
    """Submits commands and fetches their results.

    `append` appends records to the log durably. `asking` opens a query interface to the stores.
    `works` returns whether a worker executes commands now, `has_results` whether there may be
    results at all. `result_of` waits for a result if the stages run in this process; without it,
    the process that runs them is asked.
    """

    def __init__(
        self,
        settings: Settings,
        append: Callable[[Sequence[Outgoing]], object],
        asking: Callable[[], AbstractAsyncContextManager[Queries]],
        works: Callable[[], bool] = lambda: True,
        has_results: Callable[[], bool] = lambda: True,
        result_of: Callable[[str], Awaitable[JsonObject]] | None = None,
    ) -> None:
        self._max_bytes = settings.log.max_record_bytes
        self._policy = Policy.of(settings.pii)
        self._is_kafka = settings.log.kind == "kafka"
        self._append = append
        self._asking = asking
        self._works = works
        self._has_results = has_results
        self._result_of = result_of

    async def submit(
        self,
        order: CommandRequest,
        seconds: float = 0.0,
        on_waiting: Callable[[], None] | None = None,
    ) -> SubmittedCommand:
        """Appends the command and waits up to `seconds` for its result; calls `on_waiting` if that
        takes longer than MOMENT_SECONDS.

        Raises CommandError if the command can be refused before it is executed, and for a key that
        was used for another command; RequestError and LogError if it cannot be submitted.
        """
        order = await in_thread_of("body", self._without_secrets, order)
        texts: list[DocumentTextCommand] = []
        if isinstance(order.command, AddDocumentCommand):
            fit = partial(fitted, order.command, self._max_bytes)
            command, texts = await in_thread_of("body", fit)
            order = replace(order, command=command)
        command_id = str(uuid.uuid4())
        if order.key is not None:
            command_id, known = await self._under_key(order, order.key)
            if known is not None:
                return SubmittedCommand(command_id, _of(order, command_id, known))
        records = [self._record(order, command_id)]
        for text in texts:
            own = text.model_copy(update={"document_id": document_id(order.scope, command_id)})
            records.append(text_record(order.scope, own, utc_now(), order.actor))
        for record in records:
            try:
                refuse_depth(record.value or b"")
            except InvalidRecord as error:
                raise CommandError("invalid_request", str(error)) from None
            size = len(record.value or b"")
            if size > self._max_bytes:
                raise CommandError(
                    "too_large",
                    f"the command takes {size} bytes, more than the {self._max_bytes}"
                    " allowed (setting log.max_record_bytes)",
                )
        await in_thread_of("append", self._append, records)
        answer = await self.result(command_id, order.scope, seconds, on_waiting)
        return SubmittedCommand(
            command_id, None if answer is None else _of(order, command_id, answer)
        )

    async def result(
        self,
        command_id: str,
        scope: str,
        seconds: float,
        on_waiting: Callable[[], None] | None = None,
    ) -> JsonObject | None:
        """Waits for the command's stored result; returns None if no worker is running, or after
        `seconds`."""
        if seconds <= 0 or not self._works():
            return None
        waiting = None
        if on_waiting is not None:
            waiting = asyncio.get_running_loop().call_later(MOMENT_SECONDS, on_waiting)
        try:
            async with asyncio.timeout(seconds):
                if self._result_of is not None:
                    return await self._result_of(command_id)
                async with self._asking() as asked:
                    with self._without_owner():
                        while True:
                            result = await asked.result(command_id, scope, seconds)
                            if result is not None:
                                return result
                return None
        except TimeoutError:
            return None
        finally:
            if waiting is not None:
                waiting.cancel()

    @contextmanager
    def _without_owner(self) -> Iterator[None]:
        """Ignores RequestError on Kafka, where no worker may own the partition now; the next owner
        will execute the command."""
        try:
            yield
        except RequestError:
            if not self._is_kafka:
                raise

    async def _under_key(self, order: CommandRequest, key: str) -> tuple[str, JsonObject | None]:
        """Returns the id of the command under the key, and its result so far. A command that was
        refused because memory was frozen gets a new id: freezing is temporary."""
        attempt = 0
        while True:
            command_id = derived_id("command-key", order.scope, order.actor.id, key, attempt)
            known: JsonObject | None = None
            if self._has_results():
                async with self._asking() as asked:
                    with self._without_owner():
                        known = await asked.answer(CommandResult(command_id))
            error = None if known is None else known["error"]
            if error is None or kind_of(str(error)) != "frozen":
                return command_id, known
            attempt += 1

    def _without_secrets(self, order: CommandRequest) -> CommandRequest:
        """Returns the request without secrets; the digest under its key is computed from that."""
        try:
            body = self._policy.command(_body(order))
        except PiiRejected as error:
            raise CommandError("pii_rejected", str(error).partition(": ")[2]) from None
        except ValidationError as error:
            raise CommandError("invalid_request", describe(error)) from None
        return replace(order, command=body.command, actor=body.actor)

    def _record(self, order: CommandRequest, command_id: str) -> Outgoing:
        try:
            return published(MEMORY_COMMANDS, command_id, order.scope, utc_now(), _body(order))
        except ValidationError as error:
            raise CommandError("invalid_request", describe(error)) from None
        except (UnicodeEncodeError, ValueError) as error:
            text = f"the command has characters that are no text: {error}"
            raise CommandError("invalid_request", text) from None


def _body(order: CommandRequest) -> MemoryCommand:
    return MemoryCommand(command=order.command, actor=order.actor)


def _of(order: CommandRequest, command_id: str, answer: JsonObject) -> JsonObject:
    """Returns the answer if it belongs to the request. Raises CommandError if it belongs to another
    command."""
    digest = answer["digest"]
    if digest is not None and digest != command_digest(order.scope, _body(order)):
        raise CommandError(
            "idempotency_conflict",
            f"the key {order.key!r} was used before, for another command ({answer['command']});"
            " give every command a key of its own",
            command_id,
        )
    return answer


def commands_of(
    settings: Settings, append: Callable[[Sequence[Outgoing]], object] | None = None
) -> Commands:
    """Returns Commands for the memory of a folder or a cluster, from any process. Pass `append` to
    submit many commands; without it, the log is opened for each."""

    def publish_one(records: Sequence[Outgoing]) -> None:
        with publisher(settings) as publish:
            publish(records)

    return Commands(
        settings,
        append or publish_one,
        partial(queries, settings),
        works=partial(worker_is_there, settings),
        has_results=lambda: settings.log.kind == "kafka" or has_log(settings),
    )
