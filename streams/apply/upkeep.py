"""What jobs and operators do: repairs, findings (causes, facts of sessions, aspects and their
weights), recorded recalls, decay, the retention sweep, and changes of the embedding model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.aspects import (
    Classification,
    ClassifiedFact,
    ClassifyFactsCommand,
    WeighAspectsCommand,
)
from palimpsest.schemas.commands import (
    ChangeEmbeddingCommand,
    ConsolidateCommand,
    DecayCommand,
    EmbeddingChoice,
    LinkCausesCommand,
    MemoryVersion,
    RecalledMemory,
    RecordAccessCommand,
    RecordedRecall,
    RecordHealthCommand,
    RepairCommand,
    SetRetentionCommand,
    SweepCommand,
)
from palimpsest.schemas.memory_texts import dedup_key
from palimpsest.schemas.messages import CommandIntent, DecayIntent, GraphSweep, GraphWork
from palimpsest.schemas.rows.memories import SOURCE_TYPES
from palimpsest.schemas.rows.pipeline import (
    EmbeddingRow,
    RecallResultRow,
    RecallRow,
    RetentionRow,
    SweepRow,
)
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    continued,
    refuse_automatic,
    refuse_frozen,
    refuse_others,
)
from palimpsest.streams.apply.privacy import refuse_in_private_scope
from palimpsest.streams.fading import DAY, faded, reinforced
from palimpsest.streams.memory_rows import (
    answer_row,
    deleted,
    edge,
    is_erased,
    is_past,
    may_be_repeated,
    protected,
)
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Asking, Emit, Message, Step
from palimpsest.streams.store_port import (
    FADED,
    MERGED,
    OF_TOMBSTONES,
    Erase,
    Load,
    Loaded,
    Put,
    Sweep,
)


def link_causes(work: Work, command: LinkCausesCommand) -> Asking[JsonValue]:
    """Draws an edge from each cause to its effect, where both are as the model saw them."""
    ids = [key.memory_id for each in command.pairs for key in (each.cause, each.effect)]
    yield from _begin(work, ids, f"{command.command} is the worker's alone")
    pairs = [(each.cause, each.effect) for each in command.pairs]
    valid = [pair for pair in pairs if all(_is_current(work, each) for each in pair)]
    sure, evidence = command.confidence, f"inferred by {command.model}"
    work.writes += [
        Put(edge(cause.memory_id, effect.memory_id, "causal", work.scope, sure, evidence))
        for cause, effect in valid
    ]
    counts: dict[str, JsonValue] = {"examined": command.examined, "linked": len(valid)}
    return {"status": "linked", "through": command.through, **counts}


def consolidate(work: Work, command: ConsolidateCommand) -> Asking[JsonValue]:
    """Sends what a model drew from a session to decide, as far as its turns are as the model saw
    them. It is sent without facts, too: it tells up to where the session was read."""
    why = "what a model drew from a session is recorded by the worker alone"
    yield from _begin(work, [each.memory_id for each in command.sources], why)
    refuse_automatic(work)
    if not work.flags.enabled:
        raise Refused("frozen: nothing is extracted in this scope (flag enabled)")
    found = command.extraction
    current = {each.memory_id for each in command.sources if _is_current(work, each)}
    current -= {key for key in current if is_withheld(work.loaded.privacy, work.memories[key].who)}
    facts = tuple(each for each in found.facts if current.issuperset(each.sources(found.turn)))
    left = found.model_copy(update={"facts": facts})
    work.emits.append(Emit(FACTS_EXTRACTED, left, "facts"))
    return {"status": "sent", "facts": len(facts), "left_out": len(found.facts) - len(facts)}


def classify_facts(work: Work, command: ClassifyFactsCommand) -> Asking[JsonValue]:
    """Sends the graph the facts that are as the model saw them, with the keys of their texts."""
    why = f"{command.command} is the worker's alone"
    yield from _begin(work, [each.memory_id for each in command.facts], why)
    refuse_automatic(work)
    facts = [
        each.model_copy(update={"text_key": work.memories[each.memory_id].embedding_key})
        for each in command.facts
        if _is_current(work, each) and work.memories[each.memory_id].type not in SOURCE_TYPES
    ]
    if facts:
        classified = Classification(entity_type=command.entity_type, facts=tuple(facts))
        known = command_id(work.message)
        work.graph = GraphWork(memory_ids=(), command_id=known, classified=classified)
    left_out: list[JsonValue] = [*command.left_out]
    about: dict[str, JsonValue] = {"entity_id": command.entity_id, "left_out": left_out}
    return {"status": "classified", "facts": len(facts), **about}


def weigh_aspects(work: Work, command: WeighAspectsCommand) -> Asking[JsonValue]:
    """Sends the graph the changes."""
    yield from _begin(work, (), f"{command.command} is the worker's alone")
    refuse_automatic(work)
    known = command_id(work.message)
    work.graph = GraphWork(memory_ids=(), command_id=known, weighed=command.aspects)
    through = None if command.through is None else command.through.isoformat()
    confirmations = sum(each.confirmations for each in command.aspects)
    counts: dict[str, JsonValue] = {"aspects": len(command.aspects), "confirmations": confirmations}
    return {"status": "weighed", "session_id": command.session_id, "through": through, **counts}


def _begin(work: Work, memory_ids: Iterable[str], why: str) -> Asking[None]:
    """Loads the memories that the command names. Raises Refused for any caller but the worker."""
    yield from work.begin(memory_ids)
    refuse_frozen(work)
    refuse_others(work, why)


def _is_current(work: Work, seen: MemoryVersion | ClassifiedFact) -> bool:
    row = work.memories.get(seen.memory_id)
    return row is not None and not row.is_deleted and row.version == seen.version


def repair(work: Work, command: RepairCommand) -> Asking[JsonValue]:
    """Merges what is still an exact duplicate, and tells the audit of the repair."""
    ids = [key for merge in command.merges for key in (merge.keep, *merge.forget)]
    yield from _begin(work, ids, "repairs are recorded by the worker alone")
    merged = [
        key
        for merge in command.merges
        for key in merge.forget
        if _merge(work, merge.keep, key, command.by)
    ]
    told: dict[str, JsonValue] = {
        "domain": command.domain,
        "figures": {**command.figures},
        "score_before": command.score_before,
        "score_after": command.score_after,
        "merged": len(merged),
    }
    work.record_outcome(
        "repaired", None, f"{command.domain}, asked for by {command.by}", metadata=told
    )
    return {"status": "repaired", **told}


def record_health(work: Work, command: RecordHealthCommand) -> Asking[JsonValue]:
    """Tells the audit of the scores: there the trend is read, and leaves with its window."""
    yield from work.begin(())
    refuse_others(work, "the health of a partition is recorded by the worker alone")
    told: dict[str, JsonValue] = {"at": command.at.isoformat(), "scores": {**command.scores}}
    work.record_outcome("diagnosed", None, "scores of the day", metadata=told)
    return {"status": "recorded"}


def _merge(work: Work, keep: str, memory_id: str, by: str) -> bool:
    """Forgets a memory that says exactly what an older one says; returns whether it did."""
    kept, row = work.memories.get(keep), work.memories.get(memory_id)
    if kept is None or row is None or keep == memory_id or kept.is_deleted or row.is_deleted:
        return False
    if may_be_repeated(kept) or is_past(row) or protected(row):
        return False
    if (kept.type, kept.content_hash) != (row.type, row.content_hash):
        return False
    reason = f"exact duplicate of {keep}"
    work.remove(row, reason, {"duplicate_of": keep, "by": by}, archive=MERGED)
    work.writes.append(Put(edge(keep, memory_id, "supersedes", row.scope, evidence=reason)))
    if kept.dedup_key is None:
        work.put(replace(kept, dedup_key=dedup_key(kept.scope, kept.content_hash)))
    return True


# --- record-access --------------------------------------------------------------------------------


def record_access(work: Work, command: RecordAccessCommand) -> Asking[JsonValue]:
    """Each memory is reinforced once for every recall that returned it. No new version and no
    event: what a memory says has not changed. Unknown and forgotten memories are skipped."""
    named = [each.memory_id for recall in command.recalls for each in recall.results]
    ids = tuple(dict.fromkeys((*named, *(each.memory_id for each in command.erased))))
    yield from work.begin(ids)
    refuse_others(work, "what was asked is recorded by the worker alone")
    refuse_frozen(work)
    refuse_in_private_scope(work)
    # A recall may be appended just after the erasure of what it returned has gone through the
    # log: then the erasure goes through it again.
    erased = [key for key in ids if key in work.memories and is_erased(work.memories[key])]
    if erased:
        texts = dict.fromkeys(erased, "")
        work.writes.append(Erase(command_id(work.message), work.scope, texts, ()))
    accesses = [(each.memory_id, each.at) for each in command.erased]
    for recall in command.recalls:
        by_id = {each.memory_id: each for each in reversed(recall.results)}
        rows = ((each, work.memories.get(each.memory_id)) for each in by_id.values())
        shown = [each for each, row in rows if row is not None and not row.is_deleted]
        accesses += [(each.memory_id, recall.at) for each in shown]
        if not is_withheld(work.loaded.privacy, recall.asked_by or ""):
            _keep(work, recall, shown)
    for memory_id, count in Counter(memory_id for memory_id, _ in accesses).items():
        row = work.memories.get(memory_id)
        if row is not None and not row.is_deleted:
            last = max(at for other, at in accesses if other == memory_id)
            work.writes.append(Put(reinforced(row, count, min(last, work.at))))
    return {"recalls": len(command.recalls)}


def _keep(work: Work, recall: RecordedRecall, shown: Sequence[RecalledMemory]) -> None:
    """Stores a recall with its results; of one that returned an erased memory no question."""
    rows = (work.memories.get(each.memory_id) for each in recall.results)
    is_told = not any(row is not None and is_erased(row) for row in rows)
    known = RecallRow(
        recall_id=recall.recall_id,
        scope=work.scope,
        kind=recall.kind,
        asked_at=min(recall.at, work.at),
        session_id=recall.session_id,
        asked_by=recall.asked_by,
        question_id=recall.question_id if is_told else None,
        question=recall.question if is_told else None,
        recorded_at=work.at,
    )
    work.writes.append(Put(known))
    for rank, each in {each.rank: each for each in shown}.items():
        result = RecallResultRow(
            recall_id=recall.recall_id,
            rank=rank,
            scope=work.scope,
            memory_id=each.memory_id,
            score=each.score,
        )
        work.writes.append(Put(result))


# --- decay ----------------------------------------------------------------------------------------


AT_ONCE: Final = 200
"""Maximum number of memories of one record."""


def decay(work: Work, command: DecayCommand) -> Asking[Step]:
    """The first memories of the scope; the last record answers the command."""
    yield from work.begin()
    first = DecayIntent(
        command=command,
        actor=work.intent.actor,
        command_id=command_id(work.message),
        digest=work.intent.digest,
    )
    return (yield from decay_step(work.message, first, work.settings))


def decay_step(message: Message, intent: DecayIntent, settings: StageSettings) -> Asking[Step]:
    """Fades the next memories in the order of their ids, up to the record's time."""
    as_command = CommandIntent(command=intent.command, actor=intent.actor, digest=intent.digest)
    work = Work(message, settings, as_command)
    next_some = Load(message.scope, fading_after=intent.after, fading_limit=AT_ONCE)
    yield from work.load(also=next_some)
    try:
        refuse_automatic(work)
    except Refused as error:
        answer = answer_row(message, intent.command_id, "decay", intent.digest, {}, str(error))
        return Step(writes=(Put(answer),))
    counts = {"weakened": intent.weakened, "faded": intent.faded}
    for memory_id in work.loaded.fading:
        row = work.memories[memory_id]
        weaker = faded(row, work.at, intent.command.since)
        if weaker is row:
            continue
        if weaker.confidence < intent.command.floor:
            begin = row.last_accessed or row.created_at
            since = "the last access" if row.last_accessed else "it was created"
            reason = (
                f"its confidence faded to {weaker.confidence:.4f}, below {intent.command.floor:g},"
                f" {(work.at - begin) / DAY:.1f} days after {since}"
            )
            work.change(row, deleted(weaker, work.at), "deleted", reason, archive=FADED)
            counts["faded"] += 1
        else:
            work.writes.append(Put(weaker))
            counts["weakened"] += 1
    emits = [*work.changes()]
    if len(work.loaded.fading) == AT_ONCE:
        going_on = intent.model_copy(update={"after": work.loaded.fading[-1], **counts})
        emits.append(continued(message, going_on, "decay"))
    else:
        answer = answer_row(message, intent.command_id, "decay", intent.digest, {**counts})
        work.writes.append(Put(answer))
    return Step(writes=tuple(work.writes), emits=tuple(emits))


