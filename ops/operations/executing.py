"""How an operation is executed: reads are answered by whoever has the stores, writes become
commands in the log whose results are waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from palimpsest.ops.command_kinds import CommandError, Kind, kind_of, was_applied
from palimpsest.ops.errors import NotFoundError, RequestError, no_document, no_memory
from palimpsest.ops.operations.access import Access
from palimpsest.ops.operations.answers import DONE
from palimpsest.ops.operations.documents import GetDocument
from palimpsest.ops.operations.forgetting import ForgetOne, Forgetting
from palimpsest.ops.operations.memories import Locate
from palimpsest.ops.operations.operation import (
    Json,
    Operation,
    Read,
    Write,
    answer_type,
    parameters,
)
from palimpsest.ops.operations.results import CommandResult
from palimpsest.ops.operations.scopes import Scopes
from palimpsest.ops.operations.selection import Selection
from palimpsest.schemas.codec import describe

if TYPE_CHECKING:
    from palimpsest.ops.commanding import Commands, SubmittedCommand
    from palimpsest.ops.service.queries import Queries
    from palimpsest.ops.settings.sections import Settings

AnyOperation = Operation[Any]
ID_CHARACTERS = 36
"""Of a whole id."""
POLL_SECONDS = 0.05


class NotYetAppliedError(RequestError):
    """What was published is durable, and was not executed in time; it still will be. A command can
    be asked for by its `command_id`."""

    code = "not_yet_applied"

    def __init__(self, text: str, command_id: str | None = None, scope: str = "") -> None:
        super().__init__(text)
        self.command_id = command_id
        self.scope = scope


@dataclass(slots=True)
class Executor:
    """Executes operations for callers. `asking` opens whoever answers reads; `commands` gives what
    is written to the log. `seconds` is how long a write waits unless it says so; `until_erased`:
    also until no file has what it erased. `on_waiting` is called when that takes longer than a
    moment."""

    settings: Settings
    asking: Callable[[], AbstractAsyncContextManager[Queries]]
    commands: Commands
    seconds: float
    until_erased: bool = False
    on_waiting: Callable[[], None] | None = None

    async def execute(self, operation: AnyOperation, access: Access) -> Json:
        """The answer as JSON.

        Raises RequestError for what cannot be answered, CommandError for a refused command and
        NotYetAppliedError for one that has no result in time.
        """
        if isinstance(operation, Write):
            instead = operation.instead()
            if instead is None:
                return await self._write(operation, access)
            operation = instead
        return await self.read(operation, access)

    async def read(self, operation: AnyOperation, access: Access) -> Json:
        """The answer to a read."""
        asked = await located(operation, access, self._ask)
        return shown(asked, await self._ask(asked), access)

    async def _ask(self, operation: AnyOperation) -> Json:
        async with self.asking() as queries:
            return await queries.answer(cast("Read[Any]", operation))

    async def _write(self, operation: Write[Any], access: Access) -> Json:
        from palimpsest.ops.commanding import CommandRequest

        async def ask(asked: AnyOperation) -> Json:
            return await self.read(asked, access)

        meant = await located(operation, access, self._ask)
        scope = getattr(meant, "scope", None) or await meant.scope_of(ask)
        if not access.sees(scope):
            raise NotFoundError(f"there is no scope {scope}")
        try:
            command = await meant.command(ask, self.settings)
        except ValidationError as error:
            raise RequestError(describe(error)) from None
        usual = max(self.seconds, operation.patience)
        seconds = usual if operation.wait is None else operation.wait
        order = CommandRequest(scope, command, access.actor, operation.key)
        given = await self.commands.submit(order, seconds, self.on_waiting)
        if given.answer is None:
            raise NotYetAppliedError(
                f"command {given.command_id} is durable, and still pending after {seconds:g} s: the"
                " stages are busy or wait for a model (`palimpsest status`), and go on",
                given.command_id,
                scope,
            )
        if self.until_erased and self.settings.log.kind == "embedded":
            # On Kafka what lies in files is erased when the partition is opened next.
            given = await self._erased(given, seconds)
        return outcome(type(operation), given.command_id, given.answer)

    async def _erased(self, given: SubmittedCommand, seconds: float) -> SubmittedCommand:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while given.answer is not None and given.answer.get("erasure") == "pending":
                    await asyncio.sleep(POLL_SECONDS)
                    answer = await self.commands.result(given.command_id, seconds)
                    if answer is None:  # no worker runs any more
                        break
                    given = replace(given, answer=answer)
        return given


async def located(
    operation: Any, access: Access, ask: Callable[[AnyOperation], Awaitable[Json]]
) -> Any:
    """The operation with its scope and whole ids, of what the caller sees. Raises NotFoundError:
    what lies elsewhere is as unknown as what never was."""
    names = {each.name: each.type for each in parameters(type(operation))}
    if isinstance(operation, Locate) and access.whole_ids:
        await _found(operation.memory_id, None, access, ask)
    if "scope" not in names or operation.surface.routing in ("folder", "all"):
        return operation
    if "memory_id" in names:
        found = await _found(operation.memory_id, operation.scope, access, ask)
        return replace(operation, memory_id=found["id"], scope=found["scope"])
    if "document_id" in names:
        return await _document(operation, access, ask)
    if isinstance(operation, Selection):
        return await _selected(operation, access, ask)
    if names["scope"] is str:
        return replace(operation, scope=access.named(operation.scope))
    if operation.surface.routing == "any":
        return replace(operation, scope=access.within(operation.scope))
    return replace(operation, scope=access.listed(operation.scope))


async def _found(
    memory_id: str,
    scope: str | None,
    access: Access,
    ask: Callable[[AnyOperation], Awaitable[Json]],
) -> Json:
    unknown = _unknown(memory_id, access)
    if access.whole_ids and len(memory_id) != ID_CHARACTERS:
        raise unknown
    wanted = access.within(scope)
    try:
        found = await ask(Locate(memory_id))
    except NotFoundError:
        raise unknown from None
    if wanted not in (None, found["scope"]) or not access.sees(found["scope"]):
        raise unknown
    return found


def _unknown(memory_id: str, access: Access) -> NotFoundError:
    """The same for a shortened id, another's memory and none at all, where ids have to be whole."""
    if not access.whole_ids:
        return no_memory(memory_id)
    return NotFoundError(f"there is no memory {memory_id}; give whole ids here")


