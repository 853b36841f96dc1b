"""Whether an error concerns one record, which then becomes a dead letter, or all of them.

A stage is a pure function, so anything it raises concerns its record. Errors of stores and
libraries concern the record if they are about the values they received; errors of a disk, a log, a
lock or memory concern every record, and the worker stops."""

from __future__ import annotations

import errno
import traceback
from typing import Final

from palimpsest.schemas.codec import identified
from palimpsest.schemas.topics import TOPICS
from palimpsest.streams.logs.base import LogFull, Record
from palimpsest.streams.runtime import tracing
from palimpsest.streams.runtime.time_limit import RecordTooSlow
from palimpsest.streams.stage import Failure
from palimpsest.streams.store_port import (
    StorePort,
)

OF_THE_DATA: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
"""What libraries raise for values that they cannot handle."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class StageFailed(Exception):
    """A stage fails on every record. The worker stops; the record is not acknowledged."""

    def __init__(self, stage: str, record: Record, cause: BaseException) -> None:
        error = _raised(cause)
        super().__init__(
            f"stage {stage} stopped at {record.topic}[{record.partition}] offset"
            f" {record.offset}: {type(error).__name__}: {error}"
        )
        self.record = record


class StageRaised(Exception):
    """A stage raised while processing a record: the cause."""


def first_failure(failure: BaseException) -> BaseException:
    """Returns the failure itself, unwrapped from the groups of task groups."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def is_about_a_record(error: BaseException, store: StorePort | None) -> bool:
    """Returns whether an error raised while processing a batch concerns only one of its records."""
    if isinstance(error, (StageRaised, RecordTooSlow, *OF_THE_DATA)):
        return True
    return store is not None and isinstance(error, Exception) and store.refuses_data(error)


def may_pass(error: BaseException, store: StorePort | None) -> bool:
    """Returns whether the error is a lack of room: on a disk, in memory, or of file descriptors.
    The same batch may succeed later."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return True
    if isinstance(error, MemoryError | LogFull):
        return True
    return store is not None and isinstance(error, Exception) and store.lacks_room(error)


def is_too_slow(error: BaseException) -> bool:
    """Returns whether a record exceeded the time limit, which says nothing about the stage."""
    return isinstance(_raised(error), RecordTooSlow)


def unexpected(cause: BaseException) -> Failure:
    """Describes what was raised and where, for the dead letter."""
    error = _raised(cause)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return Failure(f"unexpected {type(error).__name__}{where}: {error}", "unexpected")


def failure_line(stage: str, record: Record, cause: BaseException) -> str:
    """Formats a line for the program's log, without the error's text, which may quote a person."""
    error = _raised(cause)
    place = f"{record.topic}[{record.partition}] offset {record.offset}"
    trace = "".join(traceback.format_tb(error.__traceback__))
    return f"{stage}: {type(error).__name__} at {place}, which becomes a dead letter\n{trace}"


def log_fields(stage: str, record: Record) -> dict[str, str | int]:
    """Returns what identifies a record in the program's log: its place, and the ids of its message
    and trace if they can be read."""
    fields: dict[str, str | int] = {"stage": stage, "topic": record.topic}
    fields |= {"partition": record.partition, "offset": record.offset}
    header = tracing.valid(record.headers.get(tracing.HEADER))
    if header is not None:
        fields["trace_id"] = tracing.trace_id(header)
    try:
        message = identified(record.value, TOPICS[record.topic], record.timestamp)
    except ValueError:
        return fields
    return {**fields, "message_id": message.id, "correlation_id": message.correlation_id}


def _raised(cause: BaseException) -> BaseException:
    if isinstance(cause, StageRaised) and cause.__cause__ is not None:
        return cause.__cause__
    return cause
