"""Options and arguments that several commands have, by what they mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

MemoryId = Annotated[
    str, typer.Argument(metavar="ID", help="A memory's id, or its first 8 characters.")
]
InScope = Annotated[str, typer.Option("--scope", "-s", help="The memory space to search.")]
OfScope = Annotated[str | None, typer.Option("--scope", "-s", help="Only of this memory space.")]
OfTypes = Annotated[list[str] | None, typer.Option(help="Only this type; may be repeated.")]
OfSession = Annotated[str | None, typer.Option(help="Only of this session.")]
ByPerson = Annotated[
    str | None, typer.Option(help="Said or written by this person, or drawn from that.")
]
InRoles = Annotated[
    list[str] | None,
    typer.Option("--role", help="Said in this role, or drawn from that; may be repeated."),
]
AnyTags = Annotated[
    list[str] | None, typer.Option(help="Only with one of these tags; may be repeated.")
]
AllTags = Annotated[
    list[str] | None, typer.Option("--all-tags", help="Only with all of these tags.")
]
OfCategories = Annotated[
    list[str] | None, typer.Option(help="Only of this category; may be repeated.")
]
OfProject = Annotated[str | None, typer.Option(help="Only of this project.")]
Pinned = Annotated[bool | None, typer.Option(help="Only pinned ones, or only others.")]
LeastImportance = Annotated[
    float | None, typer.Option(min=0, max=1, help="Least importance, from 0 to 1.")
]
Since = Annotated[datetime | None, typer.Option(help="Not before (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Before this time (UTC).")]
AsOf = Annotated[
    datetime | None,
    typer.Option(
        "--as-of",
        help="As known at this time (UTC): texts of then, found by the words and vectors of today.",
    ),
]
AskedAt = Annotated[
    datetime | None,
    typer.Option(
        "--asked-at", help="When the question is asked (UTC); its words for times count from it."
    ),
]
LeastScore = Annotated[
    float | None,
    typer.Option("--min-score", min=0, max=1, help="Least score of a result; else as set."),
]
ValidAt = Annotated[
    datetime | None,
    typer.Option("--valid-at", help="Without what was so only until this time (UTC)."),
]
Temporal = Annotated[
    bool | None,
    typer.Option("--temporal/--persistent", help="Only what ends by itself, or only all else."),
]
Results = Annotated[int, typer.Option(min=1, max=1000, help="Results at most.")]
Rows = Annotated[int, typer.Option(min=1, max=10_000, help="At most.")]
Grouped = Annotated[bool, typer.Option(help="A fact with its turns as one result.")]
Explained = Annotated[bool, typer.Option("--explain", help="Tell more of each score.")]
Neighbours = Annotated[int, typer.Option(min=0, max=20, help="Turns around a turn, on each side.")]
Reranked = Annotated[
    bool | None,
    typer.Option(
        "--rerank/--no-rerank",
        help="Read the first results again with a cross-encoder (English); else as set.",
    ),
]
Reason = Annotated[str, typer.Option(help="Why; kept in the history.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for a running worker's answer.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", help="Idempotency key: given again under the same key, it is carried out once."
    ),
]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", help="Only when the memory is at this version.")
]


def in_utc(time: datetime | None) -> datetime | None:
    """A time that was given without a zone is one in UTC."""
    return None if time is None else time.replace(tzinfo=time.tzinfo or UTC)
