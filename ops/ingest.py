"""From files to turns on the log: what is bad is told with its place, and the rest goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Final

from pydantic import TypeAdapter, ValidationError

from schemas.codec import describe
from schemas.envelope import Envelope, Frozen, UtcTime, derived_id
from schemas.messages import ConversationTurn
from schemas.topics import CONVERSATION_TURNS
from streams.logs.base import Outgoing
from streams.output import outgoing

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
DEFAULT_SCOPE: Final = "default"

_TIME = TypeAdapter[datetime](UtcTime)
_LOCOMO_TIME: Final = re.compile(
    r"(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+(\w+),?\s+(\d{4})", re.IGNORECASE
)
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


@dataclass(frozen=True, slots=True)
class Bad:
    """What could not be taken: where it stands and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read: `scope` None takes the line's own, else the default of the format.
    `max_bytes` bounds a record; `now` dates turns that say no time; `captions` appends what is
    said of an image to the text."""

    scope: str | None
    max_bytes: int
    now: datetime
    captions: bool = False


def turn_id_of_message(scope: str, turn: ConversationTurn) -> str:
    """The message id of a published turn: the same turn published again is the same message."""
    return derived_id("ingest", scope, turn.turn_id, turn.content)


# --- one JSON object a line -------------------------------------------------------------------


def read_turns(
    file: IO[bytes], name: str, reading: Reading
) -> Iterator[tuple[Outgoing | Bad, int]]:
    """A record, or what is bad, for every line that is not empty; and the bytes read for it.

    A line is the body of a turn, with `scope` and `occurred_at` beside its fields if they are
    to be other than the default; or a whole message with its envelope.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        size = len(line)
        place = f"{name}:{number}"
        if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while rest := file.readline(MAX_LINE_BYTES):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
            yield Bad(place, f"a line of {size} bytes is no turn"), size
        elif line.strip():
            yield _line(line, place, reading), size


def _line(line: bytes, place: str, reading: Reading) -> Outgoing | Bad:
    try:
        raw = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return Bad(place, f"not UTF-8 (byte {error.start + 1} of the line)")
    except ValueError as error:
        return Bad(place, f"not JSON: {error}")
    except RecursionError:
        return Bad(place, "not a turn: nested too deeply")
    if not isinstance(raw, dict):
        return Bad(place, "not a JSON object; write one turn a line")
    try:
        return _record(raw, reading)
    except ValidationError as error:
        return Bad(place, describe(error))
    except ValueError as error:
        return Bad(place, str(error))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _record(raw: dict[str, object], reading: Reading) -> Outgoing:
    if "body" in raw and "schema" in raw:
        body, message_id = raw["body"], raw.get("id")
    else:
        body = {name: raw[name] for name in raw if name not in ("scope", "occurred_at")}
        message_id = None
    turn = ConversationTurn.model_validate(body)
    at = raw.get("occurred_at")
    return _checked(
        turn,
        reading.scope or str(raw.get("scope", DEFAULT_SCOPE)),
        reading.now if at is None else _TIME.validate_python(at),
        None if message_id is None else str(message_id),
        reading,
    )


def _checked(
    turn: ConversationTurn, scope: str, at: datetime, message_id: str | None, reading: Reading
) -> Outgoing:
    """The turn as a record. Raises ValueError for what the log should not be given."""
    for where, text in _texts({"scope": scope, **turn.model_dump()}, ""):
        if "\0" in text:
            raise ValueError(f"{where}: has a NUL character (U+0000); remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: has half a surrogate pair, which is no text") from None
    message_id = message_id or turn_id_of_message(scope, turn)
    message = Envelope[Frozen](
        id=message_id,
        schema=CONVERSATION_TURNS.schemas[0],
        scope=scope,
        occurred_at=at,
        correlation_id=message_id,
        body=turn,
    )
    record = outgoing(CONVERSATION_TURNS, message)
    size = len(record.value or b"")
    if size > reading.max_bytes:
        raise ValueError(
            f"the turn takes {size} bytes, more than the {reading.max_bytes} allowed (setting"
            " log.max_record_bytes); split it or raise the limit"
        )
    return record


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name, where)
            yield from _texts(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{where}[{number}]")


# --- LoCoMo -----------------------------------------------------------------------------------


def read_locomo(
    file: IO[bytes], name: str, stem: str, reading: Reading
) -> Iterator[Outgoing | Bad]:
    """The utterances of a LoCoMo file (one conversation, or a list of samples), in order."""
    try:
        raw = json.loads(file.read().decode("utf-8"))
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
        scope = own if reading.scope is None else reading.scope
        yield from _conversation(conversation, place, scope, reading)


def _conversation(
    conversation: object, place: str, scope: str, reading: Reading
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
                turn = _utterance(utterance, session, reading.captions)
                yield _checked(turn, scope, at + timedelta(seconds=number), None, reading)
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
            "content": text,
            "metadata": metadata,
        }
    )


def locomo_time(text: str) -> datetime | None:
    """`1:56 pm on 8 May, 2023`, taken as UTC; None for anything else."""
    match = _LOCOMO_TIME.search(text)
    if match is None or match[5].lower() not in _MONTHS:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "pm" else 0)
    month = _MONTHS.index(match[5].lower()) + 1
    try:
        return datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC)
    except ValueError:
        return None


def in_batches(records: Iterable[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Records in batches that one fsync makes durable."""
    batch: list[Outgoing] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"")
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
