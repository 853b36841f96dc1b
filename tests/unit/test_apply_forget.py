"""apply-writes on commands: forgetting and taking back, protection, flags, refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ConfirmCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import MemoryChange
from palimpsest.schemas.rows.memories import ArchiveRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.streams.settings import Flags
from palimpsest.streams.store_port import Source, Statement
from tests.messages import BEGIN
from tests.unit.by_hand import Driven, Store, memory
from tests.unit.commands_by_hand import AGENT, HUMAN, TEA, error, execute, result

# --- forget and recover -----------------------------------------------------------------------


def forget(*ids: str, rows: tuple[MemoryRow, ...], actor: Actor = HUMAN, **fields: Any) -> Driven:
    command = ForgetCommand(memory_ids=ids, reason="wrong", **fields)
    return execute(command, Store.of(*rows), actor)


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


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"source_type": "self-taught"}, "forgotten"),
        ({}, "forbidden"),
        ({"source_type": "self-taught", "pinned": True}, "forbidden"),
        ({"source_type": "self-taught", "confirmed": True}, "forbidden"),
    ],
)
def test_an_agent_by_itself_forgets_only_what_agents_wrote_so(
    fields: dict[str, Any], status: str
) -> None:
    command = ForgetCommand(memory_ids=("tea",), reason="wrong", self_taught=True)
    stored = Store.of(memory("tea", TEA.content, **fields))
    for actor in (AGENT, HUMAN):
        assert error(execute(command, stored, actor)) == "forbidden"
        allowed = execute(command, stored, actor, flags=Flags(self_teaching_enabled=True))
        assert [each["status"] for each in result(allowed)] == [status]


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
        driven = execute(command, Store.of(row), actor=machine)
        [answer] = result(driven)
        assert answer["status"] == ("forbidden"), patch
        assert driven.rows(MemoryRow) == []
        assert result(execute(command, Store.of(row)))[0]["status"] == "updated"
    for force in (False, True):
        [answer] = result(forget("tea", rows=(row,), actor=machine, force=force))
        assert answer["status"] == "forbidden"
    # What does not touch what it says is done.
    patch = MemoryPatch(memory_id="tea", tags=("drinks",), importance=0.2)
    [answer] = result(
        execute(ModifyCommand(patches=(patch,), reason="so"), Store.of(row), actor=machine)
    )
    assert answer["status"] == "updated"


def test_no_machine_unpins_first_and_then_forgets() -> None:
    row = PROTECTED_TEA[0]
    unpin = ModifyCommand(patches=(MemoryPatch(memory_id="tea", pinned=False),) * 2, reason="so")
    driven = execute(unpin, Store.of(row), actor=AGENT)
    assert [answer["status"] for answer in result(driven)] == ["forbidden"] * 2


def test_a_person_forgets_what_a_person_confirmed_without_force() -> None:
    [answer] = result(forget("tea", rows=(PROTECTED_TEA[1],), actor=HUMAN))
    assert answer["status"] == "forgotten"


def test_a_machine_s_confirmation_protects_nothing() -> None:
    driven = execute(ConfirmCommand(memory_id="tea"), Store.of(TEA), actor=AGENT)
    [row] = driven.rows(MemoryRow)
    assert (row.confidence, row.decay_rate) == (1.0, TEA.decay_rate)
    assert (result(driven)["status"], result(driven)["protected"]) == ("confirmed", False)
    # Nor does it take a person's away.
    driven = execute(ConfirmCommand(memory_id="tea"), Store.of(PROTECTED_TEA[1]), actor=AGENT)
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
        driven = execute(recover, Store.of(deleted_tea(updated_by=by)), actor=actor)
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


SAID = memory("turn", "I like green tea. My bike is new.", type="episodic", who="Ana")
SAID_TEA = Source(SAID, SAID.content, "{}", False, (Statement("tea", TEA.content, False),))


@pytest.mark.parametrize(
    ("hides", "texts"),
    [(True, [TEA.content, "[forgotten] My bike is new."]), (None, [TEA.content])],
)
def test_a_forgotten_memory_is_hidden_where_it_was_stated_unless_the_record_is_older(
    hides: bool | None, texts: list[str]
) -> None:
    """A store that an earlier release has left shows such a turn as it is; so must its rebuild."""
    store = Store.of(TEA, SAID, sources={"turn": SAID_TEA})
    driven = execute(ForgetCommand(memory_ids=("tea",), reason="wrong"), store, hides=hides)
    assert [row.content for row in driven.rows(MemoryRow)] == texts
    assert ("hidden_in" in result(driven)[0]) == bool(hides)


def deleted_tea(**fields: Any) -> MemoryRow:
    return memory("tea", TEA.content, is_deleted=True, deleted_at=BEGIN, version=4, **fields)


def test_recover_takes_back() -> None:
    driven = execute(RecoverCommand(memory_id="tea"), Store.of(deleted_tea()))
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
    assert error(execute(command, Store.of(*rows), recorded_at=recorded)) == code


def test_recover_on_the_last_day() -> None:
    driven = execute(
        RecoverCommand(memory_id="tea"),
        Store.of(deleted_tea()),
        recorded_at=BEGIN + timedelta(days=30),
    )
    assert result(driven)["status"] == "recovered"


def test_confirm_protects() -> None:
    driven = execute(ConfirmCommand(memory_id="tea"), Store.of(TEA))
    [row] = driven.rows(MemoryRow)
    assert (row.decay_rate, row.confidence, row.version) == (0.0, 1.0, 4)


# --- flags and the rest -----------------------------------------------------------------------


def test_flags_change_only_where_told() -> None:
    before = FlagsRow(scope="ana", shadow_mode=True, enabled=False)
    driven = execute(
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
    assert error(execute(command, Store.of(TEA), flags=FROZEN)) == "frozen"


def test_while_frozen_flags_can_be_set() -> None:
    driven = execute(SetFlagsCommand(mutations_frozen=False), flags=FROZEN)
    assert result(driven)["status"] == "set"


def test_an_invalid_command_only_leaves_its_result() -> None:
    driven = execute(None, error="invalid_request: content is empty")
    assert error(driven) == "invalid_request"


def test_an_alias_goes_to_the_graph() -> None:
    driven = execute(AliasCommand(name="PostgreSQL", alias="Postgres"))
    [change] = driven.emitted(MEMORY_CHANGES)
    assert isinstance(change, MemoryChange)
    assert change.graph is not None
    assert change.graph.aliases == (("PostgreSQL", "Postgres"),)
    # graph-persist answers it: what comes of it depends on the graph.
    assert change.graph.command_id == "c1"
    assert result(driven) is None


def test_the_actor_is_on_record() -> None:
    [outcome] = execute(RememberCommand(content="Ana likes tea"), actor=AGENT).outcomes()
    assert (outcome.changed_by, outcome.actor_type, outcome.item_id) == ("bot", "agent", "c1")
