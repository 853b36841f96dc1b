"""One provider over HTTP: one client, one total time-out, bounded answers, two ways to fail.

Every failure becomes a TransientModelError or a PermanentModelError whose text says what to do.
An API key lives only in the request's header: never in a text, a log or a repr.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Final

import httpx
from pydantic import JsonValue, SecretStr
from pydantic_core import from_json

from palimpsest.streams.models.base import (
    ModelError,
    PermanentModelError,
    Reply,
    TransientModelError,
    Vector,
    unit_vectors,
)

DEFAULT_TIMEOUT_S: Final = 45.0
"""For a whole call, from connecting to the last byte."""
DEFAULT_MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
MAX_EMBEDDING_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""A batch of 256 vectors of 4,096 numbers in JSON is about 24 MB."""
MAX_CONNECTIONS: Final = 32
MAX_RETRY_AFTER_S: Final = 3_600.0
MAX_SHOWN_CHARACTERS: Final = 300
"""Of a provider's own words in an error text."""

_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429})
_TOO_LONG: Final = re.compile(
    r"context (?:length|window|size)|context_length|maximum context|prompt is too long"
    r"|too many tokens|input is too long|input length|exceeds the available context"
)
_TITLE: Final = re.compile(r"<title[^>]{0,100}+>([^<]{1,200}+)<", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that arrived whole. `latency_ms` is from the call to the last byte."""

    status: int
    body: bytes
    latency_ms: float
    retry_after: float | None = None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def object(self) -> dict[str, JsonValue]:
        """The body as a JSON object; empty where it is none."""
        try:
            value: JsonValue = from_json(self.body.removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class HttpProvider:
    """A connection to one provider. Not for use from more than one event loop.

    `advice` maps a status to what its user can do about it, for example 401. `timeout_s` is the
    total for a call in seconds; `max_response_bytes` bounds what is read of an answer.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: SecretStr | None = None,
        key_header: str = "Authorization",
        key_prefix: str = "Bearer ",
        headers: Mapping[str, str] | None = None,
        advice: Mapping[int, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        try:
            url = httpx.URL(base_url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise PermanentModelError(f"{name}: the base URL is no URL: {error}") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise PermanentModelError(f"{name}: the base URL must begin with http:// or https://")
        if url.port is not None and not 0 < url.port < 65_536:
            raise PermanentModelError(f"{name}: the port of the base URL is not one of 1 to 65535")
        self.name = name
        self.shown_url = str(url.copy_with(userinfo=b"", query=None))
        self._advice = dict(advice or {})
        self._timeout_s = timeout_s
        self._max_bytes = max_response_bytes
        self._key = api_key
        key = api_key.get_secret_value().strip() if api_key else ""
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        if key:
            if not key.isascii() or not key.isprintable():
                raise PermanentModelError(f"{name}: the API key has characters that no key has")
            sent[key_header] = key_prefix + key
        self._url = url
        self._headers = sent
        # A client a connection: a pool looks at all of its connections at every request, which
        # at 16 of them costs more than the request.
        self._idle: list[httpx.AsyncClient] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        # To read all certificates takes longer than many a call: not where none are requested.
        self._trusted = httpx.create_ssl_context() if url.scheme == "https" else False

    async def post(self, path: str, payload: Mapping[str, JsonValue]) -> Answer:
        """Send `payload` as JSON; the answer of status 200, else an error of the two kinds."""
        answer = await self.exchange("POST", path, payload)
        if answer.status != 200:
            raise self.failure(answer)
        return answer

    async def exchange(
        self,
        method: str,
        path: str,
        payload: Mapping[str, JsonValue] | None,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request and its whole answer, whatever its status, within `timeout_s` seconds."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        started = perf_counter()
        body = bytearray()
        sent = None
        headers = {}
        if payload is not None:
            # Half a surrogate pair, which cannot be sent, becomes a question mark.
            sent = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client() as client,
                client.stream(method, path, content=sent, headers=headers) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > self._max_bytes:
                        raise PermanentModelError(
                            f"{self.name} at {self.shown_url} answered with more than"
                            f" {self._max_bytes} bytes; that is no answer of a model"
                        )
        except TimeoutError:
            raise TransientModelError(
                f"{self.name} at {self.shown_url} did not answer within {timeout_s:g} s;"
                " it may be loading or overloaded (a longer time-out is a setting)"
            ) from None
        except httpx.ConnectError as error:
            what, advice = _unreachable(str(error))
            advice = advice or self._advice.get(0, "start it or correct the base URL")
            raise TransientModelError(
                f"{self.name} at {self.shown_url} cannot be reached ({self.hidden(what)}); {advice}"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = self.hidden(str(error)) or "without a reason"
            if isinstance(error, httpx.DecodingError):
                what = "its answer is not compressed as it says"
            raise TransientModelError(
                f"{self.name} at {self.shown_url} broke the connection ({what})"
            ) from None
        waited = (perf_counter() - started) * 1000
        retry_after = _retry_after(response.headers)
        return Answer(response.status_code, bytes(body), waited, retry_after)

    def failure(self, answer: Answer) -> ModelError:
        """The error that a status other than 200 means, with the provider's own words."""
        detail = self.hidden(error_text(answer))
        text = f"{self.name} at {self.shown_url} answered {answer.status}: {detail}"
        if answer.status in _TRANSIENT_STATUS or answer.status >= 500:
            return TransientModelError(text, answer.retry_after)
        return PermanentModelError(f"{text}; {self._what_to_do(answer)}")

    def raise_wrapped(
        self, answer: Answer, body: Mapping[str, JsonValue], *, unless: str = ""
    ) -> None:
        """Raise the failure that a gateway wraps in an answer of status 200 of which `body` is the
        whole or a part; not where there is an answer under `unless`."""
        error = body.get("error")
        if not error or body.get(unless):
            return
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        said = json.dumps({"error": error}).encode()
        raise self.failure(Answer(status, said, answer.latency_ms))

    def _what_to_do(self, answer: Answer) -> str:
        if is_too_long(answer):
            return "the context is too long: shorten the input or choose a larger model"
        if answer.status in self._advice:
            return self._advice[answer.status]
        if 300 <= answer.status < 400:
            return "it redirects: correct the base URL"
        return {
            401: "set a valid API key",
            403: "the API key may not use this; check its rights",
            404: "check the base URL and the model's name",
        }.get(answer.status, "the request is not accepted as it is; check model and settings")

    def hidden(self, text: str) -> str:
        """`text` in one line, cut, and without the API key should the provider repeat it."""
        key = self._key.get_secret_value().strip() if self._key else ""
        if key:
            text = text.replace(key, "[key]")
        return " ".join(text.split())[:MAX_SHOWN_CHARACTERS]

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that no one else uses meanwhile, the last used first."""
        async with self._slots:
            client = (
                self._idle.pop()
                if self._idle
                else httpx.AsyncClient(
                    base_url=self._url,
                    headers=self._headers,
                    timeout=None,  # noqa: S113 - the total in `exchange` is the only clock
                    limits=httpx.Limits(max_connections=1),
                    verify=self._trusted,
                    # A proxy of the environment is for the world outside, not for this machine.
                    trust_env=self._url.host not in ("localhost", "127.0.0.1", "::1"),
                )
            )
            try:
                yield client
            finally:
                self._idle.append(client)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().aclose()


def _unreachable(error: str) -> tuple[str, str]:
    """Why there is no connection in plain words, and what to do about it where it is of this
    sort only."""
    if "CERTIFICATE_VERIFY_FAILED" in error:
        why = error.partition("verify failed: ")[2].partition(" (_ssl")[0]
        advice = (
            "correct the base URL, or name the certificates to trust in the environment variable"
            " SSL_CERT_FILE"
        )
        return f"its certificate is not trusted: {why or 'no reason is given'}", advice
    if "[SSL" in error or "TLS" in error:
        advice = "correct the base URL: http:// where the server speaks no TLS, or another port"
        return "no TLS connection can be made", advice
    if any(each in error for each in ("Name or service", "nodename", "name resolution")):
        return "no host of this name is found", "correct the base URL, or look at the network"
    return error or "no connection", ""


def error_text(answer: Answer) -> str:
    """What the provider says of its failure, from the usual places, else the body's beginning."""
    found: JsonValue = answer.object()
    for key in ("error", "message"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    shown = found if isinstance(found, str) else answer.text[: MAX_SHOWN_CHARACTERS * 4]
    if shown.lstrip().startswith("<") and (title := _TITLE.search(shown)) is not None:
        shown = f"a page titled {title[1].strip()}"
    return shown or "(nothing)"


def is_too_long(answer: Answer) -> bool:
    """Whether the provider refused because the prompt does not fit its context."""
    lowered = answer.text[:10_000].lower()
    return answer.status == 413 or _TOO_LONG.search(lowered) is not None


def whole_number(value: JsonValue) -> int | None:
    """A token count, None where the provider told none that makes sense."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count and isinstance(value, int) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, from seconds or from an HTTP date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        seconds = (until - datetime.now(UTC)).total_seconds()
    if seconds != seconds:  # noqa: PLR0124 - a server may well say "nan"
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


class RemoteModel(ABC):
    """One model of a provider."""

    check_timeout_s = 3.0
    """Of a check, in seconds."""

    def __init__(self, http: HttpProvider, model: str) -> None:
        self.provider = http.name
        self.model = model
        self._http = http

    async def check(self) -> str | None:
        try:
            return await self._problem()
        except ModelError as error:
            return str(error)

    @abstractmethod
    async def _problem(self) -> str | None:
        """Why the model cannot be used, None where it can. May raise ModelError."""

    async def _listed(self, path: str, *fine: int) -> Answer | None:
        """What the provider says of its models; None for a status that is `fine`."""
        answer = await self._http.exchange("GET", path, None, self.check_timeout_s)
        if answer.status in fine:
            return None
        if answer.status != 200:
            raise self._http.failure(answer)
        return answer

    async def close(self) -> None:
        await self._http.close()

    def reply(
        self, answer: Answer, text: str | None, usage: JsonValue, counts: tuple[str, str]
    ) -> Reply:
        """`counts` name the tokens of prompt and reply in `usage`. Where there is no `text`, the
        answer is handed on as it is: it is asked again, then kept."""
        counted = usage if isinstance(usage, dict) else {}
        tokens = [whole_number(counted.get(name)) for name in counts]
        return Reply(
            text=answer.text if text is None else text,
            model=self.model,
            provider=self.provider,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            latency_ms=answer.latency_ms,
        )


class RemoteEmbeddingModel(RemoteModel):
    """Vectors of `dimensions` numbers. Prefixes are for models trained with them."""

    def __init__(
        self,
        http: HttpProvider,
        model: str,
        dimensions: int,
        query_prefix: str,
        passage_prefix: str,
    ) -> None:
        super().__init__(http, model)
        self.dimensions = dimensions
        self._query_prefix, self._passage_prefix = query_prefix, passage_prefix

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embed([self._passage_prefix + text for text in texts]) if texts else []

    async def embed_query(self, text: str) -> Vector:
        return (await self._embed([self._query_prefix + text]))[0]

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        # Most servers refuse an empty input.
        rows = await self._rows([text or " " for text in texts])
        return unit_vectors(
            f"{self.provider} model {self.model}", rows, len(texts), self.dimensions
        )

    @abstractmethod
    async def _rows(self, texts: list[JsonValue]) -> JsonValue:
        """The vectors of at least one text, none of them empty, in order, as they were answered."""
