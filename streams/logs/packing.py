"""How values and headers are stored in the embedded log.

A turn's text is repeated in its record, in the intent to write it, in its change and in its
history; compressed, these take a third of the space. Values from before compression are stored
unchanged, and so are those that it would not shorten."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Final

from pydantic_core import from_json

PACKED: Final = b"\x00z1"
"""Prefix of a compressed value. No JSON begins like this."""

FREQUENT: Final = (
    b'"candidates":[{"memory_id":"","score":0.,"version":1}],"contradiction_risk":false,'
    b'"review_needed":false,"keyword":0.,"vector":0.,"cosine":0.,"metadata":{"proposed_action":'
    b'"ADD","target_id":null,"model":"rules","prompt_version":"rules","as_of":'
    b'{"memory_ids":["","kind":"personal"}}"type":"fact","confidence":0.95,"importance":0.5,'
    b'"temporal_kind":"persistent","categories":[],"round":1,"explicit_intent":false},'
    b'"facts":[{"item_id":""privacy":"none","source_type":"conversation","source_id":"","tags":[],'
    b'"metadata":{},"normalized_content":"","content_hash":"","published_content":"",'
    b'"explicit_long_term_memory_intent":false,"context":[{"speaker":"","occurred_at":"'
    b'"body":{"write":{"intent":"proposals","turn":{"memory_id":"","turn_id":"",'
    b'"session_id":"session_1","speaker":"","role":"assistant","role":"user","content":"",'
    b'"project":null"body":{"event_id":"","event":"created","memory_id":"","old_content":"",'
    b'"new_content":"","changed_by":"pipeline","actor_type":"pipeline","reason":"turn stored",'
    b'"session_id":"","created_at":"2026-"body":{"outcomes":[{"event":"created",'
    b'"item_kind":"turn","item_id":"","memory_id":"","new_content":"","reason":"turn stored",'
    b'"changed_by":"pipeline","actor_type":"pipeline","version":1}],"session_id":"'
    b'{"id":"","schema":"conversation-turn/1","schema":"turn-normalized/1",'
    b'"schema":"facts-extracted/1","schema":"memory-write/1","schema":"memory-change/1",'
    b'"schema":"history-event/1","scope":"","occurred_at":"2026-01-01T00:00:00Z",'
    b'"correlation_id":"","causation_id":"","body":{"turn_id":"'
)
"""Common parts of records, the most frequent last: it gets the shortest references. Part of the
file's format: it never changes."""

_EMPTY: Final = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_DEFAULT_STRATEGY, FREQUENT)


def pack_value(value: bytes | None) -> bytes | None:
    """Returns a value in its stored form, null as null."""
    if value is None:
        return None
    packing = _EMPTY.copy()
    packed = PACKED + packing.compress(value) + packing.flush()
    return packed if len(packed) < len(value) or value.startswith(PACKED) else value


def unpack_value(stored: bytes | None) -> bytes | None:
    """Inverts `pack_value`; also accepts a value from before compression."""
    if stored is None or not stored.startswith(PACKED):
        return stored
    try:
        return zlib.decompressobj(zdict=FREQUENT).decompress(stored[len(PACKED) :])
    except zlib.error:  # a producer's own bytes, from before compression
        return stored


def pack_headers(headers: Mapping[str, bytes]) -> str | None:
    """Headers as JSON text; Latin-1 maps every byte to one character and back."""
    if not headers:
        return None
    return json.dumps({name: value.decode("latin-1") for name, value in headers.items()})


def unpack_headers(packed: str | None) -> dict[str, bytes]:
    """Inverts `pack_headers`."""
    if packed is None:
        return {}
    items: dict[str, str] = from_json(packed)
    return {name: value.encode("latin-1") for name, value in items.items()}
