"""A unit of work: reads and writes of one stage for one batch, committed at once.

Reads are prefetched in bulk and answered in record order from the rows including the batch's
changes so far, so a record sees what the records before it wrote. Nothing reaches DuckDB before
`commit`."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import duckdb

from palimpsest.schemas.identity import aspect_id
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    AspectRow,
    AspectWeightRow,
    AttributeRow,
    MentionRow,
    NameLinkRow,
    NameRow,
    RelationRow,
)
from palimpsest.schemas.rows.memories import PROFILE, ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import (
    CategoriesRow,
    CommandRow,
    DeadLetterRow,
    EmbeddingRow,
    FactRow,
    FlagsRow,
    OutcomeRow,
    PendingProposalRow,
    PrivacyRow,
    ProposalRow,
    RetentionRow,
    SweepRow,
)
from palimpsest.schemas.rows.sessions import OpenSessionsRow, SessionRow, ShortTermRow
from palimpsest.stores.database.archive import drop_repeats
from palimpsest.stores.database.membership import DEDUP_KEYS, EMBEDDING_KEYS, SOURCE_IDS
from palimpsest.stores.index.fulltext import write_postings
from palimpsest.stores.index.passages import embedding_columns, has_passages
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.batch_rows import (
    BatchRows,
    Found,
    RowT,
    among,
    known_documents,
    known_promotions,
)
from palimpsest.stores.writing.candidates import CandidateSearch
from palimpsest.stores.writing.erased_graph import erased_ids
from palimpsest.stores.writing.erasures import BatchRemovals
from palimpsest.stores.writing.memory_texts import TextSearch
from palimpsest.stores.writing.scope_caches import NameView
from palimpsest.stores.writing.sources import (
    answers_of_derived,
    archived_states,
    sources_of_derived,
    sources_with_statements,
)
from palimpsest.stores.writing.sweeps import STEPS, is_gone, is_swept
from palimpsest.streams.store_port import (
    Anticipated,
    CommittedButNotShown,
    Erase,
    EraseGraph,
    ExpireShortTerm,
    FindCandidates,
    Graph,
    KeepVector,
    Load,
    LoadDocuments,
    Loaded,
    LoadGraph,
    LoadPromotion,
    NearDuplicates,
    NotAlone,
    Progress,
    Put,
    StoreAnswer,
    StoreAsk,
    Sweep,
    Vector,
    Write,
)

if TYPE_CHECKING:
    from palimpsest.stores.state import ShardState

_Key = tuple[str, ...]


HeldBy = Literal["target_id", "turn_memory_id"]


class UnitOfWork:
    """Reads and staged writes of one batch of one stage on one shard."""

    def __init__(self, shard: ShardState, space: str = "") -> None:
        self._shard = shard
        self._rows = BatchRows(shard)
        self._by_hash: Found = {}
        self._by_source: Found = {}
        self._embeddings: dict[str, KeepVector] = {}
        self._newly_kept: list[KeepVector] = []
        self._cached_vectors: dict[str, Vector | None] = {}
        self.space = shard.space_named(space)
        """The vectors that the whole batch searches, whatever the shard uses meanwhile."""
        self._search = CandidateSearch(shard, self.space)
        self._names = NameView(shard.names)
        self._texts = TextSearch(shard, self._search)
        self._removals = BatchRemovals(shard)
        self._with_held: set[tuple[HeldBy, str]] = set()
        # The indexes of a former space have at least what was written before the change.
        self.write_seq = shard.write_seq if self.space is shard.space else shard.space.began

    # --- reading ---------------------------------------------------------------------------

    def prefetch(self, asks: Iterable[StoreAsk]) -> None:
        """Reads in bulk what these asks need, so that answering them touches no disk."""
        by_type: dict[type, list[StoreAsk]] = defaultdict(list)
        for ask in asks:
            by_type[type(ask)].append(ask)
        loads = cast("list[Load]", by_type[Load])
        if loads:
            self._rows.fetch_memories("dedup_key", self._by_hash, _wanted(loads, "content_hashes"))
            self._rows.fetch_memories("source_id", self._by_source, _wanted(loads, "source_ids"))
            turns = prefetch_sessions(self._rows, loads)
            memories = [(key,) for load in loads for key in load.memory_ids]
            self._rows.fetch(MemoryRow, [*memories, *turns])
            held = [item_id for load in loads for item_id in load.held_ids]
            targets = {key for load in loads for key in load.held_for}
            held += [row.item_id for row in self._held_of("target_id", targets)]
            turns_held = {key for load in loads for key in load.held_from}
            held += [row.item_id for row in self._held_of("turn_memory_id", turns_held)]
            items = [key for load in loads for key in _item_keys(load)]
            self._rows.fetch(OutcomeRow, [*items, *(("fact", item_id) for item_id in held)])
            self._rows.fetch(PendingProposalRow, [(item_id,) for item_id in held])
            self._rows.fetch(FactRow, [(item_id,) for load in loads for item_id in load.fact_ids])
            self._rows.fetch(ProposalRow, [key for load in loads for key in load.proposed_in])
            self._rows.fetch(CategoriesRow, [(load.scope,) for load in loads if load.categories])
        if self._shard.is_searched:
            # Of the present space, which commits change, whatever the batch searches.
            self._shard.indexes.begin({load.scope for load in loads})
        # New facts are searched for next; loading a scope's index must not block the event loop.
        for scope in {load.scope for load in loads if load.proposed_in}:
            self.space.indexes.warm(scope)
        graphs = cast("list[LoadGraph]", by_type[LoadGraph])
        named = [load.scope for load in loads if load.names or load.unspaced_text]
        self._shard.names.read([*named, *(graph.scope for graph in graphs)])
        memory_ids = {memory_id for graph in graphs for memory_id in graph.memory_ids}
        name_ids: set[str] = set()
        unknown: dict[str, set[str]] = defaultdict(set)
        for graph in graphs:
            known = self._names.match(graph.scope, graph.names, "")
            name_ids.update(known.values())
            unknown[graph.scope].update(set(graph.names) - set(known))
        self._texts.read_scopes(unknown)
        for scope, names in unknown.items():
            for found in self._texts.naming(scope, sorted(names)).values():
                memory_ids.update(found)
        keys = [(memory_id,) for memory_id in sorted(memory_ids)]
        self._texts.read_archive(self._rows.get_all(MemoryRow, keys))
        self._rows.fetch(NameRow, [(name_id,) for name_id in sorted(name_ids)])
        self._rows.fetch_relations(sorted(name_ids))

    def answer(self, ask: StoreAsk) -> StoreAnswer:
        """Returns the answer for the present state of the batch."""
        match ask:
            case Load():
                return self._load(ask)
            case FindCandidates():
                return self._search.candidates(ask, self.write_seq)
            case NearDuplicates():
                return self._search.near_duplicates(ask, self.write_seq)
            case LoadGraph():
                return self._graph(ask)
            case LoadDocuments():
                return known_documents(self._rows, ask)
            case LoadPromotion():
                return known_promotions(self._rows, ask)

    def anticipate(self, memory: Anticipated) -> None:
        """Answers later asks as if the memory were stored."""
        row = memory.row
        self._rows.anticipate(row, memory.sources)
        if row.dedup_key is not None:
            self._by_hash[(row.scope, row.content_hash)] = row.memory_id
        vector = self._vector_of(row) if memory.vector is None else memory.vector
        self._cached_vectors[row.embedding_key] = vector
        self._search.show(row, vector)

    def _load(self, ask: Load) -> Loaded:
        # A stage's second ask was unknown when the batch was prefetched.
        self._rows.fetch_memories("dedup_key", self._by_hash, _wanted([ask], "content_hashes"))
        self._rows.fetch_memories("source_id", self._by_source, _wanted([ask], "source_ids"))
        whole = self._rows.with_text(ask.scope) if ask.whole_scope else ()
        fading = self._rows.fading(ask)
        ids = (*ask.memory_ids, *whole, *fading)
        self._rows.fetch(MemoryRow, [(key,) for key in ids])
        memories = {key: self._memory(key, ask.scope) for key in ids}
        session = None if ask.session_id is None else (ask.scope, ask.session_id)
        derived = sources_of_derived(self._shard, self._rows, ask)
        return Loaded(
            memories={key: row for key, row in memories.items() if row is not None},
            by_hash=self._active(ask.scope, ask.content_hashes, self._by_hash),
            by_source=self._active(ask.scope, ask.source_ids, self._by_source),
            session=None if session is None else self._rows.get(SessionRow, session),
            open_sessions=() if session is None else open_sessions(self._rows, ask.scope),
            short_term=None if session is None else self._rows.get(ShortTermRow, session),
            # A stage that does not hold the shard's lock must not touch the names.
            entities=self._names.match(ask.scope, ask.names, ask.unspaced_text)
            if ask.names or ask.unspaced_text
            else {},
            flags=self._rows.get(FlagsRow, (ask.scope,)),
            privacy=self._rows.privacy_of(ask.scope),
            settled=frozenset(
                key[1] for key in _item_keys(ask) if self._rows.get(OutcomeRow, key) is not None
            ),
            write_seq=self.write_seq,
            command=self._row(CommandRow, ask.command_id),
            held=self._held(ask),
            texts_at=self._replaced_texts(ask),
            states=self._states(ask),
            facts={key: fact for key in ask.fact_ids if (fact := self._rows.get(FactRow, (key,)))},
            proposed=frozenset(
                key[0] for key in ask.proposed_in if self._rows.get(ProposalRow, key) is not None
            ),
            categories=self._rows.categories(ask.scope) if ask.categories else (),
            dead_letter=self._row(DeadLetterRow, ask.letter_id),
            derived=derived,
            answers=answers_of_derived(self._shard, self._rows, ask.scope, derived),
            sources=sources_with_statements(self._shard, self._rows, ask.scope, ask.sources_of),
            fading=fading,
            retention=self._row(RetentionRow, ask.scope) if ask.retention else None,
            swept={
                step: row.before
                for step in STEPS
                if ask.retention and (row := self._rows.get(SweepRow, (ask.scope, step)))
            },
            embedding=self._rows.get(EmbeddingRow, (ask.scope,)) if ask.embedding else None,
        )

    def _held(self, ask: Load) -> dict[str, PendingProposalRow]:
        """Returns the facts that are pending: those asked for, all changes of the memories
        `held_for`, and all drawn from the turns `held_from`."""
        item_ids = [*ask.held_ids]
        item_ids += sorted(row.item_id for row in self._held_of("target_id", ask.held_for))
        item_ids += sorted(row.item_id for row in self._held_of("turn_memory_id", ask.held_from))
        held: dict[str, PendingProposalRow] = {}
        for item_id in item_ids:
            row = self._rows.get(PendingProposalRow, (item_id,))
            end = self._rows.get(OutcomeRow, ("fact", item_id))
            is_held = end is not None and end.event == "blocked"
            if row is not None and is_held and row.scope == ask.scope:
                held[item_id] = row
        return held

    def _held_of(self, by: HeldBy, memories: Collection[str]) -> list[PendingProposalRow]:
        """Returns the changes of, or drawn from, these memories that are or were pending; reads
        those of a memory once in a batch."""
        missing = sorted(key for key in {*memories} if (by, key) not in self._with_held)
        if missing:
            self._with_held.update((by, key) for key in missing)
            condition = among(by, missing)
            self._rows.matching(PendingProposalRow, *condition, lambda _: True)
        known = self._rows.known(PendingProposalRow) if memories else ()
        return [row for row in known if getattr(row, by) in memories]

    def _replaced_texts(self, ask: Load) -> dict[tuple[str, int], str]:
        """Returns what memories said in these versions, of those that say something else now. A
        text is archived with the last version that had it."""
        found: dict[tuple[str, int], str] = {}
        for memory_id, version in ask.texts_at:
            row = self._memory(memory_id, ask.scope)
            if row is None or row.scope != ask.scope:
                continue
            later = [(memory_id, number) for number in range(version, row.version)]
            states = self._rows.get_all(ArchiveRow, later)
            then = min(states, key=lambda state: state.version, default=row)
            if then.content != row.content:
                found[memory_id, version] = then.content
        return found

    def _states(self, ask: Load) -> dict[str, tuple[ArchiveRow, ...]]:
        rows = {key: self._memory(key, ask.scope) for key in ask.states_of}
        return {
            key: tuple(archived_states(self._rows, row))
            for key, row in rows.items()
            if row is not None and row.scope == ask.scope
        }

    def _memory(self, memory_id: str, scope: str) -> MemoryRow | None:
        row = self._rows.get(MemoryRow, (memory_id,))
        if row is None or not row.is_deleted:
            return row
        return None if is_gone(row, self._rows.get(SweepRow, (scope, "mentions"))) else row

    def _row(self, row_type: type[RowT], key: str | None) -> RowT | None:
        return None if key is None else self._rows.get(row_type, (key,))

    def _active(
        self, scope: str, keys: Sequence[str], found: dict[tuple[str, str], str | None]
    ) -> dict[str, MemoryRow]:
        rows = {}
        for key in keys:
            memory_id = found.get((scope, key))
            row = None if memory_id is None else self._rows.get(MemoryRow, (memory_id,))
            # The batch may have changed the row since: it must still match the request.
            if row is not None and not row.is_deleted and key in (row.content_hash, row.source_id):
                rows[key] = row
        return rows

    def _graph(self, ask: LoadGraph) -> Graph:
        known = self._names.match(ask.scope, ask.names, "")
        naming = self._texts.naming(ask.scope, sorted(set(ask.names) - set(known)))
        wanted = sorted({*ask.memory_ids, *(key for keys in naming.values() for key in keys)})
        memories = self._rows.get_all(MemoryRow, [(key,) for key in wanted])
        self._texts.read_archive(memories)
        names = {name: self._name(name_id) for name, name_id in known.items()}
        same = {names[name].entity_id for name in ask.same if name in names}
        if same:  # all names of these entities, including the batch's changes
            condition = among("entity_id", sorted(same))
            rows = self._rows.matching(NameRow, *condition, lambda row: row.entity_id in same)
            names.update((row.canonical_name, row) for row in rows)
        name_ids = {row.name_id for row in names.values()}
        # Includes the relations of names added in this batch.
        committed = self._names.committed(ask.scope)
        self._rows.fetch_relations(
            sorted(names[each].name_id for each in names if each in committed)
        )
        links: dict[tuple[str, str], NameLinkRow] = {}
        if ask.links:  # these, and all others between the names
            self._rows.fetch(NameLinkRow, ask.links)
            between = self._rows.matching(
                NameLinkRow,
                *among("name_id", sorted(name_ids)),
                lambda row: row.name_id in name_ids and row.alias_id in name_ids,
            )
            links = {(row.name_id, row.alias_id): row for row in between}
        erased: frozenset[str] = frozenset()
        if ask.erased:
            with self._shard.reading() as reader:
                erased = erased_ids(reader, ask.scope)
        aspects, attributes = self._aspects(ask, name_ids)
        return Graph(
            names=names,
            relations=self._rows.relations_among(name_ids),
            texts={row.memory_id: self._texts.of(row) for row in memories},
            naming=naming,
            command=self._row(CommandRow, ask.command_id),
            erased=erased,
            links=links,
            aspects=aspects,
            attributes=attributes,
            weights=self._found(AspectWeightRow, ask.weights),
        )

    def _aspects(
        self, ask: LoadGraph, name_ids: Collection[str]
    ) -> tuple[Mapping[_Key, AspectRow | None], Mapping[_Key, AttributeRow | None]]:
        """The wanted attributes with their aspects; and the wanted aspects of all names of an
        entity, with all their attributes."""
        attributes = self._found(AttributeRow, ask.attributes)
        ids = {aspect_id(each, aspect) for each in name_ids for aspect in ask.aspects}
        if ids:
            condition = among("aspect_id", sorted(ids))
            rows = self._rows.matching(AttributeRow, *condition, lambda row: row.aspect_id in ids)
            attributes.update(((row.aspect_id, row.memory_id), row) for row in rows)
        ids.update(key[0] for key in ask.attributes)
        return self._found(AspectRow, [(each,) for each in sorted(ids)]), attributes

    def _found(self, row_type: type[RowT], keys: Sequence[_Key]) -> dict[_Key, RowT | None]:
        self._rows.fetch(row_type, keys)
        return {key: self._rows.get(row_type, key) for key in keys}

    def _name(self, name_id: str) -> NameRow:
        row = self._rows.get(NameRow, (name_id,))
        if row is None:
            raise AssertionError(f"name {name_id} is known but not stored")
        return row

    # --- writing ---------------------------------------------------------------------------

    def stage(self, writes: Iterable[Write]) -> None:
        """Stages writes so that later records of the batch see them."""
        if any(row.switched_seq > self.space.began for row in self._rows.staged(EmbeddingRow)):
            raise NotAlone  # the models were asked for vectors of the former space
        for write in writes:
            self._removals.check()
            match write:
                case Put(row):
                    self._stage_row(row)
                case KeepVector():
                    self._embeddings[write.embedding_key] = write
                case ExpireShortTerm(at):
                    self._rows.expire(at)
                case Erase() | EraseGraph() | Sweep():
                    self._removals.stage(write, alone=self._rows.is_empty)
                    if isinstance(write, Sweep) and write.answer is not None:
                        self._stage_row(write.answer)

    def _stage_row(self, row: Row) -> None:
        if is_swept(row, self._shard.swept):
            return
        self._rows.stage(row)
        if isinstance(row, MemoryRow) and not self._rows.is_weighed_only(row):
            self.write_seq = max(self.write_seq, row.write_seq)
            if row.dedup_key is not None:
                self._by_hash[(row.scope, row.content_hash)] = row.memory_id
            is_found = row.dedup_key is not None or (row.type == PROFILE and not row.is_deleted)
            if row.source_id is not None and is_found:
                self._by_source[(row.scope, row.source_id)] = row.memory_id
            self._search.show(row, self._vector_of(row))
        elif isinstance(row, NameRow):
            self._names.staged(row)

    def _vector_of(self, row: MemoryRow) -> Vector | None:
        """The vector of the row's text: of this batch, else the one stored for the same text."""
        if row.is_deleted:
            return None
        key = row.embedding_key
        if key in self._embeddings:
            return self._embeddings[key].vector
        if key not in self._cached_vectors:
            known = self._shard.known.among(EMBEDDING_KEYS, [key])
            self._cached_vectors[key] = self.space.stored_vector(key) if known else None
        return self._cached_vectors[key]

    def commit(self, progress: Progress) -> None:
        """Writes all staged writes and the stage's progress in one transaction.

        After an error nothing is stored and the unit must be discarded; after CommittedButNotShown
        all is stored, and the shard must be discarded."""
        with contextlib.ExitStack() as until_shown:
            self._rows.drop_repeats()
            self._write(progress, until_shown)
            try:
                self._note_keys()
                # Before the sequence number is known: a decision may see more than it says, never
                # less.
                self._refresh_indexes()
                self._removals.show()
                for row in self._rows.staged(EmbeddingRow):
                    self._shard.use(row)
                self._shard.note_progress(progress)
                # Another stage may have written while this one waited for a model.
                self._shard.write_seq = max(self.write_seq, self._shard.write_seq)
            except Exception as error:
                raise CommittedButNotShown(
                    f"a batch of {progress.stage} is stored, but what is cached in memory could not"
                    f" take it ({type(error).__name__}: {error}); start the worker again"
                ) from error
        self._shard.commits.announce()

    def _write(self, progress: Progress, until_shown: contextlib.ExitStack) -> None:
        with self._shard.writing() as connection:
            connection.execute("BEGIN")
            try:
                self._shard.short_term.sweep(self._shard.tables, self._rows.expired)
                self._rows.write(self._shard.tables)
                drop_repeats(connection, self._shard.folder, self._rows.staged(ArchiveRow))
                staged = self._rows.staged(MemoryRow)
                changed = [row for row in staged if self._rows.is_text_changed(row)]
                if changed:
                    before = [row for row in changed if self._rows.before(row) is not None]
                    write_postings(
                        connection,
                        self._shard.tables,
                        changed,
                        replaced=[row.memory_id for row in before],
                        language=self._shard.options.search.language,
                    )
                known = self._shard.stored_keys(list(self._embeddings))
                new = [kept for key, kept in self._embeddings.items() if key not in known]
                if new:
                    columns = embedding_columns(self.space.options.embedding_model, new)
                    self._shard.tables.insert_columns("embeddings", columns)
                self._newly_kept = new
                self._removals.write(connection)
                if self.write_seq > self._shard.write_seq:
                    self._shard.set_state("write_seq", str(self.write_seq))
                self._shard.write_progress(progress)
                until_shown.enter_context(self._shard.unshown)
                connection.execute("COMMIT")
            except BaseException:
                # A commit that failed, as on a full disk, has ended the transaction already.
                with contextlib.suppress(duckdb.Error):
                    connection.execute("ROLLBACK")
                raise

    def _note_keys(self) -> None:
        """Publishes the new keys to the shard."""
        memories = self._rows.staged(MemoryRow)
        self._shard.newest_facts.note(memories)
        known = self._shard.known
        for row_type, keys in self._rows.inserted_keys():
            known.add_rows(row_type, keys)
        known.add(DEDUP_KEYS, [row.dedup_key for row in memories if row.dedup_key is not None])
        known.add(SOURCE_IDS, [row.source_id for row in memories if row.source_id is not None])
        known.add(EMBEDDING_KEYS, self._embeddings)
        self._shard.tokens.note(
            {kept.embedding_key: kept.tokens for kept in self._newly_kept if kept.tokens}
        )
        self._shard.short_term.note(self._rows.expired, self._rows.staged(ShortTermRow))
        staged = self._rows.staged
        self._shard.note_settings(staged(FlagsRow), staged(PrivacyRow), staged(SweepRow))

    def _refresh_indexes(self) -> None:
        """Updates the indexes in memory of the scopes of the committed rows."""
        language = self._shard.options.search.language
        for memory in self._rows.staged(MemoryRow):
            if self._rows.is_weighed_only(memory):
                self._shard.indexes.change(memory.scope, partial(ScopeIndex.weigh, row=memory))
                continue
            vector = self._vector_of(memory)
            if vector is None and not memory.is_deleted:
                self._shard.may_lack_vectors = True
            self._shard.may_lack_passages |= has_passages(memory)
            if self._shard.indexes.wanted(memory.scope):
                change = (
                    partial(ScopeIndex.put_row, row=memory, vector=vector, language=language)
                    if self._rows.is_text_changed(memory)
                    else partial(ScopeIndex.update_row, row=memory, vector=vector)
                )
                self._shard.indexes.change(memory.scope, change)
        for edge in self._rows.staged(EdgeRow):
            self._shard.indexes.change(edge.scope, partial(ScopeIndex.link, edge=edge))
        for held in self._rows.staged(PendingProposalRow):
            self._shard.indexes.change(held.scope, ScopeIndex.note_changes)
        settled = (row for row in self._rows.staged(OutcomeRow) if row.item_kind == "fact")
        for scope in {row.scope for row in settled if row.event != "created"}:
            self._shard.indexes.change(scope, partial(ScopeIndex.note_changes, is_first=False))
        graph_rows: list[NameRow | RelationRow | MentionRow] = [
            *self._rows.staged(NameRow),
            *self._rows.staged(RelationRow),
            *self._rows.staged(MentionRow),
        ]
        for row in graph_rows:
            self._shard.indexes.change(row.scope, partial(ScopeIndex.put_graph_row, row=row))
        self._names.commit()


