"""apply-writes: intents become memory. Deterministic over the intent and the store."""

from __future__ import annotations

from typing import cast

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.identity import item_id_of, turn_memory_id
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.messages import (
    CommandIntent,
    ContextTurn,
    DecayIntent,
    DocumentTextIntent,
    ForgetChunksIntent,
    MemoryChange,
    MemoryWrite,
    NormalizedTurn,
    Outcome,
    ProposalsIntent,
    RawTurnIntent,
    RejectedTurnIntent,
    Role,
)
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.sessions import SessionRow
from palimpsest.schemas.topics import MEMORY_WRITES, TURNS_NORMALIZED
from palimpsest.streams.apply.command_work import changes, link_writes, outcome_row
from palimpsest.streams.apply.commands import command_step
from palimpsest.streams.apply.documents import forget_chunks_step, text_step
from palimpsest.streams.apply.proposals import proposals_step
from palimpsest.streams.apply.sessions import session_step
from palimpsest.streams.apply.upkeep import decay_step
from palimpsest.streams.memory_rows import edge, effective, is_erased, turn_memory, turn_text
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.privacy import is_withheld, rejected
from palimpsest.streams.prompting.prompts import context_text, cut
from palimpsest.streams.recorded_settings import settings_by_record
from palimpsest.streams.sensitive.policy import KnownPrivate, nobody
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import (
    Asking,
    Context,
    Embed,
    Embedded,
    Emit,
    Failure,
    Message,
    Process,
    Stage,
    Step,
)
from palimpsest.streams.store_port import KeepVector, Load, Loaded, Put, Write
from palimpsest.streams.text.linker import candidate_names, unspaced_part

QUOTED_CHARACTERS = 500
"""Maximum characters of each text quoted in the reason of a refusal; the dead letter holds the
whole record."""


def apply_writes_stage(own: StageSettings, is_known_private: KnownPrivate = nobody) -> Stage:
    """The stage that owns the memory tables. `is_known_private` avoids embedding texts that will
    not be kept; whether a turn is kept is decided by the store, in the order of the log. The
    program's `own` settings apply to records that carry none."""
    settings_of = settings_by_record(own)

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryWrite)
        settings = settings_of(body)
        match body.write:
            case RawTurnIntent():
                return (yield from _raw_turn(message, body.write.turn, settings, is_known_private))
            case RejectedTurnIntent():
                return (yield from _rejected_turn_step(message, body.write))
            case ProposalsIntent():
                return (yield from proposals_step(message, body.write, settings))
            case DocumentTextIntent(text=text):
                return (yield from text_step(message, text, settings))
            case ForgetChunksIntent():
                return (yield from forget_chunks_step(message, body.write, settings))
            case DecayIntent():
                return (yield from decay_step(message, body.write, settings))
            case CommandIntent():
                return (yield from command_step(message, body.write, settings))

    return Stage(name="apply-writes", reads=(MEMORY_WRITES,), process=process, stateful=True)


def _raw_turn(
    message: Message, turn: NormalizedTurn, settings: StageSettings, is_known_private: KnownPrivate
) -> Asking[Step]:
    """Stores a turn as an episodic memory, and sends it to extraction if the scope's flags allow. A
    repeat of the turn changes nothing; another text under its id is refused."""
    embedded = Embedded((None,))
    if not is_known_private(message.scope, turn.speaker):
        embedded = yield from Embed((turn_text(message, turn),))
    text = linked_text("episodic", turn.speaker, turn.content)
    memory_id = turn_memory_id(message.scope, turn.turn_id)
    item_id = item_id_of(message.scope, turn)
    loaded = yield from Load(
        message.scope,
        memory_ids=(memory_id,),
        session_id=turn.session_id,
        names=tuple(candidate_names(text)),
        unspaced_text=unspaced_part(text),
        turn_item_ids=(item_id, memory_id),
    )
    if item_id in loaded.settled:
        return Step()
    if is_withheld(loaded.privacy, turn.speaker):
        return _rejected_turn(message, rejected(turn))
    stored = loaded.memories.get(memory_id)
    if stored is not None:
        return _known_turn_id(message, turn, stored, loaded)
    [embedding] = embedded.embeddings
    return (yield from _new_turn(message, turn, settings, loaded, embedding))


