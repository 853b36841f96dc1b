"""Finds the memories that may contain a name, and all the texts of a memory."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.rows import MemoryRow
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.recall.candidates import CandidateSearch
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

    def __init__(self, shard: Readable, search: CandidateSearch) -> None:
        self._shard = shard
        self._search = search
        self._naming: dict[tuple[str, str], tuple[str, ...]] = {}
        self._archived: dict[str, list[MemoryText]] = {}
        self._with_archive: set[str] | None = None

    def naming(self, scope: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns ids of the memories of the scope, tombstones included, one of whose texts may
        contain the name: all that contain it, and possibly others."""
        missing = [name for name in names if (scope, name) not in self._naming]
        if missing:
            found = self._in_archive(scope, missing)
            for name in missing:
                ids = None
                if name.isascii():
                    # By its bare words: how a text joins and inflects them makes other terms, and
                    # parts of numbers and single letters may be none.
                    words = _NO_WORD.sub(" ", name).split()
                    telling = [w for w in words if len(w) > 1 and not w.isdigit()]
                    ids = self._search.naming(scope, telling)
                found[name].update(self._in_texts(scope, name) if ids is None else ids)
            for name in missing:
                self._naming[scope, name] = tuple(sorted(found[name]))
        return {name: self._naming[scope, name] for name in names}

    def read_archive(self, memory_ids: Sequence[str]) -> None:
        """Reads the replaced texts of these memories in bulk."""
        missing = [key for key in memory_ids if key not in self._archived]
        if not missing:
            return
        self._archived.update({key: [] for key in missing})
        with self._shard.reading() as reader:
            rows = reader.execute(
                "SELECT memory_id, type, json_extract_string(state, '$.who'), content,"
                " json_extract_string(state, '$.embedding_key') FROM memory_archive"
                " WHERE memory_id IN (SELECT unnest(?)) ORDER BY memory_id, version",
                [missing],
            ).fetchall()
        for memory_id, kind, who, content, key in rows:
            self._archived[memory_id].append(MemoryText(key, linked_text(kind, who or "", content)))

    def of(self, row: MemoryRow) -> tuple[MemoryText, ...]:
        """All texts of a memory, oldest first; its archive must have been read."""
        present = MemoryText(row.embedding_key, linked_text(row.type, row.who, row.content))
        return (*self._archived[row.memory_id], present)

    def _in_archive(self, scope: str, names: Sequence[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        if self._with_archive is None:
            with self._shard.reading() as reader:
                scopes = reader.execute("SELECT DISTINCT scope FROM memory_archive").fetchall()
            self._with_archive = {of for (of,) in scopes}
        if scope not in self._with_archive:
            return found
        with self._shard.reading() as reader:
            rows = reader.execute(
                """WITH texts AS (
                    SELECT memory_id, lower(content) AS text, lower(who) AS speaker,
                        regexp_matches(content || who, $3) AS is_odd
                    FROM (SELECT memory_id, content,
                        coalesce(json_extract_string(state, '$.who'), '') AS who
                        FROM memory_archive WHERE scope = $2))
                SELECT DISTINCT name, memory_id FROM texts, (SELECT unnest($1) AS name)
                WHERE contains(text, name) OR contains(speaker, name) OR is_odd""",
                [list(names), scope, _written_otherwise()],
            ).fetchall()
        for name, memory_id in rows:
            found[name].add(memory_id)
        return found

    def _in_texts(self, scope: str, name: str) -> set[str]:
        """For names that full-text search does not support: scripts in which the linker finds a
        name inside a word, or names with marks only."""
        with self._shard.reading() as reader:
            rows = reader.execute(
                "SELECT memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted"
                " AND (contains(lower(content), ?) OR contains(lower(who), ?)"
                "  OR regexp_matches(content || who, ?))",
                [scope, name, name, _written_otherwise()],
            ).fetchall()
        return {memory_id for (memory_id,) in rows}