def _wanted(loads: Sequence[Load], attribute: str) -> list[tuple[str, str]]:
    return [(load.scope, key) for load in loads for key in getattr(load, attribute)]


def _item_keys(load: Load) -> list[tuple[str, str]]:
    facts = [("fact", item_id) for item_id in load.item_ids]
    return [*facts, *(("turn", item_id) for item_id in load.turn_item_ids)]


# Reads sessions for a batch: those requested, and all open ones of their scopes.


def prefetch_sessions(rows: BatchRows, loads: Sequence[Load]) -> list[tuple[str]]:
    """Reads what `Load.session_id` needs, in bulk. Returns the keys of the turns to read next, once
    the sessions are known."""
    keys = [(load.scope, load.session_id) for load in loads if load.session_id is not None]
    opened = rows.get_all(OpenSessionsRow, [(scope,) for scope in {scope for scope, _ in keys}])
    open_keys = [(row.scope, session_id) for row in opened for session_id in row.session_ids]
    rows.fetch(SessionRow, [*keys, *open_keys])
    rows.fetch(ShortTermRow, keys)
    sessions = rows.get_all(SessionRow, list(dict.fromkeys(keys)))
    shown = ((*each.extracted_turns, each.role_play) for each in sessions)
    return [(turn_id,) for some in shown for turn_id in some if turn_id is not None]


def open_sessions(rows: BatchRows, scope: str) -> tuple[SessionRow, ...]:
    """The open sessions of a scope, including the batch's changes."""
    opened = rows.get(OpenSessionsRow, (scope,))
    ids = () if opened is None else opened.session_ids
    return tuple(rows.get_all(SessionRow, [(scope, session_id) for session_id in ids]))
