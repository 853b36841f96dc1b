"""Recorded replies of language models, in a SQLite file that many processes may use.

A recorded reply is stored under the SHA-256 of the whole request. The request itself is not stored,
and it seals the reply: only a caller that can repeat the request can read the reply. So the file
reveals nothing of a text that was erased everywhere else, even if no erasure reaches it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from palimpsest.streams.logs.base import LogError
from palimpsest.streams.models.base import LanguageModel, Prompt, Reply

FILE_NAME: Final = "replies.sqlite"
FORMAT: Final = 1
BUSY_TIMEOUT_SECONDS: Final = 30.0
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 16
_PARTS: Final = ("text", "input_tokens", "output_tokens", "latency_ms", "cost")


@dataclass(frozen=True, slots=True)
class Question:
    """The identity of a request to a language model; `digest` names it, `secret` seals the
    reply."""

    provider: str
    model: str
    digest: bytes
    secret: bytes


def question(model: LanguageModel, address: str, prompt: Prompt, attempt: int) -> Question:
    """The `attempt`-th request with a prompt; the model at another `address` is another one."""
    request = [FORMAT, model.provider, model.model, address, attempt, prompt.system, prompt.user]
    request += [dict(prompt.schema), prompt.max_output_tokens]
    whole = json.dumps(request, sort_keys=True).encode()
    secret = hashlib.sha256(b"seal\0" + whole).digest()
    return Question(model.provider, model.model, hashlib.sha256(whole).digest(), secret)


@dataclass(frozen=True, slots=True)
class Kept:
    """A reply to store. `erasures` is the file's number of them at the time of the request."""

    question: Question
    scope: str
    reply: Reply
    erasures: int


class RecordedReplies:
    """The file at `path`; every method may be called from any thread, and blocks. Replies are
    kept for `retention_days`, in at most `max_bytes` of their own.

    Raises LogError where the file cannot be used.
    """

    def __init__(
        self, path: Path, clock: Callable[[], datetime], retention_days: float, max_bytes: int
    ) -> None:
        self.path = path
        self.erasures = 0
        """Number of erasures in this process; see `Kept`."""
        self._clock = clock
        self._retention = timedelta(days=retention_days)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                execute = self._connection.execute
                execute("PRAGMA journal_mode=WAL")
                execute("PRAGMA synchronous=FULL")
                execute("PRAGMA secure_delete=ON")
                execute(
                    "CREATE TABLE IF NOT EXISTS replies(question BLOB PRIMARY KEY,"
                    " scope TEXT NOT NULL, recorded_at REAL NOT NULL, sealed BLOB NOT NULL)"
                    " WITHOUT ROWID"
                )
                execute("CREATE INDEX IF NOT EXISTS replies_by_scope ON replies(scope)")
                execute("CREATE INDEX IF NOT EXISTS replies_by_age ON replies(recorded_at)")
            except BaseException:
                self._connection.close()
                raise

    def find(self, questions: Sequence[Question]) -> list[Reply | None]:
        """Returns each reply with its original usage and cost; None if none is stored."""
        with self._connected() as connection:
            query = "SELECT sealed FROM replies WHERE question = ?"
            rows = [connection.execute(query, (each.digest,)).fetchone() for each in questions]
        return [row and _reply(each, row[0]) for each, row in zip(questions, rows, strict=True)]

    def keep(self, replies: Sequence[Kept]) -> list[None]:
        """Stores replies durably, in one transaction, each replacing an earlier one to the same
        request. What was erased since a request is not stored again."""
        now = self._clock().timestamp()
        rows = []
        for each in replies:
            parts = json.dumps([getattr(each.reply, name) for name in _PARTS]).encode()
            sealed = _sealed(each.question.secret, parts)
            rows.append((each.question.digest, each.scope, now, sealed))
        with self._connected() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)",
                [
                    row
                    for row, each in zip(rows, replies, strict=True)
                    if each.erasures == self.erasures
                ],
            )
        return [None] * len(replies)

    def forget(self, questions: Sequence[Question]) -> None:
        """Deletes the replies to these requests."""
        with self._connected() as connection:
            connection.executemany(
                "DELETE FROM replies WHERE question = ?", [(each.digest,) for each in questions]
            )

    def erase(self, scopes: Collection[str]) -> None:
        """Deletes all replies of these scopes, with their bytes."""
        with self._connected() as connection:
            self.erasures += 1
            connection.executemany(
                "DELETE FROM replies WHERE scope = ?", [(scope,) for scope in sorted(set(scopes))]
            )
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise LogError(f"{self.path}: another process reads it, try again")

    def expire(self, now: datetime) -> int:
        """Deletes expired replies, and the oldest beyond the size limit; returns how many."""
        with self._connected() as connection:
            removed = connection.execute(
                "DELETE FROM replies WHERE recorded_at <= ?", ((now - self._retention).timestamp(),)
            ).rowcount
            # Summed from the newest on: those beyond the limit are deleted.
            removed += connection.execute(
                "DELETE FROM replies WHERE question IN (SELECT question FROM (SELECT question,"
                "  sum(length(sealed)) OVER (ORDER BY recorded_at DESC, question) AS bytes"
                "  FROM replies) WHERE bytes > ?)",
                (self._max_bytes,),
            ).rowcount
        return removed

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            yield self._connection

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LogError(
                f"the recorded replies {self.path} cannot be used: {error}. Make room or the file"
                " writable; or delete it, which costs no more than asking the model again; or set"
                " replies.retention_days to 0"
            ) from error


def _reply(question: Question, sealed: bytes) -> Reply | None:
    opened = _opened(question.secret, sealed)
    if opened is None:
        return None
    blank = Reply(text="", model=question.model, provider=question.provider)
    return replace(blank, **dict(zip(_PARTS, json.loads(opened), strict=True)))


def _sealed(secret: bytes, text: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    body = _combined(secret + nonce, text)
    return nonce + _tag(secret, nonce + body) + body


def _opened(secret: bytes, sealed: bytes) -> bytes | None:
    """None for what was damaged."""
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    tag, body = rest[:TAG_BYTES], rest[TAG_BYTES:]
    return _combined(secret + nonce, body) if tag == _tag(secret, nonce + body) else None


def _combined(key: bytes, text: bytes) -> bytes:
    """The text and an equally long stream of the key, bit by bit: twice is the text again."""
    stream = hashlib.shake_256(key).digest(len(text))
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def _tag(secret: bytes, sealed: bytes) -> bytes:
    return hashlib.blake2b(sealed, key=secret, digest_size=TAG_BYTES).digest()
