"""The repairs of a partition, by the domain that each one mends.

Each can be repeated: what was repaired is no finding any more, so after a crash the next run does
the rest. Postings, vectors, keys and links follow from what is stored, and are made again in the
store; exact duplicates are merged by a command in the log, dead letters sent to their topics. Every
repair is recorded by a command, which the audit tells of.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import duckdb

from palimpsest.ops.embedding.tracker import catch_up
from palimpsest.ops.health.checkup import Checkup, Links, differing_vectors, missing_links
from palimpsest.ops.health.domains import DOMAINS, Counts, score_of
from palimpsest.ops.health.redriving import Redriver
from palimpsest.ops.lifecycle.shared import is_frozen
from palimpsest.schemas.commands import Merge, RepairCommand
from palimpsest.schemas.envelope import Actor, local_time
from palimpsest.schemas.memory_texts import embedding_key, embedding_text, linked_text
from palimpsest.schemas.rows.graph import MentionRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.index.fulltext import write_postings
from palimpsest.streams.runtime.output import own_command

if TYPE_CHECKING:
    from palimpsest.ops.scheduling.jobs import JobContext
    from palimpsest.ops.settings.sections import MaintenanceSettings
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.logs.base import Outgoing
    from palimpsest.streams.models.base import EmbeddingModel

MAINTENANCE: Final = Actor(id="maintenance", type="system")
BATCH: Final = 200
"""Memories repaired in one transaction: writers wait for one at the most."""
RESENT: Final = 1_000
"""Dead letters that one run sends again."""
MERGED: Final = 200
"""Memories that one command merges."""

Finding = tuple[str, str, str]
"""Kind, scope and id."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do: `findings` to mend, and in `figures` their number by scope and kind,
    with what cannot be mended."""

    findings: Sequence[Finding]
    figures: Mapping[str, Counts]

    @classmethod
    def of(cls, findings: Sequence[Finding], more: Mapping[tuple[str, str], int]) -> Plan:
        """`more` are further numbers by scope and kind."""
        counted = Counter((scope, kind) for kind, scope, _ in findings) + Counter(more)
        figures: dict[str, Counts] = {}
        for (scope, kind), number in sorted(counted.items()):
            figures.setdefault(scope, {})[kind] = number
        return cls(findings, figures)

    @property
    def scopes(self) -> list[str]:
        return [*self.figures]


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair of a partition, for `by`. Scopes that are `frozen` stay as they are. Without an
    `embedding` model the worker's tracker makes the vectors, a moment later. `sweep` is the
    retention sweep of the partition, where there is one."""

    checkup: Checkup
    append: Callable[[Sequence[Outgoing]], object]
    by: str
    frozen: Callable[[str], bool]
    embedding: EmbeddingModel | None = None
    sweep: Callable[[], Awaitable[object]] | None = None
    merges: dict[str, list[tuple[Merge, ...]]] = field(default_factory=dict)

    def plan(self, domain: str) -> Plan:
        """Blocks; changes nothing."""
        found = [each for each in self.checkup.findings(domain) if not self.frozen(each[1])]
        more: Counter[tuple[str, str]] = Counter()
        if domain == "queue":
            redriver = self._redriver()
            rows = redriver.rows([key for _, _, key in found[:RESENT]])
            refused = {row["id"] for row in rows if redriver.why_not(row) is not None}
            sendable = {row["id"] for row in rows} - refused
            more.update((scope, "refused") for _, scope, key in found if key in refused)
            found = [each for each in found if each[2] in sendable]
        elif domain == "index":
            for scope, number in differing_vectors(self.checkup).items():
                more[scope, "vectors"] += number
        elif domain == "storage" and self.sweep is None:
            found = []
        elif domain == "graph":
            found += [
                ("unlinked", mention.scope, f"{mention.memory_id} {mention.name_id}")
                for links in self._links()
                for mention in links.missing
                if not self.frozen(mention.scope)
            ]
        return Plan.of(found, more)

    async def act(self, domain: str, plan: Plan) -> bool:
        """Does what is planned; returns whether it is done, and not still to be processed."""
        return await _ACTS[domain](self, plan)

    def record(self, domain: str, plan: Plan, before: float, after: float | None) -> None:
        """Appends the record of a repair, a command for each scope; with it what is to be merged.
        Blocks."""
        at = self.checkup.at
        records = []
        for scope, figures in plan.figures.items():
            for merges in self.merges.get(scope, [()]):
                command = RepairCommand(
                    domain=domain,
                    by=self.by,
                    at=at,
                    figures=figures,
                    score_before=before,
                    score_after=after,
                    merges=merges,
                )
                records.append(own_command(scope, command, MAINTENANCE, at)[1])
        if records:
            self.append(records)

    # ---- queue ----
    def _redriver(self) -> Redriver:
        checkup = self.checkup
        return Redriver(checkup.shard, checkup.partition, checkup.settings, self.append, checkup.at)

    async def redrive(self, plan: Plan) -> bool:
        redriver = self._redriver()
        async for _ in redriver.redrive_all([key for _, _, key in plan.findings]):
            pass
        return False

    # ---- index ----
    async def index(self, plan: Plan) -> bool:
        """Writes the postings of memories again, and lets LanceDB follow."""
        shard = self.checkup.shard
        language = shard.options.search.language
        for ids in _batches(plan.findings):
            async with shard.lock:
                with _transaction(self.checkup) as connection:
                    rows = select(connection, MemoryRow, f"{_THESE} AND NOT is_deleted", [ids])
                    write_postings(connection, shard.tables, rows, ids, language)
        if any("vectors" in figures for figures in plan.figures.values()):
            await asyncio.to_thread(shard.vector_table().compare)
        self._show(plan)
        return True

    # ---- embeddings ----
    async def embeddings(self, plan: Plan) -> bool:
        """Corrects keys and removes vectors of another length, then embeds what has no vector."""
        shard = self.checkup.shard
        for ids in _batches(plan.findings):
            async with shard.lock:
                with _transaction(self.checkup) as connection:
                    for row in select(connection, MemoryRow, _THESE, [ids]):
                        if row.embedding_key not in (keys := _keys(row)):
                            connection.execute(_CORRECTED, [keys[0], row.memory_id])
                    connection.execute(
                        _OTHER_LENGTH, {**self.checkup.parameters(_OTHER_LENGTH), "ids": ids}
                    )
            shard.vector_table().note(ids)
        self._show(plan)
        shard.may_lack_vectors = True
        shard.vectors_changed += 1
        if self.embedding is None:
            return False
        table = shard.vector_table()
        await catch_up(shard, self.embedding, table, skip=self.frozen)
        return True

    # ---- graph ----
    def _links(self) -> Iterator[Links]:
        after: str | None = ""
        while after is not None:
            with self.checkup.shard.reading() as reader:
                links = missing_links(reader, self.checkup.scope, BATCH, after)
            after = links.last
            yield links

    async def graph(self, plan: Plan) -> bool:
        """Removes rows of what is gone, corrects counts, and links memories to known names."""
        shard = self.checkup.shard
        async with shard.lock:
            with _transaction(self.checkup) as connection:
                for statement in _GRAPH:
                    connection.execute(statement, [plan.scopes])
            for scope in plan.scopes:
                shard.names.forget(scope)
        for links in self._links():
            missing = [mention for mention in links.missing if not self.frozen(mention.scope)]
            if missing:
                async with shard.lock:
                    with _transaction(self.checkup):
                        shard.tables.insert_new(missing)
                    shard.known.add_rows(MentionRow, [mention.key for mention in missing])
        self._show(plan)
        return True

    # ---- duplicates ----
    async def duplicates(self, plan: Plan) -> bool:
        """Prepares the merges, which the record carries out."""
        ids = [key for kind, _, key in plan.findings if kind == "repeated"]
        found = self.checkup.shard.fetch(_KEPT, [ids])
        for scope, rows in groupby(found, key=lambda row: str(row[0])):
            listed = [*rows]
            for first in range(0, len(listed), MERGED):
                kept = groupby(listed[first : first + MERGED], key=lambda row: str(row[1]))
                merges = tuple(
                    Merge(keep=keep, forget=tuple(row[2] for row in group)) for keep, group in kept
                )
                self.merges.setdefault(scope, []).append(merges)
        return False

    # ---- storage ----
    async def storage(self, plan: Plan) -> bool:
        if self.sweep is not None:
            await self.sweep()
        return False

    def _show(self, plan: Plan) -> None:
        """Lets searches see what was repaired."""
        for scope in plan.scopes:
            self.checkup.shard.indexes.forget(scope)


