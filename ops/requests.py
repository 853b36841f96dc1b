"""Requests to stores whose answers are not JSON: tables and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pydantic import JsonValue

JsonObject: TypeAlias = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One read-only statement, over all partitions unless one is named. `seconds` it may take, and
    `rows` it may return. `caller`, where it is named, leaves a
    place to others."""

    query: str
    partition: int | None = None
    seconds: float = 30.0
    rows: int = 1_000_000
    caller: str = ""


@dataclass(frozen=True, slots=True)
class ResultRequest:
    """The stored result of a scope's command, as soon as there is one."""

    command_id: str
    scope: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """The stores of one partition as a file."""

    partition: int


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A scope as lines; `deleted`: with what was forgotten and may still be recovered."""

    scope: str
    deleted: bool = False


FileRequest: TypeAlias = CopyRequest | ExportRequest
"""Answered by a consistent snapshot as a file."""
