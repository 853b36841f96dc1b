"""Erases texts: from all tables in the transaction of the erasure, then from files.

An erasure is kept in `erasures` until no file of the store or the log has its texts any more. Its
phases: `log` (records of the log and in-flight records still have them; the texts are kept to be
searched for), `files` (only freed bytes of the store's files have them), `done`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

import duckdb

from palimpsest.schemas.erasure.quotations import ERASED, is_mark, mark_of, marks_of
from palimpsest.schemas.erasure.redaction import Redaction
from palimpsest.schemas.erasure.scrubbing import Scrub
from palimpsest.schemas.erasure.vocabulary import EDGES
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.normal_forms import folded, folded_hash
from palimpsest.schemas.rows.columns import columns_of
from palimpsest.schemas.rows.pipeline import PrivacyRow
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.stores.database.archive import drop_states, redact_states
from palimpsest.stores.index.passages import DROP_STALE_PASSAGES
from palimpsest.stores.index.scope_graph import GraphRemoval
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.erased_graph import OF_GRAPH, erase_graph, erased_ids, free_again
from palimpsest.stores.writing.redacted_tables import JSON_COLUMNS, redact_tables, update_rows
from palimpsest.stores.writing.sweeps import SWEEPS
from palimpsest.streams.store_port import OF_TOMBSTONES, Erase, EraseGraph, NotAlone, Sweep

DONE: Final = "done"
UNFINISHED: Final = "SELECT erasure_id, scope, phase, memory_ids, texts, scope_at FROM erasures"


@dataclass(frozen=True, slots=True)
class Erasure:
    """The unfinished part of an erasure. `texts` are those of its memories by id; `scope_at` is
    when the whole scope was erased."""

    erasure_id: str
    scope: str
    phase: str
    memory_ids: tuple[str, ...]
    texts: Mapping[str, Sequence[str]]
    scope_at: datetime | None = None


class BatchRemovals:
    """The erasures and sweeps of one batch."""

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard
        self._staged: list[Erase | EraseGraph | Sweep] = []
        self._removed: list[tuple[str, GraphRemoval]] = []
        self._freed = False

    def stage(self, write: Erase | EraseGraph | Sweep, alone: bool) -> None:
        """`alone`: no row was staged before. Raises NotAlone."""
        if _is_of_own_batch(write) and not alone:
            raise NotAlone
        self._staged.append(write)

    def check(self) -> None:
        """Called before anything else is staged. Raises NotAlone."""
        if any(map(_is_of_own_batch, self._staged)):
            raise NotAlone

    def write(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Runs in the running transaction, once the batch's rows are written."""
        for write in self._staged:
            match write:
                case Erase():
                    _erase(connection, write, self._shard.redacts_names_at_once)
                case EraseGraph(scope, memory_ids):
                    self._note_removal(scope, erase_graph(connection, scope, memory_ids))
                    if memory_ids is None:
                        scrub_results(connection, scope)
                    self._freed |= free_again(connection, scope, memory_ids)
                case Sweep():
                    self._note_removal(write.scope, SWEEPS[write.step](connection, write))

    def _note_removal(self, scope: str, removal: GraphRemoval | None) -> None:
        if removal is not None:
            self._removed.append((scope, removal))

    def show(self) -> None:
        """Removes from all caches, after the commit, what was erased and what the graph lost. An
        index keeps all else: to load one takes seconds where a scope is large."""
        shard = self._shard
        for write in self._staged:
            match write:
                case Erase(scope_at=None):
                    change = partial(ScopeIndex.erase, memory_ids=[*write.texts])
                    shard.indexes.change(write.scope, change)
                case Erase() | EraseGraph(memory_ids=None):
                    shard.indexes.forget(write.scope)
                    shard.names.forget(write.scope)
                    shard.known.forget()  # names of a whole scope are parts of keys
            shard.has_erasures |= isinstance(write, Erase) or self._freed
        shard.late_in_graph += self._freed
        for scope, removal in self._removed:
            change = partial(ScopeIndex.remove_from_graph, removal=removal)
            shard.indexes.change(scope, change)
            if removal.names:
                shard.names.forget(scope)


