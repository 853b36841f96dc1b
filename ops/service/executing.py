"""Executes operations: reads go to the owner of the stores, writes become commands in the log and
wait for their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, get_args

from pydantic import ValidationError

from palimpsest.ops.errors import (
    CommandError,
    Kind,
    NotFoundError,
    RequestError,
    kind_of,
    no_document,
    no_memory,
    reasons_of,
    was_applied,
    was_deleted_before,
)
from palimpsest.ops.lifecycle.accesses import asker
from palimpsest.ops.operations.answers import DONE, CommandResult
from palimpsest.ops.operations.documents import GetDocument
from palimpsest.ops.operations.memories import Locate
from palimpsest.ops.operations.operation import (
    Json,
    Operation,
    Read,
    Write,
    answer_type,
    parameters,
)
from palimpsest.ops.operations.scopes import Scopes
from palimpsest.ops.operations.selection import Selection

if TYPE_CHECKING:
    from palimpsest.ops.service.commanding import Commands, SubmittedCommand
    from palimpsest.ops.service.queries import Queries
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.envelope import Actor

AnyOperation = Operation[Any]
ID_CHARACTERS = 36
"""Length of a whole id."""
POLL_SECONDS = 0.05


DEFAULT_SCOPE: Final = "default"


class Access(Protocol):
    """A caller. All methods raise RequestError with what to do."""

    @property
    def actor(self) -> Actor:
        """The actor recorded with commands."""
        ...

    @property
    def whole_ids(self) -> bool:
        """Whether ids must be whole: a prefix could reveal that others have such a memory."""
        ...

    def named(self, scope: str) -> str:
        """Returns the scope of a single-scope operation; an empty `scope` means the caller's own.
        Raises NotFoundError for a scope that the caller does not see."""
        ...

    def listed(self, scope: str | None) -> str | None:
        """The scope that a list is restricted to; None for all scopes."""
        ...

    def within(self, scope: str | None) -> str | None:
        """The scope in which an id must lie; None for any that the caller sees."""
        ...

    def sees(self, scope: str) -> bool: ...

    def whole_names(self) -> Sequence[str]:
        """The scopes that the caller has by their whole names, also while nothing is in them."""
        ...


@dataclass(frozen=True)
class Unrestricted:
    """The local user or a program of theirs, who sees every scope of the data folder. Operations
    that name no scope are in `scope` where it is set; else lists are of all scopes."""

    scope: str | None = None
    author: Actor | None = None
    whole_ids: bool = False

    @property
    def actor(self) -> Actor:
        from palimpsest.schemas.envelope import Actor

        return self.author or Actor()

    def named(self, scope: str) -> str:
        return scope or self.scope or DEFAULT_SCOPE

    def listed(self, scope: str | None) -> str | None:
        return scope or self.scope

    within = listed

    def sees(self, scope: str) -> bool:
        return True

    def whole_names(self) -> Sequence[str]:
        return ()


class NotYetAppliedError(RequestError):
    """What was published is durable but was not executed in time; it will be executed later.
    `command_id` identifies a command."""

    code = "not_yet_applied"

    def __init__(self, text: str, command_id: str | None = None, scope: str = "") -> None:
        super().__init__(text)
        self.command_id = command_id
        self.scope = scope


@dataclass(slots=True)
class Executor:
    """Executes operations for callers. `open_queries` opens the owner of the stores, which answers
    reads; `commands` appends to the log, None for a caller that only reads. A write waits `seconds`
    unless it sets `wait`; `until_erased`: also until no file holds what it erased. `on_waiting` is
    called when the wait takes more than a moment."""

    settings: Settings
    open_queries: Callable[[], AbstractAsyncContextManager[Queries]]
    commands: Commands | None
    seconds: float
    until_erased: bool = False
    on_waiting: Callable[[], None] | None = None

    async def execute(self, operation: AnyOperation, access: Access) -> Json:
        """Returns the answer as JSON.

        Raises RequestError for an invalid request, CommandError for a refused command and
        NotYetAppliedError for a command without a result in time.
        """
        if isinstance(operation, Write):
            instead = operation.instead()
            if instead is None:
                write = self._everywhere if operation.in_all_scopes else self._write
                return await write(operation, access)
            operation = instead
        return await self.read(operation, access)

    async def read(self, operation: AnyOperation, access: Access) -> Json:
        """Returns the answer to a read."""
        asker.set(access.actor.id)
        operation = await located(operation, access, self._ask)
        return shown(operation, await self._ask(operation), access)

    async def _ask(self, operation: AnyOperation) -> Json:
        async with self.open_queries() as queries:
            return await queries.answer(cast("Read[Any]", operation))

    async def _everywhere(self, operation: Any, access: Access) -> Json:
        """Executes a change in each scope that the caller sees. What fails in one does not stop the
        others, and can be sent again: what was done is not done twice."""
        found = await self.read(Scopes(), access)
        scopes = sorted({*(each["scope"] for each in found["scopes"]), *access.whole_names()})
        if not scopes:
            raise NotFoundError("there is no scope yet; name one that is to begin (scope)")
        each = (replace(operation, scope=scope, all_scopes=False) for scope in scopes)
        tasks = (self._write(one, access) for one in each)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return operation.together(dict(zip(scopes, answers, strict=True)))

    async def _write(self, operation: Write[Any], access: Access) -> Json:
        from palimpsest.ops.service.commanding import CommandRequest

        commands = self.commands
        assert commands is not None, "a caller that only reads was given a write"

        async def ask(query: AnyOperation) -> Json:
            return await self.read(query, access)

        resolved = await located(operation, access, self._ask)
        scope = getattr(resolved, "scope", None) or await resolved.scope_of(ask)
        if not access.sees(scope):
            raise NotFoundError(f"there is no scope {scope}")
        try:
            command = await resolved.command(ask, self.settings)
        except ValidationError as error:
            from palimpsest.schemas.failures import describe

            raise RequestError(describe(error)) from None
        default = max(self.seconds, operation.patience)
        seconds = default if operation.wait is None else operation.wait
        request = CommandRequest(scope, command, access.actor, operation.key)
        submitted = await commands.submit(request, seconds, self.on_waiting)
        if submitted.answer is None:
            raise NotYetAppliedError(
                f"command {submitted.command_id} is durable, and still pending after {seconds:g} s:"
                " the stages are busy or wait for a model (`palimpsest status`), and go on",
                submitted.command_id,
                scope,
            )
        if self.until_erased and self.settings.log.kind == "embedded":
            # On Kafka, files are erased when the partition is opened next.
            submitted = await self._erased(commands, submitted, scope, seconds)
        return outcome(type(operation), submitted.command_id, submitted.answer)

    async def _erased(
        self, commands: Commands, submitted: SubmittedCommand, scope: str, seconds: float
    ) -> SubmittedCommand:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while submitted.answer is not None and submitted.answer.get("erasure") == "pending":
                    await asyncio.sleep(POLL_SECONDS)
                    answer = await commands.result(submitted.command_id, scope, seconds)
                    if answer is None:  # no worker is running
                        break
                    submitted = replace(submitted, answer=answer)
        return submitted


Asking: TypeAlias = Callable[[AnyOperation], Awaitable[Json]]


async def located(operation: Any, access: Access, ask: Asking) -> Any:
    """Returns the operation with its scope and whole ids, within what the caller sees. Raises
    NotFoundError, the same for what lies in another scope as for what never existed."""
    names = {each.name: each.type for each in parameters(type(operation))}
    if isinstance(operation, Locate) and access.whole_ids:
        await _found("memory_id", operation.memory_id, None, access, ask)
    if "scope" not in names or operation.surface.routing in ("folder", "all"):
        return operation
    for name in _BY_ID.keys() & names:
        found = await _found(name, getattr(operation, name), operation.scope, access, ask)
        return replace(operation, **{name: found["id"], "scope": found["scope"]})
    if isinstance(operation, Selection):
        # HTTP ids are whole, and the result lists unknown ones.
        if not operation.memory_ids or access.whole_ids:
            return replace(operation, scope=access.named(operation.scope))
        scope = operation.scope or None
        found = [
            await _found("memory_id", each, scope, access, ask) for each in operation.memory_ids
        ]
        scopes = sorted({str(each["scope"]) for each in found})
        if len(scopes) > 1:
            raise RequestError(f"these memories lie in several scopes: {', '.join(scopes)}")
        return replace(operation, memory_ids=tuple(each["id"] for each in found), scope=scopes[0])
    if names["scope"] is str:
        return replace(operation, scope=access.named(operation.scope))
    if operation.surface.routing == "any":
        return replace(operation, scope=access.within(operation.scope))
    return replace(operation, scope=access.listed(operation.scope))


_BY_ID: Final[Mapping[str, tuple[Callable[[str], Read[Any]], Callable[[str], NotFoundError]]]] = {
    "memory_id": (Locate, no_memory),
    "document_id": (GetDocument, no_document),
}
"""By the field with an id: the operation that finds its scope, and the error for an unknown one."""


async def _found(name: str, value: str, scope: str | None, access: Access, ask: Asking) -> Json:
    """The whole id and the scope. Where ids must be whole, a prefix, another caller's memory and an
    unknown id give the same error."""
    locate, no_such = _BY_ID[name]
    unknown = no_such(value)
    if access.whole_ids and name == "memory_id":
        unknown = NotFoundError(f"there is no memory {value}; give whole ids here")
    if access.whole_ids and len(value) != ID_CHARACTERS:
        raise unknown
    wanted = access.within(scope)
    try:
        found = await ask(locate(value))
    except NotFoundError:
        raise unknown from None
    if wanted not in (None, found["scope"]) or not access.sees(found["scope"]):
        raise unknown
    return found


def shown(operation: AnyOperation, answer: Json, access: Access) -> Json:
    """The part of the answer that the caller sees, for operations not bound to a scope."""
    if isinstance(operation, Scopes):
        return {"scopes": [each for each in answer["scopes"] if access.sees(each["scope"])]}
    if isinstance(operation, CommandResult):
        if answer is None or not access.sees(answer["scope"]):
            return None
        if operation.scope not in (None, answer["scope"]):
            return None
        state = {name: value for name, value in answer.items() if name != "digest"}
        applied = was_applied(answer["error"], answer["result"])
        return {"command_id": operation.command_id, "applied": applied, **state}
    if isinstance(operation, Locate) and not access.sees(answer["scope"]):
        raise no_memory(operation.memory_id)
    return answer


def outcome(kind: type[Write[Any]], command_id: str, stored: Json) -> Json:
    """The operation's answer from the stored result of its command. Raises CommandError for a
    refused command."""
    error = stored["error"]
    if error is not None:
        raise CommandError(kind_of(str(error)), str(error), command_id)
    result = stored["result"]
    applied = was_applied(None, result)
    answer: dict[str, Any] = {"command_id": command_id, "applied": applied}
    answer |= {name: stored[name] for name in ("erasure", "left") if stored.get(name) is not None}
    kinds = get_args(answer_type(kind)) or (answer_type(kind),)
    if any(each.name == "changes" for kind in kinds for each in fields(kind)):
        return {**answer, "changes": result}
    return {**answer, **cast("dict[str, Any]", result[0] if isinstance(result, list) else result)}


def refusal(answer: Json) -> CommandError | None:
    """The error for the refused parts of a command, with the kind of the first; None if all were
    done."""
    if not isinstance(answer, dict) or "command_id" not in answer:
        return None
    changes = answer.get("changes", [answer])
    refused = [each for each in changes if each.get("status") and not _is_done(each)]
    if not refused:
        return None
    kind = cast("Kind", refused[0]["status"])
    return CommandError(kind, reasons_of(refused), answer["command_id"], answer)


def is_refused_alike(answer: Json) -> bool:
    """Whether every change of a command was refused, and all for the same reason."""
    changes = answer.get("changes", [answer])
    statuses = {each.get("status") for each in changes}
    return len(statuses) == 1 and refusal(answer) is not None


def _is_done(change: Json) -> bool:
    if change["status"] == "deleted":
        return not was_deleted_before(change)
    return change["status"] in DONE
