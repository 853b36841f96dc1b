"""Conversations in LoCoMo's layout, and what is asked about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.halves import Half, by_half
from palimpsest.ops.ingest.base import Bad
from palimpsest.ops.ingest.locomo import read_locomo, speaker_role
from palimpsest.ops.ingest.records import RecordOptions
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy

CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_TURN = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_\d+")
_ASKED = "%Y/%m/%d (%a) %H:%M"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked in a scope and when (None: not known), and the turns that hold the answer:
    `roles` are those of their speakers. `type` is the data's own kind of question, empty for none.
    """

    scope: str
    text: str
    category: int
    evidence: tuple[str, ...]
    half: Half = Half.choose
    asked_at: datetime | None = None
    type: str = ""
    roles: tuple[str, ...] = ()


def conversation_files(data: Path) -> list[Path]:
    """The conversations of a folder, `9` before `10`. Raises ValueError when there are none."""
    found = sorted(
        (path for path in data.glob("*.json") if path.is_file()),
        key=lambda path: (not path.stem.isdigit(), len(path.stem), path.stem),
    )
    if not found:
        raise ValueError(f"there is no conversation (*.json) in {data}")
    return found


def of_half(data: Path, half: Half | None) -> dict[Path, Half]:
    """The conversations of a folder that are asked for (None: all). Raises ValueError when there
    are none."""
    found = by_half(conversation_files(data))
    wanted = {file: own for file, own in found.items() if half in (None, own)}
    if not wanted:
        raise ValueError(f"{data} has too few conversations for a half to {half}: {len(found)}")
    return wanted


def questions(file: Path, half: Half = Half.choose) -> list[Question]:
    """The questions of categories 1 to 4 with evidence, scope by the file's name. Raises ValueError
    for a file that is not in LoCoMo's layout."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        role = {
            turn["dia_id"]: speaker_role(turn["speaker"])
            for name, session in raw.items()
            if _SESSION.fullmatch(name)
            for turn in session
        }
        return [
            Question(
                *(file.stem, item["question"], item["category"], evidence, half),
                asked_at=_asked_at(item.get("asked_at")),
                type=item.get("type", ""),
                roles=tuple(sorted({role[turn] for turn in evidence if turn in role})),
            )
            for item in raw.get("qa", [])
            if item.get("category") in CATEGORIES and (evidence := _evidence(item))
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a conversation in LoCoMo's layout: {error!r}") from error


def _asked_at(text: str | None) -> datetime | None:
    """`2023/05/30 (Tue) 18:40`, taken as UTC."""
    return None if text is None else datetime.strptime(text, _ASKED).replace(tzinfo=UTC)


def _evidence(item: dict[str, list[str]]) -> tuple[str, ...]:
    named = _TURN.findall(" ".join(map(str, item.get("evidence") or ())))
    return tuple(dict.fromkeys(named))


def records(files: Iterable[Path], settings: Settings, captions: bool) -> Iterator[Outgoing]:
    """The turns, as a producer would publish them. Raises ValueError for one that cannot be."""
    now = datetime.now(UTC)
    for path in files:
        limit, policy = settings.log.max_record_bytes, Policy.of(settings.pii)
        options = RecordOptions(path.stem, limit, now, captions, policy)
        with path.open("rb") as file:
            for record in read_locomo(file, path.name, path.stem, options):
                if isinstance(record, Bad):
                    raise ValueError(f"{record.place}: {record.reason}")
                yield record
