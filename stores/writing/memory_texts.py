"""Finds the memories that may contain a name, and all the texts of a memory."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from palimpsest.schemas.case_endings import beginning_in_every_case
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.candidates import CandidateSearch
from palimpsest.streams.store_port import MemoryText

_NO_WORD = re.compile(r"[\W_]+")


@cache
def _written_otherwise() -> str:
    """A pattern of DuckDB for texts with a character that is another in a canonical name, alongside
    its case: wide and narrow forms, ligatures, and those lower-cased in another way than there."""
    runs: list[list[int]] = []
    # The planes that have any.
    for point in (*range(0x80, 0xD800), *range(0xE000, 0x20000), *range(0x2F800, 0x2FA20)):
        character = chr(point)
        if unicodedata.is_normalized("NFKC", character) and character not in "İΣ":
            continue
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "[" + "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in runs) + "]"


class TextSearch:
    """Searches of one batch, each executed once."""

    def __init__(self, shard: ShardState, search: CandidateSearch) -> None:
        self._shard = shard
        self._search = search
        self._naming: dict[tuple[str, str], tuple[str, ...]] = {}
        self._archived: dict[str, list[MemoryText]] = {}
        self._with_archive: dict[str, bool] = {}

    def naming(self, scope: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns ids of the memories of the scope, tombstones included, one of whose texts may
        contain the name: all that contain it, and possibly others."""
        missing = [name for name in names if (scope, name) not in self._naming]
        if missing:
            found = self._in_archive(scope, missing)
            # By its bare words: how a text joins and inflects them makes other terms, and parts of
            # numbers and single characters may be none.
            telling = {
                name: [w for w in _NO_WORD.sub(" ", name).split() if len(w) > 1 and not w.isdigit()]
                for name in missing
                if name.isascii()
            }
            having = self._search.naming(scope, telling)
            for name in missing:
                ids = having.get(name)
                if ids is None:
                    # For names that full-text search does not support: scripts in which the linker
                    # finds a name inside a word, or names with marks only.
                    rows = self._shard.fetch(
                        "SELECT memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted"
                        " AND (contains(lower(content), ?) OR contains(lower(who), ?)"
                        "  OR regexp_matches(content || who, ?))",
                        [scope, *2 * [beginning_in_every_case(name)], _written_otherwise()],
                    )
                    ids = {memory_id for (memory_id,) in rows}
                found[name].update(ids)
                self._naming[scope, name] = tuple(sorted(found[name]))
        return {name: self._naming[scope, name] for name in names}

    def read_scopes(self, scopes: Iterable[str]) -> None:
        """Reads which of the scopes have replaced texts, in one query."""
        missing = [scope for scope in scopes if scope not in self._with_archive]
        if missing:
            found = self._shard.fetch(
                "SELECT DISTINCT scope FROM archived_states WHERE scope IN (SELECT unnest(?))",
                [missing],
            )
            self._with_archive |= dict.fromkeys(missing, False)
            self._with_archive |= {scope: True for (scope,) in found}

    def read_archive(self, memories: Iterable[MemoryRow]) -> None:
        """Reads the replaced texts of these memories in bulk."""
        missing = [row for row in memories if row.memory_id not in self._archived]
        self._archived.update({row.memory_id: [] for row in missing})
        replaced = [row for row in missing if row.version > 1]
        if not replaced:
            return
        scopes = sorted({row.scope for row in replaced})
        rows = self._shard.fetch(
            "SELECT memory_id, type, json_extract_string(state, '$.who'), content,"
            " json_extract_string(state, '$.embedding_key') FROM archived_states"
            f" WHERE scope IN ({', '.join('?' * len(scopes))})"
            " AND memory_id IN (SELECT unnest(?)) ORDER BY memory_id, version",
            [*scopes, [row.memory_id for row in replaced]],
        )
        for memory_id, kind, who, content, key in rows:
            self._archived[memory_id].append(MemoryText(key, linked_text(kind, who or "", content)))

    def of(self, row: MemoryRow) -> tuple[MemoryText, ...]:
        """All texts of a memory, oldest first; its archive must have been read."""
        present = MemoryText(row.embedding_key, linked_text(row.type, row.who, row.content))
        return (*self._archived[row.memory_id], present)

    def _in_archive(self, scope: str, names: Sequence[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        self.read_scopes([scope])
        if not self._with_archive[scope]:
            return found
        rows = self._shard.fetch(
            """WITH texts AS (
                SELECT memory_id, lower(content) AS text, lower(who) AS speaker,
                    regexp_matches(content || who, $3) AS is_odd
                FROM (SELECT memory_id, content,
                    coalesce(json_extract_string(state, '$.who'), '') AS who
                    FROM archived_states WHERE scope = $2))
            SELECT DISTINCT name, memory_id
            FROM texts, (SELECT unnest($1) AS name, unnest($4) AS part)
            WHERE contains(text, part) OR contains(speaker, part) OR is_odd""",
            [list(names), scope, _written_otherwise(), [*map(beginning_in_every_case, names)]],
        )
        for name, memory_id in rows:
            found[name].add(memory_id)
        return found
