"""Background replays and branches, answered from the data folder alone; promotions; agreement of
deciders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read, Surface
from palimpsest.ops.reading.rows import all_rows, rows_of
from palimpsest.ops.replay.requests import (
    AllowLoss,
    BudgetTokens,
    CatchUp,
    Curated,
    DryRun,
    Model,
    OffsetOrTime,
    OfScope,
    Partition,
    Provider,
    Rate,
    ReplayProgress,
    Sample,
    TurnsSince,
)

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings

_FOLDER = partial(OPERATING, tag="replays", routing="folder")

Kind = Literal["rebuild", "reextract", "diff", "promote", "rollback"]


class Replay(Answer):
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
    until: OffsetOrTime = None
    since: TurnsSince = None
    partition: Partition = None
    provider: Provider = None
    model: Model = None
    scope: OfScope = None
    sample: Sample = None
    rate: Rate = None
    budget_tokens: BudgetTokens = None
    dry_run: DryRun = False
    allow_loss: AllowLoss = False
    catch_up: CatchUp = True
    promotion: Annotated[str | None, Doc("the promotion to revert", max_length=64)] = None

    surface: ClassVar = _FOLDER(("POST", "/api/replays"), status=201)

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.start(settings, self.set_fields())


class ReplayList(Answer):
    """Replays, newest first."""

    replays: tuple[Replay, ...]


class Replays(Read[ReplayList]):
    """List the replays, newest first."""

    surface: ClassVar = _FOLDER(("GET", "/api/replays"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.listed(settings)


ReplayId = Annotated[str, Doc("the replay's id", min_length=1, max_length=64)]


class GetReplay(Read[Replay]):
    """Show the progress or the result of a replay."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.show(settings, self.replay_id)


class StopReplay(Read[Replay]):
    """Stop a replay; a finished one stays unchanged."""

    replay_id: ReplayId

    surface: ClassVar = _FOLDER(("POST", "/api/replays/{replay_id}/stop"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.stop(settings, self.replay_id)


class DifferencePage(Answer):
    """The results of a comparison: for each scope its counts, then its differences; `what` is
    scope, fact, decision, entity or relation. `next_cursor` is None on the last page."""

    differences: tuple[dict[str, Any], ...]
    next_cursor: int | None


class ReplayDifferences(Read[DifferencePage]):
    """Return the results of a comparison, page by page."""

    replay_id: ReplayId
    limit: Annotated[int, Doc("maximum number of differences", ge=1, le=1_000)] = 200
    cursor: Annotated[int, Doc("the `next_cursor` of the previous page", ge=0)] = 0

    surface: ClassVar = _FOLDER(("GET", "/api/replays/{replay_id}/differences"))

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay import jobs

        return jobs.differences(settings, self.replay_id, self.cursor, self.limit)


class Branch(Answer):
    """Stores derived from the log by another replay. `whole`: they contain everything read of the
    live log; `read_through` is the offset read up to, by partition; `behind` counts the records
    after it, `erasures` the commands among them that erase texts and have not reached the branch
    otherwise."""

    name: str
    kind: str
    created_at: datetime
    partitions: int
    settings: tuple[str, ...]
    selection: dict[str, Any] | None
    read_through: dict[int, int]
    whole: bool
    behind: int
    erasures: int


class BranchList(Answer):
    """Branches, by name."""

    branches: tuple[Branch, ...]


class Branches(Read[BranchList]):
    """List the branches: their kind, their progress, and how far they lag behind the live memory.

    Example: palimpsest replay branches
    """

    surface: ClassVar = _FOLDER(("GET", "/api/branches"), command="replay branches")

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.branches import branch_statuses

        return {"branches": branch_statuses(settings)}


BranchName = Annotated[
    str, Doc("the branch", min_length=1, max_length=64, argument=True, metavar="NAME")
]


class CurationList(Answer):
    """The changes made by people, in the order of the log."""

    branch: str
    curated: tuple[Curated, ...]


class Curation(Read[CurationList]):
    """Show the outcome, in a branch, of all changes made by people.

    Prints a row for each memory that a command named: its counterpart in the branch, their
    similarity, and whether the command was applied again. For SQL, the table is in
    `reextraction.sqlite` of the branch's folder.

    Example: palimpsest replay curation better --status "no counterpart"
    """

    branch: BranchName
    status: Annotated[
        str | None, Doc("only this outcome, for example 'no counterpart'", max_length=64)
    ] = None

    surface: ClassVar = _FOLDER(command="replay curation")

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.live_log import curated_in

        rows = curated_in(settings, self.branch, self.status)
        return {"branch": self.branch, "curated": [asdict(row) for row in rows]}


class Dropped(Answer):
    """The removed branch."""

    dropped: str


class DropBranch(Read[Dropped]):
    """Remove a branch and all its files.

    Example: palimpsest replay drop better
    """

    branch: BranchName

    surface: ClassVar = _FOLDER(("DELETE", "/api/branches/{branch}"), command="replay drop")

    def read_folder(self, settings: Settings) -> Json:
        from palimpsest.ops.replay.branches import drop_unused

        drop_unused(settings, self.branch)
        return {"dropped": self.branch}


class Promotion(Answer):
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
    recorded_at: datetime


class PromotionList(Answer):
    """Promotions, newest first."""

    promotions: tuple[Promotion, ...]


class Promotions(Read[PromotionList]):
    """List the promotions, newest first, including those rolled back.

    `palimpsest sql "FROM promotion_items"` shows the effect of a promotion on each memory.

    Example: palimpsest replay promotions
    """

    surface: ClassVar = OPERATING(tag="replays", command="replay promotions")

    def read(self, sources: Sources) -> Json:
        found = all_rows(sources, _PROMOTIONS)
        return self.merge([{"promotions": [row]} for row in found])

    def merge(self, answers: Sequence[Json]) -> Json:
        rows = [row for answer in answers for row in answer["promotions"]]
        rows.sort(key=lambda row: (row["promotion_id"], row["scopes"]))
        rows.sort(key=lambda row: datetime.fromisoformat(row["recorded_at"]), reverse=True)
        by_id: dict[str, Json] = {}
        for row in rows:
            known = by_id.setdefault(row["promotion_id"], row)
            if known is not row:
                is_same = known["status"] == row["status"]
                known["status"] = row["status"] if is_same else "partly rolled back"
                for name in ("scopes", "gained", "changed", "lost", "kept"):
                    known[name] += row[name]
        return {"promotions": [*by_id.values()]}


_PROMOTIONS = """
SELECT promotion_id, branch, status, [scope] AS scopes, gained, changed, lost, kept, promoted_by,
    recorded_at
FROM main.promotions
"""


class DeciderAgreement(Answer):
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


class Agreements(Answer):
    """The deciders of each scope."""

    deciders: tuple[DeciderAgreement, ...]


class Agreement(Read[Agreements]):
    """Show how often deciders agree with the live one, and with people's later changes.

    The setting pipeline.shadow_deciders names the additional deciders.

    Example: palimpsest replay agreement --scope support
    """

    scope: shared.AnyScope = None

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
