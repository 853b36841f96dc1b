"""The program's log on stderr, as text or as JSON lines, without secrets.

Only the standard library is imported here: it stands at the start of every command."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

Context = Callable[[], Mapping[str, object]]

MASK: Final = "********"
_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)


class StderrHandler(logging.Handler):
    """Prints lines on the stderr of the moment. `secrets` are values that no line may contain."""

    def __init__(self, as_json: bool, secrets: Collection[str], context: Context) -> None:
        super().__init__()
        self.as_json = as_json
        self._secrets = [each for each in secrets if each]
        self._context = context

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._json(record) if self.as_json else self._safe(self.format(record))
            sys.stderr.write(f"{line}\n")
        except Exception:
            self.handleError(record)

    def _json(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._context(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info and record.exc_info[0] is not None:
            # Without the text of the error, which may quote a memory.
            line["error"] = record.exc_info[0].__name__
            line["stack"] = "".join(traceback.format_tb(record.exc_info[2]))
        safe = {
            name: value if isinstance(value, int | float | None) else self._safe(str(value))
            for name, value in line.items()
        }
        return json.dumps(safe, ensure_ascii=False)

    def _safe(self, text: str) -> str:
        from palimpsest.streams.sensitive.detection import redacted
        from palimpsest.streams.sensitive.spans import SECRETS

        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return redacted(text, SECRETS)


def configure(as_json: bool, secrets: Collection[str], context: Context) -> None:
    """Sets the log of this process. As JSON it also has lines of level info: requests, and records
    that became dead letters."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, StderrHandler)]:
        root.removeHandler(handler)
    root.addHandler(StderrHandler(as_json, secrets, context))
    if as_json:
        logging.getLogger("palimpsest").setLevel(logging.INFO)
        sys.excepthook = _ended_by


def _ended_by(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
    logging.getLogger("palimpsest").critical("ended by an error", exc_info=(kind, error, place))


def is_json() -> bool:
    """Returns whether everything on stderr must be JSON lines."""
    return any(
        isinstance(each, StderrHandler) and each.as_json for each in logging.getLogger().handlers
    )
