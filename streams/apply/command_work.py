"""What all commands share while they execute: loaded rows, writes, the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import JsonValue

from palimpsest.schemas.commands import (
    Command,
    ModifyCommand,
    RememberCommand,
    SessionEndCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.enumerations import OutcomeEvent
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import (
    CommandIntent,
    GraphWork,
    MemoryChange,
    Outcome,
)
from palimpsest.schemas.rows import CommandRow, MemoryRow
from palimpsest.streams.apply.outcomes import InvalidationKind, changes, kinds_of, link_writes
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Emit, Failure, Message, Step
from palimpsest.streams.store_port import KeepVector, Loaded, Put, Write

PROTECTED = "it is pinned or confirmed: only a person may change what it says, or forget it"
MACHINES = ("agent", "pipeline", "system")


class Refused(Exception):
    """A command that is not executed; the text begins with its error code."""


@dataclass(slots=True)
class Work:
    """The state of one command while it executes. `names` are those that its texts may contain,
    with their ids."""

    message: Message
    intent: CommandIntent
    settings: StageSettings
    loaded: Loaded
    embeddings: dict[str, Embedding | None]
    memories: dict[str, MemoryRow]
    by_hash: dict[str, str]
    write_seq: int
    names: Mapping[str, str]
    writes: list[Write] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    touched: list[tuple[str, InvalidationKind]] = field(default_factory=list)
    emits: list[Emit] = field(default_factory=list)
    graph: GraphWork | None = None

    @classmethod
    def begun(
        cls,
        message: Message,
        intent: CommandIntent,
        settings: StageSettings,
        loaded: Loaded,
        embeddings: Mapping[str, Embedding | None] | None = None,
    ) -> Work:
        """Starts from the stored state of the command's scope."""
        memories = {key: row for key, row in loaded.memories.items() if row.scope == message.scope}
        known = (loaded.write_seq, loaded.entities)
        work = cls(message, intent, settings, loaded, dict(embeddings or {}), memories, {}, *known)
        work.know(loaded)
        return work

    @property
    def at(self) -> datetime:
        return self.message.recorded

    @property
    def by_machine(self) -> bool:
        return self.intent.actor.type in MACHINES

    def put(self, row: MemoryRow) -> MemoryRow:
        """Stores the row as the newest write of the shard."""
        self.write_seq += 1
        row = replace(row, write_seq=self.write_seq)
        found = self.embeddings.get(row.content)
        if found is not None and self.has_vector(row):
            self.writes.append(KeepVector(row.embedding_key, found.vector, found.tokens))
        self.writes.append(Put(row))
        self.writes += link_writes(row, self.names)
        kinds = kinds_of(self.memories.get(row.memory_id), row)
        self.memories[row.memory_id] = row
        if row.dedup_key is not None:
            self.by_hash[row.content_hash] = row.memory_id
        self.touched += [(row.memory_id, kind) for kind in kinds]
        return row

    def has_vector(self, row: MemoryRow) -> bool:
        """Returns whether the command has the vector of the row's text. A turn's vector covers more
        than its content; the tracker computes it."""
        is_its_own = row.embedding_key == embedding_key(row.content)
        return is_its_own and self.embeddings.get(row.content) is not None

    def know(self, loaded: Loaded) -> None:
        """Adds memories found by their content."""
        for digest, row in loaded.by_hash.items():
            self.memories.setdefault(row.memory_id, row)
            self.by_hash[digest] = row.memory_id

    def active(self, digest: str) -> str | None:
        """Returns the active memory with this content, including the command's changes so far."""
        row = self.memories.get(self.by_hash.get(digest, ""))
        if row is None or row.dedup_key is None or row.content_hash != digest:
            return None
        return row.memory_id

    def same_content(self, row: MemoryRow) -> str | None:
        """Returns another active memory with the same content as `row`."""
        other = self.active(row.content_hash)
        return None if other == row.memory_id else other

    def tell(
        self,
        event: OutcomeEvent,
        memory_id: str | None,
        reason: str,
        before: MemoryRow | None = None,
        after: MemoryRow | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> None:
        self.outcomes.append(
            Outcome(
                event=event,
                item_kind="command",
                item_id=command_id(self.message),
                memory_id=memory_id,
                old_content=None if before is None else before.content,
                new_content=None if after is None else after.content,
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


def refuse_frozen(work: Work) -> None:
    """Raises Refused while memory is frozen."""
    if effective(work.settings.pipeline, work.loaded.flags).mutations_frozen:
        raise Refused("frozen: memory may not be changed now (flag mutations_frozen)")


def refuse_untaught(work: Work, command: Command) -> None:
    """Raises Refused for what an agent may not write on its own in this scope."""
    if not isinstance(command, RememberCommand | ModifyCommand):
        return
    if isinstance(command, RememberCommand) and command.lineage == 0:
        raise Refused(
            "invalid_request: lineage 0 is kept for global memories; a persona that has it was not"
            " given a lineage of its own: run the migration of the application that does so"
        )
    flags = effective(work.settings.pipeline, work.loaded.flags)
    if command.self_taught and not flags.self_teaching_enabled:
        raise Refused(
            f"forbidden: agents may not write long-term memories of the scope"
            f" {work.message.scope!r} by themselves; a person may allow it with the flag"
            " self_teaching_enabled"
        )


def done(work: Work, command: Command, result: JsonValue) -> Step:
    """Finishes the command: its result for the caller that waits, and its changes for all other
    readers."""
    message = work.message
    row = CommandRow(
        command_id=command_id(message),
        scope=message.scope,
        command=command.command,
        error=None,
        result=json.dumps(result, sort_keys=True, ensure_ascii=False),
        recorded_at=message.recorded,
        digest=work.intent.digest,
    )
    session_id = ""  # of other commands it would be some field that a producer added
    if isinstance(command, RememberCommand | SessionEndCommand | UpdateShortTermCommand):
        session_id = command.session_id
    change = MemoryChange(
        outcomes=tuple(work.outcomes),
        session_id=session_id,
        graph=work.graph,
    )
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
    row = CommandRow(
        command_id=command_id(message),
        scope=message.scope,
        command="" if intent.command is None else intent.command.command,
        error=error,
        result="{}",
        recorded_at=message.recorded,
        digest=intent.digest,
    )
    return Step(writes=(Put(row),))
