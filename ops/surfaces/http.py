"""Routes of the HTTP service: one for each operation with a path, and `POST /api/rpc/{slug}`,
through which clients reach all operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, create_model
from pydantic_core import to_json

from palimpsest.ops.http.answers import Accepted
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import JSON_TYPE, WITH_BODY, errors, router
from palimpsest.ops.http.service import (
    ActorHeader,
    Service,
    ServiceOf,
    WaitSeconds,
    check_permission,
    permitted,
)
from palimpsest.ops.http.tokens import Caller
from palimpsest.ops.operations.answers import CommandResult
from palimpsest.ops.operations.checking import Strict, built, checked, field_type, model_of
from palimpsest.ops.operations.operation import (
    Json,
    Operation,
    Parameter,
    Write,
    answer_type,
    description,
    parameters,
    without_none,
)
from palimpsest.ops.service.executing import NotYetAppliedError, is_refused_alike, refusal
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.schemas.envelope import ActorType

Kind = type[Operation[Any]]
MOST_WAIT_SECONDS: Final = 60.0
ABOUT_WHAT_EXISTS: Final = frozenset({"scope", "ids", "domain"})
"""Fields whose value may name something unknown, which is answered by 404."""


class Waiting(Strict):
    """The query parameter `wait`."""

    wait: WaitSeconds = None


def _add(api: APIRouter, kind: Kind, method: str, path: str) -> None:
    responses: dict[int | str, dict[str, Any]] = {}
    fields = parameters(kind)
    names = {each.name for each in fields} if kind.surface.routing != "folder" else set()
    if issubclass(kind, Write):
        responses[202] = {"model": Accepted, "description": "Accepted, and not yet applied"}
        responses |= errors("conflict")
    if "{" in path or names & ABOUT_WHAT_EXISTS:
        responses |= errors("not_found")
    if _has_body(method) and _left(fields, path):
        responses |= errors(*WITH_BODY)
    api.add_api_route(
        path.removeprefix(api.prefix),
        _endpoint(kind, method, path),
        methods=[method],
        status_code=kind.surface.status,
        tags=[kind.surface.tag],
        name=kind.slug,
        operation_id=kind.slug,
        description=description(kind),
        response_model=without_none(answer_type(kind)),
        responses=responses,
    )


def _has_body(method: str) -> bool:
    return method not in ("GET", "DELETE")


def _in_path(path: str) -> list[str]:
    return re.findall(r"{(\w+)", path)


def _left(fields: tuple[Parameter, ...], path: str) -> list[Parameter]:
    """The fields that come from the body or the query: not from the path, a header or `wait`."""
    apart = {*_in_path(path), "wait"}
    return [
        each
        for each in fields
        if each.on("http") and each.name not in apart and each.doc.header is None
    ]


def _endpoint(kind: Kind, method: str, path: str) -> Callable[..., Awaitable[Response]]:
    async def call(
        service: Service,
        caller: Caller,
        request: BaseModel | None = None,
        actor_type: ActorType | None = None,
        **values: Any,
    ) -> Response:
        if request is not None and "wait" in type(request).model_fields:
            values.pop("wait")
        operation = built(kind, request, **values)
        answer = await _answer(service, caller, operation, actor_type)
        if isinstance(operation, Write) and isinstance(answer, dict):
            # A refused row among others is told in its row.
            refused = refusal(answer)
            if refused is not None and is_refused_alike(answer):
                raise refused
        if isinstance(operation, CommandResult) and answer is None:
            # The state of a command without a result, known only to the service that accepted it.
            scope = service.pending.get(operation.command_id)
            if scope is None or not caller.sees(scope) or operation.scope not in (None, scope):
                raise Problem("not_found", f"there is no pending command {operation.command_id}")
            answer = {"command_id": operation.command_id, "scope": scope, "applied": False}
        return answer if isinstance(answer, Response) else _json(answer, kind.surface.status)

    call.__name__ = kind.slug
    call.__doc__ = kind.__doc__
    call.__signature__ = inspect.Signature([*_signature(kind, method, path)])  # type: ignore[attr-defined]
    return call


def _signature(kind: Kind, method: str, path: str) -> Iterator[inspect.Parameter]:
    """The endpoint's parameters for FastAPI: from the path, headers, and the body or the query."""
    yield _keyword("service", ServiceOf)
    yield _keyword("caller", Annotated[Caller, Depends(permitted(kind.surface))])
    fields = parameters(kind)
    for each in fields:
        about = each.doc.text
        if each.name in _in_path(path):
            yield _keyword(each.name, Annotated[field_type(each), Path(description=about)])
        elif each.doc.header is not None:
            header = Header(alias=each.doc.header, description=about)
            yield _keyword(each.name, Annotated[field_type(each), header], each.default)
    if issubclass(kind, Write):
        yield _keyword("actor_type", ActorHeader, None)
        yield _keyword("wait", WaitSeconds, None)
    left = _left(fields, path)
    if not left:
        return
    apart = tuple({each.name for each in fields} - {each.name for each in left})
    model = model_of(kind, tuple(sorted(apart)), "http")
    if _has_body(method):
        default = inspect.Parameter.empty if any(each.required for each in left) else model()
        yield _keyword("request", Annotated[model, Body()], default)
        return
    if issubclass(kind, Write):
        model = create_model(kind.__name__, __base__=(model, Waiting))
    yield _keyword("request", Annotated[model, Query()])


def _keyword(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


async def _answer(
    service: Service, caller: Caller, operation: Operation[Any], actor_type: ActorType | None
) -> Json | Response:
    """Returns the executor's answer, or a 202 response for a pending command."""
    try:
        answer = await service.perform(caller, operation, actor_type)
    except NotYetAppliedError as error:
        pending = {"command_id": error.command_id, "applied": False, "scope": error.scope}
        return _json(pending, 202, {"Location": f"/api/commands/{error.command_id}"})
    return answer


def _json(answer: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # pydantic's serializer is fast: an answer with the texts of ten memories can be megabytes.
    return Response(to_json(answer), status, headers, JSON_TYPE)


# ---- for the clients ----
async def rpc(
    service: ServiceOf,
    request: Request,
    slug: str,
    fields: Annotated[dict[str, Any] | None, Body()] = None,
    actor_type: ActorHeader = None,
) -> Response:
    """Execute the operation with this name; the body is a JSON object of its fields."""
    kind = OPERATIONS.get(slug)
    if kind is None:
        raise Problem("not_found", f"there is no operation {slug}")
    caller: Caller = request.state.caller
    check_permission(caller, kind.surface)
    operation = checked(kind, fields or {})
    if isinstance(operation, Write) and operation.wait is not None:
        operation = replace(operation, wait=min(operation.wait, MOST_WAIT_SECONDS))
    answer = await _answer(service, caller, operation, actor_type)
    return answer if isinstance(answer, Response) else _json(answer)


def api_routes() -> APIRouter:
    """The routes generated from the catalogue."""
    api = router()
    for kind in OPERATIONS.values():
        if kind.surface.http is not None:
            _add(api, kind, *kind.surface.http)
    api.add_api_route("/rpc/{slug}", rpc, methods=["POST"], include_in_schema=False)
    return api
