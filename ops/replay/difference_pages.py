"""Pages of what a comparison found, from a file with a difference a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.queries.errors import NotFoundError, RequestError

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of the lines of a page; the one that passes it is the last."""


def read_page(path: Path, cursor: int, limit: int) -> tuple[list[JsonValue], int | None]:
    """At most `limit` lines from `cursor` on, which is 0 or what the page before gave; the cursor
    of the next one, None after the last. Raises RequestError for another cursor, NotFoundError
    where there is no such file."""
    page: list[JsonValue] = []
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFoundError("it told of no differences, or they were removed") from None
    with file:
        end = os.fstat(file.fileno()).st_size
        if cursor:
            file.seek(min(cursor, end) - 1)
            if cursor > end or file.read(1) != b"\n":
                raise RequestError(f"cursor {cursor}: no page ended there")
        while len(page) < limit and file.tell() - cursor < PAGE_BYTES:
            line = file.readline()
            if not line:
                break
            page.append(json.loads(line))
        return page, file.tell() if file.tell() < end else None