def _is_of_own_batch(write: Erase | EraseGraph | Sweep) -> bool:
    """Whether a removal counts what was written before."""
    return isinstance(write, EraseGraph) or (
        isinstance(write, Sweep) and write.step in OF_TOMBSTONES
    )


def _erase(connection: duckdb.DuckDBPyConnection, erase: Erase, with_names: bool) -> None:
    ids = sorted(erase.texts)
    texts, keys = _archived(connection, erase.scope, ids)
    for memory_id, text in erase.texts.items():
        # In an erased log the text is a mark, with the number that it had before.
        texts.setdefault(memory_id, []).append(text)
    keys += _redact_earlier(connection, erase, texts)
    held = connection.execute(
        "SELECT content FROM held_proposals WHERE turn_memory_id IN (SELECT unnest(?))", [ids]
    ).fetchall()
    keys += [*erase.embedding_keys, *(embedding_key(content) for (content,) in held)]
    connection.execute(
        "INSERT OR REPLACE INTO erasures SELECT ?, ?, coalesce(max(position), 0) + 1, 'log', ?, ?,"
        " ? FROM erasures",
        [
            *(erase.erasure_id, erase.scope, ids, json.dumps(texts, ensure_ascii=False)),
            erase.scope_at,
        ],
    )
    drop_states(connection, erase.scope, ids)
    for table in ("fts_docs", "fts_postings", "turn_passages"):
        connection.execute(f"DELETE FROM {table} WHERE memory_id IN (SELECT unnest(?))", [ids])
    _forget_beside(connection, erase.scope, ids)
    _forget_recalls(connection, erase, ids)
    erasure = Erasure(erase.erasure_id, erase.scope, "log", tuple(ids), texts, erase.scope_at)
    redact_tables(connection, [redaction_of(connection, erasure, with_names)])
    scrub = scrub_of(connection, erasure)
    if scrub is not None:
        scrub_tables(connection, scrub)
    connection.execute(DROP_STALE_PASSAGES, [erase.scope])
    connection.execute(
        "DELETE FROM embeddings WHERE embedding_key IN (SELECT unnest(?)) AND embedding_key NOT IN"
        " (SELECT embedding_key FROM memory_rows)",
        [keys],
    )


def _redact_earlier(
    connection: duckdb.DuckDBPyConnection, erase: Erase, texts: dict[str, list[str]]
) -> list[str]:
    """Removes what memories that stay said before from their archived states and the graph, and
    adds it to the `texts` to be removed. Returns the keys of its vectors."""
    if not erase.earlier:
        return []
    texts |= {each.key: [each.text] for each in erase.earlier}
    marks = {(each.memory_id, each.text): mark_of(each.key) for each in erase.earlier}
    redacted = redact_states(connection, erase.scope, marks)
    for memory_id, key in redacted:
        for table in ("mention_rows", "attribute_rows"):
            connection.execute(
                f"DELETE FROM {table} WHERE memory_id = ? AND text_key = ?", [memory_id, key]
            )
    return [key for _, key in redacted]


def _forget_recalls(
    connection: duckdb.DuckDBPyConnection, erase: Erase, ids: Sequence[str]
) -> None:
    """What recalls tell of memories: that they returned them, and what was asked."""
    if erase.scope_at is not None:
        for table in ("recalls", "recall_results"):
            connection.execute(f"DELETE FROM {table} WHERE scope = ?", [erase.scope])
        return
    returned = "scope = $scope AND memory_id IN (SELECT unnest($ids))"
    given = {"scope": erase.scope, "ids": [*ids]}
    connection.execute(
        "UPDATE recalls SET question = NULL, question_id = NULL"
        f" WHERE recall_id IN (SELECT recall_id FROM recall_results WHERE {returned})",
        given,
    )
    connection.execute(f"DELETE FROM recall_results WHERE {returned}", given)


