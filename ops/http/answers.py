"""Models of the hand-written routes' responses, for the OpenAPI document. The responses themselves
are plain JSON; tests compare them with these models."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, JsonValue


class Failure(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class SqlColumn(BaseModel):
    name: str
    type: str


class SqlRows(BaseModel):
    columns: list[SqlColumn]
    rows: list[list[JsonValue]]


class State(BaseModel):
    status: Literal["ok"]


class Wrong(BaseModel):
    where: str
    why: str


class TurnStanding(BaseModel):
    """The outcome of a turn. `reason` is empty while it is pending, and for a token that lacks the
    permission `recall`."""

    scope: str
    turn_id: str
    memory_id: str
    status: Literal["stored", "rejected", "dead_letter", "pending"]
    reason: str


class TurnsAccepted(BaseModel):
    """How many turns are in the log now, and the errors of the others. With `wait`, the outcome of
    each."""

    accepted: int
    refused: list[Wrong]
    turns: list[TurnStanding] | None = None


class Ingested(BaseModel):
    """A file of a conversation that was read as `format`: `accepted` turns are in the log now, by
    scope in `scopes`. Of these, `new` were not published before, `known` were, `revised` have a
    later text of a known turn, and `conflicts` have the id of another turn, which stays. `erased`
    more were erased before and stay so. `refused` has the first hundred of `refused_parts`; `notes`
    say how the file was read."""

    format: str
    accepted: int
    scopes: dict[str, int]
    new: int
    known: int
    revised: int
    conflicts: int
    erased: int
    refused: list[Wrong]
    refused_parts: int
    notes: list[str]


class Accepted(BaseModel):
    """A command that is in the log and not applied yet; the header `Location` is the address of its
    result."""

    command_id: str
    applied: Literal[False]
    scope: str


class LineRefused(BaseModel):
    line: int
    why: str


class Imported(BaseModel):
    """`taken` counts the lines whose content now exists, `memories` the new memories among them;
    `refused` has the first hundred of `refused_lines`. `complete`: the file was whole. `pending`
    are commands that are not applied yet."""

    applied: bool
    taken: int
    memories: int
    refused: list[LineRefused]
    refused_lines: int
    complete: bool
    pending: list[str]
