"""Executes commands: direct requests of people and agents."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import fields, replace

from pydantic import JsonValue

from palimpsest.schemas.commands import (
    AddDocumentCommand,
    AliasCommand,
    ApplyProposalsCommand,
    Command,
    ConfirmCommand,
    DeleteDocumentCommand,
    DismissProposalsCommand,
    DocumentTextCommand,
    EraseScopeCommand,
    ForgetCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    PromoteCommand,
    RecordShadowProposalsCommand,
    RecoverCommand,
    RememberCommand,
    RollbackPromotionCommand,
    SessionEndCommand,
    SetFlagsCommand,
    SetPrivacyCommand,
    ShadowProposal,
    UpdateShortTermCommand,
)
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.messages import CommandIntent, GraphWork
from palimpsest.schemas.normal_forms import canonical_name, content_hash, storage_content
from palimpsest.schemas.rows import (
    SOURCE_TYPES,
    FlagsRow,
    MemoryRow,
    ShadowProposalRow,
)
from palimpsest.streams.apply.command_work import (
    PROTECTED,
    Refused,
    Work,
    command_id,
    done,
    is_guarded,
    known_id,
    refusal,
    refuse_frozen,
    refuse_untaught,
)
from palimpsest.streams.apply.erase import erase_scope
from palimpsest.streams.apply.forget import Sources, forget, load_derived, recover
from palimpsest.streams.apply.hiding import hide_or_show, told_hiding
from palimpsest.streams.apply.outcomes import load_names, mention_row, texts_after
from palimpsest.streams.apply.promotion import promote_step
from palimpsest.streams.apply.remember import EXPLICIT_IMPORTANCE, parse_prefix, remember
from palimpsest.streams.apply.rollback import rollback_step
from palimpsest.streams.apply.sessions import (
    alive,
    as_ended,
    silent_at,
    summarized,
    told_end,
    without,
)
from palimpsest.streams.claims.grammar import USER, claim_of
from palimpsest.streams.claims.reading import claims_in
from palimpsest.streams.claims.triples import triples_of
from palimpsest.streams.memory_rows import (
    CONFIRMED_DECAY_RATE,
    archived,
    changed,
    effective,
    protected,
    with_content,
)
from palimpsest.streams.privacy import (
    About,
    load_about,
    load_known_of,
    refuse_about_private,
    refuse_in_private_scope,
    set_privacy,
)
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Embed, Embedded, Message, Step
from palimpsest.streams.store_port import ExpireShortTerm, Load, Loaded, Put, Write

PENDING = None
"""The result of a command that a later stage will answer; never shown."""


def command_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Executes one command; its result, also a refusal, is stored under the command's id."""
    command = intent.command
    if intent.error is not None or command is None:
        return refusal(message, intent, intent.error or "invalid_request: no command")
    if isinstance(command, PromoteCommand):
        return (yield from promote_step(message, intent, command, settings))
    if isinstance(command, RollbackPromotionCommand):
        return (yield from rollback_step(message, intent, command, settings))
    if isinstance(command, RecordShadowProposalsCommand):
        return (yield from shadow_step(message, intent, settings))
    texts = _texts(command)
    embedded = yield Embed(texts)
    assert isinstance(embedded, Embedded)
    loaded = yield _load(message, command, texts)
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    embeddings = dict(zip(texts, embedded.embeddings, strict=True))
    work = Work.begun(message, intent, settings, loaded, embeddings)
    if isinstance(command, ModifyCommand):
        named = yield load_names(message.scope, texts_after(command, work.memories))
        assert isinstance(named, Loaded)
        work.names = named.entities
    if isinstance(command, RecoverCommand) and command.memory_id in work.memories:
        digest = work.memories[command.memory_id].content_hash
        again = yield Load(message.scope, content_hashes=(digest,))
        assert isinstance(again, Loaded)
        work.know(again)
    about: About = {}
    if isinstance(command, ModifyCommand) and loaded.privacy:
        about = yield from load_about(work, command)
    sources: Sources = {}
    if isinstance(command, ForgetCommand) and (command.cascade or command.confirm_token):
        sources = yield from load_derived(work, command)
    try:
        if isinstance(command, SetPrivacyCommand):
            result = set_privacy(work, command, (yield from load_known_of(work, command)))
        else:
            result = _carry_out(work, command, sources, about)
    except Refused as error:
        return refusal(message, intent, str(error))
    return done(work, command, (yield from _with_sources(work, command, result)))


def _with_sources(
    work: Work, command: Command, result: JsonValue
) -> Generator[Ask, Answer, JsonValue]:
    """Returns the result, after hiding what was forgotten in its sources, and showing what was
    recovered. An erasure removes only what it names."""
    if not work.intent.hides or not isinstance(command, ForgetCommand | RecoverCommand):
        return result
    if isinstance(command, ForgetCommand) and command.hard:
        return result
    touched = [memory_id for memory_id, _ in work.touched]
    hidden = yield from hide_or_show(work, touched, command.reason or command.command)
    return told_hiding(result, hidden)


