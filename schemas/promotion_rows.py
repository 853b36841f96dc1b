"""The rows of promotions, which bring facts of a branch into memory. As `schemas.rows`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from palimpsest.schemas.rows import APPEND_TIME, MemoryId, RecordedAt, Row, Scope

PROMOTION: Final = "promotion"
"""Who changed a memory last that a promotion, or its rollback, changed (`updated_by`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRow(Row, table="promotion_rows", key=("promotion_id", "scope"), since=12):
    """A promotion in one scope."""

    promotion_id: Annotated[str, "id of the promotion"]
    scope: Scope
    number: Annotated[int, "how many promotions its scope had with it"]
    branch: Annotated[str, "the branch that was promoted"]
    plan_id: Annotated[str, "id of the plan that it carried out"]
    status: Annotated[str, "applied or rolled-back"] = "applied"
    gained: Annotated[int, "memories that were added"]
    changed: Annotated[int, "memories that say something else since"]
    lost: Annotated[int, "memories that were forgotten"]
    kept: Annotated[int, "memories that were left as they are, or not taken"]
    reason: Annotated[str, "why it was promoted, as who did it said"]
    promoted_by: Annotated[str, "who promoted it"]
    recorded_at: RecordedAt
    rolled_back_by: Annotated[str | None, "who rolled it back; NULL while it is applied"] = None
    updated_at: Annotated[datetime, "when it was promoted, or rolled back", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionItemRow(
    Row, table="promotion_item_rows", key=("promotion_id", "memory_id"), since=12
):
    """What a promotion did with one memory."""

    promotion_id: Annotated[str, "id of the promotion"]
    memory_id: MemoryId
    scope: Scope
    change: Annotated[str, "gained, changed, lost or kept"]
    why: Annotated[str, "of what was kept: why; empty for what was done"] = ""
    counterpart: Annotated[
        str | None, "the memory of the other side that it was paired with; NULL where none was"
    ] = None
    version_before: Annotated[int | None, "the memory's version before; NULL for a new one"] = None
    version_after: Annotated[int | None, "the memory's version after; NULL for what was kept"] = (
        None
    )
    rollback: Annotated[
        str | None, "what the rollback did with it: undone, or why it was left; NULL without one"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPartRow(
    Row, table="promotion_part_rows", key=("scope", "plan_id", "part"), since=12
):
    """A part of a promotion that waits for the last one."""

    scope: Scope
    plan_id: Annotated[str, "id of the plan"]
    part: Annotated[int, "its number in the plan"]
    promotion_id: Annotated[str, "id of the promotion"]
    payload: Annotated[str, "its changes as JSON; an empty list once they were carried out"]
