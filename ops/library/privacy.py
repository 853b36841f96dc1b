"""Privacy levels as methods of `AsyncMemory`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from palimpsest.ops.library.arguments import checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import typed
from palimpsest.ops.queries.requests import PrivacyRequest
from palimpsest.schemas.commands import SetPrivacyCommand
from palimpsest.schemas.privacy import Privacy


@dataclass(frozen=True, slots=True)
class PrivacyLevel:
    """`person` is None for the level of the whole scope."""

    person: str | None
    level: Privacy
    since: datetime
    reason: str
    changed_by: str


@dataclass(frozen=True, slots=True)
class PrivacyLevels:
    """Those that were set; who is not among them has the level none."""

    scope: str
    levels: tuple[PrivacyLevel, ...]


@dataclass(frozen=True, slots=True)
class PrivacySet:
    """`memories` are there from before, `names` how many by the name that they have; `offer` says
    how to erase them, where the level is not lower than before."""

    status: str
    person: str | None
    level: Privacy
    before: Privacy
    since: datetime
    memories: int
    names: dict[str, int] = field(default_factory=dict)
    offer: str | None = None


class WithPrivacy(Opened):
    """The methods about privacy levels."""

    async def set_privacy(
        self,
        level: Privacy,
        *,
        person: str | None = None,
        reason: str = "",
        scope: str | None = None,
        key: str | None = None,
    ) -> PrivacySet:
        """Set the privacy level of a person, or (without one) of the whole scope. `full`: nothing
        of what the person says from then on is kept; `partial`: no agent writes memories about
        the person by itself. A name is the same in any case and width.

        >>> (await memory.set_privacy("full", person="Zoe", reason="she asked")).before
        'none'
        """
        order = checked(SetPrivacyCommand, level=level, person=person, reason=reason)
        return typed(PrivacySet, await self._carry_out(order, scope, key))

    async def privacy(self, *, scope: str | None = None) -> PrivacyLevels:
        """The privacy levels of a scope: who has which, since when and why.

        >>> [(each.person, each.level) for each in (await memory.privacy()).levels]
        [('Zoe', 'full')]
        """
        asked = checked(PrivacyRequest, scope=self._in(scope))
        return typed(PrivacyLevels, await self._ask(asked))
