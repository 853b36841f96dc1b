"""A LangGraph store: items that graphs keep across threads, searched by meaning and by words.

An item is a remembered text. Its namespace is a scope below that of the memory, its key the session
of the text, its value lies in the metadata. A text that replaces another comes before that one is
forgotten, so that an item is never lost between; the newest one counts.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from palimpsest.ops.library.methods import BlockingMethods, Methods, asynchronous
from palimpsest.ops.library.results import StoredMemory
from palimpsest.stores.recall.marks import described

SOURCE: Final = "langgraph"
PAGE: Final = 500
FEWEST: Final = 50
"""Results of a recall that a search looks through at least, for items among other memories."""
COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
Namespace = tuple[str, ...]


class PalimpsestStore(BaseStore):
    """Items in the memory's scope and below it.

    graph = builder.compile(store=PalimpsestStore(memory))
    """

    def __init__(self, memory: Methods | BlockingMethods) -> None:
        self._memory = asynchronous(memory)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._memory.background.blocking(self.abatch(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The results in the order of the operations. All that read see what was before all that
        write; of several that put one key the last one counts."""
        listed = [*ops]
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in listed:
            match op:
                case GetOp():
                    results.append(await self._get(op.namespace, op.key))
                case SearchOp():
                    results.append(await self._search(op))
                case ListNamespacesOp():
                    results.append(await self._namespaces(op))
                case PutOp():
                    puts[op.namespace, op.key] = op
                    results.append(None)
        for put in puts.values():
            await self._put(put)
        return results

    # --- items ------------------------------------------------------------------------------

    async def _rows(self, namespace: Namespace, key: str | None) -> list[StoredMemory]:
        """The texts of the item, or of all items, the newest first."""
        found: list[StoredMemory] = []
        before: str | None = None
        while True:
            page = await self._memory.list(
                session=key, limit=PAGE, before=before, scope=self._scope(namespace)
            )
            found += [each for each in page.memories if is_item(each)]
            before = page.next
            if before is None:
                return found

    async def _get(self, namespace: Namespace, key: str) -> Item | None:
        rows = await self._rows(namespace, key)
        return Item(**_fields(rows[0])) if rows else None

    async def _put(self, op: PutOp) -> None:
        scope, rows = self._scope(op.namespace), await self._rows(op.namespace, op.key)
        if op.value is not None:
            if rows and rows[0].metadata["value"] == op.value:
                return
            await self._remember(scope, op, rows)
        if rows:
            ids = [each.id for each in rows]
            await self._memory.forget(*ids, reason="replaced in the store", scope=scope)

    async def _remember(self, scope: str, op: PutOp, rows: Sequence[StoredMemory]) -> None:
        at = rows[0].metadata["created_at"] if rows else None
        text = op.key if op.index is False else _text(op.value or {}, op.index) or op.key
        kept = {"namespace": [*op.namespace], "key": op.key, "value": op.value, "created_at": at}
        # One text is one memory of a scope: where another item says the same, it says whose it is.
        for content in (text, f"{text} ({op.key} {uuid.uuid4().hex[:8]})"):
            change = await self._memory.remember(
                content, session_id=op.key, source_type=SOURCE, metadata=kept, scope=scope
            )
            if not change.deduped:
                return

    # --- search -------------------------------------------------------------------------------

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[SearchItem] = []
        for namespace in await self._below(op.namespace_prefix):
            if op.query is None:
                items = await self._items(namespace)
            else:
                items = await self._recalled(namespace, op)
            found += [each for each in items if _passes(each.value, op.filter)]
        if op.query is None:
            found.sort(key=lambda item: item.updated_at, reverse=True)
        else:
            found.sort(key=lambda item: item.score or 0.0, reverse=True)
        return found[op.offset : op.offset + op.limit]

    async def _items(self, namespace: Namespace) -> list[SearchItem]:
        newest: dict[str, StoredMemory] = {}
        for row in await self._rows(namespace, None):
            newest.setdefault(row.session_id, row)
        return [SearchItem(**_fields(row)) for row in newest.values()]

    async def _recalled(self, namespace: Namespace, op: SearchOp) -> list[SearchItem]:
        """By what an item says, or by what was drawn from it."""
        scope, wanted = self._scope(namespace), op.offset + op.limit
        most = self._memory.background.most_results
        limit = most if op.filter else min(most, max(FEWEST, 5 * wanted))
        recalled = await self._memory.recall(op.query or "", limit=limit, scope=scope)
        # An item has no place to say that it is unlikely.
        likely = [each for each in recalled.results if not each.unlikely]
        named = [(each.score, (each.id, *each.derived_from)) for each in likely]
        rows = await self._items_by_id(scope, {key for _, ids in named for key in ids})
        found: dict[str, SearchItem] = {}
        for score, ids in named:
            for row in (rows[key] for key in ids if key in rows):
                if row.session_id not in found:
                    found[row.session_id] = SearchItem(**_fields(row), score=score)
        return [*found.values()]

    async def _items_by_id(self, scope: str, ids: set[str]) -> dict[str, StoredMemory]:
        """Those of the ids that are items."""
        found: dict[str, StoredMemory] = {}
        for start in range(0, len(ids), PAGE):
            some = sorted(ids)[start : start + PAGE]
            page = await self._memory.list(memory_ids=some, limit=PAGE, scope=scope)
            found |= {each.id: each for each in page.memories if is_item(each)}
        return found

    # --- namespaces -----------------------------------------------------------------------------

    def _scope(self, namespace: Namespace) -> str:
        return "/".join([self._memory.scope, *(quote(part, safe="") for part in namespace)])

    async def _below(self, prefix: Namespace) -> list[Namespace]:
        """The namespaces that have items and begin so."""
        root = f"{self._memory.scope}/"
        spaces = [
            tuple(map(unquote, each.scope.removeprefix(root).split("/")))
            for each in await self._memory.scopes()
            if each.memories and each.scope.startswith(root)
        ]
        return sorted(each for each in spaces if each[: len(prefix)] == prefix)

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = [each for each in await self._below(()) if all(_meets(each, c) for c in conditions)]
        cut = dict.fromkeys(each[: op.max_depth] for each in found)
        return [*cut][op.offset : op.offset + op.limit]


