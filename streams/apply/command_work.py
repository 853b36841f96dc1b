"""What all commands share while they execute: loaded rows, writes, the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from palimpsest.schemas.commands import (
    Command,
    ForgetCommand,
    ModifyCommand,
    RememberCommand,
    SessionEndCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.memory_texts import embedding_key, linked_text
from palimpsest.schemas.messages import (
    CacheInvalidation,
    CommandIntent,
    GraphWork,
    Intent,
    MemoryChange,
    MemoryWrite,
    Outcome,
)
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.enumerations import OutcomeEvent
from palimpsest.schemas.rows.graph import MentionRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import CommandRow, OutcomeRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES, MEMORY_WRITES
from palimpsest.streams.claims.denial import stated_clauses
from palimpsest.streams.memory_rows import (
    answer_row,
    archived,
    changed,
    deleted,
    effective,
    is_erased,
)
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.settings import Flags, StageSettings
from palimpsest.streams.stage import Asking, Embed, Emit, Failure, Message, Step
from palimpsest.streams.store_port import KeepVector, Load, Loaded, Put, Write
from palimpsest.streams.text.linker import candidate_names, names_in, unspaced_part

PROTECTED = "it is pinned or confirmed: only a person may change what it says, or forget it"
MACHINES = ("agent", "pipeline", "system")


class Refused(Exception):
    """A command that is not executed; the text begins with its error code."""


class Executed(Exception):
    """A command whose id was executed before; `row` has its result."""

    def __init__(self, row: CommandRow) -> None:
        super().__init__(row.command_id)
        self.row = row


@dataclass(slots=True)
class MemoryChanges:
    """What one intent changes of the memories of its scope. `embeddings` are those of the texts
    that may become a memory's; `memories` are the known ones, `by_hash` the ids of the active ones
    by their content, both with the changes so far. `loaded` is what `load` found, `names` the known
    names in the texts, with their ids."""

    message: Message
    settings: StageSettings
    loaded: Loaded = field(init=False)
    names: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    embeddings: dict[str, Embedding | None] = field(default_factory=dict, kw_only=True)
    memories: dict[str, MemoryRow] = field(default_factory=dict, kw_only=True)
    by_hash: dict[str, str] = field(default_factory=dict, kw_only=True)
    write_seq: int = field(default=0, kw_only=True)
    writes: list[Write] = field(default_factory=list, kw_only=True)
    outcomes: list[Outcome] = field(default_factory=list, kw_only=True)
    touched: list[tuple[str, InvalidationKind]] = field(default_factory=list, kw_only=True)

    def embed(self, texts: Iterable[str]) -> Asking[None]:
        """Gets the embeddings of texts in storage form. No store ask may come before it."""
        wanted = tuple(texts)
        embedded = yield from Embed(wanted)
        self.embeddings = dict(zip(wanted, embedded.embeddings, strict=True))

    def load(self, memory_ids: Iterable[str] = (), also: Load | None = None) -> Asking[None]:
        """Begins with the stored state of the scope, of these memories, and of what `also`
        requests."""
        wanted = also or Load(self.scope)
        self.loaded = yield from replace(wanted, memory_ids=tuple(memory_ids))
        self.write_seq = self.loaded.write_seq
        self.names = self.loaded.entities
        self.add(self.loaded)
        self.know(self.loaded)

    def add(self, loaded: Loaded) -> None:
        """Adds the memories of the scope among those found by their ids."""
        rows = loaded.memories.items()
        self.memories.update((key, row) for key, row in rows if row.scope == self.scope)

    def know(self, loaded: Loaded) -> None:
        """Adds memories found by their content."""
        for digest, row in loaded.by_hash.items():
            self.memories.setdefault(row.memory_id, row)
            self.by_hash[digest] = row.memory_id

    @property
    def scope(self) -> str:
        return self.message.scope

    @property
    def edition(self) -> int:
        """By which edition of the rules the record is executed."""
        body = self.message.body
        return (body.edition or 0) if isinstance(body, MemoryWrite) else 0

    @property
    def flags(self) -> Flags:
        return effective(self.settings.pipeline, self.loaded.flags)

    @property
    def at(self) -> datetime:
        return self.message.recorded

    def put(self, row: MemoryRow) -> MemoryRow:
        """Stores the row as the newest write of the shard."""
        self.write_seq += 1
        row = replace(row, write_seq=self.write_seq)
        found = self.embeddings.get(row.content)
        if found is not None and self.has_vector(row):
            self.writes.append(KeepVector(row.embedding_key, found.vector, found.tokens))
        self.writes.append(Put(row))
        kinds = kinds_of(self.memories.get(row.memory_id), row)
        self.memories[row.memory_id] = row
        if row.dedup_key is not None:
            self.by_hash[row.content_hash] = row.memory_id
        self.touched += [(row.memory_id, kind) for kind in kinds]
        return row

    def has_vector(self, row: MemoryRow) -> bool:
        """Returns whether the intent has the vector of the row's text. A turn's vector covers more
        than its content; the tracker computes it."""
        is_its_own = row.embedding_key == embedding_key(row.content)
        return is_its_own and self.embeddings.get(row.content) is not None

    def active(self, digest: str) -> str | None:
        """Returns the active memory with this content, including the intent's changes so far."""
        row = self.memories.get(self.by_hash.get(digest, ""))
        if row is None or row.dedup_key is None or row.content_hash != digest:
            return None
        return row.memory_id


