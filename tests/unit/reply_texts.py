"""Replies of a model, whole and changed."""

from __future__ import annotations

import json

from palimpsest.streams.prompting.replies import (
    ExtractionDraft,
    read_extraction,
)

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


def reply(*facts: object, entities: object = ()) -> str:
    return json.dumps({"facts": list(facts), "entities": list(entities)})  # type: ignore[call-overload]


def one(**changes: object) -> ExtractionDraft:
    return read_extraction(reply({**FACT, **changes}))