# --- retention ------------------------------------------------------------------------------------


AFTER: Final = {"vectors": "mentions", "memories": "vectors", "dead-letters": "completed"}
"""Steps that may not come further than another."""
WINDOWS: Final = tuple(each.name for each in fields(RetentionRow) if each.name != "scope")


def set_windows(work: Work, command: SetRetentionCommand) -> Asking[JsonValue]:
    yield from work.begin(also=Load(work.scope, retention=True))
    if work.by_machine:
        raise Refused("forbidden: only a person may change how long a scope is kept")
    before = work.loaded.retention
    if before is None or command.as_configured:
        before = RetentionRow(scope=work.scope)
    given = {name: days for name in WINDOWS if (days := getattr(command, name)) is not None}
    after = replace(before, **given)
    work.writes.append(Put(after))
    now: dict[str, JsonValue] = {name: getattr(after, name) for name in WINDOWS}
    work.record_outcome("retention", None, command.reason, metadata={"windows": now})
    return {"status": "set", "windows": now}


def sweep(work: Work, command: SweepCommand) -> Asking[JsonValue]:
    """Executes a step of the sweep.

    A step is a point in time: what is not later is gone. So it comes to the same whether another
    stage has written a row before it or writes it after, as in a rebuild, which runs the stages one
    after another. What several stages read of a memory is removed by graph-persist, in the order of
    changes; for this stage a memory is gone as soon as its scope is swept."""
    yield from work.begin(also=Load(work.scope, retention=True))
    if work.intent.actor.type not in ("system", "human"):
        raise Refused("forbidden: an agent may not sweep; the worker does, or a person")
    refuse_automatic(work)
    if command.before > work.at:
        raise Refused(f"invalid_request: {command.before.isoformat()} is still to come")
    swept = work.loaded.swept
    first = AFTER.get(command.step)
    if first is not None and (first not in swept or swept[first] < command.before):
        raise Refused(f"invalid_request: the step {first} must come as far before {command.step}")
    kept_for = timedelta(days=recovery_days(work.loaded, work.settings))
    if command.step == "mentions" and work.at - command.before < kept_for:
        raise Refused("invalid_request: what was deleted then can still be recovered")
    before = max(command.before, swept.get(command.step, command.before))
    row = Put(SweepRow(scope=work.scope, step=command.step, before=before))
    if command.step in OF_TOMBSTONES:
        step = GraphSweep.model_validate(
            {"step": command.step, "before": command.before, "at": work.at}
        )
        work.graph = GraphWork(memory_ids=(), command_id=command_id(work.message), sweep=step)
        work.writes.append(row)
        return None  # answered by graph-persist, once it is removed
    # Removed in a batch of its own, with the row that says so.
    work.writes += [Sweep(work.scope, command.step, command.before, work.at), row]
    return {"status": "swept", "step": command.step, "before": before.isoformat()}


