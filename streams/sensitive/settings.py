"""The settings of finding secrets and personal numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palimpsest.schemas.section import Section
from palimpsest.streams.sensitive.spans import KINDS, Kind


class PiiSettings(Section):
    """Secrets and personal numbers in what is said."""

    mode: Literal["redact", "reject", "off"] = Field(
        default="redact",
        description="redact: what is found becomes [REDACTED:kind]; reject: that, and a text that"
        " speaks of a secret where nothing can be taken out is refused; off: texts stay as sent",
    )
    kinds: tuple[Kind, ...] = Field(
        default=tuple(kind for kind in KINDS if kind not in ("email", "ip_address")),
        description="kinds of secrets to find",
    )
    purge_raw: bool = Field(
        default=False,
        description="on: a record that a producer sent with something in it that was taken out or"
        " refused is removed from the embedded log once it was processed",
    )
