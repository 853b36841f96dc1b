"""Values of the database as JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timezone
from typing import Any


def plain(value: object) -> Any:
    """A value of the database as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON cannot represent it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        # The clock of who said something stays; that of the database is the machine's.
        is_own = isinstance(value.tzinfo, timezone) and value.tzinfo is not UTC
        return value.isoformat() if is_own else rfc3339(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return str(value)


def rfc3339(value: datetime) -> str:
    """The time in UTC with a Z, without trailing zeros."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