def recovery_days(loaded: Loaded, settings: StageSettings) -> int:
    """How long a forgotten memory of the scope can be recovered, in days."""
    own = None if loaded.retention is None else loaded.retention.deleted_days
    return settings.pipeline.recovery_days if own is None else own


# --- change-embedding -----------------------------------------------------------------------------


def change_embedding(work: Work, command: ChangeEmbeddingCommand) -> Asking[JsonValue]:
    """Executes the command on the partition's row. The vectors themselves are no concern of the
    log. Raises Refused."""
    yield from work.begin(also=Load(work.scope, embedding=True))
    to = command.to.model_dump_json()
    live = command.live.model_dump_json()
    row = work.loaded.embedding or EmbeddingRow(scope=work.scope, live=live, recorded_at=work.at)
    if not row.switched_seq:  # until then the settings name it, and may do so anew
        row = replace(row, live=live)
    if _space(row.live) != command.live.space:
        raise Refused(
            f"invalid_request: the embedding model in use is {_space(row.live)}, no longer"
            f" {command.live.space}; see `palimpsest embedding status`"
        )
    row = replace(_changed(work, command, row, to), scope=work.scope, recorded_at=work.at)
    work.writes.append(Put(row))
    return {"action": command.action, "live": _space(row.live), "to": command.to.space}


