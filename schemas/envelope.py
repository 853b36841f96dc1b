"""The envelope that every message on every topic travels in, and how identities are made."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_SCOPE_CHARACTERS = 256

# Root of every deterministic id: changing it would make replays produce new identities.
NAMESPACE = uuid.UUID("6f0d3a52-2c1c-5f0e-9a55-1d8f4b6a7c21")


def derived_id(*parts: str | int) -> str:
    """UUIDv5 over `parts`: the same parts always give the same id.

    For a message: stage, the input message's id, index. Parts are joined by a separator, which
    is escaped inside a part, so ("a", "bc"), ("ab", "c") and ("a\\x1fb", "c") all differ.
    """
    text = "\x1f".join(map(str, parts))
    if "\x1e" in text or text.count("\x1f") >= len(parts):
        # A producer chooses its ids freely, so the separator may stand in one.
        text = "\x1f".join(map(_escaped, parts))
    # What is looked through for ids may also be no text.
    name = text.encode(errors="surrogatepass")
    # uuid.uuid5 by hand: some thirty ids are made a turn, and its UUID object is not needed.
    digest = bytearray(hashlib.sha1(NAMESPACE.bytes + name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _escaped(part: str | int) -> str:
    return str(part).replace("\x1e", "\x1e\x1e").replace("\x1f", "\x1e\x1f")


def _calendar_only(value: object) -> object:
    # pydantic would take a number, also as text, as a Unix time; producers mean something else.
    if isinstance(value, (int, float)) or (isinstance(value, str) and value[4:5] != "-"):
        raise ValueError("write the time as RFC 3339 text, for example 2026-03-01T09:30:00Z")
    return value


def _to_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("the time has no zone; write for example 2026-03-01T09:30:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time lies outside the years 1 to 9999 in UTC") from None


UtcTime = Annotated[datetime, BeforeValidator(_calendar_only), AfterValidator(_to_utc)]
"""A moment, always in UTC. Text without a zone is refused rather than guessed."""


def local_time(value: datetime, utc_offset_minutes: int) -> datetime:
    """`value` at the clock of who said it; in UTC where that clock has no such time."""
    if not utc_offset_minutes:
        return value.astimezone(UTC)
    try:
        return value.astimezone(timezone(timedelta(minutes=utc_offset_minutes)))
    except (OverflowError, ValueError):
        return value.astimezone(UTC)


def _scope(value: str) -> str:
    if not value.strip():
        raise ValueError("scope is empty; name the memory space that this belongs to")
    return value


Scope = Annotated[
    str,
    # The pattern tells the JSON Schema what the validator refuses.
    Field(max_length=MAX_SCOPE_CHARACTERS, json_schema_extra={"pattern": r"\S"}),
    AfterValidator(_scope),
]


Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A number from 0 to 1."""


class Frozen(BaseModel):
    """Base of all that is said: immutable, and unknown fields are kept and passed on."""

    # Not a number and infinite have no JSON: refused where they arise, not lost on the way.
    # A validator is built when it is first used: a program uses few of some 150 models.
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)


ActorType = Literal["human", "agent", "pipeline", "system"]
BodyT = TypeVar("BodyT", bound=Frozen)


class Envelope(Frozen, Generic[BodyT]):
    """A message with its identity.

    `recorded_at` is the log's append time: the log sets it on reading, so it is None in a
    message that has not been appended yet and is not part of the encoded bytes. `redrive` counts
    how often the message was sent again after it had been dead-lettered.
    """

    id: str = Field(min_length=1, max_length=128)
    schema_: str = Field(alias="schema")
    scope: Scope
    occurred_at: UtcTime
    recorded_at: UtcTime | None = None
    correlation_id: str
    causation_id: str | None = None
    redrive: int | None = Field(default=None, ge=1)
    body: BodyT

    model_config = ConfigDict(populate_by_name=True)

    @property
    def recorded(self) -> datetime:
        """When the log took the message; for one not yet appended, when it happened."""
        return self.recorded_at or self.occurred_at


class Actor(Frozen):
    """Who gave a command. A machine actor (any but `human`) may not change what a pinned or
    confirmed memory says, unpin or forget it, whatever is forced."""

    id: str = Field(default="local", max_length=256)
    type: ActorType = "human"


class Triple(Frozen):
    """Source, relationship, target, as a model named them."""

    source: str
    source_type: str = "unknown"
    relationship: str
    target: str
    target_type: str = "unknown"
    confidence: Share = 0.5
