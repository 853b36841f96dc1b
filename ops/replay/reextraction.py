"""Re-extraction: another model reads old turns again and writes into a separate branch.

`reextract` creates or continues the branch up to the present state of the live memory; it may be
interrupted at any moment and called again. It only reads the live memory, from its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import duckdb

from palimpsest.ops.embedded import Application, application
from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.log_folder import log_lock, worker_runs
from palimpsest.ops.maintenance.upkeep import Upkeep
from palimpsest.ops.opening import number_of
from palimpsest.ops.parts import SetupError, embedding_model, language_model, shard_folder, utc_now
from palimpsest.ops.recorded_replies import recorded_replies
from palimpsest.ops.replay.branches import (
    COPIES,
    Branch,
    Selection,
    branch_folder,
    branch_settings,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.budget import Budget, BudgetedModel
from palimpsest.ops.replay.counterparts import Counterparts
from palimpsest.ops.replay.curation import Curation
from palimpsest.ops.replay.feeding import FedClock, Feeding, Pacing
from palimpsest.ops.replay.ledger import Ledger, Spent
from palimpsest.ops.replay.live_log import LiveLog, blocks, check_whole, decoded
from palimpsest.ops.replay.live_stores import attached
from palimpsest.ops.replay.progress import Report, unreported
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.replay.standing import check_log, drop_unused
from palimpsest.ops.replay.stored_embeddings import StoredEmbeddings, table_in
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import with_overrides
from palimpsest.schemas.messages import FactsExtracted, NormalizedTurn
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.topics import DEAD_LETTERS, FACTS_EXTRACTED, MEMORY_WRITES, TURNS_NORMALIZED
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel, Vector
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.source import Interrupted
from palimpsest.streams.stage import Context, Emit, Message, Process, Stage, Step

# --- recorded extraction --------------------------------------------------------------------------
# The stage extract of a branch reuses the live extraction for turns that are not extracted again.


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded extraction of a turn; `body` is None if nothing was extracted."""

    body: FactsExtracted | None


def recorded_extraction(stage: Stage, recorded: Callable[[Message], Recorded | None]) -> Stage:
    """Returns the stage extract that calls a model only for turns without a `recorded`
    extraction."""

    def process(message: Message, context: Context) -> Process:
        known = recorded(message)
        if known is None:
            return (yield from stage.process(message, context))
        if known.body is None:
            return Step()
        return Step(emits=(Emit(FACTS_EXTRACTED, known.body, "facts"),))

    return replace(stage, process=process)


# --- selecting ------------------------------------------------------------------------------------
# Selects the turns to extract again.


def is_among(message: Message, selection: Selection) -> bool:
    """Returns whether a turn is within the scope and the time of the selection."""
    told = message.occurred_at
    return (
        selection.scope in (None, message.scope)
        and (selection.since is None or told >= selection.since)
        and (selection.until is None or told < selection.until)
    )


def chosen_turns(reader: LogReader, selection: Selection) -> Iterator[Message]:
    """Yields all turns within the selection's scope and time that the live memory sent to a model,
    partition by partition. Blocks."""
    topic = TURNS_NORMALIZED
    for partition in range(reader.partitions(topic.name)):
        end = reader.end_offset(topic.name, partition)
        for records in blocks(reader, topic, partition, 0, end):
            for record in records:
                message = decoded(record)
                body = None if message is None else message.body
                if message is None or not isinstance(body, NormalizedTurn):
                    continue
                if is_among(message, selection) and not is_mark(body.content):
                    yield message


def hashed_order(message_id: str) -> bytes:
    """Returns a turn's sort key in an order independent of its time and scope."""
    return hashlib.sha256(message_id.encode()).digest()


# --- reextraction ---------------------------------------------------------------------------------

UNTOLD: Final = "api_key"
"""The suffix of the names of settings that are never shown."""


@dataclass(frozen=True, slots=True)
class Reextraction:
    """A request. `overrides` are the settings that differ, as `--set` takes them; `rate` is in
    turns per second; `budget_tokens` limits the tokens that all runs of this branch read and
    write."""

    branch: str
    overrides: tuple[str, ...] = ()
    selection: Selection = Selection()
    rate: float | None = None
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reextracted:
    """The result of one run. `spent` covers all runs; `waiting` counts the live records that the
    live memory itself has not finished; `dead` counts the branch's dead letters."""

    branch: Branch
    ended: Literal["done", "stopped", "budget"]
    turns: int
    commands: int
    spent: Spent
    waiting: int
    dead: int


