"""Data sets: conversations in LoCoMo's layout, and the questions about them.

Of a folder's conversations, in the order of their names, the first three fifths are the half that
choices are made with, the others the half that they are checked with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from palimpsest.ops.ingest.locomo import read_locomo
from palimpsest.ops.ingest.parsers.base import Bad, ReadOptions
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.opening import publisher
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import decode
from palimpsest.schemas.messages import ConversationTurn, role_of_speaker
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy

Turn: TypeAlias = tuple[str, datetime, ConversationTurn]
"""Scope, time and turn."""
Half: TypeAlias = Literal["choose", "check"]
HALVES: Final[tuple[Half, ...]] = get_args(Half)
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
CHOOSING: Final = 0.6
"""Share of the conversations in the first half."""
_TURN = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_\d+")
_ASKED = "%Y/%m/%d (%a) %H:%M"


@dataclass(frozen=True, slots=True)
class Question:
    """A question in a scope, when it is asked (None: unknown), its answer, and the ids and texts of
    the turns that are evidence for it, with the roles of their speakers. `type` is the data's own
    kind of question, or empty."""

    scope: str
    text: str
    category: int
    evidence: tuple[str, ...]
    half: Half = "choose"
    asked_at: datetime | None = None
    type: str = ""
    roles: tuple[str, ...] = ()
    answer: str = ""
    evidence_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSet:
    """The conversations of a folder, or a half of them."""

    data: Path
    half: Half | None = None
    captions: bool = True

    def files(self) -> Mapping[Path, Half]:
        """Raises ValueError if there are none."""
        return of_half(self.data, self.half)

    def questions(self) -> list[Question]:
        return [each for file, half in self.files().items() for each in questions(file, half)]

    def publish(self, settings: Settings) -> None:
        """Appends the turns to the log; those that are already there have no effect. Raises
        ValueError if there are none."""
        publish(settings, records(self.files(), settings, self.captions))


def publish(settings: Settings, ready: Iterable[Outgoing]) -> None:
    with publisher(settings) as append:
        for batch in in_batches(ready):
            append(batch)


def conversation_files(data: Path) -> list[Path]:
    """The conversations of a folder, `9` before `10`. Raises ValueError if there are none."""
    found = sorted(
        (path for path in data.glob("*.json") if path.is_file()),
        key=lambda path: (not path.stem.isdigit(), len(path.stem), path.stem),
    )
    if not found:
        raise ValueError(f"there is no conversation (*.json) in {data}")
    return found


def of_half(data: Path, half: Half | None) -> dict[Path, Half]:
    """The conversations of a half of a folder (None: of both). Raises ValueError if there are
    none."""
    files = conversation_files(data)
    chosen = round(CHOOSING * len(files))
    found: dict[Path, Half] = {
        file: "choose" if number < chosen else "check" for number, file in enumerate(files)
    }
    selected = {file: own for file, own in found.items() if half in (None, own)}
    if not selected:
        raise ValueError(f"{data} has too few conversations for a half to {half}: {len(found)}")
    return selected


def questions(file: Path, half: Half = "choose") -> list[Question]:
    """The questions of categories 1 to 4 with evidence; the scope is the file's name. Raises
    ValueError for a file that is not in LoCoMo's layout."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        turns = {
            turn["dia_id"]: turn
            for name, session in raw.items()
            if _SESSION.fullmatch(name)
            for turn in session
        }
        found = []
        for item in raw.get("qa", []):
            if item.get("category") not in CATEGORIES:
                continue
            named = _TURN.findall(" ".join(map(str, item.get("evidence") or ())))
            evidence = tuple(dict.fromkeys(named))
            if not evidence:
                continue
            said = [turns[each] for each in evidence if each in turns]
            asked_at = item.get("asked_at")  # `2023/05/30 (Tue) 18:40`, taken as UTC
            found.append(
                Question(
                    scope=file.stem,
                    text=item["question"],
                    category=item["category"],
                    evidence=evidence,
                    half=half,
                    asked_at=None
                    if asked_at is None
                    else datetime.strptime(asked_at, _ASKED).replace(tzinfo=UTC),
                    type=item.get("type", ""),
                    roles=tuple(sorted({role_of_speaker(turn["speaker"]) for turn in said})),
                    answer=str(item.get("answer", "")),
                    evidence_texts=tuple(turn.get("text", "") for turn in said),
                )
            )
        return found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a conversation in LoCoMo's layout: {error!r}") from error


def records(files: Iterable[Path], settings: Settings, captions: bool) -> Iterator[Outgoing]:
    """The turns as a producer would publish them. Raises ValueError for an invalid one."""
    now = datetime.now(UTC)
    for path in files:
        limit, policy = settings.log.max_record_bytes, Policy.of(settings.pii)
        options = ReadOptions(path.stem, limit, now, captions, policy)
        with path.open("rb") as file:
            for record in read_locomo(file, path.name, path.stem, options):
                if isinstance(record, Bad):
                    raise ValueError(f"{record.place}: {record.reason}")
                yield record


def turns(files: Iterable[Path], settings: Settings, captions: bool) -> Iterator[Turn]:
    """The turns with their scope and time. Raises ValueError for an invalid one."""
    for record in records(files, settings, captions):
        message = decode(record.value, CONVERSATION_TURNS, None)
        assert isinstance(message.body, ConversationTurn)
        yield message.scope, message.occurred_at, message.body
