"""Privacy levels: of a person in a scope, or of the whole scope, and what a name is known by."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from palimpsest.schemas.rows.enumerations import Privacy
from palimpsest.schemas.rows.pipeline import PrivacyRow

LEVELS: Final[tuple[Privacy, ...]] = ("none", "partial", "full")
"""From the one that allows all to the strictest."""
WHOLE_SCOPE: Final = ""
"""The person key of the level of all persons of a scope, also of those without a name."""
PRIVACY_FULL: Final = "privacy_full"
"""The reason of what is not kept because of a level."""


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


_ERASED_PERSON: Final = re.compile(r"\[erased [0-9a-f]{32}\]")


def erased_person(scope: str, name: str) -> str:
    """What a person is called once the scope was erased: the level goes on to hold for whoever
    comes back under the name, and nothing says which name it was."""
    key = person_key(name)
    if not key or _ERASED_PERSON.fullmatch(key):
        return key
    digest = hashlib.sha256("\0".join((scope, key)).encode(errors="surrogatepass")).hexdigest()
    return f"[erased {digest[:32]}]"


def known_key(levels: Levels, scope: str, person: str) -> str:
    """The key under which the level of a person is kept: that of the name, or of what stands for
    it since the scope was erased."""
    key, erased = person_key(person), erased_person(scope, person)
    return erased if key not in levels and erased in levels else key


def level_of(levels: Levels, person: str) -> Privacy:
    """The level that holds for a person: the stricter of the person's own and the scope's."""
    if not levels:
        return "none"
    scope = next(iter(levels.values())).scope
    known = (levels.get(known_key(levels, scope, person)), levels.get(WHOLE_SCOPE))
    return max((row.level for row in known if row is not None), key=LEVELS.index, default="none")
