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
from typing import Final, TypeAlias

from pydantic import JsonValue

from palimpsest.ops.replay.counterparts import Counterparts, Match
from palimpsest.ops.replay.ledger import Curated, Status
from palimpsest.ops.replay.live_log import LiveLog, decoded
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
    "apply-proposals": frozenset({"updated", "deleted", "deduped"}),
    "dismiss-proposals": frozenset({"dismissed"}),
    "erase-scope": frozenset({"erased"}),
}
"""The results with which each command succeeded."""
SAID_BY_IT: Final = "a memory that a person changed says the same"
NOT_CARRIED_OUT: Final = "the live memory did not carry it out"


@dataclass(slots=True)
class Curation:
    """Curation of one partition of a branch while the branch's stages are idle."""

    live: LiveLog
    counterparts: Counterparts

    async def translated(
        self, message: Message, command: Translated, record: Record
    ) -> list[Message]:
        """Returns what the branch gets in place of a live command; empty if nothing is left of
        it."""
        known = self.live.ledger.curated("command_id = ?", command_id(message))
        if not known:
            known = await self._found(message, command, record)
            self.live.ledger.note_curated(known)
        if isinstance(command, EraseScopeCommand):
            return self._erasure(message, command, known)
        named: dict[str, list[str]] = {}
        forgotten: list[str] = []
        for row in known:
            if row.branch_id is None:
                continue
            if isinstance(command, ModifyCommand) and row.status == "suppressed":
                forgotten.append(row.branch_id)
            else:
                named.setdefault(row.live_id, []).append(row.branch_id)
        said = [
            _said(message, each, number) for number, each in enumerate(_renamed(command, named))
        ]
        if not forgotten:
            return said
        out_of_the_way = ForgetCommand(memory_ids=tuple(forgotten), reason=SAID_BY_IT, force=True)
        return [_said(message, out_of_the_way, len(said)), *said]

    def settle(self) -> None:
        """Records the results of all commands that the branch got."""
        rows = self.live.ledger.curated("status = 'fed' OR (status = 'suppressed' AND detail = '')")
        results: dict[str, Mapping[str, str]] = {}
        for row in rows:
            if row.command_id not in results:
                results[row.command_id] = self._results(row.command_id)
        self.live.ledger.settle_curated(
            _settled(row, results[row.command_id]) for row in rows if results[row.command_id]
        )

    # --- what corresponds --------------------------------------------------------------------

    async def _found(self, message: Message, command: Translated, record: Record) -> list[Curated]:
        done = self._done(message)
        before = self._before(message, record)
        rows: list[Curated] = []

        def row(live_id: str, match: Match | None, status: Status, detail: str = "") -> None:
            rows.append(
                Curated(
                    command_id=command_id(message),
                    command=command.command,
                    scope=message.scope,
                    partition=record.partition,
                    offset=record.offset,
                    live_id=live_id,
                    branch_id=None if match is None else match.branch_id,
                    matched_by=None if match is None else match.by,
                    similarity=None if match is None else match.score,
                    status=status,
                    detail=detail,
                )
            )

        if isinstance(command, EraseScopeCommand):
            row(message.scope, None, "fed" if done else "not carried out")
            return rows
        for live_id in _named(command, done):
            if live_id not in done and (
                _guarded(command, live_id) or not self._knows(message.scope, live_id, before)
            ):
                row(live_id, None, "not carried out", NOT_CARRIED_OUT)
                continue
            match, others = await self._matches(message.scope, command, live_id, before)
            if match is not None:
                row(live_id, match, "fed")
            elif not others:
                row(live_id, None, "no counterpart")
            for other in others:
                row(live_id, other, "suppressed")
        return rows

    async def _matches(
        self, scope: str, command: Translated, live_id: str, before: int
    ) -> tuple[Match | None, list[Match]]:
        """Returns the counterpart, and all other memories that say what is forgotten or
        corrected."""
        if isinstance(command, ApplyProposalsCommand | DismissProposalsCommand):
            return await self.counterparts.of_held(scope, live_id, before), []
        forgets = isinstance(command, ForgetCommand)
        if self.counterparts.has_same_id(scope, live_id, before):
            others = (
                await self.counterparts.unaccounted(scope, [live_id], before) if forgets else []
            )
            match = Match(live_id, "same id", None)
            return match, [*others, *self._in_the_way(scope, command, live_id, match, before)]
        found = await self.counterparts.of_fact(scope, live_id, before)
        first = self._earlier(scope, live_id) or next(
            (each for each in found if each.by != "erased"), None
        )
        if not forgets and not (first is not None and _texts(command, live_id)):
            return first, []
        others = [each for each in found if first is None or each.branch_id != first.branch_id]
        if first is not None:
            known = {each.branch_id for each in others}
            more = self._in_the_way(scope, command, live_id, first, before)
            others += [each for each in more if each.branch_id not in known]
        return first, others

    def _in_the_way(
        self, scope: str, command: Translated, live_id: str, match: Match, before: int
    ) -> list[Match]:
        """Returns the branch facts that already say a memory's new text: two memories may not say
        the same, and the one that a person changed is kept."""
        return [
            each
            for each in self.counterparts.equal(scope, _texts(command, live_id))
            if each.branch_id != match.branch_id
            and not self.counterparts.has_same_id(scope, each.branch_id, before)
            and not self.live.ledger.curated("branch_id = ?", each.branch_id)
        ]

    def _earlier(self, scope: str, live_id: str) -> Match | None:
        """Returns the counterpart that an earlier command found."""
        rows = self.live.ledger.curated(
            "live_id = ? AND scope = ? AND branch_id IS NOT NULL AND matched_by <> 'erased'"
            " AND status IN ('fed', 're-applied', 'refused')",
            live_id,
            scope,
        )
        for row in reversed(rows):
            if row.branch_id and row.matched_by and self.counterparts.has(scope, row.branch_id):
                return Match(row.branch_id, row.matched_by, row.similarity)
        return None

    def _knows(self, scope: str, live_id: str, before: int) -> bool:
        known = self.counterparts
        return known.has_same_id(scope, live_id, before) or known.known(live_id, before)

    # --- what the live memory did ------------------------------------------------------------

    def _done(self, message: Message) -> set[str]:
        """Returns the memories and the pending facts that the command changed in the live
        memory."""
        told = self.live.ledger.told_by(message.id)
        # An outcome about a whole scope names no memory.
        memories = {each.memory_id or message.scope for each in told}
        return memories | {each.item_id for each in told} - {command_id(message)}

    def _before(self, message: Message, record: Record) -> int:
        """Returns the offset of memory-changes below which lie the outcomes of all that preceded
        the command."""
        own = self.live.ledger.told_by(message.id)
        if own:
            return own[0].offset
        first = max(0, record.offset - LOOKED_BACK_RECORDS)
        earlier = (
            self.live.reader.read(
                MEMORY_WRITES.name, record.partition, first, record.offset - first
            )
            if record.offset > first
            else []
        )
        for each in reversed(earlier):
            intent = decoded(each) if each.offset < record.offset else None
            told = [] if intent is None else self.live.ledger.told_by(intent.id)
            if told:
                return told[-1].offset + 1
        return self.live.ledger.scanned("memory-changes", record.partition)

    # --- what the branch did -----------------------------------------------------------------

    def _erasure(
        self, message: Message, command: EraseScopeCommand, known: Sequence[Curated]
    ) -> list[Message]:
        if all(row.status == "not carried out" for row in known):
            return []
        with self.counterparts.shard.reading() as reader:
            row = reader.execute(
                "SELECT count(*) FROM memory_rows WHERE scope = ?"
                " AND NOT (is_deleted AND content_hash = '')",
                [message.scope],
            ).fetchone()
        assert row is not None
        token = erase_token(message.scope, int(row[0]))
        return [_said(message, command.model_copy(update={"confirm_token": token}), 0)]

    def _results(self, named: str) -> Mapping[str, str]:
        """Returns the result by memory or pending fact, under `*` for all that are not named; empty
        if the branch has no result."""
        found: dict[str, str] = {}
        number, wanted = 0, named
        while (row := self._result(wanted)) is not None:
            error, result = row
            found["*"] = error or "not named in the result"
            told = json.loads(result) if error is None else None
            for each in told if isinstance(told, list) else [told]:
                if isinstance(each, dict):
                    found[str(each.get("id", "*"))] = str(each.get("status"))
            number += 1
            wanted = _also(named, number)
        return found

    def _result(self, named: str) -> tuple[str | None, str] | None:
        with self.counterparts.shard.reading() as reader:
            row: tuple[str | None, str] | None = reader.execute(
                "SELECT error, result FROM command_results WHERE command_id = ?", [named]
            ).fetchone()
        return row


