"""What a framework stores comes back as it was, also where it holds secrets.

The text of a memory is always redacted. The framework's own value lies in the metadata: as JSON
where redaction would leave it alone, else packed, so that no redaction changes it on its way.
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
"""Instead of digits, which could look like a number of a card."""
_ALL: Final = Policy(frozenset(get_args(Kind)))


def packed(whole: dict[str, Any], *, redact: bool) -> dict[str, JsonValue]:
    """The metadata that `unpacked` gives `whole` back from; with `redact`, what is left of it."""
    plain: dict[str, JsonValue] = to_jsonable_python(whole)
    if redact or not is_redacted(plain):
        return plain
    data = zlib.compress(json.dumps(plain).encode())
    return {PACKED: data.hex().translate(str.maketrans(_DIGITS, _SAFE))}


def unpacked(metadata: dict[str, JsonValue]) -> dict[str, Any]:
    """What `packed` was given; any other metadata is returned as it is."""
    text = metadata.get(PACKED)
    if not isinstance(text, str):
        return metadata
    data = bytes.fromhex(text.translate(str.maketrans(_SAFE, _DIGITS)))
    whole: dict[str, Any] = json.loads(zlib.decompress(data))
    return whole


def without_secrets(value: dict[str, Any]) -> JsonValue:
    """What of a value may become text: without the names of its members, redaction no longer sees
    that the text of `password` is one."""
    return Policy(SECRETS).json(to_jsonable_python(value))


def is_redacted(plain: dict[str, JsonValue]) -> bool:
    """Whether redaction, of whatever kinds, would change it as metadata."""
    return _ALL.json(plain) != plain
