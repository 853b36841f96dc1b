"""Recognizes errors of a full disk and phrases the advice for users."""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SAID = ("No space left on device", "Disk quota exceeded", "File too large", "disk is full")
ADVICE = (
    "the disk is full; make room. What was kept before is not lost, reading goes on, and"
    " `palimpsest run` goes on from where it was"
)


def full_disk(error: BaseException | None) -> str | None:
    """Returns one line for an error caused by a full disk, quota or file size limit, else None."""
    while error is not None:
        numbered = isinstance(error, OSError) and error.errno in FULL
        first = str(error).partition("\n")[0]
        if numbered or any(words in first for words in SAID):
            return f"{ADVICE} ({first})"
        error = error.__cause__ or error.__context__
    return None
