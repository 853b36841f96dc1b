"""LoCoMo's files: one conversation with its sessions, or a list of samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO

from pydantic import ValidationError

from palimpsest.ops.ingest.parsers.base import Bad, ReadOptions, Twice, lenient_json
from palimpsest.ops.ingest.records import checked
from palimpsest.schemas.failures import describe
from palimpsest.schemas.messages import ConversationTurn, role_of_speaker
from palimpsest.streams.logs.base import Outgoing


def is_locomo(value: object) -> bool:
    """Whether parsed JSON is such a conversation or a list of samples."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return False
    conversation = first.get("conversation", first)
    return isinstance(conversation, dict) and "session_1" in conversation


def read_locomo(
    file: IO[bytes], name: str, stem: str, options: ReadOptions
) -> Iterator[Outgoing | Bad]:
    """Yields the utterances of a LoCoMo file (one conversation, or a list of samples), in order."""
    try:
        raw = lenient_json(file.read().decode("utf-8"))
    except Twice as error:
        yield Bad(name, str(error))
        return
    except ValueError as error:
        yield Bad(name, f"not JSON in UTF-8: {error}")
        return
    samples = raw if isinstance(raw, list) else [raw]
    for number, sample in enumerate(samples):
        place = name if len(samples) == 1 else f"{name}[{number}]"
        if not isinstance(sample, dict):
            yield Bad(place, "not a conversation of LoCoMo: no JSON object")
            continue
        own = stem if len(samples) == 1 else str(sample.get("sample_id", f"{stem}-{number}"))
        conversation = sample.get("conversation", sample)
        scope = own if options.scope is None else options.scope
        yield from _conversation(conversation, place, scope, options)


def _conversation(
    conversation: object, place: str, scope: str, options: ReadOptions
) -> Iterator[Outgoing | Bad]:
    sessions = (
        [key for key in conversation if re.fullmatch(r"session_\d+", str(key))]
        if isinstance(conversation, dict)
        else []
    )
    if not sessions or not isinstance(conversation, dict):
        yield Bad(place, "not a conversation of LoCoMo: it has no session_1")
        return
    for session in sorted(sessions, key=lambda key: int(key.partition("_")[2])):
        utterances = conversation[session]
        told = conversation.get(f"{session}_date_time")
        at = locomo_time(str(told))
        if at is None or not isinstance(utterances, list):
            yield Bad(f"{place}: {session}", f"no list of turns with a time (found {told!r})")
            continue
        for number, utterance in enumerate(utterances):
            try:
                turn = _utterance(utterance, session, options.captions)
                yield checked(turn, scope, at + timedelta(seconds=number), None, options)
            except ValidationError as error:
                yield Bad(f"{place}: {session}[{number}]", describe(error))
            except (ValueError, LookupError, TypeError) as error:
                yield Bad(f"{place}: {session}[{number}]", f"not an utterance: {error}")


def _utterance(utterance: dict[str, object], session: str, captions: bool) -> ConversationTurn:
    text = str(utterance["text"])
    caption = utterance.get("blip_caption")
    metadata = {
        key: utterance[key] for key in ("blip_caption", "img_url", "query") if utterance.get(key)
    }
    if captions and caption:
        text = f"{text} [image: {caption}]"
    return ConversationTurn.model_validate(
        {
            "turn_id": utterance["dia_id"],
            "source_id": utterance["dia_id"],
            "session_id": session,
            "speaker": utterance["speaker"],
            "role": role_of_speaker(str(utterance["speaker"])),
            "content": text,
            "metadata": metadata,
        }
    )


def locomo_time(text: str) -> datetime | None:
    """Parses `1:56 pm on 8 May, 2023` as UTC; None for anything else."""
    try:
        return datetime.strptime(text.replace(",", ""), "%I:%M %p on %d %B %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
