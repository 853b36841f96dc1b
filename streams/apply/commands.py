"""Executes commands: direct requests of people and agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final, Never, TypeAlias, cast

from pydantic import JsonValue

from palimpsest.schemas.aspects import ClassifyFactsCommand, WeighAspectsCommand
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    AliasCommand,
    ApplyProposalsCommand,
    ChangeEmbeddingCommand,
    ConfirmCommand,
    ConsolidateCommand,
    DecayCommand,
    DeleteDocumentCommand,
    DismissProposalsCommand,
    EraseScopeCommand,
    ForgetCommand,
    ImportCommand,
    LinkCausesCommand,
    MemoryPatch,
    ModifyCommand,
    PromoteCommand,
    RecordAccessCommand,
    RecordHealthCommand,
    RecordShadowProposalsCommand,
    RecoverCommand,
    RememberCommand,
    RepairCommand,
    RollbackPromotionCommand,
    SessionEndCommand,
    SetFlagsCommand,
    SetPrivacyCommand,
    SetRetentionCommand,
    SweepCommand,
    UnaliasCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.entities import (
    AddToGraphCommand,
    EditEntityCommand,
    RemoveFromGraphCommand,
)
from palimpsest.schemas.envelope import Frozen, Triple
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.messages import CommandIntent, GraphWork
from palimpsest.schemas.normal_forms import canonical_name, content_hash, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import SOURCE_TYPES, MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, ShadowProposalRow
from palimpsest.streams.apply.authoring import EXPLICIT_IMPORTANCE, add_to_graph, restated
from palimpsest.streams.apply.command_work import (
    PROTECTED,
    Executed,
    Refused,
    Work,
    command_id,
    done,
    is_guarded,
    known_id,
    mention_row,
    refusal,
    refuse_automatic,
    refuse_frozen,
    refuse_others,
    refuse_untaught,
    texts_after,
)
from palimpsest.streams.apply.documents import add_document, delete_document
from palimpsest.streams.apply.forget import erase_scope, forget, recover
from palimpsest.streams.apply.imports import import_lines
from palimpsest.streams.apply.pending import review
from palimpsest.streams.apply.privacy import (
    load_about,
    refuse_about_private,
    refuse_in_private_scope,
    set_privacy,
)
from palimpsest.streams.apply.promotions import promote, roll_back
from palimpsest.streams.apply.remember import remember
from palimpsest.streams.apply.sessions import (
    as_ended,
    silent_at,
    summarized,
    told_end,
    without,
)
from palimpsest.streams.apply.upkeep import (
    change_embedding,
    classify_facts,
    consolidate,
    decay,
    link_causes,
    record_access,
    record_health,
    repair,
    set_windows,
    sweep,
    weigh_aspects,
)
from palimpsest.streams.claims.grammar import USER, claim_of
from palimpsest.streams.claims.reading import claims_in
from palimpsest.streams.claims.triples import triples_of
from palimpsest.streams.memory_rows import (
    CONFIRMED_DECAY_RATE,
    archived_id,
    edge,
    protected,
    with_content,
)
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Asking, Message, Step
from palimpsest.streams.store_port import ExpireShortTerm, Load, Put, Write

PENDING = None
"""The result of a command that a later stage will answer; never shown."""


def command_step(message: Message, intent: CommandIntent, settings: StageSettings) -> Asking[Step]:
    """Executes one command; its result, also a refusal, is stored under the command's id."""
    command = intent.command
    if intent.error is not None or command is None:
        return refusal(message, intent, intent.error or "invalid_request: no command")
    work = Work(message, settings, intent)
    handler = HANDLERS[type(command)]
    try:
        result = yield from handler(work, cast(Never, command))
    except Refused as error:
        return refusal(message, intent, str(error))
    except Executed as before:
        return known_id(before.row, intent.digest)
    return result if isinstance(result, Step) else done(work, command, result)


# --- memories -------------------------------------------------------------------------------------


def modify(work: Work, command: ModifyCommand) -> Asking[JsonValue]:
    """Returns the result of each patch."""
    contents = [each.content for each in command.patches if each.content is not None]
    texts = tuple(map(storage_content, contents))
    yield from work.embed(texts)
    hashes = Load(work.scope, content_hashes=tuple(map(content_hash, texts)))
    yield from work.begin([patch.memory_id for patch in command.patches], hashes)
    yield from work.know_names(texts_after(command, work.memories))
    about = (yield from load_about(work, command)) if work.loaded.privacy else {}
    refuse_frozen(work)
    refuse_untaught(work, command)
    refuse_about_private(work, command, about)
    return [_modify(work, patch, command.reason) for patch in command.patches]


