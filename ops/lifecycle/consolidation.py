"""A language model draws facts, procedures and opinions from sessions as a whole: the nightly job.

It is shown the turns that extraction has read, in pages of the length of an extraction's prompt.
What it draws goes into the log as commands, which send it to decide like the facts of a turn, so
that a rebuild calls no model. A reply that was paid for is recorded before: a run that is repeated
after a crash asks for what is missing only, and its commands have the same ids."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from palimpsest.ops.lifecycle.shared import command_record, due_rows, finish_all, language_models
from palimpsest.ops.scheduling.jobs import JobContext, JobFailed
from palimpsest.schemas.commands import ConsolidateCommand, MemoryVersion
from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.extraction import Fact, FactsExtracted, ModelCall, TurnReference
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.database.tables import select
from palimpsest.streams.extract import fact_of, model_call, safe
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.prompting.prompts import (
    CONSOLIDATION_PROMPT_VERSION,
    MAX_FACTS,
    consolidation_prompt,
    session_pages,
)
from palimpsest.streams.prompting.replies import (
    ExtractionDraft,
    FactDraft,
    MalformedReply,
    read_consolidation,
)
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.sensitive.policy import REFUSED, Policy
from palimpsest.streams.stage import Generate, ModelUnavailable
from palimpsest.streams.text.counts import counted

CONSOLIDATOR: Final = Actor(id="consolidator", type="system")
LEAST_TURNS: Final = 3
"""Minimum number of turns of a session from which facts are drawn."""
MOST_AT_ONCE: Final = 100
"""Sessions of a run on a partition, the oldest first."""
EXTRACTION_DAYS: Final = 1
"""How long a session waits for extraction to have read all of its turns."""
_SAID: Final = """type = 'episodic' AND NOT is_deleted
    AND list_contains({roles}, CASE role WHEN '' THEN 'user' ELSE role END)"""
# Only what extraction has read may be shown: not what was said while a scope was switched off.
_READ: Final = """SELECT DISTINCT turn_memory_id FROM extractions
    WHERE NOT starts_with(prompt_version, 'consolidate-')"""
_DUE: Final = f"""
SELECT s.scope, s.session_id, s.last_turn, list(m.who) FILTER (r.turn_memory_id IS NOT NULL)
FROM session_rows s JOIN (FROM memory_rows WHERE {_SAID.format(roles="$roles")}) m
        ON m.scope = s.scope AND m.session_id = s.session_id
    LEFT JOIN ({_READ}) r ON r.turn_memory_id = m.memory_id
WHERE s.session_id <> '' AND coalesce(s.scope = $scope, true)
    AND (s.ended_at IS NOT NULL OR s.last_recorded_at <= $idle)
    AND NOT EXISTS (FROM extractions e WHERE e.scope = s.scope AND e.turn_memory_id = s.last_turn
        AND starts_with(e.prompt_version, 'consolidate-'))
GROUP BY s.scope, s.session_id, s.last_turn, s.last_recorded_at
HAVING count(r.turn_memory_id) >= {LEAST_TURNS}
    AND NOT bool_or(m.created_at > $unread AND r.turn_memory_id IS NULL)
ORDER BY s.last_recorded_at, s.scope, s.session_id"""
_TURNS: Final = f"""{_SAID.format(roles="?")} AND scope = ? AND session_id = ?
    AND memory_id IN ({_READ})
