"""Publishers alongside the stages of a worker: fetched documents, ends of silent sessions, and a
language model's summaries of sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from palimpsest.ops.documents.adding import NotReadError, text_record, texts_that_fit
from palimpsest.ops.documents.fetcher import fetch
from palimpsest.ops.operations.recalling import short_term_of
from palimpsest.ops.scheduling.periodic import CommandTimer, PartitionTimer
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    DocumentTextCommand,
    SessionEndCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.pipeline import DocumentRow
from palimpsest.schemas.rows.sessions import SessionRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogError, Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.prompting.replies import MalformedReply
from palimpsest.streams.prompting.summaries import read_summary, summary_prompt
from palimpsest.streams.runtime.model_port import ModelPort, backoff
from palimpsest.streams.runtime.output import own_command
from palimpsest.streams.sensitive.policy import REFUSED, WHY_REFUSED, Policy
from palimpsest.streams.settings import Flags

logger = logging.getLogger(__name__)


# --- documents ------------------------------------------------------------------------------------
# Fetches queued documents. The only output is records of the log: the text, or why there is none. A
# document stays queued until one of them is applied, so a document is fetched again after a kill in
# between. A document whose record is in the log is not fetched.

FETCHES = 4
"""Maximum number of concurrent fetches."""
FETCHER = Actor(id="fetcher", type="system")
_QUEUED = (
    "kind = 'url' AND chunks IS NULL AND error IS NULL AND deleted_at IS NULL"
    " ORDER BY created_at, document_id LIMIT 100"
)


@dataclass(eq=False)
class Fetcher(PartitionTimer[list[DocumentRow]]):
    """Fetches for all open shards, which `shards` returns and which may change at any time."""

    what = "documents"
    seconds = 0.5

    _published: set[str] = field(default_factory=set, init=False)

    async def act(self, partition: int, shard: Shard, due: list[DocumentRow]) -> None:
        limit = asyncio.Semaphore(FETCHES)

        async def one(row: DocumentRow) -> None:
            async with limit:
                await self._take(row)

        await asyncio.gather(*map(one, due))

    def due(self, shard: Shard) -> list[DocumentRow]:
        """The documents that wait for their text."""
        with shard.reading() as reader:
            queued = select(reader, DocumentRow, _QUEUED, [])
        return [row for row in queued if row.document_id not in self._published]

    def _records(self, scope: str, texts: Sequence[DocumentTextCommand]) -> list[Outgoing]:
        return [text_record(scope, text, self.clock(), FETCHER) for text in texts]

    def _without_secrets(self, text: str) -> str:
        """Removes secrets before the text is chunked: a secret may span two chunks."""
        policy = Policy.of(self.settings.pii)
        cleaned = policy.text(text)
        if policy.refuses and cleaned == REFUSED:
            raise NotReadError(WHY_REFUSED)
        return cleaned

    async def _take(self, row: DocumentRow) -> None:
        """Fetches a document, and appends its text or the failure."""
        assert row.source is not None
        try:
            found = await fetch(row.source, self.settings.documents)
            asked = AddDocumentCommand(
                kind="url",
                content_type=found.content_type,
                chunk_characters=row.chunk_characters,
                chunk_overlap=row.chunk_overlap,
            )
            most = self.settings.log.max_record_bytes
            text = await asyncio.to_thread(self._without_secrets, found.text)
            title = self._without_secrets(found.title)
            texts = await asyncio.to_thread(
                texts_that_fit, row.document_id, text, asked, most, title
            )
            records = self._records(row.scope, texts)
            if any(len(record.value or b"") > most for record in records):
                raise NotReadError(
                    f"its chunks are larger than {most} bytes (log.max_record_bytes)"
                )
        except NotReadError as error:
            why = str(error)[:2_000]
            failed = DocumentTextCommand(document_id=row.document_id, error=why)
            records = self._records(row.scope, [failed])
        try:
            await asyncio.to_thread(self.append, records)
        except LogError as error:
            logger.warning("document %s, to be fetched again: %s", row.document_id, error)
        else:
            self._published.add(row.document_id)


# --- silent sessions ------------------------------------------------------------------------------
# Ends silent sessions, even if no further turn arrives in their scope.

AT_ONCE = 500
"""Maximum number of sessions that one check ends."""
SILENCE = Actor(id="silence", type="system")
_SILENT = (
    "ended_at IS NULL AND session_id <> '' AND last_recorded_at <= ?"
    " AND list_contains(?, scope) = ? ORDER BY last_recorded_at, scope, session_id"
    f" LIMIT {AT_ONCE}"
)


@dataclass(eq=False)
class SilenceTimer(CommandTimer):
    """Publishes a `session-end` for every session that has been silent for `silence_minutes`. It
    names the newest turn, so a turn in flight keeps the session open, and its id derives from the
    session and that turn, so the same silence ends a session once. Scopes with the flag
    `autonomous_frozen` are skipped."""

    what = "silent sessions"
    seconds = 5.0

    def commands(self, shard: Shard) -> dict[str, Outgoing]:
        silence = timedelta(minutes=self.settings.sessions.silence_minutes)
        known = [self.clock() - silence, *exceptions(shard, self.settings.pipeline)]
        with shard.reading() as reader:
            silent = select(reader, SessionRow, _SILENT, known)
        commands = {}
        for row in silent:
            command = SessionEndCommand(
                session_id=row.session_id, reason="silence", after_turn=row.last_turn
            )
            # The number of ends: the same turn may be the last one twice, after another end.
            own = own_command(row.scope, command, SILENCE, self.clock(), row.ends)
            commands[own[0]] = own[1]
        return commands


def exceptions(shard: Shard, flags: Flags) -> tuple[list[str], bool]:
    """Returns the scopes whose flag `autonomous_frozen` differs from the default, and whether only
    these scopes may be changed."""
    frozen = flags.autonomous_frozen
    named = [
        scope
        for scope, row in shard.flags.items()
        if effective(flags, row).autonomous_frozen != frozen
    ]
    return named, frozen


# --- session summaries ----------------------------------------------------------------------------
# A language model summarizes sessions that are idle or have ended. The summary becomes a command in
# the log, so a rebuild calls no model. It names its source turns: a concurrent erasure, turn or
# write invalidates the summary, so it is never wrong.

LEAST_TURNS = 3
"""Minimum length of a session that gets a summary."""
MOST_CHARACTERS = 2_000
"""Maximum length of a requested summary: it shares a context with other content."""
SUMMARIES_AT_ONCE = 8
SUMMARIZER = Actor(id="summarizer", type="system")
_DUE = f"""
SELECT t.scope, t.session_id, t.turns[-1]
FROM short_term_rows t JOIN session_rows s USING (scope, session_id)
WHERE t.session_id <> '' AND len(t.turns) >= {LEAST_TURNS} AND t.turns_expire_at > $now
    AND NOT t.explicit_intent
    AND (t.summary IS NULL OR t.summary_expires_at <= $now
        OR (t.summary_by = $by AND t.summarized_through IS DISTINCT FROM t.turns[-1]))
    AND (s.ended_at IS NOT NULL OR s.last_recorded_at <= $idle)
