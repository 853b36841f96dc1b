"""Writes a comparison as JSON and as Parquet."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from palimpsest.ops.replay.diff import DiffRequest, scope_diffs
from palimpsest.ops.replay.differences import KINDS, Diff, FactDifference, ScopeDiff, Spent
from palimpsest.ops.replay.progress import Report, unreported
from palimpsest.ops.replay.recall_difference import recall_at
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings

# --- difference lines -----------------------------------------------------------------------------
# Writes a comparison as lines of JSON, scope by scope: only one scope is in memory.


async def write_lines(
    settings: Settings, request: DiffRequest, out: Path, report: Report = unreported
) -> JsonObject:
    """Compares and writes the differences to a file: for each scope a line with its counts, then a
    line for each difference. Returns the totals. The file appears once it is complete. Raises the
    same errors as `diff`, and OSError."""
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


# --- diff output ----------------------------------------------------------------------------------

_SIDE: Final = pa.struct(
    {"memory_id": pa.string(), "content": pa.string(), "version": pa.int64()}
    | {"confidence": pa.float64(), "curated": pa.bool_()}
)
_FACTS: Final = pa.schema(
    {"scope": pa.string(), "kind": pa.string(), "type": pa.string(), "live": _SIDE}
    | {"branch": _SIDE, "similarity": pa.float64(), "keep": pa.string()}
    | {"counterpart": pa.string(), "sources": pa.list_(pa.string())}
    | {"evidence": pa.list_(pa.string())}
)
_DECISION: Final = pa.struct(
    {name: pa.string() for name in ("item_id", "fact", "action", "target", "reason")}
)
_DECISIONS: Final = pa.schema(
    {"scope": pa.string(), "turn_memory_id": pa.string(), "live": _DECISION, "branch": _DECISION}
)
_GRAPH: Final = pa.schema({name: pa.string() for name in ("scope", "kind", "what", "name")})
_RECALL: Final = pa.schema(
    {"scope": pa.string(), "question": pa.string(), "live": pa.int64(), "branch": pa.int64()}
)
_COUNTS: Final = pa.schema(
    {"scope": pa.string(), "type": pa.string()} | dict.fromkeys(KINDS, pa.int64())
)


def diff_json(diff: Diff) -> JsonObject:
    """Returns all differences; equal facts are only counted."""
    live, branch = diff.spent()
    told: JsonObject = {
        "branch": diff.branch,
        "totals": {**diff.totals()},
        "spent": {"live": asdict(live), "branch": asdict(branch)},
        "scopes": [
            {
                "scope": each.scope,
                "counts": {kind: {**counted} for kind, counted in each.counts().items()},
                "spent": {"live": asdict(each.live), "branch": asdict(each.branch)},
                "facts": [fact_json(fact) for fact in each.facts],
                "decisions": [asdict(decision) for decision in each.decisions],
                "graph": [asdict(part) for part in each.graph],
            }
            for each in diff.scopes
        ],
    }
    if diff.recall:
        told["recall"] = {
            "at": {
                str(k): {"live": before, "branch": after}
                for k, (before, after) in recall_at(diff.recall).items()
            },
            "questions": [asdict(question) for question in diff.recall],
        }
    return told


def fact_json(fact: FactDifference) -> JsonObject:
    """Returns a fact difference without its scope."""
    told: JsonObject = {**asdict(fact), "type": fact.type, "sources": [*fact.sources]}
    del told["scope"]
    return told


def write_parquet(diff: Diff, out: Path) -> list[Path]:
    """Writes the facts to `out` if it is named *.parquet, else all tables into the folder `out`.
    Returns the files."""
    tables = {
        "facts": pa.Table.from_pylist(
            [{**fact_json(fact), "scope": fact.scope} for fact in diff.facts()], _FACTS
        ),
        "decisions": _table(_DECISIONS, [asdict(d) for s in diff.scopes for d in s.decisions]),
        "graph": _table(_GRAPH, [asdict(part) for s in diff.scopes for part in s.graph]),
        "recall": _table(_RECALL, [asdict(question) for question in diff.recall]),
        "counts": _table(
            _COUNTS,
            [
                {"scope": scope.scope, "type": kind, **counted}
                for scope in diff.scopes
                for kind, counted in scope.counts().items()
            ],
        ),
    }
    if out.suffix == ".parquet":
        parquet.write_table(tables["facts"], out)
        return [out]
    out.mkdir(parents=True, exist_ok=True)
    written = [out / f"{name}.parquet" for name in tables]
    for path, table in zip(written, tables.values(), strict=True):
        parquet.write_table(table, path)
    return written


def _table(schema: pa.Schema, rows: list[JsonObject]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)
