"""Tells which published turn an utterance without an id is.

Keys have the time that the source tells, so that what is said again later is another turn. They had
none at first: what was published then is known by the key without a time and by the time that it
has. Where a source counts its times from a beginning that the import chooses, a file of which half
was published in the same intervals is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic_core import from_json

from palimpsest.ops.ingest.records import (
    BEGINNING,
    KnownTurn,
    Named,
    Published,
    local_time,
    utc_of,
)

NUMBERS_TRIED: Final = 64
"""How many equal texts of a session an erased one is looked for among: nothing tells its number."""


class Repeats:
    """The published turns that utterances of a source are, other than by their keys."""

    def __init__(self, records: Sequence[Named], before: Published) -> None:
        self._before = before
        self._found: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()
        self._passed: dict[int, int] = {}
        """By what was said at a moment how many of it are taken."""
        unknown = []
        for each in records:
            place = (each.scope, each.naming.key_as(each.naming.name))
            if before.known(*place) is not None:
                self._taken.add(place)
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
            if known is not None and is_free and is_of_time(known, record, raw):
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


def is_of_time(known: KnownTurn, record: Named, raw: Mapping[str, Any]) -> bool:
    """Whether a turn was published at the time of an utterance: the moment, or what the clock said
    where it was, as its zone may be one that was chosen. A turn that got the time of its file is
    one that was said before."""
    here = local_time(raw)
    then = here - timedelta(minutes=raw["body"].get("utc_offset_minutes") or 0)
    if record.naming.is_late and utc_of(known) >= then:
        return True
    return _second(known.at) == _second(here) or _second(utc_of(known)) == _second(then)


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)