_ACTS: Final[Mapping[str, Callable[[Repair, Plan], Awaitable[bool]]]] = {
    "queue": Repair.redrive,
    "index": Repair.index,
    "embeddings": Repair.embeddings,
    "graph": Repair.graph,
    "duplicates": Repair.duplicates,
    "storage": Repair.storage,
}
REPAIRS: Final = tuple(_ACTS)
"""The domains that can be repaired, in the order in which maintenance does it."""

_THESE: Final = "memory_id IN (SELECT unnest(?::VARCHAR[]))"
_CORRECTED: Final = "UPDATE memory_rows SET embedding_key = ? WHERE memory_id = ?"
_OTHER_LENGTH: Final = (
    "DELETE FROM embeddings WHERE model = $model AND len(vector) <> $dimensions AND embedding_key"
    " IN (SELECT embedding_key FROM memory_rows WHERE memory_id IN"
    " (SELECT unnest($ids::VARCHAR[])))"
)
_OF_SCOPES: Final = "scope IN (SELECT unnest(?::VARCHAR[]))"
_GRAPH: Final = (
    "DELETE FROM mention_rows WHERE (memory_id NOT IN (SELECT memory_id FROM memory_rows)"
    f" OR name_id NOT IN (SELECT name_id FROM name_rows)) AND {_OF_SCOPES}",
    "DELETE FROM attribute_rows WHERE (memory_id NOT IN (SELECT memory_id FROM memory_rows)"
    f" OR aspect_id NOT IN (SELECT aspect_id FROM aspect_rows)) AND {_OF_SCOPES}",
    "DELETE FROM relation_rows WHERE (source_name_id NOT IN (SELECT name_id FROM name_rows)"
    f" OR target_name_id NOT IN (SELECT name_id FROM name_rows)) AND {_OF_SCOPES}",
    "UPDATE name_rows SET mentions = told FROM (SELECT name_id, sum(mentions) AS told FROM ("
    " SELECT source_name_id AS name_id, mentions FROM relation_rows"
    " UNION ALL SELECT target_name_id, mentions FROM relation_rows) GROUP BY name_id) r"
    " WHERE name_rows.name_id = r.name_id AND mentions < 1 AND scope NOT IN"
    f" (SELECT scope FROM history_rows WHERE event = 'imported') AND {_OF_SCOPES}",
)
_KEPT: Final = """
SELECT d.scope, k.memory_id, d.memory_id FROM memory_rows d JOIN memory_rows k
    ON k.scope = d.scope AND k.type = d.type AND k.content_hash = d.content_hash
WHERE d.memory_id IN (SELECT unnest(?::VARCHAR[])) AND NOT d.is_deleted AND NOT k.is_deleted
    AND (k.valid_from IS NULL OR k.valid_until IS NULL)
QUALIFY row_number() OVER (PARTITION BY d.memory_id
    ORDER BY k.pinned OR k.decay_rate = 0 DESC, k.created_at, k.memory_id) = 1
ORDER BY ALL"""