def _texts(command: Command) -> tuple[str, ...]:
    """The texts that may become the content of a memory, in storage form."""
    if isinstance(command, RememberCommand):
        return (storage_content(parse_prefix(command.content)[2]),)
    if isinstance(command, ModifyCommand):
        return tuple(storage_content(p.content) for p in command.patches if p.content is not None)
    return ()


def _load(message: Message, command: Command, texts: tuple[str, ...]) -> Load:
    ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    session_id: str | None = None
    if isinstance(command, ModifyCommand):
        ids = tuple(patch.memory_id for patch in command.patches)
    elif isinstance(command, ForgetCommand):
        ids = command.memory_ids
    elif isinstance(command, RecoverCommand | ConfirmCommand):
        ids = (command.memory_id,)
    elif isinstance(command, RememberCommand) and command.source_id is not None:
        sources = (command.source_id,)
    elif isinstance(command, UpdateShortTermCommand):
        session_id, ids = command.session_id, command.turns or ()
    elif isinstance(command, SessionEndCommand):
        session_id = command.session_id
    return replace(
        load_names(message.scope, texts if isinstance(command, RememberCommand) else ()),
        memory_ids=ids,
        content_hashes=tuple(content_hash(text) for text in texts),
        source_ids=sources,
        command_id=command_id(message),
        session_id=session_id,
        whole_scope=isinstance(command, EraseScopeCommand),
    )


def _refuse(work: Work, command: Command, about: About) -> None:
    """Raises Refused for what flags and privacy levels do not allow."""
    if not isinstance(command, SetFlagsCommand | SessionEndCommand):
        refuse_frozen(work)
    refuse_untaught(work, command)
    if isinstance(command, RememberCommand | ModifyCommand):
        refuse_about_private(work, command, about)
    elif isinstance(command, UpdateShortTermCommand):
        refuse_in_private_scope(work)


def _carry_out(work: Work, command: Command, sources: Sources, about: About) -> JsonValue:
    _refuse(work, command, about)
    match command:
        case RememberCommand():
            return remember(work, command)
        case ModifyCommand():
            return [_modify(work, patch, command.reason) for patch in command.patches]
        case ForgetCommand():
            return forget(work, command, sources)
        case RecoverCommand():
            return recover(work, command)
        case EraseScopeCommand():
            return erase_scope(work, command)
        case ConfirmCommand():
            return _confirm(work, command)
        case SetFlagsCommand():
            return _set_flags(work, command)
        case SessionEndCommand() | UpdateShortTermCommand():
            return session_result(work, command)
        case AliasCommand():
            work.graph = GraphWork(
                memory_ids=(),
                command_id=command_id(work.message),
                aliases=((command.name, command.alias),),
            )
            return PENDING  # the result depends on the graph
        case (
            ApplyProposalsCommand()
            | DismissProposalsCommand()
            | AddDocumentCommand()
            | DeleteDocumentCommand()
            | DocumentTextCommand()
            | ImportCommand()
            | PromoteCommand()
            | RollbackPromotionCommand()
            | RecordShadowProposalsCommand()
            | SetPrivacyCommand()
        ):
            raise TypeError(f"{command.command} is carried out elsewhere")


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
    updated = _patched(row, patch)
    forbidden = _forbidden(work, row, updated)
    if forbidden is not None:
        return {"id": row.memory_id, "status": "forbidden", "why": forbidden}
    if updated == row:
        return {"id": row.memory_id, "status": "no_changes", "version": row.version}
    if updated.content_hash != row.content_hash:
        other = None if updated.dedup_key is None else work.same_content(updated)
        if other is not None:
            return {
                "id": row.memory_id,
                "status": "duplicate_content_hash",
                "duplicate_of": other,
            }
    if (updated.who, updated.content) != (row.who, row.content):
        work.writes.append(Put(archived(row, "modified", work.at)))
    updated = work.put(changed(updated, work.at, work.intent.actor.id, 0))
    work.tell("modified", row.memory_id, patch.reason or reason, row, updated)
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


def _says_else(row: MemoryRow, updated: MemoryRow) -> bool:
    """Returns whether something that protection covers changed: the content, its speaker, or the
    pin."""
    return (row.content, row.type, row.who, row.pinned) != (
        updated.content,
        updated.type,
        updated.who,
        updated.pinned,
    )


RAISED = "only a person may pin a memory, or give it an importance over 0.8"


def _forbidden(work: Work, row: MemoryRow, updated: MemoryRow) -> str | None:
    """Returns why only a person may make this change to the memory."""
    if work.by_machine and protected(row) and _says_else(row, updated):
        return PROTECTED
    return RAISED if is_guarded(work) and _raises(row, updated) else None


def _raises(row: MemoryRow, updated: MemoryRow) -> bool:
    more = updated.importance > max(row.importance, EXPLICIT_IMPORTANCE)
    return more or (updated.pinned and not row.pinned)


def _patched(row: MemoryRow, patch: MemoryPatch) -> MemoryRow:
    row = replace(
        row,
        type=row.type if patch.type is None else patch.type,
        importance=row.importance if patch.importance is None else patch.importance,
        tags=row.tags if patch.tags is None else patch.tags,
        pinned=row.pinned if patch.pinned is None else patch.pinned,
        who=row.who if patch.who is None else patch.who,
    )
    # Also if only the speaker changed: a turn's vector covers the speaker.
    return with_content(row, row.content if patch.content is None else patch.content)