def _changed(
    work: Work, command: ChangeEmbeddingCommand, row: EmbeddingRow, to: str
) -> EmbeddingRow:
    space, live = command.to.space, _space(row.live)
    kept = tuple(each for each in row.dropped if each != space)
    if command.action in ("migrate", "switch") and space == live:
        raise Refused(f"invalid_request: {space} is the embedding model in use")
    match command.action:
        case "migrate":
            return replace(
                row,
                upcoming=to,
                switches=command.switch,
                allow_missing=command.allow_missing,
                dropped=kept,
            )
        case "switch":
            if to not in (row.upcoming, row.former):
                raise Refused(
                    f"invalid_request: there is no migration to {space}; begin one with"
                    " `palimpsest embedding migrate`"
                )
            return replace(
                row,
                live=to,
                former=row.live,
                upcoming=None if to == row.upcoming else row.upcoming,
                dropped=kept,
                switched_seq=max(work.write_seq, row.switched_seq + 1),
            )
        case "cancel":
            if to != row.upcoming:
                raise Refused(f"invalid_request: there is no migration to {space}")
            return replace(row, upcoming=None)
        case "drop":
            if space == live or to == row.upcoming:
                raise Refused(
                    f"invalid_request: {space} is in use, or a migration makes its vectors"
                )
            former = None if to == row.former else row.former
            return replace(row, former=former, dropped=(*kept, space))


def _space(choice: str) -> str:
    return EmbeddingChoice.model_validate_json(choice).space