ORDER BY occurred_at, created_at, write_seq"""


async def consolidation(context: JobContext) -> str:
    """Consolidates the sessions that are due; returns what it did. Raises JobFailed where the model
    answered for none of them."""
    models = language_models(context)
    if models is None:
        return "no language model is set (llm.provider): sessions are not consolidated"
    due = await asyncio.to_thread(_due, context, models)
    await finish_all(each.run() for each in due)
    failed = [each.why for each in due if each.why]
    if failed and len(failed) == len(due):
        raise JobFailed(f"none of {counted(len(failed), 'sessions')}: {failed[0]}")
    names = ("facts", "pages", "unreadable")
    facts, pages, unreadable = (sum(getattr(each, name) for each in due) for name in names)
    told = f"{counted(facts, 'facts')} from {counted(len(due) - len(failed), 'sessions')}"
    told += f", {counted(pages, 'pages')}"
    told += f", {unreadable} of them without a readable reply" if unreadable else ""
    return told + (f"; {counted(len(failed), 'sessions')} failed: {failed[0]}" if failed else "")


def _due(context: JobContext, models: ModelPort) -> list[_Session]:
    idle = context.at - timedelta(minutes=context.settings.short_term.idle_minutes)
    unread = context.at - timedelta(days=EXTRACTION_DAYS)
    roles = [*context.settings.extraction.roles]
    rows = due_rows(context, _DUE, roles=roles, idle=idle, unread=unread)
    due = []
    for scope, session_id, last_turn, speakers in rows:
        levels = context.shard.privacy.get(scope, {})
        shown = [who for who in speakers if not is_withheld(levels, who)]
        if len(shown) >= LEAST_TURNS:
            due.append(_Session(context, models, scope, session_id, last_turn))
    return due[:MOST_AT_ONCE]


@dataclass(slots=True)
class _Session:
    """A session while it is read page by page. `turns` are those that may be shown, by their
    numbers. `why`: the model did not answer, so it is asked again."""

    context: JobContext
    models: ModelPort
    scope: str
    session_id: str
    last_turn: str
    turns: dict[int, MemoryRow] = field(default_factory=dict)
    facts: int = 0
    pages: int = 0
    unreadable: int = 0
    why: str = ""

    async def run(self) -> None:
        await asyncio.to_thread(self._load)
        records: list[Outgoing] = []
        earlier: list[FactDraft] = []
        settings = self.context.settings.extraction
        pages = session_pages(self.turns, settings.max_input_characters)
        for page in pages:
            known = {fact.content: fact.turns for fact in earlier[-MAX_FACTS:]}
            said = {number: self.turns[number] for number in page}
            prompt = consolidation_prompt(said, known, settings.max_output_tokens)
            newest = self.turns[page[-1]]
            numbers = {*page}.union(*known.values())
            shown = {each: (self.turns[each].who, self.turns[each].content) for each in numbers}
            try:
                draft, call = await self._drawn(prompt, shown, newest.occurred_at)
            except ModelUnavailable as error:
                self.why, self.facts, self.pages = str(error), 0, 0
                return
            facts = [each for each in draft.facts if REFUSED not in each.content]
            last = self.last_turn if page is pages[-1] else newest.memory_id
            records += self._commands(last, facts, call, draft.warnings)
            earlier += facts
            self.facts += len(facts)
            self.pages += 1
        await asyncio.to_thread(self.context.append, records)

    def _load(self) -> None:
        given = [[*self.context.settings.extraction.roles], self.scope, self.session_id]
        with self.context.shard.reading() as reader:
            rows = select(reader, MemoryRow, _TURNS, given)
        levels = self.context.shard.privacy.get(self.scope, {})
        shown = (
            replace(row, content=spoken(row.content))
            for row in rows
            if not is_withheld(levels, row.who)
        )
        self.turns = dict(enumerate(shown, start=1))

    async def _drawn(
        self, prompt: Prompt, shown: Mapping[int, tuple[str, str]], said_at: datetime
    ) -> tuple[ExtractionDraft, ModelCall]:
        """Returns what the model draws from a page, nothing if no reply could be read. Raises
        ModelUnavailable."""
        for attempt in range(1, self.context.settings.worker.max_attempts + 1):
            ask = Generate(prompt, advisory=True, attempt=attempt)
            reply = await self.models.answer(ask, self.scope)
            if reply is None:
                raise ModelUnavailable("the model did not answer")
            call = model_call(reply, CONSOLIDATION_PROMPT_VERSION, attempt)
            try:
                draft = read_consolidation(reply.text, said_at, shown)
            except MalformedReply as error:
                why = str(error)
            else:
                return safe(draft, Policy.of(self.context.settings.pii)), call
        self.unreadable += 1
        return ExtractionDraft((), (), (f"no reply could be read: {why}",)), call

    def _commands(
        self, last: str, drafts: Iterable[FactDraft], call: ModelCall, warnings: tuple[str, ...]
    ) -> Iterator[Outgoing]:
        """Yields the commands of a page, one for each turn that is the newest of a fact's. The one
        of the turn `last` comes last: it has what the call cost."""
        by_turn: dict[str, list[Fact]] = defaultdict(list)
        of = ("session-fact", self.scope, self.session_id, call.model, call.prompt_version)
        for draft in drafts:
            *others, newest = (self.turns[number].memory_id for number in draft.turns)
            # What is drawn again, from a session that went on, is the same fact: it does not come
            # back where it was forgotten.
            item_id = derived_id(*of, draft.content)
            by_turn[newest].append(fact_of(draft, item_id, tuple(others)))
        own = by_turn.pop(last, [])
        free = call.model_copy(update=dict.fromkeys(("input_tokens", "output_tokens", "cost")))
        for memory_id, facts in by_turn.items():
            yield self._command(memory_id, facts, free)
        yield self._command(last, own, call, warnings)

    def _command(
        self, memory_id: str, facts: Iterable[Fact], call: ModelCall, warnings: tuple[str, ...] = ()
    ) -> Outgoing:
        rows = {row.memory_id: row for row in self.turns.values()}
        row = rows.get(memory_id)
        turn = TurnReference(
            turn_id=memory_id,
            memory_id=memory_id,
            session_id=self.session_id,
            speaker="" if row is None else row.who,
            project=None if row is None else row.project,
        )
        found = FactsExtracted(turn=turn, facts=tuple(facts), warnings=warnings, call=call)
        keys = dict.fromkeys(key for fact in found.facts for key in fact.sources(turn))
        sources = tuple(MemoryVersion(memory_id=key, version=rows[key].version) for key in keys)
        command = ConsolidateCommand(session_id=self.session_id, extraction=found, sources=sources)
        of = (self.session_id, self.last_turn, self.pages, call.model, memory_id)
        at = None if row is None else row.occurred_at
        return command_record(self.context, self.scope, command, CONSOLIDATOR, *of, at=at)
