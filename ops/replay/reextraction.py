"""Re-extraction: another model reads old turns again and writes into a separate branch.

`reextract` creates or continues the branch up to the present state of the live memory; it may be
interrupted at any moment and called again. It only reads the live memory, from its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.maintenance.process import Upkeep
from palimpsest.ops.maintenance.recorded_replies import recorded_replies
from palimpsest.ops.opening import number_of
from palimpsest.ops.parts import (
    SetupError,
    check_embedding,
    embedding_model,
    language_model,
    utc_now,
)
from palimpsest.ops.replay.branches import (
    BranchManifest,
    TurnSelection,
    branch_folder,
    branch_settings,
    check_log,
    drop_unused,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.feeding import Budget, BudgetedModel, FedClock, Feeding, Pacing, size_of
from palimpsest.ops.replay.live_log import Ledger, LiveLog, Spent, check_whole
from palimpsest.ops.replay.live_stores import StoredEmbeddings, live_embeddings
from palimpsest.ops.replay.log_reading import decoded, intent_of, reading_log, recorded
from palimpsest.ops.replay.requests import Reextract, Report, unreported
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import with_overrides
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.extraction import Fact, FactsExtracted, ModelCall
from palimpsest.schemas.messages import NormalizedTurn, ProposalsIntent
from palimpsest.schemas.topics import (
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    TURNS_NORMALIZED,
    Topic,
)
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.models.base import LanguageModel, Prices
from palimpsest.streams.models.settings import DEFAULT_LLM_MODELS, RULES, LlmSettings
from palimpsest.streams.prompting.prompts import decision_prompt, extraction_prompt
from palimpsest.streams.stage import Context, Emit, Message, Process, Stage, Step


@dataclass(frozen=True, slots=True)
class Reextracted:
    """The result of one run. `spent` covers all runs; `waiting` counts the live records that the
    live memory itself has not finished; `dead` counts the branch's dead letters."""

    branch: BranchManifest
    ended: Literal["done", "stopped", "budget"]
    turns: int
    commands: int
    spent: Spent
    waiting: int
    dead: int


def reextracted_json(done: Reextracted) -> dict[str, object]:
    """Returns the result of a re-extraction for programs; `notes` say what is left to do."""
    notes = []
    if done.dead:
        notes.append(f"the branch has {done.dead:,} dead letters; `dead-letters list` shows them")
    if done.waiting:
        notes.append(
            f"{done.waiting:,} records of the live memory are not finished there; feed the branch"
            " again when they are"
        )
    if done.ended == "budget":
        notes.append("the budget of tokens is used up; the same command with a larger one goes on")
    if done.ended == "stopped":
        notes.append("stopped; the same command goes on from there")
    branch = done.branch.model_dump(mode="json")
    return {**asdict(done), "branch": branch, "notes": notes}


async def reextract(
    settings: Settings,
    asked: Reextract,
    report: Report = unreported,
    stopping: asyncio.Event | None = None,
) -> Reextracted:
    """Creates or continues the branch until it has all that the live memory has executed,
    `stopping` is set or the budget is exhausted. Raises RequestError, SetupError, SettingsError,
    LogError, StoreError or FolderInUse; each message says what to do."""
    try:
        return await _reextract(settings, asked, report, stopping or asyncio.Event())
    except SetupError:
        # A branch whose models could not be used would occupy its name.
        with contextlib.suppress(RequestError):  # there is none, or another process feeds it
            if not read_branch(settings, asked.branch).read_through:
                drop_unused(settings, asked.branch)
        raise


