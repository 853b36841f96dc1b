"""Publishing turns of conversations: one, many, or a line each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

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
from palimpsest.ops.threads import in_thread_of
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import PII_REJECTED, Policy

routes: APIRouter = router("turns")

_TURN = {
    **ConversationTurn.model_json_schema(),
    "description": "A turn; beside its fields `scope` (else the token's only one, else `default`)"
    " and `occurred_at` (else now). Further fields are kept.",
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
    responses=errors(*WITH_BODY, "not_found", "pii_rejected"),
    openapi_extra=_BODY,
)
async def turns(service: ServiceOf, caller: Rememberer, request: Request) -> Response:
    """Publish turns: durable when this answers, remembered shortly after.

    Invalid turns are listed with their index, and the others are accepted. Sending a turn again has
    no effect.
    """
    form = media_type(request, JSON_TYPE, NDJSON_TYPE)
    await service.check_room(caller)
    read = _Read(service, caller)
    given = await request.body()
    single = await in_thread_of("body", read.lines if form == NDJSON_TYPE else read.json, given)
    if single and read.refused:
        why = read.refused[0]["why"]
        raise Problem(PII_REJECTED if why.startswith(PII_REJECTED) else "invalid", why)
    if not read.records:
        raise Problem("invalid", "there is no turn in it that can be taken", errors=read.refused)
    await in_thread_of("append", service.append_of, caller, read.records)
    accepted = len(read.records)
    return JSONResponse({"accepted": accepted, "refused": read.refused}, 202)


@dataclass(slots=True)
class _Read:
    """What a body holds."""

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

    def _take(self, given: Iterator[tuple[str, object]] | Sequence[tuple[str, object]]) -> None:
        settings = self.service.settings
        policy = Policy.of(settings.pii)
        limit = settings.log.max_record_bytes
        options = RecordOptions(None, limit, utc_now(), policy=policy)
        watch = Watch()
        for place, raw in given:
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
        """Give the turn its scope. Raises NotFoundError for one that is not the caller's,
        RequestError for a field that is probably meant as it."""
        named = raw.get("scope")
        for name in raw if named is None else ():
            if name not in FIELDS and near_miss(name, raw) == "scope":
                raise RequestError(f"did you mean `scope`? `{name}` is no field that has an effect")
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