def translated_command(message: Message) -> Translated | None:
    """Returns the command of a message if it needs translation, else None."""
    write = message.body.write if isinstance(message.body, MemoryWrite) else None
    if not isinstance(write, CommandIntent) or write.error is not None:
        return None
    return write.command if isinstance(write.command, Translated) else None


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


def _texts(command: Translated, live_id: str) -> list[str]:
    """Returns the new texts that the command gives a memory."""
    if not isinstance(command, ModifyCommand):
        return []
    return [p.content for p in command.patches if p.memory_id == live_id and p.content]


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
    ids = [key for keys in named.values() for key in keys]
    match command:
        case ModifyCommand():
            patches = tuple(
                patch.model_copy(update={"memory_id": key, "if_version": None})
                for patch in command.patches
                for key in named.get(patch.memory_id, ())
            )
            return [command.model_copy(update={"patches": patches})] if patches else []
        case ForgetCommand():
            free: dict[str, JsonValue] = {"if_version": None, "confirm_token": None}
            unique = tuple(dict.fromkeys(ids))
            return [
                command.model_copy(update={**free, "memory_ids": unique[n : n + MOST_FORGOTTEN]})
                for n in range(0, len(unique), MOST_FORGOTTEN)
            ]
        case RecoverCommand() | ConfirmCommand():
            free = {"if_version": None}
            return [command.model_copy(update={**free, "memory_id": key}) for key in ids[:1]]
        case ApplyProposalsCommand() | DismissProposalsCommand():
            return (
                [command.model_copy(update={"item_ids": tuple(dict.fromkeys(ids))})] if ids else []
            )
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


def _settled(row: Curated, results: Mapping[str, str]) -> Curated:
    if row.command == "erase-scope" or row.branch_id is None:
        status = results.get("*", "")
    else:
        status = results.get(row.branch_id, results["*"])
    wished = "forget" if row.status == "suppressed" else row.command
    if status in DONE[wished] or status.startswith("not_deleted"):
        return replace(
            row, status="suppressed" if row.status == "suppressed" else "re-applied", detail=status
        )
    return replace(row, status="refused", detail=status)
