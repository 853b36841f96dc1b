"""What requests that read may say. An unknown field is refused: it would be a filter without
effect."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from palimpsest.ops.queries.requests import RecallRequest
from palimpsest.schemas.envelope import Scope, UtcTime


class Said(BaseModel):
    """Base of bodies and of the parameters of a query."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]
"""One, or a list of them."""
OwnScope = Annotated[
    Scope | None,
    Field(description="the memory space; else the token's only one, else `default`"),
]
Limit = Annotated[int, Field(ge=1, le=1_000, description="at most")]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"\S")]


# In an address, where a character may take twelve bytes of the 64 KiB that a server reads.
Name = Annotated[str, Field(max_length=256)]
Cursor = Annotated[str | None, Field(max_length=512, description="the `next` of the page before")]
Words = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]
Types = Annotated[
    tuple[Name, ...], Field(max_length=10, description="only of this type; may be repeated")
]


Roles = Annotated[
    tuple[Name, ...],
    Field(max_length=4, description="said in this role, or drawn from that; may be repeated"),
]
AskedAt = Annotated[
    AwareDatetime | None,
    Field(description="when the question is asked, from which its words for times count; else now"),
]
LeastScore = Annotated[
    Share | None, Field(description="least score of a result; else as set, which is none")
]


class RecallBody(Said):
    """A question to a scope, with filters."""

    query: Text
    scope: OwnScope = None
    limit: Limit = 10
    type: Names = ()
    tags: Names = Field(default=(), description="with any of these tags")
    all_tags: Names = Field(default=(), description="with all of these tags")
    category: Names = ()
    who: str | None = Field(default=None, description="said by this person, or drawn from that")
    role: Names = Field(default=(), description="said in any of these roles, or drawn from that")
    pinned: bool | None = None
    importance_min: Share | None = None
    project: str | None = None
    session: str | None = None
    since: UtcTime | None = Field(default=None, description="told then or later")
    until: UtcTime | None = Field(default=None, description="told before")
    as_of: UtcTime | None = Field(
        default=None, description="texts as of then, found by the words and vectors of today"
    )
    asked_at: AskedAt = None
    min_score: LeastScore = None
    valid_at: UtcTime | None = Field(
        default=None, description="without what was so only until then"
    )
    group: bool = Field(default=True, description="a turn and its facts are one result")
    explain: bool = Field(default=False, description="with the parts of each score")
    neighbours: int = Field(default=0, ge=0, le=20, description="turns around a turn, each side")
    rerank: bool | None = Field(
        default=None, description="whether the first results are read again; else as set"
    )

    def request(self, scope: str) -> RecallRequest:
        given: dict[str, Any] = {name: getattr(self, name) for name in _SAME}
        return RecallRequest(
            scope,
            self.query,
            types=self.type,
            tags_any=self.tags,
            tags_all=self.all_tags,
            categories=self.category,
            roles=self.role,
            **given,
        )


_SAME = (
    *("limit", "who", "pinned", "importance_min", "project", "session"),
    *("since", "until", "as_of", "valid_at", "group", "explain", "neighbours", "rerank"),
    *("asked_at", "min_score"),
)
"""Fields that a query calls the same."""


class ContextBody(Said):
    """A question whose context is wanted."""

    query: Text
    scope: OwnScope = None
    budget: int | None = Field(default=None, ge=50, le=100_000, description="tokens at most")
    session: Name | None = Field(default=None, description="begin with what is kept of it")
    asked_at: AskedAt = None
    min_score: LeastScore = None


class ListParameters(Said):
    scope: Scope | None = Field(default=None, description="only of this memory space")
    id: tuple[Name, ...] = Field(
        default=(), max_length=500, description="only these; may be repeated"
    )
    type: Types = ()
    session: Name | None = None
    who: Name | None = Field(default=None, description="said by this person, or drawn from that")
    role: Roles = ()
    category: tuple[Name, ...] = Field(
        default=(), max_length=10, description="of any of these categories; may be repeated"
    )
    temporal: bool | None = Field(
        default=None, description="only what ends by itself, or only all else"
    )
    valid_at: UtcTime | None = Field(
        default=None, description="without what was so only until then"
    )
    deleted: bool = Field(default=False, description="forgotten ones instead")
    limit: Limit = 20
    cursor: Cursor = None


class SearchParameters(Said):
    q: Words
    scope: OwnScope = None
    limit: Limit = 10
    type: Types = ()
    role: Roles = ()


class ScopeParameters(Said):
    scope: OwnScope = None


class SessionParameters(Said):
    scope: OwnScope = None
    limit: Limit = 20
    cursor: Cursor = None


class EntitiesParameters(Said):
    scope: OwnScope = None
    q: Words | None = Field(default=None, description="part of a name")
    limit: Limit = 50
    cursor: Cursor = None


class EntityParameters(Said):
    scope: OwnScope = None
    limit: Limit = 20


class HistoryParameters(Said):
    limit: Limit = 200


class WeakParameters(Said):
    scope: OwnScope = None
    below: float = Field(default=0.8, ge=0, le=1, description="of a confidence under this")
    limit: Limit = 20


class StatsParameters(Said):
    scope: Scope | None = Field(default=None, description="of this memory space; else of all")


class ExportParameters(Said):
    deleted: bool = Field(default=False, description="also what was forgotten")


class SqlBody(Said):
    """One statement that only reads. It sees all scopes."""

    query: Text
    partition: int | None = Field(default=None, ge=0, le=1023)
