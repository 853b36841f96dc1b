"""What was asked of models since the worker started, in numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class ModelUsage:
    """Of one provider: `calls` that were made, `failures` among them, `retries` after those that
    may pass, the `seconds` that they took, and the tokens that it told of; and the replies that
    were `recorded`, for which none was made."""

    calls: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0


@dataclass(slots=True)
class Usage:
    """By provider, as outages are named."""

    by_provider: dict[str, ModelUsage] = field(default_factory=dict)
    monotonic: Callable[[], float] = time.perf_counter

    def of(self, name: str) -> ModelUsage:
        return self.by_provider.setdefault(name, ModelUsage())

    @contextmanager
    def call(self, name: str) -> Iterator[ModelUsage]:
        """Count what happens within as one call."""
        usage = self.of(name)
        began = self.monotonic()
        usage.calls += 1
        try:
            yield usage
        except BaseException:
            usage.failures += 1
            raise
        finally:
            usage.seconds += self.monotonic() - began
