"""Recognises messages that were published under another name: of a contact that was renamed in the
address book, of a channel, of a file; with day and month the wrong way round; under an id without
its time; or with another text, where the source does not tell when it was edited.

Ids of WhatsApp's messages have the speaker's name, those of Slack's the channel's, those of formats
without ids the file's, and sessions are called after them. A message keeps the id, the speaker and
the session under which it was published. A text that a known message never had is its newest, as of
the import; in WhatsApp, which has no ids, a message that is marked as edited is the one of the same
speaker and minute that the export no longer has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import chain
from typing import Any, Final

from pydantic_core import from_json

from palimpsest.ops.ingest.parsers.base import Naming
from palimpsest.ops.ingest.records import (
    BEGINNING,
    NOTICED,
    TOLD_EDIT,
    KnownTurn,
    Named,
    Published,
    hash_of,
    is_swapped,
    local_time,
    moved,
    name_in_id,
    timestamp_of,
    turn_id_of_message,
    utc_of,
    words_of,
)
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published

LEAST_HEARD: Final = 6
"""Messages that a chat has in common with one under other names, at least, to be that chat."""
HEARD_SHARE: Final = 0.75
"""How many of the messages of both chats, in the period that they have in common, are the same."""
TRIED: Final = 3
"""Number of files with which a new one is compared: those that share the rarest texts with it."""
NUMBERS_TRIED: Final = 64
"""How many equal texts of a session an erased one is looked for among: nothing tells its number."""


def recognised(
    records: Iterable[Outgoing], before: Published, now: datetime, note: Callable[[str], None]
) -> Iterator[Outgoing]:
    """Yields the records of a source, those of known messages as they were published. A date that
    was assumed, and that the source tells otherwise, is corrected as of `now`. `note` is told of
    each name that is taken for an earlier one."""
    records = iter(records)
    chats: list[Named] = []
    for record in records:
        if isinstance(record, Named):
            chats.append(record)
        else:
            yield record
    if chats:
        names = _Names(chats, before, now, note)
        for each in chats:
            yield names.as_published(each)


class _Names:
    """What the names of a source were when it was published."""

    def __init__(
        self, records: list[Named], before: Published, now: datetime, note: Callable[[str], None]
    ) -> None:
        self._before, self._now, self._note = before, now, note
        self._repeats = _Repeats(records, before)
        self._present = {(each.scope, each.naming.name) for each in records}
        self._shared: defaultdict[str, set[str]] = defaultdict(set)
        """By scope the chats that the source has in common with what was published."""
        self._known_files: set[tuple[str, str]] = set()
        """Scopes and names of files of which something is known by that name."""
        self._first_session: dict[tuple[str, str], str] = {}
        """By scope and id the first of several sessions that have a message: a conversation that
        was branched off another one has what was said before, with its ids."""
        sessions: dict[tuple[str, str], str] = {}
        unknown = []
        for each in records:
            body = _body(each)
            place = (each.scope, str(body["turn_id"]))
            first = sessions.setdefault(place, str(body["session_id"]))
            if first != body["session_id"]:
                self._first_session[place] = first
            group = name_in_id(body)[0]
            turn_id = self._repeats.id_of(each) or str(body["turn_id"])
            known = before.known(each.scope, turn_id)
            if each.naming.is_anywhere:
                self._shared[each.scope].add(group if known is None else known.group)
            if known is None:
                unknown.append((each, group))
            elif each.naming.is_file:
                self._known_files.add((each.scope, each.naming.name))
        self._names: dict[tuple[str, str], str] = {}
        chats: defaultdict[tuple[str, str], list[Named]] = defaultdict(list)
        for each, group in unknown:
            if each.naming.is_anywhere:
                chats[each.scope, group].append(each)
        for (scope, _), chat in chats.items():
            self._names |= self._under_other_names(scope, chat)
        self._names |= self._matched(unknown)
        self._names |= self._files([each for each, _ in unknown if each.naming.is_file])
        for each, _ in unknown:
            name = self._names.get((each.scope, each.naming.name))
            if name is not None and each.naming.is_file:
                self._repeats.look_for(each, name)
        self._edits = self._edited([each for each, _ in unknown], records)

    def _under_other_names(self, scope: str, chat: list[Named]) -> dict[tuple[str, str], str]:
        """Returns by scope and name the one of before, where a published chat of which the source
        has nothing by its names has the messages `chat`: each name of the one stands for one of
        the other, at least two people speak, and in the period that both have most is the same.
        What one person sends to several chats at once does not make them one."""
        heard: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        times = []
        for each in chat:
            at = local_time(from_json(each.value or b""))
            times.append(timestamp_of(at))
            turns = self._before.heard(each, at)
            if not turns and each.naming.other_at is not None:
                turns = self._before.heard(each, each.naming.other_at)
            for group, speaker in {(turn.group, turn.speaker) for turn in turns}:
                if group not in self._shared[scope]:
                    heard[group][each.naming.name, speaker] += 1
        for group in nlargest(TRIED, heard, key=lambda group: heard[group].total()):
            names: dict[str, str] = {}
            same = 0
            for (now, then), count in heard[group].most_common():
                if now not in names and then not in names.values():
                    names[now] = then
                    same += count
            before = self._before.times(scope, group)
            first, last = max(min(times), min(before)), min(max(times), max(before))
            both = max(sum(first <= at <= last for at in each) for each in (times, before))
            if len(names) > 1 and same >= max(LEAST_HEARD, HEARD_SHARE * both):
                self._shared[scope].add(group)
                changed = {now: then for now, then in names.items() if now != then}
                for now, then in changed.items():
                    self._present.add((scope, then))
                    self._tell(now, then)
                return {(scope, now): then for now, then in changed.items()}
        return {}

    def _tell(self, now: str, then: str) -> None:
        self._note(f'"{now}" was "{then}" before: messages that are known keep that name')

    def _matched(self, records: list[tuple[Named, str]]) -> dict[tuple[str, str], str]:
        """Returns by scope and name the one under which most of its messages were published. It is
        one that the source has no more, and of one name only."""
        hits: Counter[tuple[str, str, str]] = Counter()
        for each, group in records:
            if each.naming.is_file:
                continue
            for name in self._candidates(each, group):
                if self._before.known(each.scope, _key_as(each, name, self._before)):
                    hits[each.scope, each.naming.name, name] += 1
        found: dict[tuple[str, str], str] = {}
        for (scope, now, then), _ in hits.most_common():
            is_told = (scope, now) in found or (scope, now) in self._names
            if not is_told and (scope, then) not in self._present:
                found[scope, now] = then
                self._present.add((scope, then))
                self._tell(now, then)
        return found

    def _files(self, records: list[Named]) -> dict[tuple[str, str], str]:
        """Returns by scope and name of a file the one under which its beginning was published."""
        files: defaultdict[tuple[str, str], list[Named]] = defaultdict(list)
        for each in records:
            if (each.scope, each.naming.name) not in self._known_files:
                files[each.scope, each.naming.name].append(each)
        found = {}
        for (scope, now), file in files.items():
            form = name_in_id(_body(file[0]))[0]
            told: defaultdict[str, float] = defaultdict(float)
            for each in file[:BEGINNING]:
                sessions = self._before.sessions(scope, form, words_of(_body(each)))
                for name in sessions:
                    told[name] += 1 / len(sessions)  # what many files have tells little
            for then in nlargest(TRIED, told, key=told.__getitem__):
                if (scope, then) not in self._present and self._is_same(file, form, then):
                    found[scope, now] = then
                    self._present.add((scope, then))
                    self._note(
                        f'"{now}" begins with the messages of "{then}", published before: it is'
                        " the same conversation, and what is new goes on there"
                    )
                    break
        return found

    def _is_same(self, file: list[Named], form: str, name: str) -> bool:
        """Returns whether a file and one that was published begin with the same messages, to the
        end of the shorter one, and where they have times at the same: at least two messages, or one
        with a time."""
        scope = file[0].scope
        ids = [self._id_as(each, name) for each in file]
        turns = [hash_of(scope, turn_id) for turn_id in ids]
        published = self._before.of_file(scope, form, name, {*turns})
        both = min(len(turns), len(published))
        return (
            both > (0 if file[0].naming.is_dated else 1)
            and turns[:both] == published[:both]
            and all(
                known is not None and known.at == local_time(from_json(each.value or b""))
                for each, turn_id in zip(file, ids[:both], strict=False)
                if each.naming.is_dated
                for known in [self._before.known(scope, turn_id)]
            )
        )

    def _id_as(self, record: Named, name: str) -> str:
        """Returns the id of a message with another name of its file; the one without a time if it
        was published so."""
        naming, now = record.naming, record.naming.key_as(name)
        if naming.untimed_as is None or self._before.known(record.scope, now) is not None:
            return now
        untimed = naming.untimed_as(name, naming.number)
        return now if self._before.known(record.scope, untimed) is None else untimed

    def _edited(self, unknown: list[Named], records: list[Named]) -> dict[str, str]:
        """Returns by id of an unknown message the one under which it was published before it was
        edited, or after: of the same speaker and minute, and not in the source with that text."""
        changed = [each for each in unknown if each.naming.is_edited is not None]
        if not changed:
            return {}
        taken = {(each.scope, self._turn_id(each)) for each in records}
        found = {}
        for each in changed:
            before, message = self._before, from_json(each.value or b"")
            speaker = self._names.get((each.scope, each.naming.name), each.naming.name)
            session = message["body"]["session_id"]
            times = [local_time(message), *filter(None, (each.naming.other_at,))]
            met = [before.of_minute(each.scope, w, at) for at in times for w in (speaker, session)]
            for turn_id in chain.from_iterable(met):
                known = before.known(each.scope, turn_id)
                is_free = (each.scope, turn_id) not in taken and known is not None
                if is_free and known and (each.naming.is_edited or known.is_noticed):
                    taken.add((each.scope, turn_id))
                    found[self._turn_id(each)] = turn_id
                    break
        return found

    def _turn_id(self, record: Named) -> str:
        """Returns the id of a message under the name that its own had before."""
        own = str(_body(record)["turn_id"])
        if (found := self._repeats.id_of(record)) is not None:
            return found
        name = self._names.get((record.scope, record.naming.name))
        if name is None or self._before.known(record.scope, own) is not None:
            return own
        return _key_as(record, name, self._before)

    def _candidates(self, record: Named, group: str) -> set[str]:
        groups = self._shared[record.scope] if record.naming.is_anywhere else {group}
        names = {name for each in groups if each for name in self._before.names(record.scope, each)}
        names.update(record.naming.former)
        if record.naming.is_anywhere:  # a chat of two has the name of one, known or erased
            names.update(groups)
        return {name for name in names if (record.scope, name) not in self._present}

    def as_published(self, record: Named) -> Outgoing:
        naming, turn_id = record.naming, self._turn_id(record)
        turn_id = self._edits.get(turn_id, turn_id)
        known = self._before.known(record.scope, turn_id)
        name = self._names.get((record.scope, naming.name))
        if known is not None:
            names = {"turn_id": turn_id, "speaker": known.speaker, "session_id": known.session}
            found = _adopted(record, names, known.at, self._now)
            return self._with_edit(found, known, naming)
        if name is not None and naming.is_file:  # the conversation goes on there
            return _adopted(record, {"turn_id": turn_id, "session_id": name}, None, self._now)
        first = self._first_session.get((record.scope, turn_id)) or self._session_of_root(record)
        if first is not None:
            return _adopted(record, {"session_id": first}, None, self._now)
        return _noticed(record, self._now) if naming.is_edited else record

    def _session_of_root(self, record: Named) -> str | None:
        """Returns the session in which the message was published that a new one answers: another
        day's file, or another name of the channel, calls it otherwise."""
        root_as, name = record.naming.root_as, record.naming.name
        if root_as is None:
            return None
        for each in (name, self._names.get((record.scope, name), name)):
            root = self._before.known(record.scope, root_as(each))
            if root is not None:
                return root.session
        return None

    def _with_edit(self, record: Outgoing, known: KnownTurn, naming: Naming) -> Outgoing:
        """Returns the record of a known turn; as edited now if its text is one that the turn never
        had, and no time tells which of both is the newer. An edit that was noticed was made before
        that import, nobody knows when: the text that it left has no edit in its source, so the one
        whose edit a source tells is newer."""
        if not self._before.is_new_text(record):
            return record
        edited = str(_body(record).get("revised_at") or "")
        if edited and known.is_noticed and known.told < edited < known.edited:
            return _noticed(record, self._now, edited)
        is_later = known.is_noticed and not known.told and naming.is_edited is not False
        if edited == known.edited or (not edited and is_later):
            return _noticed(record, self._now)
        return record


