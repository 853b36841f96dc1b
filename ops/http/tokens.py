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
from typing import Final

from pydantic import TypeAdapter, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.callers import Caller, Permission
from palimpsest.ops.parts import SetupError
from palimpsest.schemas.commands import ActorType

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
            _write(self._path, tokens)
        finally:
            os.close(lock)


def _is_over(token: Token) -> bool:
    return token.expires_at is not None and token.expires_at <= datetime.now(UTC)


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _write(path: Path, tokens: Sequence[Token]) -> None:
    """Writes the file atomically, with mode 0600 from its first byte."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump([asdict(token) for token in tokens], file, default=str, indent=2)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
