"""What promote and rollback do in one scope, by the pipeline's own tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from palimpsest.schemas.commands import (
    Command,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    PromoteCommand,
    RecoverCommand,
    RememberCommand,
    RollbackPromotionCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import CacheInvalidation, MemoryChange
from palimpsest.schemas.promotions import (
    GainChange,
    KeepChange,
    LoseChange,
)
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.shard import DATABASE_FILE
from tests.flows.scripted import scripted
from tests.harness import Pipeline
from tests.promotions_by_hand import changes, items, memory_id, parts, promoted, told, turn_ids

AFTER = ["Ana has a cat", "Ana has a dog", "Ana likes green tea", "Ana lives in Oslo"]
AFTER += ["Rex goes to a vet"]
BACK = RollbackPromotionCommand(promotion_id="p1")


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that processed some turns, closed."""
    folder = tmp_path_factory.mktemp("told")
    with told(folder) as made:
        made.run()
    return folder


@pytest.fixture
def pipeline(processed: Path, tmp_path: Path) -> Iterator[Pipeline]:
    with scripted(shutil.copytree(processed, tmp_path / "copy")) as made:
        yield made


def give(pipeline: Pipeline, number: int, *given: Command, **fields: Any) -> Any:
    """The error, or the result, of the last of these commands."""
    pipeline.command(*given, first=number, **fields)
    pipeline.run()
    error, result = pipeline.result(number + len(given) - 1)
    return error or result


def forget(pipeline: Pipeline, content: str, **fields: Any) -> ForgetCommand:
    return ForgetCommand(memory_ids=(memory_id(pipeline, content),), reason="mine", **fields)


def reworded(pipeline: Pipeline, content: str, new: str) -> ModifyCommand:
    patch = MemoryPatch(memory_id=memory_id(pipeline, content), content=new)
    return ModifyCommand(patches=(patch,), reason="mine")


def test_all_is_done_at_once_and_told(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    tea = memory_id(pipeline, "Ana likes tea")
    done = give(pipeline, 1, *parts(given, 3))
    assert {done[name] for name in ("gained", "changed", "lost", "kept")} == {2, 1, 0}
    assert (done["gained"], done["lost"], done["status"]) == (2, 1, "applied")
    assert pipeline.result(1)[1] == {"status": "kept", "part": 0, "parts": 3}
    assert pipeline.memories() == AFTER
    assert memory_id(pipeline, "Ana likes green tea") == tea
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.facts["created"], balance.facts["extracted"]) == (7, 7)
    rows = pipeline.rows("SELECT * FROM memory_rows WHERE memory_id = 'memory-cat'")
    assert (rows[0]["source_id"], rows[0]["extraction_model"]) == ("item-cat", "second")
    assert '"branch": "better"' in rows[0]["metadata"]
    assert pipeline.values("SELECT payload FROM promotion_part_rows") == ["[]", "[]"]
    edges = "SELECT target_id FROM memory_edges WHERE source_id = ? ORDER BY relation_type"
    turns = turn_ids(pipeline)
    assert pipeline.values(edges, "memory-cat") == [turns[1]]
    assert pipeline.values(edges, tea)[-1] == f"{tea}@1"
    told_of = pipeline.rows("SELECT * FROM history_rows WHERE reason LIKE '%better%'")
    assert sorted(row["event"] for row in told_of) == ["created", "created", "deleted", "modified"]
    assert all('"promotion_id": "p1"' in row["metadata"] for row in told_of)
    told_caches = [m.body for m in pipeline.messages(CACHE_INVALIDATIONS)][-1]
    assert isinstance(told_caches, CacheInvalidation)
    assert len(told_caches.memory_ids) == 4
    relations = pipeline.rows("SELECT relation_type FROM relation_rows ORDER BY ALL")
    assert [row["relation_type"] for row in relations] == ["fears", "owns"]
    # Found, by words and by the vectors that the parts' texts were given.
    assert pipeline.values(
        "SELECT count(*) FROM memory_rows JOIN embeddings USING (embedding_key)"
        " WHERE updated_by = 'promotion' AND NOT is_deleted"
    ) == [3]