class _Repeats:
    """The published turns that utterances of a source are, other than by their keys: what is said
    again later is another turn.

    Keys have the time that the source tells. They had none at first: what was published then is
    known by the key without a time and by the time that it has. Where a chat has more dates than
    when it was published, another number of each may be the year. Where a source counts its times
    from a beginning that the import chooses, a file of which half was published in the same
    intervals is the same."""

    def __init__(self, records: Sequence[Named], before: Published) -> None:
        self._before = before
        self._found: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()
        self._passed: dict[int, int] = {}
        """By what was said at a moment how many of it are taken."""
        unknown = []
        places = [(each.scope, each.naming.key_as(each.naming.name)) for each in records]
        own = {*places}
        for each, place in zip(records, places, strict=True):
            other = (each.scope, _key_as(each, each.naming.name, before))
            if before.known(*place) is not None:
                self._taken.add(place)
            elif other not in own:
                self._taken.add(other)
                self._found[place] = other[1]
            elif each.naming.untimed_as is not None or each.naming.is_relative:
                unknown.append(each)
        shifts = self._shifts([each for each in records if each.naming.is_relative])
        for each in unknown:
            self.look_for(each, each.naming.name, shifts)

    def id_of(self, record: Named) -> str | None:
        """Returns the id under which an utterance was published that its key is not."""
        return self._found.get((record.scope, record.naming.key_as(record.naming.name)))

    def look_for(
        self,
        record: Named,
        name: str,
        shifts: Mapping[tuple[str, str], timedelta] | None = None,
    ) -> None:
        """Looks for what was published under a name of the file."""
        raw = from_json(record.value or b"")
        session = str(raw["body"]["session_id"])
        shift = (shifts or {}).get((record.scope, session), timedelta())
        turn_id = self._untimed(record, name, raw) or self._of_moment(record, shift)
        if turn_id is not None:
            self._taken.add((record.scope, turn_id))
            own = record.naming.key_as(record.naming.name)
            self._found[record.scope, own] = turn_id

    def _of_moment(self, record: Named, shift: timedelta) -> str | None:
        """Returns the first turn with the words and the time of an utterance that is not taken."""
        said = self._before.of_moment(record, shift)
        for number in range(self._passed.get(id(said), 0), len(said)):
            self._passed[id(said)] = number
            if (record.scope, said[number]) not in self._taken:
                return said[number]
        return None

    def _untimed(self, record: Named, name: str, raw: Mapping[str, Any]) -> str | None:
        """Returns the key without a time, if that was published at the time of the utterance."""
        naming, scope = record.naming, record.scope
        if naming.untimed_as is None:
            return None
        numbers = [naming.number]
        session = name if naming.is_file else str(raw["body"]["session_id"])
        if self._before.of_minute(scope, session, local_time(raw)):  # something that was erased
            numbers += range(1, NUMBERS_TRIED + 1)
        for number in numbers:
            turn_id = naming.untimed_as(name, number)
            known = self._before.known(scope, turn_id)
            is_free = (scope, turn_id) not in self._taken
            if known is not None and is_free and _is_of_time(known, record, raw):
                return turn_id
        return None

    def _shifts(self, records: Sequence[Named]) -> dict[tuple[str, str], timedelta]:
        """Returns by scope and session how much earlier its beginning was told before, where that
        holds for half of what it begins with, and for two utterances at least."""
        sessions: defaultdict[tuple[str, str], list[Named]] = defaultdict(list)
        for each in records:
            session = str(from_json(each.value or b"")["body"]["session_id"])
            if len(sessions[each.scope, session]) < BEGINNING:
                sessions[each.scope, session].append(each)
        found = {}
        for place, begins in sessions.items():
            shifts = Counter(shift for each in self._before.shifts(begins) for shift in set(each))
            for shift, count in shifts.most_common(1):
                if count > 1 and count >= len(begins) / 2:
                    found[place] = shift
        return found


