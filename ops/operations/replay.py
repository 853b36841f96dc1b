"""Replays and the branches that they make, answered from the data folder alone; deciders."""

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
    """A replay in a process of its own. `result` is what it came to. One that failed or was stopped
    goes on where it was when the same is started again."""

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
    """Start a replay in a process of its own, which goes on when this one ends.

    `rebuild` folds the log into new stores and compares them with the live ones (`name`, `until`,
    `partition`); `reextract` runs a model over old turns again, into a `branch` (`provider`,
    `model`, `scope`, `since`, `until`, `sample`, `rate`, `budget_tokens`, `dry_run`); `diff`
    compares a `branch` with the live memory; `promote` carries its differences over (`dry_run`,
    `allow_loss`, `catch_up`); `rollback` takes a `promotion` back. The same again goes on with what
    one before has left.
    """

    kind: Annotated[Kind, Doc("what to do")]
    name: Annotated[str | None, Doc("the branch that a rebuild becomes", max_length=64)] = None
    branch: Annotated[str | None, Doc("the branch", max_length=64)] = None
    until: Annotated[
        str | int | None, Doc("as of this time (RFC 3339), or of a rebuild this offset")
    ] = None
    since: Annotated[str | None, Doc("turns from this time on (RFC 3339)")] = None
    partition: Annotated[int | None, Doc("only of this partition", ge=0)] = None
    provider: Annotated[
        Literal["rules", "ollama", "openai", "anthropic"] | None,
        Doc("the provider of the model, as it is set; its address is in the settings alone"),
    ] = None
    model: Annotated[str | None, Doc("the model", min_length=1, max_length=256)] = None
    scope: Annotated[
        str | None, Doc("only turns of this memory space", min_length=1, max_length=256)
    ] = None
    sample: Annotated[int | None, Doc("only so many turns", ge=1)] = None
    rate: Annotated[float | None, Doc("turns a second, at most", ge=0)] = None
    budget_tokens: Annotated[int | None, Doc("stop after so many tokens", ge=1)] = None
    dry_run: Annotated[bool | None, Doc("only show what it would do")] = None
    allow_loss: Annotated[
        bool | None, Doc("promote also where live facts have no counterpart and are forgotten")
    ] = None
    catch_up: Annotated[bool | None, Doc("promote what came in since, too; else true")] = None
    promotion: Annotated[str | None, Doc("the promotion to take back", max_length=64)] = None

    surface: ClassVar = _FOLDER(("POST", "/api/replays"), status=201)

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return jobs.start(settings, {k: value for k, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ReplayList:
    """Replays, the newest first."""

    replays: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class Replays(Read[ReplayList]):
    """List the replays that were started, the newest first."""

    surface: ClassVar = _FOLDER(("GET", "/api/replays"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.listed(settings)


ReplayId = Annotated[str, Doc("the replay's id", min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True)
class GetReplay(Read[Replay]):
    """Show how far a replay is, or how it ended."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.show(settings, self.replay_id)


@dataclass(frozen=True, slots=True)
class StopReplay(Read[Replay]):
    """Stop a replay where it is; one that has ended stays as it is."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("POST", "/api/replays/{replay_id}/stop"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.stop(settings, self.replay_id)


@dataclass(frozen=True, slots=True)
class DifferencePage:
    """What a comparison found: of each scope its counts, then what differs; `what` of each is
    scope, fact, decision, entity or relation. `next_cursor` is None on the last page."""

    differences: tuple[dict[str, Any], ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class ReplayDifferences(Read[DifferencePage]):
    """Read what a comparison found, page by page."""

    replay_id: ReplayId
    limit: Annotated[int, Doc("maximum number of differences", ge=1, le=1_000)] = 200
    cursor: Annotated[int, Doc("the `next_cursor` of the page before", ge=0)] = 0

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}/differences"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.differences(settings, self.replay_id, self.cursor, self.limit)


@dataclass(frozen=True, slots=True)
class Branch:
    """Stores of another reading of the log. `whole`: all that was read of the live log is in them;
    `read_through` is the offset read up to, by partition."""

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
    """List the stores that replays made, by name.

    Example: palimpsest replay branches
    """

    surface: ClassVar = _FOLDER(("GET", "/api/branches"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.branches import branches

        return {"branches": [each.as_json() for each in branches(settings)]}


@dataclass(frozen=True, slots=True)
class Dropped:
    """The branch that was removed."""

    dropped: str


@dataclass(frozen=True, slots=True)
class DropBranch(Read[Dropped]):
    """Remove a branch with its files."""

    branch: Annotated[str, Doc("the branch", min_length=1, max_length=64, argument=True)]

    surface: ClassVar = _FOLDER(("DELETE", "/api/branches/{branch}"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.standing import drop_unused

        drop_unused(settings, self.branch)
        return {"dropped": self.branch}


@dataclass(frozen=True, slots=True)
class DeciderAgreement:
    """Of the `proposals` that a decider was asked for in a scope, how many failed, named the same
    action as the live one, and also the same memory; of those that a person judged, how many it had
    with people. `earned`: whether the scope has earned to update and delete."""

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
    """Deciders of each scope."""

    deciders: tuple[DeciderAgreement, ...]


@dataclass(frozen=True, slots=True)
class Agreement(Read[Agreements]):
    """Show how often deciders agree with the live one, and with what people did afterwards.

    Further deciders are named in pipeline.shadow_deciders.

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
