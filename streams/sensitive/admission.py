"""What the stages take of a producer's record: it without secrets, or without all that was said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palimpsest.schemas.scrubbing import says_withheld, unread_speaker, withheld_value
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Record
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import PiiSettings

KnownPrivate = Callable[[str, str], bool]
"""Whether a speaker of a scope is known to keep nothing, before the store is asked in order."""


def nobody(scope: str, speaker: str) -> bool:
    return False


def admission(
    pii: PiiSettings, is_known_private: KnownPrivate = nobody
) -> Callable[[Record], Record]:
    """For `Stage.admit`. A turn that asks for nothing of it to be kept has lost its text before
    anything else is known of it, so a dead letter or a copy for another partition has none; and so
    has what is no valid turn of a private speaker, which no later stage would look at."""
    policy = Policy.of(pii)

    def admit(record: Record) -> Record:
        record = policy.record(record)
        if record.topic != CONVERSATION_TURNS.name or record.value is None:
            return record
        if not says_withheld(record.value) and not _is_unread(record.value, is_known_private):
            return record
        return replace(record, value=withheld_value(record.value), headers={})

    return admit


def _is_unread(value: bytes, is_known_private: KnownPrivate) -> bool:
    if is_known_private is nobody:
        return False
    unread = unread_speaker(value)
    return unread is not None and is_known_private(*unread)
