"""Replays and branches, as they are asked about and started: from the data folder alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from palimpsest.ops.queries.replay_requests import (
    BranchesRequest,
    DropBranchRequest,
    ReplayDifferencesRequest,
    ReplayRequest,
    ReplaysRequest,
    StartReplayRequest,
    StopReplayRequest,
)
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.replay import jobs
from palimpsest.ops.replay.branches import branches
from palimpsest.ops.replay.standing import drop_unused
from palimpsest.ops.settings.sections import Settings


def list_branches(settings: Settings, _: BranchesRequest) -> JsonObject:
    return {"branches": [each.as_json() for each in branches(settings)]}


def drop(settings: Settings, request: DropBranchRequest) -> JsonObject:
    """Raises NotFoundError."""
    drop_unused(settings, request.name)
    return {"dropped": request.name}


ABOUT_REPLAYS: Final[Mapping[type, Callable[[Settings, Any], JsonObject]]] = {
    StartReplayRequest: jobs.start,
    ReplayRequest: jobs.show,
    ReplaysRequest: jobs.listed,
    StopReplayRequest: jobs.stop,
    ReplayDifferencesRequest: jobs.differences,
    BranchesRequest: list_branches,
    DropBranchRequest: drop,
}
