"""The worker's local interface: queries by other processes of the same user.

A store can be open in one process only, so while a worker runs, other processes query the worker.
The interface listens only on loopback, on a free port, and requires the token in
`<data_dir>/worker.json`, which only the folder's user may read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, TypeVar, cast
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from palimpsest.ops.errors import NotOpenError, RequestError
from palimpsest.ops.lifecycle.accesses import asker
from palimpsest.ops.maintenance.process import Process
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.parts import SetupError
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import FileRequest, JsonObject, ResultRequest, SqlRequest
from palimpsest.ops.service.announcement import Announcement, announce, own_folder
from palimpsest.ops.service.client import ASKER
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.queries import Queries
from palimpsest.ops.service.server import listening, served
from palimpsest.ops.service.sql_queries import remove_abandoned
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.output import ARROW_TYPE, as_arrow
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.schemas.failures import describe
from palimpsest.streams.kafka.cluster import Wait

if TYPE_CHECKING:
    from palimpsest.ops.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MAX_BODY_BYTES = 1024 * 1024

RequestT = TypeVar("RequestT")
Shown: TypeAlias = "Callable[[str], Awaitable[tuple[bytes, str]]]"
"""Returns metrics in the format of an Accept header, and its media type."""
Waiting: TypeAlias = "Callable[[], Wait | None]"
Handler: TypeAlias = "Callable[[HttpRequest], Awaitable[Response]]"


RESULT_SECONDS = 60.0
"""Maximum wait for the result of a command; who wants to wait longer asks again."""


class _RefusedError(Exception):
    """A refused call, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address of an interface: port 0 picks a free one; without a token, one is generated."""

    host: str = HOST
    port: int = 0
    token: str | None = None


@contextlib.asynccontextmanager
async def local_interface(
    queries: Queries,
    folder: Path,
    place: ListenAddress = ListenAddress(),
    partitions: Callable[[], Sequence[int]] = tuple,
    shown: Shown | None = None,
    waiting: Waiting = lambda: None,
) -> AsyncIterator[Announcement]:
    """Serves `queries` until the context exits, then removes the announcement in the folder.

    `partitions` returns the open partitions, `shown` the metrics of this process, `waiting` what it
    waits for."""
    token = place.token or secrets.token_urlsafe(32)
    with listening(place.host, place.port) as listener:
        announcement = Announcement(os.getpid(), listener.getsockname()[1], token)
        closing = asyncio.Event()
        routes = interface(queries, token, partitions, folder, shown, waiting, closing)
        async with served(routes, listener):
            path = announce(folder, announcement)
            try:
                yield announcement
            finally:
                path.unlink(missing_ok=True)
                closing.set()


def interface(
    queries: Queries,
    token: str,
    partitions: Callable[[], Sequence[int]] = tuple,
    folder: Path | None = None,
    shown: Shown | None = None,
    waiting: Waiting = lambda: None,
    closing: asyncio.Event | None = None,
) -> Starlette:
    """The routes: `POST /ask/{name}` returns JSON, `POST /result` the result of a command once
    there is one, `POST /sql` an Arrow stream, `POST /file` the file of a FileRequest, which is
    written in `folder` first; `GET /metrics` returns the metrics from `shown`. Once `closing` is
    set, nobody waits for a result any more."""
    closes = closing or asyncio.Event()

    async def ask(http: HttpRequest, body: bytes) -> Response:
        kind = OPERATIONS.get(http.path_params["name"])
        if kind is None or not issubclass(kind, Read):
            raise _RefusedError(404, f"there is no read {http.path_params['name']}")
        by = http.headers.get(ASKER)
        asker.set(None if by is None else unquote(by)[:256])
        return JSONResponse(await queries.answer(_parsed(kind, body)))

    async def result(_: HttpRequest, body: bytes) -> Response:
        return JSONResponse(await _result(queries, _parsed(ResultRequest, body), closes))

    async def sql(_: HttpRequest, body: bytes) -> Response:
        table = await queries.table(_parsed(SqlRequest, body))
        return Response(as_arrow(table), media_type=ARROW_TYPE)

    async def file(_: HttpRequest, body: bytes) -> Response:
        request: FileRequest = _parsed(FileRequest, body)  # type: ignore[arg-type]
        copied = await written(lambda path: queries.write_file(request, path), folder)
        # With a Content-Length, so that the client detects a truncated copy.
        length = {"content-length": str(os.fstat(copied.fileno()).st_size)}
        return StreamingResponse(read_parts(copied), headers=length)

    async def metrics(http: HttpRequest, _: bytes) -> Response:
        if shown is None:
            raise _RefusedError(404, "this process runs no stages")
        content, form = await shown(http.headers.get("accept", ""))
        return Response(content, media_type=form)

    async def ping(_: HttpRequest, __: bytes) -> Response:
        wait = waiting()
        reason = None if wait is None else wait.as_json()
        return JSONResponse({"pid": os.getpid(), "partitions": [*partitions()], "waiting": reason})

    posted = {"/ask/{name}": ask, "/result": result, "/sql": sql, "/file": file, "/ping": ping}
    routes = [
        Route(path, _answered(token, each), methods=["POST"]) for path, each in posted.items()
    ]
    routes.append(Route("/metrics", _answered(token, metrics), methods=["GET"]))
    return Starlette(exception_handlers={Exception: _failed}, routes=routes)


async def _result(queries: Queries, wanted: ResultRequest, closes: asyncio.Event) -> Json:
    """Raises NotOpenError if the interface closes first."""
    seconds = min(wanted.seconds, RESULT_SECONDS)
    found = asyncio.ensure_future(queries.result(wanted.command_id, wanted.scope, seconds))
    closed = asyncio.ensure_future(closes.wait())
    try:
        await asyncio.wait((found, closed), return_when=asyncio.FIRST_COMPLETED)
        if found.done():
            return found.result()
        raise NotOpenError(f"the worker stops; command {wanted.command_id} waits in the log")
    finally:
        closed.cancel()
        found.cancel()


def _answered(token: str, answer: Callable[[HttpRequest, bytes], Awaitable[Response]]) -> Handler:
    """The handler of a route that requires the token."""

    async def handle(http: HttpRequest) -> Response:
        try:
            header = http.headers.get("authorization", "").encode()
            if not hmac.compare_digest(header, f"Bearer {token}".encode()):
                raise _RefusedError(401, "this is not the token of this worker")
            body = bytearray()
            async for part in http.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise _RefusedError(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
            return await answer(http, bytes(body))
        except _RefusedError as error:
            return JSONResponse({"error": str(error)}, error.status)
        except RequestError as error:
            return JSONResponse({"error": str(error), "code": error.code}, 422)

    return handle


async def _failed(http: HttpRequest, error: Exception) -> Response:
    # The server itself logs nothing, so this reports the error; without its message, which may
    # quote a query.
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s\n%s", http.url.path, type(error).__name__, frames)
    text = f"the worker failed over this ({type(error).__name__}); see its own output"
    return JSONResponse({"error": text}, 500)


async def written(write: Callable[[Path], Awaitable[None]], folder: Path | None) -> BinaryIO:
    """Returns the written file, open in a folder that is already deleted, so nothing is left
    behind."""
    with tempfile.TemporaryDirectory(prefix="copy-", dir=folder) as temporary:
        path = Path(temporary) / "copy"
        await write(path)
        return path.open("rb")


def read_parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while data := file.read(MAX_BODY_BYTES):
            yield data


def _parsed(kind: type[RequestT], body: bytes) -> RequestT:
    try:
        return TypeAdapter(kind).validate_json(body)
    except ValidationError as error:
        raise _RefusedError(400, f"not a request of this kind: {describe(error)}") from None


# ---- a running application ----
def sources_of(app: Process) -> Sources:
    """The sources of reads, from the parts of the application."""
    return Sources(
        settings=app.settings,
        log=app.log,
        shards=app.shards,
        partitions=app.log.partitions("conversation-turns"),
        embedding=app.embedding,
        loaded=app.embeddings,
        append=app.log.append,
        running=frozenset(runner.stage.name for runner in app.runners),
        outages=app.models.outages,
        usage=app.models.usage,
        unusable=lambda: app.gate.unusable,
        run_job=app.scheduler.run_now,
        waiting=lambda: app.wait,
        accesses=app.accesses,
    )


@contextlib.asynccontextmanager
async def serving_reads(app: Process) -> AsyncIterator[Sources]:
    """Answers other processes until the context exits."""
    sources = sources_of(app)
    await asyncio.to_thread(remove_abandoned, app.settings.data_dir)
    try:
        async with _answering(app, sources):
            yield sources
    finally:
        sources.sql.close()


@contextlib.asynccontextmanager
async def _answering(app: Process, sources: Sources) -> AsyncIterator[None]:
    queries = DirectQueries(sources)
    shown = _shown(app, queries)
    if app.settings.log.kind != "kafka":
        async with local_interface(queries, app.settings.data_dir, shown=shown):
            yield
        return
    # Workers that share a data folder announce themselves in separate folders.
    folder = own_folder(app.settings.data_dir)
    try:
        async with local_interface(
            queries,
            folder,
            listen_address(app.settings),
            lambda: [*sources.shards],
            shown,
            sources.waiting,
        ):
            yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _shown(app: Process, queries: DirectQueries) -> Shown:
    """The metrics of this process, created on first request."""
    metrics: list[Metrics] = []

    async def status() -> JsonObject:
        return cast("JsonObject", await queries.answer(Status()))

    async def shown(accept: str) -> tuple[bytes, str]:
        if not metrics:
            try:
                from palimpsest.ops.telemetry.metrics import Metrics
            except ModuleNotFoundError as error:
                raise RequestError(f"metrics need the extra `serve` ({error.name})") from None
            metrics.append(Metrics(status, lambda: app.runners, app.models.usage, lambda: app.wait))
        return await metrics[0].shown(accept)

    return shown


def listen_address(settings: Settings) -> ListenAddress:
    """The address of a worker on Kafka. Raises SetupError for an open address without a secret."""
    kafka = settings.kafka
    if kafka.worker_token is None:
        from palimpsest.ops.service.client import is_loopback

        if not is_loopback(kafka.listen):
            raise SetupError(
                f"kafka.listen is {kafka.listen}: others than this machine could read the memory;"
                " set kafka.worker_token, the same for all workers and readers"
            )
        return ListenAddress(kafka.listen, kafka.listen_port)
    return ListenAddress(kafka.listen, kafka.listen_port, kafka.worker_token.get_secret_value())
