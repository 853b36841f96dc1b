"""What can be asked of a memory: one frozen request a query, plain data both ways.

The folder and a running worker answer the same requests, so that a person sees the same from
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from pydantic import JsonValue

from palimpsest.ops.queries.replay_requests import REPLAY_REQUESTS, AboutReplays
from palimpsest.stores.recall.query import Query

JsonObject: TypeAlias = dict[str, JsonValue]


RecallRequest: TypeAlias = Query
"""Memories of a scope for a text, best first: the query itself."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Memories of a scope that have words of the text, best first; no vector takes part. `types`
    and `roles` as in a recall."""

    scope: str
    text: str
    limit: int = 10
    types: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What is known about a text as a Markdown block of at most `budget` tokens; None takes the
    budget that the question's complexity asks for. With `session` the block begins with what is
    kept of that session. `asked_at` and `min_score` as in a recall."""

    scope: str
    text: str
    budget: int | None = None
    session: str | None = None
    asked_at: datetime | None = None
    min_score: float | None = None


@dataclass(frozen=True, slots=True)
class GetRequest:
    """One memory by id, also a forgotten one."""

    memory_id: str


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Memories, newest first; `who` and `roles` as in a recall; `before` is the `next` of the
    page before. `memory_ids`: of these, by whole ids. Of any of the `categories`;
    `temporal`, or persistent; `valid_at`: without what was so only until then."""

    scope: str | None = None
    types: tuple[str, ...] = ()
    session: str | None = None
    who: str | None = None
    deleted: bool = False
    limit: int = 20
    before: str | None = None
    memory_ids: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    temporal: bool | None = None
    valid_at: datetime | None = None
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The audit events of a memory, oldest first, up to `limit`."""

    memory_id: str
    limit: int = 200


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Where a memory came from and what was decided about it."""

    memory_id: str


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """Vectors of the active memories of a scope, by memory id; `after` is the `next` of the page
    before. `memory_ids`: of these alone, also of forgotten ones."""

    scope: str
    after: str | None = None
    limit: int = 500
    memory_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntitiesRequest:
    """Entities of a scope, the most often told of first; `text` is part of a name; `after` is the
    `next` of the page before."""

    scope: str
    text: str | None = None
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True)
class EntityRequest:
    """One entity by any of its names: relations, attributes, the newest `limit` memories."""

    scope: str
    name: str
    limit: int = 20


@dataclass(frozen=True, slots=True)
class WeakRequest:
    """Memories of a scope that nobody confirmed, of a confidence under `below`."""

    scope: str
    below: float = 0.8
    limit: int = 20


@dataclass(frozen=True, slots=True)
class SessionsRequest:
    """Sessions of a scope, the one with the newest turn first; `before` is the `next` of the page
    before. `open`: only those that have not ended."""

    scope: str
    limit: int = 20
    before: str | None = None
    open: bool = False


@dataclass(frozen=True, slots=True)
class SessionMemoryRequest:
    """The short-term memory of a session, null where nothing is kept."""

    scope: str
    session_id: str


@dataclass(frozen=True, slots=True)
class StatsRequest:
    """How much is remembered: of a scope, or of all."""

    scope: str | None = None


@dataclass(frozen=True, slots=True)
class AgreementRequest:
    """How often deciders agree: in a scope, or in all."""

    scope: str | None = None


@dataclass(frozen=True, slots=True)
class DiagnosticsRequest:
    """How healthy the memory is: of one domain, or of all."""

    domain: str | None = None


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Stages, lag, balance, dead letters, providers."""