ORDER BY s.last_recorded_at, t.scope, t.session_id LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class _Due:
    scope: str
    session_id: str
    last_turn: str


@dataclass(slots=True)
class _Tried:
    times: int = 0
    again_at: float = 0.0


@dataclass(eq=False)
class SummaryTimer(PartitionTimer[list[_Due]]):
    """Summarizes each session once per newest turn. Skips a session whose last user turn requests
    permanent memory, that an application has summarized, or whose scope's flags forbid it
    (`enabled`, `mutations_frozen`, `autonomous_frozen`). A failure is retried later, up to
    `worker.max_attempts` attempts in all."""

    what = "summaries"
    seconds = 5.0

    models: ModelPort
    monotonic: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _tried: dict[_Due, _Tried] = field(default_factory=dict, init=False)

    async def act(self, partition: int, shard: Shard, due: list[_Due]) -> None:
        await asyncio.gather(*(self._sum_up(shard, each) for each in due))

    def due(self, shard: Shard) -> list[_Due]:
        now = self.clock()
        idle = now - timedelta(minutes=self.settings.short_term.idle_minutes)
        asked = {"now": now, "idle": idle, "by": SUMMARIZER.id}
        due = (_Due(*row) for row in shard.fetch(_DUE, asked))
        return [each for each in due if self._may(shard, each)][:SUMMARIES_AT_ONCE]

    def _may(self, shard: Shard, due: _Due) -> bool:
        tried = self._tried.get(due)
        if tried is not None:
            over = tried.times >= self.settings.worker.max_attempts
            if over or tried.again_at > self.monotonic():
                return False
        flags = effective(self.settings.pipeline, shard.flags.get(due.scope))
        return flags.enabled and not (flags.mutations_frozen or flags.autonomous_frozen)

    async def _sum_up(self, shard: Shard, due: _Due) -> None:
        settings = self.settings.short_term
        kept = await asyncio.to_thread(
            short_term_of, shard, settings, self.clock(), due.scope, due.session_id, marked=False
        )
        tried = self._tried.setdefault(due, _Tried())
        if kept is None or len(kept.turns) < LEAST_TURNS or kept.turns[-1].id != due.last_turn:
            tried.times = self.settings.worker.max_attempts  # the turns are gone: do not retry
            return
        most = min(MOST_CHARACTERS, settings.characters)
        prompt = summary_prompt([(said.who, spoken(said.content)) for said in kept.turns], most)
        reply = await self.models.generate(prompt, advisory=True)
        try:
            if reply is None:
                raise MalformedReply("the model did not answer")
            summary = read_summary(reply.text, most)
        except MalformedReply as error:
            tried.times += 1
            tried.again_at = self.monotonic() + backoff(tried.times, 0.0)
            logger.warning(
                "no summary of session %r in scope %r: %s (try %d of %d)",
                *(due.session_id, due.scope, error, tried.times, self.settings.worker.max_attempts),
            )
            return
        turns = tuple(said.id for said in kept.turns)
        command = UpdateShortTermCommand(session_id=due.session_id, summary=summary, turns=turns)
        _, record = own_command(due.scope, command, SUMMARIZER, self.clock())
        await asyncio.to_thread(self.append, [record])
        # The call is paid for: never request the summary again, even if it is rejected.
        tried.times = self.settings.worker.max_attempts
