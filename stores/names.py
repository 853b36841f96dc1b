"""Known names of entities, by scope: what the inline linker matches against, without I/O."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.rows import EntityRow
from stores.readers import Reading


class NameCache:
    """Canonical names and aliases of the scopes in use, loaded on first use."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scopes: dict[str, dict[str, str]] = {}

    def of(self, scope: str) -> dict[str, str]:
        """Canonical name or alias to entity id; the live mapping, changed only by commits."""
        names = self._scopes.get(scope)
        if names is None:
            with self._reading() as reader:
                rows = reader.execute(
                    "SELECT entity_id, canonical_name, aliases FROM entities WHERE scope = ?",
                    [scope],
                ).fetchall()
            names = self._scopes[scope] = {}
            for entity_id, canonical_name, aliases in rows:
                for name in (canonical_name, *aliases):
                    names[name] = entity_id
        return names

    def add(self, row: EntityRow) -> None:
        names = self._scopes.get(row.scope)
        if names is not None:
            for name in (row.canonical_name, *row.aliases):
                names[name] = row.entity_id


class NameView:
    """The names as a batch sees them: the committed ones under its own staged ones."""

    def __init__(self, cache: NameCache) -> None:
        self._cache = cache
        self._staged: dict[str, dict[str, str]] = {}
        self._rows: list[EntityRow] = []

    def match(self, scope: str, names: Sequence[str], unspaced_text: str) -> dict[str, str]:
        """Entity ids of those `names` that are known, and of known names standing in
        `unspaced_text`."""
        committed = self._cache.of(scope)
        staged = self._staged.get(scope, {})
        found = {}
        for name in names:
            entity_id = staged.get(name) or committed.get(name)
            if entity_id is not None:
                found[name] = entity_id
        if unspaced_text:
            for known in (committed, staged):
                found.update(
                    (name, entity_id)
                    for name, entity_id in known.items()
                    if not name.isascii() and name in unspaced_text
                )
        return found

    def staged(self, row: EntityRow) -> None:
        self._rows.append(row)
        names = self._staged.setdefault(row.scope, {})
        for name in (row.canonical_name, *row.aliases):
            names[name] = row.entity_id

    def commit(self) -> None:
        """Make the staged names known to everyone, after the transaction."""
        for row in self._rows:
            self._cache.add(row)
