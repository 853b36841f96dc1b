"""Runs the same questions against two memories and reports the rank of the expected result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, cast

from pydantic import Field, ValidationError

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.replay.differences import RecallDifference
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import Queries
from palimpsest.schemas.codec import describe
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.normal_forms import content_hash

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


def recall_at(found: Sequence[RecallDifference]) -> dict[int, tuple[float, float]]:
    """Returns, by k, the share of questions with an expected result in the first k: live,
    branch."""
    count = max(1, len(found))
    return {
        k: (
            sum(each.live is not None and each.live <= k for each in found) / count,
            sum(each.branch is not None and each.branch <= k for each in found) / count,
        )
        for k in KS
    }


async def recall_differences(
    live: Queries,
    branch: Queries,
    questions: Sequence[Question],
    report: Report = unreported,
) -> tuple[RecallDifference, ...]:
    """Runs each question against both memories, in order."""
    found = []
    for number, asked in enumerate(questions, 1):
        places = [await _place(side, asked) for side in (live, branch)]
        found.append(RecallDifference(asked.scope, asked.question, *places))
        report(Progress("asking", number, len(questions), "questions"))
    return tuple(found)


async def _place(queries: Queries, asked: Question) -> int | None:
    request = Recall(asked.question, asked.scope, max(KS))
    answer = cast("JsonObject", await queries.answer(request))
    wanted = {*asked.expected, *(turn_memory_id(asked.scope, each) for each in asked.expected)}
    hashes = set(map(content_hash, asked.expected))
    for place, result in enumerate(cast("list[JsonObject]", answer["results"]), 1):
        ids = {str(result["id"]), *cast("list[str]", result["derived_from"])}
        ids |= set(cast("list[str]", result["source_ids"]))
        if not wanted.isdisjoint(ids) or content_hash(str(result["content"])) in hashes:
            return place
    return None
