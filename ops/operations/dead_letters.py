"""Dead letters: records that could not be processed; looked at, sent again, discarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations.operation import (
    Doc,
    Json,
    LongLimit,
    Operation,
    Read,
    Surface,
    Texts,
)
from palimpsest.ops.queries.errors import RequestError

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources

Status = Literal["dead", "redriven", "dropped", "all"]


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A record that could not be processed: where it lies, at which stage it failed and why."""

    id: str
    status: str
    stage: str
    failure: str
    reason: str
    scope: str
    topic: str
    partition: int
    offset: int
    attempts: int
    item_kind: str
    item_ids: tuple[str, ...]
    first_failed_at: datetime
    last_failed_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetterRow, ...]


@dataclass(frozen=True, slots=True)
class DeadLetters(Read[DeadLetterList]):
    """List dead letters with their reasons, newest first.

    Example: palimpsest dead-letters list
    """

    status: Annotated[Status, Doc("only of this status")] = "dead"
    stage: Annotated[str | None, Doc("only of this stage", max_length=64)] = None
    limit: LongLimit = 50

    surface: ClassVar = Surface(
        ("GET", "/api/dead-letters"),
        tag="dead letters",
        command="dead-letters list",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="all",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.dead_letters import list_dead_letters

        return list_dead_letters(sources, self)

    def merge(self, answers: Sequence[Json]) -> Json:
        rows = [row for answer in answers for row in answer["dead_letters"]]
        rows.sort(key=lambda row: str(row["last_failed_at"]), reverse=True)
        return {"dead_letters": rows[: self.limit]}


Id = Annotated[
    str,
    Doc(
        "its id, or the first 8 characters",
        min_length=1,
        max_length=64,
        argument=True,
        metavar="ID",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(DeadLetterRow):
    """A dead letter with its record as it was: `record` as text, also where that is no JSON.
    `redrivable`: whether it can be sent again."""

    key: str | None
    headers: dict[str, str]
    raw_output: str | None
    record: str
    record_bytes: int
    redrivable: bool


@dataclass(frozen=True, slots=True)
class GetDeadLetter(Read[DeadLetter]):
    """Show a dead letter: why, where, and its record.

    Example: palimpsest dead-letters show 5b1f22aa
    """

    dead_letter_id: Id

    surface: ClassVar = Surface(
        ("GET", "/api/dead-letters/{dead_letter_id}"),
        tag="dead letters",
        command="dead-letters show",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="id",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.dead_letters import show

        return show(sources, self)


def joined(answers: Sequence[Json]) -> Json:
    """Lists of the same name, one after another."""
    lists: dict[str, list[Any]] = {}
    for answer in answers:
        for name, values in answer.items():
            lists.setdefault(name, []).extend(values)
    return lists


@dataclass(frozen=True, slots=True)
class RefusedRedrive:
    """A dead letter that cannot be sent again, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """The dead letters whose records were sent again, and those that cannot be."""

    redriven: tuple[str, ...] = ()
    refused: tuple[RefusedRedrive, ...] = ()


Ids = Annotated[
    Texts,
    Doc("which ones", max_length=1_000, item_length=64, argument=True, metavar="ID…"),
]


@dataclass(frozen=True, slots=True)
class Redrive(Read[Redriven]):
    """Send the records of dead letters again, to where they were; `palimpsest run` then processes
    them.

    Example: palimpsest dead-letters redrive --all
    """

    ids: Ids = ()
    all: Annotated[bool, Doc("all that are dead", option="--all")] = False

    surface: ClassVar = Surface(
        ("POST", "/api/dead-letters/redrive"),
        tag="dead letters",
        command="dead-letters redrive",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="all",
    )

    def validate(self) -> None:
        if bool(self.ids) == self.all:
            raise RequestError("name the dead letters by their ids, or say all")

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.dead_letters import redrive

        return await redrive(sources, self)

    def parts(self) -> Sequence[Operation[Any]]:
        return (self,) if self.all else [replace(self, ids=(each,)) for each in self.ids]

    def merge(self, answers: Sequence[Json]) -> Json:
        return joined(answers)


@dataclass(frozen=True, slots=True)
class Discarded:
    """The dead letters that were discarded."""

    discarded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Discard(Read[Discarded]):
    """Discard dead letters for good; what they held stays counted as dead.

    Example: palimpsest dead-letters discard 5b1f22aa
    """

    ids: Annotated[
        Texts,
        Doc(
            "which ones",
            min_length=1,
            max_length=1_000,
            item_length=64,
            argument=True,
            metavar="ID…",
        ),
    ]

    surface: ClassVar = Surface(
        ("POST", "/api/dead-letters/discard"),
        tag="dead letters",
        command="dead-letters discard",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="id",
    )

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.dead_letters import discard

        return await discard(sources, self)

    def parts(self) -> Sequence[Operation[Any]]:
        return [replace(self, ids=(each,)) for each in self.ids]

    def merge(self, answers: Sequence[Json]) -> Json:
        return joined(answers)