def _forget_beside(connection: duckdb.DuckDBPyConnection, scope: str, ids: Sequence[str]) -> None:
    """What tells of memories without being one: summaries of their sessions, what people said of
    their edges, categories that they alone had, and how documents are called of which no chunk is
    left."""
    of_them = (
        " scope = $scope AND (split_part(source_id, '@', 1) IN (SELECT unnest($ids))"
        " OR split_part(target_id, '@', 1) IN (SELECT unnest($ids)))"
    )
    connection.execute(
        f"DELETE FROM memory_edges WHERE {of_them}"
        " AND relation_type NOT IN (SELECT unnest($program))",
        {"scope": scope, "ids": [*ids], "program": sorted(EDGES)},
    )
    connection.execute(
        f"UPDATE memory_edges SET predicate = '', evidence = '' WHERE {of_them}",
        {"scope": scope, "ids": [*ids]},
    )
    connection.execute(
        "UPDATE scope_categories SET names = (SELECT coalesce(list(DISTINCT name ORDER BY name),"
        " []) FROM (SELECT unnest(categories) AS name FROM memory_rows WHERE scope = $scope))"
        " WHERE scope = $scope",
        {"scope": scope},
    )
    connection.execute("DELETE FROM scope_categories WHERE scope = ? AND names = []", [scope])
    connection.execute(
        "UPDATE short_term_rows SET summary = NULL, summary_by = NULL, summary_at = NULL,"
        " summary_expires_at = NULL, summarized_through = NULL WHERE scope = $scope"
        " AND (session_id IN (SELECT session_id FROM memory_rows"
        "   WHERE memory_id IN (SELECT unnest($ids)))"
        "  OR NOT EXISTS (FROM memory_rows WHERE scope = $scope AND content_hash <> ''))",
        {"scope": scope, "ids": [*ids]},
    )
    connection.execute(
        "UPDATE document_rows d SET title = '', source = NULL, same_key = NULL"
        " WHERE document_id IN (SELECT document_id FROM document_memory_rows"
        "   WHERE memory_id IN (SELECT unnest($ids)))"
        " AND NOT EXISTS (FROM document_memory_rows c JOIN memory_rows m USING (memory_id)"
        "   WHERE c.document_id = d.document_id AND m.content_hash <> '')",
        {"ids": [*ids]},
    )


