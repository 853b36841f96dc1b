"""All methods of a memory, each defined once, for `Memory`, `AsyncMemory`, `Client` and
`AsyncClient`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palimpsest.ops.errors import RequestError
from palimpsest.ops.library.methods import BlockingBase, MemoryBase, method, written
from palimpsest.ops.operations.catalogue import OPERATIONS
from palimpsest.ops.operations.changing import (
    Confirm,
    Correct,
    Modify,
    ModifyMany,
    Pin,
    Recover,
    Remember,
    Unpin,
)
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.dead_letters import DeadLetters, Discard, GetDeadLetter, Redrive
from palimpsest.ops.operations.documents import (
    AddDocument,
    DeleteDocument,
    Document,
    DocumentChunks,
    Documents,
    GetDocument,
)
from palimpsest.ops.operations.executing import NotYetAppliedError
from palimpsest.ops.operations.forgetting import (
    Erase,
    EraseScope,
    Forget,
    ForgetOne,
    PreviewEraseScope,
)
from palimpsest.ops.operations.graph import Alias, Entities, GetEntity
from palimpsest.ops.operations.memories import (
    Context,
    Embeddings,
    Get,
    List,
    Locate,
    Recall,
    Search,
    Weak,
)
from palimpsest.ops.operations.operation import Operation
from palimpsest.ops.operations.pipeline import CommandResult, Diagnostics, Status, TurnResults
from palimpsest.ops.operations.privacy import Privacy, SetPrivacy
from palimpsest.ops.operations.proposals import ApplyProposals, DismissProposals, Proposals
from palimpsest.ops.operations.provenance import Explain, History
from palimpsest.ops.operations.replay import (
    Agreement,
    Branches,
    DropBranch,
    GetReplay,
    Replay,
    ReplayDifferences,
    Replays,
    StartReplay,
    StopReplay,
)
from palimpsest.ops.operations.scopes import Flags, Scopes, SetFlags, Stats
from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.ops.operations.sessions import (
    EndSession,
    SessionMemory,
    Sessions,
    UpdateShortTermMemory,
)
from palimpsest.ops.requests import SqlRequest

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

    recall = method(Recall)
    search = method(Search)
    context = method(Context)
    get = method(Get)
    locate = method(Locate)
    list = method(List)
    history = method(History)
    explain = method(Explain)
    weak = method(Weak)
    embeddings = method(Embeddings)
    get_entity = method(GetEntity)
    entities = method(Entities)
    scopes = method(Scopes)
    stats = method(Stats)
    agreement = method(Agreement)

    @written
    async def sql(
        self: MemoryBase, query: str, *, partition: int | None = None, seconds: float = 30.0
    ) -> pa.Table:
        """Run one read-only statement over the views of all scopes. Returns an Arrow table, which
        DuckDB, pandas and Polars read directly.

        >>> (await memory.sql("SELECT count(*) AS turns FROM turns")).to_pylist()
        [{'turns': 2}]
        """
        work = self.background.table(SqlRequest(query, partition, seconds))
        return await self.background.run(work)

    # --- changing -------------------------------------------------------------------------------

    remember = method(Remember)
    modify = method(Modify)
    modify_many = method(ModifyMany)
    correct = method(Correct)
    pin = method(Pin)
    unpin = method(Unpin)
    preview_forget = method(PreviewForget)
    forget = method(Forget)
    recover = method(Recover)
    forget_one = method(ForgetOne)
    confirm = method(Confirm)
    alias = method(Alias)
    command_result = method(CommandResult)
    turn_results = method(TurnResults)
    erase = method(Erase)
    preview_erase_scope = method(PreviewEraseScope)
    erase_scope = method(EraseScope)

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
        values = {"text": text, "url": url, "title": title, "scope": scope, "key": key}
        if path is not None:
            if text is not None or url is not None:
                raise RequestError("give one of text, url and path")
            values |= await asyncio.to_thread(_file, Path(path), title, self)
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

    documents = method(Documents)
    get_document = method(GetDocument)
    document_chunks = method(DocumentChunks)
    delete_document = method(DeleteDocument)

    # --- sessions and privacy -------------------------------------------------------------------

    sessions = method(Sessions)
    update_short_term_memory = method(UpdateShortTermMemory)
    session_memory = method(SessionMemory)
    end_session = method(EndSession)
    set_privacy = method(SetPrivacy)
    privacy = method(Privacy)

    # --- review and operation -------------------------------------------------------------------

    proposals = method(Proposals)
    apply_proposals = method(ApplyProposals)
    dismiss_proposals = method(DismissProposals)
    flags = method(Flags)
    set_flags = method(SetFlags)
    status = method(Status)
    diagnostics = method(Diagnostics)
    dead_letters = method(DeadLetters)
    get_dead_letter = method(GetDeadLetter)
    redrive = method(Redrive)
    discard = method(Discard)

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

    replays = method(Replays)
    get_replay = method(GetReplay)
    stop_replay = method(StopReplay)
    replay_differences = method(ReplayDifferences)
    branches = method(Branches)
    drop_branch = method(DropBranch)


def _file(path: Path, title: str, memory: MemoryBase) -> dict[str, str | None]:
    """The document fields of a file, including its text."""
    from palimpsest.ops.documents.adding import PLAIN, file_document
    from palimpsest.ops.documents.reading import HTML

    read = file_document(path, title, memory.background.documents)
    # The text extracted from an HTML page is plain; other types follow from the name.
    content_type = PLAIN if read.content_type == HTML else None
    return {
        "text": read.text,
        "name": read.source,
        "title": read.title,
        "content_type": content_type,
    }


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
