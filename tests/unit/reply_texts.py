"""Replies of a model, whole and changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from palimpsest.streams.prompting import replies
from palimpsest.streams.prompting.replies import ExtractionDraft

FACT = {
    "content": "Ana adopted a dog in March 2024.",
    "type": "fact",
    "confidence": 0.9,
    "importance": 7,
    "temporal": "persistent",
    "valid_until": None,
    "categories": ["pets"],
}
TRIPLE = {
    "source": "Ana",
    "source_type": "person",
    "relationship": "adopted",
    "target": "Oscar",
    "target_type": "animal",
    "confidence": 0.8,
}
GOOD = json.dumps({"facts": [FACT], "entities": [TRIPLE]})
IDS = ["m-17", "m-3"]
SLOW_S = 0.5
"""Of processor time, ten times what the worst takes here."""


SAID_AT = datetime(2024, 3, 12, 9, 30, tzinfo=UTC)
"""A Tuesday."""


def read_extraction(text: str, said_at: datetime = SAID_AT) -> ExtractionDraft:
    return replies.read_extraction(text, said_at)


def reply(*facts: object, entities: object = ()) -> str:
    return json.dumps({"facts": list(facts), "entities": list(entities)})  # type: ignore[call-overload]


def one(**changes: object) -> ExtractionDraft:
    return read_extraction(reply({**FACT, **changes}))
