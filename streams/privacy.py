"""What privacy levels forbid. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from palimpsest.schemas.messages import NormalizedTurn, RejectedTurnIntent
from palimpsest.schemas.privacy import (
    PRIVACY_FULL,
    Levels,
    level_of,
)
from palimpsest.schemas.rows.memories import MemoryRow


def is_withheld(levels: Levels, speaker: str) -> bool:
    """Whether nothing of what the speaker says may be kept."""
    return level_of(levels, speaker) == "full"


def rejected(turn: NormalizedTurn, reason: str = PRIVACY_FULL) -> RejectedTurnIntent:
    """What remains of a turn that may not be kept."""
    return RejectedTurnIntent(
        turn_id=turn.turn_id, item_id=turn.item_id, session_id=turn.session_id, reason=reason
    )


def is_private_source(levels: Levels, speaker: str, source: MemoryRow | None) -> bool:
    """Returns whether nothing derived from a person's statement may be written any more."""
    by = {speaker} if source is None else {speaker, source.who}
    return any(is_withheld(levels, who) for who in by)


def is_private(
    levels: Levels, speaker: str, sources: Iterable[MemoryRow | None], target: MemoryRow | None
) -> bool:
    """The same of one statement, which would change the memory `target`."""
    about = target is not None and is_withheld(levels, target.who)
    return about or any(is_private_source(levels, speaker, each) for each in sources)