def _keys(row: MemoryRow) -> tuple[str, ...]:
    """The keys that a memory's text may have: today's, and those of earlier versions."""
    text = (row.type, row.who, row.content)
    said_at = local_time(row.occurred_at, row.utc_offset_minutes or 0)
    texts = [embedding_text(*text, said_at, row.role)]
    if row.type == "episodic":
        for at in (said_at, row.occurred_at):
            texts += [embedding_text(*text, at), embedding_text(*text, at, "assistant")]
        texts.append(linked_text(*text))
    return tuple(map(embedding_key, texts))


def _batches(findings: Sequence[Finding]) -> Iterator[list[str]]:
    ids = sorted({key for _, _, key in findings})
    for first in range(0, len(ids), BATCH):
        yield ids[first : first + BATCH]


@contextmanager
def _transaction(checkup: Checkup) -> Iterator[duckdb.DuckDBPyConnection]:
    """A transaction of the shard's own connection; under its lock."""
    with checkup.shard.writing() as connection:
        connection.execute("BEGIN")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


# ---- scheduled maintenance ----
TRIES: Final = 3
"""Repairs in a row without a better score after which a domain is left alone until it is
healthy."""
HOUR: Final = timedelta(hours=1)
_STATE: Final = "repair"


@dataclass(frozen=True, slots=True)
class RepairState:
    """What is known of a domain's repairs. `runs` are those of the last hour and the last one;
    `before` is the score before the last one while its effect is unknown, with its `figures` by
    scope; `failures` is the number of repairs in a row without a better score. `is_done`: the last
    one was not interrupted."""

    runs: tuple[str, ...] = ()
    before: float | None = None
    figures: dict[str, Counts] | None = None
    failures: int = 0
    is_done: bool = True

    @property
    def is_halted(self) -> bool:
        return self.failures >= TRIES

    def judged(self, score: float) -> RepairState:
        """After the effect of the last repair is known."""
        failures = self.failures + 1 if score <= (self.before or 0.0) else 0
        return replace(self, before=None, figures=None, failures=failures)

    def ran(self, at: datetime, before: float, plan: Plan) -> RepairState:
        """When a repair begins."""
        recent = [each for each in self.runs if at - datetime.fromisoformat(each) < HOUR]
        return RepairState(
            runs=(*recent, at.isoformat()),
            before=before,
            figures={scope: {**counts} for scope, counts in plan.figures.items()},
            failures=self.failures + (not self.is_done),
            is_done=False,
        )

    def why_not(self, at: datetime, settings: MaintenanceSettings) -> str | None:
        """Returns why a scheduled repair must wait, or None. An interrupted one goes on at once."""
        if self.is_halted:
            return f"halted: {self.failures} repairs in a row did not help"
        ages = [at - datetime.fromisoformat(each) for each in self.runs]
        cooldown = timedelta(minutes=settings.cooldown_minutes)
        if self.is_done and ages and min(ages) < cooldown:
            return f"repaired less than {settings.cooldown_minutes:g} minutes ago"
        if sum(age < HOUR for age in ages) >= settings.hourly_budget:
            return f"repaired {settings.hourly_budget} times in this hour"
        return None