async def _reextract(
    settings: Settings, asked: Reextract, report: Report, stop: asyncio.Event
) -> Reextracted:
    with reading_log(settings) as reader:
        branch = the_branch(settings, asked, reader)
        await asyncio.to_thread(check_whole, reader, branch.read_through)
        with Ledger.opened(branch_folder(settings, branch.name)) as ledger:
            live = LiveLog(reader, ledger)
            if branch.selection and branch.selection.sample and not ledger.has_sample:
                await asyncio.to_thread(_take_sample, live, branch.selection)
            budget = Budget(ledger, asked.budget_tokens)
            made = _branch_application(settings, branch, live, budget, stop)
            async with made as (app, clock):
                pacing = Pacing(asked.rate)
                feeding = Feeding(settings, app, live, clock, branch, budget, pacing, report, stop)
                finished = await feeding.all()
                if finished and (feeding.turns or feeding.commands):
                    # A worker's upkeep, once: missing vectors, LanceDB's copy.
                    await Upkeep(app.opened, app.tracker(publishes=False)).finish(stop)
                return Reextracted(
                    branch=feeding.branch,
                    ended="done" if finished else "budget" if budget.is_exhausted else "stopped",
                    turns=feeding.turns,
                    commands=feeding.commands,
                    spent=ledger.spent(),
                    waiting=feeding.waiting,
                    dead=sum(app.log.end_offset(DEAD_LETTERS.name, each) for each in app.shards),
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
    values = {key.strip(): value for key, _, value in (flag.partition("=") for flag in overrides)}
    secret = sorted(key for key in values if key.endswith("api_key"))
    if secret:
        raise RequestError(
            f"{', '.join(secret)} is a secret, and a branch's settings are kept in its file: set it"
            " in the environment or in palimpsest.toml for this command"
        )
    fixed = sorted(key for key in values if key == "data_dir" or key.startswith(("log.", "kafka.")))
    if fixed:
        raise RequestError(f"{', '.join(fixed)}: a branch reads the live log; it has no other")
    is_other = provider is not None and provider != settings.llm.provider
    if is_other and provider == RULES:  # there is one model, and nothing to connect to
        model = model or values.get("llm.model", DEFAULT_LLM_MODELS[RULES])
    elif is_other:
        if model is None and settings.llm.model is not None and "llm.model" not in values:
            raise RequestError(
                f"llm.model is {settings.llm.model}, of {settings.llm.provider}: name the model of"
                f" {provider} with --model"
            )
        if settings.llm.base_url is not None and "llm.base_url" not in values:
            raise RequestError(
                f"llm.base_url is {settings.llm.base_url}, of {settings.llm.provider}: name the"
                f" address of {provider} with --set llm.base_url=…"
            )
    own = {"llm.provider": provider, "llm.model": model}
    values |= {key: value for key, value in own.items() if value is not None}
    return tuple(f"{key}={value}" for key, value in sorted(values.items()))


def the_branch(settings: Settings, asked: Reextract, reader: LogReader) -> BranchManifest:
    """Returns the requested branch and creates it if it does not exist. Raises RequestError if a
    different branch has this name."""
    branch_folder(settings, asked.branch)  # reports an invalid name as such
    selection = _selection_of(asked)
    try:
        branch = read_branch(settings, asked.branch)
    except NotFoundError:
        branch = BranchManifest(
            name=asked.branch,
            kind="reextraction",
            partitions=reader.partitions(MEMORY_WRITES.name),
            settings=asked.overrides,
            selection=selection,
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
    unsaid = (asked.overrides, selection) == ((), TurnSelection())
    if not unsaid and (asked.overrides, selection) != (branch.settings, branch.selection):
        raise RequestError(
            f"the branch {branch.name} was made with {_told(branch.settings, branch.selection)},"
            f" not with {_told(asked.overrides, selection)}: choose another name, name the"
            " same settings or none, or remove it with `palimpsest replay drop"
            f" {branch.name}`"
        )
    return branch


def _told(overrides: Sequence[str], selection: TurnSelection | None) -> str:
    chosen = {} if selection is None else selection.model_dump(mode="json", exclude_none=True)
    parts = [*overrides, *(f"{name}={value}" for name, value in chosen.items())]
    return ", ".join(parts) or "the live settings and all turns"


def _take_sample(live: LiveLog, selection: TurnSelection) -> None:
    """Fixes the sample: the turns with the smallest hashes among all present ones, in an order
    independent of time and scope."""
    ids = (message.id for message in _chosen_turns(live.reader, selection))
    smallest = heapq.nsmallest(
        selection.sample or 0, ids, key=lambda each: hashlib.sha256(each.encode()).digest()
    )
    live.ledger.note_sampled(smallest)


@contextlib.asynccontextmanager
async def _branch_application(
    settings: Settings, branch: BranchManifest, live: LiveLog, budget: Budget, stop: asyncio.Event
) -> AsyncIterator[tuple[Application, FedClock]]:
    """Yields the branch's own stages on its own log, which finish the work in progress once `stop`
    is set. Raises SetupError for an unusable model."""

    def make_language(llm: LlmSettings) -> LanguageModel:
        # Recorded replies are found before a request reaches the budget.
        model = language_model(llm)
        return model if llm.provider == "rules" else BudgetedModel(model, budget)

    clock = FedClock(utc_now())
    own = branch_settings(settings, branch)
    # Recorded replies, to any branch and to the live memory, lie in the live data folder and are
    # erased there with their subject.
    replies = recorded_replies(own.model_copy(update={"data_dir": settings.data_dir}), utc_now)
    async with contextlib.AsyncExitStack() as undo:
        if replies is not None:
            undo.callback(replies.close)
        stored = await undo.enter_async_context(live_embeddings(settings, branch, live.reader))
        app = await undo.enter_async_context(
            application(
                own,
                clock=clock,
                make_language=make_language,
                make_embedding=lambda own: StoredEmbeddings(embedding_model(own), stored),
                adapted=partial(_extracting, branch.selection or TurnSelection(), live),
                replies=replies,
            )
        )
        await check_embedding(app.embedding)
        if app.gate.unusable is not None:
            raise SetupError(
                f"the language model of the branch cannot be used: {app.gate.unusable}\n"
                "Nothing was fed; the same command goes on once it can be"
            )
        budget.exhausted = app.stop
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda done: None if done.cancelled() else app.stop())
        undo.callback(stopping.cancel)
        yield app, clock


def _extracting(selection: TurnSelection, live: LiveLog, stage: Stage) -> Stage:
    """Returns the stage; extract calls a model only for the selected turns, and repeats the live
    extraction of the others, if there is one."""

    def process(message: Message, context: Context) -> Process:
        if selection.has(message.scope, message.occurred_at) and (
            selection.sample is None or live.ledger.is_sampled(message.id)
        ):
            return (yield from stage.process(message, context))
        turn = message.body
        is_erased = isinstance(turn, NormalizedTurn) and is_mark(turn.content)
        body = None if is_erased else live.extracted(message)
        return Step() if body is None else Step(emits=(Emit(FACTS_EXTRACTED, body, "facts"),))

    return replace(stage, process=process) if stage.name == "extract" else stage


# --- selected turns -------------------------------------------------------------------------------


def _selection_of(request: Reextract) -> TurnSelection:
    return TurnSelection(**{name: getattr(request, name) for name in TurnSelection.model_fields})


def _chosen_turns(reader: LogReader, selection: TurnSelection) -> Iterator[Message]:
    """Yields all turns within the selection's scope and time that the live memory sent to a model,
    partition by partition. Blocks."""
    for message in _messages(reader, TURNS_NORMALIZED, selection):
        if isinstance(message.body, NormalizedTurn) and not is_mark(message.body.content):
            yield message


def _messages(reader: LogReader, topic: Topic, selection: TurnSelection) -> Iterator[Message]:
    for partition in range(reader.partitions(topic.name)):
        for record in recorded(reader, topic.name, partition):
            message = decoded(record)
            if message is not None and selection.has(message.scope, message.occurred_at):
                yield message


# --- estimates ------------------------------------------------------------------------------------
# Estimates the cost of a re-extraction without calling a model.

BYTES_PER_TOKEN: Final = 4.0
"""Bytes of a prompt per token where no recorded call shows it: about the ratio for English."""
EXTRACTED_TOKENS: Final = 150
DECIDED_TOKENS: Final = 60
"""Tokens of a reply where no recorded call shows them."""
FACTS_OF_A_TURN: Final = 2.0
CANDIDATE_TOKENS: Final = 40


@dataclass(frozen=True, slots=True)
class Estimate:
    """`turns` would go to the model, out of `all_turns` that were extracted from live. `recorded`
    is whether the tokens come from live calls; otherwise they are estimated from the prompts'
    bytes. `seconds` assumes the speed of the live model and is None if it is unknown; `cost` is in
    the currency of the prices, None without prices."""

    turns: int
    all_turns: int
    input_tokens: int
    output_tokens: int
    recorded: bool
    seconds: float | None
    cost: float | None


@dataclass(slots=True)
class _Calls:
    """The usage of the live memory's calls of one purpose for the chosen turns; `told` of them with
    their tokens. `facts` are those that they extracted."""

    count: int = 0
    told: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    milliseconds: float = 0.0
    facts: int = 0

    def add(self, call: ModelCall) -> None:
        self.count += 1
        self.milliseconds += call.latency_ms
        if call.input_tokens is not None and call.output_tokens is not None:
            self.told += 1
            self.input_tokens += call.input_tokens
            self.output_tokens += call.output_tokens

    def tokens(self, untold: tuple[float, float]) -> tuple[float, float]:
        """Returns what a call reads and writes on average, or `untold`."""
        if not self.told:
            return untold
        return self.input_tokens / self.told, self.output_tokens / self.told


def estimate(settings: Settings, asked: Reextract) -> Estimate:
    """Estimates from the live log and changes nothing. Raises RequestError, SettingsError,
    LogError."""
    branch = BranchManifest(name=asked.branch, partitions=1, settings=asked.overrides)
    own, selection = branch_settings(settings, branch), _selection_of(asked)
    with reading_log(settings) as reader:
        topic = TURNS_NORMALIZED.name
        everything = sum(reader.end_offset(topic, each) for each in range(reader.partitions(topic)))
        extractions, decisions = _recorded(reader, selection)
        sizes = []
        for message in _chosen_turns(reader, selection):
            turn = message.body
            assert isinstance(turn, NormalizedTurn)
            prompt = extraction_prompt(
                turn,
                message.occurred_at,
                turn.context or (),
                own.extraction.max_input_characters,
                own.extraction.max_output_tokens,
            )
            sizes.append(size_of(prompt))
    turns = min(len(sizes), selection.sample or len(sizes))
    tokens = _tokens(extractions, decisions, own, sum(sizes) / max(len(sizes), 1))
    read, written = (round(each * turns) for each in tokens)
    seconds = None if asked.rate is None else everything / asked.rate
    if extractions.told and own.llm.provider != "rules":
        spent = (extractions.milliseconds + decisions.milliseconds) / extractions.count
        seconds = max(seconds or 0.0, turns * spent / 1000 / own.llm.concurrency)
    cost, prices = None, (own.llm.input_price, own.llm.output_price)
    if prices != (None, None):
        cost = Prices(*(each or 0.0 for each in prices)).of(read, written)
    return Estimate(turns, everything, read, written, extractions.told > 0, seconds, cost)


def _recorded(reader: LogReader, selection: TurnSelection) -> tuple[_Calls, _Calls]:
    """Returns the usage of extraction and that of decisions."""
    extractions, decisions = _Calls(), _Calls()
    for message in _messages(reader, FACTS_EXTRACTED, selection):
        body = message.body
        if isinstance(body, FactsExtracted) and not (body.round or body.is_of_session):
            extractions.add(body.call)
            extractions.facts += len(body.facts)
    for message in _messages(reader, MEMORY_WRITES, selection):
        intent = intent_of(message)
        for proposal in intent.proposals if isinstance(intent, ProposalsIntent) else ():
            if proposal.decider is not None:
                decisions.add(proposal.decider)
    return extractions, decisions


def _tokens(
    calls: _Calls, made: _Calls, own: Settings, bytes_of_a_prompt: float
) -> tuple[float, float]:
    """Returns the tokens read and written for one turn, decisions included."""
    if own.llm.provider == "rules":
        return 0.0, 0.0
    read, written = calls.tokens((bytes_of_a_prompt / BYTES_PER_TOKEN, EXTRACTED_TOKENS))
    if own.decider == "rules":
        return read, written
    if made.told:
        a_turn = made.count / max(calls.count, 1)
    else:
        a_turn = calls.facts / calls.count if calls.count else FACTS_OF_A_TURN
    fact = Fact(item_id="", content="", confidence=1.0)
    frame = size_of(decision_prompt(fact, datetime.now(UTC), ())) / BYTES_PER_TOKEN
    shown = CANDIDATE_TOKENS * (1 + own.decision.candidates)
    more = made.tokens((frame + shown, DECIDED_TOKENS))
    return read + a_turn * more[0], written + a_turn * more[1]
