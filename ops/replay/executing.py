"""Executes the order of a replay and returns the result as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.replay.answers import rebuilt_json, reextracted_json
from palimpsest.ops.replay.branches import Selection
from palimpsest.ops.replay.diff import DiffRequest
from palimpsest.ops.replay.diff_output import write_lines
from palimpsest.ops.replay.estimates import estimate
from palimpsest.ops.replay.jobs import (
    DIFFERENCES_FILE,
    DiffOrder,
    Order,
    PromoteOrder,
    RebuildOrder,
    ReextractOrder,
    RollbackOrder,
)
from palimpsest.ops.replay.progress import Report
from palimpsest.ops.replay.promotion import PromoteRequest, promote
from palimpsest.ops.replay.promotions import RollbackRequest, rollback
from palimpsest.ops.replay.rebuild import RebuildRequest, rebuild
from palimpsest.ops.replay.reextraction import Reextraction, differing, reextract
from palimpsest.ops.settings.sections import Settings

Carried: TypeAlias = Callable[[Settings, Any, Report, asyncio.Event], Awaitable[object]]
_PLAIN: Final[TypeAdapter[object]] = TypeAdapter(object)


async def execute(
    settings: Settings, order: Order, folder: Path, report: Report, stopping: asyncio.Event
) -> JsonValue:
    """Executes an order. Ends early once `stopping` is set, if the replay can be resumed. Writes
    what is too long for a result to `folder`. Raises what the replay raises; each message says what
    to do."""
    if isinstance(order, DiffOrder):
        return await write_lines(
            settings, DiffRequest(order.branch), folder / DIFFERENCES_FILE, report
        )
    result = await _CARRIED_OUT[type(order)](settings, order, report, stopping)
    plain: JsonValue = json.loads(_PLAIN.dump_json(result))
    return plain


async def _rebuild(
    settings: Settings, order: RebuildOrder, report: Report, stopping: asyncio.Event
) -> object:
    until: int | datetime | None = order.until
    request = RebuildRequest(order.name, order.partition, until)
    return rebuilt_json(await rebuild(settings, request, report, stopping.is_set))


async def _reextract(
    settings: Settings, order: ReextractOrder, report: Report, stopping: asyncio.Event
) -> object:
    selection = Selection(
        scope=order.scope, since=order.since, until=order.until, sample=order.sample
    )
    changed = differing(settings, (), order.provider, order.model)
    asked = Reextraction(order.branch, changed, selection, order.rate, order.budget_tokens)
    if order.dry_run:
        return asdict(await asyncio.to_thread(estimate, settings, asked))
    return reextracted_json(await reextract(settings, asked, report, stopping))


async def _promote(
    settings: Settings, order: PromoteOrder, report: Report, _: asyncio.Event
) -> object:
    request = PromoteRequest(
        order.branch,
        dry_run=order.dry_run,
        allow_loss=order.allow_loss,
        catch_up=order.catch_up,
    )
    return asdict(await promote(settings, request, report))


async def _rollback(
    settings: Settings, order: RollbackOrder, report: Report, _: asyncio.Event
) -> object:
    return asdict(await rollback(settings, RollbackRequest(order.promotion), report))


_CARRIED_OUT: Final[Mapping[type, Carried]] = {
    RebuildOrder: _rebuild,
    ReextractOrder: _reextract,
    PromoteOrder: _promote,
    RollbackOrder: _rollback,
}
