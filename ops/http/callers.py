"""Callers of the service, and what they may see and do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.ingest.records import DEFAULT_SCOPE
from palimpsest.schemas.commands import Actor, ActorType

Permission = Literal["remember", "recall", "modify", "forget", "recover", "sql", "admin"]
PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)
ALL_SCOPES: Final = "*"


def matches(pattern: str, scope: str) -> bool:
    """Whether a scope matches a token's pattern: exactly, or by its prefix if the pattern ends with
    a star."""
    if pattern.endswith("*"):
        return scope.startswith(pattern[:-1])
    return scope == pattern


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. `id` distinguishes callers with the same name."""

    id: str
    name: str
    scopes: tuple[str, ...] = (ALL_SCOPES,)
    permissions: tuple[Permission, ...] = PERMISSIONS
    actor: ActorType = "human"

    @property
    def sees_all(self) -> bool:
        return ALL_SCOPES in self.scopes

    def sees(self, scope: str) -> bool:
        return any(matches(pattern, scope) for pattern in self.scopes)

    def scope(self, named: str | None) -> str:
        """Returns the scope of a request: the named one, else the caller's only one, else the
        default. Raises NotFoundError for a scope that is not the caller's."""
        own = self.scopes[0] if len(self.scopes) == 1 else ALL_SCOPES
        scope = named or (DEFAULT_SCOPE if own.endswith("*") else own)
        if not self.sees(scope):
            raise NotFoundError(f"there is no scope {scope}")
        return scope


@dataclass(frozen=True, slots=True)
class CallerAccess:
    """What an operation may access on behalf of a caller. `actor_type` comes from the request: it
    can turn a person into a machine, never the reverse."""

    caller: Caller
    actor_type: ActorType | None = None
    whole_ids: bool = True

    @property
    def actor(self) -> Actor:
        machine = self.actor_type == "agent" or self.caller.actor != "human"
        return Actor(id=self.caller.name, type="agent" if machine else "human")

    def named(self, scope: str) -> str:
        return self.caller.scope(scope or None)

    def listed(self, scope: str | None) -> str | None:
        scopes = self.caller.scopes
        if scope is None and self.caller.sees_all:
            return None
        if scope is None and (len(scopes) > 1 or scopes[0].endswith("*")):
            raise RequestError(f"name a scope; this token has {', '.join(scopes)}")
        return self.caller.scope(scope)

    def within(self, scope: str | None) -> str | None:
        return None if scope is None else self.caller.scope(scope)

    def sees(self, scope: str) -> bool:
        return self.caller.sees(scope)


LOCAL: Final = Caller("", "local")
"""Every caller of a service without tokens: the user of this machine."""
