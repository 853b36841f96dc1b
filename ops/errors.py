"""Errors of requests, each with a code by which another process raises it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal, cast, get_args

ERRORS: Final[dict[str, type[RequestError]]] = {}
"""Those that another process raises again, by code: they are made of their text alone."""


class RequestError(Exception):
    """A request that cannot be answered; the text says why and what to do. `code` identifies the
    error for programs, also in another process."""

    code: ClassVar[str] = "refused"

    def __init_subclass__(cls, code: str = "") -> None:
        if code:
            cls.code, ERRORS[code] = code, cls


class NotFoundError(RequestError, code="not_found"):
    """Nothing here has this id."""


def no_memory(memory_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no memory {memory_id}; `palimpsest list` shows what there is, and ids may be"
        " shortened to their first 8 characters"
    )


def no_document(document_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no document {document_id}; `palimpsest documents list` shows what there is"
    )


class NotOpenError(RequestError, code="not_open"):
    """The partition is not open in the process that got the request; another may have it open."""


class UnavailableError(RequestError, code="unavailable"):
    """The process that could answer is unavailable; the same request may succeed later."""


class SqlRefusedError(RequestError, code="sql_refused"):
    """A query that does more than read the views."""


class SqlInvalidError(RequestError, code="sql_invalid"):
    """SQL that cannot run; the text is the database's own."""


class SqlTooSlowError(RequestError, code="sql_too_slow"):
    """A query that was stopped at its timeout."""


class SqlTooLargeError(RequestError, code="sql_too_large"):
    """A query whose result or memory use exceeds the limit."""


class UnauthorizedError(RequestError, code="unauthorized"):
    """The service needs a token, and does not know this one."""


class ForbiddenError(RequestError, code="forbidden"):
    """The token lacks the permission."""


# ---- commands ----
LEFT_AS_IT_WAS: Final = frozenset(
    {"not_found", "version_conflict", "pinned", "forbidden", "duplicate_content_hash", "not_held"}
    | {"invalid_request"}
)
"""What became of one memory, where nothing did."""
_IN_WORDS: Final[Mapping[str, str]] = {
    "not_found": "there is no such memory",
    "version_conflict": "it was changed since you saw it; look at it again",
    "pinned": "it is pinned; unpin it first",
    "duplicate_content_hash": "another memory says the same",
    "not_held": "no such change waits",
    "deleted": "it is forgotten",
    "erased": "it is erased",
}
Kind = Literal[
    "invalid_request",
    "too_large",
    "not_found",
    "not_deleted",
    "retention_expired",
    "version_conflict",
    "duplicate_content_hash",
    "pinned",
    "confirmation_required",
    "confirm_mismatch",
    "idempotency_conflict",
    "remember_instead",
    "forbidden",
    "frozen",
    "pii_rejected",
    "private",
    "failed",
]
"""Why a command is refused; `failed`: it ended as a dead letter."""
KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))


def was_applied(error: object, result: object) -> bool:
    """Whether a command did anything: it was not refused, as a whole or for each memory that it
    names."""
    each = result if isinstance(result, list) else [result]
    told = [one for one in each if isinstance(one, dict)]
    return error is None and not (told and all(map(_is_left, told)))


def reasons_of(changes: Sequence[Mapping[str, object]]) -> str:
    """Why memories were left as they were, from what became of each: its id, the status and the
    status in words."""
    return "; ".join(
        f"{each.get('id', '')}: {each['status']}" + (f" ({why})" if (why := why_left(each)) else "")
        for each in changes
    )


def why_left(change: Mapping[str, object]) -> str:
    """Why a memory was left as it was, in words; nothing if the status is all that is known."""
    why = change.get("why") or _IN_WORDS.get(str(change.get("status")), "")
    return str(why)


def _is_left(change: Mapping[str, object]) -> bool:
    status = change.get("status")
    return status in LEFT_AS_IT_WAS or (status == "deleted" and was_deleted_before(change))


def was_deleted_before(change: Mapping[str, object]) -> bool:
    """Whether `deleted` is what a change found and not what it did, as for a document and for the
    memory of a proposal."""
    return "forgotten" not in change and "memory_id" not in change


class CommandError(RequestError):
    """A command that was not executed; the text says why and what to do."""

    code = "command_refused"

    def __init__(
        self, kind: Kind, text: str, command_id: str | None = None, answer: object = None
    ) -> None:
        """`answer` is what the command did, where only a part of it was refused."""
        super().__init__(text)
        self.kind = kind
        self.command_id = command_id
        self.answer = answer


def kind_of(error: str) -> Kind:
    """The kind of a stored error, which begins with it."""
    kind = error.partition(":")[0]
    return cast("Kind", kind) if kind in KINDS else "failed"
