"""apply-writes on turns: stores them, takes edits of their texts, and refuses other texts under a
known id."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import cast

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.identity import item_id_of, turn_memory_id
from palimpsest.schemas.memory_texts import embedding_key, linked_text
from palimpsest.schemas.messages import (
    ContextTurn,
    MemoryChange,
    NormalizedTurn,
    Outcome,
    RejectedTurnIntent,
    Role,
)
from palimpsest.schemas.normal_forms import is_same_text, one_line
from palimpsest.schemas.rows.enumerations import OutcomeEvent
from palimpsest.schemas.rows.memories import PROFILE, MemoryRow
from palimpsest.schemas.topics import TURNS_NORMALIZED
from palimpsest.streams.apply.command_work import (
    MemoryChanges,
    changes,
    link_writes,
    outcome_row,
)
from palimpsest.streams.apply.forget import OF_PRESENT_TEXT, drawn_from_nothing_else, said_before
from palimpsest.streams.apply.pending import outcome_of_held
from palimpsest.streams.apply.sessions import role_play_at, session_step
from palimpsest.streams.decide.proposal_policy import Verdict
from palimpsest.streams.memory_rows import (
    archived,
    changed,
    deleted,
    edge,
    effective,
    is_erased,
    protected,
    turn_memory,
    turn_text,
    with_content,
)
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.privacy import is_withheld, rejected
from palimpsest.streams.prompting.prompts import context_text, cut
from palimpsest.streams.sensitive.policy import KnownPrivate
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Asking, Embed, Embedded, Emit, Failure, Message, Step
from palimpsest.streams.store_port import KeepVector, Load, Loaded, Put, Write
from palimpsest.streams.text.linker import candidate_names, unspaced_part

QUOTED_CHARACTERS = 500
"""Maximum characters of each text quoted in the reason of a refusal; the dead letter holds the
whole record."""
MODIFIED = "modified"
EDITED = "edited by its speaker"
EARLIER = "an earlier text, which arrived after the edit that replaced it"
CORRECTED = "its date was corrected"
OF_EARLIER_TEXT = "drawn from a text that was edited since"


def turn_step(
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
    [embedding] = embedded.embeddings
    if stored is not None and (
        is_revision(turn, stored) or is_redated(turn, stored, message.occurred_at)
    ):
        return (yield from _revised(message, turn, stored, settings, loaded, embedding))
    if stored is not None:
        return _known_turn_id(message, turn, stored, loaded)
    row = turn_memory(message, turn, loaded.write_seq + 1)
    flags = effective(settings.pipeline, loaded.flags)
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
    extraction = yield from _extraction(message, turn, settings, loaded)
    return Step(writes=(*writes, Put(outcome_row(message, outcome))), emits=(*emits, *extraction))


def _extraction(
    message: Message,
    turn: NormalizedTurn,
    settings: StageSettings,
    loaded: Loaded,
    until: datetime | None = None,
) -> Asking[tuple[Emit, ...]]:
    """Returns what requests facts of the turn, with the turns before it; nothing where the scope or
    the role has none."""
    flags = effective(settings.pipeline, loaded.flags)
    if not flags.enabled or turn.role not in settings.extraction.roles:
        return ()
    limit, session = settings.extraction.context_turns, loaded.session
    before = session.extracted_turns[-limit:] if session is not None and limit else ()
    play = session and role_play_at(session, message.recorded, settings.sessions)
    if before and play and play not in before:
        before = (play, *before)
    context = yield from _context(message.scope, before, until)
    shown = turn.model_copy(update={"context": context or None})
    return (Emit(TURNS_NORMALIZED, shown, "extract"),)


def _context(
    scope: str, before: tuple[str, ...], until: datetime | None
) -> Asking[tuple[ContextTurn, ...]]:
    """Returns those of the turns `before` that may still be shown to a model, oldest first, in
    their current state: forgotten ones are left out, and those that were not said before
    `until`."""
    if not before:
        return ()
    loaded = yield from Load(scope, memory_ids=before)
    rows = [loaded.memories[key] for key in before if key in loaded.memories]
    return tuple(
        ContextTurn(
            speaker=row.who,
            role=cast(Role, row.role or "user"),
            occurred_at=row.occurred_at,
            content=context_text(row.role, one_line(spoken(row.content))),
            memory_id=row.memory_id,
        )
        for row in rows
        if not (row.is_deleted or is_withheld(loaded.privacy, row.who))
        if until is None or row.occurred_at < until
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
    is_edit = (turn.revised_at or stored.revised_at) is not None
    is_alike = (is_edit or not is_mark(turn.content)) and identity == (
        stored.who,
        stored.role or "user",
        stored.session_id,
    )
    if is_same_text(stored.content, turn.content) and (of_before or is_alike):
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


# --- edits ----------------------------------------------------------------------------------------


def is_revision(turn: NormalizedTurn, stored: MemoryRow) -> bool:
    """Whether the turn is another text of the stored one, and one of the two was edited."""
    return (
        (turn.revised_at or stored.revised_at) is not None
        and (turn.speaker, turn.role) == (stored.who, stored.role or "user")
        and not is_same_text(turn.content, stored.content)
        and not is_erased(stored)
    )


def is_redated(turn: NormalizedTurn, stored: MemoryRow, occurred_at: datetime) -> bool:
    """Whether the turn is the stored one with its date corrected. A text that is of the time of its
    edit has no date of its own: it is a repeat."""
    return (
        turn.revised_at is not None
        and occurred_at != stored.occurred_at
        and occurred_at < turn.revised_at
        and is_same_text(turn.content, stored.content)
        and (turn.speaker, turn.role) == (stored.who, stored.role or "user")
        and not is_erased(stored)
    )


def _revised(
    message: Message,
    turn: NormalizedTurn,
    stored: MemoryRow,
    settings: StageSettings,
    loaded: Loaded,
    embedding: Embedding | None,
) -> Asking[Step]:
    """Replaces the text and the time of a turn by later ones. The state before goes to the archive,
    what was drawn from it alone is deleted unless a person has taken care of it, and facts are
    drawn from the new one."""
    before, now = stored.revised_at, turn.revised_at
    flags = effective(settings.pipeline, loaded.flags)
    why = _why_not_revised(stored, flags.mutations_frozen)
    work = MemoryChanges(message, settings)
    if now is None or (before is not None and now <= before):
        is_shown = why is None and work.edition >= 6
        return _earlier(message, turn, stored, is_shown=is_shown)
    if why is not None:
        return _rejected_turn(message, rejected(turn, why))
    work.loaded, work.write_seq = loaded, loaded.write_seq
    drawn, supported = yield from _drawn_from(work, stored)
    is_taken_back = work.edition >= OF_PRESENT_TEXT
    earlier = (yield from said_before(work, drawn, (stored.memory_id,))) if is_taken_back else {}
    metadata = json.dumps(turn.metadata, sort_keys=True, ensure_ascii=False)
    dated = replace(
        stored, occurred_at=message.occurred_at, utc_offset_minutes=turn.utc_offset_minutes
    )
    row = replace(with_content(dated, turn.content), metadata=metadata, revised_at=now)
    reason = CORRECTED if is_same_text(turn.content, stored.content) else EDITED
    if embedding is not None and row.embedding_key == embedding_key(turn_text(message, turn)):
        kept = KeepVector(row.embedding_key, embedding.vector, embedding.tokens)
        work.writes.append(kept)
    outcomes = [_replace(work, turn, stored, row, "modified", MODIFIED, reason)]
    work.writes += link_writes(row, loaded.entities)
    for each in drawn:
        back = earlier.get(each.memory_id)
        event: OutcomeEvent = "modified"
        if back is None or work.active(back.content_hash) is not None:
            event, back = "deleted", deleted(each, work.at)
        outcomes.append(_replace(work, turn, each, back, event, OF_EARLIER_TEXT, OF_EARLIER_TEXT))
    for each, sources in supported if row.occurred_at != stored.occurred_at else ():
        work.writes += _with_date_of(each, sources, stored, row)
    work.writes.append(Put(outcome_row(message, _stored(outcomes[0].item_id, row))))
    if work.edition >= 7:
        outcomes += yield from _settled(work, stored)
    change = MemoryChange(outcomes=tuple(outcomes), session_id=turn.session_id)
    extraction = yield from _extraction(message, turn, settings, loaded, row.occurred_at)
    return Step(writes=tuple(work.writes), emits=(*changes(change, work.touched), *extraction))


def _earlier(message: Message, turn: NormalizedTurn, stored: MemoryRow, is_shown: bool) -> Step:
    """Records a text that the turn had before its current one, which stays. It gets into the
    history if `is_shown`: of a turn that people forgot or changed, an older text may say what they
    removed."""
    item_id = item_id_of(message.scope, turn)
    kept = Put(outcome_row(message, _stored(item_id, stored)))
    if not is_shown or is_same_text(turn.content, stored.content):
        return Step(writes=(kept,))
    outcome = Outcome(
        event="modified",
        item_kind="turn",
        item_id=item_id,
        memory_id=stored.memory_id,
        old_content=turn.content,
        new_content=stored.content,
        reason=EARLIER,
        version=stored.version,
    )
    change = MemoryChange(outcomes=(outcome,), session_id=turn.session_id)
    return Step(writes=(kept,), emits=changes(change))


def _why_not_revised(stored: MemoryRow, is_frozen: bool) -> str | None:
    """Why the text of a turn stays as it is: what people decided about it goes before its edit."""
    if stored.is_deleted:
        return "turn_forgotten: the turn was forgotten, and an edit does not bring it back"
    if is_frozen:
        return "frozen: memory may not be changed now (flag mutations_frozen)"
    if protected(stored):
        return "turn_protected: the memory of the turn is pinned or confirmed, and stays as it is"
    if stored.updated_by != "pipeline":
        return (
            f"turn_changed: the memory of the turn was changed by {stored.updated_by!r}, and stays"
            " as it is; modify it to take over the edit"
        )
    return None


def _drawn_from(
    work: MemoryChanges, stored: MemoryRow
) -> Asking[tuple[list[MemoryRow], list[tuple[MemoryRow, list[MemoryRow]]]]]:
    """Returns what was drawn from the turn alone, and what other turns support, too, with all its
    sources; of both what nobody has changed, pinned or confirmed."""
    found = yield from Load(work.scope, derived_from=(stored.memory_id,))
    named = {*found.derived, *(each for known in found.derived.values() for each in known)}
    if not named:
        return [], []
    work.add((yield from Load(work.scope, memory_ids=tuple(sorted(named)))))
    rows = work.memories
    active = {key for key, row in rows.items() if not row.is_deleted}
    drawn = found
    if work.edition >= OF_PRESENT_TEXT:
        turn = (stored.memory_id,)
        drawn = yield from Load(work.scope, derived_from=turn, present_text=True)
    going = drawn_from_nothing_else([stored.memory_id], drawn.derived, active, found.answers)
    free = {
        key
        for key, row in rows.items()
        if row.updated_by == "pipeline" and not protected(row) and row.type != PROFILE
    }
    supported = [
        (rows[key], [rows[each] for each in found.derived[key] if each in active])
        for key in sorted(found.derived.keys() & free & active - {*going})
    ]
    return [rows[key] for key in going if key in free], supported


def _settled(work: MemoryChanges, stored: MemoryRow) -> Asking[list[Outcome]]:
    """Settles the changes drawn from the earlier text of a turn that wait for a person: nobody says
    that any more."""
    found = yield from Load(work.scope, held_from=(stored.memory_id,))
    outcomes: list[Outcome] = []
    for held in found.held.values():
        ruling = Verdict("skipped", OF_EARLIER_TEXT, held.target_id)
        outcomes.append(outcome_of_held(held, ruling, None, OF_EARLIER_TEXT))
        work.writes.append(Put(outcome_row(work.message, outcomes[-1])))
    return outcomes


def _with_date_of(
    row: MemoryRow, sources: list[MemoryRow], before: MemoryRow, turn: MemoryRow
) -> list[Write]:
    """Returns a memory with the dates of its sources, of which `turn` had the date `before`. It
    stays the same version: it says what it said."""
    first = row.first_occurred_at or row.occurred_at
    if before.occurred_at not in (first, row.occurred_at):
        return []
    times = [
        turn.occurred_at if each.memory_id == turn.memory_id else each.occurred_at
        for each in sources
    ]
    begins = min(times) if row.valid_from == first else row.valid_from
    return [
        Put(replace(row, occurred_at=max(times), first_occurred_at=min(times), valid_from=begins))
    ]


def _replace(
    work: MemoryChanges,
    turn: NormalizedTurn,
    before: MemoryRow,
    after: MemoryRow,
    event: OutcomeEvent,
    archive: str,
    reason: str,
) -> Outcome:
    """Stores `after` as the next version of `before`, which goes to the archive, and returns what
    is told of it."""
    work.writes.append(Put(archived(before, archive, work.at)))
    stored = work.put(changed(after, work.at, "pipeline", 0))
    return Outcome(
        event=event,
        item_kind="turn",
        item_id=item_id_of(work.scope, turn),
        memory_id=before.memory_id,
        old_content=before.content,
        new_content=None if event == "deleted" and work.edition else stored.content,
        reason=reason,
        version=stored.version,
    )


# --- outcomes -------------------------------------------------------------------------------------


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


def rejected_turn_step(message: Message, intent: RejectedTurnIntent) -> Asking[Step]:
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