def _modify(work: Work, patch: MemoryPatch, reason: str) -> JsonValue:
    row = work.memories.get(patch.memory_id)
    if row is None:
        return {"id": patch.memory_id, "status": "not_found"}
    if row.is_deleted:
        return {"id": patch.memory_id, "status": "deleted"}
    if patch.if_version is not None and patch.if_version != row.version:
        return {"id": row.memory_id, "status": "version_conflict", "version": row.version}
    if row.type in SOURCE_TYPES and patch.type is not None:
        why = "a turn stays a turn, and a document's chunk a chunk"
        return {"id": row.memory_id, "status": "invalid_request", "why": why}
    updated = _patched(work, row, patch)
    forbidden = _forbidden(work, row, updated)
    if forbidden is not None:
        return {"id": row.memory_id, "status": "forbidden", "why": forbidden}
    if updated == row:
        return {"id": row.memory_id, "status": "no_changes", "version": row.version}
    if updated.content_hash != row.content_hash:
        other = None if updated.dedup_key is None else work.same_content(updated)
        if other is not None:
            return {"id": row.memory_id, "status": "duplicate_content_hash", "duplicate_of": other}
    archive = "modified" if (updated.who, updated.content) != (row.who, row.content) else ""
    updated = work.change(row, updated, "modified", patch.reason or reason, archive=archive)
    if updated.content != row.content and work.intent.supersedes:
        past = edge(row.memory_id, archived_id(row), "supersedes", row.scope)
        work.writes.append(Put(past))
    if updated.content != row.content and row.type not in SOURCE_TYPES:
        known = work.graph.triples if work.graph is not None else ()
        speaker = _speaker(row, work.intent.actor.id)
        relations = _relations(updated, speaker)
        work.writes += _mentions(updated, relations, speaker)
        triples = (*known, *relations)
        work.graph = GraphWork(memory_ids=(), triples=triples) if triples else None
    answer: dict[str, JsonValue] = {
        "id": row.memory_id,
        "status": "updated",
        "version": updated.version,
    }
    if updated.content != row.content:
        answer["embedded"] = work.has_vector(updated)
    return answer


def _speaker(row: MemoryRow, actor: str) -> str:
    """Returns whom "I" means in a corrected text: the person whose memory it is, else whom it was
    about."""
    if row.who not in ("", "pipeline", actor):
        return row.who
    claim = claim_of(row.content)
    return USER if claim is None else claim.holder.partition("'s ")[0]


def _relations(row: MemoryRow, speaker: str) -> tuple[Triple, ...]:
    """Returns the relations stated by the memory's text, if it is a claim that the rules
    recognise."""
    whole = claim_of(row.content, speaker)
    claims = claims_in(row.content, speaker, row.occurred_at.date()) if whole is None else [whole]
    return tuple(
        Triple(**triple._asdict(), confidence=row.confidence)
        for claim in claims
        for triple in triples_of(claim)
    )


_FIRST_PERSON = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Ww]e|[Oo]ur|[Uu]s)\b")


def _mentions(row: MemoryRow, relations: Sequence[Triple], speaker: str) -> list[Write]:
    """Returns mentions of the ends of the text's relations, in the text's wording: no capital marks
    "The user", and "my" names the speaker."""
    names = dict.fromkeys(name for each in relations for name in (each.source, each.target))
    writes: list[Write] = []
    for name in names:
        spoken = _FIRST_PERSON.search(row.content) if name == speaker else None
        shown = name if name in row.content else "" if spoken is None else spoken.group()
        if shown:
            name_id = entity_id(row.scope, canonical_name(name))
            writes.append(Put(mention_row(row, name_id, shown)))
    return writes


RAISED = "only a person may pin a memory, or give it an importance over 0.8"


def _forbidden(work: Work, row: MemoryRow, updated: MemoryRow) -> str | None:
    """Returns why only a person may make this change to the memory. Protection covers the content,
    its speaker, and the pin."""
    is_said = (row.content, row.type, row.who, row.pinned)
    says = (updated.content, updated.type, updated.who, updated.pinned)
    if work.by_machine and protected(row) and is_said != says:
        return PROTECTED
    is_pinned = updated.pinned and not row.pinned
    is_raised = updated.importance > max(row.importance, EXPLICIT_IMPORTANCE)
    return RAISED if is_guarded(work) and (is_pinned or is_raised) else None


