"""Stores a framework's values so that they come back unchanged, even with secrets.

The text of a memory is always redacted. The metadata holds the framework's own value: as JSON if
redaction would not change it, else packed, so that no redaction changes it on the way.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final, get_args

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.spans import SECRETS, Kind

PACKED: Final = "packed"
_DIGITS: Final = "0123456789abcdef"
_SAFE: Final = "ghijklmnopqrstuv"
"""Replaces digits, which could look like a card number."""
_ALL: Final = Policy(frozenset(get_args(Kind)))


def packed(whole: dict[str, Any], *, redact: bool) -> dict[str, JsonValue]:
    """Returns metadata from which `unpacked` restores `whole`; with `redact`, plain metadata that
    redaction may change."""
    plain: dict[str, JsonValue] = to_jsonable_python(whole)
    if redact or not is_redacted(plain):
        return plain
    data = zlib.compress(json.dumps(plain).encode())
    return {PACKED: data.hex().translate(str.maketrans(_DIGITS, _SAFE))}


def unpacked(metadata: dict[str, JsonValue]) -> dict[str, Any]:
    """Returns the value passed to `packed`; returns any other metadata unchanged."""
    text = metadata.get(PACKED)
    if not isinstance(text, str):
        return metadata
    data = bytes.fromhex(text.translate(str.maketrans(_SAFE, _DIGITS)))
    whole: dict[str, Any] = json.loads(zlib.decompress(data))
    return whole


def without_secrets(value: dict[str, Any]) -> JsonValue:
    """Returns the value without secrets, to become text: without member names, redaction no longer
    recognizes the text of `password` as a secret."""
    return Policy(SECRETS).json(to_jsonable_python(value))


def is_redacted(plain: dict[str, JsonValue]) -> bool:
    """Whether redaction of all kinds would change it as metadata."""
    return _ALL.json(plain) != plain
