"""All methods of a memory, each defined once, for `Memory`, `AsyncMemory`, `Client` and
`AsyncClient`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palimpsest.ops import operations as of
from palimpsest.ops.errors import RequestError
from palimpsest.ops.library.methods import BlockingBase, MemoryBase, method, written
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.documents import AddDocument, Document, GetDocument
from palimpsest.ops.operations.operation import Operation
from palimpsest.ops.replay import operations as replay
from palimpsest.ops.replay.operations import GetReplay, Replay, StartReplay
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.executing import NotYetAppliedError
from palimpsest.ops.surfaces.catalogue import OPERATIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.transport.turns import Turn

DOCUMENT_ENDS: Final = ("done", "failed", "deleted")
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Added:
    """Published turns: the ids of their memories, in order."""

    memory_ids: tuple[str, ...]


class MemoryMethods:
    """The methods of a memory: adding turns, and all operations."""

    # --- turns ----------------------------------------------------------------------------------

    @written
    async def add(
        self: MemoryBase,
        turns: Turn | Sequence[Turn],
        *,
        speaker: str = "",
        session_id: str = "",
        scope: str = "",
        wait: bool = True,
    ) -> Added:
        """Add turns of a conversation: texts, or mappings with `content` and other fields
        (`role`, `speaker`, `occurred_at`, `turn_id`, …).

        They are durable when this returns, and with `wait` can be recalled; facts are extracted
        from them in the background. Repeating a `turn_id` with the same content adds nothing.

        >>> _ = await memory.add("I moved to Lisbon in March 2025.", speaker="Ana")
        >>> _ = await memory.add([{"role": "user", "content": "Ben works at a bakery in Ghent."}])
        """
        values = {"speaker": speaker, "session_id": session_id}
        work = self.background.publish(
            turns,
            scope or self.scope,
            {name: value for name, value in values.items() if value},
            self.wait_seconds if wait else None,
        )
        return Added(await self.background.run(work))

    @written
    async def wait_until_processed(self: MemoryBase, seconds: float = 300.0) -> None:
        """Wait until facts are extracted from everything added, and decided on. Raises
        NotYetAppliedError after `seconds`, for example when a model is unavailable.

        >>> await memory.wait_until_processed()
        """
        await self.background.run(self.background.processed(seconds))

    # --- asking ---------------------------------------------------------------------------------

    recall = method(of.memories.Recall)
    search = method(of.memories.Search)
    context = method(of.memories.Context)
    get = method(of.memories.Get)
    locate = method(of.memories.Locate)
    list = method(of.memories.List)
    history = method(of.provenance.History)
    explain = method(of.provenance.Explain)
    weak = method(of.lifecycle.fading.Weak)
    embeddings = method(of.memories.Embeddings)
    get_entity = method(of.graph.GetEntity)
    proposed_merges = method(of.graph.ProposedMerges)
    show_graph = method(of.graph.ShowGraph)
    graph_statistics = method(of.scopes.GraphStatistics)
    entities = method(of.graph.Entities)
    scopes = method(of.scopes.Scopes)
    stats = method(of.scopes.Stats)
    agreement = method(replay.Agreement)

    @written
    async def sql(
        self: MemoryBase, query: str, *, partition: int | None = None, seconds: float = 30.0
    ) -> pa.Table:
        """Run one read-only statement over the views of all scopes. Returns an Arrow table, which
        DuckDB, pandas and Polars read directly.

        >>> (await memory.sql("SELECT count(*) AS turns FROM turns")).to_pylist()
        [{'turns': 2}]
        """
        if not isinstance(query, str):
            raise RequestError("query: Input should be a valid string")
        work = self.background.table(SqlRequest(query, partition, seconds))
        return await self.background.run(work)

    # --- changing -------------------------------------------------------------------------------

    remember = method(of.changing.Remember)
    modify = method(of.changing.Modify)
    modify_many = method(of.changing.ModifyMany)
    correct = method(of.changing.Correct)
    pin = method(of.changing.Pin)
    unpin = method(of.changing.Unpin)
    preview_forget = method(of.selection.PreviewForget)
    forget = method(of.forgetting.Forget)
    recover = method(of.changing.Recover)
    forget_one = method(of.forgetting.ForgetOne)
    decay = method(of.lifecycle.fading.Decay)
    preview_decay = method(of.lifecycle.fading.PreviewDecay)
    confirm = method(of.changing.Confirm)
    alias = method(of.graph.Alias)
    unalias = method(of.graph.Unalias)
    edit_entity = method(of.authoring.EditEntity)
    add_to_graph = method(of.authoring.AddToGraph)
    remove_from_graph = method(of.authoring.RemoveFromGraph)
    command_result = method(of.answers.CommandResult)
    turn_results = method(of.answers.TurnResults)
    erase = method(of.forgetting.Erase)
    preview_erase_scope = method(of.forgetting.PreviewEraseScope)
    erase_scope = method(of.forgetting.EraseScope)

    # --- documents ------------------------------------------------------------------------------

    @written
    async def add_document(
        self: MemoryBase,
        text: str | None = None,
        *,
        url: str | None = None,
        path: str | Path | None = None,
        title: str = "",
        scope: str = "",
        wait: bool = True,
        key: str | None = None,
    ) -> Document:
        """Add a text, a URL, or a file of this machine; with `wait` it is `done` or `failed` when
        this returns.

        Adding the same URL or text again returns the same document. Raises RequestError for content
        that is not text, and NotYetAppliedError if it takes longer than `wait_seconds`.

        >>> manual = await memory.add_document("The kettle holds two litres.", title="Kettle")
        >>> manual.status, manual.chunks
        ('done', 1)
        """
        values: dict[str, Any] = {"text": text, "url": url, "title": title}
        values |= {"scope": scope, "key": key}
        if path is not None:
            if text is not None or url is not None:
                raise RequestError("give one of text, url and path")
            from palimpsest.ops.documents.adding import file_fields

            known = self.background.documents
            fields = await asyncio.to_thread(file_fields, Path(path), title, known)
            values |= {**fields, "is_read": True}
        deadline = time.monotonic() + self.wait_seconds
        added = await self.send(checked(AddDocument, values))
        while True:
            found = await self.send(GetDocument(added.id, scope))
            if not wait or found.status in DOCUMENT_ENDS:
                return found
            if time.monotonic() > deadline:
                raise NotYetAppliedError(
                    f"document {found.id} is {found.status} after {self.wait_seconds:g} s, and goes"
                    " on",
                    added.command_id,
                    found.scope,
                )
            await asyncio.sleep(POLL_SECONDS)

    documents = method(of.documents.Documents)
    get_document = method(of.documents.GetDocument)
    document_chunks = method(of.documents.DocumentChunks)
    delete_document = method(of.documents.DeleteDocument)

    # --- sessions and privacy -------------------------------------------------------------------

    sessions = method(of.sessions.Sessions)
    update_short_term_memory = method(of.sessions.UpdateShortTermMemory)
    session_memory = method(of.sessions.SessionMemory)
    session_timeline = method(of.sessions.SessionTimeline)
    end_session = method(of.sessions.EndSession)
    set_privacy = method(of.privacy.SetPrivacy)
    privacy = method(of.privacy.Privacy)

    # --- review and operation -------------------------------------------------------------------

    proposals = method(of.proposals.Proposals)
    apply_proposals = method(of.proposals.ApplyProposals)
    dismiss_proposals = method(of.proposals.DismissProposals)
    flags = method(of.scopes.Flags)
    set_flags = method(of.scopes.SetFlags)
    status = method(of.lifecycle.pipeline.Status)
    run_job = method(of.lifecycle.jobs.RunJob)
    retention = method(of.lifecycle.retention.Retention)
    set_retention = method(of.lifecycle.retention.SetRetention)
    sweep_retention = method(of.lifecycle.retention.SweepRetention)
    diagnose = method(of.lifecycle.health.Diagnose)
    repair_domain = method(of.lifecycle.health.RepairDomain)
    dead_letters = method(of.dead_letters.DeadLetters)
    get_dead_letter = method(of.dead_letters.GetDeadLetter)
    redrive = method(of.dead_letters.Redrive)
    amend_dead_letter = method(of.dead_letters.AmendDeadLetter)
    embedding_status = method(of.lifecycle.embeddings.EmbeddingStatus)
    migrate_embedding = method(of.lifecycle.embeddings.MigrateEmbedding)
    switch_embedding = method(of.lifecycle.embeddings.SwitchEmbedding)
    embedding_back = method(of.lifecycle.embeddings.EmbeddingBack)
    cancel_embedding = method(of.lifecycle.embeddings.CancelEmbedding)
    drop_embedding = method(of.lifecycle.embeddings.DropEmbedding)
    discard = method(of.dead_letters.Discard)
    archive = method(of.lifecycle.archive.Archive)
    simulate = method(of.lifecycle.simulation.Simulate)

    # --- replays --------------------------------------------------------------------------------

    @written
    async def start_replay(
        self: MemoryBase, kind: str, /, *, wait: bool = False, **options: Any
    ) -> Replay:
        """Start a replay in its own process, which outlives this one: `rebuild`, `reextract`,
        `diff`, `promote` or `rollback`, with the options of `palimpsest replay`.

        With `wait` it has ended when this returns. Raises RequestError for invalid options, and
        UnavailableError while the maximum number of replays are running.

        >>> replay = await memory.start_replay("rebuild", name="copy", wait=True)
        >>> replay.state, replay.error
        ('done', None)
        """
        started = await self.send(checked(StartReplay, {"kind": kind, **options}))
        while wait and started.state == "running":
            await asyncio.sleep(POLL_SECONDS)
            started = await self.send(GetReplay(started.id))
        return started

    replays = method(replay.Replays)
    get_replay = method(replay.GetReplay)
    stop_replay = method(replay.StopReplay)
    replay_differences = method(replay.ReplayDifferences)
    branches = method(replay.Branches)
    curation = method(replay.Curation)
    drop_branch = method(replay.DropBranch)
    promotions = method(replay.Promotions)


def offer(kind: type, operations: Mapping[str, type[Operation[Any]]]) -> None:
    """Adds a method to a class for each operation without one."""
    for slug, operation in operations.items():
        if not hasattr(kind, slug):
            setattr(kind, slug, method(operation))


offer(MemoryMethods, OPERATIONS)


class AsyncMethods(MemoryBase, MemoryMethods):
    """A memory with all methods, for programs with an event loop."""


class BlockingMethods(BlockingBase, MemoryMethods):
    """A memory with all methods, for programs without an event loop."""

    aio: AsyncMethods


def asynchronous(memory: AsyncMethods | BlockingMethods) -> AsyncMethods:
    """The memory for programs with an event loop."""
    return memory.aio if isinstance(memory, BlockingMethods) else memory
