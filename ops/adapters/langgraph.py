"""A LangGraph store: items that graphs keep across threads, with semantic and keyword search.

An item is one remembered text per searched field. Its namespace is a scope below that of the
memory, its key is the session of the texts, and the metadata of each text holds its value. New
texts are written before the old ones are forgotten, so that an item is never lost in between; the
newest texts count.
"""

from __future__ import annotations

import asyncio
import hashlib
import operator
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)

from palimpsest.ops.adapters.history import forget, is_redacted, packed, unpacked, without_secrets
from palimpsest.ops.library.memory_methods import AsyncMethods, BlockingMethods, asynchronous
from palimpsest.ops.operations.answers import StoredMemory
from palimpsest.ops.parts import utc_now
from palimpsest.stores.recall.query import described

T = TypeVar("T")
SOURCE: Final = "langgraph"
PAGE: Final = 500
MOST: Final = 1_000
"""Maximum number of results of a recall."""
FEWEST: Final = 50
"""Minimum number of recall results that a search scans for items among other memories."""
AT_ONCE: Final = 16
"""Maximum number of concurrent operations of a batch."""
Namespace = tuple[str, ...]


class FoundItem(SearchItem):
    """An item with its value as it was put. `no_longer` lists what in it no longer holds."""

    __slots__ = ("no_longer",)

    def __init__(self, *, no_longer: Sequence[str] = (), **fields: Any) -> None:
        super().__init__(**fields)
        self.no_longer = [*no_longer]


@dataclass(frozen=True, slots=True)
class Stored:
    """A text of an item. `put` identifies the operation that wrote it, `paths` its searched
    fields."""

    row: StoredMemory
    namespace: Namespace
    key: str
    value: dict[str, Any]
    put: str = ""
    paths: Sequence[str] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    ttl: float | None = None
    expires_at: str | None = None

    def is_live(self) -> bool:
        return self.expires_at is None or utc_now() < datetime.fromisoformat(self.expires_at)

    def item(self, score: float | None = None) -> FoundItem:
        return FoundItem(
            namespace=self.namespace,
            key=self.key,
            value=self.value,
            created_at=self.created_at or self.row.created_at.isoformat(),
            updated_at=self.updated_at or self.row.created_at.isoformat(),
            score=score,
            no_longer=[described(mark) for mark in self.row.marks],
        )


