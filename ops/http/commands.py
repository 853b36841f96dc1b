"""Giving the commands of callers, and what their results are as answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Final, Literal, cast

from fastapi import Depends, Header, Query, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.command_kinds import CommandError, was_applied
from palimpsest.ops.commanding import Commands, Given, Order
from palimpsest.ops.http.callers import Caller
from palimpsest.ops.http.problems import Problem, of_command
from palimpsest.ops.http.service import Service, ServiceOf
from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.schemas.commands import Actor, Command

DONE: Final = frozenset({"updated", "no_changes", "forgotten", "erased", "recovered", "confirmed"})
"""What became of one memory, where that was what was wanted; anything else is a problem."""
MOST_PENDING: Final = 10_000
"""Commands without a result that are remembered as given."""


class Desk:
    """Takes commands; one for each request."""

    def __init__(
        self,
        service: ServiceOf,
        wait: Annotated[
            float | None,
            Query(ge=0, le=60, description="seconds to wait for the result; else as set"),
        ] = None,
        idempotency_key: Annotated[
            str | None,
            Header(min_length=1, max_length=256, description="the same again is done once"),
        ] = None,
        actor_type: Annotated[
            Literal["human", "agent"] | None,
            Header(description="agent: as a machine, which may not touch what is protected"),
        ] = None,
    ) -> None:
        self.service = service
        self.seconds = service.settings.http.wait_seconds if wait is None else wait
        self.key = idempotency_key
        self._actor_type = actor_type

    @property
    def commands(self) -> Commands:
        return commands_of(self.service)

    def actor(self, caller: Caller) -> Actor:
        """Who the command is from."""
        machine = self._actor_type == "agent" or caller.actor != "human"
        return Actor(id=caller.name, type="agent" if machine else "human")

    async def give(self, caller: Caller, scope: str, command: Command) -> Given:
        """Append the command and wait for its result. Raises CommandError for a refused one."""
        await self.service.check_room(caller)
        order = Order(scope, command, self.actor(caller), self.key)
        with self.service.metrics.command() as ended:
            given = await commands_of(self.service, caller).submit(order, self.seconds)
            given.result()
            ended("pending" if given.answer is None else "applied")
        if given.answer is None:
            pending = self.service.pending
            pending[given.command_id] = scope
            while len(pending) > MOST_PENDING:
                del pending[next(iter(pending))]
        return given

    async def whole(self, caller: Caller, scope: str, command: Command) -> Response:
        """The result as it is, of each memory where there are many."""
        given = await self.give(caller, scope, command)
        return _later(given) or JSONResponse(_told(given, result=given.result()))

    async def one(self, caller: Caller, scope: str, command: Command) -> Response:
        """The result of a command about one memory, a problem where it was not done."""
        given = await self.give(caller, scope, command)
        later = _later(given)
        if later is not None:
            return later
        result = given.result()
        outcome = cast("JsonObject", result[0] if isinstance(result, list) else result)
        if outcome["status"] not in DONE:
            raise _problem(outcome, given.command_id)
        return JSONResponse(_told(given, **outcome))


async def _desk(desk: Annotated[Desk, Depends()]) -> Desk:
    return desk


DeskOf = Annotated[Desk, Depends(_desk)]


def commands_of(service: Service, caller: Caller | None = None) -> Commands:
    """`caller`: whose unprocessed bytes the commands count among."""

    @asynccontextmanager
    async def asking() -> AsyncIterator[Queries]:
        yield service.queries

    append = service.append if caller is None else partial(service.append_of, caller)
    return Commands(service.settings, append, asking, result_of=service.result_of)


def _told(given: Given, **more: object) -> dict[str, object]:
    answer = given.answer or {}
    erasing: dict[str, object] = {
        name: answer[name] for name in ("erasure", "left") if name in answer
    }
    applied = given.answer is not None and was_applied(None, answer.get("result"))
    return {"command_id": given.command_id, "applied": applied, **more, **erasing}


def _later(given: Given) -> Response | None:
    """That it is accepted, and where its result will be; None for one that has its result."""
    if given.answer is not None:
        return None
    place = {"Location": f"/api/commands/{given.command_id}"}
    return JSONResponse(_told(given), 202, place)


def _problem(outcome: JsonObject, command_id: str) -> Problem:
    """Why one memory was left as it is."""
    status = str(outcome["status"])
    why = str(outcome.get("why", f"{status}: memory {outcome['id']} was left as it is"))
    error = CommandError(status, why, command_id)  # type: ignore[arg-type]
    problem = of_command(error)
    kept = ("version", "duplicate_of")
    problem.more |= {name: outcome[name] for name in kept if name in outcome}
    return problem
