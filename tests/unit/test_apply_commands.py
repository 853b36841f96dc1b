"""apply-writes on commands: what people and agents ask for, and every way it is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from schemas.identity import command_memory_id
from schemas.messages import (
    Actor,
    AliasCommand,
    Command,
    CommandIntent,
    ConfirmCommand,
    ForgetCommand,
    MemoryChange,
    MemoryPatch,
    MemoryWrite,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
    Structure,
    StructuredAttribute,
    StructuredEntity,
    Triple,
)
from schemas.rows import ArchiveRow, CommandRow, FlagsRow, MemoryRow
from schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from streams.apply_commands import inferred_type, parse_prefix
from streams.apply_writes import apply_writes_stage
from streams.settings import Flags
from streams.store_port import KeepVector
from tests.harness import BEGIN, CAREFUL, pipeline_settings
from tests.unit.by_hand import Driven, Store, context, drive, memory, write_message

AGENT = Actor(id="bot", type="agent")
HUMAN = Actor(id="ana", type="human")
TEA = memory("tea", "Ana likes green tea", version=3)
CAKE = memory("cake", "Ana bakes cake")


def carry_out(
    command: Command | None,
    store: Store | None = None,
    actor: Actor = HUMAN,
    flags: Flags = CAREFUL,
    error: str | None = None,
    **fields: Any,
) -> Driven:
    stage = apply_writes_stage(pipeline_settings(flags))
    intent = CommandIntent(command=command, actor=actor, error=error)
    message = write_message(
        MemoryWrite(write=intent), causation_id="c1", correlation_id="trace", **fields
    )
    return drive(stage.process(message, context()), store)


def result(driven: Driven) -> Any:
    [row] = driven.rows(CommandRow)
    assert row.error is None
    return json.loads(row.result)


def error(driven: Driven) -> str:
    [row] = driven.rows(CommandRow)
    assert row.error is not None
    assert driven.rows(MemoryRow) == []
    assert driven.step.emits == ()
    return str(row.error).partition(":")[0]


# --- remember ---------------------------------------------------------------------------------


def test_remember() -> None:
    driven = carry_out(
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
    first = carry_out(RememberCommand(content="one thing"))
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
    [row] = carry_out(RememberCommand(content="critical: [a]: Ana is allergic")).rows(MemoryRow)
    assert (row.pinned, row.importance, row.tags, row.content) == (
        True,
        1.0,
        ("a",),
        "Ana is allergic",
    )
    fields = {"importance": 0.2, "tags": ("b",), "type": "rule", "who": "B"}
    given = RememberCommand.model_validate({"content": "[a]: x is y", **fields})
    [row] = carry_out(given).rows(MemoryRow)
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
        RememberCommand(content="critical: Ana likes green tea"),
        RememberCommand(content="something else", source_id="src"),
    ],
)
def test_the_same_content_or_source_is_there_already(command: RememberCommand) -> None:
    known = memory("tea", "Ana likes green tea", version=3, source_id="src")
    driven = carry_out(command, Store.of(known))
    assert result(driven) == {"id": "tea", "deduped": True, "version": 3}
    assert driven.rows(MemoryRow) == []
    assert driven.outcomes()[0].event == "deduped"


def test_structure_goes_to_the_graph_with_the_memory() -> None:
    structure = Structure(
        entities=(StructuredEntity(name="Ana", aliases=("Annie",)),),
        attributes=(StructuredAttribute(entity="Ana", aspect="food"),),
        relations=(Triple(source="Ana", relationship="likes", target="tea"),),
    )
    driven = carry_out(RememberCommand(content="Ana likes tea", structured=structure))
    [change] = driven.emitted(MEMORY_CHANGES)
    assert isinstance(change, MemoryChange)
    assert change.graph is not None
    assert change.graph.memory_ids == (command_memory_id("ana", "c1"),)
    assert change.graph.entities == structure.entities
    assert change.graph.attributes == structure.attributes
    assert change.graph.triples == structure.relations


# --- modify -----------------------------------------------------------------------------------


def modify(*patches: MemoryPatch, rows: tuple[MemoryRow, ...] = (TEA, CAKE)) -> Driven:
    return carry_out(ModifyCommand(patches=patches, reason="better"), Store.of(*rows))


def test_new_content_archives_the_old() -> None:
    driven = modify(MemoryPatch(memory_id="tea", content="Ana likes black tea", if_version=3))
    assert result(driven) == [{"id": "tea", "status": "updated", "version": 4}]
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


# --- forget and recover -----------------------------------------------------------------------


def forget(*ids: str, rows: tuple[MemoryRow, ...], actor: Actor = HUMAN, **fields: Any) -> Driven:
    command = ForgetCommand(memory_ids=ids, reason="wrong", **fields)
    return carry_out(command, Store.of(*rows), actor)


def test_forget_archives_and_leaves_a_tombstone() -> None:
    driven = forget("tea", rows=(TEA,))
    assert result(driven) == [{"id": "tea", "status": "forgotten", "version": 4}]
    [row] = driven.rows(MemoryRow)
    assert (row.is_deleted, row.deleted_at, row.dedup_key, row.content) == (
        True,
        BEGIN,
        None,
        TEA.content,
    )
    assert [old.version for old in driven.rows(ArchiveRow)] == [3]
    assert driven.ends() == [("deleted", "wrong")]


@pytest.mark.parametrize(
    ("actor", "force", "status"),
    [
        (HUMAN, False, "pinned"),
        (AGENT, False, "forbidden"),
        (HUMAN, True, "forgotten"),
        (AGENT, True, "forbidden"),
        (Actor(type="pipeline"), True, "forbidden"),
        (Actor(type="system"), True, "forbidden"),
    ],
)
def test_what_is_pinned_needs_a_person_s_force(actor: Actor, force: bool, status: str) -> None:
    pinned = memory("tea", TEA.content, pinned=True)
    [answer] = result(forget("tea", rows=(pinned,), actor=actor, force=force))
    assert answer["status"] == status


MACHINE_ACTORS = [Actor(id=kind, type=kind) for kind in ("agent", "pipeline", "system")]
PROTECTED_TEA = [
    memory("tea", TEA.content, pinned=True, version=3),
    memory("tea", TEA.content, confirmed=True, version=3),
]


@pytest.mark.parametrize("row", PROTECTED_TEA, ids=["pinned", "confirmed"])
@pytest.mark.parametrize("machine", MACHINE_ACTORS, ids=lambda actor: actor.type)
def test_no_machine_changes_or_forgets_what_is_protected(machine: Actor, row: MemoryRow) -> None:
    for patch in (
        {"content": "Ana likes black tea"},
        {"type": "preference"},
        {"pinned": not row.pinned},
        {"who": "Ben"},
        {"pinned": False, "content": "Ana likes no tea", "tags": ("a",)},
    ):
        command = ModifyCommand(patches=(MemoryPatch(memory_id="tea", **patch),), reason="so")
        driven = carry_out(command, Store.of(row), actor=machine)
        [answer] = result(driven)
        assert answer["status"] == ("forbidden"), patch
        assert driven.rows(MemoryRow) == []
        assert result(carry_out(command, Store.of(row)))[0]["status"] == "updated"
    for force in (False, True):
        [answer] = result(forget("tea", rows=(row,), actor=machine, force=force))
        assert answer["status"] == "forbidden"
    # What does not touch what it says is done.
    patch = MemoryPatch(memory_id="tea", tags=("drinks",), importance=0.2)
    [answer] = result(
        carry_out(ModifyCommand(patches=(patch,), reason="so"), Store.of(row), actor=machine)
    )
    assert answer["status"] == "updated"


def test_no_machine_unpins_first_and_then_forgets() -> None:
    row = PROTECTED_TEA[0]
    unpin = ModifyCommand(patches=(MemoryPatch(memory_id="tea", pinned=False),) * 2, reason="so")
    driven = carry_out(unpin, Store.of(row), actor=AGENT)
    assert [answer["status"] for answer in result(driven)] == ["forbidden"] * 2


def test_a_person_forgets_what_a_person_confirmed_without_force() -> None:
    [answer] = result(forget("tea", rows=(PROTECTED_TEA[1],), actor=HUMAN))
    assert answer["status"] == "forgotten"


def test_a_machine_s_confirmation_protects_nothing() -> None:
    driven = carry_out(ConfirmCommand(memory_id="tea"), Store.of(TEA), actor=AGENT)
    [row] = driven.rows(MemoryRow)
    assert (row.confidence, row.decay_rate) == (1.0, TEA.decay_rate)
    assert (result(driven)["status"], result(driven)["protected"]) == ("confirmed", False)
    # Nor does it take a person's away.
    driven = carry_out(ConfirmCommand(memory_id="tea"), Store.of(PROTECTED_TEA[1]), actor=AGENT)
    assert (driven.rows(MemoryRow)[0].decay_rate, result(driven)["protected"]) == (0.0, True)


def test_a_machine_takes_back_only_what_it_or_the_pipeline_forgot() -> None:
    recover = RecoverCommand(memory_id="tea")
    for by, actor, allowed in (
        ("ana", AGENT, False),
        ("bot", AGENT, True),
        ("pipeline", AGENT, True),
        ("bot", HUMAN, True),
        ("ana", HUMAN, True),
    ):
        driven = carry_out(recover, Store.of(deleted_tea(updated_by=by)), actor=actor)
        if allowed:
            assert result(driven)["status"] == "recovered"
        else:
            assert error(driven) == "forbidden"


def test_forget_tells_of_each() -> None:
    gone = memory("gone", "Ana was here", is_deleted=True)
    driven = forget("nobody", "gone", "tea", "tea", rows=(gone, TEA))
    assert [r["status"] for r in result(driven)] == ["not_found", "deleted", "forgotten", "deleted"]
    assert result(forget("tea", rows=(TEA,), if_version=2))[0] == {
        "id": "tea",
        "status": "version_conflict",
        "version": 3,
    }


def deleted_tea(**fields: Any) -> MemoryRow:
    return memory("tea", TEA.content, is_deleted=True, deleted_at=BEGIN, version=4, **fields)


def test_recover_takes_back() -> None:
    driven = carry_out(RecoverCommand(memory_id="tea"), Store.of(deleted_tea()))
    [row] = driven.rows(MemoryRow)
    assert (row.is_deleted, row.deleted_at, row.version, row.dedup_key) == (
        False,
        None,
        5,
        TEA.dedup_key,
    )
    assert result(driven) == {"id": "tea", "status": "recovered", "version": 5}
    assert driven.ends() == [("recovered", "recovered")]


@pytest.mark.parametrize(
    ("command", "rows", "days", "code"),
    [
        (RecoverCommand(memory_id="tea"), (), 0, "not_found"),
        (RecoverCommand(memory_id="tea"), (TEA,), 0, "not_deleted"),
        (RecoverCommand(memory_id="tea", if_version=3), (deleted_tea(),), 0, "version_conflict"),
        (RecoverCommand(memory_id="tea"), (deleted_tea(),), 31, "retention_expired"),
        (
            RecoverCommand(memory_id="tea"),
            (deleted_tea(), memory("twin", "ANA likes green tea")),
            0,
            "duplicate_content_hash",
        ),
        (RecoverCommand(memory_id="tea"), (deleted_tea(scope="ben"),), 0, "not_found"),
        (ConfirmCommand(memory_id="tea"), (), 0, "not_found"),
        (ConfirmCommand(memory_id="tea"), (deleted_tea(),), 0, "not_found"),
        (ConfirmCommand(memory_id="tea"), (memory("tea", "x is y", scope="ben"),), 0, "not_found"),
    ],
)
def test_refusals(command: Command, rows: tuple[MemoryRow, ...], days: int, code: str) -> None:
    recorded = BEGIN + timedelta(days=days)
    assert error(carry_out(command, Store.of(*rows), recorded_at=recorded)) == code


def test_recover_on_the_last_day() -> None:
    driven = carry_out(
        RecoverCommand(memory_id="tea"),
        Store.of(deleted_tea()),
        recorded_at=BEGIN + timedelta(days=30),
    )
    assert result(driven)["status"] == "recovered"


def test_confirm_protects() -> None:
    driven = carry_out(ConfirmCommand(memory_id="tea"), Store.of(TEA))
    [row] = driven.rows(MemoryRow)
    assert (row.decay_rate, row.confidence, row.version) == (0.0, 1.0, 4)


# --- flags and the rest -----------------------------------------------------------------------


def test_flags_change_only_where_told() -> None:
    before = FlagsRow(scope="ana", shadow_mode=True, enabled=False)
    driven = carry_out(
        SetFlagsCommand(shadow_mode=False, allow_update_delete=True), Store(flags=before)
    )
    assert driven.rows(FlagsRow) == [
        FlagsRow(scope="ana", shadow_mode=False, enabled=False, allow_update_delete=True)
    ]
    assert driven.outcomes()[0].event == "flags"


FROZEN = Flags(mutations_frozen=True)


@pytest.mark.parametrize(
    "command",
    [
        RememberCommand(content="Ana likes tea"),
        ModifyCommand(patches=(MemoryPatch(memory_id="tea", pinned=True),), reason="r"),
        ForgetCommand(memory_ids=("tea",), reason="r"),
        RecoverCommand(memory_id="tea"),
        ConfirmCommand(memory_id="tea"),
        AliasCommand(name="Ana", alias="Annie"),
    ],
)
def test_while_frozen_nothing_is_changed(command: Command) -> None:
    assert error(carry_out(command, Store.of(TEA), flags=FROZEN)) == "frozen"


def test_while_frozen_flags_can_be_set() -> None:
    driven = carry_out(SetFlagsCommand(mutations_frozen=False), flags=FROZEN)
    assert result(driven)["status"] == "set"


def test_an_invalid_command_only_leaves_its_result() -> None:
    driven = carry_out(None, error="invalid_request: content is empty")
    assert error(driven) == "invalid_request"


def test_an_alias_goes_to_the_graph() -> None:
    driven = carry_out(AliasCommand(name="PostgreSQL", alias="Postgres"))
    [change] = driven.emitted(MEMORY_CHANGES)
    assert isinstance(change, MemoryChange)
    assert change.graph is not None
    assert change.graph.aliases == (("PostgreSQL", "Postgres"),)
    # graph-persist answers it: what comes of it depends on the graph.
    assert change.graph.command_id == "c1"
    assert result(driven) is None


def test_the_actor_is_on_record() -> None:
    [outcome] = carry_out(RememberCommand(content="Ana likes tea"), actor=AGENT).outcomes()
    assert (outcome.changed_by, outcome.actor_type, outcome.item_id) == ("bot", "agent", "c1")
