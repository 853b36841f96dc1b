"""`AsyncMemory`: the product as a library. The methods are those of the command line;
what they ask and command is what every other way in asks and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast

import pyarrow as pa

from palimpsest.ops.library.arguments import Facts, Filters, Patch, checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import (
    Added,
    Change,
    ContextBlock,
    Entity,
    Event,
    Page,
    Provenance,
    Recalled,
    Scope,
    Stats,
    StoredMemory,
    typed,
)
from palimpsest.ops.library.turns import Turn, turn_records
from palimpsest.ops.queries.requests import (
    ContextRequest,
    EntityRequest,
    ExplainRequest,
    GetRequest,
    HistoryRequest,
    JsonObject,
    ListRequest,
    RecallRequest,
    RequestError,
    ScopesRequest,
    SqlRequest,
    StatsRequest,
    WeakRequest,
)
from palimpsest.schemas.commands import (
    ConfirmCommand,
    EraseScopeCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.identity import erase_token


class AsyncMemory(Opened):
    """Long-term memory in this process, for programs with an event loop.

    Log and stores lie in `data_dir`; the stages that turn conversation turns into memories run in
    a thread of their own, from the first use until `close`. If another process has the folder
    open, that one's stages do the work and this one asks it. `scope` is the memory space of every
    method that is not given another, `actor` who gives commands, and `settings` those of
    `palimpsest.toml`, by their dotted names. A command, and a turn that is waited for, must be
    applied within `wait_seconds`: what is asked afterwards sees it.

    Raises RequestError for what cannot be asked or done, and SettingsError, SetupError, LogError,
    StoreError or FolderInUse where the folder cannot be used; each says what to do.

        async with AsyncMemory("memory", scope="ana") as memory:
            await memory.add("I moved to Lisbon.", speaker="Ana")
            found = await memory.recall("where does Ana live?")
    """

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

        >>> _ = await memory.add("I moved to Lisbon in March.", speaker="Ana")
        >>> _ = await memory.add([{"role": "user", "content": "Ben works at a bakery in Ghent."}])
        """
        defaults = {"speaker": speaker, "session_id": session}
        records, ids = turn_records(
            turns,
            self._in(scope),
            self.background.settings.log.max_record_bytes,
            {name: value for name, value in defaults.items() if value},
        )
        await self.background.run(self._publish(records, wait))
        return Added(ids)

    async def _publish(self, records: Sequence[Any], wait: bool) -> None:
        places = await self.background.publish(records) if records else ()
        if wait:
            await self.background.stored(places, self.wait_seconds)

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
        'Ana moved to Lisbon in March.'
        """
        request = checked(RecallRequest, scope=self._in(scope), text=text, limit=limit, **filters)
        return typed(Recalled, await self._ask(request))

    async def context(
        self, text: str, *, budget: int | None = None, scope: str | None = None
    ) -> ContextBlock:
        """What is known about a question as a Markdown block for a model's prompt, of at most
        `budget` tokens.

        >>> block = await memory.context("where does Ben work?")
        >>> print(block.text.splitlines()[0])
        ## Facts
        """
        request = checked(ContextRequest, scope=self._in(scope), text=text, budget=budget)
        return typed(ContextBlock, await self._ask(request))

    async def get(self, memory_id: str, *, scope: str | None = None) -> StoredMemory:
        """One memory by its id or the first 8 characters of it, also a forgotten one. Raises
        NotFoundError.

        >>> (await memory.get((await memory.list(types=["fact"])).memories[0].id)).version
        1
        """
        full = await self._known(memory_id, scope)
        return typed(StoredMemory, await self._ask(GetRequest(full)))

    async def list(
        self,
        *,
        types: Sequence[str] = (),
        session: str | None = None,
        who: str | None = None,
        deleted: bool = False,
        limit: int = 20,
        before: str | None = None,
        scope: str | None = None,
    ) -> Page:
        """Memories, newest first, page by page.

        >>> sorted(each.content for each in (await memory.list(types=["fact"])).memories)
        ['Ana moved to Lisbon in March.', 'Ben works at a bakery in Ghent.']
        """
        told = {"types": types, "session": session, "who": who, "deleted": deleted}
        where = {"scope": self._in(scope), "limit": limit, "before": before}
        request = checked(ListRequest, **told, **where)
        return typed(Page, await self._ask(request))

    async def history(
        self, memory_id: str, *, limit: int = 200, scope: str | None = None
    ) -> tuple[Event, ...]:
        """What happened to a memory, in order.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> [event.event for event in await memory.history(fact.id)]
        ['created']
        """
        request = HistoryRequest(await self._known(memory_id, scope), limit)
        return typed(tuple[Event, ...], cast("JsonObject", await self._ask(request))["events"])

    async def explain(self, memory_id: str, *, scope: str | None = None) -> Provenance:
        """Where a memory came from, and what was decided about it and why.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.explain(fact.id)).derived_from[0].content
        'Ben works at a bakery in Ghent.'
        """
        request = ExplainRequest(await self._known(memory_id, scope))
        return typed(Provenance, await self._ask(request))

    async def entity(self, name: str, *, limit: int = 20, scope: str | None = None) -> Entity:
        """Who or what a name stands for. Raises NotFoundError with the nearest name.

        >>> (await memory.entity("lisbon")).name
        'Lisbon'
        """
        request = checked(EntityRequest, scope=self._in(scope), name=name, limit=limit)
        return typed(Entity, await self._ask(request))

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

    # --- changing -----------------------------------------------------------------------------

    async def remember(
        self, content: str, *, scope: str | None = None, **facts: Unpack[Facts]
    ) -> Change:
        """Remember a text on someone's wish. `critical:` before it pins it, `[a,b]:` tags it. A
        text that is known already is `deduped`.

        >>> (await memory.remember("critical: Never ring Ana before nine")).deduped
        False
        """
        order = checked(RememberCommand, content=content, **facts)
        return (await self._command(order, scope))[0]

    async def modify(
        self, memory_id: str, *, reason: str, scope: str | None = None, **patch: Unpack[Patch]
    ) -> Change:
        """Change a memory; the state before stays in its history. Raises NotDoneError, as where it
        is not at `if_version`.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> (await memory.modify(rule.id, importance=0.9, reason="asked")).version
        2
        """
        if not patch.keys() - {"if_version"}:
            raise RequestError("nothing to change; name at least one field")
        full = await self._known(memory_id, scope)
        made = checked(MemoryPatch, memory_id=full, **patch)
        return (await self._command(ModifyCommand(patches=(made,), reason=reason), scope))[0]

    async def correct(
        self, memory_id: str, content: str, *, reason: str, scope: str | None = None
    ) -> Change:
        """Replace what a memory says by what is right; the state before stays in its history.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> right = "Never ring Ana before ten"
        >>> (await memory.correct(rule.id, right, reason="she said so")).version
        3
        """
        return await self.modify(memory_id, content=content, reason=reason, scope=scope)

    async def forget(
        self,
        *memory_ids: str,
        reason: str,
        force: bool = False,
        cascade: bool = False,
        if_version: int | None = None,
        scope: str | None = None,
    ) -> tuple[Change, ...]:
        """Forget memories, with `cascade` also what was drawn from nothing else: hidden at once,
        recoverable for a while; at most 25 in a call. Raises NotDoneError where one was not, as a
        pinned one without `force`; its `changes` tell of all.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> [each.status for each in await memory.forget(rule.id, reason="outdated", force=True)]
        ['forgotten']
        """
        full = [await self._known(each, scope) for each in memory_ids]
        order = checked(
            ForgetCommand,
            memory_ids=full,
            reason=reason,
            force=force,
            cascade=cascade or None,
            if_version=if_version,
        )
        return await self._command(order, scope)

    async def recover(
        self, memory_id: str, *, reason: str = "", scope: str | None = None
    ) -> Change:
        """Take back that a memory was forgotten.

        >>> forgotten = (await memory.list(deleted=True)).memories[0]
        >>> (await memory.recover(forgotten.id)).status
        'recovered'
        """
        full = await self._known(memory_id, scope)
        return (await self._command(RecoverCommand(memory_id=full, reason=reason), scope))[0]

    async def confirm(
        self, memory_id: str, *, reason: str = "", scope: str | None = None
    ) -> Change:
        """Vouch for a memory: said by a person, no machine may change it any more.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.confirm(fact.id)).protected
        True
        """
        full = await self._known(memory_id, scope)
        return (await self._command(ConfirmCommand(memory_id=full, reason=reason), scope))[0]

    async def erase(
        self,
        *memory_ids: str,
        reason: str,
        force: bool = False,
        cascade: bool = False,
        scope: str | None = None,
    ) -> tuple[Change, ...]:
        """Erase what memories say, with `cascade` also what was drawn from nothing else, for good:
        from the stores, and before this returns from their files and the embedded log. Raises
        NotDoneError as `forget` does.

        >>> _ = await memory.remember("The spare key is under the flowerpot")
        >>> key = (await memory.recall("spare key")).results[0]
        >>> [each.status for each in await memory.erase(key.id, reason="she asked for it")]
        ['erased']
        """
        full = [await self._known(each, scope) for each in memory_ids]
        given = {"force": force, "cascade": cascade or None, "hard": True}
        order = checked(ForgetCommand, memory_ids=full, reason=reason, **given)
        return await self._command(order, scope)

    async def erase_scope(self, scope: str, *, reason: str, memories: int) -> int:
        """Erase all that a scope holds, for good. `memories` says how many that are, forgotten ones
        among them; else nothing is erased, and NotDoneError tells the number.

        >>> await memory.erase_scope("nobody", reason="she left", memories=0)
        0
        """
        token = erase_token(scope, memories)
        order = checked(EraseScopeCommand, reason=reason, confirm_token=token)
        result = await self._carried_out(order, scope)
        return int(cast("JsonObject", result)["memories"])  # type: ignore[arg-type]