def _patched(work: Work, row: MemoryRow, patch: MemoryPatch) -> MemoryRow:
    names = ("type", "importance", "tags", "pinned", "who")
    given = {name: getattr(patch, name) for name in names if getattr(patch, name) is not None}
    content = row.content if patch.content is None else patch.content
    # Also if only the speaker changed: a turn's vector covers the speaker.
    updated = with_content(replace(row, **given), content)
    if work.edition < 2 or updated.content == row.content or row.type in SOURCE_TYPES:
        return updated
    return restated(row, updated, work.message.occurred_at)


def confirm(work: Work, command: ConfirmCommand) -> Asking[JsonValue]:
    yield from work.begin([command.memory_id])
    refuse_frozen(work)
    row = work.memories.get(command.memory_id)
    if row is None or row.is_deleted:
        raise Refused(f"not_found: no active memory {command.memory_id} in this scope")
    if command.if_version is not None and command.if_version != row.version:
        raise Refused(f"version_conflict: the memory is at version {row.version}")
    # Only a person may protect a memory: otherwise one machine could block all machines from
    # correcting it.
    rate = row.decay_rate if work.by_machine else CONFIRMED_DECAY_RATE
    sure = replace(row, decay_rate=rate, confidence=1.0, retained=1.0)
    why = command.reason or "confirmed"
    sure = work.change(row, sure, "modified", why, {"confirmed": True})
    return {
        "id": row.memory_id,
        "status": "confirmed",
        "version": sure.version,
        "protected": protected(sure),
    }


# --- the scope ------------------------------------------------------------------------------------


def set_flags(work: Work, command: SetFlagsCommand) -> Asking[JsonValue]:
    yield from work.begin()
    if command.earned_update_delete is not None:
        refuse_others(
            work,
            "what a scope has earned follows from what people said of its proposals; set"
            " allow_update_delete to allow or forbid it whatever that is",
        )
        refuse_automatic(work)
    before = work.loaded.flags or FlagsRow(scope=work.scope)
    names = tuple(column.name for column in fields(FlagsRow) if column.name != "scope")
    given = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    after = replace(before, **given)
    work.writes.append(Put(after))
    now: dict[str, JsonValue] = {name: getattr(after, name) for name in names}
    work.record_outcome("flags", None, command.reason, metadata={"flags": now})
    return {"status": "set", "flags": now}


def change_entity(
    work: Work,
    command: AliasCommand | UnaliasCommand | EditEntityCommand | RemoveFromGraphCommand,
) -> Asking[JsonValue]:
    """Passes on which names denote one entity, or not, what is changed of one, or what is removed;
    the result depends on the graph."""
    yield from work.begin()
    refuse_frozen(work)
    work.graph = GraphWork(
        memory_ids=(),
        command_id=command_id(work.message),
        aliases=((command.name, command.alias),) if isinstance(command, AliasCommand) else (),
        separated=((command.name, command.alias),) if isinstance(command, UnaliasCommand) else None,
        edited=command if isinstance(command, EditEntityCommand) else None,
        removed=command.structured if isinstance(command, RemoveFromGraphCommand) else None,
        by_person=not work.by_machine if work.intent.guards_graph else None,
    )
    return PENDING


def record_shadow_proposals(work: Work, command: RecordShadowProposalsCommand) -> Asking[JsonValue]:
    """Stores proposals of shadow deciders; of each decider, fact and round the first one stays.
    Changes nothing else, even while memory is frozen."""
    yield from work.begin()
    refuse_others(work, "what further deciders propose is recorded by the worker alone")
    work.writes += [
        Put(row_of(ShadowProposalRow, each, scope=work.scope, recorded_at=work.at))
        for each in command.proposals
    ]
    return {"status": "recorded", "proposals": len(command.proposals)}


# --- sessions -------------------------------------------------------------------------------------


def end_session(work: Work, command: SessionEndCommand) -> Asking[JsonValue]:
    """Ends an open session. An ended one stays unchanged."""
    yield from work.begin(also=Load(work.scope, session_id=command.session_id))
    known = work.loaded.session
    if known is None:
        raise Refused(f"not_found: no session {command.session_id!r} in this scope")
    answer: dict[str, JsonValue] = {"session_id": known.session_id, "turns": known.turns}
    if known.ended_at is not None:
        return {**answer, "status": "already", "ended_by": known.ended_by}
    if command.after_turn is not None and command.after_turn != known.last_turn:
        return {**answer, "status": "went_on"}
    ended = as_ended(known, "command", work.at)
    if command.after_turn is not None:
        ended = as_ended(known, "silence", min(silent_at(known, work.settings.sessions), work.at))
    work.writes.append(Put(ended))
    left = without(known.session_id, work.loaded.open_sessions, work.scope)
    work.writes.append(Put(left))
    work.record_outcome(
        "session-ended", None, command.reason or "command", metadata=told_end(ended)
    )
    return {**answer, "status": "ended", "ended_by": ended.ended_by}