def test_rolled_back_all_is_as_before(pipeline: Pipeline) -> None:
    before = pipeline.rows("SELECT memory_id, content FROM memories ORDER BY 1")
    give(pipeline, 1, *parts(changes(pipeline)))
    done = give(pipeline, 2, BACK)
    assert done == {
        "promotion_id": "p1",
        "status": "rolled-back",
        "removed": 2,
        "restored": 2,
        "kept": 0,
        "kept_because": {},
    }
    assert pipeline.rows("SELECT memory_id, content FROM memories ORDER BY 1") == before
    assert give(pipeline, 3, BACK) == done
    assert pipeline.balance().holds
    # And once more, on top.
    again = tuple(
        each.model_copy(update={"if_version": 3}) if hasattr(each, "if_version") else each
        for each in changes(pipeline)
    )
    fields = {"promotion_id": "p2", "plan_id": "plan-2", "after": "p1"}
    assert give(pipeline, 4, *parts(again, **fields))["gained"] == 2
    assert pipeline.memories() == AFTER
    assert give(pipeline, 5, RollbackPromotionCommand(promotion_id="p2"))["removed"] == 2
    assert pipeline.rows("SELECT memory_id, content FROM memories ORDER BY 1") == before
    assert pipeline.balance().holds


def test_what_was_changed_since_the_comparison_stays(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    tea, loud = memory_id(pipeline, "Ana likes tea"), memory_id(pipeline, "Rex is loud")
    give(pipeline, 1, reworded(pipeline, "Ana likes tea", "Ana hates tea"))
    give(pipeline, 2, forget(pipeline, "Rex is loud"))
    done = give(pipeline, 3, *parts(given))
    # The turn that said "Rex is loud", and no more, is hidden: "Rex goes to a vet" is of it, too.
    assert done["kept_because"] == {"changed-meanwhile": 2, "source-forgotten": 1}
    assert items(pipeline)[tea] == items(pipeline)[loud] == ("kept", "changed-meanwhile", None)
    assert "Ana hates tea" in pipeline.memories()
    assert "Rex is loud" not in pipeline.memories()


def test_nothing_is_drawn_from_a_forgotten_turn(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    turns = turn_ids(pipeline)
    give(pipeline, 1, ForgetCommand(memory_ids=(turns[1],), reason="mine"))
    give(pipeline, 2, ForgetCommand(memory_ids=(turns[0],), reason="mine", hard=True))
    done = give(pipeline, 3, *parts(given))
    assert done["kept_because"] == {"source-forgotten": 2}
    assert (done["gained"], done["changed"]) == (1, 0)
    assert "Ana has a cat" not in pipeline.memories()


def test_what_is_there_already_is_not_added_again(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    give(pipeline, 1, RememberCommand(content="Ana has a CAT"))
    give(pipeline, 2, RememberCommand(content="Ana likes green tea"))
    done = give(pipeline, 3, *parts(given))
    assert done["kept_because"] == {"says-the-same": 2}
    assert pipeline.balance().holds
    same = pipeline.rows("SELECT counterpart FROM promotion_item_rows WHERE memory_id LIKE '%cat'")
    assert same[0]["counterpart"] == memory_id(pipeline, "Ana has a CAT")


def test_an_id_that_is_taken_or_forgotten(pipeline: Pipeline) -> None:
    dog, oslo = memory_id(pipeline, "Ana has a dog"), memory_id(pipeline, "Ana lives in Oslo")
    give(pipeline, 1, forget(pipeline, "Ana lives in Oslo"))
    given = (
        GainChange(memory=promoted(pipeline, "a", "Ana has a horse", memory_id=dog)),
        GainChange(memory=promoted(pipeline, "b", "Ana is in Oslo", memory_id=oslo)),
    )
    done = give(pipeline, 2, *parts(given))
    assert (done["gained"], done["kept_because"]) == (1, {"suppressed": 1})
    assert {"Ana has a dog", "Ana has a horse"} <= {*pipeline.memories()}
    assert memory_id(pipeline, "Ana has a dog") == dog


def test_a_promotion_that_came_between_is_a_conflict(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    assert give(pipeline, 1, *parts(given))["status"] == "applied"
    other = parts(given, promotion_id="p2", plan_id="plan-2")
    assert give(pipeline, 2, *other).startswith("version_conflict: the promotion p1 came between")
    assert give(pipeline, 3, *parts(given, plan_id="plan-3")).startswith("version_conflict")
    # The same again is what was done before.
    assert give(pipeline, 4, *parts(given))["gained"] == 2
    assert pipeline.memories() == AFTER


def test_a_missing_part_is_told_and_nothing_is_changed(pipeline: Pipeline) -> None:
    before = pipeline.memories()
    first, _, last = parts(changes(pipeline), 3)
    assert give(pipeline, 1, first, last).startswith("not_found: of the 3 parts")
    assert pipeline.memories() == before
    assert give(pipeline, 5, *parts(changes(pipeline), 3))["gained"] == 2


@pytest.mark.parametrize("given", [PromoteCommand, RollbackPromotionCommand])
def test_machines_and_frozen_memory_promote_nothing(pipeline: Pipeline, given: type) -> None:
    command = BACK
    if given is PromoteCommand:
        [command] = parts(changes(pipeline))
    bot = Actor(id="bot", type="agent")
    assert give(pipeline, 1, command, actor=bot).startswith("forbidden:")
    give(pipeline, 2, SetFlagsCommand(mutations_frozen=True))
    assert give(pipeline, 3, command).startswith("frozen:")


def test_a_promotion_of_another_scope_is_none_of_this_one(pipeline: Pipeline) -> None:
    given = changes(pipeline)
    give(pipeline, 1, *parts(given))
    pipeline.command(BACK, *parts(given), first=1, scope="ben")
    pipeline.run()
    assert pipeline.result(1, "ben")[0].startswith("not_found: no promotion p1 in this scope")
    # What it names is not there: nothing is changed, nothing is added.
    done = pipeline.result(2, "ben")[1]
    assert done["kept_because"] == {"changed-meanwhile": 2, "source-forgotten": 2}
    assert pipeline.memories() == AFTER
    assert pipeline.memories("ben") == []


def test_what_people_did_since_stays_when_it_is_rolled_back(pipeline: Pipeline) -> None:
    give(pipeline, 1, *parts(changes(pipeline)))
    give(pipeline, 2, reworded(pipeline, "Ana has a cat", "Ana has two cats"))
    give(pipeline, 3, forget(pipeline, "Rex goes to a vet"))
    give(pipeline, 4, reworded(pipeline, "Ana likes green tea", "Ana likes mint tea"))
    loud = memory_id(pipeline, "Rex is loud")
    give(pipeline, 5, RecoverCommand(memory_id=loud))
    pipeline.say("Ana moved to Bergen", first=9)
    done = give(pipeline, 6, BACK)
    assert done["kept_because"] == {"changed-since": 3, "forgotten-since": 1}
    assert (done["removed"], done["restored"]) == (0, 0)
    kept = {"Ana has two cats", "Ana likes mint tea", "Rex is loud", "Ana moved to Bergen"}
    assert kept <= {*pipeline.memories()}
    assert items(pipeline)["memory-vet"] == ("gained", "", "forgotten-since")


def test_pins_and_words_come_back_and_what_is_said_elsewhere_does_not(pipeline: Pipeline) -> None:
    loud = memory_id(pipeline, "Rex is loud")
    pin = MemoryPatch(memory_id=loud, pinned=True, tags=("dog",))
    give(pipeline, 1, ModifyCommand(patches=(pin,), reason="mine"))
    tea = memory_id(pipeline, "Ana likes tea")
    given = tuple(
        LoseChange(memory_id=loud, if_version=2) if isinstance(each, LoseChange) else each
        for each in changes(pipeline)
    )
    give(pipeline, 2, *parts(given))
    give(pipeline, 3, RememberCommand(content="Ana likes tea"))
    done = give(pipeline, 4, BACK)
    assert done["kept_because"] == {"says-the-same": 1}
    [row] = pipeline.rows("SELECT pinned, tags, version FROM memories WHERE memory_id = ?", loud)
    assert (row["pinned"], row["tags"], row["version"]) == (True, ["dog"], 4)
    assert items(pipeline)[tea] == ("changed", "", "says-the-same")


def test_erased_texts_do_not_come_back(pipeline: Pipeline) -> None:
    _, last = parts(changes(pipeline), 2)
    tea = memory_id(pipeline, "Ana likes tea")
    give(pipeline, 1, *parts(changes(pipeline)))
    waiting = {"promotion_id": "p2", "plan_id": "plan-2", "after": "p1", "part": 0}
    assert give(pipeline, 3, last.model_copy(update=waiting))["status"] == "kept"
    assert "a cat" in pipeline.values("SELECT payload FROM promotion_part_rows")[0]
    give(pipeline, 4, ForgetCommand(memory_ids=(tea, "memory-cat"), reason="mine", hard=True))
    assert "a cat" not in pipeline.values("SELECT payload FROM promotion_part_rows")[0]
    done = give(pipeline, 5, BACK)
    assert done["kept_because"] == {"erased": 2}
    assert "tea" not in " ".join(pipeline.memories())


def test_quotes_are_taken_as_they_are(pipeline: Pipeline) -> None:
    text = 'Ana said "it\'s [bold]mine"; DROP TABLE memory_rows; -- „ja“ 🗝'
    give(pipeline, 1, *parts((GainChange(memory=promoted(pipeline, "q'1", text)),)))
    assert text in pipeline.memories()
    assert give(pipeline, 2, BACK)["removed"] == 1
    assert text not in pipeline.memories()


def test_nothing_but_what_is_kept_is_an_account(pipeline: Pipeline) -> None:
    before = pipeline.memories()
    kept = KeepChange(memory_id="m1", why="curated", counterpart="b1")
    assert give(pipeline, 1, *parts((kept,)))["kept_because"] == {"curated": 1}
    assert pipeline.memories() == before
    assert give(pipeline, 2, *parts((), promotion_id="p2", plan_id="x", after="p1"))["kept"] == 0


def test_many_changes_are_told_in_records_that_a_log_takes(tmp_path: Path) -> None:
    with told(tmp_path) as pipeline:
        pipeline.max_record_bytes = 300_000
        pipeline.run()
        words = "lorem ipsum dolor sit amet " * 40
        given = tuple(
            GainChange(memory=promoted(pipeline, f"m{number}", f"{number} {words}"))
            for number in range(300)
        )
        done = give(pipeline, 1, *parts(given, 6))
        assert done["gained"] == 300
        assert pipeline.dead_letters() == []
        records = pipeline.records(MEMORY_CHANGES)
        assert max(len(record.value or b"") for record in records) < 300_000
        told_of = [m.body for m in pipeline.messages(MEMORY_CHANGES)]
        outcomes = [o for body in told_of if isinstance(body, MemoryChange) for o in body.outcomes]
        assert (
            sum(outcome.event == "created" and is_promoted(outcome) for outcome in outcomes) == 300
        )
        assert give(pipeline, 10, BACK)["removed"] == 300


def is_promoted(outcome: Any) -> bool:
    return str(outcome.memory_id).startswith("memory-m")


def test_a_store_of_before_there_were_promotions(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    names = [each.name for each in MIGRATIONS]
    before = names[: next(n for n, name in enumerate(names) if name.endswith("-promotions"))]
    with duckdb.connect(str(folder / DATABASE_FILE)) as connection:
        migrate(connection, before)
    with told(tmp_path) as pipeline:
        pipeline.run()
        assert give(pipeline, 1, *parts(changes(pipeline), 2))["gained"] == 2
        assert pipeline.memories() == AFTER
