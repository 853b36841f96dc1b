"""The scores of the last days, as the job `health` has recorded them (`ops.health.recording`):
events of the history, which a rebuild has too, and the retention sweep removes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from palimpsest.ops.health.domains import DOMAINS

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources

DAYS: Final = 14
"""How many days a trend has at most."""
_RECORDED: Final = """
SELECT scope, metadata FROM history_rows
WHERE event = 'diagnosed' AND created_at >= $since ORDER BY created_at, event_id"""


def recorded_scores(sources: Sources) -> list[tuple[str, dict[str, float]]]:
    """Returns the day (in UTC) and scores by domain of what is recorded, a row for each partition
    and day; of several records of a day the newest. Blocks."""
    since = sources.now() - timedelta(days=DAYS)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for shard in sources.shards.values():
        for scope, metadata in shard.fetch(_RECORDED, {"since": since}):
            told = json.loads(metadata)
            day = datetime.fromisoformat(told["at"]).date().isoformat()
            scores = {name: told["scores"][name] for name in DOMAINS if name in told["scores"]}
            found[scope, day] = scores
    return [(day, scores) for (_, day), scores in found.items()]
