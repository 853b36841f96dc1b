"""What an error says about: one record, which then ends as a dead letter, or all of them.

A stage is a pure function, so whatever it raises is about its record. Of what stores and libraries
raise, errors over the values they were given are; a disk, a log, a lock or memory concern every
record, and the worker stops for them.
"""

from __future__ import annotations

import errno
import traceback
from typing import Final

from palimpsest.streams.logs.base import LogFull, Record
from palimpsest.streams.runtime.time_limit import RecordTooSlow
from palimpsest.streams.stage import Failure
from palimpsest.streams.store_port import StorePort

OF_THE_DATA: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
"""What libraries raise over values that they cannot take."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class StageFailed(Exception):
    """A stage fails at every record. The worker stops; the record is not acknowledged."""

    def __init__(self, stage: str, record: Record, cause: BaseException) -> None:
        error = _raised(cause)
        super().__init__(
            f"stage {stage} stopped at {record.topic}[{record.partition}] offset"
            f" {record.offset}: {type(error).__name__}: {error}"
        )
        self.record = record


class StageRaised(Exception):
    """A stage raised over a record: the cause."""


def first_failure(failure: BaseException) -> BaseException:
    """The failure itself, out of the groups that task groups wrap it in."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def is_about_a_record(error: BaseException, store: StorePort | None) -> bool:
    """Whether what was raised while a batch was processed concerns a record of it only."""
    if isinstance(error, (StageRaised, RecordTooSlow, *OF_THE_DATA)):
        return True
    return store is not None and isinstance(error, Exception) and store.refuses_data(error)


def may_pass(error: BaseException, store: StorePort | None) -> bool:
    """Whether what was raised is over for want of room: on a disk, in memory, or of file
    descriptors. The same batch may succeed later."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return True
    if isinstance(error, MemoryError | LogFull):
        return True
    return store is not None and isinstance(error, Exception) and store.lacks_room(error)


def is_too_slow(error: BaseException) -> bool:
    """Whether a record took too long: that says nothing about the stage."""
    return isinstance(_raised(error), RecordTooSlow)


def unexpected(cause: BaseException) -> Failure:
    """What was raised and where, for the dead letter."""
    error = _raised(cause)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return Failure(f"unexpected {type(error).__name__}{where}: {error}", "unexpected")


def told(stage: str, record: Record, cause: BaseException) -> str:
    """For the program's log: without the error's text, which may quote what a person said."""
    error = _raised(cause)
    place = f"{record.topic}[{record.partition}] offset {record.offset}"
    trace = "".join(traceback.format_tb(error.__traceback__))
    return f"{stage}: {type(error).__name__} at {place}, which becomes a dead letter\n{trace}"


def _raised(cause: BaseException) -> BaseException:
    if isinstance(cause, StageRaised) and cause.__cause__ is not None:
        return cause.__cause__
    return cause
