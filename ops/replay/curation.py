"""Curation survives: translates commands about live facts to the branch's corresponding facts.

A command is translated once the branch has executed all that came before it. The translation is
stored before the branch gets it, so that a retry after a crash yields the same one. Versions and
preview tokens are left out: the live log shows whether the live memory executed the command, and
the branch does not get what the live memory refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from pydantic import JsonValue

from palimpsest.ops.replay.counterparts import Counterparts, Match
from palimpsest.ops.replay.log_reading import decoded, intent_of, recorded
from palimpsest.ops.replay.requests import Curated, Status
from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    Command,
    ConfirmCommand,
    DismissProposalsCommand,
    EraseScopeCommand,
    ForgetCommand,
    ModifyCommand,
    RecoverCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import erase_token
from palimpsest.schemas.messages import CommandIntent, MemoryWrite
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.apply.command_work import command_id
from palimpsest.streams.logs.base import Record
from palimpsest.streams.stage import Message

Translated: TypeAlias = (
    ModifyCommand
    | ForgetCommand
    | RecoverCommand
    | ConfirmCommand
    | ApplyProposalsCommand
    | DismissProposalsCommand
    | EraseScopeCommand
)
"""Commands that name model output or that require a preview."""

MOST_FORGOTTEN: Final = 200
"""Maximum number of memories that one command may name."""
LOOKED_BACK_RECORDS: Final = 256
DONE: Final[Mapping[str, frozenset[str]]] = {
    "modify": frozenset({"updated", "no_changes"}),
    "forget": frozenset({"forgotten", "erased", "deleted"}),
    "recover": frozenset({"recovered"}),
    "confirm": frozenset({"confirmed"}),
    "apply-proposals": frozenset({"updated", "deleted", "deduped", "said_before", "added"}),
    "dismiss-proposals": frozenset({"dismissed"}),
    "erase-scope": frozenset({"erased"}),
}
"""The results with which each command succeeded."""
NO_MATCH: Final = (None, None, None)


@dataclass(frozen=True, slots=True)
class BranchCuration(Counterparts):
    """Curation of one partition of a branch while the branch's stages are idle."""

    async def translated(
        self, message: Message, command: Translated, record: Record
    ) -> list[Message]:
        """Returns what the branch gets in place of a live command; empty if nothing is left of
        it."""
        known = self.live.ledger.curated("command_id = ?", command_id(message))
        if not known:
            known = await self._found(message, command, record)
            self.live.ledger.keep_curated(known)
        if isinstance(command, EraseScopeCommand):
            if all(row.status == "not carried out" for row in known):
                return []
            [(count,)] = self.shard.fetch(
                "SELECT count(*) FROM memory_rows WHERE scope = ?"
                " AND NOT (is_deleted AND content_hash = '')",
                [message.scope],
            )
            token = erase_token(message.scope, count)
            return [_said(message, command.model_copy(update={"confirm_token": token}), 0)]
        named: dict[str, list[str]] = {}
        forgotten: list[str] = []
        for row in known:
            if row.branch_id is None:
                continue
            if isinstance(command, ModifyCommand) and row.status == "suppressed":
                forgotten.append(row.branch_id)
            else:
                named.setdefault(row.live_id, []).append(row.branch_id)
        renamed = enumerate(_renamed(command, named))
        said = [_said(message, each, number) for number, each in renamed]
        if forgotten:
            why = "a memory that a person changed says the same"
            away = ForgetCommand(memory_ids=tuple(forgotten), reason=why, force=True)
            said.insert(0, _said(message, away, len(said)))
        return said

    def settle(self) -> None:
        """Records the results of all commands that the branch got."""
        rows = self.live.ledger.curated("status = 'fed' OR (status = 'suppressed' AND detail = '')")
        results = {key: self._results(key) for key in {row.command_id for row in rows}}
        settled: list[Curated] = []
        for row in rows:
            of_command = results[row.command_id]
            if not of_command:
                continue
            if row.command == "erase-scope" or row.branch_id is None:
                result = of_command.get("*", "")
            else:
                result = of_command.get(row.branch_id, of_command["*"])
            wished = "forget" if row.status == "suppressed" else row.command
            status: Status = "refused"
            if result in DONE[wished] or result.startswith("not_deleted"):
                status = "suppressed" if row.status == "suppressed" else "re-applied"
            settled.append(replace(row, status=status, detail=result))
        self.live.ledger.keep_curated(settled)

    # --- what corresponds --------------------------------------------------------------------

    async def _found(self, message: Message, command: Translated, record: Record) -> list[Curated]:
        # The memories and the pending facts that the command changed in the live memory. An outcome
        # about a whole scope names no memory.
        outcomes = self.live.ledger.outcomes(cause=message.id)
        done = {each.memory_id or message.scope for each in outcomes}
        done |= {each.item_id for each in outcomes} - {command_id(message)}
        row = partial(
            Curated,
            command_id(message),
            command.command,
            message.scope,
            record.partition,
            record.offset,
        )
        if isinstance(command, EraseScopeCommand):
            return [row(message.scope, *NO_MATCH, "fed" if done else "not carried out")]
        before = self._before(message, record)
        then = replace(self, scope=message.scope, before=before)
        rows: list[Curated] = []
        for live_id in _named(command, done):
            told = self.live.ledger.outcomes(before, memory_id=live_id)
            is_known = told or then.has_same_id(live_id)
            if live_id not in done and (_guarded(command, live_id) or not is_known):
                why = "the live memory did not carry it out"
                rows.append(row(live_id, *NO_MATCH, "not carried out", why))
                continue
            match, others = await then._matches(command, live_id)
            if match is not None:
                rows.append(row(live_id, *match, "fed"))
            elif not others:
                rows.append(row(live_id, *NO_MATCH, "no counterpart"))
            rows += [row(live_id, *other, "suppressed") for other in others]
        return rows

    async def _matches(self, command: Translated, live_id: str) -> tuple[Match | None, list[Match]]:
        """Returns the counterpart, and all other memories that say what is forgotten or
        corrected."""
        if isinstance(command, ApplyProposalsCommand | DismissProposalsCommand):
            return await self.of_held(live_id), []
        forgets = isinstance(command, ForgetCommand)
        patches = command.patches if isinstance(command, ModifyCommand) else ()
        texts = [p.content for p in patches if p.memory_id == live_id and p.content]
        first: Match | None
        if self.has_same_id(live_id):
            first = Match(live_id, "same id", None)
            others = await self.unaccounted([live_id]) if forgets else []
        else:
            found = await self.of_fact(live_id)
            unerased = (each for each in found if each.by != "erased")
            first = self._earlier(live_id) or next(unerased, None)
            others = found if forgets or (first is not None and texts) else []
        if first is not None:
            known = {first.branch_id, *(each.branch_id for each in others)}
            others = [each for each in others if each.branch_id != first.branch_id]
            # What already says a memory's new text: two memories may not say the same, and the one
            # that a person changed is kept.
            others += [
                each
                for each in self.equal(texts)
                if each.branch_id not in known
                and not self.has_same_id(each.branch_id)
                and not self.live.ledger.curated("branch_id = ?", each.branch_id)
            ]
        return first, others

    def _earlier(self, live_id: str) -> Match | None:
        """Returns the counterpart that an earlier command found."""
        rows = self.live.ledger.curated(
            "live_id = ? AND scope = ? AND branch_id IS NOT NULL AND matched_by <> 'erased'"
            " AND status IN ('fed', 're-applied', 'refused')",
            live_id,
            self.scope,
        )
        query = "SELECT 1 FROM memory_rows WHERE memory_id = ? AND scope = ?"
        for row in reversed(rows):
            known = row.branch_id and self.shard.fetch(query, [row.branch_id, self.scope])
            if row.branch_id and row.matched_by and known:
                return Match(row.branch_id, row.matched_by, row.similarity)
        return None

    # --- what the live memory did ------------------------------------------------------------

    def _before(self, message: Message, record: Record) -> int:
        """Returns the offset of memory-changes below which lie the outcomes of all that preceded
        the command."""
        own = self.live.ledger.outcomes(cause=message.id)
        if own:
            return own[0].offset
        first = max(0, record.offset - LOOKED_BACK_RECORDS)
        log, topic = self.live.reader, MEMORY_WRITES.name
        for each in reversed([*recorded(log, topic, record.partition, first, record.offset)]):
            intent = decoded(each)
            told = [] if intent is None else self.live.ledger.outcomes(cause=intent.id)
            if told:
                return told[-1].offset + 1
        return self.live.ledger.scanned("memory-changes", record.partition)

    # --- what the branch did -----------------------------------------------------------------

    def _results(self, named: str) -> Mapping[str, str]:
        """Returns the result by memory or pending fact, under `*` for all that are not named; empty
        if the branch has no result."""
        found: dict[str, str] = {}
        number, wanted = 0, named
        query = "SELECT error, result FROM command_results WHERE command_id = ?"
        while rows := self.shard.fetch(query, [wanted]):
            [(error, result)] = rows
            found["*"] = error or "not named in the result"
            told = json.loads(result) if error is None else None
            for each in told if isinstance(told, list) else [told]:
                if isinstance(each, dict):
                    found[str(each.get("id", "*"))] = str(each.get("status"))
            number += 1
            wanted = _also(named, number)
        return found


