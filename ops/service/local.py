"""The worker's local interface: queries by other processes of the same user.

A store can be open in one process only, so while a worker runs, other processes ask the worker.
The interface listens on the loopback address alone, on a free port, and answers only to the token
in `<data_dir>/worker.json`, which only the folder's user may read.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from palimpsest.ops.queries.dispatch import Queries
from palimpsest.ops.queries.requests import REQUESTS, RequestError, SqlRequest
from palimpsest.ops.service.announcement import Announcement, announce
from palimpsest.ops.service.server import listening, served
from palimpsest.schemas.codec import describe

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MAX_BODY_BYTES = 1024 * 1024
ARROW_TYPE = "application/vnd.apache.arrow.stream"

RequestT = TypeVar("RequestT")


class _RefusedError(Exception):
    """A call that is not answered, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """Where an interface listens: port 0 is any that is free, and a token of its own is made
    unless one is given."""

    host: str = HOST
    port: int = 0
    token: str | None = None


@contextlib.asynccontextmanager
async def local_interface(
    queries: Queries,
    folder: Path,
    place: Place = Place(),
    partitions: Callable[[], Sequence[int]] = tuple,
) -> AsyncIterator[Announcement]:
    """Serve `queries` until the context is left; the file of the folder is then gone.

    `partitions` tells which are open here now."""
    token = place.token or secrets.token_urlsafe(32)
    with listening(place.host, place.port) as listener:
        announcement = Announcement(os.getpid(), listener.getsockname()[1], token)
        async with served(interface(queries, token, partitions), listener):
            path = announce(folder, announcement)
            try:
                yield announcement
            finally:
                path.unlink(missing_ok=True)


def interface(
    queries: Queries, token: str, partitions: Callable[[], Sequence[int]] = tuple
) -> Starlette:
    """The routes: `POST /ask/{name}` gives JSON, `POST /sql` an Arrow stream."""

    async def ask(http: HttpRequest) -> Response:
        try:
            kind = REQUESTS.get(http.path_params["name"])
            body = await _body(http, token)
            if kind is None:
                raise _RefusedError(404, f"there is no query {http.path_params['name']}")
            return JSONResponse(await queries.answer(_parsed(kind, body)))
        except _RefusedError as error:
            return JSONResponse({"error": str(error)}, error.status)
        except RequestError as error:
            return _refused(error)

    async def sql(http: HttpRequest) -> Response:
        try:
            table = await queries.table(_parsed(SqlRequest, await _body(http, token)))
        except _RefusedError as error:
            return JSONResponse({"error": str(error)}, error.status)
        except RequestError as error:
            return _refused(error)
        return Response(arrow_bytes(table), media_type=ARROW_TYPE)

    async def ping(http: HttpRequest) -> Response:
        try:
            await _body(http, token)
        except _RefusedError as error:
            return JSONResponse({"error": str(error)}, error.status)
        return JSONResponse({"pid": os.getpid(), "partitions": [*partitions()]})

    async def failed(http: HttpRequest, error: Exception) -> Response:
        # The server itself is silent: without this nobody would learn what happened.
        logger.error("%s: %s", http.url.path, type(error).__name__, exc_info=error)
        told = f"the worker failed over this ({type(error).__name__}); its own output tells more"
        return JSONResponse({"error": told}, 500)

    return Starlette(
        exception_handlers={Exception: failed},
        routes=[
            Route("/ask/{name}", ask, methods=["POST"]),
            Route("/sql", sql, methods=["POST"]),
            Route("/ping", ping, methods=["POST"]),
        ],
    )


def _refused(error: RequestError) -> Response:
    return JSONResponse({"error": str(error), "code": error.code}, 422)


async def _body(http: HttpRequest, token: str) -> bytes:
    given = http.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise _RefusedError(401, "this is not the token of this worker")
    body = bytearray()
    async for part in http.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _RefusedError(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _parsed(kind: type[RequestT], body: bytes) -> RequestT:
    try:
        return TypeAdapter(kind).validate_json(body)
    except ValidationError as error:
        raise _RefusedError(400, f"not a request of this kind: {describe(error)}") from None


def arrow_bytes(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
