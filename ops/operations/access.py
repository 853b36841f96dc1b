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
        """The actor recorded with commands."""
        ...

    @property
    def whole_ids(self) -> bool:
        """Whether ids must be whole: a prefix could reveal that others have such a memory."""
        ...

    def named(self, scope: str) -> str:
        """Returns the scope of a single-scope operation; an empty `scope` means the caller's own.
        Raises NotFoundError for a scope that the caller does not see."""
        ...

    def listed(self, scope: str | None) -> str | None:
        """The scope that a list is restricted to; None for all scopes."""
        ...

    def within(self, scope: str | None) -> str | None:
        """The scope in which an id must lie; None for any that the caller sees."""
        ...

    def sees(self, scope: str) -> bool: ...


@dataclass(frozen=True)
class Unrestricted:
    """The local user at the command line: sees every scope of the data folder."""

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
    """A program that uses one scope unless it names another."""

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