def _key_as(record: Named, name: str, before: Published) -> str:
    """Returns the key of an utterance with a name: where only that is known, the one that it has if
    another number of its date is the year."""
    naming = record.naming
    key = naming.key_as(name)
    if naming.other_as is None or before.known(record.scope, key) is not None:
        return key
    other = naming.other_as(name)
    return key if before.known(record.scope, other) is None else other


def _is_of_time(known: KnownTurn, record: Named, raw: Mapping[str, Any]) -> bool:
    """Whether a turn was published at the time of an utterance: the moment, or what the clock said
    where it was, as its zone may be one that was chosen. A turn that got the time of its file is
    one that was said before."""
    here = local_time(raw)
    then = moved(here, -timedelta(minutes=raw["body"].get("utc_offset_minutes") or 0))
    if record.naming.is_late and utc_of(known) >= then:
        return True
    return _second(known.at) == _second(here) or _second(utc_of(known)) == _second(then)


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _adopted(
    record: Named, names: Mapping[str, str], known_at: datetime | None, now: datetime
) -> Outgoing:
    """Returns the record with other names; as a revision if it corrects the date of the known
    turn."""
    raw = from_json(record.value or b"")
    is_corrected = (
        record.naming.is_dated and known_at is not None and is_swapped(local_time(raw), known_at)
    )
    return _changed(raw, {**names, **({"revised_at": now} if is_corrected else {})})


def _noticed(record: Outgoing, now: datetime, told: str = "") -> Outgoing:
    """Returns the record as edited at the time of this import, which says so, and when its source
    tells that it was."""
    raw = from_json(record.value or b"")
    metadata = {**raw["body"].get("metadata", {}), NOTICED: True}
    if told:
        metadata[TOLD_EDIT] = told
    return _changed(raw, {"revised_at": now, "metadata": metadata})


def _changed(raw: Mapping[str, Any], fields: Mapping[str, object]) -> Outgoing:
    """Returns a message with other values of its body's fields."""
    turn = ConversationTurn.model_validate(raw["body"]).model_copy(update=fields)
    at = datetime.fromisoformat(raw["occurred_at"])
    message_id = turn_id_of_message(raw["scope"], turn)
    return published(CONVERSATION_TURNS, message_id, raw["scope"], at, turn)


def _body(record: Outgoing) -> dict[str, object]:
    body: dict[str, object] = from_json(record.value or b"")["body"]
    return body
