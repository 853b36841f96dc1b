"""A route that parses its body strictly, and its errors in the OpenAPI document."""

from __future__ import annotations

import codecs
import difflib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from palimpsest.ops.http.problems import KINDS, MEDIA_TYPE, Problem
from palimpsest.ops.ingest.parsers.base import Twice, members

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"
MOST_DIGITS: Final = 1_000
"""Of an integer: more of them take longer to read than their number."""


class _StrictRequest(Request):
    """Reads the JSON of a body strictly."""

    async def json(self) -> Any:
        try:
            return read_json(without_mark(await self.body()))
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None  # which the framework expects


def read_json(body: bytes) -> object:
    """Parses JSON strictly. Raises ValueError that says what is wrong with the body."""
    if not body.strip():
        raise ValueError("the body is empty; send JSON")
    try:
        found: object = json.loads(
            body.decode("utf-8"),
            parse_constant=no_constant,
            parse_int=_number,
            object_pairs_hook=members,
        )
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    except Twice as error:
        shown = error.name.encode("utf-8", "replace").decode()
        told = f"the body has the field {shown} twice in one object; send it once"
        raise ValueError(told) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        why = {"Extra data": "there is more after its end"}.get(error.msg, error.msg)
        raise ValueError(f"the body is no JSON: {why}, at {where}") from None
    return found


def _number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"the body has a number of more than {MOST_DIGITS} digits")
    return int(digits)


def without_mark(body: bytes) -> bytes:
    """The body without the byte order mark that some programs write before UTF-8."""
    return body.removeprefix(codecs.BOM_UTF8)


def no_constant(name: str) -> float:
    raise ValueError(f"the body has {name}, which is no JSON; send null, or leave it out")


class StrictRoute(APIRoute):
    """Accepts only JSON bodies: a foreign page could send other types without a preflight
    request. Refuses parameters of the query that the route does not read: one that is misspelled,
    or belongs in the body, would have no effect."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        fields = [field for each in _all(self.dependant) for field in each.query_params]
        kinds = [each.field_info.annotation for each in fields]
        # A model of the query refuses other parameters itself.
        is_model = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
        known = None if is_model else frozenset(each.alias for each in fields)
        several = frozenset(_several(fields))

        async def handler(request: Request) -> Response:
            if known is not None and (unknown := request.query_params.keys() - known):
                raise _no_parameter(min(unknown), known)
            _check_query(request, several)
            if self.body_field is not None:
                media_type(request, JSON_TYPE)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handler


def _all(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _all(each)


def _several(fields: Iterable[ModelField]) -> Iterator[str]:
    """The names of the parameters that may be sent more than once."""
    for each in fields:
        kind = each.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, field in kind.model_fields.items():
                if _is_list(field.annotation):
                    yield field.alias or name
        elif _is_list(kind):
            yield each.alias


def _is_list(kind: object) -> bool:
    return get_origin(kind) in (list, tuple, set, frozenset) or any(map(_is_list, get_args(kind)))


def _check_query(request: Request, several: frozenset[str]) -> None:
    """Raises Problem for a parameter that is sent again, of which only the last would count, and
    for one that is not UTF-8, which would become another text."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in counts.items():
        if count > 1 and name not in several:
            why = f"is sent {count} times; send it once"
            raise Problem(
                "invalid", f"query.{name}: {why}", errors=[{"where": f"query.{name}", "why": why}]
            )
    try:
        unquote_to_bytes(request.scope.get("query_string", b"")).decode("utf-8")
    except UnicodeDecodeError:
        raise Problem("malformed", "the address is percent-encoded, but not as UTF-8") from None


def _no_parameter(name: str, known: frozenset[str]) -> Problem:
    why = "there is no such parameter of the query"
    if near := difflib.get_close_matches(name, known, n=1):
        why += f"; did you mean {near[0]}?"
    else:
        why += f"; there are {', '.join(sorted(known))}" if known else "; there is none here"
    return Problem(
        "invalid", f"query.{name}: {why}", errors=[{"where": f"query.{name}", "why": why}]
    )


def media_type(request: Request, *taken: str) -> str:
    """Returns the media type of the body, or the first of `taken` without a body. Raises Problem
    for any other type."""
    header = request.headers.get("content-type")
    has_body = request.headers.get("content-length", "0") != "0" or (
        "transfer-encoding" in request.headers
    )
    is_absent = header is None and not has_body
    found = taken[0] if is_absent else (header or "").partition(";")[0].strip()
    if found.lower() not in taken:
        raise Problem("unsupported_media_type", f"send the body as {' or '.join(taken)}")
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if has_body and packed not in ("", "identity"):
        raise Problem("unsupported_media_type", "send the body without a Content-Encoding")
    return found.lower()


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The responses of these problems in the OpenAPI document."""
    return {
        KINDS[code][0]: {
            "description": KINDS[code][1],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Failure"}}},
        }
        for code in codes
    }


ALWAYS: Final = (
    *("unauthorized", "forbidden", "misdirected", "invalid", "rate_limited", "failed"),
    "unavailable",
)
WITH_BODY: Final = ("malformed", "too_large", "unsupported_media_type")


def router(*tags: str) -> APIRouter:
    """A router for a group of routes below `/api`."""
    return APIRouter(
        prefix="/api", tags=[*tags], route_class=StrictRoute, responses=errors(*ALWAYS)
    )
