"""Dead letters, records that could not be processed: listing, redriving and discarding them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import Answer, Doc, Json, Operation, Read, Surface, Texts
from palimpsest.ops.reading.rows import Row, all_rows, by_id, from_all

if TYPE_CHECKING:
    from palimpsest.ops.health.redriving import Redriver
    from palimpsest.ops.reading.sources import Sources

_SURFACE = partial(
    Surface, tag="dead letters", panel="Run and operate", permission="admin", sees_all=True
)

Status = Literal["dead", "redriven", "dropped", "all"]


class DeadLetterRow(Answer):
    """A record that could not be processed: its position, and at which stage it failed and why."""

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


class DeadLetterList(Answer):
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetterRow, ...]


class DeadLetters(Read[DeadLetterList]):
    """List dead letters with their reasons, newest first.

    Example: palimpsest dead-letters list
    """

    status: Annotated[Status, Doc("only of this status")] = "dead"
    stage: Annotated[str | None, Doc("only of this stage", max_length=64)] = None
    limit: shared.LongLimit = 50

    surface: ClassVar = _SURFACE(
        ("GET", "/api/dead-letters"), command="dead-letters list", routing="all"
    )
    order: ClassVar = ("-last_failed_at",)

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.health.redriving import COLUMNS

        found = all_rows(
            sources,
            f"SELECT {COLUMNS} FROM dead_letter_rows WHERE coalesce(status = ?, true)"
            " AND coalesce(stage = ?, true) ORDER BY last_failed_at DESC, letter_id"
            f" LIMIT {int(self.limit)}",
            [None if self.status == "all" else self.status, self.stage],
        )
        return self.merge([{"dead_letters": found}])


Id = Annotated[
    str,
    shared.id_doc("id of a dead letter, or its first 8 characters"),
]


class DeadLetter(DeadLetterRow, kw_only=True):
    """A dead letter with its original record: `record` as text, even if it is not JSON.
    `redrivable`: whether it can be sent again."""

    key: str | None
    headers: dict[str, str]
    raw_output: str | None
    record: str
    record_bytes: int
    redrivable: bool


class GetDeadLetter(Read[DeadLetter]):
    """Show a dead letter: its reason, its position and its record.

    Example: palimpsest dead-letters show 5b1f22aa
    """

    dead_letter_id: Id

    surface: ClassVar = _SURFACE(
        ("GET", "/api/dead-letters/{dead_letter_id}"), command="dead-letters show", routing="id"
    )

    def read(self, sources: Sources) -> Json:
        redriver, row = _one(sources, self.dead_letter_id)
        redrivable = redriver.why_not(row) is None
        value = base64.b64decode(row.pop("value_base64"))
        row["headers"] = json.loads(row["headers"])
        row["record"] = value.decode(errors="replace")
        return row | {"record_bytes": len(value), "redrivable": redrivable}


def _one(sources: Sources, dead_letter_id: str) -> tuple[Redriver, Row]:
    from palimpsest.ops.health.redriving import WHOLE, Redriver

    unknown = _unknown(dead_letter_id)
    partition, row = by_id(sources, WHOLE, "letter_id", dead_letter_id, unknown)
    return Redriver.of(sources, partition), row


def _chosen(sources: Sources, ids: Sequence[str]) -> dict[int, list[str]]:
    """The ids of these dead letters, or of all that are dead, by partition."""
    query = "SELECT letter_id AS id FROM dead_letter_rows"
    if ids:
        found = [by_id(sources, query, "letter_id", each, _unknown(each)) for each in ids]
    else:
        found = from_all(sources, f"{query} WHERE status = 'dead'")
    chosen: dict[int, list[str]] = {}
    for partition, row in found:
        chosen.setdefault(partition, []).append(row["id"])
    return chosen


def _unknown(dead_letter_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no dead letter {dead_letter_id}; `palimpsest dead-letters list` shows them"
    )


class RefusedRedrive(Answer):
    """A dead letter that cannot be sent again, with the reason."""

    id: str
    reason: str


class Redriven(Answer):
    """The dead letters whose records were sent again, and those that cannot be sent."""

    redriven: tuple[str, ...] = ()
    refused: tuple[RefusedRedrive, ...] = ()


Ids = Annotated[Texts, shared.ids_doc("which ones", max_length=1_000)]


class Redrive(Read[Redriven]):
    """Send the records of dead letters to their topics again, where `palimpsest run` processes
    them.

    Example: palimpsest dead-letters redrive --all
    """

    ids: Ids = ()
    all: Annotated[bool, Doc("all dead letters", option="--all")] = False

    surface: ClassVar = _SURFACE(
        ("POST", "/api/dead-letters/redrive"), command="dead-letters redrive", routing="all"
    )

    def validate(self) -> None:
        if bool(self.ids) == self.all:
            raise RequestError("name the dead letters by their ids, or say all")

    async def read(self, sources: Sources) -> Json:
        import asyncio

        from palimpsest.ops.health.redriving import Redriver

        redriven, refused = [], []
        for partition, ids in (await asyncio.to_thread(_chosen, sources, self.ids)).items():
            redriver = Redriver.of(sources, partition)
            async for row, why in redriver.redrive_all(ids):
                if why is None:
                    redriven.append(row["id"])
                else:
                    refused.append({"id": row["id"], "reason": why})
        return {"redriven": redriven, "refused": refused}

    def parts(self) -> Sequence[Operation[Any]]:
        return (self,) if self.all else [replace(self, ids=(each,)) for each in self.ids]


class Amended(Answer):
    """Whether an edited record can be sent, why not, and whether it was."""

    id: str
    valid: bool
    reason: str | None
    redriven: bool


class AmendDeadLetter(Read[Amended]):
    """Check an edited record of a dead letter, and send it to its topic in place of the original.

    It keeps its scope and its ids. The original stays in the log and with the dead letter.
    """

    dead_letter_id: Id
    record: Annotated[str, Doc("the edited record", min_length=1, max_length=1_000_000)]
    dry_run: Annotated[bool, Doc("only check it")] = False

    surface: ClassVar = _SURFACE(("POST", "/api/dead-letters/{dead_letter_id}/amend"), routing="id")

    async def read(self, sources: Sources) -> Json:
        import asyncio

        redriver, row = await asyncio.to_thread(_one, sources, self.dead_letter_id)
        value = self.record.encode(errors="replace")
        edited = {**row, "value_base64": base64.b64encode(value).decode()}
        why = redriver.why_not(edited)
        if why is None and redriver.message(edited).scope != row["scope"]:
            why = f"its scope is {row['scope']}, and must stay so"
        if why is None and not self.dry_run:
            [why] = await redriver.redrive([edited])
        is_sent = why is None and not self.dry_run
        return {"id": row["id"], "valid": why is None, "reason": why, "redriven": is_sent}


class Discarded(Answer):
    """The dead letters that were discarded."""

    discarded: tuple[str, ...] = ()


class Discard(Read[Discarded]):
    """Discard dead letters permanently; the balance still counts their items as dead.

    Example: palimpsest dead-letters discard 5b1f22aa
    """

    ids: Annotated[Texts, shared.ids_doc("which ones", min_length=1, max_length=1_000)]

    surface: ClassVar = _SURFACE(
        ("POST", "/api/dead-letters/discard"), command="dead-letters discard", routing="id"
    )

    async def read(self, sources: Sources) -> Json:
        """Stored as `dropped`."""
        import asyncio

        discarded = []
        for each in self.ids:
            redriver, row = await asyncio.to_thread(_one, sources, each)
            if row["status"] == "redriven":
                raise RequestError(f"dead letter {row['id']} was redriven; it is not dead any more")
            await redriver.mark([row], "dropped")
            discarded.append(row["id"])
        return {"discarded": discarded}

    def parts(self) -> Sequence[Operation[Any]]:
        return [replace(self, ids=(each,)) for each in self.ids]