def is_item(row: StoredMemory) -> bool:
    """Whether it is a text of the store, not one drawn from such."""
    return row.source_type == SOURCE and "value" in row.metadata


def _fields(row: StoredMemory) -> dict[str, Any]:
    kept = cast("dict[str, Any]", row.metadata)
    return {
        "namespace": tuple(kept["namespace"]),
        "key": kept["key"],
        "value": _value(row),
        "created_at": kept["created_at"] or row.created_at.isoformat(),
        "updated_at": row.created_at,
    }


def _value(row: StoredMemory) -> dict[str, Any]:
    """As it was put; where something in it no longer holds, `no_longer` tells what."""
    value = cast("dict[str, Any]", row.metadata["value"])
    return value | {"no_longer": [*map(described, row.marks)]} if row.marks else value


def _text(value: object, index: Sequence[str] | None) -> str:
    """What can be searched of a value: the fields of `index`, else all that is text in it."""
    if index is None:
        return "; ".join(_texts(value))
    return "; ".join(text for path in index for text in _texts(_at(value, path.split("."))))


def _at(value: object, path: Sequence[str]) -> object:
    for name in path:
        if name in ("$", ""):
            continue
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _texts(each)]
    return [] if value is None else [str(value)]


def _passes(value: dict[str, Any], conditions: dict[str, Any] | None) -> bool:
    return all(_fits(value.get(name), wanted) for name, wanted in (conditions or {}).items())


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict) or not any(name.startswith("$") for name in wanted):
        return bool(value == wanted)
    for name, other in wanted.items():
        if name not in COMPARED:
            raise ValueError(f"there is no {name}; there are {', '.join(COMPARED)}")
        try:
            if not COMPARED[name](value, other):
                return False
        except TypeError:
            return False  # as 5 > "a"
    return True


def _meets(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", found) for found, wanted in zip(part, path, strict=True))