def repair_state(shard: Shard, domain: str) -> RepairState:
    """What the store knows of the repairs of a domain. Blocks."""
    rows = shard.fetch("SELECT value FROM shard_state WHERE name = ?", [f"{_STATE} {domain}"])
    if not rows:
        return RepairState()
    known = json.loads(rows[0][0])
    return RepairState(**{**known, "runs": tuple(known["runs"])})


async def keep_state(shard: Shard, domain: str, state: RepairState) -> None:
    async with shard.lock:
        with shard.writing():
            shard.set_state(f"{_STATE} {domain}", json.dumps(asdict(state)))


async def maintain(
    context: JobContext, sweep: Callable[[JobContext], Awaitable[object]] | None = None
) -> str:
    """The scheduled job: returns what it did, or what it would do (`maintenance.mode`). `sweep` is
    the job that removes what is past its window."""
    checkup = Checkup(
        context.shard,
        context.partition,
        context.settings,
        context.log,
        context.at,
        scope=context.scope,
    )
    frozen = partial(is_frozen, context.shard, context.settings)
    swept = None if sweep is None else partial(sweep, context)
    told = []
    for domain in REPAIRS:
        repair = Repair(checkup, context.append, MAINTENANCE.id, frozen, sweep=swept)
        found = await _look(repair, domain)
        if found is not None:
            told.append(f"{domain}: {found}")
    return "; ".join(told) or "nothing to repair"


async def _look(repair: Repair, domain: str) -> str | None:
    """Returns what was done in a domain, or why nothing; None if nothing is needed."""
    checkup = repair.checkup
    settings = checkup.settings.maintenance
    counts = await asyncio.to_thread(checkup.counts, domain)
    score, is_due = score_of(domain, counts), DOMAINS[domain].is_due(counts)
    state = await _settled(repair, domain, score, is_due)
    if not is_due:
        return None
    reason = DOMAINS[domain].reason(counts)
    if settings.mode == "observe":
        return f"{reason} (`{DOMAINS[domain].remedy(counts)}`)"
    wait = state.why_not(checkup.at, settings)
    if wait is not None:
        return f"{reason}; {wait}"
    plan = await asyncio.to_thread(repair.plan, domain)
    if not plan.scopes:
        return f"{reason}; nothing that may be repaired now"
    after = await execute(repair, domain, plan, score, state)
    return f"{reason}; repaired, score {score:g}" + ("" if after is None else f" to {after:g}")


async def _settled(repair: Repair, domain: str, score: float, is_due: bool) -> RepairState:
    """Judges the last repair of a domain, whose effect is known by now, and ends a halt once there
    is nothing to repair."""
    shard = repair.checkup.shard
    known = state = await asyncio.to_thread(repair_state, shard, domain)
    # Where nothing is left to repair, an interrupted repair had come to its end.
    if state.before is not None and (state.is_done or not is_due):
        plan = Plan((), state.figures or {})
        await asyncio.to_thread(repair.record, domain, plan, state.before, score)
        state = state.judged(score)
    if not is_due:
        state = replace(state, failures=0, is_done=True)
    if state != known:
        await keep_state(shard, domain, state)
    return state


async def execute(
    repair: Repair, domain: str, plan: Plan, before: float, state: RepairState
) -> float | None:
    """Repairs a domain as planned and records it. Returns the score after it, or None while the
    pipeline still has to process it.

    The state is kept first: a crash in the middle counts as a try, and the next run goes on."""
    checkup = repair.checkup
    state = state.ran(checkup.at, before, plan)
    await keep_state(checkup.shard, domain, state)
    after = None
    if await repair.act(domain, plan):
        after = score_of(domain, await asyncio.to_thread(checkup.counts, domain))
    await asyncio.to_thread(repair.record, domain, plan, before, after)
    state = replace(state, is_done=True)
    await keep_state(checkup.shard, domain, state if after is None else state.judged(after))
    return after
