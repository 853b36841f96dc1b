"""Errors of requests, each with a code by which another process raises it again."""

from __future__ import annotations

from typing import ClassVar


class RequestError(Exception):
    """A request that cannot be answered; the text says why and what to do. `code` identifies the
    error for programs, also across the local interface."""

    code: ClassVar[str] = "refused"


class NotFoundError(RequestError):
    """Nothing here has this id."""

    code = "not_found"


def no_memory(memory_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no memory {memory_id}; `palimpsest list` shows what there is, and ids may be"
        " shortened to their first 8 characters"
    )


def no_document(document_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no document {document_id}; `palimpsest documents list` shows what there is"
    )


class NotOpenError(RequestError):
    """The partition is not open in the process that got the request; another may have it open."""

    code = "not_open"


class UnavailableError(RequestError):
    """The process that could answer is unavailable; the same request may succeed later."""

    code = "unavailable"


class SqlRefusedError(RequestError):
    """A query that does more than read the views."""

    code = "sql_refused"


class SqlInvalidError(RequestError):
    """SQL that cannot run; the text is the database's own."""

    code = "sql_invalid"


class SqlTooSlowError(RequestError):
    """A query that was stopped at its timeout."""

    code = "sql_too_slow"


class SqlTooLargeError(RequestError):
    """A query whose result or memory use exceeds the limit."""

    code = "sql_too_large"


ERRORS: dict[str, type[RequestError]] = {
    kind.code: kind
    for kind in (
        *(RequestError, NotFoundError, NotOpenError, UnavailableError),
        *(SqlRefusedError, SqlInvalidError, SqlTooSlowError, SqlTooLargeError),
    )
}
