"""apply-writes on commands: what people and agents ask for, and every way it is refused."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from palimpsest.schemas.commands import (
    Command,
    DocumentTextCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute, StructuredEntity
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import command_memory_id
from palimpsest.schemas.messages import CommandIntent, MemoryChange, MemoryWrite
from palimpsest.schemas.normal_forms import parse_prefix
from palimpsest.schemas.rows.memories import ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import CommandRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.apply.commands import HANDLERS
from palimpsest.streams.apply.remember import inferred_type
from palimpsest.streams.store_port import KeepVector
from tests.harness import pipeline_settings
from tests.unit.by_hand import Driven, Store, context, drive, memory, write_message
from tests.unit.commands_by_hand import CAKE, HUMAN, TEA, execute, result


def test_every_command_has_a_handler_for_its_type() -> None:
    commands = {*get_args(get_args(Command)[0])} - {DocumentTextCommand}
    assert HANDLERS.keys() == commands
    for kind, handler in HANDLERS.items():
        expected = get_type_hints(handler)["command"]
        assert kind is expected or kind in get_args(expected), kind


# --- remember ---------------------------------------------------------------------------------


def test_remember() -> None:
    driven = execute(
        RememberCommand(content="Ana prefers green tea.", project="p", metadata={"k": 1})
    )
    [row] = driven.rows(MemoryRow)
    assert row.memory_id == command_memory_id("ana", "c1")
    assert (row.type, row.importance, row.confidence, row.why) == (
        "preference",
        0.8,
        1.0,
        "explicit",
    )
    assert (row.who, row.updated_by, row.pinned, row.project) == ("ana", "ana", False, "p")
    assert (row.normalized_content, row.write_seq) == ("ana prefers green tea", 11)
    assert result(driven) == {"id": row.memory_id, "deduped": False, "version": 1}
    assert driven.ends() == [("created", "remembered")]
    assert len(driven.emitted(CACHE_INVALIDATIONS)) == 1
    assert [write for write in driven.step.writes if isinstance(write, KeepVector)]


def test_the_memory_is_the_command_s_not_the_trace_s() -> None:
    """A producer may give many commands one correlation id."""
    first = execute(RememberCommand(content="one thing"))
    message = write_message(
        MemoryWrite(write=CommandIntent(command=RememberCommand(content="another"))),
        "w2",
        causation_id="c2",
        correlation_id="trace",
    )
    second = drive(apply_writes_stage(pipeline_settings()).process(message, context()))
    for kind in (MemoryRow, CommandRow):
        assert first.rows(kind)[0].key != second.rows(kind)[0].key


@pytest.mark.parametrize(
    ("content", "critical", "tags", "rest"),
    [
        ("Ana likes tea", False, (), "Ana likes tea"),
        ("critical: Ana likes tea", True, (), "Ana likes tea"),
        ("CRITICAL : Ana", True, (), "Ana"),
        ("[a, b]: Ana", False, ("a", "b"), "Ana"),
        ("critical: [a,b,,]: Ana: tea", True, ("a", "b"), "Ana: tea"),
        ("critically: Ana", False, (), "critically: Ana"),
        ("[a] Ana", False, (), "[a] Ana"),
        ("critical:", False, (), "critical:"),
        ("[a]: ", False, (), "[a]: "),
    ],
)
def test_prefixes(content: str, critical: bool, tags: tuple[str, ...], rest: str) -> None:
    assert parse_prefix(content) == (critical, tags, rest)


def test_critical_pins_and_fields_override() -> None:
    [row] = execute(RememberCommand(content="critical: [a]: Ana is allergic")).rows(MemoryRow)
    assert (row.pinned, row.importance, row.tags, row.content) == (
        True,
        1.0,
        ("a",),
        "Ana is allergic",
    )
    fields = {"importance": 0.2, "tags": ("b",), "type": "rule", "who": "B"}
    given = RememberCommand.model_validate({"content": "[a]: x is y", **fields})
    [row] = execute(given).rows(MemoryRow)
    assert (row.importance, row.tags, row.type, row.who) == (0.2, ("b",), "rule", "B")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Ana prefers tea", "preference"),
        ("we agreed on tea", "decision"),
        ("we will use tea", "decision"),
        ("ALWAYS lock the door", "rule"),
        ("Ana learned to sail", "learning"),
        ("the door is broken", "issue"),
        ("debugging mustard is unbroken", "fact"),
        ("Ana is here", "fact"),
    ],
)
def test_the_type_is_inferred_by_whole_words(text: str, kind: str) -> None:
    assert inferred_type(text) == kind


@pytest.mark.parametrize(
    "command",
    [
        RememberCommand(content="ANA likes green tea!"),
        RememberCommand(content="something else", source_id="src"),
    ],
)
def test_the_same_content_or_source_is_there_already(command: RememberCommand) -> None:
    known = memory("tea", "Ana likes green tea", version=3, source_id="src")
    driven = execute(command, Store.of(known))
    assert result(driven) == {"id": "tea", "deduped": True, "version": 3}
    assert driven.rows(MemoryRow) == []
    assert driven.outcomes()[0].event == "deduped"


def test_structure_goes_to_the_graph_with_the_memory() -> None:
    structure = Structure(
        entities=(StructuredEntity(name="Ana", aliases=("Annie",)),),
        attributes=(StructuredAttribute(entity="Ana", aspect="food"),),
        relations=(Triple(source="Ana", relationship="likes", target="tea"),),
    )
    driven = execute(RememberCommand(content="Ana likes tea", structured=structure))
    [change] = driven.emitted(MEMORY_CHANGES)
    assert isinstance(change, MemoryChange)
    assert change.graph is not None
    assert change.graph.memory_ids == (command_memory_id("ana", "c1"),)
    assert change.graph.entities == structure.entities
    assert change.graph.attributes == structure.attributes
    assert change.graph.triples == structure.relations


# --- modify -----------------------------------------------------------------------------------


def modify(*patches: MemoryPatch, rows: tuple[MemoryRow, ...] = (TEA, CAKE)) -> Driven:
    return execute(ModifyCommand(patches=patches, reason="better"), Store.of(*rows))


def test_whether_new_content_has_its_vector_is_told() -> None:
    patch = ModifyCommand(patches=(MemoryPatch(memory_id="tea", content="Ana naps"),), reason="so")
    [down] = result(execute(patch, Store.of(TEA, without_vectors=True)))
    assert (down["status"], down["embedded"]) == ("updated", False)
    # Of a turn it is made by the tracker.
    turn = memory("tea", TEA.content, type="episodic", who="Ana")
    assert result(execute(patch, Store.of(turn)))[0]["embedded"] is False
    [same] = result(modify(MemoryPatch(memory_id="tea", importance=0.1)))
    assert "embedded" not in same


def test_new_content_archives_the_old() -> None:
    driven = modify(MemoryPatch(memory_id="tea", content="Ana likes black tea", if_version=3))
    updated = {"id": "tea", "status": "updated", "version": 4}
    assert result(driven) == [updated | {"embedded": True}]
    [old] = driven.rows(ArchiveRow)
    assert (old.version, old.content) == (3, TEA.content)
    [row] = driven.rows(MemoryRow)
    assert (row.content, row.updated_by, row.version) == ("Ana likes black tea", "ana", 4)
    assert (row.content_hash != TEA.content_hash, row.embedding_key != TEA.embedding_key) == (
        True,
        True,
    )
    [outcome] = driven.outcomes()
    assert (outcome.event, outcome.old_content, outcome.new_content, outcome.reason) == (
        "modified",
        TEA.content,
        "Ana likes black tea",
        "better",
    )


def test_new_content_leaves_an_edge_to_the_old() -> None:
    """Not where the record is older than these edges: a rebuild makes what was there."""
    patches = (
        MemoryPatch(memory_id="tea", content="Ana likes black tea"),
        MemoryPatch(memory_id="cake", importance=0.1),
    )
    command = ModifyCommand(patches=patches, reason="better")
    for marked, expected in ((True, [("tea", "tea@3", "supersedes")]), (None, [])):
        intent = CommandIntent(command=command, actor=HUMAN, supersedes=marked)
        message = write_message(MemoryWrite(write=intent), causation_id="c1")
        process = apply_writes_stage(pipeline_settings()).process(message, context())
        edges = drive(process, Store.of(TEA, CAKE)).rows(EdgeRow)
        assert [each.key for each in edges] == expected


def test_other_fields_leave_content_and_archive_alone() -> None:
    patch = MemoryPatch(memory_id="tea", type="rule", importance=0.1, tags=(), pinned=True)
    driven = modify(patch)
    [row] = driven.rows(MemoryRow)
    assert (row.type, row.importance, row.tags, row.pinned) == ("rule", 0.1, (), True)
    assert row.content == TEA.content
    assert driven.rows(ArchiveRow) == []


def test_every_patch_has_its_own_result_and_a_failed_one_stops_none() -> None:
    gone = memory("gone", "Ana was here", is_deleted=True)
    spoken = memory("turn", "I like tea", type="episodic", who="Ana")
    driven = modify(
        MemoryPatch(memory_id="nobody", pinned=True),
        MemoryPatch(memory_id="gone", pinned=True),
        MemoryPatch(memory_id="tea", pinned=True, if_version=2),
        MemoryPatch(memory_id="tea", pinned=False),
        MemoryPatch(memory_id="tea", content="ana bakes CAKE."),
        MemoryPatch(memory_id="turn", type="fact"),
        MemoryPatch(memory_id="tea", pinned=True),
        rows=(TEA, CAKE, gone, spoken),
    )
    assert [r["status"] for r in result(driven)] == [
        "not_found",
        "deleted",
        "version_conflict",
        "no_changes",
        "duplicate_content_hash",
        "invalid_request",
        "updated",
    ]
    assert result(driven)[4]["duplicate_of"] == "cake"
    assert len(driven.rows(MemoryRow)) == 1


def test_patches_see_each_other() -> None:
    driven = modify(
        MemoryPatch(memory_id="tea", content="Ana likes coffee"),
        MemoryPatch(memory_id="cake", content="Ana likes coffee!"),
        MemoryPatch(memory_id="cake", content=TEA.content),
        MemoryPatch(memory_id="tea", pinned=True, if_version=4),
    )
    assert [r["status"] for r in result(driven)] == [
        "updated",
        "duplicate_content_hash",
        "updated",
        "updated",
    ]


def test_a_turn_with_another_speaker_is_embedded_anew() -> None:
    spoken = memory("turn", "I like tea", type="episodic", who="Ana", embedding_key="old")
    driven = modify(
        MemoryPatch(memory_id="turn", who="Ben"),
        MemoryPatch(memory_id="turn", content="I like coffee"),
        rows=(spoken,),
    )
    first, second = driven.rows(MemoryRow)
    assert len({"old", first.embedding_key, second.embedding_key}) == 3
    # The vector of the bare text is not that of `Ben: I like coffee`.
    assert not [write for write in driven.step.writes if isinstance(write, KeepVector)]
    assert first.dedup_key is None
