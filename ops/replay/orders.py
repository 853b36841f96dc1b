"""What a replay that runs by itself is to do, as programs order it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.replay.branches import BranchName
from palimpsest.schemas.codec import describe
from palimpsest.schemas.envelope import UtcTime

Count = Annotated[int, Field(ge=1)]


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RebuildOrder(_Order):
    """Fold the log into new stores, and compare them with the live ones. `name`: that of the branch
    that they become; `until`: as of this time, or this offset of memory-writes in `partition`."""

    kind: Literal["rebuild"] = "rebuild"
    name: BranchName = "rebuild"
    until: UtcTime | Annotated[int, Field(ge=0)] | None = None
    partition: Annotated[int, Field(ge=0)] | None = None


class ReextractOrder(_Order):
    """Extract from turns again, into a branch. The model is one of a provider as it is set: an
    address is given by the operator's settings alone, since keys are sent there."""

    kind: Literal["reextract"] = "reextract"
    branch: BranchName
    provider: Literal["rules", "ollama", "openai", "anthropic"] | None = None
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    scope: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    since: UtcTime | None = None
    until: UtcTime | None = None
    sample: Count | None = None
    rate: Annotated[float, Field(gt=0)] | None = None
    budget_tokens: Count | None = None
    dry_run: bool = False


class DiffOrder(_Order):
    """Compare a branch with the live memory."""

    kind: Literal["diff"] = "diff"
    branch: BranchName


class PromoteOrder(_Order):
    """Carry a branch's differences over into the live memory. `allow_loss`: also where live facts
    have no counterpart and are forgotten. `catch_up`: it first reads what came in since."""

    kind: Literal["promote"] = "promote"
    branch: BranchName
    dry_run: bool = False
    allow_loss: bool = False
    catch_up: bool = True


class RollbackOrder(_Order):
    """Take back a promotion."""

    kind: Literal["rollback"] = "rollback"
    promotion: Annotated[str, Field(min_length=1, max_length=64)]


Order = Annotated[
    RebuildOrder | ReextractOrder | DiffOrder | PromoteOrder | RollbackOrder,
    Field(discriminator="kind"),
]
_ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


def order_of(given: JsonObject) -> Order:
    """Raises RequestError for what is no order."""
    try:
        return _ORDERS.validate_python({**given, **_times(given)})
    except ValidationError as error:
        raise RequestError(f"this is no replay: {describe(error)}") from error


def _times(given: JsonObject) -> dict[str, object]:
    """Times as programs may give them."""
    return {name: value for name, value in given.items() if isinstance(value, datetime)}