def translated_command(message: Message) -> Translated | None:
    """Returns the command of a message if it needs translation, else None."""
    intent = intent_of(message)
    if not isinstance(intent, CommandIntent) or intent.error is not None:
        return None
    return intent.command if isinstance(intent.command, Translated) else None


def _named(command: Translated, done: Iterable[str]) -> list[str]:
    """Returns the ids that the command names, and those that a cascade took along."""
    match command:
        case ModifyCommand():
            named = [patch.memory_id for patch in command.patches]
        case ForgetCommand():
            named = [*command.memory_ids, *(sorted(done) if command.cascade else ())]
        case RecoverCommand() | ConfirmCommand():
            named = [command.memory_id]
        case ApplyProposalsCommand() | DismissProposalsCommand():
            named = [*command.item_ids]
        case EraseScopeCommand():
            named = []
    return list(dict.fromkeys(named))


def _guarded(command: Translated, live_id: str) -> bool:
    """Returns whether the live memory may have refused what another state would have allowed."""
    if isinstance(command, ModifyCommand):
        return any(p.if_version is not None for p in command.patches if p.memory_id == live_id)
    if isinstance(command, ForgetCommand):
        return command.if_version is not None or command.confirm_token is not None
    if isinstance(command, RecoverCommand | ConfirmCommand):
        return command.if_version is not None
    return True  # a pending change must match the state that its decision saw


