"""Privacy levels: of a person in a scope, or of the whole scope, and what a name is known by."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Literal

from palimpsest.schemas.rows import Row

Privacy = Literal["none", "partial", "full"]
LEVELS: Final[tuple[Privacy, ...]] = ("none", "partial", "full")
"""From the one that allows all to the strictest."""
WHOLE_SCOPE: Final = ""
"""The person key of the level of all persons of a scope, also of those without a name."""
PRIVACY_FULL: Final = "privacy_full"
"""The reason of what is not kept because of a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyRow(Row):
    """The level of a person in a scope as a command set it; `person` is the name as the newest
    command wrote it, empty for the whole scope."""

    TABLE: ClassVar[str] = "privacy_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "person_key")

    scope: str
    person_key: str
    person: str
    level: Privacy
    reason: str
    changed_by: str
    recorded_at: datetime


Levels = Mapping[str, PrivacyRow]
"""The levels of one scope by person key."""


def person_key(name: str) -> str:
    """What a name is compared by: compatibility forms, case, white space and invisible characters
    make no difference, accents do. Empty for a name of which nothing is left."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(
        each for each in folded if unicodedata.category(each) not in ("Cf", "Cc") or each.isspace()
    )
    return " ".join(seen.split())


def level_of(levels: Levels, person: str) -> Privacy:
    """The level that holds for a person: the stricter of the person's own and the scope's."""
    if not levels:
        return "none"
    known = (levels.get(person_key(person)), levels.get(WHOLE_SCOPE))
    return max((row.level for row in known if row is not None), key=LEVELS.index, default="none")
