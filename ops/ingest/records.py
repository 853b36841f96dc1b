"""Turns as records for the log: invalid turns are refused here, with a reason, and a turn is
compared with published ones: new, a repeat, or a conflict under the same id."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from palimpsest.ops.ingest.parsers.base import Bad, Naming, ReadOptions, Utterance, with_offset
from palimpsest.schemas.codec import refuse_depth
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.erasure.scrubbing import withheld_turn
from palimpsest.schemas.failures import HALF_A_PAIR, describe
from palimpsest.schemas.messages import ConversationTurn, role_of_speaker
from palimpsest.schemas.normal_forms import one_line, storage_content
from palimpsest.schemas.surrogates import texts, without_halves
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import LogReader, Outgoing, blocks, partition_for
from palimpsest.streams.runtime.output import published

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
DEFAULT_SCOPE: Final = "default"


@dataclass(frozen=True, slots=True)
class Named(Outgoing):
    """A record of an export. Its turn keeps the names under which it was published first."""

    naming: Naming = field(kw_only=True)


def turn_id_of_message(scope: str, turn: ConversationTurn) -> str:
    """Returns the message id of a turn: the same turn published again has the same id."""
    edit = () if turn.revised_at is None else (turn.revised_at.isoformat(),)
    return derived_id("ingest", scope, turn.turn_id, turn.content, *edit)


def record_of(
    said: Utterance, at: datetime, source_type: str, options: ReadOptions
) -> Outgoing | Bad:
    """Returns an utterance of time `at` as a turn's record, or Bad. Other programs cut titles and
    texts in the middle of an emoji: half of one becomes U+FFFD, as nothing else of it can be read.
    """
    said = replace(
        said,
        **{
            each.name: without_halves(getattr(said, each.name))
            for each in fields(said)
            if each.name not in ("at", "place", "naming")
        },
    )
    try:
        turn = ConversationTurn(
            turn_id=said.key,
            session_id=said.session,
            speaker=said.speaker,
            role=said.role or role_of_speaker(said.speaker),
            content=said.text,
            source_type=source_type,
            source_id=said.source_id,
            metadata=said.metadata,
            revised_at=said.revised_at,
        )
        scope = options.scope or said.scope or DEFAULT_SCOPE
        record = checked(turn, scope, at, None, options)
    except ValidationError as error:
        return Bad(said.place, describe(error))
    except ValueError as error:
        return Bad(said.place, str(error))
    key = said.key
    naming = said.naming or Naming("", lambda _: key, is_dated=False)
    return Named(record.topic, scope, record.key, record.value, record.headers, naming=naming)


def checked(
    turn: ConversationTurn, scope: str, at: datetime, message_id: str | None, options: ReadOptions
) -> Outgoing:
    """Returns the turn as a record. Raises ValueError for a turn that the log must not hold."""
    with contextlib.suppress(PydanticSerializationError):  # half a surrogate pair is reported below
        refuse_depth(turn.model_dump_json().encode())
    for where, text in texts({"scope": scope, **turn.model_dump()}, ""):
        if "\0" in text:
            raise ValueError(f"{where}: has a NUL character (U+0000); remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: {HALF_A_PAIR}") from None
    at = with_offset(at, options.zone) or at
    offset = (at.utcoffset() or timedelta()) // timedelta(minutes=1)
    if offset and turn.utc_offset_minutes is None:
        turn = turn.model_copy(update={"utc_offset_minutes": offset})
    turn = options.policy.turn(turn)
    message_id = message_id or turn_id_of_message(scope, turn)
    if turn.privacy == "full":
        turn = withheld_turn(scope, turn)
    record = published(CONVERSATION_TURNS, message_id, scope, at, turn)
    refuse_depth(record.value or b"")
    size = len(record.value or b"")
    if size > options.max_bytes:
        raise ValueError(
            f"the turn takes {size} bytes, more than the {options.max_bytes} allowed (setting"
            " log.max_record_bytes); split it or raise the limit"
        )
    return record


def in_batches(records: Iterable[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yields records in batches; one fsync makes a batch durable."""
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


# --- what is published ----------------------------------------------------------------------

LOOKED_AT: Final = 200_000
"""Number of records read from the end of a partition: at most a few seconds and 40 MB."""
_READ_RECORDS: Final = 5_000

