"""A language model summarizes sessions that are idle or have ended, alongside the stages.

The summary becomes a command in the log, so a rebuild calls no model. It names its source turns: a
concurrent erasure, turn or write invalidates the summary, so it is never wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from palimpsest.ops.maintenance.partition_timer import PartitionTimer
from palimpsest.ops.operations.short_term import short_term_of
from palimpsest.schemas.commands import Actor, MemoryCommand, UpdateShortTermCommand
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.prompting.replies import MalformedReply
from palimpsest.streams.prompting.summaries import read_summary, summary_prompt
from palimpsest.streams.runtime.model_port import ModelPort, backoff
from palimpsest.streams.runtime.output import published

logger = logging.getLogger(__name__)

LEAST_TURNS = 3
"""Minimum length of a session that gets a summary."""
MOST_CHARACTERS = 2_000
"""Maximum length of a requested summary: it shares a context with other content."""
AT_ONCE = 8
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
class SummaryTimer(PartitionTimer):
    """Summarizes each session once per newest turn. Skips a session whose last user turn requests
    permanent memory, that an application has summarized, or whose scope's flags forbid it
    (`enabled`, `mutations_frozen`, `autonomous_frozen`). A failure is retried later, up to
    `worker.max_attempts` attempts in all."""

    what = "summaries"
    seconds = 5.0

    models: ModelPort
    monotonic: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _tried: dict[_Due, _Tried] = field(default_factory=dict, init=False)

    def waits(self, shard: Shard) -> bool:
        return bool(self._due(shard))

    async def act(self, shard: Shard) -> None:
        due = await asyncio.to_thread(self._due, shard)
        await asyncio.gather(*(self._sum_up(shard, each) for each in due))

    def _due(self, shard: Shard) -> list[_Due]:
        now = self.clock()
        idle = now - timedelta(minutes=self.settings.short_term.idle_minutes)
        asked = {"now": now, "idle": idle, "by": SUMMARIZER.id}
        with shard.reading() as reader:
            rows = reader.execute(_DUE, asked).fetchall()
        due = (_Due(*row) for row in rows)
        return [each for each in due if self._may(shard, each)][:AT_ONCE]

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
            short_term_of, shard, settings, self.clock(), due.scope, due.session_id
        )
        tried = self._tried.setdefault(due, _Tried())
        if kept is None or len(kept.turns) < LEAST_TURNS or kept.turns[-1].id != due.last_turn:
            tried.times = self.settings.worker.max_attempts  # the turns are gone: do not retry
            return
        most = min(MOST_CHARACTERS, settings.characters)
        prompt = summary_prompt([(said.who, said.content) for said in kept.turns], most)
        reply = await self.models.generate(prompt, advisory=True)
        try:
            if reply is None:
                raise MalformedReply("the model did not answer")
            summary = read_summary(reply.text, most)
        except MalformedReply as error:
            self._failed(due, tried, str(error))
            return
        turns = tuple(said.id for said in kept.turns)
        await asyncio.to_thread(self.append, [_record(due, turns, summary, self.clock())])
        # The call is paid for: never request the summary again, even if it is rejected.
        tried.times = self.settings.worker.max_attempts

    def _failed(self, due: _Due, tried: _Tried, why: str) -> None:
        tried.times += 1
        tried.again_at = self.monotonic() + backoff(tried.times, 0.0)
        most = self.settings.worker.max_attempts
        logger.warning(
            "no summary of session %r in scope %r: %s (try %d of %d)",
            *(due.session_id, due.scope, why, tried.times, most),
        )


def _record(due: _Due, turns: tuple[str, ...], summary: str, at: datetime) -> Outgoing:
    digest = hashlib.sha256(summary.encode("utf-8", "replace")).hexdigest()
    command_id = derived_id("session-summary", due.scope, due.session_id, due.last_turn, digest)
    command = UpdateShortTermCommand(session_id=due.session_id, summary=summary, turns=turns)
    return published(
        MEMORY_COMMANDS, command_id, due.scope, at, MemoryCommand(command=command, actor=SUMMARIZER)
    )
