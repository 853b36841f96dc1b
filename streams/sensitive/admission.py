"""What the stages take of a producer's record: it without secrets, or without all that was said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.schemas.withheld import says_withheld, withheld_value
from palimpsest.streams.logs.base import Record
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import PiiSettings


def admission(pii: PiiSettings) -> Callable[[Record], Record]:
    """For `Stage.admit`. A turn that asks for nothing of it to be kept has lost its text before
    anything else is known of it, so a dead letter or a copy for another partition has none."""
    policy = Policy.of(pii)

    def admit(record: Record) -> Record:
        record = policy.record(record)
        if record.topic != CONVERSATION_TURNS.name or record.value is None:
            return record
        if not says_withheld(record.value):
            return record
        return replace(record, value=withheld_value(record.value), headers={})

    return admit
