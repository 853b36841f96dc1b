"""Compares the live memory with a branch, scope by scope; as JSON, lines and Parquet."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, cast

import pyarrow as pa
from pyarrow import parquet
from pydantic import Field, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.replay.branches import BranchManifest, branch_settings, read_branch
from palimpsest.ops.replay.differences import (
    KINDS,
    ComparedStore,
    Record,
    ScopeDiff,
    scope_diff,
    summed,
)
from palimpsest.ops.replay.requests import Diff, Promote, ReplayProgress, Report, unreported
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import Queries, queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.failures import describe
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.normal_forms import content_hash


async def compared(settings: Settings, request: Diff, report: Report = unreported) -> Record:
    """Compares and returns the differences, or their totals if they are written as lines, with the
    files that were written. Raises NotFoundError for an unknown branch or scope, RequestError for
    questions that cannot be read and for memory that cannot be queried, and OSError."""
    if request.out is not None and request.writes_lines:
        return await write_lines(settings, request, Path(request.out), report)
    branch = read_branch(settings, request.branch)
    asked = () if request.questions is None else Question.read(Path(request.questions))
    scopes = [each.as_json() async for each in scope_diffs(settings, request, report)]
    told: Record = {"branch": branch.name, **totals(scopes), "scopes": scopes}
    if asked:
        async with sides(settings, branch) as (live, own):
            told["recall"] = await recall_differences(live.queries, own.queries, asked, report)
    files = [] if request.out is None else write_parquet(told, Path(request.out))
    return {**told, "written": [str(path) for path in files]}


async def write_lines(
    settings: Settings, request: Diff, out: Path, report: Report = unreported
) -> Record:
    """Compares and writes the differences to a file: for each scope a line with its counts, then a
    line for each difference; only one scope is in memory. Returns the totals. The file appears once
    it is complete. Raises the same errors as `compared`."""
    lines, scopes = 0, []
    partial = out.with_name(f".{out.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            async for each in scope_diffs(settings, request, report):
                scope, *parts = _lines(each)
                scopes.append(scope)
                for line in (scope, *parts):
                    file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
                lines += 1 + len(parts)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return {"branch": request.branch, **totals(scopes), "scopes": len(scopes), "lines": lines}


def _lines(found: ScopeDiff) -> Iterator[Record]:
    told = found.as_json()
    facts, decisions, graph = (told.pop(name) for name in ("facts", "decisions", "graph"))
    yield {"what": "scope", **told}
    for fact in facts:
        yield {"what": "fact", "scope": found.scope, **fact}
    for decision in decisions:
        yield {"what": "decision", **decision}
    yield from graph


async def scope_diffs(
    settings: Settings,
    request: Diff | Promote,
    report: Report = unreported,
    done: Container[str] = (),
) -> AsyncGenerator[ScopeDiff, None]:
    """Yields the differences scope by scope, ordered by name, without scopes that are `done` and
    without running the questions. Raises the same errors as `compared`."""
    branch = read_branch(settings, request.branch)
    async with sides(settings, branch) as (live, own):
        for scope in request.scopes:
            if scope not in live.partitions:
                raise NotFoundError(f"there is no scope {scope}")
        # A scope that only the branch has was erased in the meantime.
        both = live.partitions.keys() & own.partitions.keys()
        scopes = sorted(both & {*request.scopes} if request.scopes else both)
        for number, scope in enumerate(scopes):
            report(ReplayProgress("comparing", number, len(scopes), "scopes"))
            if scope not in done:
                yield await scope_diff(live, own, branch, scope)
        report(ReplayProgress("comparing", len(scopes), len(scopes), "scopes"))


@contextlib.asynccontextmanager
async def sides(
    settings: Settings, branch: BranchManifest
) -> AsyncIterator[tuple[ComparedStore, ComparedStore]]:
    """Yields the live memory and the branch, ready for queries."""
    async with (
        queries(settings) as of_live,
        queries(branch_settings(settings, branch)) as of_branch,
    ):
        yield await ComparedStore.begun(of_live), await ComparedStore.begun(of_branch)


def totals(scopes: Sequence[Record]) -> Record:
    """Returns the sums of the counts and the usage of scopes, given as JSON."""
    kinds = dict.fromkeys(KINDS, 0)
    for counted in (each for scope in scopes for each in scope["counts"].values()):
        for kind, number in counted.items():
            kinds[kind] += number
    sides = ("live", "branch")
    spent = {side: summed(scope["spent"][side] for scope in scopes) for side in sides}
    return {"totals": kinds, "spent": spent}


_SIDE: Final = pa.struct(
    {"memory_id": pa.string(), "content": pa.string(), "version": pa.int64()}
    | {"confidence": pa.float64(), "curated": pa.bool_()}
)
_DECISION: Final = pa.struct(
    {name: pa.string() for name in ("item_id", "fact", "action", "target", "reason")}
)
_PARQUET: Final[dict[str, dict[str, pa.DataType]]] = {
    "facts": {"scope": pa.string(), "kind": pa.string(), "type": pa.string(), "live": _SIDE}
    | {"branch": _SIDE, "similarity": pa.float64(), "keep": pa.string()}
    | {"counterpart": pa.string(), "sources": pa.list_(pa.string())}
    | {"evidence": pa.list_(pa.string())},
    "decisions": {"scope": pa.string(), "turn_memory_id": pa.string()}
    | {"live": _DECISION, "branch": _DECISION},
    "graph": {name: pa.string() for name in ("scope", "kind", "what", "name")},
    "recall": {"scope": pa.string(), "question": pa.string()}
    | {"live": pa.int64(), "branch": pa.int64()},
    "counts": {"scope": pa.string(), "type": pa.string()} | dict.fromkeys(KINDS, pa.int64()),
}


def write_parquet(found: Record, out: Path) -> list[Path]:
    """Writes the facts to `out` if it is named *.parquet, else all tables into the folder `out`.
    Returns the files."""
    scopes = found["scopes"]
    rows: dict[str, list[Record]] = {
        "facts": [{**fact, "scope": s["scope"]} for s in scopes for fact in s["facts"]],
        "decisions": [decision for s in scopes for decision in s["decisions"]],
        "graph": [part for s in scopes for part in s["graph"]],
        "recall": found["recall"]["questions"] if "recall" in found else [],
        "counts": [
            {"scope": s["scope"], "type": kind, **counted}
            for s in scopes
            for kind, counted in s["counts"].items()
        ],
    }
    files = {"facts": out}
    if out.suffix != ".parquet":
        out.mkdir(parents=True, exist_ok=True)
        files = {name: out / f"{name}.parquet" for name in _PARQUET}
    for name, path in files.items():
        parquet.write_table(pa.Table.from_pylist(rows[name], pa.schema(_PARQUET[name])), path)
    return [*files.values()]


# --- recall difference ----------------------------------------------------------------------------
# Runs the same questions against two memories and reports the rank of the expected result.

KS: Final = (1, 5, 10, 50)
"""The k for which the share of questions with an expected result in the first k is reported."""


class Question(Frozen):
    """A line of a file of questions: `expected` are ids of turns or of memories, or texts of
    memories, any of which answers it."""

    scope: str = Field(min_length=1)
    question: str = Field(pattern=r"\S")
    expected: Annotated[tuple[str, ...], Field(min_length=1)]

    @classmethod
    def read(cls, path: Path) -> tuple[Question, ...]:
        """Returns the questions of a file with one JSON object per line. Raises RequestError."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"the questions {path} cannot be read: {error}") from error
        found = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    found.append(cls.model_validate_json(line))
                except ValidationError as error:
                    why = describe(error)
                    raise RequestError(f"{path}, line {number} is no question: {why}") from error
        return tuple(found)