_BESIDE_TEXT: Final = (("session_id", ""), ("speaker", ""), ("role", "user"), ("privacy", "none"))
Standing = Literal["new", "known", "revised", "conflict", "erased"]
FILES: Final = frozenset({"messages", "captions", "zoom"})
"""The formats whose sessions have the name of their file, which is part of their turns' ids."""
BEGINNING: Final = 50
"""Number of a file's turns whose texts are looked up."""
_SESSIONS_OF_TEXT: Final = 8
"""Number of sessions that are looked up by a text: what more of them have tells none of them."""
_ERASED: Final = 0
"""Stands for the text of an erased turn: no text is the same."""
NOTICED: Final = "edit_noticed"
"""Member of the metadata of a turn whose `revised_at` is the time of the import that noticed its
edit."""
TOLD_EDIT: Final = "edit_told"
"""Member of the metadata of such a turn: when it was edited by an export that tells it, which is
before another import noticed the edit that this one follows."""
Minute: TypeAlias = tuple[int, ...]


class KnownTurn(NamedTuple):
    """A published turn: a hash of its newest text, when that was edited (ISO 8601 in UTC), the
    names of its speaker, session and group, and its local time. `is_noticed`: that it was edited is
    known, but not when."""

    text: int
    edited: str
    speaker: str
    session: str
    group: str
    at: datetime
    is_noticed: bool = False
    told: str = ""
    """When an edit that was noticed was made, if an export tells that."""
    offset: int = 0
    """Minutes that the local time is ahead of UTC."""


