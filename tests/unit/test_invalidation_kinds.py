"""Whose caches a changed memory lies in, and in which order records are taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.commands import (
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.messages import CacheInvalidation
from palimpsest.schemas.privacy import LEVELS, level_of, person_key
from palimpsest.schemas.rows.pipeline import PrivacyRow
from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.partition_task import in_time_order
from tests.harness import BEGIN
from tests.unit.by_hand import Driven, Store, memory
from tests.unit.commands_by_hand import execute


def told(driven: Driven) -> dict[str, tuple[str, ...]]:
    bodies = [emit.body for emit in driven.step.emits]
    found = [body for body in bodies if isinstance(body, CacheInvalidation)]
    assert len({body.kind for body in found}) == len(found)
    return {body.kind: body.memory_ids for body in found}


@pytest.mark.parametrize(("who", "kind"), [("Ana", "personal"), (None, "personal"), ("", "server")])
def test_a_remembered_text_is_somebodys_or_the_scopes(who: str | None, kind: str) -> None:
    assert [*told(execute(RememberCommand(content="Tea is at five", who=who)))] == [kind]


def test_a_change_of_both_is_told_of_both() -> None:
    hers = memory("tea", "Ana likes green tea", who="Ana")
    ours = replace(memory("rule", "No shoes inside"), who="")
    store = Store(memories={row.memory_id: row for row in (hers, ours)})
    patches = tuple(MemoryPatch(memory_id=key, importance=0.5) for key in ("tea", "rule"))
    driven = execute(ModifyCommand(patches=patches, reason="matters"), store)
    assert told(driven) == {"personal": ("tea",), "server": ("rule",)}


def test_a_memory_that_becomes_somebodys_leaves_both_caches() -> None:
    ours = replace(memory("rule", "No shoes inside"), who="")
    patch = MemoryPatch(memory_id="rule", who="Ana")
    driven = execute(ModifyCommand(patches=(patch,), reason="hers"), Store(memories={"rule": ours}))
    assert told(driven) == {"personal": ("rule",), "server": ("rule",)}


def test_an_erased_memory_lies_where_it_did() -> None:
    hers = memory("tea", "Ana likes green tea", who="Ana")
    gone = ForgetCommand(memory_ids=("tea",), reason="asked", hard=True)
    assert told(execute(gone, Store(memories={"tea": hers}))) == {"personal": ("tea",)}


# --- the order of topics ----------------------------------------------------------------------


def record(topic: str, offset: int, seconds: int) -> Record:
    at = BEGIN + timedelta(seconds=seconds)
    return Record(topic, 0, offset, at, b"", b"", {})


TIMES = st.lists(st.integers(0, 20), max_size=12).map(sorted)


@given(turns=TIMES, commands=TIMES, is_cut=st.booleans())
def test_what_came_first_is_taken_first(turns: Any, commands: Any, is_cut: bool) -> None:
    by_topic = [
        [record(topic, offset, at) for offset, at in enumerate(times)]
        for topic, times in (("turns", turns), ("commands", commands))
        if times
    ]
    with_more = [records for records in by_topic if is_cut and records[0].topic == "commands"]
    taken = in_time_order(by_topic, with_more)
    assert [each.timestamp for each in taken] == sorted(each.timestamp for each in taken)
    for records in by_topic:
        of_topic = [each for each in taken if each.topic == records[0].topic]
        assert of_topic == records[: len(of_topic)]  # none left out in between
        if not is_cut or records in with_more:
            assert of_topic == records
    if with_more:
        assert all(each.timestamp <= with_more[0][-1].timestamp for each in taken)


# --- names and levels -------------------------------------------------------------------------


@given(st.text())
def test_a_key_of_a_key_is_itself(name: str) -> None:
    assert person_key(person_key(name)) == person_key(name)
    assert person_key(f"  {name}\t") == person_key(name)


@given(own=st.sampled_from((None, *LEVELS)), whole=st.sampled_from((None, *LEVELS)))
def test_the_stricter_level_holds(own: Any, whole: Any) -> None:
    def row(key: str, level: Any) -> PrivacyRow:
        return PrivacyRow(
            scope="s",
            person_key=key,
            person=key,
            level=level,
            reason="",
            changed_by="",
            recorded_at=BEGIN,
        )

    levels = {key: row(key, level) for key, level in (("ana", own), ("", whole)) if level}
    strictest = max((each for each in (own, whole) if each), key=LEVELS.index, default="none")
    assert level_of(levels, "ANA") == strictest
    assert level_of(levels, "Ben") == (whole or "none")
