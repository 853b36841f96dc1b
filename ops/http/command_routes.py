"""Changing memories: every route gives a command, and answers when it is carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.command_kinds import was_applied
from palimpsest.ops.forgetting import erase_command, forget_by_ids
from palimpsest.ops.http import answers
from palimpsest.ops.http import command_bodies as bodies
from palimpsest.ops.http.callers import Caller, Permission
from palimpsest.ops.http.commands import DeskOf
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import WITH_BODY, errors, router
from palimpsest.ops.http.service import Service, ServiceOf, permitted
from palimpsest.ops.queries.errors import NotFoundError
from palimpsest.ops.queries.requests import CommandRequest, ForgetPreviewRequest
from palimpsest.schemas.commands import (
    AliasCommand,
    ConfirmCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)

routes: APIRouter = router("changes")


def _may(permission: Permission) -> Any:
    return Depends(permitted(permission))


Rememberer = Annotated[Caller, _may("remember")]
Modifier = Annotated[Caller, _may("modify")]
Forgetter = Annotated[Caller, _may("forget")]
Recoverer = Annotated[Caller, _may("recover")]

Responses: TypeAlias = dict[int | str, dict[str, Any]]

NO_REASON = bodies.ReasonBody()
ACCEPTED: Responses = {202: {"model": answers.Accepted, "description": "Not carried out yet"}}
REFUSED = errors("not_found", "conflict")
WRITTEN: Responses = {**ACCEPTED, **REFUSED, **errors("rate_limited")}
WITH = errors(*WITH_BODY)


@routes.post(
    "/memory/remember", response_model=answers.Remembered, responses={**ACCEPTED, **REFUSED, **WITH}
)
async def remember(desk: DeskOf, caller: Rememberer, body: bodies.RememberBody) -> Response:
    """Keep a text. One that is known already is not kept twice: `deduped`."""
    said = body.model_dump(exclude={"scope"}, exclude_unset=True)
    scope = caller.scope(body.scope)
    return await desk.whole(caller, scope, RememberCommand.model_validate(said))


@routes.post("/memory/modify", response_model=answers.Changed, responses={**WRITTEN, **WITH})
async def modify(desk: DeskOf, caller: Modifier, body: bodies.ModifyBody) -> Response:
    """Change up to 200 memories of a scope, each for itself: `result` tells what became of each."""
    desk.service.rates.count(caller.id, "modify")
    scope = await _scope(desk.service, caller, body.scope, body.patches[0].id)
    patches = tuple(
        MemoryPatch(memory_id=patch.id, **patch.model_dump(exclude={"id"}))
        for patch in body.patches
    )
    return await desk.whole(caller, scope, ModifyCommand(patches=patches, reason=body.reason or ""))


async def _scope(service: Service, caller: Caller, named: str | None, memory_id: str) -> str:
    """The scope that is named, else that of the first memory; what lies elsewhere is not found."""
    if named is None:
        try:
            return await service.scope_of(memory_id, caller)
        except NotFoundError:
            return caller.scope(None)
    return caller.scope(named)


@routes.patch("/memory/{id}", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH})
async def patch(
    desk: DeskOf,
    caller: Modifier,
    id: str,  # noqa: A002
    body: bodies.ChangeBody,
) -> Response:
    """Change one memory; the state before stays in its history."""
    desk.service.rates.count(caller.id, "modify")
    change = MemoryPatch(memory_id=id, **body.model_dump(exclude={"reason"}))
    return await _patched(desk, caller, change, body.reason)


async def _patched(desk: DeskOf, caller: Caller, change: MemoryPatch, reason: str) -> Response:
    scope = await desk.service.scope_of(change.memory_id, caller)
    return await desk.one(caller, scope, ModifyCommand(patches=(change,), reason=reason))


@routes.post(
    "/memory/{id}/correct", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH}
)
async def correct(
    desk: DeskOf,
    caller: Modifier,
    id: str,  # noqa: A002
    body: bodies.CorrectBody,
) -> Response:
    """Say what a memory should say."""
    desk.service.rates.count(caller.id, "modify")
    change = MemoryPatch(memory_id=id, content=body.content, if_version=body.if_version)
    return await _patched(desk, caller, change, body.reason)


@routes.post("/memory/{id}/pin", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH})
async def pin(
    desk: DeskOf,
    caller: Modifier,
    id: str,  # noqa: A002
    body: bodies.ReasonBody = NO_REASON,
) -> Response:
    """Pin a memory: no machine may change or forget it."""
    desk.service.rates.count(caller.id, "modify")
    change = MemoryPatch(memory_id=id, pinned=True, if_version=body.if_version)
    return await _patched(desk, caller, change, body.reason or "pinned")


@routes.post("/memory/{id}/unpin", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH})
async def unpin(
    desk: DeskOf,
    caller: Modifier,
    id: str,  # noqa: A002
    body: bodies.ReasonBody = NO_REASON,
) -> Response:
    """Unpin a memory."""
    desk.service.rates.count(caller.id, "modify")
    change = MemoryPatch(memory_id=id, pinned=False, if_version=body.if_version)
    return await _patched(desk, caller, change, body.reason or "unpinned")


@routes.post(
    "/memory/{id}/confirm", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH}
)
async def confirm(
    desk: DeskOf,
    caller: Modifier,
    id: str,  # noqa: A002
    body: bodies.ReasonBody = NO_REASON,
) -> Response:
    """Vouch for a memory: it no longer decays, and no machine may change it."""
    desk.service.rates.count(caller.id, "modify")
    scope = await desk.service.scope_of(id, caller)
    order = ConfirmCommand(memory_id=id, reason=body.reason, if_version=body.if_version)
    return await desk.one(caller, scope, order)


@routes.post(
    "/memory/{id}/recover", response_model=answers.ChangedOne, responses={**WRITTEN, **WITH}
)
async def recover(
    desk: DeskOf,
    caller: Recoverer,
    id: str,  # noqa: A002
    body: bodies.ReasonBody = NO_REASON,
) -> Response:
    """Take a forgotten memory back."""
    desk.service.rates.count(caller.id, "modify")
    scope = await desk.service.scope_of(id, caller)
    order = RecoverCommand(memory_id=id, reason=body.reason, if_version=body.if_version)
    return await desk.one(caller, scope, order)


@routes.delete("/memory/{id}", response_model=answers.ChangedOne, responses=WRITTEN)
async def delete(
    desk: DeskOf,
    caller: Forgetter,
    id: str,  # noqa: A002
    asked: Annotated[bodies.ForgetParameters, Query()],
) -> Response:
    """Forget one memory: hidden at once, recoverable for a while."""
    desk.service.rates.count(caller.id, "delete")
    scope = await desk.service.scope_of(id, caller)
    order = ForgetCommand(
        memory_ids=(id,),
        reason=asked.reason,
        force=asked.force,
        if_version=asked.if_version,
        hard=asked.hard or None,
    )
    return await desk.one(caller, scope, order)


@routes.post(
    "/memory/forget",
    response_model=answers.Changed | answers.ForgetPreview,
    responses={**WRITTEN, **WITH},
)
async def forget(desk: DeskOf, caller: Forgetter, body: bodies.ForgetBody) -> Response:
    """Forget many memories, or see beforehand which."""
    return await _forgotten(desk, caller, _selection(caller, body), body)


@routes.post(
    "/memory/erase",
    response_model=answers.Changed | answers.ErasedScope | answers.ForgetPreview | answers.Counted,
    responses={**WRITTEN, **WITH},
)
async def erase(desk: DeskOf, caller: Forgetter, body: bodies.EraseBody) -> Response:
    """Erase what memories say, for good, or see beforehand which. The answer tells whether
    files may still have the texts, and `GET /api/commands/{id}` when they have not."""
    if body.whole_scope and "admin" not in caller.permissions:
        raise Problem("forbidden", "to erase a whole scope, a token needs the permission admin too")
    selection = replace(_selection(caller, body), whole_scope=body.whole_scope)
    return await _forgotten(desk, caller, selection, body)


def _selection(caller: Caller, body: bodies.ForgetBody) -> ForgetPreviewRequest:
    return ForgetPreviewRequest(
        caller.scope(body.scope),
        body.ids,
        body.query,
        body.type,
        body.tags,
        body.who,
        body.source_type,
        body.since,
        body.until,
        body.limit,
        body.cascade,
        body.hard,
        roles=body.role,
        min_score=body.min_score,
    )


async def _forgotten(
    desk: DeskOf, caller: Caller, selection: ForgetPreviewRequest, body: bodies.ForgetBody
) -> Response:
    if body.mode == "preview":
        return JSONResponse(await desk.service.ask(selection))
    desk.service.rates.count(caller.id, "batch_forget")
    reason, token = body.reason or "", body.confirm_token
    # Under a key the request may come again, when the memories are forgotten already.
    by_ids = None if desk.key is None else forget_by_ids(selection, reason, token, body.force)
    order = by_ids or await erase_command(
        desk.service.queries, selection, reason, token, body.force
    )
    return await desk.whole(caller, selection.scope, order)


@routes.post(
    "/entities/{name:path}/aliases", response_model=answers.Aliased, responses={**WRITTEN, **WITH}
)
async def alias(desk: DeskOf, caller: Modifier, name: str, body: bodies.AliasBody) -> Response:
    """Tell that two names mean the same: a person, a place, a thing."""
    desk.service.rates.count(caller.id, "modify")
    order = AliasCommand(name=name, alias=body.alias, reason=body.reason)
    return await desk.whole(caller, caller.scope(body.scope), order)


@routes.get("/commands/{id}", response_model=answers.CommandState, responses=errors("not_found"))
async def command(
    service: ServiceOf,
    caller: Annotated[Caller, Depends(permitted("recall"))],
    id: str,  # noqa: A002
) -> Response:
    """What became of a command: `applied` is false while it is on its way, or was refused."""
    answer = await service.queries.answer(CommandRequest(id))
    if answer is None:
        scope = service.pending.get(id)
        if scope is None or not caller.sees(scope):
            raise Problem("not_found", f"no command {id} was given here that is not carried out")
        return JSONResponse({"command_id": id, "scope": scope, "applied": False})
    assert isinstance(answer, dict)
    if not caller.sees(str(answer["scope"])):
        raise Problem("not_found", f"no command {id} was given here that is not carried out")
    told = {name: value for name, value in answer.items() if name != "digest"}
    return JSONResponse(
        {"command_id": id, "applied": was_applied(answer["error"], answer["result"]), **told}
    )
