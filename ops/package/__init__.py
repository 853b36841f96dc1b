"""Long-term memory for AI agents. What it is used by: `from palimpsest import Memory`,
or `Client` for a service.

Nothing is imported before it is asked for: the package itself costs no start any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palimpsest.ops.client.client import AsyncClient, Client
    from palimpsest.ops.client.problems import (
        ForbiddenError,
        RateLimitedError,
        UnauthorizedError,
    )
    from palimpsest.ops.library.blocking import Memory
    from palimpsest.ops.library.memory import AsyncMemory
    from palimpsest.ops.library.results import NotDoneError, NotYetAppliedError
    from palimpsest.ops.queries.errors import NotFoundError, RequestError, UnavailableError
    from palimpsest.schemas.commands import Actor

__all__ = [
    "Actor",
    "AsyncClient",
    "AsyncMemory",
    "Client",
    "ForbiddenError",
    "Memory",
    "NotDoneError",
    "NotFoundError",
    "NotYetAppliedError",
    "RateLimitedError",
    "RequestError",
    "UnauthorizedError",
    "UnavailableError",
]

_LIES_IN = {
    "Actor": "palimpsest.schemas.commands",
    "AsyncClient": "palimpsest.ops.client.client",
    "AsyncMemory": "palimpsest.ops.library.memory",
    "Client": "palimpsest.ops.client.client",
    "ForbiddenError": "palimpsest.ops.client.problems",
    "Memory": "palimpsest.ops.library.blocking",
    "NotDoneError": "palimpsest.ops.library.results",
    "NotFoundError": "palimpsest.ops.queries.errors",
    "NotYetAppliedError": "palimpsest.ops.library.results",
    "RateLimitedError": "palimpsest.ops.client.problems",
    "RequestError": "palimpsest.ops.queries.errors",
    "UnauthorizedError": "palimpsest.ops.client.problems",
    "UnavailableError": "palimpsest.ops.queries.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LIES_IN[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