@dataclass(frozen=True, slots=True)
class DeadLettersRequest:
    """Dead letters, newest first, by status (`dead`, `redriven`, `dropped`; None for all)."""

    status: str | None = "dead"
    stage: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class DeadLetterRequest:
    """One dead letter with its record."""

    dead_letter_id: str


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Send the records of these dead letters again; all that are dead when none is named."""

    dead_letter_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscardRequest:
    """Discard these dead letters for good."""

    dead_letter_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldProposalsRequest:
    """Changes that were held back, oldest first: of a scope, or by ids (or their first 8)."""

    scope: str | None = None
    item_ids: tuple[str, ...] = ()
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """The result of a command, null while it is not carried out."""

    command_id: str


@dataclass(frozen=True, slots=True)
class ForgetPreviewRequest:
    """What forgetting would forget: active memories of a scope, by ids, by a question (with scores,
    best first), by what all of the other fields say, or by several of these at once. Any of
    `types`, any of `tags`; `who` and `roles` as in a recall; `min_score` of what the question
    finds, else what is unlikely is left out; told at or after `since` and before `until`. At
    most `limit` (200, of a question 20). `cascade`: the token is for those too that would go with
    them. `hard`: their texts are to be erased, also of those that were forgotten before;
    `whole_scope`: of all there are, which are counted."""

    scope: str
    memory_ids: tuple[str, ...] = ()
    query: str | None = None
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    who: str | None = None
    source_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
    cascade: bool = False
    hard: bool = False
    whole_scope: bool = False
    roles: tuple[str, ...] = ()
    min_score: float | None = None


@dataclass(frozen=True, slots=True)
class ScopeRequest:
    """In which scope a memory lies."""

    memory_id: str


@dataclass(frozen=True, slots=True)
class ScopesRequest:
    """All scopes, with how much is in each."""


@dataclass(frozen=True, slots=True)
class FlagsRequest:
    """The flags in effect for a scope, and where each is from."""

    scope: str


@dataclass(frozen=True, slots=True)
class PrivacyRequest:
    """The privacy levels that were set in a scope."""

    scope: str


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One read-only statement, over all partitions unless one is named. `seconds` it may take, and
    `rows` it may return."""

    query: str
    partition: int | None = None
    seconds: float = 30.0
    rows: int = 1_000_000


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """The stores of one partition as a file."""

    partition: int


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """One document by id, also a deleted one."""

    document_id: str


@dataclass(frozen=True, slots=True)
class DocumentsRequest:
    """Documents that are not deleted, newest first, of one status where that is named; `before` is
    the `next` of the page before."""

    scope: str | None = None
    status: str | None = None
    limit: int = 20
    before: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentChunksRequest:
    """The chunks of a document in order; `after` is the `next` of the page before."""

    document_id: str
    after: int = -1
    limit: int = 100


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A scope as lines; `deleted`: with what was forgotten and may still be recovered."""

    scope: str
    deleted: bool = False


Request: TypeAlias = (
    RecallRequest
    | SearchRequest
    | ContextRequest
    | GetRequest
    | ListRequest
    | HistoryRequest
    | ExplainRequest
    | EmbeddingsRequest
    | EntitiesRequest
    | EntityRequest
    | WeakRequest
    | StatsRequest
    | AgreementRequest
    | DiagnosticsRequest
    | StatusRequest
    | DeadLettersRequest
    | DeadLetterRequest
    | RedriveRequest
    | DiscardRequest
    | HeldProposalsRequest
    | CommandRequest
    | ForgetPreviewRequest
    | ScopeRequest
    | ScopesRequest
    | FlagsRequest
    | PrivacyRequest
    | DocumentRequest
    | DocumentsRequest
    | DocumentChunksRequest
    | SessionsRequest
    | SessionMemoryRequest
    | AboutReplays
)

REQUESTS: dict[str, type[Request]] = {
    "recall": RecallRequest,
    "search": SearchRequest,
    "context": ContextRequest,
    "get": GetRequest,
    "list": ListRequest,
    "history": HistoryRequest,
    "explain": ExplainRequest,
    "embeddings": EmbeddingsRequest,
    "entities": EntitiesRequest,
    "entity": EntityRequest,
    "weak": WeakRequest,
    "stats": StatsRequest,
    "agreement": AgreementRequest,
    "diagnostics": DiagnosticsRequest,
    "status": StatusRequest,
    "dead-letters": DeadLettersRequest,
    "dead-letter": DeadLetterRequest,
    "redrive": RedriveRequest,
    "discard": DiscardRequest,
    "held-proposals": HeldProposalsRequest,
    "command": CommandRequest,
    "forget-preview": ForgetPreviewRequest,
    "scope": ScopeRequest,
    "scopes": ScopesRequest,
    "flags": FlagsRequest,
    "privacy": PrivacyRequest,
    "document": DocumentRequest,
    "documents": DocumentsRequest,
    "document-chunks": DocumentChunksRequest,
    "sessions": SessionsRequest,
    "session-memory": SessionMemoryRequest,
    **REPLAY_REQUESTS,
}

NAMES: dict[type[Request], str] = {kind: name for name, kind in REQUESTS.items()}
