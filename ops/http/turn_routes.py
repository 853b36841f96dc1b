"""Publishes turns of conversations: one, several, one per line, or those of a file."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.errors import RequestError
from palimpsest.ops.http import answers
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import (
    JSON_TYPE,
    NDJSON_TYPE,
    WITH_BODY,
    errors,
    media_type,
    read_json,
    router,
    without_mark,
)
from palimpsest.ops.http.service import Rememberer, Service, ServiceOf
from palimpsest.ops.http.tokens import Caller
from palimpsest.ops.ingest.lines import FIELDS, Watch, near_miss, turn_of, without_effect
from palimpsest.ops.ingest.opening import Found, open_source, options_of
from palimpsest.ops.ingest.parsers.base import Bad, Note, ReadOptions, Unreadable
from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published, in_batches, not_erased
from palimpsest.ops.ingest.requests import SentFile
from palimpsest.ops.ingest.sources import sent_source
from palimpsest.ops.operations.awaited_results import TurnKey, key_of
from palimpsest.ops.operations.checking import Strict, built, model_of
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
    body = without_mark(await request.body())
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
    keys = await in_thread_of("body", lambda: [*map(key_of, read.records)])
    found: Mapping[TurnKey, JsonObject] = {}
    with contextlib.suppress(RequestError):  # no worker is there: pending, as they are in the log
        found = await service.turns.within([key for key, _ in keys], wait)
    may_read = "recall" in caller.permissions
    standings = [
        {
            "scope": key.scope,
            "turn_id": turn.turn_id,
            "memory_id": turn_memory_id(key.scope, turn.turn_id),
            "status": str(found[key]["status"]) if key in found else "pending",
            "reason": str(found[key]["reason"]) if key in found and may_read else "",
        }
        for key, turn in keys
    ]
    settled = all(each["status"] != "pending" for each in standings)
    return JSONResponse({**answer, "turns": standings}, 200 if settled else 202)


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
        options = ReadOptions(None, limit, utc_now(), policy=policy)
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
        body = raw.get("body")
        for fields in [raw, *([body] if isinstance(body, dict) else [])]:
            for name in fields:
                meant = None if name in (*FIELDS, "schema") else near_miss(name, fields)
                # Beside a body lie the fields of its envelope, as `id`.
                if meant == "scope" or (meant is not None and (fields is body or body is None)):
                    raise RequestError(without_effect(name, meant))
        named = raw.get("scope")
        if named is None or isinstance(named, str):
            raw["scope"] = self.caller.scope(named or None)

    def _refuse(self, place: str, why: str) -> None:
        self.refused.append({"where": place, "why": why})


def _parsed(text: bytes) -> object:
    try:
        return read_json(text)
    except ValueError as error:
        raise Problem("malformed", str(error)) from None


# ---- a file ----
FILE_TYPE: Final = "application/octet-stream"
MOST_TOLD: Final = 100
"""Maximum number of refused parts that are listed."""
_FILE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            FILE_TYPE: {"schema": {"type": "string", "format": "binary"}},
            NDJSON_TYPE: {"schema": {"type": "string", "description": "turns by lines"}},
        },
    }
}


if TYPE_CHECKING:
    IngestQuery = Strict
else:
    IngestQuery = model_of(SentFile)


@routes.post(
    "/ingest",
    status_code=202,
    response_model=answers.Ingested,
    responses=errors("too_large", "unsupported_media_type", "not_found"),
    openapi_extra=_FILE_BODY,
)
async def ingest(
    service: ServiceOf,
    caller: Rememberer,
    request: Request,
    query: Annotated[IngestQuery, Query()],
) -> Response:
    """Publish the turns of a file: they are durable on response, and remembered shortly after.

    Reads what the command `ingest` reads: exports of ChatGPT, Claude, Slack, WhatsApp, Telegram
    and Discord (JSON), also as a zip, mail (mbox, .eml), saved chats of Zoom, transcripts (SRT,
    VTT, the text of Zoom, Teams, Meet and Otter, lines as "Ana: Hello"), messages with role and
    content, turns as JSON lines, LoCoMo files. Sending a file again, or a longer version of it,
    creates no duplicates; on the embedded log not under another name either.
    """
    media_type(request, FILE_TYPE, NDJSON_TYPE)
    asked, now = built(SentFile, query), utc_now()
    if asked.scope or not caller.sees_all:
        asked = replace(asked, scope=caller.scope(asked.scope))
    options = options_of(service.settings, asked, now)
    await service.check_room(caller)
    ingestion = _Ingestion(service, caller)
    # Nothing of it stays behind, whatever happens: the file has no name.
    with tempfile.TemporaryFile(dir=service.settings.data_dir) as file:
        async for part in request.stream():
            file.write(part)
        await in_thread_of("body", ingestion.take, file, asked, asked.modified or now, options)
    return JSONResponse(ingestion.as_json(), 202)


@dataclass(slots=True)
class _Ingestion:
    """The turns of a file, as they are published."""

    service: Service
    caller: Caller
    format: str = ""
    standings: Counter[str] = field(default_factory=Counter)
    scopes: Counter[str] = field(default_factory=Counter)
    refused: list[dict[str, str]] = field(default_factory=list)
    refused_parts: int = 0
    notes: list[str] = field(default_factory=list)

    def take(self, file: IO[bytes], asked: SentFile, time: datetime, options: ReadOptions) -> None:
        """Raises Problem if there is no turn in it."""
        settings = self.service.settings
        before = Published(self.service.log if settings.log.kind == "embedded" else None)
        try:
            source = sent_source(asked.name, file, time, settings.http.max_ingest_bytes)
            with open_source(source, options) as opened:
                self.format = opened.format
                found = self._good(opened.items)
                for batch in in_batches(recognised(found, before, utc_now(), self.notes.append)):
                    standings = [before.standing(record) for record in batch]
                    kept = not_erased(batch, standings)
                    self.service.append_of(self.caller, kept, begun=True)
                    self.standings.update(standings)
                    self.scopes.update(record.scope for record in kept)
        except Unreadable as error:
            self._refuse(asked.name, str(error))
        if not self.standings:
            why = f"{self.refused[0]['where']}: {self.refused[0]['why']}" if self.refused else ""
            raise Problem("invalid", why or "there is no turn in it", errors=self.refused)

    def _good(self, items: Iterator[Found]) -> Iterator[Outgoing]:
        for item, _ in items:
            if isinstance(item, Bad):
                self._refuse(item.place, item.reason)
            elif isinstance(item, Note):
                self.notes.append(item.text)
            else:
                yield item

    def _refuse(self, where: str, why: str) -> None:
        self.refused_parts += 1
        if self.refused_parts <= MOST_TOLD:
            self.refused.append({"where": where, "why": why})

    def as_json(self) -> JsonObject:
        return {
            "format": self.format,
            "accepted": self.scopes.total(),
            "scopes": dict(self.scopes),
            "new": self.standings["new"],
            "known": self.standings["known"],
            "revised": self.standings["revised"],
            "conflicts": self.standings["conflict"],
            "erased": self.standings["erased"],
            "refused": [dict(each) for each in self.refused],
            "refused_parts": self.refused_parts,
            "notes": [*self.notes],
        }
