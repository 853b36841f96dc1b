"""The messages of a record that could not be processed, and of what became of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen, UtcTime


class DeadLetter(Frozen):
    """A record that could not be processed, as it was, and why.

    `value_base64` holds the bytes; `item_kind` and `item_ids` name what the balance must
    count as dead (empty when the record could not be read that far).
    """

    topic: str
    partition: int
    offset: int
    key: str | None = None
    value_base64: str
    headers: dict[str, str] = Field(default_factory=dict)
    stage: str
    failure: Literal["invalid", "malformed-output", "rejected", "unexpected"]
    reason: str
    raw_output: str | None = None
    attempts: int = 1
    first_failed_at: UtcTime
    last_failed_at: UtcTime
    item_kind: Literal["turn", "fact", "command", "change"] | None = None
    item_ids: tuple[str, ...] = ()


class DeadLetterMark(Frozen):
    """What somebody decided of the dead letter `letter_id`: it was sent again, or discarded."""

    letter_id: str
    status: Literal["redriven", "dropped"]
