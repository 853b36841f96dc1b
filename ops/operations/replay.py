"""Replays and their branches, answered from the data folder alone; agreement of deciders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations.operation import AnyScope, Doc, Json, Read, Surface
from palimpsest.ops.operations.rows import rows_of

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources

_FOLDER = partial(Surface, tag="replays", permission="admin", sees_all=True, routing="folder")

Kind = Literal["rebuild", "reextract", "diff", "promote", "rollback"]


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """`done` of `total` in `unit` of the step `phase`."""

    phase: str
    done: int
    total: int
    unit: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay in its own process, with its `result`. Starting the same replay again resumes one
    that failed or was stopped."""

    id: str
    kind: str
    state: Literal["running", "done", "failed", "stopped"]
    order: dict[str, Any]
    started_at: datetime
    progress: ReplayProgress | None
    result: Any
    error: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class StartReplay(Read[Replay]):
    """Start a replay in its own process, which outlives this one.

    `rebuild` rebuilds stores from the log and compares them with the live ones (`name`, `until`,
    `partition`); `reextract` runs a model over old turns again, into a `branch` (`provider`,
    `model`, `scope`, `since`, `until`, `sample`, `rate`, `budget_tokens`, `dry_run`); `diff`
    compares a `branch` with the live memory; `promote` applies its differences to the live memory
    (`dry_run`, `allow_loss`, `catch_up`); `rollback` reverts a `promotion`. Starting the same
    replay again resumes an unfinished one.
    """

    kind: Annotated[Kind, Doc("what to do")]
    name: Annotated[str | None, Doc("the branch in which to keep a rebuild", max_length=64)] = None
    branch: Annotated[str | None, Doc("the branch", max_length=64)] = None
    until: Annotated[
        str | int | None, Doc("as of this time (RFC 3339), or this offset for a rebuild")
    ] = None
    since: Annotated[str | None, Doc("only turns from this time on (RFC 3339)")] = None
    partition: Annotated[int | None, Doc("only this partition", ge=0)] = None
    provider: Annotated[
        Literal["rules", "ollama", "openai", "anthropic"] | None,
        Doc("the provider of the model; its address comes from the settings only"),
    ] = None
    model: Annotated[str | None, Doc("the model", min_length=1, max_length=256)] = None
    scope: Annotated[
        str | None, Doc("only turns of this memory space", min_length=1, max_length=256)
    ] = None
    sample: Annotated[int | None, Doc("maximum number of turns", ge=1)] = None
    rate: Annotated[float | None, Doc("maximum turns per second", ge=0)] = None
    budget_tokens: Annotated[int | None, Doc("stop after this number of tokens", ge=1)] = None
    dry_run: Annotated[bool | None, Doc("only show what it would do")] = None
    allow_loss: Annotated[
        bool | None, Doc("promote even if live facts without a counterpart are forgotten")
    ] = None
    catch_up: Annotated[bool | None, Doc("also promote what arrived since; true by default")] = None
    promotion: Annotated[str | None, Doc("the promotion to revert", max_length=64)] = None

    surface: ClassVar = _FOLDER(("POST", "/api/replays"), status=201)

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return jobs.start(settings, {k: value for k, value in values.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ReplayList:
    """Replays, newest first."""

    replays: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class Replays(Read[ReplayList]):
    """List the replays, newest first."""

    surface: ClassVar = _FOLDER(("GET", "/api/replays"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.listed(settings)


ReplayId = Annotated[str, Doc("the replay's id", min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True)
class GetReplay(Read[Replay]):
    """Show the progress or the result of a replay."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.show(settings, self.replay_id)


@dataclass(frozen=True, slots=True)
class StopReplay(Read[Replay]):
    """Stop a replay; a finished one stays unchanged."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("POST", "/api/replays/{replay_id}/stop"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.stop(settings, self.replay_id)


@dataclass(frozen=True, slots=True)
class DifferencePage:
    """The results of a comparison: for each scope its counts, then its differences; `what` is
    scope, fact, decision, entity or relation. `next_cursor` is None on the last page."""

    differences: tuple[dict[str, Any], ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class ReplayDifferences(Read[DifferencePage]):
    """Return the results of a comparison, page by page."""

    replay_id: ReplayId
    limit: Annotated[int, Doc("maximum number of differences", ge=1, le=1_000)] = 200
    cursor: Annotated[int, Doc("the `next_cursor` of the previous page", ge=0)] = 0

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}/differences"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.differences(settings, self.replay_id, self.cursor, self.limit)


@dataclass(frozen=True, slots=True)
class Branch:
    """Stores derived from the log by another replay. `whole`: they contain everything read of the
    live log; `read_through` is the offset read up to, by partition."""

    name: str
    kind: str
    created_at: datetime
    partitions: int
    settings: tuple[str, ...]
    selection: dict[str, Any] | None
    read_through: dict[int, int]
    whole: bool


@dataclass(frozen=True, slots=True)
class BranchList:
    """Branches, by name."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Branches(Read[BranchList]):
    """List the branches, the stores that replays created, by name.

    Example: palimpsest replay branches
    """

    surface: ClassVar = _FOLDER(("GET", "/api/branches"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.branches import branches

        return {"branches": [each.as_json() for each in branches(settings)]}


@dataclass(frozen=True, slots=True)
class Dropped:
    """The removed branch."""

    dropped: str


@dataclass(frozen=True, slots=True)
class DropBranch(Read[Dropped]):
    """Remove a branch and its files."""

    branch: Annotated[str, Doc("the branch", min_length=1, max_length=64, argument=True)]

    surface: ClassVar = _FOLDER(("DELETE", "/api/branches/{branch}"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.standing import drop_unused

        drop_unused(settings, self.branch)
        return {"dropped": self.branch}


@dataclass(frozen=True, slots=True)
class DeciderAgreement:
    """Counts of a decider's `proposals` in a scope: failures, agreement with the live decider on
    the action, and on the memory too; for those that a person judged, agreement with the person.
    `earned`: whether the scope has earned permission to update and delete."""

    scope: str
    decider: str
    proposals: int
    failed: int
    same_action: int
    agrees: int
    judged: int
    with_people: int
    earned: bool


@dataclass(frozen=True, slots=True)
class Agreements:
    """The deciders of each scope."""

    deciders: tuple[DeciderAgreement, ...]


@dataclass(frozen=True, slots=True)
class Agreement(Read[Agreements]):
    """Show how often deciders agree with the live one, and with people's later changes.

    The setting pipeline.shadow_deciders names the additional deciders.

    Example: palimpsest replay agreement --scope support
    """

    scope: AnyScope = None

    surface: ClassVar = Surface(
        ("GET", "/api/replay/agreement"),
        tag="replays",
        command="replay agreement",
        panel="Run and operate",
        overview=True,
    )

    def read(self, sources: Sources) -> Json:
        found = rows_of(sources, self.scope, _AGREEMENT, {"scope": self.scope})
        return self.merge([{"deciders": found}])

    def merge(self, answers: Sequence[Json]) -> Json:
        found = [row for answer in answers for row in answer["deciders"]]
        found.sort(key=lambda row: (row["scope"], row["decider"] != "live", row["decider"]))
        return {"deciders": found}


_AGREEMENT = """
WITH shown AS (
    SELECT s.*, v.is_right FROM main.shadow_proposals s
    LEFT JOIN main.decision_verdicts v ON v.scope = s.scope AND v.item_id = s.item_id
        AND s.round = (SELECT max(round) FROM internal.proposals p WHERE p.item_id = s.item_id)
    WHERE coalesce(s.scope = $scope, true))
SELECT scope, decider, count(*) AS proposals, count(*) FILTER (action IS NULL) AS failed,
    count(*) FILTER (same_action) AS same_action, count(*) FILTER (agrees) AS agrees,
    count(*) FILTER (action IS NOT NULL AND is_right IS NOT NULL) AS judged,
    count(*) FILTER (agrees = is_right) AS with_people, false AS earned
FROM shown GROUP BY scope, decider
UNION ALL
SELECT p.scope, 'live', count(*), 0, count(*), count(*), count(v.is_right),
    count(*) FILTER (v.is_right),
    coalesce((SELECT earned_update_delete FROM internal.scope_flags f WHERE f.scope = p.scope),
        false)
FROM internal.proposals p
LEFT JOIN main.decision_verdicts v ON v.scope = p.scope AND v.item_id = p.item_id
WHERE coalesce(p.scope = $scope, true)
  AND p.round = (SELECT max(round) FROM internal.proposals l WHERE l.item_id = p.item_id)
GROUP BY p.scope
"""
