"""Long-term memory for AI agents. What it is used by: `from palimpsest import Memory`,
or `Client` for a service.

Nothing is imported before it is requested: the package itself costs no start any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palimpsest.ops.errors import (
        ForbiddenError,
        NotFoundError,
        RequestError,
        UnauthorizedError,
        UnavailableError,
    )
    from palimpsest.ops.library.client import AsyncClient, Client
    from palimpsest.ops.library.memory import AsyncMemory, Memory
    from palimpsest.ops.service.executing import NotYetAppliedError
    from palimpsest.ops.transport.base import NotDoneError
    from palimpsest.ops.transport.sending import RateLimitedError
    from palimpsest.schemas.envelope import Actor

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
    "AsyncClient": "palimpsest.ops.library.client",
    "AsyncMemory": "palimpsest.ops.library.memory",
    "Client": "palimpsest.ops.library.client",
    "ForbiddenError": "palimpsest.ops.errors",
    "Memory": "palimpsest.ops.library.memory",
    "NotDoneError": "palimpsest.ops.transport.base",
    "NotFoundError": "palimpsest.ops.errors",
    "NotYetAppliedError": "palimpsest.ops.service.executing",
    "RateLimitedError": "palimpsest.ops.transport.sending",
    "RequestError": "palimpsest.ops.errors",
    "UnauthorizedError": "palimpsest.ops.errors",
    "UnavailableError": "palimpsest.ops.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LIES_IN[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