async def recall_differences(
    live: Queries, branch: Queries, questions: Sequence[Question], report: Report = unreported
) -> Record:
    """Runs each question against both memories, in order. Returns the `questions`, each with the
    rank, from 1, of the first expected result in each memory (None: not among the results); and by
    k, `at` which share of them had one in the first k."""
    found: list[Record] = []
    for number, asked in enumerate(questions, 1):
        places = {"live": await _place(live, asked), "branch": await _place(branch, asked)}
        found.append({"scope": asked.scope, "question": asked.question, **places})
        report(ReplayProgress("asking", number, len(questions), "questions"))
    at = {
        str(k): {
            side: sum((each[side] or k + 1) <= k for each in found) / len(found)
            for side in ("live", "branch")
        }
        for k in KS
    }
    return {"at": at, "questions": found}


async def _place(queries: Queries, asked: Question) -> int | None:
    request = Recall(asked.question, asked.scope, max(KS), record=False)
    answer = cast("JsonObject", await queries.answer(request))
    wanted = {*asked.expected, *(turn_memory_id(asked.scope, each) for each in asked.expected)}
    hashes = set(map(content_hash, asked.expected))
    for place, result in enumerate(cast("list[JsonObject]", answer["results"]), 1):
        ids = {str(result["id"]), *cast("list[str]", result["derived_from"])}
        ids |= set(cast("list[str]", result["source_ids"]))
        if not wanted.isdisjoint(ids) or content_hash(str(result["content"])) in hashes:
            return place
    return None
