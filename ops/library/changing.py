"""The methods of the library that change what is remembered. Every way to reach a memory has
them."""

from __future__ import annotations

from typing import Unpack, cast

from palimpsest.ops.command_kinds import was_applied
from palimpsest.ops.library.arguments import Facts, Patch, Selection, checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import (
    Alias,
    Change,
    CommandState,
    ForgetPreview,
    typed,
)
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import CommandRequest, ForgetPreviewRequest, JsonObject
from palimpsest.schemas.commands import (
    AliasCommand,
    ConfirmCommand,
    EraseScopeCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.identity import erase_token


class Changing(Opened):
    """Commands, each carried out when its method returns: what is asked afterwards sees it."""

    async def remember(
        self,
        content: str,
        *,
        scope: str | None = None,
        key: str | None = None,
        **facts: Unpack[Facts],
    ) -> Change:
        """Remember a text on someone's wish. `critical:` before it pins it, `[a,b]:` tags it. A
        text that is known already is `deduped`; under the same `key` it is remembered once.

        >>> (await memory.remember("critical: Never ring Ana before nine")).deduped
        False
        """
        order = checked(RememberCommand, content=content, **facts)
        return (await self._command(order, scope, key))[0]

    async def modify(
        self,
        memory_id: str,
        *,
        reason: str,
        self_taught: bool = False,
        scope: str | None = None,
        key: str | None = None,
        **patch: Unpack[Patch],
    ) -> Change:
        """Change a memory; the state before stays in its history. Raises NotDoneError, as where it
        is not at `if_version`, or where it is `self_taught`, on an agent's own, and the scope does
        not allow that.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> (await memory.modify(rule.id, importance=0.9, reason="asked")).version
        2
        """
        return await self._patched(memory_id, patch, reason, scope, key, self_taught)

    async def _patched(
        self,
        memory_id: str,
        patch: Patch,
        reason: str,
        scope: str | None,
        key: str | None,
        self_taught: bool = False,
    ) -> Change:
        if not patch.keys() - {"if_version"}:
            raise RequestError("nothing to change; name at least one field")
        [full] = await self._known(scope, memory_id)
        made = checked(MemoryPatch, memory_id=full, **patch)
        order = checked(ModifyCommand, patches=[made], reason=reason, self_taught=self_taught)
        return (await self._command(order, scope, key))[0]

    async def correct(
        self,
        memory_id: str,
        content: str,
        *,
        reason: str = "corrected",
        if_version: int | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Change:
        """Replace what a memory says by what is right; the state before stays in its history.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> right = "Never ring Ana before ten"
        >>> (await memory.correct(rule.id, right, reason="she said so")).version
        3
        """
        patch = _at(if_version, Patch(content=content))
        return await self._patched(memory_id, patch, reason, scope, key)

    async def pin(
        self,
        memory_id: str,
        *,
        reason: str = "pinned",
        if_version: int | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Change:
        """Pin a memory: no machine may change or forget it, and its importance does not decay.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.pin(fact.id)).status
        'updated'
        """
        patch = _at(if_version, Patch(pinned=True))
        return await self._patched(memory_id, patch, reason, scope, key)

    async def unpin(
        self,
        memory_id: str,
        *,
        reason: str = "unpinned",
        if_version: int | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Change:
        """Unpin a memory.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.unpin(fact.id)).status
        'updated'
        """
        patch = _at(if_version, Patch(pinned=False))
        return await self._patched(memory_id, patch, reason, scope, key)

    async def preview_forget(
        self,
        *memory_ids: str,
        cascade: bool = False,
        scope: str | None = None,
        **selection: Unpack[Selection],
    ) -> ForgetPreview:
        """What forgetting would forget: by ids, by a question, by types, tags, person, source type
        and time, or by several of these at once. Its `confirm_token` is for exactly these memories
        in these versions, with `cascade` also for those that would go with them.

        >>> preview = await memory.preview_forget(query="ring Ana", types=["rule"])
        >>> [each.content for each in preview.candidates]
        ['Never ring Ana before ten']
        """
        request = checked(
            ForgetPreviewRequest,
            scope=self._in(scope),
            memory_ids=await self._known(scope, *memory_ids),
            cascade=cascade,
            **selection,
        )
        return typed(ForgetPreview, await self._ask(request))

    async def forget(
        self,
        *memory_ids: str,
        reason: str,
        force: bool = False,
        cascade: bool = False,
        if_version: int | None = None,
        confirm_token: str | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> tuple[Change, ...]:
        """Forget memories, with `cascade` also what was drawn from nothing else: hidden at once,
        recoverable for a while. More than 25 need the `confirm_token` of a preview; with one,
        nothing is forgotten unless all is still as the preview showed it. Raises NotDoneError where
        one was not, as a pinned one without `force`; its `changes` tell of all.

        >>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
        >>> [each.status for each in await memory.forget(rule.id, reason="outdated", force=True)]
        ['forgotten']
        """
        full = await self._known(scope, *memory_ids)
        order = checked(
            ForgetCommand,
            memory_ids=full,
            reason=reason,
            force=force,
            cascade=cascade or None,
            if_version=if_version,
            confirm_token=confirm_token,
        )
        return await self._command(order, scope, key)

    async def recover(
        self,
        memory_id: str,
        *,
        reason: str = "",
        if_version: int | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Change:
        """Take back that a memory was forgotten.

        >>> forgotten = (await memory.list(deleted=True)).memories[0]
        >>> (await memory.recover(forgotten.id)).status
        'recovered'
        """
        [full] = await self._known(scope, memory_id)
        order = checked(RecoverCommand, memory_id=full, reason=reason, if_version=if_version)
        return (await self._command(order, scope, key))[0]

    async def confirm(
        self,
        memory_id: str,
        *,
        reason: str = "",
        if_version: int | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Change:
        """Vouch for a memory: said by a person, no machine may change it any more.

        >>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
        >>> (await memory.confirm(fact.id)).protected
        True
        """
        [full] = await self._known(scope, memory_id)
        order = checked(ConfirmCommand, memory_id=full, reason=reason, if_version=if_version)
        return (await self._command(order, scope, key))[0]

    async def alias(
        self,
        name: str,
        alias: str,
        *,
        reason: str = "",
        scope: str | None = None,
        key: str | None = None,
    ) -> Alias:
        """Tell that two names mean the same: a person, a place, a thing.

        >>> (await memory.alias("Lisbon", "Lisboa")).status
        'added'
        """
        order = checked(AliasCommand, name=name, alias=alias, reason=reason)
        return typed(Alias, await self._carry_out(order, scope, key))

    async def command(self, command_id: str, *, scope: str | None = None) -> CommandState | None:
        """What became of a command that was not carried out in time, by the `command_id` of
        NotYetAppliedError; None while it is on its way, or where there is none in this scope.

        >>> await memory.command("0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11")
        """
        answer = cast("JsonObject | None", await self._ask(CommandRequest(command_id)))
        if answer is None or answer["scope"] != self._in(scope):
            return None
        told = {
            "command_id": command_id,
            "applied": was_applied(answer["error"], answer["result"]),
            **answer,
        }
        return typed(CommandState, told)

    async def erase(
        self,
        *memory_ids: str,
        reason: str,
        force: bool = False,
        cascade: bool = False,
        confirm_token: str | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> tuple[Change, ...]:
        """Erase what memories say, with `cascade` also what was drawn from nothing else, for good:
        from the stores, and before this returns from their files and the embedded log. Raises
        NotDoneError as `forget` does.

        >>> _ = await memory.remember("The spare key is under the flowerpot")
        >>> spare = (await memory.recall("spare key")).results[0]
        >>> [each.status for each in await memory.erase(spare.id, reason="she asked for it")]
        ['erased']
        """
        full = await self._known(scope, *memory_ids)
        order = checked(
            ForgetCommand,
            memory_ids=full,
            reason=reason,
            force=force,
            cascade=cascade or None,
            confirm_token=confirm_token,
            hard=True,
        )
        return await self._command(order, scope, key)

    async def erase_scope(
        self, scope: str, *, reason: str, memories: int, key: str | None = None
    ) -> int:
        """Erase all that a scope holds, for good. `memories` says how many that are, forgotten ones
        among them; else nothing is erased, and NotDoneError tells the number.

        >>> await memory.erase_scope("nobody", reason="she left", memories=0)
        0
        """
        token = erase_token(scope, memories)
        order = checked(EraseScopeCommand, reason=reason, confirm_token=token)
        result = cast("JsonObject", await self._carry_out(order, scope, key))
        return int(str(result["memories"]))


def _at(version: int | None, patch: Patch) -> Patch:
    """The patch, for that version only."""
    return patch if version is None else {**patch, "if_version": version}