async def _document(
    operation: Any, access: Access, ask: Callable[[AnyOperation], Awaitable[Json]]
) -> Any:
    document_id = operation.document_id
    if access.whole_ids and len(document_id) != ID_CHARACTERS:
        raise no_document(document_id)
    wanted = access.within(operation.scope)
    found = await ask(GetDocument(document_id))
    if wanted not in (None, found["scope"]) or not access.sees(found["scope"]):
        raise no_document(document_id)
    return replace(operation, document_id=found["id"], scope=found["scope"])


async def _selected(
    operation: Any, access: Access, ask: Callable[[AnyOperation], Awaitable[Json]]
) -> Any:
    """Ids over HTTP are whole, and the result says which of them are unknown."""
    if not operation.memory_ids or access.whole_ids:
        return replace(operation, scope=access.named(operation.scope))
    found = [
        await _found(each, operation.scope or None, access, ask) for each in operation.memory_ids
    ]
    scopes = sorted({str(each["scope"]) for each in found})
    if len(scopes) > 1:
        raise RequestError(f"these memories lie in several scopes: {', '.join(scopes)}")
    return replace(operation, memory_ids=tuple(each["id"] for each in found), scope=scopes[0])


def shown(operation: AnyOperation, answer: Json, access: Access) -> Json:
    """What of the answer the caller sees, where an operation is not bound to a scope before."""
    if isinstance(operation, Scopes):
        return {"scopes": [each for each in answer["scopes"] if access.sees(each["scope"])]}
    if isinstance(operation, CommandResult):
        return _shown_result(operation, answer, access)
    if isinstance(operation, Locate) and not access.sees(answer["scope"]):
        raise no_memory(operation.memory_id)
    return answer


def _shown_result(operation: CommandResult, answer: Json, access: Access) -> Json:
    if answer is None or not access.sees(answer["scope"]):
        return None
    if operation.scope not in (None, answer["scope"]):
        return None
    told = {name: value for name, value in answer.items() if name != "digest"}
    applied = was_applied(answer["error"], answer["result"])
    return {"command_id": operation.command_id, "applied": applied, **told}


def outcome(kind: type[Write[Any]], command_id: str, stored: Json) -> Json:
    """What a command did, by its stored result, as the operation answers it. Raises CommandError
    for a refused one."""
    error = stored["error"]
    if error is not None:
        raise CommandError(kind_of(str(error)), str(error), command_id)
    result = stored["result"]
    applied = was_applied(None, result)
    answer: dict[str, Any] = {"command_id": command_id, "applied": applied}
    answer |= {name: stored[name] for name in ("erasure", "left") if stored.get(name) is not None}
    if _has_many(kind):
        return {**answer, "changes": result}
    return {**answer, **cast("dict[str, Any]", result[0] if isinstance(result, list) else result)}


def _has_many(kind: type[Write[Any]]) -> bool:
    return any(each.name == "changes" for each in fields(answer_type(kind)))


def refusal(answer: Json, operation: AnyOperation | None = None) -> CommandError | None:
    """Why a part of a command was refused, that of the first; None where all was done. What was
    forgotten before (`deleted`) can be forgotten again, but not changed."""
    if not isinstance(answer, dict) or "command_id" not in answer:
        return None
    forgetting = isinstance(operation, Forgetting | ForgetOne)
    changes = answer.get("changes", [answer])
    refused = [
        each
        for each in changes
        if each.get("status")
        and not (_is_done(each) or (forgetting and each["status"] == "deleted"))
    ]
    if not refused:
        return None
    reasons = [f"{each.get('id', '')}: {each['status']}{_why(each)}" for each in refused]
    kind = cast("Kind", refused[0]["status"])
    return CommandError(kind, "; ".join(reasons), answer["command_id"], answer)


def _is_done(change: Json) -> bool:
    if change["status"] == "deleted":  # a document, or what a proposal was about
        return "forgotten" in change or "memory_id" in change
    return change["status"] in DONE


def _why(change: Json) -> str:
    return f" ({change['why']})" if change.get("why") else ""
