"""Counts of model calls since the worker started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class ModelUsage:
    """Usage of one provider: `calls`, `failures` among them, `retries` after transient failures,
    the `seconds` that the calls took, and the reported tokens; and the replies served from
    `recorded` ones without a call."""

    calls: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0


@dataclass(slots=True)
class Usage:
    """By provider, with the names that outages use."""

    by_provider: dict[str, ModelUsage] = field(default_factory=dict)
    monotonic: Callable[[], float] = time.perf_counter

    def of(self, name: str) -> ModelUsage:
        return self.by_provider.setdefault(name, ModelUsage())

    @contextmanager
    def call(self, name: str) -> Iterator[ModelUsage]:
        """Counts the enclosed block as one call."""
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