@dataclass(slots=True)
class Work(MemoryChanges):
    """The state of one command while it executes."""

    intent: CommandIntent
    emits: list[Emit] = field(default_factory=list)
    graph: GraphWork | None = None

    def begin(self, memory_ids: Iterable[str] = (), also: Load | None = None) -> Asking[None]:
        """As `load`, of a command. Raises Executed, unless the command is new or was refused."""
        wanted = replace(also or Load(self.scope), command_id=command_id(self.message))
        yield from self.load(memory_ids, wanted)
        before = self.loaded.command
        if before is not None and before.error is None:
            raise Executed(before)

    def know_names(self, texts: Sequence[str]) -> Asking[None]:
        """Finds the names that these texts may contain."""
        self.names = (yield from load_names(self.scope, texts)).entities

    @property
    def by_machine(self) -> bool:
        return self.intent.actor.type in MACHINES

    def put(self, row: MemoryRow) -> MemoryRow:
        """Stores the row as the newest write of the shard, and the names in its text."""
        # By name: a dataclass with slots is a different class from the one `super()` looks up.
        row = MemoryChanges.put(self, row)
        self.writes += link_writes(row, self.names)
        return row

    def change(
        self,
        row: MemoryRow,
        after: MemoryRow,
        event: OutcomeEvent,
        why: str,
        metadata: dict[str, JsonValue] | None = None,
        *,
        archive: str = "",
        by: str = "",
    ) -> MemoryRow:
        """Stores `after` as the next version of `row`, changed `by` the command's actor if no one
        else is named, and reports the event. Keeps the state before with the reason `archive`, if
        there is one."""
        if archive:
            self.writes.append(Put(archived(row, archive, self.at)))
        stored = self.put(changed(after, self.at, by or self.intent.actor.id, 0))
        self.record_outcome(event, row.memory_id, why, row, stored, metadata)
        return stored

    def remove(
        self,
        row: MemoryRow,
        why: str,
        metadata: dict[str, JsonValue] | None = None,
        *,
        archive: str,
        by: str = "",
    ) -> MemoryRow:
        """Makes the memory a tombstone, from which it can be recovered."""
        gone = deleted(row, self.at)
        return self.change(row, gone, "deleted", why, metadata, archive=archive, by=by)

    def same_content(self, row: MemoryRow) -> str | None:
        """Returns another active memory with the same content as `row`."""
        other = self.active(row.content_hash)
        return None if other == row.memory_id else other

    def changes(self) -> tuple[Emit, ...]:
        """What others are told of the changes, if there are any."""
        if not self.outcomes:
            return ()
        return changes(MemoryChange(outcomes=tuple(self.outcomes)), self.touched)

    def record_outcome(
        self,
        event: OutcomeEvent,
        memory_id: str | None,
        reason: str,
        before: MemoryRow | None = None,
        after: MemoryRow | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> None:
        # What a deletion took away is its old content; a tombstone says nothing new.
        stated = None if event == "deleted" and self.edition else after
        self.outcomes.append(
            Outcome(
                event=event,
                item_kind="command",
                item_id=command_id(self.message),
                memory_id=memory_id,
                old_content=None if before is None else before.content,
                new_content=None if stated is None else stated.content,
                reason=reason,
                changed_by=self.intent.actor.id,
                actor_type=self.intent.actor.type,
                version=None if after is None else after.version,
                metadata=metadata or {},
            )
        )


def command_id(message: Message) -> str:
    """Returns the id of the command that the intent executes. Not its correlation id: a producer
    may give many commands the same."""
    return message.causation_id or message.correlation_id


LOWERED = (
    "an agent may neither pin a memory nor give it an importance over 0.8: it was kept without;"
    " a person can do so"
)


def is_guarded(work: Work) -> bool:
    """Returns whether the command may neither protect what it writes nor raise its importance above
    the default."""
    return work.by_machine and bool(work.intent.guards)


def refuse_others(work: Work, why: str) -> None:
    """Raises Refused for any caller but the worker itself."""
    if work.intent.actor.type != "system":
        raise Refused(f"forbidden: {why}")


def refuse_frozen(work: Work) -> None:
    """Raises Refused while memory is frozen."""
    if work.flags.mutations_frozen:
        raise Refused("frozen: memory may not be changed now (flag mutations_frozen)")


def refuse_automatic(work: Work) -> None:
    """Raises Refused while memory is frozen, and what the worker does by itself while that is."""
    refuse_frozen(work)
    if work.flags.autonomous_frozen and work.intent.actor.type == "system":
        raise Refused("frozen: nothing changes by itself now (flag autonomous_frozen)")


def refuse_untaught(work: Work, command: RememberCommand | ModifyCommand | ForgetCommand) -> None:
    """Raises Refused for what an agent may not write on its own in this scope."""
    if isinstance(command, RememberCommand) and command.lineage == 0:
        raise Refused(
            "invalid_request: lineage 0 is kept for global memories; a persona that has it was not"
            " given a lineage of its own: run the migration of the application that does so"
        )
    if command.self_taught and not work.flags.self_teaching_enabled:
        raise Refused(
            f"forbidden: agents may not write long-term memories of the scope"
            f" {work.scope!r} by themselves; a person may allow it with the flag"
            " self_teaching_enabled"
        )


def refuse_machines(work: Work, why: str) -> None:
    """Raises Refused while memory is frozen, and for any caller but a person."""
    refuse_frozen(work)
    if work.by_machine:
        raise Refused(f"forbidden: {why}")


def done(work: Work, command: Command, result: JsonValue) -> Step:
    """Finishes the command: its result for the caller that waits, and its changes for all other
    readers."""
    message = work.message
    row = answer_row(message, command_id(message), command.command, work.intent.digest, result)
    session_id = ""  # of other commands it would be some field that a producer added
    if isinstance(command, RememberCommand | SessionEndCommand | UpdateShortTermCommand):
        session_id = command.session_id
    change = MemoryChange(outcomes=tuple(work.outcomes), session_id=session_id, graph=work.graph)
    change_emits = changes(change, work.touched)
    return Step(writes=(*work.writes, Put(row)), emits=(*change_emits, *work.emits))


def known_id(done: CommandRow, digest: str | None) -> Step:
    """Handles a command id that was executed before: ignores a repeat, otherwise returns a dead
    letter, because the result belongs to the first one."""
    if digest is not None and done.digest == digest:
        return Step()
    why = (
        f"command_id_conflict: the command id {done.command_id!r} was used before, for"
        f" {done.command!r} in scope {done.scope!r}, and that was carried out; this one was not."
        " Give every command an id of its own."
    )
    return Step(dead=Failure(why, "rejected"))


def refusal(message: Message, intent: CommandIntent, error: str) -> Step:
    """Finishes a command that is not executed: its error for the caller that waits."""
    kind = "" if intent.command is None else intent.command.command
    row = answer_row(message, command_id(message), kind, intent.digest, {}, error)
    return Step(writes=(Put(row),))


# --- what is reported: settlements, changes, mentions ---------------------------------------------


MOST_INVALIDATED = 5_000
"""Maximum number of memories in one record: an erased scope may have had any number."""


def load_names(scope: str, texts: Sequence[str]) -> Load:
    """Returns what to load for `link_writes`: the names that may occur in these texts."""
    return Load(
        scope,
        names=tuple(dict.fromkeys(name for text in texts for name in candidate_names(text))),
        unspaced_text=" ".join(filter(None, map(unspaced_part, texts))),
    )


def texts_after(command: ModifyCommand, memories: Mapping[str, MemoryRow]) -> list[str]:
    """Returns the texts that the memories may have afterwards, in which names are looked for: each
    patch of a memory may change its text or its speaker, and any patch may be refused."""
    texts = []
    for row in memories.values():
        patches = [patch for patch in command.patches if patch.memory_id == row.memory_id]
        for who in {row.who, *(p.who for p in patches if p.who is not None)}:
            contents = (storage_content(p.content) for p in patches if p.content is not None)
            texts += [linked_text(row.type, who, text) for text in {row.content, *contents}]
    return sorted(texts)


def link_writes(row: MemoryRow, names: Mapping[str, str]) -> list[Write]:
    """Returns mentions of those known names (canonical, with their ids) that occur in the memory's
    text."""
    text = linked_text(row.type, row.who, row.content)
    return [
        Put(mention_row(row, name_id, shown))
        for name, name_id in names.items()
        if (shown := names_in(text, name)) is not None
    ]


def mention_row(row: MemoryRow, name_id: str, shown: str) -> MentionRow:
    """Returns a mention of the name in the memory's present text, as it is spelled there."""
    return MentionRow(
        memory_id=row.memory_id,
        text_key=row.embedding_key,
        name_id=name_id,
        scope=row.scope,
        mention_text=shown,
        confidence=1.0,
        stated=stated_clauses(linked_text(row.type, row.who, row.content), shown),
    )


def outcome_row(message: Message, outcome: Outcome) -> OutcomeRow:
    """Returns the settlement of an item of the balance."""
    return row_of(OutcomeRow, outcome, scope=message.scope, recorded_at=message.recorded)


InvalidationKind = Literal["server", "personal"]
Touched = Iterable[tuple[str, InvalidationKind]]
"""Changed memories in order, each with the kind of caches that hold it."""


def kinds_of(before: MemoryRow | None, after: MemoryRow) -> tuple[InvalidationKind, ...]:
    """Returns which caches hold a changed memory: `personal` if it belongs to a person (`who`),
    `server` if it belongs to the scope as a whole; both if that has changed. An erased one belongs
    to no one, and its caches are those of its previous state."""
    rows = (after,) if before is None else (before, after)
    if before is not None and is_erased(after):
        rows = (before,)
    kinds: list[InvalidationKind] = ["personal" if row.who else "server" for row in rows]
    return tuple(dict.fromkeys(kinds))


def changes(change: MemoryChange, touched: Touched = ()) -> tuple[Emit, ...]:
    """Returns the outcome of an intent and, if long-term memory changed, one invalidation for each
    kind of cache."""
    emits = [Emit(MEMORY_CHANGES, change, "change")]
    changed = tuple(touched)
    for kind, name in (("personal", "invalidate"), ("server", "invalidate-server")):
        ids = tuple(dict.fromkeys(memory_id for memory_id, of in changed if of == kind))
        for first in range(0, len(ids), MOST_INVALIDATED):
            some = CacheInvalidation.model_validate(
                {"memory_ids": ids[first : first + MOST_INVALIDATED], "kind": kind}
            )
            emits.append(Emit(CACHE_INVALIDATIONS, some, name if first == 0 else f"{name}-{first}"))
    return tuple(emits)


def continued(message: Message, intent: Intent, index: str) -> Emit:
    """Returns the next part of a record's work, to be done by the record's settings."""
    assert isinstance(message.body, MemoryWrite)
    body = message.body
    write = MemoryWrite(write=intent, settings=body.settings, edition=body.edition)
    return Emit(MEMORY_WRITES, write, index)
