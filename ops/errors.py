"""Why a request is not answered; each with the code by which another process raises it anew."""

from __future__ import annotations

from typing import ClassVar


class RequestError(Exception):
    """A request that cannot be answered; the text says why and what to do. By `code`, programs tell
    errors apart, also across the local interface."""

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
    """The partition is not open in the process that was asked; another may have it."""

    code = "not_open"


class UnavailableError(RequestError):
    """Whoever could answer does not answer now; the same request may be answered later."""

    code = "unavailable"


class SqlRefusedError(RequestError):
    """A query that asks for more than to read the views."""

    code = "sql_refused"


class SqlInvalidError(RequestError):
    """SQL that cannot be run; the text is the database's own."""

    code = "sql_invalid"


class SqlTooSlowError(RequestError):
    """A query that was stopped after its time."""

    code = "sql_too_slow"


class SqlTooLargeError(RequestError):
    """A query whose result, or whose need of memory, is larger than allowed."""

    code = "sql_too_large"


ERRORS: dict[str, type[RequestError]] = {
    kind.code: kind
    for kind in (
        *(RequestError, NotFoundError, NotOpenError, UnavailableError),
        *(SqlRefusedError, SqlInvalidError, SqlTooSlowError, SqlTooLargeError),
    )
}
