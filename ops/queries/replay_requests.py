"""What can be asked about replays and branches; answered from the data folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class StartReplayRequest:
    """Begin a replay in a process of its own: `order` as `ops.replay.orders` explains it."""

    order: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A replay that was started, by its id."""

    replay_id: str


@dataclass(frozen=True, slots=True)
class ReplaysRequest:
    """The replays that were started, the newest first."""


@dataclass(frozen=True, slots=True)
class StopReplayRequest:
    """Stop a replay where it is."""

    replay_id: str


@dataclass(frozen=True, slots=True)
class ReplayDifferencesRequest:
    """A page of what a comparison found: at most `limit`, from `cursor` on (0, or what the page
    before gave as its `next`)."""

    replay_id: str
    cursor: int = 0
    limit: int = 200


@dataclass(frozen=True, slots=True)
class BranchesRequest:
    """The branches that there are, by name."""


@dataclass(frozen=True, slots=True)
class DropBranchRequest:
    """Remove a branch with its files."""

    name: str


AboutReplays: TypeAlias = (
    StartReplayRequest
    | ReplayRequest
    | ReplaysRequest
    | StopReplayRequest
    | ReplayDifferencesRequest
    | BranchesRequest
    | DropBranchRequest
)

REPLAY_REQUESTS: Final[dict[str, type[AboutReplays]]] = {
    "start-replay": StartReplayRequest,
    "replay": ReplayRequest,
    "replays": ReplaysRequest,
    "stop-replay": StopReplayRequest,
    "replay-differences": ReplayDifferencesRequest,
    "branches": BranchesRequest,
    "drop-branch": DropBranchRequest,
}
