"""A client for the local interface of a running worker."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import httpx

from palimpsest.ops.errors import ERRORS, NotOpenError, RequestError, UnavailableError
from palimpsest.ops.lifecycle.accesses import asker
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.requests import FileRequest, JsonObject, SqlRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.service.announcement import Announcement

ASKER: Final = "x-asked-by"
"""The header with the id of the actor who asks."""
TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 2.0
PING_SECONDS = 5.0
"""Maximum time for a worker to say that it is there: one that is suspended keeps its port open."""
COPY_SECONDS = 3600.0
"""Maximum time for a worker to copy its store before it sends the first bytes."""


class NotThereError(Exception):
    """The announced worker does not answer, or another process does."""


class RemoteQueries:
    """Queries one worker. Raises NotThereError when it is gone."""

    def __init__(self, base_url: str, token: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_SECONDS,
            verify=base_url.startswith("https:"),  # plain HTTP need not load certificates
            trust_env=False,
        )

    @classmethod
    def announced(cls, announcement: Announcement) -> Self:
        """A client for the announced worker."""
        return cls(f"http://127.0.0.1:{announcement.port}", announcement.token)

    async def close(self) -> None:
        await self._client.aclose()

    async def ping(self) -> JsonObject:
        """Returns the process id and the open partitions of the worker. Raises NotThereError, also
        after `PING_SECONDS`."""
        seconds = PING_SECONDS
        try:
            async with asyncio.timeout(seconds):
                response = await self._post("/ping", {})
        except TimeoutError as error:
            raise NotThereError(f"no answer within {seconds:g} s") from error
        state: JsonObject = response.json()
        return state

    async def answer(self, operation: Read[Any]) -> Json:
        patience = getattr(operation, "wait", 0.0) + TIMEOUT_SECONDS
        response = await self._post(f"/ask/{operation.slug}", operation.set_fields(), patience)
        return response.json()

    async def result(self, command_id: str, scope: str, seconds: float) -> JsonObject | None:
        """Raises NotThereError also when the worker stops first."""
        asked: JsonObject = {"command_id": command_id, "scope": scope, "seconds": seconds}
        try:
            response = await self._post("/result", asked, seconds + TIMEOUT_SECONDS)
        except NotOpenError as error:
            raise NotThereError(str(error)) from error
        found: JsonObject | None = response.json()
        return found

    async def table(self, request: SqlRequest) -> pa.Table:
        from pyarrow import ipc

        patience = request.seconds + TIMEOUT_SECONDS  # the query's own limit comes first
        response = await self._post("/sql", asdict(request), patience)
        table: pa.Table = ipc.open_stream(response.content).read_all()
        return table

    async def write_file(self, request: FileRequest, path: Path) -> None:
        timeout = httpx.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS, read=COPY_SECONDS)
        try:
            asked = self._client.stream("POST", "/file", json=asdict(request), timeout=timeout)
            async with asked as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _error(response)
                with path.open("wb") as file:
                    async for data in response.aiter_bytes():
                        file.write(data)
        except httpx.HTTPError as error:
            raise NotThereError(f"the worker went away during the copy: {error}") from error

    async def _post(
        self, path: str, body: JsonObject, patience: float = TIMEOUT_SECONDS
    ) -> httpx.Response:
        try:
            timeout = httpx.Timeout(patience, connect=CONNECT_SECONDS)
            headers = {} if asker.get() is None else {ASKER: quote(str(asker.get()))}
            response = await self._client.post(path, json=body, timeout=timeout, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotThereError(str(error) or "no connection") from error
        except httpx.TimeoutException as error:
            raise UnavailableError(
                f"the worker did not answer within {patience:g} s; it may be busy, try again"
            ) from error
        except httpx.HTTPError as error:
            raise NotThereError(str(error)) from error
        if response.status_code == 401:
            raise NotThereError("the worker has another token")
        if response.status_code != 200:
            raise _error(response)
        return response


def _error(response: httpx.Response) -> RequestError:
    """Rebuilds the error that the worker raised."""
    try:
        body = response.json()
        message, kind = str(body["error"]), ERRORS.get(body.get("code"), RequestError)
    except (ValueError, KeyError, TypeError, AttributeError):
        return RequestError(response.text[:300])
    return kind(message)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which only its own users can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
