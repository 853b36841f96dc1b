"""On whose behalf an operation is executed, and which memory spaces that caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from palimpsest.schemas.commands import Actor

DEFAULT_SCOPE: Final = "default"


class Access(Protocol):
    """A caller. All methods raise RequestError with what to do."""

    @property
    def actor(self) -> Actor:
        """By whom commands are given."""
        ...

    @property
    def whole_ids(self) -> bool:
        """Whether ids have to be whole: shorter ones could tell that others have such a memory."""
        ...

    def named(self, scope: str) -> str:
        """The scope of an operation that is about one; empty for the caller's own. Raises
        NotFoundError for one that the caller does not see."""
        ...

    def listed(self, scope: str | None) -> str | None:
        """The scope that a list is narrowed to; None for all that there are."""
        ...

    def within(self, scope: str | None) -> str | None:
        """The scope in which an id must lie; None for any that the caller sees."""
        ...

    def sees(self, scope: str) -> bool: ...


@dataclass(frozen=True)
class Unrestricted:
    """The user of this machine, at the command line: every scope of the folder."""

    whole_ids: bool = False

    @property
    def actor(self) -> Actor:
        from palimpsest.schemas.commands import Actor

        return Actor()

    def named(self, scope: str) -> str:
        return scope or DEFAULT_SCOPE

    def listed(self, scope: str | None) -> str | None:
        return scope

    within = listed

    def sees(self, scope: str) -> bool:
        return True


@dataclass(frozen=True)
class OneScope:
    """A program that works with one scope, and with another only where it names that."""

    scope: str
    actor: Actor
    whole_ids: bool = False

    def named(self, scope: str) -> str:
        return scope or self.scope

    def listed(self, scope: str | None) -> str | None:
        return scope or self.scope

    within = listed

    def sees(self, scope: str) -> bool:
        return True
