"""What people did to the live memory, and what became of it in a branch: a row for every memory
that a command changed.

The rows lie in the table `curated` of `reextraction.sqlite` in the branch's folder, with the
columns of `Curated`. There are no texts in it: what is erased in a store is not left here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CURATION_FILE = "reextraction.sqlite"

MatchedBy = Literal["same id", "equal text", "embedding", "words", "erased"]
"""How a counterpart was found: by its id, which is that of the live memory where it does not come
of a model's words; by its normalized text; by the cosine of the texts, or their common words where
there is no vector. `erased`: the text is gone, and no other live fact of the turn accounts for
the branch's."""

Status = Literal[
    "fed",
    "re-applied",
    "refused",
    "suppressed",
    "no counterpart",
    "not carried out",
]
"""`fed`: the branch has the command, and its result is not known yet. `re-applied`: the branch
did it. `refused`: the branch did not, and `detail` says why. `suppressed`: the branch said a
forgotten or corrected thing in other words, and forgot that, too. `no counterpart`: nothing in the
branch corresponds. `not carried out`: the live memory had refused the command, so the branch was
not asked."""


@dataclass(frozen=True, slots=True)
class Curated:
    """One memory that one command named, or took with it. `live_id` is its id in the live memory;
    for apply-proposals and dismiss-proposals the id of the held fact, and `branch_id` that of the
    branch's. `partition` and `offset` are the place of the command in the live memory-writes.
    `similarity` is from 0 to 1, None where nothing was compared."""

    command_id: str
    command: str
    scope: str
    partition: int
    offset: int
    live_id: str
    branch_id: str | None
    matched_by: MatchedBy | None
    similarity: float | None
    status: Status
    detail: str = ""
