"""Lists promotions with their results and rolls them back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from palimpsest.ops.commanding import CommandRequest, Commands, commands_of
from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.rows import SHORTEST_ID, rfc3339
from palimpsest.ops.replay.branches import branch_folder
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.reading import ROWS, SECONDS, Record
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Actor, RollbackPromotionCommand
from palimpsest.stores.durable_files import write_whole

LOCK: Final = ".promoting"
UNFINISHED: Final = "promotion.id"
_PROMOTIONS: Final = "SELECT * FROM promotions ORDER BY recorded_at DESC, promotion_id, scope"


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Roll a promotion back, by its id or the first 8 characters of that, in all its scopes."""

    promotion_id: str
    reason: str = ""
    actor: Actor = Actor()
    wait_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    """The result of one scope. `status`: `planned` (dry run), `nothing` to do, `applied`,
    `rolled-back`, `waiting` for a worker, or `refused` with an `error`. `counts` are by kind of
    change, `kept_because` by the reason for keeping; `losses` are the facts that the live memory
    would lose, if nothing was changed yet."""

    scope: str
    status: str
    counts: dict[str, int] = field(default_factory=dict)
    kept_because: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromotionEnd:
    """The result of a promotion or of its rollback. `behind` counts the records of the live log
    that the branch had not read."""

    promotion_id: str
    branch: str
    scopes: tuple[ScopeEnd, ...]
    behind: int = 0

    @property
    def complete(self) -> bool:
        return all(each.status not in ("waiting", "refused") for each in self.scopes)


@dataclass(frozen=True, slots=True)
class PromotionStatus:
    """A promotion with its scopes; `status` is `applied`, `rolled-back` or `partly rolled back`."""

    promotion_id: str
    branch: str
    status: str
    scopes: tuple[str, ...]
    gained: int
    changed: int
    lost: int
    kept: int
    promoted_by: str
    recorded_at: str


async def promotions(settings: Settings) -> list[PromotionStatus]:
    """Returns all promotions, newest first."""
    async with queries(settings) as live:
        rows = await _rows(live)
    by_id: dict[str, list[Record]] = {}
    for row in rows:
        by_id.setdefault(str(row["promotion_id"]), []).append(row)
    return [_status(some) for some in by_id.values()]


def _status(rows: Sequence[Record]) -> PromotionStatus:
    first = rows[0]
    states = {str(row["status"]) for row in rows}
    numbers = {name: sum(row[name] for row in rows) for name in ("gained", "changed", "lost")}
    return PromotionStatus(
        promotion_id=str(first["promotion_id"]),
        branch=str(first["branch"]),
        status=states.pop() if len(states) == 1 else "partly rolled back",
        scopes=tuple(str(row["scope"]) for row in rows),
        **numbers,
        kept=sum(row["kept"] for row in rows),
        promoted_by=str(first["promoted_by"]),
        recorded_at=rfc3339(first["recorded_at"]),
    )


async def rollback(
    settings: Settings, request: RollbackRequest, report: Report = unreported
) -> PromotionEnd:
    """Undoes a promotion in all its scopes, each atomically; later changes stay. Raises
    NotFoundError for an unknown promotion, RequestError for an ambiguous prefix of an id and while
    another promotion or rollback is running."""
    with alone(settings):
        async with queries(settings) as live:
            found = [row for row in await _rows(live) if _is_named(row, request.promotion_id)]
        ids = sorted({str(row["promotion_id"]) for row in found})
        if not ids:
            raise NotFoundError(
                f"there is no promotion {request.promotion_id}; `palimpsest replay promotions`"
                " lists them"
            )
        if len(ids) > 1:
            raise RequestError(
                f"more than one promotion begins with {request.promotion_id}; write more of it"
            )
        ends = await _rolled_back(settings, request, found, report)
    return PromotionEnd(ids[0], str(found[0]["branch"]), ends)


def _is_named(row: Record, named: str) -> bool:
    promotion_id = str(row["promotion_id"])
    return promotion_id == named or (len(named) >= SHORTEST_ID and promotion_id.startswith(named))


async def _rolled_back(
    settings: Settings, request: RollbackRequest, rows: Sequence[Record], report: Report
) -> tuple[ScopeEnd, ...]:
    given: list[tuple[str, str]] = []
    with publisher(settings) as append:
        commands = commands_of(settings, append)
        for row in sorted(rows, key=lambda each: str(each["scope"])):
            command = RollbackPromotionCommand(
                promotion_id=str(row["promotion_id"]), reason=request.reason
            )
            order = CommandRequest(str(row["scope"]), command, request.actor)
            given.append((order.scope, (await commands.submit(order)).command_id))
        ends = []
        for number, (scope, command_id) in enumerate(given):
            report(Progress("rolling back", number, len(given), "scopes"))
            ends.append(await awaited(commands, scope, command_id, request.wait_seconds))
    report(Progress("rolling back", len(given), len(given), "scopes"))
    return tuple(ends)


async def awaited(commands: Commands, scope: str, command_id: str, seconds: float) -> ScopeEnd:
    """Waits for the command that ends a scope and returns its result."""
    answer = await commands.result(command_id, seconds)
    if answer is None:
        return ScopeEnd(scope, "waiting")
    if answer["error"] is not None:
        return ScopeEnd(scope, "refused", error=str(answer["error"]))
    told = cast("Record", answer["result"])
    counts = {name: number for name, number in told.items() if isinstance(number, int)}
    return ScopeEnd(scope, str(told["status"]), counts, told.get("kept_because", {}))


async def ends_of(live: Queries, promotion_id: str) -> dict[str, ScopeEnd]:
    """Returns the results of the scopes in which the promotion was already executed."""
    counted = ("gained", "changed", "lost", "kept")
    return {
        str(row["scope"]): ScopeEnd(
            str(row["scope"]), str(row["status"]), {name: row[name] for name in counted}
        )
        for row in await _rows(live)
        if row["promotion_id"] == promotion_id
    }


async def _rows(live: Queries) -> list[Record]:
    table = await live.table(SqlRequest(_PROMOTIONS, None, SECONDS, ROWS))
    return cast("list[Record]", table.to_pylist())


# --- what is under way ------------------------------------------------------------------------


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Holds the promotion lock. Raises RequestError while another process promotes or rolls
    back."""
    folder = settings.data_dir / "branches"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(
                "another promotion or rollback is under way here; wait until it is done"
            ) from None
        yield
    finally:
        os.close(descriptor)


def unfinished(settings: Settings, branch: str) -> Path:
    """Returns the path of the file with the id of a promotion not yet done in all scopes."""
    return branch_folder(settings, branch) / UNFINISHED


def keep_id(settings: Settings, branch: str, promotion_id: str) -> None:
    write_whole(unfinished(settings, branch), promotion_id.encode())


async def promotion_id_of(settings: Settings, live: Queries, branch: str) -> str:
    """Returns the id of the promotion to continue if one was begun and not rolled back, else a new
    id."""
    try:
        begun = unfinished(settings, branch).read_text().strip()
    except FileNotFoundError:
        begun = ""
    ends = await ends_of(live, begun) if begun else {}
    gone = any(end.status == "rolled-back" for end in ends.values())
    return begun if begun and not gone else str(uuid.uuid4())
