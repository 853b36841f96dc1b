"""Replays and branches as methods of `AsyncMemory`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import typed
from palimpsest.ops.queries.replay_requests import (
    BranchesRequest,
    DropBranchRequest,
    ReplayDifferencesRequest,
    ReplayRequest,
    ReplaysRequest,
    StartReplayRequest,
    StopReplayRequest,
)

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """`done` of `total` in `unit` of the step `phase`."""

    phase: str
    done: int
    total: int
    unit: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that runs by itself: `state` is running, done, failed or stopped; `result` what it
    came to. One that failed or was stopped goes on where it was when it is ordered again."""

    id: str
    kind: str
    state: str
    order: dict[str, JsonValue]
    started_at: datetime
    progress: ReplayProgress | None
    result: JsonValue
    error: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReplayDifferences:
    """A page of what a comparison found; `what` of each is scope, fact, decision, entity or
    relation. `next` is the cursor of the page after, None on the last one."""

    differences: tuple[dict[str, JsonValue], ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Branch:
    """A store beside the live one. `whole`: all that was read of the live log is carried out."""

    name: str
    kind: str
    created_at: datetime
    partitions: int
    settings: tuple[str, ...]
    selection: dict[str, JsonValue] | None
    read_through: dict[int, int]
    whole: bool


@dataclass(frozen=True, slots=True)
class _Listed:
    replays: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class _Branches:
    branches: tuple[Branch, ...]


class WithReplays(Opened):
    """Rebuilding, extracting anew, comparing, promoting and rolling back."""

    async def start_replay(
        self, kind: str, /, *, wait: bool = False, **options: JsonValue
    ) -> Replay:
        """Begin a replay in a process of its own, which outlives this one: `rebuild`, `reextract`,
        `diff`, `promote` or `rollback`, with what `palimpsest replay` takes for it. With `wait` it
        has ended when this returns. Raises RequestError for options that make no sense, and
        UnavailableError while as many run as may.

        >>> replay = await memory.start_replay("rebuild", name="copy", wait=True)
        >>> replay.state, replay.error
        ('done', None)
        """
        order: dict[str, JsonValue] = {"kind": kind, **options}
        replay = typed(Replay, await self._ask(StartReplayRequest(order)))
        while wait and replay.state == "running":
            await asyncio.sleep(POLL_SECONDS)
            replay = await self.replay(replay.id)
        return replay

    async def replay(self, replay_id: str) -> Replay:
        """How far a replay is, or how it ended. Raises NotFoundError.

        >>> replays = await memory.replays()
        >>> (await memory.replay(replays[0].id)).kind
        'rebuild'
        """
        return typed(Replay, await self._ask(ReplayRequest(replay_id)))

    async def replays(self) -> tuple[Replay, ...]:
        """The replays that were started, the newest first.

        >>> [each.kind for each in await memory.replays()]
        ['rebuild']
        """
        return typed(_Listed, await self._ask(ReplaysRequest())).replays

    async def stop_replay(self, replay_id: str) -> Replay:
        """Stop a replay where it is; one that has ended stays as it is. Raises NotFoundError.

        >>> ended = (await memory.replays())[0]
        >>> (await memory.stop_replay(ended.id)).state
        'done'
        """
        return typed(Replay, await self._ask(StopReplayRequest(replay_id)))

    async def replay_differences(
        self, replay_id: str, *, cursor: int = 0, limit: int = 200
    ) -> ReplayDifferences:
        """A page of what a comparison found, at most 1,000: of each scope its counts, then what
        differs. `next` is the cursor of the page after. Raises NotFoundError for a replay that told
        of none.

        >>> page = await memory.replay_differences((await memory.replays())[0].id)
        Traceback (most recent call last):
        palimpsest.ops.queries.errors.NotFoundError: it told of no differences, or they were removed
        """
        asked = ReplayDifferencesRequest(replay_id, cursor, limit)
        return typed(ReplayDifferences, await self._ask(asked))

    async def branches(self) -> tuple[Branch, ...]:
        """The branches that there are, by name.

        >>> [(each.name, each.kind) for each in await memory.branches()]
        [('copy', 'rebuild')]
        """
        return typed(_Branches, await self._ask(BranchesRequest())).branches

    async def drop_branch(self, name: str) -> None:
        """Remove a branch with its files. Raises NotFoundError.

        >>> await memory.drop_branch("copy")
        """
        await self._ask(DropBranchRequest(name))