async def reextract(
    settings: Settings,
    asked: Reextraction,
    report: Report = unreported,
    stopping: asyncio.Event | None = None,
) -> Reextracted:
    """Creates or continues the branch until it has all that the live memory has executed,
    `stopping` is set or the budget is exhausted. Raises RequestError, SetupError, SettingsError,
    LogError, StoreError or FolderInUse; each message says what to do."""
    try:
        return await _reextract(settings, asked, report, stopping or asyncio.Event())
    except SetupError:
        _drop_unfed(settings, asked.branch)
        raise


def _drop_unfed(settings: Settings, name: str) -> None:
    """Drops a branch whose models could not be used: it would occupy its name."""
    with contextlib.suppress(RequestError):  # there is none, or another process feeds it
        if not read_branch(settings, name).read_through:
            drop_unused(settings, name)


async def _reextract(
    settings: Settings, asked: Reextraction, report: Report, stop: asyncio.Event
) -> Reextracted:
    with reading_log(settings) as reader:
        branch = the_branch(settings, asked, reader)
        await asyncio.to_thread(check_whole, reader, branch.read_through)
        with Ledger.opened(branch_folder(settings, branch.name)) as ledger:
            live = LiveLog(reader, ledger)
            if branch.selection and branch.selection.sample and not ledger.has_sample:
                await asyncio.to_thread(_take_sample, live, branch.selection)
            budget = Budget(ledger, asked.budget_tokens)
            async with _branch_application(settings, branch, live, budget) as (app, clock):
                feeding = _feeding(settings, asked, branch, live, app, clock, budget, report, stop)
                async with _stopping(app, stop):
                    finished = await feeding.all()
                    if finished and (feeding.fed.turns or feeding.fed.commands):
                        await _keep_up(app, stop)
                return Reextracted(
                    branch=feeding.branch,
                    ended="done" if finished else "budget" if budget.is_exhausted else "stopped",
                    turns=feeding.fed.turns,
                    commands=feeding.fed.commands,
                    spent=ledger.spent(),
                    waiting=feeding.fed.waiting,
                    dead=_dead_letters(app),
                )


def differing(
    settings: Settings,
    overrides: Sequence[str] = (),
    provider: str | None = None,
    model: str | None = None,
) -> tuple[str, ...]:
    """Returns the overrides of a branch whose turns this model reads, by name; the last one wins
    for a setting given twice. Raises RequestError if the live settings hold a model or an address
    that fits only the live provider, for secrets, since anyone may read the branch's file, and for
    settings of the log, since a branch reads the live one."""
    with_overrides(settings, overrides)
    given = {flag.partition("=")[0].strip() for flag in overrides}
    secret = sorted(key for key in given if key.endswith(UNTOLD))
    if secret:
        raise RequestError(
            f"{', '.join(secret)} is a secret, and a branch's settings are kept in its file: set it"
            " in the environment or in palimpsest.toml for this command"
        )
    fixed = sorted(key for key in given if key == "data_dir" or key.startswith(("log.", "kafka.")))
    if fixed:
        raise RequestError(f"{', '.join(fixed)}: a branch reads the live log; it has no other")
    if provider is not None and provider != settings.llm.provider:
        if model is None and settings.llm.model is not None and "llm.model" not in given:
            raise RequestError(
                f"llm.model is {settings.llm.model}, of {settings.llm.provider}: name the model of"
                f" {provider} with --model"
            )
        if settings.llm.base_url is not None and "llm.base_url" not in given:
            raise RequestError(
                f"llm.base_url is {settings.llm.base_url}, of {settings.llm.provider}: name the"
                f" address of {provider} with --set llm.base_url=…"
            )
    own = (("llm.provider", provider), ("llm.model", model))
    flags = [*overrides, *(f"{key}={value}" for key, value in own if value is not None)]
    values = {key.strip(): value for key, _, value in (flag.partition("=") for flag in flags)}
    return tuple(f"{key}={value}" for key, value in sorted(values.items()))


