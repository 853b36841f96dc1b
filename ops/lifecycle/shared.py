"""What scheduled jobs share: scopes that they leave alone, their commands, questions to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from palimpsest.ops.scheduling.jobs import JobContext, JobFailed
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Command, MemoryCommand
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.prompting.replies import MalformedReply
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.output import published
from palimpsest.streams.stage import Generate, ModelUnavailable

T = TypeVar("T")


def language_models(context: JobContext) -> ModelPort | None:
    """None where no language model is set."""
    return None if context.settings.llm.provider == "rules" else context.models


def is_frozen(shard: Shard, settings: Settings, scope: str, by_itself: bool = True) -> bool:
    """Whether a scope must stay as it is: for a person's command while its mutations are frozen,
    for what happens `by_itself` also while that is."""
    flags = effective(settings.pipeline, shard.flags.get(scope))
    return flags.mutations_frozen or (by_itself and flags.autonomous_frozen)


def due_rows(context: JobContext, query: str, **given: object) -> list[tuple[Any, ...]]:
    """The rows of a query whose scope, the first column, may be changed by what a job or a model
    finds. `$scope` is that of the run."""
    pipeline, flags = context.settings.pipeline, context.shard.flags
    found = context.shard.fetch(query, {**given, "scope": context.scope})
    enabled = {row[0] for row in found if effective(pipeline, flags.get(row[0])).enabled}
    frozen = {s for s in enabled if is_frozen(context.shard, context.settings, s)}
    return [row for row in found if row[0] in enabled - frozen]


async def finish_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Runs all at once; returns their results in order. If some fail, raises the first error once
    all have ended: the replies that the others wait for are paid for."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    results = []
    for result in ended:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


async def ask(
    models: ModelPort, prompt: Prompt, scope: str, read: Callable[[str], T]
) -> tuple[T, str]:
    """Returns what `read` makes of the reply, and the model's name. Raises JobFailed for a reply
    that cannot be used, and where the model does not answer."""
    try:
        reply = await models.answer(Generate(prompt, advisory=True), scope)
        if reply is None:
            raise MalformedReply("the model did not answer")
        return read(reply.text), reply.model
    except (MalformedReply, ModelUnavailable) as error:
        raise JobFailed(str(error)) from error


def command_record(
    context: JobContext,
    scope: str,
    command: Command,
    actor: Actor,
    *derived_from: str | int,
    at: datetime | None = None,
) -> Outgoing:
    """The command as a record, of the time of the run unless `at` is another. Its id follows from
    the actor and from what the command was derived from: two runs over the same give one."""
    command_id = derived_id(actor.id, scope, *derived_from)
    body = MemoryCommand(command=command, actor=actor)
    return published(MEMORY_COMMANDS, command_id, scope, at or context.at, body)
