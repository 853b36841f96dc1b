"""Looking for a text in every file of a folder, in all forms in which it may stand there."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from palimpsest.streams.logs.records import FREQUENT, PACKED

STEP = 64
UNUSED = re.compile(rb"\0{2,}")


def forms(text: str) -> dict[str, bytes]:
    """The text as UTF-8, in JSON, and as it stands in base64 at each of the three places where it
    may begin."""
    plain = text.encode()
    found = {
        "plain": plain,
        "lower": text.lower().encode(),
        "json": json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        "ascii": json.dumps(text)[1:-1].encode(),
    }
    # Of a short one too few characters are left to tell it from chance.
    for begins in range(3 if len(plain) >= 8 else 0):
        whole = base64.b64encode(b"x" * begins + plain)
        # Without the characters that what stands before and after has a part in.
        first = (0, 2, 3)[begins]
        found[f"base64 at {begins}"] = whole[first : len(whole) - 4]
    return found


def readable(content: bytes) -> bytes:
    """The content, and after it what the log's compressed values in it say: of one that is no
    longer whole, as much as is left."""
    return b"\n".join([content, *unpacked(content)])


def unpacked(content: bytes) -> Iterator[bytes]:
    at = content.find(PACKED)
    while at >= 0:
        packing = zlib.decompressobj(zdict=FREQUENT)
        place = at = at + len(PACKED)
        said = b""
        with contextlib.suppress(zlib.error):
            while place < len(content) and not packing.eof:
                said += packing.decompress(content[place : place + STEP])
                place += STEP
        yield said
        at = content.find(PACKED, at)


def where(folder: Path, *texts: str) -> list[str]:
    """Files that have any of the texts, each with the text and its form."""
    searched = {
        wanted: f"{text!r} ({form})" for text in texts for form, wanted in forms(text).items()
    }
    return [
        f"{path.relative_to(folder)}: {what}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        # Stores are mostly unused space.
        for content in [UNUSED.sub(b"\0", readable(path.read_bytes()))]
        for wanted, what in searched.items()
        if wanted in content
    ]