def the_branch(settings: Settings, asked: Reextraction, reader: LogReader) -> Branch:
    """Returns the requested branch and creates it if it does not exist. Raises RequestError if a
    different branch has this name."""
    branch_folder(settings, asked.branch)  # reports an invalid name as such
    try:
        branch = read_branch(settings, asked.branch)
    except NotFoundError:
        branch = Branch(
            name=asked.branch,
            kind="reextraction",
            created_at=utc_now(),
            partitions=reader.partitions(MEMORY_WRITES.name),
            settings=asked.overrides,
            selection=asked.selection,
            of_log=number_of(reader),
        )
        branch_settings(settings, branch)  # reports invalid settings before creating anything
        keep_branch(settings, branch)
        return branch
    if branch.kind != "reextraction":
        raise RequestError(
            f"the branch {branch.name} is one of `palimpsest replay rebuild`; choose another name,"
            f" or remove it with `palimpsest replay drop {branch.name}`"
        )
    check_log(branch, reader)
    unsaid = (asked.overrides, asked.selection) == ((), Selection())
    if not unsaid and (asked.overrides, asked.selection) != (branch.settings, branch.selection):
        raise RequestError(
            f"the branch {branch.name} was made with {_told(branch.settings, branch.selection)},"
            f" not with {_told(asked.overrides, asked.selection)}: choose another name, name the"
            " same settings or none, or remove it with `palimpsest replay drop"
            f" {branch.name}`"
        )
    return branch


def _told(overrides: Sequence[str], selection: Selection | None) -> str:
    chosen = {} if selection is None else selection.model_dump(mode="json", exclude_none=True)
    parts = [*overrides, *(f"{name}={value}" for name, value in chosen.items())]
    return ", ".join(parts) or "the live settings and all turns"


def _take_sample(live: LiveLog, selection: Selection) -> None:
    """Fixes the sample: the turns with the smallest hashes among all present ones."""
    ids = (message.id for message in chosen_turns(live.reader, selection))
    live.ledger.note_sampled(heapq.nsmallest(selection.sample or 0, ids, key=hashed_order))


@contextlib.asynccontextmanager
async def _branch_application(
    settings: Settings, branch: Branch, live: LiveLog, budget: Budget
) -> AsyncIterator[tuple[Application, FedClock]]:
    """Yields the branch's own stages on its own log. Raises SetupError for an unusable model."""
    clock = FedClock(utc_now())
    selection = branch.selection or Selection()

    def recorded(message: Message) -> Recorded | None:
        if is_among(message, selection) and (
            selection.sample is None or live.ledger.is_sampled(message.id)
        ):
            return None
        body = message.body
        is_erased = isinstance(body, NormalizedTurn) and is_mark(body.content)
        return Recorded(None if is_erased else live.extracted(message))

    def adapted(stage: Stage) -> Stage:
        return recorded_extraction(stage, recorded) if stage.name == "extract" else stage

    own = branch_settings(settings, branch)

    def embedding(own: Settings) -> EmbeddingModel:
        return StoredEmbeddings(embedding_model(own), stored)

    with _replies_of_live(settings, own) as replies:
        async with (
            live_embeddings(settings, branch, live.reader) as stored,
            application(
                own,
                clock=clock,
                make_language=partial(branch_language_model, budget=budget),
                make_embedding=embedding,
                adapted=adapted,
                replies=replies,
            ) as app,
        ):
            if app.gate.unusable is not None:
                raise SetupError(
                    f"the language model of the branch cannot be used: {app.gate.unusable}\n"
                    "Nothing was fed; the same command goes on once it can be"
                )
            budget.exhausted = app.stop
            yield app, clock


@contextlib.contextmanager
def _replies_of_live(settings: Settings, own: Settings) -> Iterator[RecordedReplies | None]:
    """Yields the recorded replies of models to any branch and to the live memory. They lie in the
    live data directory and are erased there with their subject."""
    replies = recorded_replies(own.model_copy(update={"data_dir": settings.data_dir}), utc_now)
    try:
        yield replies
    finally:
        if replies is not None:
            replies.close()


def branch_language_model(settings: LlmSettings, budget: Budget) -> LanguageModel:
    """Returns the language model of a branch's stages; nothing else creates it. Recorded replies
    are found before a request reaches the budget."""
    model = language_model(settings)
    return model if settings.provider == "rules" else BudgetedModel(model, budget)


