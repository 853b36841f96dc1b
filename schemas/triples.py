"""What a model drew as a relation, and a share: parts of many messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palimpsest.schemas.envelope import Frozen

Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A number from 0 to 1."""


class Triple(Frozen):
    """Source, relationship, target, as a model named them."""

    source: str
    source_type: str = "unknown"
    relationship: str
    target: str
    target_type: str = "unknown"
    confidence: Share = 0.5