def _archived(
    connection: duckdb.DuckDBPyConnection, scope: str, ids: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the earlier texts of memories, oldest first, and the keys of these texts' vectors."""
    texts: dict[str, list[str]] = {}
    keys = []
    rows = connection.execute(
        "SELECT memory_id, content, json_extract_string(state, '$.embedding_key')"
        " FROM archived_states WHERE scope = ? AND memory_id IN (SELECT unnest(?))"
        " ORDER BY memory_id, version",
        [scope, ids],
    )
    for memory_id, content, key in rows.fetchall():
        texts.setdefault(memory_id, []).append(content)
        keys.append(key)
    return texts, keys


def unfinished(connection: duckdb.DuckDBPyConnection) -> list[Erasure]:
    """Returns the unfinished erasures, in order."""
    rows = connection.execute(f"{UNFINISHED} WHERE phase <> 'done' ORDER BY position").fetchall()
    return [
        Erasure(erasure_id, scope, phase, tuple(ids), json.loads(texts), scope_at)
        for erasure_id, scope, phase, ids, texts, scope_at in rows
    ]


def scrub_of(connection: duckdb.DuckDBPyConnection, erasure: Erasure) -> Scrub | None:
    """Returns what is left to remove if the whole scope was erased; None otherwise."""
    if erasure.scope_at is None:
        return None
    erased = connection.execute(
        "SELECT memory_id FROM memory_rows WHERE scope = ? AND content_hash = ''", [erasure.scope]
    ).fetchall()
    known = frozenset(erasure.memory_ids).union(key for (key,) in erased)
    return Scrub(erasure.scope, erasure.erasure_id, erasure.scope_at, known)


def redaction_of(
    connection: duckdb.DuckDBPyConnection, erasure: Erasure, with_names: bool = True
) -> Redaction:
    """Returns the redaction that removes the erasure's texts from records, for the present state of
    the store; `with_names`: also the names that no memory in the graph has."""
    kept, kept_texts, earlier = _kept(connection, erasure.scope)
    texts = itertools.chain.from_iterable(_without_marks(erasure.texts).values())
    quoted = [text for text in texts if folded(text) not in kept_texts]
    # Includes what an earlier erasure of the scope removed: its remains of a memory are not a text.
    # Also named memories that are not stored yet, as in a branch whose stages are behind its log.
    erased = connection.execute(
        "SELECT memory_id FROM memory_rows WHERE scope = ? AND content_hash = ''", [erasure.scope]
    ).fetchall()
    refused = connection.execute(
        "SELECT unnest(item_ids) FROM dead_letter_rows"
        " WHERE scope = ? AND item_kind = 'turn' AND status <> 'redriven'",
        [erasure.scope],
    ).fetchall()
    documents = connection.execute(  # all of whose chunks are erased
        "SELECT c.document_id FROM document_memory_rows c JOIN memory_rows m USING (memory_id)"
        " WHERE c.scope = ? GROUP BY c.document_id HAVING bool_and(m.content_hash = '')",
        [erasure.scope],
    ).fetchall()
    gone = frozenset(erasure.memory_ids).difference(kept).union(key for (key,) in erased)
    repeats = connection.execute(
        "SELECT command_id, result ->> 'id' AS memory_id FROM command_results"
        " WHERE scope = ? AND command = 'remember' AND memory_id IN (SELECT unnest(?))",
        [erasure.scope, [*gone]],
    ).fetchall()
    return Redaction(
        erasure.scope,
        gone,
        _marks(connection, erasure),
        quoted,
        kept,
        kept_texts,
        cache(partial(_told_by, connection, erasure.scope)) if with_names else None,
        frozenset(document for (document,) in documents),
        frozenset(item for (item,) in refused),
        dict(repeats),
        earlier,
    )


def _marks(connection: duckdb.DuckDBPyConnection, erasure: Erasure) -> dict[tuple[str, str], str]:
    """Returns the marks of the texts of all erasures of the scope that are under way, the first one
    first: each text gets the same mark, whichever of them comes to it first."""
    rows = connection.execute(
        "SELECT texts FROM erasures WHERE scope = ? AND phase = 'log' ORDER BY position",
        [erasure.scope],
    ).fetchall()
    marks: dict[tuple[str, str], str] = {}
    for texts in (*(json.loads(texts) for (texts,) in rows), erasure.texts):
        for key, mark in marks_of(_without_marks(texts)).items():
            marks.setdefault(key, mark)
    return marks


def _without_marks(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: [each for each in some if not is_mark(each)] for key, some in texts.items()}


@dataclass(frozen=True, slots=True)
class _Said:
    """Texts, in folded form, whose content hashes are known."""

    hashes: frozenset[str]

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and folded_hash(text) in self.hashes


def _kept(
    connection: duckdb.DuckDBPyConnection, scope: str
) -> tuple[frozenset[str], _Said, dict[str, str]]:
    """Returns the memories of a scope that are not erased, all their present and earlier texts,
    and the marks of those that are erased, by memory and version."""
    rows = connection.execute(
        "SELECT coalesce(list(memory_id), []), coalesce(list(content_hash), []) FROM memory_rows"
        " WHERE scope = ? AND content_hash <> ''",
        [scope],
    ).fetchall()
    archived = connection.execute(
        "SELECT memory_id, version, content FROM archived_states WHERE scope = ?", [scope]
    ).fetchall()
    [(ids, hashes)] = rows
    before = (folded_hash(folded(content)) for _, _, content in archived)
    kept = frozenset(itertools.chain(ids, (memory_id for memory_id, _, _ in archived)))
    marks = {f"{key} {version}": content for key, version, content in archived if is_mark(content)}
    return kept, _Said(frozenset(itertools.chain(hashes, before))), marks


def _told_by(connection: duckdb.DuckDBPyConnection, scope: str) -> dict[str, frozenset[str]]:
    """Returns the memories that are not erased by the ids of the names that they contain, and of
    those that people gave the same entities; omits names that occur only in erased memories."""
    rows = connection.execute(
        "WITH told AS (SELECT name_id, memory_id, content_hash <> '' AS is_kept"
        "  FROM mention_rows m JOIN memory_rows r USING (memory_id) WHERE m.scope = $1)"
        " SELECT name_id, coalesce(list(memory_id) FILTER (is_kept), []) FROM ("
        "  FROM told UNION SELECT given.name_id, memory_id, is_kept FROM name_rows given"
        "   JOIN name_rows n USING (scope, entity_id) JOIN told ON told.name_id = n.name_id"
        "   WHERE given.scope = $1 AND given.chosen > 0 AND is_kept)"
        " GROUP BY ALL",
        [scope],
    ).fetchall()
    erased = dict.fromkeys(erased_ids(connection, scope), frozenset[str]())
    return erased | {name_id: frozenset(ids) for name_id, ids in rows}


def history_events(connection: duckdb.DuckDBPyConnection, erasure: Erasure) -> list[bytes]:
    """Returns the keys of the erasure's memories and of their facts in the compacted topic."""
    rows = connection.execute(
        "SELECT event_id FROM history_rows WHERE scope = $1 AND event <> 'purged'"
        " AND (memory_id IN (SELECT unnest($2))"
        "  OR json_extract_string(metadata, '$.source_memory') IN (SELECT unnest($2)))"
        " ORDER BY event_id",
        [erasure.scope, [*erasure.memory_ids]],
    ).fetchall()
    return [str(event_id).encode() for (event_id,) in rows]


def dead_records(connection: duckdb.DuckDBPyConnection, scrub: Scrub) -> list[tuple[str, int]]:
    """Returns topics and offsets of the scope's records that became dead letters until then."""
    rows = connection.execute(
        "SELECT topic, log_offset FROM dead_letter_rows WHERE scope = ? AND last_failed_at <= ?",
        [scrub.scope, scrub.at],
    )
    return [(topic, offset) for topic, offset in rows.fetchall()]


def finish_log(
    connection: duckdb.DuckDBPyConnection,
    erasures: Mapping[str, Redaction],
    scrubs: Sequence[Scrub] = (),
    caused: Collection[str] = (),
) -> None:
    """Runs once no record has the texts of these erasures, by id, any more: removes what was
    written meanwhile, and deletes the texts. `caused`: the causes of messages sent in scopes before
    the whole scope was erased."""
    connection.execute("BEGIN")
    try:
        redact_tables(connection, [*erasures.values()])
        for scrub in scrubs:
            scrub_tables(connection, scrub, caused)
        connection.execute(
            "UPDATE erasures SET phase = 'files', texts = '{}' WHERE phase = 'log'"
            " AND erasure_id IN (SELECT unnest(?))",
            [[*erasures]],
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def finish_files(connection: duckdb.DuckDBPyConnection) -> None:
    """Runs once no file has bytes of them any more."""
    connection.execute("UPDATE erasures SET phase = ? WHERE phase = 'files'", [DONE])


# The tables of a scope that was erased as a whole, without anything that a person may have written.
# Every table of the scope is scrubbed in all columns that hold text, regardless of their names.

_ELSEWHERE: Final = frozenset({"memory_rows", "memory_archive", *OF_GRAPH})
"""Memories lose their texts when they become tombstones; the graph is erased in its own batch."""
_TIMES: Final = ("recorded_at", "created_at", "last_failed_at", "archived_at")
_CAUSES: Final = ("correlation_id", "command_id")
_OF_GRAPH: Final = (
    "alias",
    "unalias",
    "edit-entity",
    "add-to-graph",
    "remove-from-graph",
    "import",
)
"""Commands that graph-persist answers."""


def scrub_tables(
    connection: duckdb.DuckDBPyConnection, scrub: Scrub, caused: Collection[str] = ()
) -> None:
    """Runs in the running transaction. Rows recorded later stay, unless their cause is among the
    `caused`."""
    connection.execute(
        "DELETE FROM memory_edges WHERE scope = ? AND relation_type NOT IN (SELECT unnest(?))",
        [scrub.scope, sorted(EDGES)],
    )
    for row_type in ROW_TYPES:
        known = columns_of(row_type)
        if row_type.TABLE in _ELSEWHERE or "scope" not in known:
            continue
        texts = [name for name in known if known[name].type is str and name not in row_type.KEY]
        if row_type is PrivacyRow:
            texts.append("person_key")
        cursor = connection.execute(
            f"SELECT * FROM {row_type.TABLE} WHERE scope = ?", [scrub.scope]
        )
        columns = [each[0] for each in cursor.description or ()]
        changed = []
        for values in cursor.fetchall():
            row = dict(zip(columns, values, strict=True))
            if not _is_later(row, scrub, caused):
                new = {name: _scrubbed(scrub, row, name) for name in texts}
                if any(new[name] != row[name] for name in texts):
                    changed.append(([row[name] for name in row_type.KEY], new))
        update_rows(connection, row_type.TABLE, row_type.KEY, texts, changed)
    # For stages that have written nothing since, as in a store that no worker opens.
    unsent = connection.execute(
        "SELECT stage, seq, value FROM outbox WHERE scope = ? AND value IS NOT NULL", [scrub.scope]
    ).fetchall()
    for stage, seq, value in unsent:
        cause = json.loads(value).get("correlation_id")
        if cause in caused and cause not in scrub.own:
            connection.execute(
                "UPDATE outbox SET value = ? WHERE stage = ? AND seq = ?",
                [scrub.value(value), stage, seq],
            )


def scrub_results(connection: duckdb.DuckDBPyConnection, scope: str) -> None:
    """Scrubs the graph's results from before it was erased, in the transaction."""
    connection.execute(
        "UPDATE command_results SET result = '{}', error = CASE WHEN error IS NOT NULL THEN ? END"
        " WHERE scope = ? AND command IN (SELECT unnest(?))",
        [ERASED, scope, [*_OF_GRAPH]],
    )


def _scrubbed(scrub: Scrub, row: dict[str, Any], name: str) -> Any:
    held = row[name]
    if name == "person_key":
        return scrub.node(held, "person")
    if name == "value_base64":
        return scrub.node({"topic": row["topic"], name: held})[name]  # type: ignore[index, call-overload]
    if name in JSON_COLUMNS and isinstance(held, str):
        node = json.loads(held)
        new = scrub.node(node, name)
        # In the stored format: an unchanged value keeps its bytes.
        return held if new == node else json.dumps(new, sort_keys=True, ensure_ascii=False)
    if isinstance(held, list):
        return [scrub.node(each, name) for each in held]
    new = scrub.node(held, name)
    # The numbers that distinguish names are those of one record.
    return new if new == held or name in ("person", "error") else ERASED


def _is_later(row: dict[str, Any], scrub: Scrub, caused: Collection[str]) -> bool:
    """Returns whether a row was written for a message sent after the erasure."""
    if scrub.tells_of_others(row) or any(row.get(name) in scrub.own for name in _CAUSES):
        return True
    if any(row.get(name) in caused for name in _CAUSES):
        return False
    times = [row[name] for name in _TIMES if row.get(name) is not None]
    return bool(times) and min(times) > scrub.at
