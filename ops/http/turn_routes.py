"""Publishes turns of conversations: one, several, or one per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.awaited_turns import key_of
from palimpsest.ops.errors import RequestError
from palimpsest.ops.http import answers
from palimpsest.ops.http.callers import Caller
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import (
    JSON_TYPE,
    NDJSON_TYPE,
    WITH_BODY,
    errors,
    media_type,
    no_constant,
    router,
)
from palimpsest.ops.http.service import Rememberer, Service, ServiceOf
from palimpsest.ops.ingest.base import Bad
from palimpsest.ops.ingest.lines import FIELDS, Watch, near_miss, turn_of
from palimpsest.ops.ingest.records import RecordOptions
from palimpsest.ops.parts import utc_now
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.threads import in_thread_of
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import PII_REJECTED, Policy

routes: APIRouter = router("turns")
WaitForTurns = Annotated[
    float, Query(ge=0, le=60, description="seconds to wait until the turns are settled")
]

_TURN = {
    **ConversationTurn.model_json_schema(),
    "description": "A turn; besides its fields `scope` (by default the token's only one, else"
    " `default`) and `occurred_at` (by default now). Further fields are kept.",
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": {"anyOf": [_TURN, {"type": "array", "items": _TURN, "minItems": 1}]}
            },
            NDJSON_TYPE: {"schema": {"type": "string", "description": "a turn a line"}},
        },
    }
}


@routes.post(
    "/turns",
    status_code=202,
    response_model=answers.TurnsAccepted,
    responses={
        200: {"model": answers.TurnsAccepted, "description": "All are settled, with `wait`"},
        **errors(*WITH_BODY, "not_found", "pii_rejected"),
    },
    openapi_extra=_BODY,
)
async def turns(
    service: ServiceOf, caller: Rememberer, request: Request, wait: WaitForTurns = 0.0
) -> Response:
    """Publish turns: they are durable on response, and remembered shortly after.

    Invalid turns are listed by index, and the others are accepted. Sending a turn again has no
    effect. With `wait`, the response comes when all are settled (200), or after that many seconds
    (202), with the outcome of each turn: `stored`, `rejected`, `dead_letter` or `pending`.
    """
    form = media_type(request, JSON_TYPE, NDJSON_TYPE)
    await service.check_room(caller)
    read = _Read(service, caller)
    body = await request.body()
    single = await in_thread_of("body", read.lines if form == NDJSON_TYPE else read.json, body)
    if single and read.refused:
        why = read.refused[0]["why"]
        raise Problem(PII_REJECTED if why.startswith(PII_REJECTED) else "invalid", why)
    if not read.records:
        raise Problem("invalid", "there is no turn in it that can be taken", errors=read.refused)
    await in_thread_of("append", service.append_of, caller, read.records)
    answer = {"accepted": len(read.records), "refused": read.refused}
    if not wait:
        return JSONResponse(answer, 202)
    standings = await _standings(service, caller, read.records, wait)
    settled = all(each["status"] != "pending" for each in standings)
    return JSONResponse({**answer, "turns": standings}, 200 if settled else 202)


async def _standings(
    service: Service, caller: Caller, records: Sequence[Outgoing], seconds: float
) -> list[dict[str, str]]:
    """Returns the outcome of each turn within the time."""
    keys = await in_thread_of("body", lambda: [*map(key_of, records)])
    tasks = {key: asyncio.ensure_future(service.turns.of(key)) for key, _ in keys}
    try:
        await asyncio.wait(tasks.values(), timeout=seconds)
        found = {key: task.result() for key, task in tasks.items() if _has_result(task)}
    finally:
        for task in tasks.values():
            task.cancel()
    may_read = "recall" in caller.permissions
    return [
        {
            "scope": key.scope,
            "turn_id": turn.turn_id,
            "memory_id": turn_memory_id(key.scope, turn.turn_id),
            "status": str(found[key]["status"]) if key in found else "pending",
            "reason": str(found[key]["reason"]) if key in found and may_read else "",
        }
        for key, turn in keys
    ]


def _has_result(task: asyncio.Future[JsonObject]) -> bool:
    """Whether the read succeeded. If no worker is available, the turn is pending, as it is in the
    log. Raises all other errors of the read."""
    if not task.done() or task.cancelled():
        return False
    return not isinstance(task.exception(), RequestError)


@dataclass(slots=True)
class _Read:
    """The parsed turns of a body."""

    service: Service
    caller: Caller
    records: list[Outgoing] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def json(self, body: bytes) -> bool:
        """Whether it was a single turn. Raises Problem and NotFoundError."""
        raw = _parsed(body)
        if isinstance(raw, list):
            self._take((f"body[{number}]", each) for number, each in enumerate(raw))
            return False
        if isinstance(raw, dict):
            self._check_scope(raw)
        self._take([("body", raw)])
        return True

    def lines(self, body: bytes) -> bool:
        self._take(self._parsed_lines(body))
        return False

    def _parsed_lines(self, body: bytes) -> Iterator[tuple[str, object]]:
        for number, line in enumerate(body.split(b"\n"), start=1):
            if line.strip():
                try:
                    yield f"line {number}", _parsed(line)
                except Problem as problem:
                    self._refuse(f"line {number}", problem.detail)

    def _take(self, items: Iterator[tuple[str, object]] | Sequence[tuple[str, object]]) -> None:
        settings = self.service.settings
        policy = Policy.of(settings.pii)
        limit = settings.log.max_record_bytes
        options = RecordOptions(None, limit, utc_now(), policy=policy)
        watch = Watch()
        for place, raw in items:
            try:
                if isinstance(raw, dict):
                    self._check_scope(raw)
            except RequestError as error:
                self._refuse(place, str(error))
                continue
            record = turn_of(raw, place, options, watch)
            if isinstance(record, Bad):
                self._refuse(place, record.reason)
            else:
                self.records.append(record)

    def _check_scope(self, raw: dict[str, object]) -> None:
        """Sets the scope of the turn. Raises NotFoundError for a scope that is not the caller's,
        and RequestError for a likely misspelling of a known field."""
        whole = isinstance(raw.get("body"), dict)  # a message with its envelope
        for name in raw:
            meant = None if name in (*FIELDS, "schema") else near_miss(name, raw)
            if meant == "scope" or (meant is not None and not whole):
                raise RequestError(
                    f"did you mean `{meant}`? `{name}` is no field that has an effect"
                )
        named = raw.get("scope")
        if named is None or isinstance(named, str):
            raw["scope"] = self.caller.scope(named or None)

    def _refuse(self, place: str, why: str) -> None:
        self.refused.append({"where": place, "why": why})


def _parsed(text: bytes) -> object:
    try:
        found: object = json.loads(text.decode("utf-8"), parse_constant=no_constant)
    except UnicodeDecodeError:
        raise Problem("malformed", "the body is not UTF-8") from None
    except RecursionError:
        raise Problem("malformed", "the body is nested too deeply") from None
    except ValueError as error:
        raise Problem("malformed", f"the body is no JSON: {error}") from None
    return found
