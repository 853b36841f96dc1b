"""A comparison as lines of JSON, written scope by scope: in memory is one of them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.replay.diff import DiffRequest, scope_diffs
from palimpsest.ops.replay.diff_output import fact_json
from palimpsest.ops.replay.differences import KINDS, ScopeDiff, Spent
from palimpsest.ops.replay.progress import Report, unreported
from palimpsest.ops.settings.sections import Settings


async def write_lines(
    settings: Settings, request: DiffRequest, out: Path, report: Report = unreported
) -> JsonObject:
    """Compare, and write what differs to a file: of each scope a line with its counts, then a line
    for each difference. What it comes to in all. The file is there when all is in it; raises as
    `diff` does, and OSError."""
    lines, scopes = 0, 0
    totals: Counter[str] = Counter()
    spent = {"live": Spent(), "branch": Spent()}
    partial = out.with_name(f".{out.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            async for each in scope_diffs(settings, request, report):
                for line in _lines(each):
                    file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
                    lines += 1
                scopes += 1
                spent = {"live": spent["live"] + each.live, "branch": spent["branch"] + each.branch}
                for counted in each.counts().values():
                    totals.update(counted)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return {
        "branch": request.branch,
        "totals": {kind: totals[kind] for kind in KINDS},
        "spent": {side: asdict(each) for side, each in spent.items()},
        "scopes": scopes,
        "lines": lines,
    }


def _lines(found: ScopeDiff) -> Iterator[JsonObject]:
    counts: JsonObject = {kind: {**counted} for kind, counted in found.counts().items()}
    spent: JsonObject = {"live": asdict(found.live), "branch": asdict(found.branch)}
    yield {"what": "scope", "scope": found.scope, "counts": counts, "spent": spent}
    for fact in found.facts:
        yield {"what": "fact", "scope": found.scope, **fact_json(fact)}
    for decision in found.decisions:
        yield {"what": "decision", **asdict(decision)}
    for part in found.graph:
        told = asdict(part)
        yield {"what": told.pop("what"), **told}
