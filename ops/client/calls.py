"""What is asked and commanded, as requests to the routes of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from palimpsest.ops.queries.errors import NotFoundError, RequestError
from palimpsest.ops.queries.replay_requests import (
    BranchesRequest,
    DropBranchRequest,
    ReplayDifferencesRequest,
    ReplayRequest,
    ReplaysRequest,
    StartReplayRequest,
    StopReplayRequest,
)
from palimpsest.ops.queries.request_json import as_json
from palimpsest.ops.queries.requests import (
    AgreementRequest,
    CommandRequest,
    ContextRequest,
    DocumentRequest,
    DocumentsRequest,
    EntitiesRequest,
    EntityRequest,
    ExplainRequest,
    ForgetPreviewRequest,
    GetRequest,
    HistoryRequest,
    ListRequest,
    PrivacyRequest,
    RecallRequest,
    Request,
    ScopeRequest,
    ScopesRequest,
    SessionMemoryRequest,
    SessionsRequest,
    StatsRequest,
    StatusRequest,
    WeakRequest,
)
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ConfirmCommand,
    EraseScopeCommand,
    ForgetCommand,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SessionEndCommand,
    SetPrivacyCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.document_commands import AddDocumentCommand, DeleteDocumentCommand

ID_CHARACTERS: Final = 36
"""Of a whole id: the service takes no shorter ones."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that may be sent again: it only reads, or the service does it once. `seconds` its
    answer may take longer than usual. `memory_id` is the memory whose outcome is the answer's
    status."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    seconds: float = 0.0
    memory_id: str | None = None


def of_request(request: Request) -> Call:
    """Raises NotFoundError for an id that is not whole, and RequestError for what the service has
    no route for."""
    made = _ASKED.get(type(request))
    if made is None:
        raise RequestError(f"a service is not asked for a {type(request).__name__}")
    return made(request)


def of_command(scope: str, command: Command) -> Call:
    """Raises RequestError for what the service has no route for."""
    match command:
        case RememberCommand():
            said = command.model_dump(mode="json", exclude={"command"}, exclude_unset=True)
            return _post("/api/memory/remember", {**said, "scope": scope})
        case ModifyCommand():
            patches = [
                {"id": each.memory_id} | each.model_dump(exclude={"memory_id"}, exclude_none=True)
                for each in command.patches
            ]
            body = {"patches": patches, "reason": command.reason, "scope": scope}
            return _post("/api/memory/modify", body)
        case ForgetCommand():
            return _forget(scope, command)
        case EraseScopeCommand():
            return _erase_scope(scope, command)
        case RecoverCommand() | ConfirmCommand():
            told: dict[str, object] = {"reason": command.reason, "if_version": command.if_version}
            return _post(f"/api/memory/{_id(command.memory_id)}/{command.command}", told)
        case AliasCommand():
            body = {"alias": command.alias, "reason": command.reason, "scope": scope}
            return _post(f"/api/entities/{_part(command.name)}/aliases", body)
        case SessionEndCommand():
            body = {"reason": command.reason, "scope": scope}
            return _post(f"/api/sessions/{_part(command.session_id)}/end", body)
        case SetPrivacyCommand():
            told = command.model_dump(mode="json", exclude={"command"}, exclude_none=True)
            return Call("PUT", "/api/privacy", body={**told, "scope": scope})
        case UpdateShortTermCommand():
            body = {"summary": command.summary, "scope": scope}
            return Call("PUT", f"/api/sessions/{_part(command.session_id)}/memory", body=body)
        case AddDocumentCommand():
            return _document(scope, command)
        case DeleteDocumentCommand():
            told = {"reason": command.reason}
            return Call("DELETE", f"/api/documents/{_part(command.document_id)}", told)
        case _:
            raise RequestError(f"a service is not given the command {command.command}")


def _document(scope: str, command: AddDocumentCommand) -> Call:
    body: dict[str, object] = {"scope": scope, "title": command.title}
    if command.kind == "url":
        return _post("/api/documents", {**body, "url": command.source})
    # It is read already: what was HTML is text.
    told = {"text": command.text, "name": command.source, "content_type": "text/plain"}
    return _post("/api/documents", {**body, **told})


def _forget(scope: str, command: ForgetCommand) -> Call:
    ids, force = command.memory_ids, command.force
    if len(ids) == 1 and not command.cascade and command.confirm_token is None:
        told = {"reason": command.reason, "force": force, "if_version": command.if_version}
        if command.hard:
            told["hard"] = True
        return Call("DELETE", f"/api/memory/{_id(ids[0])}", told, memory_id=ids[0])
    if command.if_version is not None:
        raise RequestError("if_version: a service takes it for one memory without cascade")
    body = {
        "mode": "execute",
        "ids": [*ids],
        "scope": scope,
        "reason": command.reason,
        "force": force,
        "cascade": bool(command.cascade),
        "confirm_token": command.confirm_token,
    }
    return _post("/api/memory/erase" if command.hard else "/api/memory/forget", body)


def _erase_scope(scope: str, command: EraseScopeCommand) -> Call:
    told = {"reason": command.reason, "confirm_token": command.confirm_token}
    return _post(
        "/api/memory/erase", {"mode": "execute", "whole_scope": True, "scope": scope} | told
    )


