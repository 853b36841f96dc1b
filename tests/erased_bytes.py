"""Looking for a text in every file of a folder, in all forms in which it may stand there."""

from __future__ import annotations

import base64
import json
from pathlib import Path


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


def where(folder: Path, *texts: str) -> list[str]:
    """Files that have any of the texts, each with the text and its form."""
    return [
        f"{path.relative_to(folder)}: {text!r} ({form})"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for content in [path.read_bytes()]
        for text in texts
        for form, wanted in forms(text).items()
        if wanted in content
    ]