def _renamed(command: Translated, named: Mapping[str, Sequence[str]]) -> list[Command]:
    """Returns the command with the branch's ids: several commands if it names too many memories,
    none if it no longer names any."""
    ids = tuple(dict.fromkeys(key for keys in named.values() for key in keys))
    free: dict[str, JsonValue] = {"if_version": None}
    match command:
        case ModifyCommand():
            patches = tuple(
                patch.model_copy(update={**free, "memory_id": key})
                for patch in command.patches
                for key in named.get(patch.memory_id, ())
            )
            return [command.model_copy(update={"patches": patches})] if patches else []
        case ForgetCommand():
            parts = [ids[n : n + MOST_FORGOTTEN] for n in range(0, len(ids), MOST_FORGOTTEN)]
            free["confirm_token"] = None
            return [command.model_copy(update={**free, "memory_ids": part}) for part in parts]
        case RecoverCommand() | ConfirmCommand():
            return [command.model_copy(update={**free, "memory_id": key}) for key in ids[:1]]
        case ApplyProposalsCommand() | DismissProposalsCommand():
            return [command.model_copy(update={"item_ids": ids})] if ids else []
        case EraseScopeCommand():
            return [command]


def _said(message: Message, command: Command, number: int) -> Message:
    """Returns the message with this command instead; each further one gets its own id."""
    assert isinstance(message.body, MemoryWrite)
    intent = message.body.write.model_copy(update={"command": command})
    said = message.model_copy(update={"body": message.body.model_copy(update={"write": intent})})
    if number == 0:
        return said
    also = _also(command_id(message), number)
    return said.model_copy(
        update={"id": derived_id("replay", message.id, number), "causation_id": also}
    )


def _also(named: str, number: int) -> str:
    """Returns the id of a further command of a translation."""
    return derived_id("replay-command", named, number)
