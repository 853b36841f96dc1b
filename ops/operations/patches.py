"""The change of one memory in `modify_many`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, create_model

from palimpsest.ops.operations.changing import Modify
from palimpsest.ops.operations.checking import Strict, model_of

Reason = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]
Patch: type[Strict] = create_model(
    "Patch",
    __base__=model_of(Modify, ("reason", "scope", "self_taught", "key", "wait")),
    __doc__="What to change of one memory; what is not named stays.",
    reason=(Reason | None, Field(default=None, description="why; else that of all")),
)
