"""Creates, lists and revokes the tokens of the service, in a file of the data folder that has only
their hashes. A running service sees changes at once."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

from pydantic import TypeAdapter, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.ingest.records import DEFAULT_SCOPE
from palimpsest.ops.log_folder import write_private
from palimpsest.ops.operations.operation import Permission
from palimpsest.ops.parts import SetupError
from palimpsest.schemas.envelope import Actor, ActorType

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

    def whole_names(self) -> Sequence[str]:
        return [scope for scope in self.caller.scopes if not scope.endswith("*")]


LOCAL: Final = Caller("", "local")
"""Every caller of a service without tokens: the user of this machine."""


FILE_NAME: Final = "tokens.json"
PREFIX: Final = "palimpsest_"
"""Identifies a token to secret scanners and people."""


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. `hash` is the SHA-256 of the secret, which has 256 random bits, so a slower
    hash is not needed."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    permissions: tuple[Permission, ...]
    actor: ActorType
    created_at: datetime
    expires_at: datetime | None = None

    @property
    def caller(self) -> Caller:
        return Caller(self.id, self.name, self.scopes, self.permissions, self.actor)


_TOKENS = TypeAdapter(tuple[Token, ...])


class Tokens:
    """The tokens of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._seen: tuple[int, int] | None = None
        self._known: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """Returns the tokens in the file. Raises SetupError if it cannot be read."""
        try:
            found = self._path.stat()
            if self._seen != (found.st_mtime_ns, found.st_ino):
                self._known = _TOKENS.validate_json(self._path.read_bytes())
                self._seen = (found.st_mtime_ns, found.st_ino)
        except FileNotFoundError:
            self._known, self._seen = (), None
        except (OSError, ValidationError) as error:
            raise SetupError(
                f"the tokens in {self._path} cannot be read ({type(error).__name__}); repair the"
                " file, or remove it and make new tokens"
            ) from None
        return self._known

    @property
    def are_used(self) -> bool:
        """Whether there ever was a token: revoking the last one does not open the service."""
        return self._path.exists()

    def caller(self, secret: str) -> Caller | None:
        """Returns the token's owner, or None. Compares all hashes, so that timing reveals
        nothing."""
        digest = hashed(secret)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.hash, digest) and not _is_over(token):
                found = token.caller
        return found

    def still(self, caller: Caller) -> bool:
        """Whether the caller's token was neither revoked nor has expired since."""
        return not caller.id or any(
            token.id == caller.id and not _is_over(token) for token in self.all()
        )

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        permissions: Sequence[Permission],
        actor: ActorType,
        at: datetime,
        expires_at: datetime | None = None,
    ) -> tuple[Token, str]:
        """Creates a token and returns it with its secret, which is not stored."""
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise RequestError(f"there is a token {name} already; revoke it, or name another")
            token = Token(
                uuid.uuid4().hex[:8],
                name,
                hashed(secret),
                tuple(scopes),
                tuple(permissions),
                actor,
                at,
                expires_at,
            )
            tokens.append(token)
        return token, secret

    def revoke(self, name: str) -> Token:
        """Revokes a token by its name or id. Raises NotFoundError."""
        with self._changing() as tokens:
            found = next((token for token in tokens if name in (token.name, token.id)), None)
            if found is None:
                raise NotFoundError(
                    f"there is no token {name}; `palimpsest tokens list` shows what there is"
                )
            tokens.remove(found)
        return found

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """Yields the tokens to change; writes them atomically at the end, one process at a time."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = [*self.all()]
            yield tokens
            content = json.dumps([asdict(token) for token in tokens], default=str, indent=2)
            write_private(self._path, content)
        finally:
            os.close(lock)


def _is_over(token: Token) -> bool:
    return token.expires_at is not None and token.expires_at <= datetime.now(UTC)


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
