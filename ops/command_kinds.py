"""What becomes of a command: the words for what was done, and for why it was refused."""

from __future__ import annotations

from typing import Final, Literal, cast, get_args

from palimpsest.ops.errors import RequestError

LEFT_AS_IT_WAS: Final = frozenset(
    {"not_found", "version_conflict", "pinned", "forbidden", "duplicate_content_hash"}
)
"""What became of one memory, where nothing did."""
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
    statuses = [one.get("status") for one in each if isinstance(one, dict)]
    return error is None and not (statuses and LEFT_AS_IT_WAS.issuperset(statuses))


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