def _new_turn(
    message: Message,
    turn: NormalizedTurn,
    settings: StageSettings,
    loaded: Loaded,
    embedding: Embedding | None,
) -> Asking[Step]:
    """Returns the memory of a turn and everything that follows from it."""
    row = turn_memory(message, turn, loaded.write_seq + 1)
    flags = effective(settings.pipeline, loaded.flags)
    extracted = flags.enabled and turn.role in settings.extraction.roles
    context_turns = settings.extraction.context_turns
    kept, ended = session_step(message, turn, row, loaded, flags.enabled, settings)
    writes: list[Write] = [Put(row), *kept]
    if embedding is not None:
        writes.insert(0, KeepVector(row.embedding_key, embedding.vector, embedding.tokens))
    if loaded.session is not None and turn.session_id:
        last = loaded.session.last_turn
        writes.append(Put(edge(last, row.memory_id, "temporal", message.scope)))
    writes += link_writes(row, loaded.entities)
    outcome = _stored(item_id_of(message.scope, turn), row)
    emits = (*ended, *changes(MemoryChange(outcomes=(outcome,), session_id=turn.session_id)))
    if extracted:
        context = yield from _context(message.scope, loaded.session, context_turns)
        normalized = turn.model_copy(update={"context": context or None})
        emits = (*emits, Emit(TURNS_NORMALIZED, normalized, "extract"))
    return Step(writes=(*writes, Put(outcome_row(message, outcome))), emits=emits)


def _context(scope: str, session: SessionRow | None, limit: int) -> Asking[tuple[ContextTurn, ...]]:
    """Returns the earlier turns that may still be shown to a model, oldest first, in their current
    state: forgotten ones are left out."""
    before = session.extracted_turns[-limit:] if session is not None and limit else ()
    if not before:
        return ()
    loaded = yield from Load(scope, memory_ids=before)
    rows = [loaded.memories[key] for key in before if key in loaded.memories]
    return tuple(
        ContextTurn(
            speaker=row.who,
            role=cast(Role, row.role or "user"),
            occurred_at=row.occurred_at,
            content=context_text(row.role, spoken(row.content)),
            memory_id=row.memory_id,
        )
        for row in rows
        if not (row.is_deleted or is_withheld(loaded.privacy, row.who))
    )


def _known_turn_id(
    message: Message, turn: NormalizedTurn, stored: MemoryRow, loaded: Loaded
) -> Step:
    """Handles a turn whose id is taken. Stores written before a turn's item id included its content
    identify turns by the memory's id; there the same text is counted as a repeat, and so is a
    difference in what is not stored, such as the number of spaces. Under the id of an erased turn
    nothing is kept, not even in a dead letter: it may be the erased content, sent again."""
    if is_erased(stored):
        why = (
            f"turn_id_erased: the turn with the id {turn.turn_id!r} was erased, and nothing is kept"
            " under its id; publish what is new under an id of its own"
        )
        return _rejected_turn(message, rejected(turn, why))
    of_before = stored.memory_id in loaded.settled
    identity = (turn.speaker, turn.role, turn.session_id)
    # In an erased log different texts have the same mark.
    is_alike = not is_mark(turn.content) and identity == (
        stored.who,
        stored.role or "user",
        stored.session_id,
    )
    if stored.content == turn.content and (of_before or is_alike):
        outcome = _stored(item_id_of(message.scope, turn), stored)
        return Step(writes=(Put(outcome_row(message, outcome)),))
    return Step(
        dead=Failure(
            f"turn_id_conflict: the turn id {turn.turn_id!r} was published before with something"
            f" else and stays what it was: {_quoted(stored.who, stored.content)} is memory"
            f" {stored.memory_id}; {_quoted(turn.speaker, turn.content)} was refused. Give every"
            " turn an id of its own; to change what a turn says, modify its memory.",
            "rejected",
        )
    )


def _quoted(speaker: str, content: str) -> str:
    return repr(cut(f"{speaker}: {content}" if speaker else content, QUOTED_CHARACTERS))


def _stored(item_id: str, row: MemoryRow) -> Outcome:
    return Outcome(
        event="created",
        item_kind="turn",
        item_id=item_id,
        memory_id=row.memory_id,
        new_content=row.content,
        reason="turn stored",
        version=1,
    )


def _rejected_turn_step(message: Message, intent: RejectedTurnIntent) -> Asking[Step]:
    """A repeat of a turn changes nothing, regardless of its outcome."""
    item_id = item_id_of(message.scope, intent)
    loaded = yield from Load(message.scope, turn_item_ids=(item_id,))
    return Step() if item_id in loaded.settled else _rejected_turn(message, intent)


def _rejected_turn(message: Message, intent: RejectedTurnIntent) -> Step:
    """Counts the turn with its reason; there is no text of it to keep."""
    outcome = Outcome(
        event="rejected",
        item_kind="turn",
        item_id=item_id_of(message.scope, intent),
        reason=intent.reason,
    )
    return Step(
        writes=(Put(outcome_row(message, outcome)),),
        emits=changes(MemoryChange(outcomes=(outcome,), session_id=intent.session_id)),
    )