class PalimpsestStore(BaseStore):
    """Items in the memory's scope and below it. `fields` are the paths that are searched where a
    put names none, `ttl` is how long items live where it does not say, and with `redact` values
    come back without secrets.

    graph = builder.compile(store=PalimpsestStore(memory))
    """

    supports_ttl = True

    def __init__(
        self,
        memory: AsyncMethods | BlockingMethods,
        *,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        redact: bool = False,
    ) -> None:
        self._memory = asynchronous(memory)
        self._fields = [*fields]
        self._redact = redact
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._memory.background.blocking(self.abatch(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Returns the results in the order of the operations. All reads see the state before all
        writes; of several puts of one key the last one counts."""
        listed = [*ops]
        puts = {(tuple(op.namespace), op.key): op for op in listed if isinstance(op, PutOp)}
        results = await _together(self._read(op) for op in listed)
        await _together(self._put(op, space) for (space, _), op in puts.items())
        return results

    async def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                stored = _newest(await self._stored(tuple(op.namespace), op.key))
                if op.refresh_ttl:
                    await self._refresh(stored)
                return stored[0].item() if stored else None
            case SearchOp():
                return await self._search(op)
            case ListNamespacesOp():
                every = await self._below(())
                conditions = op.match_conditions or ()
                named = [each for each in every if all(_meets(each, c) for c in conditions)]
                items = await _together(map(self._stored, named))
                found = [each for each, of in zip(named, items, strict=True) if _newest(of)]
                cut = dict.fromkeys(each[: op.max_depth] for each in found)
                return [*cut][op.offset : op.offset + op.limit]
        return None

    def sweep_ttl(self) -> int:
        """Forget the items whose time is over, which nothing shows any more; how many they were."""
        return self._memory.background.blocking(self.asweep_ttl())

    async def asweep_ttl(self) -> int:
        """Forget the items whose time is over, which nothing shows any more; how many they were."""
        over = 0
        for namespace in await self._below(()):
            ended = [each for each in await self._stored(namespace) if not each.is_live()]
            await self._forget(namespace, ended, "its time is over")
            over += len({each.key for each in ended})
        return over

    # --- items ------------------------------------------------------------------------------

    async def _stored(self, namespace: Namespace, key: str | None = None) -> list[Stored]:
        """Returns the texts of the item, or of all items, newest first."""
        found: list[Stored] = []
        cursor: str | None = None
        session_id = None if key is None else _session(key)
        while True:
            page = await self._memory.list(
                session_id=session_id, limit=PAGE, cursor=cursor, scope=self._scope(namespace)
            )
            found += _items_of(page.memories)
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def _put(self, op: PutOp, namespace: Namespace) -> None:
        before = await self._stored(namespace, op.key)
        if op.value is None:
            await self._forget(namespace, before, "deleted from the store")
            return
        paths = [] if op.index is False else [*(op.index or self._fields)]
        now = _newest(before)
        same = (op.value, paths, None)  # a put restarts a time to live
        if now and (now[0].value, now[0].paths, now[0].ttl) == same and op.ttl is None:
            return
        await self._remember(
            namespace,
            op.key,
            op.value,
            paths=paths,
            created_at=now[0].item().created_at.isoformat() if now else None,
            ttl=op.ttl,
        )

    async def _remember(
        self, namespace: Namespace, key: str, value: dict[str, Any], **kept: Any
    ) -> None:
        """Remembers the item, then forgets its older texts. A concurrent put of the same key does
        so in the same order, so only the newest texts remain."""
        ttl = kept["ttl"]
        ends = None if ttl is None else (utc_now() + timedelta(minutes=ttl)).isoformat()
        told: dict[str, Any] = {**kept, "namespace": namespace, "key": key, "value": value}
        whole = {**told, "put": uuid.uuid4().hex, "expires_at": ends}
        for text in texts(without_secrets(value), kept["paths"]) or [key]:
            metadata = packed(whole, redact=self._redact)
            # A scope holds each text once: if another item has the same text, the key is appended.
            for content in (text, f"{text} ({key} {uuid.uuid4().hex[:8]})"):
                change = await self._memory.remember(
                    content,
                    session_id=_session(key),
                    source_type=SOURCE,
                    metadata=metadata,
                    scope=self._scope(namespace),
                )
                if not change.deduped:
                    break
        after = await self._stored(namespace, key)
        older = [each for each in after if each.put != after[0].put]
        await self._forget(namespace, older, "replaced in the store")

    async def _refresh(self, found: Iterable[Stored]) -> None:
        """Restarts the time to live of the items that have one."""
        await _together(
            self._remember(
                each.namespace,
                each.key,
                each.value,
                paths=each.paths,
                created_at=each.item().created_at.isoformat(),
                updated_at=each.item().updated_at.isoformat(),
                ttl=each.ttl,
            )
            for each in found
            if each.ttl is not None
        )

    async def _forget(self, namespace: Namespace, gone: list[Stored], reason: str) -> None:
        ids = [each.row.id for each in gone]
        await forget(self._memory, ids, reason=reason, scope=self._scope(namespace))

    # --- search -------------------------------------------------------------------------------

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        spaces = await self._below(tuple(op.namespace_prefix))
        ranked = await _together(self._ranked(each, op) for each in spaces)
        found = [each for some in ranked for each in some]
        if _asked(op):
            found.sort(key=lambda each: -1.0 if each[1] is None else each[1], reverse=True)
        else:
            found.sort(key=lambda each: each[0].item().updated_at, reverse=True)
        page = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            await self._refresh(stored for stored, _ in page)
        return [stored.item(score) for stored, score in page]

    async def _ranked(
        self, namespace: Namespace, op: SearchOp
    ) -> list[tuple[Stored, float | None]]:
        """Returns the items that pass the filter: the query's hits, then, if these are too few, the
        others without a score."""
        scores = await self._recalled(namespace, op) if _asked(op) else {}
        scored = [pair for pair in scores.values() if passes(pair[0].value, op.filter)]
        if len(scored) >= op.offset + op.limit:
            return [*scored]
        others = [
            (each, None)
            for each in _newest(await self._stored(namespace))
            if each.key not in scores and passes(each.value, op.filter)
        ]
        return [*scored, *others]

    async def _recalled(
        self, namespace: Namespace, op: SearchOp
    ) -> dict[str, tuple[Stored, float]]:
        """Returns the items found by their text or by memories derived from it, best first."""
        scope, wanted = self._scope(namespace), op.offset + op.limit
        limit = MOST if op.filter else min(MOST, max(FEWEST, 5 * wanted))
        recalled = await self._memory.recall(op.query or "", limit=limit, scope=scope)
        named = [
            (each.score, (each.id, *each.repeats, *each.derived_from)) for each in recalled.results
        ]
        keys = sorted({key for _, ids in named for key in ids})
        rows: dict[str, Stored] = {}  # only the ids that are texts of live items
        for start in range(0, len(keys), PAGE):
            some = keys[start : start + PAGE]
            page = await self._memory.list(memory_ids=some, limit=PAGE, scope=scope)
            rows |= {each.row.id: each for each in _items_of(page.memories) if each.is_live()}
        found: dict[str, tuple[Stored, float]] = {}
        for score, ids in named:
            for stored in (rows[key] for key in ids if key in rows):
                if stored.paths != []:  # else it is not to be searched
                    found.setdefault(stored.key, (stored, score))
        return found

    # --- namespaces -----------------------------------------------------------------------------

    def _scope(self, namespace: Namespace) -> str:
        return "/".join([self._memory.scope, *(quote(part, safe="") for part in namespace)])

    async def _below(self, prefix: Namespace) -> list[Namespace]:
        """Returns the namespaces with this prefix, also those with only memories derived from
        items."""
        root = f"{self._memory.scope}/"
        spaces = [
            tuple(map(unquote, each.scope.removeprefix(root).split("/")))
            for each in (await self._memory.scopes()).scopes
            if each.memories and each.scope.startswith(root)
        ]
        return sorted(each for each in spaces if each[: len(prefix)] == prefix)


async def _together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results in order; runs up to AT_ONCE at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[T]) -> T:
        async with gate:
            return await each

    return await asyncio.gather(*map(one, work))


def _items_of(rows: Iterable[StoredMemory]) -> list[Stored]:
    """Those that are texts of the store, not ones drawn from such."""
    names = Stored.__dataclass_fields__.keys()
    found = []
    for row in rows:
        whole = unpacked(row.metadata)
        if row.source_type == SOURCE and "value" in whole:
            kept = {name: whole[name] for name in whole.keys() & names}
            found.append(Stored(**{**kept, "row": row, "namespace": tuple(whole["namespace"])}))
    return found


def _newest(stored: Iterable[Stored]) -> list[Stored]:
    """A text of each item, of its newest ones, where its time is not over."""
    items: dict[str, Stored] = {}
    for each in stored:
        items.setdefault(each.key, each)
    return [each for each in items.values() if each.is_live()]


def _session(key: str) -> str:
    """The key, where redaction leaves the name of a session alone."""
    if is_redacted({"session_id": key}):
        return hashlib.sha256(key.encode()).hexdigest()
    return key


def _asked(op: SearchOp) -> bool:
    return bool((op.query or "").strip())


def _meets(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", found) for found, wanted in zip(part, path, strict=True))


# What of an item's value is searched, and which values a filter passes.

COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def texts(value: object, paths: Sequence[str]) -> list[str]:
    """Returns the searchable texts of a value, without duplicates: those of every path, and for `$`
    all values in one text."""
    found: list[str] = []
    for path in paths:
        found += ["; ".join(_all(value))] if path in ("", "$") else get_text_at_path(value, path)
    return [*dict.fromkeys(text for text in found if text.strip())]


def _all(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _all(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _all(each)]
    return [] if value is None else [str(value)]


def passes(value: Any, conditions: Mapping[str, Any] | None) -> bool:
    """Whether every condition holds; a name with dots reaches into the value, unless the value has
    a member of that name."""
    return all(_fits(_at(value, name), wanted) for name, wanted in (conditions or {}).items())


def _at(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name in value:
        return value.get(name) if isinstance(value, dict) else None
    first, _, rest = name.partition(".")
    return _at(value.get(first), rest) if rest else None


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            for name, other in wanted.items():
                if name not in COMPARED:
                    raise ValueError(f"there is no {name}; there are {', '.join(COMPARED)}")
                try:
                    if not COMPARED[name](value, other):
                        return False
                except TypeError:
                    return False  # for example 5 > "a"
            return True
        return isinstance(value, dict) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(_fits, value, wanted))
        )
    return bool(value == wanted)
