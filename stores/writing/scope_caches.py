"""What is cached of scopes: the known names, which the inline linker matches against without I/O,
and the age of the newest fact, as mostly nothing else is needed of it.

Names, not the entities that they denote: aliases make no difference here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from palimpsest.schemas.rows.graph import NameRow
from palimpsest.schemas.rows.memories import SOURCE_TYPES, MemoryRow
from palimpsest.stores.database.cursors import Reading
from palimpsest.streams.store_port import NearDuplicates


class NameCache:
    """Names of the scopes in use, loaded on first use."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scopes: dict[str, dict[str, str]] = {}

    def of(self, scope: str) -> dict[str, str]:
        """Canonical name to name id; the live mapping, changed only by commits."""
        if scope not in self._scopes:
            self.read([scope])
        return self._scopes[scope]

    def read(self, scopes: Iterable[str]) -> None:
        """Loads the names of those scopes that are not in use yet, in one query."""
        found: dict[str, dict[str, str]] = {
            scope: {} for scope in scopes if scope not in self._scopes
        }
        if not found:
            return
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT scope, canonical_name, name_id FROM name_rows"
                " WHERE scope IN (SELECT unnest(?))",
                [[*found]],
            ).fetchall()
        for scope, name, name_id in rows:
            found[scope][name] = name_id
        self._scopes |= found

    def forget(self, scope: str) -> None:
        """Reloads the names of a scope at the next request."""
        self._scopes.pop(scope, None)

    def add(self, row: NameRow) -> None:
        names = self._scopes.get(row.scope)
        if names is not None:
            names[row.canonical_name] = row.name_id


class NameView:
    """The names as a batch sees them: the committed ones and its own staged ones."""

    def __init__(self, cache: NameCache) -> None:
        self._cache = cache
        self._staged: dict[str, dict[str, str]] = {}
        self._rows: list[NameRow] = []

    def committed(self, scope: str) -> Collection[str]:
        """Canonical names that were known before the batch."""
        return self._cache.of(scope).keys()

    def match(self, scope: str, names: Sequence[str], unspaced_text: str) -> dict[str, str]:
        """Returns ids of those `names` that are known, and of known names whose characters occur in
        `unspaced_text`: the linker decides whether they are words there."""
        committed = self._cache.of(scope)
        staged = self._staged.get(scope, {})
        found = {}
        for name in names:
            name_id = staged.get(name) or committed.get(name)
            if name_id is not None:
                found[name] = name_id
        if unspaced_text:
            for known in (committed, staged):
                found.update(
                    (name, name_id)
                    for name, name_id in known.items()
                    if not name.isascii() and name in unspaced_text
                )
        return found

    def staged(self, row: NameRow) -> None:
        self._rows.append(row)
        self._staged.setdefault(row.scope, {})[row.canonical_name] = row.name_id

    def commit(self) -> None:
        """Publishes the staged names, after the transaction."""
        for row in self._rows:
            self._cache.add(row)


@dataclass(slots=True)
class Newest:
    """Of a set of memories, the highest write sequence of those that a command wrote, and the
    highest order of those that were decided; -1 if there are none."""

    commanded: int = -1
    decided: int = -1

    def note(self, row: MemoryRow) -> None:
        if row.decision_order is None:
            self.commanded = max(self.commanded, row.write_seq)
        else:
            self.decided = max(self.decided, row.decision_order)

    def may_be_unseen(self, ask: NearDuplicates) -> bool:
        """Returns whether any may be one that the decision could not have seen; never wrongly
        False."""
        return self.commanded > ask.as_of or self.decided >= ask.decision_order


class NewestFacts:
    """For all memories of a shard except turns and chunks, by scope. Read at the first request; the
    caller must `note` what it has committed."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scopes: dict[str, Newest] | None = None

    def of(self, scope: str) -> Newest:
        if self._scopes is None:
            with self._reading() as reader:
                rows = reader.execute(
                    "SELECT scope, coalesce(max(write_seq) FILTER (decision_order IS NULL), -1),"
                    " coalesce(max(decision_order), -1) FROM memory_rows"
                    " WHERE type NOT IN (SELECT unnest(?)) GROUP BY scope",
                    [[*SOURCE_TYPES]],
                ).fetchall()
            self._scopes = {key: Newest(commanded, decided) for key, commanded, decided in rows}
        return self._scopes.get(scope, Newest())

    def note(self, rows: Iterable[MemoryRow]) -> None:
        if self._scopes is not None:
            for row in rows:
                if row.type not in SOURCE_TYPES:
                    self._scopes.setdefault(row.scope, Newest()).note(row)
