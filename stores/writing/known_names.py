"""Known names, by scope: what the inline linker matches against, without I/O.

Names, not the entities that they denote: aliases make no difference here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from palimpsest.schemas.rows import NameRow
from palimpsest.stores.database.cursors import Reading


class NameCache:
    """Names of the scopes in use, loaded on first use."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scopes: dict[str, dict[str, str]] = {}

    def of(self, scope: str) -> dict[str, str]:
        """Canonical name to name id; the live mapping, changed only by commits."""
        names = self._scopes.get(scope)
        if names is None:
            with self._reading() as reader:
                rows = reader.execute(
                    "SELECT canonical_name, name_id FROM name_rows WHERE scope = ?", [scope]
                ).fetchall()
            names = self._scopes[scope] = dict(rows)
        return names

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
