"""What privacy levels forbid commands, and the command that sets one. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.commands import ModifyCommand, RememberCommand, SetPrivacyCommand
from palimpsest.schemas.privacy import (
    LEVELS,
    WHOLE_SCOPE,
    known_key,
    level_of,
    person_key,
)
from palimpsest.schemas.rows.enumerations import Privacy
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import PrivacyRow
from palimpsest.streams.apply.command_work import Refused, Work
from palimpsest.streams.memory_rows import DRAWN, is_erased
from palimpsest.streams.stage import Asking
from palimpsest.streams.store_port import Load, Put

PRIVATE_SCOPE = (
    "private: nothing may be remembered in this scope (its privacy level is full); tell the user,"
    " who can lower the level of the scope"
)

About = Mapping[str, frozenset[str]]
"""The persons that memories are about, by the memories' ids."""


def load_about(work: Work, command: ModifyCommand) -> Asking[About]:
    """Whom the memories that the command names are about: those who said them, and those who said
    what they were drawn from."""
    named = [work.memories[p.memory_id] for p in command.patches if p.memory_id in work.memories]
    drawn = {row.memory_id: row.source_id for row in named if row.source_id and row.why == DRAWN}
    turns: dict[str, str] = {}
    if drawn:
        found = yield from Load(work.scope, fact_ids=tuple(drawn.values()))
        turns = {item: fact.turn_memory_id for item, fact in found.facts.items()}
    sources: Mapping[str, MemoryRow] = {}
    if turns:
        statements = yield from Load(work.scope, memory_ids=tuple(dict.fromkeys(turns.values())))
        sources = statements.memories
    about = {}
    for row in named:
        source = sources.get(turns.get(drawn.get(row.memory_id) or "", ""))
        about[row.memory_id] = frozenset({row.who} if source is None else {row.who, source.who})
    return about


def refuse_about_private(
    work: Work, command: RememberCommand | ModifyCommand, about: About
) -> None:
    """Raises Refused for a memory that may not be written because of whom it is about. A person may
    still change existing private memories."""
    is_own = bool(command.self_taught) or work.by_machine
    if isinstance(command, RememberCommand):
        refuse_private(work, {command.who or ""}, is_own)
        return
    for patch in command.patches:
        if patch.who is not None:
            refuse_private(work, {patch.who}, is_own)
        if is_own and patch.memory_id in about:
            refuse_private(work, about[patch.memory_id], is_own)


def refuse_private(work: Work, persons: Iterable[str], is_own: bool) -> None:
    """Raises Refused where one of the persons is private: to anybody, or only to an agent that
    writes on its own."""
    levels = work.loaded.privacy
    for person in sorted(persons):
        level = level_of(levels, person)
        if level == "none" or (level == "partial" and not is_own):
            continue
        own = levels.get(known_key(levels, work.scope, person))
        whose = f"the scope {work.scope!r}"
        if own is not None and person_key(person) and own.level == level:
            whose = repr(own.person)
        who = "nobody may" if level == "full" else "agents may not"
        raise Refused(
            f"private: {who} write memories about them: the privacy level of {whose} is {level};"
            " tell the user, who can lower the level (set-privacy)"
        )


def refuse_in_private_scope(work: Work) -> None:
    """Raises Refused where the whole scope keeps nothing."""
    if level_of(work.loaded.privacy, "") == "full":
        raise Refused(PRIVATE_SCOPE)


# --- setting a level --------------------------------------------------------------------------


def _load_known_of(work: Work, command: SetPrivacyCommand) -> Asking[Counter[str]]:
    """How many memories of the person (or all) are there, by the name that they have; what was
    drawn from them counts under the name of who said it."""
    found = yield from Load(work.scope, whole_scope=True)
    known = {key: row for key, row in found.memories.items() if not is_erased(row)}
    key = WHOLE_SCOPE if command.person is None else person_key(command.person)
    if key == WHOLE_SCOPE:
        return Counter({"": len(known)})
    own = {row.memory_id: row.who for row in known.values() if person_key(row.who) == key}
    counted = Counter(own.values())
    derived = yield from Load(work.scope, derived_from=tuple(sorted(own)))
    for memory_id, sources in derived.derived.items():
        if memory_id in known and memory_id not in own:
            counted[next(own[each] for each in sorted(sources) if each in own)] += 1
    return counted


def set_privacy(work: Work, command: SetPrivacyCommand) -> Asking[JsonValue]:
    """Set the level. Raising it offers to erase what is there; lowering brings nothing back."""
    yield from work.begin()
    known = yield from _load_known_of(work, command)
    name = (command.person or "").strip()
    key = known_key(work.loaded.privacy, work.scope, name)
    row = work.loaded.privacy.get(key)
    before: Privacy = "none" if row is None else row.level
    is_lower = LEVELS.index(command.level) < LEVELS.index(before)
    if is_lower and work.by_machine:
        raise Refused("forbidden: only a person may lower a privacy level; tell the user")
    after = PrivacyRow(
        scope=work.scope,
        person_key=key,
        person=name,
        level=command.level,
        reason=command.reason,
        changed_by=work.intent.actor.id,
        recorded_at=work.at,
    )
    if command.level == before:
        after = replace(after, recorded_at=work.at if row is None else row.recorded_at)
    else:
        work.writes.append(Put(after))
        metadata: dict[str, JsonValue] = {"person": name or None, "level": command.level}
        work.record_outcome("privacy", None, command.reason, metadata=metadata | {"before": before})
    count = sum(known.values())
    offer = None
    if LEVELS.index(command.level) >= LEVELS.index(before) and command.level != "none" and count:
        offer = _offer(work.scope, sorted(known) if name else [], count)
    return {
        "status": "no_changes" if command.level == before else "set",
        "person": name or None,
        "level": command.level,
        "before": before,
        "since": after.recorded_at.isoformat(),
        "memories": count,
        "names": {who: known[who] for who in sorted(known) if who},
        "offer": offer,
    }


def _offer(scope: str, names: list[str], count: int) -> str:
    """How to have forgotten for good what is there; names are quoted for a shell."""
    at = f"--scope {shlex.quote(scope)}"
    how = f"palimpsest erase {at} --all --preview"
    if names:
        how = " and ".join(
            f"palimpsest forget --who {shlex.quote(name)} {at} --hard --cascade --preview"
            for name in names
        )
    return (
        f"{count} memories from before are still kept; to erase them, look at a preview ({how}, or"
        " POST /api/memory/erase) and give its token"
    )
