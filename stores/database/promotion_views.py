"""The views over promotions."""

from __future__ import annotations

from palimpsest.stores.database.view_columns import View

PROMOTION_VIEWS: dict[str, View] = {
    "promotions": View(
        "What was promoted from branches, a row a scope, also what was rolled back.",
        """SELECT promotion_id, scope, number, branch, status, gained, changed, lost, kept, reason,
               promoted_by, recorded_at, rolled_back_by, updated_at
           FROM internal.promotion_rows""",
        {
            "status": "applied or rolled-back",
            "reason": "why it was promoted, as who did it said",
            "updated_at": "when it was promoted, or rolled back",
        },
    ),
    "promotion_items": View(
        "What promotions did with each memory, also what they left as it is.",
        """SELECT promotion_id, scope, memory_id, change, why, counterpart, version_before,
               version_after, rollback FROM internal.promotion_item_rows""",
        {"why": "of what was kept: why; empty for what was done"},
    ),
}
