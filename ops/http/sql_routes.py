"""Read-only SQL for analysts: rows as JSON, or an Arrow stream."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Header, Response
from pydantic import Field

from palimpsest.ops.http import answers
from palimpsest.ops.http.callers import LOCAL
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import JSON_TYPE, WITH_BODY, errors, router
from palimpsest.ops.http.service import Analyst, ServiceOf
from palimpsest.ops.operations.checking import Strict
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.sql.output import ARROW_TYPE, as_arrow, json_value

routes: APIRouter = router("sql")


class SqlBody(Strict):
    """One read-only statement. It sees all scopes."""

    query: Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"\S")]
    partition: int | None = Field(default=None, ge=0, le=1023)


@routes.post(
    "/sql",
    response_model=answers.SqlRows,
    responses={
        200: {"content": {ARROW_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
        **errors(*WITH_BODY, "not_acceptable"),
    },
)
async def sql(
    service: ServiceOf,
    caller: Analyst,
    body: SqlBody,
    accept: Annotated[str, Header()] = JSON_TYPE,
) -> Response:
    """Run one SELECT over the views of all scopes; returns JSON or an Arrow stream."""
    form = _form(accept)
    who = "" if caller is LOCAL else caller.id
    seconds = service.settings.http.sql_seconds
    table = await service.queries.table(SqlRequest(body.query, body.partition, seconds, caller=who))
    content = await asyncio.to_thread(as_arrow if form == ARROW_TYPE else _json, table)
    return Response(content, media_type=form)


def _form(accept: str) -> str:
    """The requested format; JSON if any is accepted. Raises Problem for an unsupported format."""
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for each in accepted:
        if each in (JSON_TYPE, "application/*", "*/*", ""):
            return JSON_TYPE
        if each == ARROW_TYPE:
            return ARROW_TYPE
    raise Problem("not_acceptable", f"ask for {JSON_TYPE} or {ARROW_TYPE}")


def _json(table: pa.Table) -> bytes:
    columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    values = [column.to_pylist() for column in table.columns]
    rows = [[json_value(value) for value in row] for row in zip(*values, strict=True)]
    return json.dumps({"columns": columns, "rows": rows}, ensure_ascii=False).encode()