def _post(path: str, body: object) -> Call:
    return Call("POST", path, body=body)


def _get(path: str, **params: object) -> Call:
    return Call("GET", path, params)


def _id(memory_id: str) -> str:
    if len(memory_id) != ID_CHARACTERS:
        raise NotFoundError(f"there is no memory {memory_id}; a service takes whole ids")
    return _part(memory_id)


def _part(text: str) -> str:
    """Text as one part of a path. Dots alone would lead elsewhere."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted


def _recall(asked: RecallRequest) -> Call:
    names = {"text": "query", "types": "type", "tags_any": "tags", "tags_all": "all_tags"}
    names |= {"categories": "category", "roles": "role"}
    return _post("/api/memory/recall", _renamed(asked, names))


def _context(asked: ContextRequest) -> Call:
    return _post("/api/memory/context", _renamed(asked, {"text": "query"}))


def _preview(asked: ForgetPreviewRequest) -> Call:
    said = _renamed(asked, {"memory_ids": "ids", "types": "type", "roles": "role"})
    if not (asked.hard or asked.whole_scope):
        del said["whole_scope"]
        return _post("/api/memory/forget", said)
    return _post("/api/memory/erase", said)


def _renamed(asked: Request, names: Mapping[str, str]) -> dict[str, object]:
    return {names.get(name, name): value for name, value in as_json(asked).items()}


def _list(asked: ListRequest) -> Call:
    told = {"scope": asked.scope, "session": asked.session, "who": asked.who}
    more = {
        "type": [*asked.types],
        "role": [*asked.roles],
        "limit": asked.limit,
        "cursor": asked.before,
    }
    narrow = {"id": [*asked.memory_ids], "category": [*asked.categories]}
    valid_at = None if asked.valid_at is None else asked.valid_at.isoformat()
    held = {"temporal": asked.temporal, "valid_at": valid_at}
    return _get("/api/memories", **told, **more, **narrow, **held, deleted=asked.deleted)


def _entities(asked: EntitiesRequest) -> Call:
    where = {"scope": asked.scope, "limit": asked.limit, "cursor": asked.after}
    return _get("/api/entities", q=asked.text, **where)


_ASKED: Final[Mapping[type, Callable[[Any], Call]]] = {
    RecallRequest: _recall,
    ContextRequest: _context,
    ForgetPreviewRequest: _preview,
    ListRequest: _list,
    EntitiesRequest: _entities,
    GetRequest: lambda asked: _get(f"/api/memory/{_id(asked.memory_id)}"),
    ScopeRequest: lambda asked: _get(f"/api/memory/{_id(asked.memory_id)}"),
    ExplainRequest: lambda asked: _get(f"/api/memory/{_id(asked.memory_id)}/explain"),
    HistoryRequest: lambda asked: _get(
        f"/api/memory/{_id(asked.memory_id)}/history", limit=asked.limit
    ),
    EntityRequest: lambda asked: _get(
        f"/api/entities/{_part(asked.name)}", scope=asked.scope, limit=asked.limit
    ),
    WeakRequest: lambda asked: _get(
        "/api/weak", scope=asked.scope, below=asked.below, limit=asked.limit
    ),
    CommandRequest: lambda asked: _get(f"/api/commands/{_part(asked.command_id)}"),
    ScopesRequest: lambda _: _get("/api/scopes"),
    AgreementRequest: lambda asked: _get("/api/replay/agreement", scope=asked.scope),
    StatsRequest: lambda asked: _get("/api/stats", scope=asked.scope),
    StatusRequest: lambda _: _get("/api/pipeline/status"),
    SessionsRequest: lambda asked: _get(
        "/api/sessions",
        scope=asked.scope,
        limit=asked.limit,
        cursor=asked.before,
        open=asked.open,
    ),
    SessionMemoryRequest: lambda asked: _get(
        f"/api/sessions/{_part(asked.session_id)}/memory", scope=asked.scope, limit=1
    ),
    StartReplayRequest: lambda asked: _post("/api/replays", asked.order),
    ReplayRequest: lambda asked: _get(f"/api/replays/{_part(asked.replay_id)}"),
    ReplaysRequest: lambda _: _get("/api/replays"),
    StopReplayRequest: lambda asked: _post(f"/api/replays/{_part(asked.replay_id)}/stop", None),
    ReplayDifferencesRequest: lambda asked: _get(
        f"/api/replays/{_part(asked.replay_id)}/differences",
        cursor=asked.cursor,
        limit=asked.limit,
    ),
    BranchesRequest: lambda _: _get("/api/branches"),
    DropBranchRequest: lambda asked: Call("DELETE", f"/api/branches/{_part(asked.name)}"),
    PrivacyRequest: lambda asked: _get("/api/privacy", scope=asked.scope),
    DocumentRequest: lambda asked: _get(f"/api/documents/{_part(asked.document_id)}"),
    DocumentsRequest: lambda asked: _get(
        "/api/documents",
        scope=asked.scope,
        status=asked.status,
        limit=asked.limit,
        cursor=asked.before,
    ),
}


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not said, times as text."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in params.items()
        if value is not None
    }