class Published:
    """The turns on a log and those checked since. Without a readable log (None) it knows only the
    latter.

    A turn is `known` if the log has it with the same text, speaker, role, session and privacy: the
    pipeline deduplicates it, or if that was edited later; it is `revised` if it was itself edited
    later. It is a `conflict` if its scope has its turn_id with other content, which came first and
    stays. If that content was `erased`, the record must not be published: its
    text may be what was erased.
    """

    def __init__(self, log: LogReader | None) -> None:
        self._log = log
        self._turns: dict[int, KnownTurn] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        """By scope and group the names that ids of its turns have."""
        self._files: dict[tuple[str, str], array[int]] = {}
        """By scope and session the turns of files, and erased ones, which may be of any format, in
        order."""
        self._sessions: dict[tuple[str, str, int], list[str]] = {}
        """By scope, format and words the first sessions that have them."""
        self._earlier: dict[int, set[int]] = {}
        """Hashes of the texts that a turn had before."""
        self._minutes: dict[tuple[str, str, Minute], list[str]] = {}
        """By scope, speaker and `minute_of` their time the ids of turns of chats without ids."""
        self._heard: dict[int, list[int]] = {}
        """By scope, words and `minute_of` their time the first turns of chats without ids that have
        them, whoever says them."""
        self._chats: dict[tuple[str, str], array[float]] = {}
        """By scope and chat without ids when its turns were said, as numbers of local time."""
        self._moments: dict[int, list[str]] = {}
        """By scope, text with all that identifies it, and second the ids of turns of files."""
        self._looked: set[int] = set()
        self.complete = log is not None
        """Whether all published turns were read."""

    def standing(self, record: Outgoing) -> Standing:
        """Returns how `record` relates to turns that were published or checked before."""
        self._look_for(record.scope)
        found = _identity(record.value)
        return "new" if found is None else self._met(*found)

    def known(self, scope: str, turn_id: str) -> KnownTurn | None:
        """Returns the turn of a scope with that id."""
        self._look_for(scope)
        return self._turns.get(hash_of(scope, turn_id))

    def names(self, scope: str, group: str) -> set[str]:
        """Returns the names in the ids of turns of a chat or channel."""
        self._look_for(scope)
        return self._names.get((scope, group), set())

    def of_minute(self, scope: str, who: str, at: datetime) -> Sequence[str]:
        """Returns the ids of what a speaker said in chats without ids in a minute, in order; or of
        erased turns of a session."""
        return self._minutes.get((scope, who, minute_of(at)), ())

    def heard(self, record: Outgoing, at: datetime) -> list[KnownTurn]:
        """Returns the first turns of chats without ids that have the words of the record in that
        minute, whoever says them."""
        found = _identity(record.value)
        if found is None:
            return []
        _, scope, _, words, *_ = found
        return [self._turns[each] for each in self._heard.get(_hearing(scope, words, at), ())]

    def times(self, scope: str, chat: str) -> Sequence[float]:
        """Returns when the turns of a chat without ids were said, as `timestamp_of` tells it."""
        return self._chats.get((scope, chat), ())

    def of_moment(self, record: Outgoing, earlier: timedelta) -> Sequence[str]:
        """Returns the ids of turns of files with the session, the speaker and the text of the
        record that were said so much earlier, by whole seconds."""
        found = _identity(record.value)
        if found is None:
            return ()
        _, scope, *_, turn = found
        return self._moments.get(_moment(scope, turn, earlier), ())

    def shifts(self, records: Sequence[Outgoing]) -> list[list[timedelta]]:
        """Returns how much earlier each of the records, which are of one session, was said before;
        not all times, if they are many."""
        found = [each[-1] for record in records if (each := _identity(record.value))]
        times: dict[int, list[datetime]] = {turn.text: [] for turn in found}
        session = found[0].session if found else ""
        for turn in self._files.get((records[0].scope, session), ()):
            known = self._turns[turn]
            if len(listed := times.get(known.text, [])) < _SESSIONS_OF_TEXT:
                listed.append(utc_of(known))
        return [[utc_of(turn) - at for at in times[turn.text]] for turn in found]

    def is_new_text(self, record: Outgoing) -> bool:
        """Whether a published turn never had the text of the record under its id."""
        found = _identity(record.value)
        before = None if found is None else self._turns.get(found[0])
        if found is None or before is None or before.text == _ERASED:
            return False
        return found[-1].text not in {before.text, *self._earlier.get(found[0], ())}

    def of_file(self, scope: str, form: str, session: str, known: Collection[int]) -> list[int]:
        """Returns the hashes (`hash_of`) of the turns of a file, as they were published; of erased
        ones, whose format is erased too, those that are `known` to be of the file."""
        return [
            turn
            for turn in self._files.get((scope, session), ())
            if self._turns[turn].group == form or turn in known
        ]

    def sessions(self, scope: str, form: str, words: int) -> Sequence[str]:
        """Returns sessions of files in which these words were published; not all, if many."""
        return self._sessions.get((scope, form, words), ())

    def _met(
        self, turn: int, scope: str, name: str, words: int, turn_id: str, found: KnownTurn
    ) -> Standing:
        before = self._turns.get(turn)
        if before is None:
            self._add(turn, scope, name, words, turn_id, found)
            return "new"
        if before.text == _ERASED:
            return "erased"
        is_redated = found.edited > before.edited and is_swapped(found.at, before.at)
        if (found.text == before.text and not is_redated) or found.edited < before.edited:
            self._earlier.setdefault(turn, set()).add(found.text)
            return "known"
        if not found.edited or found.edited == before.edited:
            return "conflict"
        self._earlier.setdefault(turn, set()).add(before.text)
        self._turns[turn] = found
        return "revised"

    def _add(
        self, turn: int, scope: str, name: str, words: int, turn_id: str, found: KnownTurn
    ) -> None:
        self._turns[turn] = found
        if found.group in FILES:
            self._moments.setdefault(_moment(scope, found), []).append(turn_id)
        if turn_id and (found.group not in FILES or found.text == _ERASED):
            # Of an erased turn the session is left, not the speaker.
            who = found.session if found.text == _ERASED else found.speaker
            self._minutes.setdefault((scope, who, minute_of(found.at)), []).append(turn_id)
            if found.text != _ERASED:
                heard = self._heard.setdefault(_hearing(scope, words, found.at), [])
                if len(heard) < _SESSIONS_OF_TEXT:
                    heard.append(turn)
                times = self._chats.setdefault((scope, found.group), array("d"))
                times.append(timestamp_of(found.at))
        if found.group in FILES or found.text == _ERASED:
            file = self._files.setdefault((scope, found.session), array("q"))
            file.append(turn)
            if found.group in FILES and len(file) <= BEGINNING:
                sessions = self._sessions.setdefault((scope, found.group, words), [])
                if name not in sessions and len(sessions) < _SESSIONS_OF_TEXT:
                    sessions.append(name)
        elif name:
            self._names.setdefault((scope, found.group), set()).add(name)

    def _look_for(self, scope: str) -> None:
        if self._log is not None:
            partition = partition_for(scope, self._log.partitions(CONVERSATION_TURNS.name))
            if partition not in self._looked:
                self._looked.add(partition)
                self._look(self._log, partition)

    def _look(self, log: LogReader, partition: int) -> None:
        topic = CONVERSATION_TURNS.name
        end = log.end_offset(topic, partition)
        if end > LOOKED_AT:
            self.complete = False
        for records in blocks(log, topic, partition, max(0, end - LOOKED_AT), end, _READ_RECORDS):
            for record in records:
                found = _identity(record.value)
                if found is not None:
                    self._met(*found)