def _confirm(work: Work, command: ConfirmCommand) -> JsonValue:
    row = work.memories.get(command.memory_id)
    if row is None or row.is_deleted:
        raise Refused(f"not_found: no active memory {command.memory_id} in this scope")
    if command.if_version is not None and command.if_version != row.version:
        raise Refused(f"version_conflict: the memory is at version {row.version}")
    # Only a person may protect a memory: otherwise one machine could block all machines from
    # correcting it.
    rate = row.decay_rate if work.by_machine else CONFIRMED_DECAY_RATE
    sure = replace(changed(row, work.at, work.intent.actor.id, 0), decay_rate=rate, confidence=1.0)
    sure = work.put(sure)
    metadata: dict[str, JsonValue] = {"confirmed": True}
    why = command.reason or "confirmed"
    work.tell("modified", row.memory_id, why, row, sure, metadata=metadata)
    return {
        "id": row.memory_id,
        "status": "confirmed",
        "version": sure.version,
        "protected": protected(sure),
    }


def _set_flags(work: Work, command: SetFlagsCommand) -> JsonValue:
    if command.earned_update_delete is not None:
        refuse_unearned(work)
    before = work.loaded.flags or FlagsRow(scope=work.message.scope)
    names = tuple(column.name for column in fields(FlagsRow) if column.name != "scope")
    given = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    after = replace(before, **given)
    work.writes.append(Put(after))
    now: dict[str, JsonValue] = {name: getattr(after, name) for name in names}
    work.tell("flags", None, command.reason, metadata={"flags": now})
    return {"status": "set", "flags": now}


# Proposals of shadow deciders, and a scope's automatic permission to update and delete.


def shadow_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Stores proposals of shadow deciders; of each decider, fact and round the first one stays.
    Changes nothing else, even while memory is frozen."""
    command = intent.command
    assert isinstance(command, RecordShadowProposalsCommand)
    loaded = yield Load(message.scope, command_id=command_id(message))
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    work = Work.begun(message, intent, settings, loaded)
    try:
        _refuse_others(work, "what further deciders propose is recorded by the worker alone")
    except Refused as error:
        return refusal(message, intent, str(error))
    work.writes += [Put(_row(work, each)) for each in command.proposals]
    return done(work, command, {"status": "recorded", "proposals": len(command.proposals)})


def refuse_unearned(work: Work) -> None:
    """Raises Refused unless the worker itself grants the permission, and automatic changes are
    allowed now."""
    _refuse_others(
        work,
        "what a scope has earned follows from what people said of its proposals; set"
        " allow_update_delete to allow or forbid it whatever that is",
    )
    refuse_frozen(work)
    if effective(work.settings.pipeline, work.loaded.flags).autonomous_frozen:
        raise Refused("frozen: nothing changes by itself now (flag autonomous_frozen)")


def _refuse_others(work: Work, why: str) -> None:
    if work.intent.actor.type != "system":
        raise Refused(f"forbidden: {why}")


def _row(work: Work, proposal: ShadowProposal) -> ShadowProposalRow:
    return ShadowProposalRow(
        item_id=proposal.item_id,
        round=proposal.round,
        decider=proposal.decider,
        scope=work.message.scope,
        turn_memory_id=proposal.turn_memory_id,
        action=proposal.action,
        target_id=proposal.target_id,
        confidence=proposal.confidence,
        reason=proposal.reason,
        error=proposal.error,
        input_tokens=proposal.input_tokens,
        output_tokens=proposal.output_tokens,
        latency_ms=proposal.latency_ms,
        cost=proposal.cost,
        recorded_at=work.at,
    )


# Session commands: end a session, summarize it.


def session_result(work: Work, command: SessionEndCommand | UpdateShortTermCommand) -> JsonValue:
    if isinstance(command, SessionEndCommand):
        return _end(work, command)
    return _update_short_term(work, command)


def _end(work: Work, command: SessionEndCommand) -> JsonValue:
    """Ends an open session. An ended one stays unchanged."""
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
    left = without(known.session_id, work.loaded.open_sessions, work.message.scope)
    work.writes.append(Put(left))
    work.tell("session-ended", None, command.reason or "command", metadata=told_end(ended))
    return {**answer, "status": "ended", "ended_by": ended.ended_by}


def _update_short_term(work: Work, command: UpdateShortTermCommand) -> JsonValue:
    """Stores a summary of a session, replacing the previous one. The session need not exist yet:
    its turns may still be in flight."""
    settings = work.settings.short_term
    if len(command.summary) > settings.characters:
        raise Refused(
            f"invalid_request: the summary has {len(command.summary)} characters, more than the"
            f" {settings.characters} allowed (setting short_term.characters); shorten it"
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


def _why_void(work: Work, turns: Sequence[str]) -> str | None:
    """Returns why a summary made from these turns is discarded."""
    known = alive(work.loaded.short_term, work.at)
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
