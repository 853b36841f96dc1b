"""Results of replays as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict

from palimpsest.ops.replay.rebuild import Rebuilt
from palimpsest.ops.replay.reextraction import Reextracted


def rebuilt_json(done: Rebuilt) -> dict[str, object]:
    """Returns the result of a rebuild for programs."""
    return {
        "branch": done.name,
        "stopped": done.stopped,
        "equal": done.is_equal,
        "partitions": [
            {
                "partition": each.partition,
                "offset": each.offset,
                "rows": each.rows,
                "state_hash": each.state_hash,
                "compared": each.live is None,
                "not_compared": each.live,
                "differing": dict(each.differing),
                "embedded": each.embedded,
            }
            for each in done.partitions
        ],
        "records": done.records,
        "turns": done.turns,
        "seconds": round(done.seconds, 3),
        "turns_per_second": round(done.turns / done.seconds, 1) if done.records else None,
        "swapped": done.kept is not None,
        "kept": done.kept,
    }


def reextracted_json(done: Reextracted) -> dict[str, object]:
    """Returns the result of a re-extraction for programs."""
    return {**asdict(done), "branch": done.branch.model_dump(mode="json")}
