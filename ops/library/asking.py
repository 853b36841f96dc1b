"""The methods of the library that add turns and ask. Every way to reach a memory has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Unpack, cast

from palimpsest.ops.library.arguments import Filters, checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import (
    Added,
    ContextBlock,
    DeciderAgreement,
    Entity,
    EntityPage,
    Event,
    Page,
    Provenance,
    Recalled,
    Scope,
    Stats,
    StoredMemory,
    typed,
)
from palimpsest.ops.queries.errors import no_memory
from palimpsest.ops.queries.requests import (
    AgreementRequest,
    ContextRequest,
    EntitiesRequest,
    EntityRequest,
    ExplainRequest,
    GetRequest,
    HistoryRequest,
    JsonObject,
    ListRequest,
    RecallRequest,
    ScopesRequest,
    SqlRequest,
    StatsRequest,
    WeakRequest,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from palimpsest.ops.library.turns import Turn


class Asking(Opened):
    """Turns, and what is remembered."""

    # --- turns --------------------------------------------------------------------------------

    async def add(
        self,
        turns: Turn | Sequence[Turn],
        *,
        speaker: str = "",
        session: str = "",
        scope: str | None = None,
        wait: bool = True,
    ) -> Added:
        """Add turns of a conversation: texts, or mappings with `content` and what else is known
        (`role`, `speaker`, `occurred_at`, `turn_id`, …). They are durable when this returns, and
        with `wait` can be recalled; facts are drawn from them in the background.

        The same `turn_id` with the same content again adds nothing.

        >>> _ = await memory.add("I moved to Lisbon in March 2025.", speaker="Ana")
        >>> _ = await memory.add([{"role": "user", "content": "Ben works at a bakery in Ghent."}])
        """
        told = {"speaker": speaker, "session_id": session}
        work = self.background.publish(
            turns,
            self._in(scope),
            {name: value for name, value in told.items() if value},
            self.wait_seconds if wait else None,
        )
        return Added(await self.background.run(work))

    async def wait_until_processed(self, seconds: float = 300.0) -> None:
        """Until facts are drawn from all that was added, and decided on. Raises
        NotYetAppliedError after so many seconds, as where a model is away.

        >>> await memory.wait_until_processed()
        """
        await self.background.run(self.background.processed(seconds))

    # --- asking -------------------------------------------------------------------------------

    async def recall(
        self,
        text: str,
        *,
        limit: int = 10,
        scope: str | None = None,
        **filters: Unpack[Filters],
    ) -> Recalled:
        """Memories for a question, by meaning and by words, best first, with the parts of each
        score.

        >>> found = await memory.recall("where does Ana live?", limit=3)
        >>> found.results[0].content
        'Ana moved to Lisbon in March 2025.'
        """
        request = checked(RecallRequest, scope=self._in(scope), text=text, limit=limit, **filters)
        return typed(Recalled, await self._ask(request))

    async def context(
        self,
        text: str,
        *,
        budget: int | None = None,
        session: str | None = None,
        asked_at: datetime | None = None,
        min_score: float | None = None,
        scope: str | None = None,
    ) -> ContextBlock:
        """What is known about a question as a Markdown block for a model's prompt, of at most
        `budget` tokens. With `session` it begins with what is kept of that session. `asked_at` is
        when the question is asked (else now), `min_score` the least score of what is found.

        >>> block = await memory.context("where does Ben work?")
        >>> "Ben works at a bakery in Ghent." in block.text
        True
        """
        given = {"scope": self._in(scope), "text": text, "budget": budget, "session": session}
        request = checked(ContextRequest, asked_at=asked_at, min_score=min_score, **given)
        return typed(ContextBlock, await self._ask(request))

    async def get(self, memory_id: str, *, scope: str | None = None) -> StoredMemory:
        """One memory by its id or the first 8 characters of it, also a forgotten one. Raises
        NotFoundError.

        >>> (await memory.get((await memory.list(types=["fact"])).memories[0].id)).version
        1
        """
        found = typed(StoredMemory, await self._ask(GetRequest(memory_id)))
        if found.scope != self._in(scope):
            raise no_memory(memory_id)
        return found

    async def list(
        self,
        *,
        types: Sequence[str] = (),
        session: str | None = None,
        who: str | None = None,
        deleted: bool = False,
        limit: int = 20,
        before: str | None = None,
        memory_ids: Sequence[str] = (),
        categories: Sequence[str] = (),
        temporal: bool | None = None,
        valid_at: datetime | None = None,
        roles: Sequence[str] = (),
        scope: str | None = None,
    ) -> Page:
        """Memories, newest first, page by page; with `memory_ids` (whole ids) only of these, of
        any of the `categories`, `temporal` ones or persistent, without what ended by `valid_at`,
        said in any of the `roles` or drawn from that.

        >>> sorted(each.content for each in (await memory.list(types=["fact"])).memories)
        ['Ana moved to Lisbon in March 2025.', 'Ben works at a bakery in Ghent.']
        """
        told = {"types": types, "session": session, "who": who, "memory_ids": memory_ids}
        where = {"scope": self._in(scope), "limit": limit, "before": before}
        more = {"categories": categories, "temporal": temporal, "valid_at": valid_at}
        more["roles"] = roles
        request = checked(ListRequest, deleted=deleted, **told, **more, **where)
        return typed(Page, await self._ask(request))

    async def history(
        self, memory_id: str, *, limit: int = 200, scope: str | None = None
    ) -> tuple[Event, ...]:
        """What happened to a memory, in order.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> [event.event for event in await memory.history(fact.id)]
        ['created']
        """
        [full] = await self._known(scope, memory_id)
        request = checked(HistoryRequest, memory_id=full, limit=limit)
        return typed(tuple[Event, ...], cast("JsonObject", await self._ask(request))["events"])

    async def explain(self, memory_id: str, *, scope: str | None = None) -> Provenance:
        """Where a memory came from, and what was decided about it and why.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.explain(fact.id)).derived_from[0].content
        'Ben works at a bakery in Ghent.'
        """
        found = typed(Provenance, await self._ask(ExplainRequest(memory_id)))
        if found.memory.scope != self._in(scope):
            raise no_memory(memory_id)
        return found

    async def entity(self, name: str, *, limit: int = 20, scope: str | None = None) -> Entity:
        """Who or what a name stands for. Raises NotFoundError with the nearest name.

        >>> (await memory.entity("lisbon")).name
        'Lisbon'
        """
        request = checked(EntityRequest, scope=self._in(scope), name=name, limit=limit)
        return typed(Entity, await self._ask(request))

    async def entities(
        self,
        text: str | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        scope: str | None = None,
    ) -> EntityPage:
        """Who and what is known, the most often told of first, page by page; `text` is part of a
        name.

        >>> [each.name for each in (await memory.entities("lis")).entities]
        ['Lisbon']
        """
        where = {"scope": self._in(scope), "limit": limit, "after": after}
        return typed(EntityPage, await self._ask(checked(EntitiesRequest, text=text, **where)))

    async def weak(
        self, *, below: float = 0.8, limit: int = 20, scope: str | None = None
    ) -> tuple[StoredMemory, ...]:
        """Memories that nobody confirmed, of a confidence under `below`, the least sure first.

        >>> await memory.weak(below=0.5)
        ()
        """
        request = checked(WeakRequest, scope=self._in(scope), below=below, limit=limit)
        answer = cast("JsonObject", await self._ask(request))
        return typed(tuple[StoredMemory, ...], answer["memories"])

    async def scopes(self) -> tuple[Scope, ...]:
        """All memory spaces of the folder, the one last active first.

        >>> [each.scope for each in await memory.scopes()]
        ['ana']
        """
        answer = cast("JsonObject", await self._ask(ScopesRequest()))
        return typed(tuple[Scope, ...], answer["scopes"])

    async def stats(self, *, scope: str | None = None) -> Stats:
        """How much is remembered.

        >>> (await memory.stats()).types
        {'episodic': 2, 'fact': 2}
        """
        return typed(Stats, await self._ask(StatsRequest(self._in(scope))))

    async def agreement(self, *, scope: str | None = None) -> tuple[DeciderAgreement, ...]:
        """How often deciders agree with the live one, and with what people did afterwards.

        >>> [(each.decider, each.judged) for each in await memory.agreement()]
        [('live', 0)]
        """
        answer = cast("JsonObject", await self._ask(AgreementRequest(self._in(scope))))
        return typed(tuple[DeciderAgreement, ...], answer["deciders"])

    async def sql(
        self, query: str, *, partition: int | None = None, seconds: float = 30.0
    ) -> pa.Table:
        """The result of one read-only statement over the views, of all scopes: an Arrow table,
        which DuckDB, pandas and Polars take as it is.

        >>> (await memory.sql("SELECT count(*) AS turns FROM turns")).to_pylist()
        [{'turns': 2}]
        """
        work = self.background.table(SqlRequest(query, partition, seconds))
        return await self.background.run(work)