def _feeding(
    settings: Settings,
    asked: Reextraction,
    branch: Branch,
    live: LiveLog,
    app: Application,
    clock: FedClock,
    budget: Budget,
    report: Report,
    stopping: asyncio.Event,
) -> Feeding:
    async def drain() -> bool:
        try:
            return await app.drain()
        except Interrupted:
            if budget.is_exhausted:
                return False
            raise

    async def embed(texts: Sequence[str]) -> Sequence[Vector | None]:
        return (await app.models.embed(texts)).vectors

    def curation(number: int) -> Curation:
        return Curation(live, Counterparts(live, app.shards[number], embed, app.settings.near))

    selection = branch.selection or Selection()
    return Feeding(
        app=app,
        live=live,
        clock=clock,
        branch=branch,
        keep=partial(keep_branch, settings),
        drain=drain,
        curation=curation,
        partial=selection != Selection(),
        pacing=Pacing(asked.rate),
        report=report,
        stopping=stopping,
    )


@contextlib.asynccontextmanager
async def _stopping(app: Application, stopping: asyncio.Event) -> AsyncIterator[None]:
    """Stops the stages once `stopping` is set; they finish the work in progress."""

    async def watch() -> None:
        await stopping.wait()
        app.stop()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_up(app: Application, stopping: asyncio.Event) -> None:
    """Runs a worker's background upkeep once: missing vectors, LanceDB's copy."""
    shards = dict(enumerate(app.shards))
    await Upkeep(lambda: shards, app.embedding, app.settings.pipeline).finish(stopping)


def _dead_letters(app: Application) -> int:
    partitions: Iterable[int] = range(len(app.shards))
    return sum(app.log.end_offset(DEAD_LETTERS.name, number) for number in partitions)


# Copies the vectors of the live stores for a branch, so that a text of the live memory is not
# embedded again. The copies hold hashes of the texts, not the texts.

LEAST_RECORDS: Final = 100
"""Below this number of records, embedding costs less than copying."""


@contextlib.asynccontextmanager
async def live_embeddings(
    settings: Settings, branch: Branch, reader: LogReader
) -> AsyncIterator[Sequence[Path]]:
    """Yields files with the live vectors, which exist as long as the block runs: none if the branch
    uses another embedding model or has little to embed. Skips live stores that cannot be read."""
    folder = branch_folder(settings, branch.name) / COPIES
    shutil.rmtree(folder, ignore_errors=True)
    own = branch_settings(settings, branch)
    if own.embedding_model != settings.embedding_model or _behind(branch, reader) < LEAST_RECORDS:
        yield ()
        return
    folder.mkdir(parents=True)
    try:
        yield await _copied(settings, range(branch.partitions), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _behind(branch: Branch, reader: LogReader) -> int:
    return sum(
        reader.end_offset(MEMORY_WRITES.name, number) - branch.read_through.get(number, 0)
        for number in range(branch.partitions)
    )


async def _copied(settings: Settings, partitions: Sequence[int], folder: Path) -> list[Path]:
    copies = []
    if settings.log.kind == "embedded" and not worker_runs(log_lock(settings)):
        for partition in partitions:
            with contextlib.suppress(FolderInUse, duckdb.Error, OSError):
                copies.append(_of_store(shard_folder(settings, partition), partition, folder))
        return copies
    async with queries(settings) as found:
        for partition in partitions:
            whole = folder / f"{partition}.whole.duckdb"
            with contextlib.suppress(RequestError, duckdb.Error, OSError):
                await found.copy_shard(partition, whole)
                copies.append(_vectors_of(whole, partition, folder))
            whole.unlink(missing_ok=True)
    return copies


def _of_store(store: Path, partition: int, folder: Path) -> Path:
    lock = FolderLock(store, "shard")
    try:
        return _vectors_of(store / DATABASE_FILE, partition, folder)
    finally:
        lock.release()


def _vectors_of(store: Path, partition: int, folder: Path) -> Path:
    path = folder / f"{partition}.duckdb"
    with attached({"live": store}) as connection:
        connection.execute(f"ATTACH {quoted(str(path))} AS vectors")
        table = table_in(connection, "embeddings")
        connection.execute(f"CREATE TABLE vectors.embeddings AS FROM live.{table}")
    return path