def update_short_term(work: Work, command: UpdateShortTermCommand) -> Asking[JsonValue]:
    """Stores a summary of a session, replacing the previous one. The session need not exist yet:
    its turns may still be in flight. Commands of earlier releases were also accepted after a wish
    to have something remembered, and a rebuild accepts them again."""
    yield from work.begin(command.turns or (), Load(work.scope, session_id=command.session_id))
    refuse_frozen(work)
    refuse_in_private_scope(work)
    settings = work.settings.short_term
    if len(command.summary) > settings.characters:
        raise Refused(
            f"invalid_request: the summary has {len(command.summary)} characters, more than the"
            f" {settings.characters} allowed (setting short_term.characters); shorten it"
        )
    if command.yields_to_wish and _is_wish(work):
        raise Refused(
            "remember_instead: the user's last turn of this session asks to remember something,"
            " which a summary forgets within hours: remember it, as `remember` does"
        )
    why_void = None if command.turns is None else _why_void(work, command.turns)
    if why_void is not None:
        return {"status": why_void, "session_id": command.session_id}
    row = summarized(
        work.message,
        command.session_id,
        command.summary,
        work.intent.actor.id,
        work.loaded.short_term,
        settings,
        None if command.turns is None else command.turns[-1],
    )
    work.writes += [ExpireShortTerm(work.at), Put(row)]
    assert row.summary_expires_at is not None
    return {
        "status": "updated",
        "session_id": row.session_id,
        "expires_at": row.summary_expires_at.isoformat(),
    }


def _is_wish(work: Work) -> bool:
    """Whether the last turn of the session's user asks to have something remembered."""
    known = work.loaded.short_term and work.loaded.short_term.left_at(work.at)
    return known is not None and known.explicit_intent


def _why_void(work: Work, turns: Sequence[str]) -> str | None:
    """Returns why a summary made from these turns is discarded."""
    known = work.loaded.short_term and work.loaded.short_term.left_at(work.at)
    rows = [work.memories.get(turn) for turn in turns]
    if known is None or turns[-1] not in known.turns:
        return "expired"
    if any(row is None or row.is_deleted for row in rows):
        return "forgotten"
    if known.explicit_intent:
        return "suppressed"
    if known.summary is None:
        return None
    # Two workers may summarize the same turns, for example while a partition moves: the first one
    # counts.
    is_own = known.summary_by == work.intent.actor.id
    return None if is_own and known.summarized_through != turns[-1] else "already"


# --- which function executes which command --------------------------------------------------------

Handler: TypeAlias = Callable[[Work, Never], Asking[JsonValue | Step]]
"""Executes a command of one type. Returns its result, or a step that is not the command's last.
Raises Refused and Executed."""

HANDLERS: Final[Mapping[type[Frozen], Handler]] = {
    RememberCommand: remember,
    ModifyCommand: modify,
    ForgetCommand: forget,
    RecoverCommand: recover,
    EraseScopeCommand: erase_scope,
    ConfirmCommand: confirm,
    ApplyProposalsCommand: review,
    DismissProposalsCommand: review,
    SetFlagsCommand: set_flags,
    SetRetentionCommand: set_windows,
    SetPrivacyCommand: set_privacy,
    SweepCommand: sweep,
    AliasCommand: change_entity,
    UnaliasCommand: change_entity,
    EditEntityCommand: change_entity,
    AddToGraphCommand: add_to_graph,
    RemoveFromGraphCommand: change_entity,
    AddDocumentCommand: add_document,
    DeleteDocumentCommand: delete_document,
    ImportCommand: import_lines,
    ChangeEmbeddingCommand: change_embedding,
    SessionEndCommand: end_session,
    UpdateShortTermCommand: update_short_term,
    PromoteCommand: promote,
    RollbackPromotionCommand: roll_back,
    RecordShadowProposalsCommand: record_shadow_proposals,
    RecordAccessCommand: record_access,
    DecayCommand: decay,
    LinkCausesCommand: link_causes,
    ConsolidateCommand: consolidate,
    ClassifyFactsCommand: classify_facts,
    WeighAspectsCommand: weigh_aspects,
    RepairCommand: repair,
    RecordHealthCommand: record_health,
}
"""The handler of every command but `DocumentTextCommand`, which has an intent of its own."""
