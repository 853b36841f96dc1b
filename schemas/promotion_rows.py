"""The rows of promotions, which bring facts of a branch into memory. As `schemas.rows`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from palimpsest.schemas.rows import Row

PROMOTION: Final = "promotion"
"""Who changed a memory last that a promotion, or its rollback, changed (`updated_by`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRow(Row):
    """A promotion in one scope, the `number`-th there. `status` is `applied` or `rolled-back`."""

    TABLE: ClassVar[str] = "promotion_rows"
    KEY: ClassVar[tuple[str, ...]] = ("promotion_id", "scope")

    promotion_id: str
    scope: str
    number: int
    branch: str
    plan_id: str
    status: str = "applied"
    gained: int
    changed: int
    lost: int
    kept: int
    reason: str
    promoted_by: str
    recorded_at: datetime
    rolled_back_by: str | None = None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionItemRow(Row):
    """What a promotion did with one memory: `change` is `gained`, `changed`, `lost` or `kept`, and
    `why` says of what was kept, why. Versions are those of the memory before and after, None where
    there was none or nothing was done. `rollback` tells what its rollback did."""

    TABLE: ClassVar[str] = "promotion_item_rows"
    KEY: ClassVar[tuple[str, ...]] = ("promotion_id", "memory_id")

    promotion_id: str
    memory_id: str
    scope: str
    change: str
    why: str = ""
    counterpart: str | None = None
    version_before: int | None = None
    version_after: int | None = None
    rollback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPartRow(Row):
    """A part of a promotion that waits for the last one; `payload` is its changes as JSON, an empty
    list once they were carried out."""

    TABLE: ClassVar[str] = "promotion_part_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "plan_id", "part")

    scope: str
    plan_id: str
    part: int
    promotion_id: str
    payload: str
