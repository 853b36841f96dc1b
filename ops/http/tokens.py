"""Tokens of the service: made, listed and revoked in one file of the data folder, which has only
their hashes. A running service sees a change at once."""

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
from typing import Final

from pydantic import TypeAdapter, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.callers import Caller, Permission
from palimpsest.ops.parts import SetupError
from palimpsest.schemas.commands import ActorType

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "palimpsest_"
"""So that a secret scanner and a person can tell what it is."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token. `hash` is SHA-256 of the secret, which has 256 random bits: nothing
    slower is needed."""

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
        """As the file has them now. Raises SetupError for one that cannot be read."""
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
        """Whether there ever was a token: to revoke the last one lets no one in."""
        return self._path.exists()

    def caller(self, secret: str) -> Caller | None:
        """Whose token this is. All hashes are compared, so that time tells nothing."""
        given = hashed(secret)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.hash, given) and not _is_over(token):
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
        """A new token and its secret, which is nowhere kept."""
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
        """Take a token away, by its name or id. Raises NotFoundError."""
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
        """The tokens to change; written in one step at the end, one process at a time."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = [*self.all()]
            yield tokens
            _write(self._path, tokens)
        finally:
            os.close(lock)


def _is_over(token: Token) -> bool:
    return token.expires_at is not None and token.expires_at <= datetime.now(UTC)


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _write(path: Path, tokens: Sequence[Token]) -> None:
    """Mode 0600 from its first byte, whole or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump([asdict(token) for token in tokens], file, default=str, indent=2)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
