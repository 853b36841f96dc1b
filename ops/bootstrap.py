"""The only place where it is chosen on which log a process works."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, Union

from palimpsest.ops.embedded import Application, application, open_log
from palimpsest.ops.parts import utc_now
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import Outgoing

if TYPE_CHECKING:
    from palimpsest.ops.kafka.application import KafkaApplication

AnyApplication: TypeAlias = Union[Application, "KafkaApplication"]


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    only: Sequence[str] = (),
    clock: Callable[[], datetime] = utc_now,
    patient: bool = False,
) -> AsyncIterator[AnyApplication]:
    """`application` on whichever log is set. With `patient` its `run` waits for a broker that is
    away."""
    if settings.log.kind == "kafka":
        from palimpsest.ops.kafka.application import kafka_application

        async with kafka_application(settings, only, clock, patient) as joined:
            yield joined
    else:
        async with application(settings, only, clock=clock) as embedded:
            yield embedded


@contextlib.contextmanager
def publisher(
    settings: Settings, clock: Callable[[], datetime] = utc_now
) -> Iterator[Callable[[Sequence[Outgoing]], list[tuple[int, int]]]]:
    """A function that appends records durably, in a folder where a worker may run or not."""
    if settings.log.kind == "kafka":
        from palimpsest.ops.kafka.application import kafka_publisher

        with kafka_publisher(settings) as append:
            yield append
        return
    with open_log(settings, "publish", clock) as log:
        yield log.append