def not_erased(batch: Sequence[Outgoing], standings: Sequence[Standing]) -> list[Outgoing]:
    """Returns the records of a batch that may be published."""
    return [each for each, standing in zip(batch, standings, strict=True) if standing != "erased"]


def _identity(value: bytes | None) -> tuple[int, str, str, int, str, KnownTurn] | None:
    """Returns a hash of a turn's identity, its scope, the name in its id, `words_of` it (of a chat
    without ids a hash of its words alone), its id if it is of a chat without ids, of a file or
    erased, and what else identifies it: its text with speaker, role, session and privacy, and when
    it was edited. None for a record that is not a turn."""
    try:
        raw = from_json(value or b"")
        body = raw["body"]
        said = tuple(body.get(name, otherwise) for name, otherwise in _BESIDE_TEXT)
        text = one_line(storage_content(body["content"]))
        turn = hash_of(raw["scope"], body["turn_id"])
        group, name = name_in_id(body)
        metadata = body.get("metadata") or {}
        found = KnownTurn(
            text=_ERASED if is_mark(text) else hash((text, *said)),
            edited=str(body.get("revised_at") or ""),
            speaker=intern(said[1]),
            session=intern(said[0]),
            group=intern(group),
            at=local_time(raw),
            is_noticed=NOTICED in metadata,
            told=str(metadata.get(TOLD_EDIT) or ""),
            offset=body.get("utc_offset_minutes") or 0,
        )
        is_without_id = body.get("source_type") in ("whatsapp", *FILES)
        turn_id = body["turn_id"] if is_without_id or found.text == _ERASED else ""
        is_chat = body.get("source_type") == "whatsapp"
        words = hash(text) if is_chat else _words(text, body)
        return turn, raw["scope"], name, words, turn_id, found
    except (ValueError, TypeError, KeyError):
        return None


def utc_of(known: KnownTurn) -> datetime:
    """Returns when a published turn was said."""
    return moved(known.at, -timedelta(minutes=known.offset))


def moved(at: datetime, by: timedelta) -> datetime:
    """Returns a time moved by so much, at most to the end of the calendar."""
    try:
        return at + by
    except OverflowError:
        return (datetime.max if by > timedelta() else datetime.min).replace(tzinfo=at.tzinfo)


def timestamp_of(at: datetime) -> float:
    """Returns a local time as a number that can be compared with those of other local times."""
    return at.replace(tzinfo=UTC).timestamp()


def _hearing(scope: str, words: int, at: datetime) -> int:
    return hash((scope, words, minute_of(at)))


def _moment(scope: str, turn: KnownTurn, earlier: timedelta = timedelta()) -> int:
    return hash((scope, turn.text, moved(utc_of(turn), -earlier).replace(microsecond=0)))


def minute_of(at: datetime) -> Minute:
    """Returns the minute of a local time, the same with day and month the other way round."""
    return (at.year, *sorted((at.month, at.day)), at.hour, at.minute)


def hash_of(scope: str, turn_id: str) -> int:
    """Returns the number by which a turn is known in this process."""
    return hash((scope, turn_id))


def words_of(body: Mapping[str, Any]) -> int:
    """Returns a hash of what a turn says and who says it, whatever its session."""
    return _words(one_line(storage_content(body["content"])), body)


def _words(text: str, body: Mapping[str, Any]) -> int:
    return hash((text, body.get("speaker", ""), body.get("role", "user")))


def local_time(message: Mapping[str, Any]) -> datetime:
    """Returns the time of a published turn where it was said."""
    at = datetime.fromisoformat(message["occurred_at"])
    return moved(at, timedelta(minutes=message["body"].get("utc_offset_minutes") or 0))


def is_swapped(one: datetime, other: datetime) -> bool:
    """Whether two dates have the same numbers, each the year of two digits, month or day, and are
    not the same."""
    numbers = [sorted((each.year % 100, each.month, each.day)) for each in (one, other)]
    return numbers[0] == numbers[1] and one.date() != other.date()


def name_in_id(body: Mapping[str, object]) -> tuple[str, str]:
    """Returns the chat, the channel or (`FILES`) the format of a published turn, and the name in
    its id that may change; empty texts for formats without one."""
    if body.get("source_type") == "whatsapp":
        return str(body.get("session_id", "")).rpartition(" ")[0], str(body.get("speaker", ""))
    metadata = body.get("metadata")
    if body.get("source_type") == "slack" and isinstance(metadata, dict):
        return str(metadata.get("channel_id", "")), str(metadata.get("channel", ""))
    if body.get("source_type") in FILES:
        return str(body["source_type"]), str(body.get("session_id", ""))
    return "", ""
