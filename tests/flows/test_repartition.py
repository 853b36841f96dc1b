"""A memory in another number of partitions: the same in every scope, and it goes on."""

from __future__ import annotations

import asyncio
import base64
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import RequestError
from palimpsest.ops.lifecycle.archive import move_states
from palimpsest.ops.opening import open_log
from palimpsest.ops.operations.provenance import Explain, History
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.replay import rebuild as swapping
from palimpsest.ops.replay.branches import branch_names, branch_statuses, drop_branch
from palimpsest.ops.replay.promotion import promote
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.repartition import (
    repartition,
)
from palimpsest.ops.replay.requests import Promote, Rebuild, ReplayProgress, Watch
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import ForgetCommand, MemoryPatch, ModifyCommand, SessionEndCommand
from palimpsest.schemas.topics import DEAD_LETTERS, MEMORY_HISTORY
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.shard import StoreError
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import outgoing
from tests.branches_by_hand import Lab
from tests.erased_bytes import where
from tests.messages import published, topic_of, turn
from tests.rebuilding import rebuilt
from tests.repartitioning import (
    commands,
    each_shard,
    goes_on,
    lived,
    partitions_of,
    repartitioned,
    scopes_of,
    settings_of,
    states,
)

PLACED = {"memory_archive", "dead_letter_rows", "short_term_rows"}
"""Tables with places in the log, or with what is swept when its partition has a later record. The
comparison of a reshard leaves just these out of them."""
SAID = {"ana": "Ana lives in Oslo", "ben": "Ben likes tea", "cleo": "Cleo keeps bees"}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("past") / "data"
    lived(folder)
    return folder


@pytest.fixture(scope="module")
def three(past: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in three partitions."""
    settings = copy(past, tmp_path_factory.mktemp("three"))
    done = repartitioned(settings, 3)
    assert done.is_equal
    assert done.kept is not None
    assert (partitions_of(settings), len(done.partitions)) == (3, 3)
    return settings.data_dir


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three scopes that said little, in one partition."""
    folder = tmp_path_factory.mktemp("small") / "data"
    goes_on(settings_of(folder), *SAID.items(), first=1)
    return folder


def copy(folder: Path, target: Path) -> Settings:
    shutil.copytree(folder, target / "data")
    return settings_of(target / "data")


def same_but_places(before: dict[str, Any], after: dict[str, Any]) -> None:
    for scope, tables in before.items():
        differing = {table for table in tables if tables[table] != after[scope][table]}
        assert differing <= PLACED, scope


def test_a_long_history_goes_on_in_three_partitions(
    past: Path, three: Path, tmp_path: Path
) -> None:
    """With turns, a correction, an erasure and the end of a session; then all is made anew."""
    scopes = scopes_of(settings_of(past))
    assert len(scopes) > 3
    settings = copy(three, tmp_path)
    same_but_places(states(settings_of(past), scopes), states(settings, scopes))
    facts = "SELECT scope, memory_id FROM memory_rows WHERE type = 'fact' AND NOT is_deleted"
    goes_on(settings, ("ana", "Ana collects zithers"), ("eve", "Eve likes figs"))
    found = each_shard(settings, lambda reader: reader.execute(facts).fetchall())
    ids = {scope: memory_id for rows in found for scope, memory_id in sorted(rows)}
    secret = each_shard(
        settings,
        lambda reader: reader.execute(
            "SELECT memory_id FROM memory_rows WHERE content LIKE '%zithers%'"
        ).fetchall(),
    )
    erased = tuple(row[0] for rows in secret for row in rows)
    commands(
        settings,
        (
            "eve",
            ModifyCommand(
                patches=(MemoryPatch(memory_id=ids["eve"], content="Eve eats"),), reason="so"
            ),
        ),
        ("ana", ForgetCommand(memory_ids=erased, reason="asked", hard=True, force=True)),
        ("ana", SessionEndCommand(session_id="ana-1")),
    )
    for folder in ("log", "shards"):
        assert where(settings.data_dir / folder, "zithers") == []
    contents = each_shard(
        settings,
        lambda reader: reader.execute("SELECT content FROM memory_rows").fetchall(),
    )
    assert ("Eve eats",) in {row for rows in contents for row in rows}
    done = rebuilt(settings)
    assert done.is_equal
    assert all(each.not_compared is None for each in done.partitions)


def test_what_tells_of_places_is_told_anew(past: Path, three: Path) -> None:
    with open_log(settings_of(past), "read") as log:
        ended = log.end_offset(MEMORY_HISTORY.name, 0)
    settings = settings_of(three)
    places = "SELECT partition, topic, log_offset, value_base64 FROM dead_letter_rows"
    found = each_shard(settings, lambda reader: reader.execute(places).fetchall())
    count = 0
    with open_log(settings, "read") as log:
        for number, rows in enumerate(found):
            for partition, topic, offset, value in rows:
                assert partition == number
                if topic == "memory-writes" or offset < 0:
                    continue
                [record] = log.read(topic, partition, offset, 1)
                assert record.offset == offset
                assert record.value == base64.b64decode(value)
                count += 1
            # Whoever follows the history goes on from an offset of the old one.
            [*first] = log.read(MEMORY_HISTORY.name, number, 0, 1)
            assert all(record.offset >= ended for record in first)
            assert log.end_offset(MEMORY_HISTORY.name, number) >= ended
            assert log.position("audit", DEAD_LETTERS.name, number) == log.end_offset(
                DEAD_LETTERS.name, number
            )
    assert count > 3
    holds = each_shard(
        settings,
        lambda reader: reader.execute(
            "SELECT count(*) FROM accepted_turns WHERE scope = '(unreadable)' AND item_id IN"
            " (SELECT unnest(item_ids) FROM dead_letter_rows)"
        ).fetchone(),
    )
    assert sum(row[0] for row in holds) == 1


def test_states_in_files_are_there_in_any_number_of_partitions(small: Path, tmp_path: Path) -> None:
    settings = copy(small, tmp_path)
    facts = "SELECT scope, memory_id FROM memory_rows WHERE type = 'fact'"
    [found] = each_shard(settings, lambda reader: reader.execute(facts).fetchall())
    changes = [
        (scope, MemoryPatch(memory_id=memory_id, content=f"{scope} says something else"))
        for scope, memory_id in found
    ]
    commands(
        settings,
        *((scope, ModifyCommand(patches=(patch,), reason="so")) for scope, patch in changes),
    )
    before = states(settings, [*SAID])
    query = "SELECT scope, memory_id, version, content FROM archived_states ORDER BY ALL"

    def archived() -> list[Any]:
        found = each_shard(settings, lambda reader: reader.execute(query).fetchall())
        return sorted(row for rows in found for row in rows)

    kept = archived()
    assert {scope for scope, *_ in kept} == {*SAID}
    shard = open_shard(settings, 0, shard_options(settings, embedding_model(settings)))
    shard.lock, shard.archiving = StoreLock(), asyncio.Lock()
    moved = asyncio.run(move_states(shard, datetime.now(UTC) + timedelta(days=9_999)))
    shard.close()
    assert moved.states == len(kept)
    for shards in (3, 2):
        done = repartitioned(settings, shards, name=f"to-{shards}")
        assert done.is_equal
        assert (partitions_of(settings), len(done.partitions)) == (shards, shards)
        assert archived() == kept
        same_but_places(before, states(settings, [*SAID]))


def test_what_was_live_is_kept_and_can_come_back(small: Path, tmp_path: Path) -> None:
    settings = copy(small, tmp_path)
    before = states(settings, [*SAID])
    kept = repartitioned(settings, 2).kept
    assert kept is not None
    [branch] = branch_statuses(settings)
    told = [branch[name] for name in ("name", "partitions", "whole", "behind")]
    assert told == [kept, 1, True, 0]
    again = repartitioned(settings, 1, name=kept)
    assert again.is_equal
    assert partitions_of(settings) == 1
    assert states(settings, [*SAID]) == before
    assert again.kept is not None
    goes_on(settings, ("ana", "Ana likes figs"))
    differing = repartitioned(settings, 2, name=again.kept)
    assert (differing.is_equal, differing.kept) == (False, None)
    assert partitions_of(settings) == 1
    assert repartitioned(settings, 2, name=again.kept, anyway=True).kept is not None
    assert partitions_of(settings) == 2


@pytest.mark.soak
def test_what_is_set_may_say_another_number(small: Path, tmp_path: Path) -> None:
    folder = copy(small, tmp_path).data_dir
    repartitioned(settings_of(folder, partitions=2), 2)
    one = settings_of(folder, partitions=1)
    with pytest.raises(LogError, match=r"Set log\.partitions to 2, or .* --shards 1 --swap"):
        open_log(one, "read")
    made = repartitioned(one, 1, swap=False)
    assert (made.is_equal, made.kept) == (True, None)
    with pytest.raises(RequestError, match="is made; put it in the place of what is live"):
        repartitioned(one, 1, swap=False)
    assert repartitioned(one, 1).kept is not None
    assert partitions_of(one) == 1


@pytest.mark.soak
def test_stores_from_before_are_not_taken_for_those_of_the_log(small: Path, tmp_path: Path) -> None:
    settings = copy(small, tmp_path)
    before = states(settings, [*SAID])
    shutil.copytree(settings.data_dir / "shards", tmp_path / "before")
    repartitioned(settings, 1)
    goes_on(settings, ("ana", "Ana likes figs"))
    shutil.rmtree(settings.data_dir / "shards")
    shutil.copytree(tmp_path / "before", settings.data_dir / "shards")
    with pytest.raises(StoreError, match=r"made from another log than .* replay rebuild --swap"):
        goes_on(settings, ("ana", "Ana likes dates"), first=2_000)
    assert rebuilt(settings, swap=True, anyway=True).kept is not None
    goes_on(settings, ("ana", "Ana likes dates"), first=2_000)
    after = states(settings, [*SAID])
    assert after["ben"] == before["ben"]
    assert after["ana"] != before["ana"]


def test_it_goes_on_where_it_was_stopped(small: Path, tmp_path: Path) -> None:
    settings = copy(small, tmp_path)
    before = states(settings, [*SAID])
    stops = 0
    while True:
        asked = iter(range(2 + 8 * stops))
        request = Rebuild(name="two", shards=2, swap=True)
        done = asyncio.run(
            repartition(
                settings, request, Watch(stopping=lambda left=asked: next(left, None) is None)
            )
        )
        if not done.stopped:
            break
        stops += 1
        assert partitions_of(settings) == 1
    assert stops > 2
    assert done.kept is not None
    assert states(settings, [*SAID]) == before


def test_only_what_is_processed_and_closed_is_exchanged(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = copy(small, tmp_path)
    monkeypatch.setattr(swapping, "READERS_SECONDS", 0.1)
    with (
        open_log(settings, "process"),
        pytest.raises(RequestError, match=r"is being processed by .* Stop the worker"),
    ):
        repartitioned(settings, 2)
    with (
        open_log(settings, "publish"),
        pytest.raises(RequestError, match="what it appends would be lost"),
    ):
        repartitioned(settings, 2)
    assert branch_names(settings) == ["other"]
    assert partitions_of(settings) == 1
    assert repartitioned(settings, 2).kept is not None
    with open_log(settings, "publish") as log:
        _publish(log)
    with pytest.raises(RequestError, match=r"wait for normalize.*palimpsest run --once"):
        repartitioned(settings, 1)


@pytest.mark.soak
def test_what_is_said_meanwhile_is_not_lost(small: Path, tmp_path: Path) -> None:
    settings = copy(small, tmp_path)

    def said(progress: ReplayProgress) -> None:
        if progress.phase.startswith("writing memory-history"):
            with open_log(settings, "publish") as log:
                _publish(log)

    request = Rebuild(name="two", shards=2, swap=True)
    with pytest.raises(RequestError, match=r"something came into the log meanwhile"):
        asyncio.run(repartition(settings, request, Watch(said)))
    assert partitions_of(settings) == 1
    goes_on(settings)
    before = states(settings, [*SAID])
    # What was made is of the log as it was: it is made again.
    assert asyncio.run(repartition(settings, request)).kept is not None
    assert partitions_of(settings) == 2
    assert states(settings, [*SAID]) == before
    late = each_shard(
        settings,
        lambda reader: reader.execute(
            "SELECT count(*) FROM memory_rows WHERE content = 'Ana is late'"
        ).fetchone(),
    )
    assert sum(row[0] for row in late) > 0


def _publish(log: EmbeddedLog) -> None:
    message = published(turn("Ana is late", 77), "ana")
    log.append([outgoing(topic_of(message), message)])


@pytest.mark.soak
def test_a_branch_of_the_old_log_is_told_so(tmp_path: Path) -> None:
    texts = ("Ana likes tea", "Ana lives in Oslo")
    made = Lab(tmp_path / "data", lambda text: [text])

    async def before() -> None:
        await made.say(*texts)
        await made.say("Ben likes figs", scope="ben")
        await made.branch(lambda text: [text.replace("tea", "green tea")], *texts)
        await rebuild(made.settings, Rebuild(name="half"), Watch(stopping=lambda: True))

    async def after() -> None:
        with pytest.raises(RequestError, match="was made of another log"):
            await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        with pytest.raises(RequestError, match="is another one"):
            await rebuild(made.settings, Rebuild(name="half"))
        drop_branch(made.settings, "better")
        await made.branch(lambda text: [text.replace("tea", "green tea")], *texts)
        await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        await made.run()
        facts = await made.facts()
        assert [*facts] == ["Ana likes green tea", "Ana lives in Oslo"]
        async with queries(made.settings) as live:
            history: Any = await live.answer(History(facts["Ana likes green tea"]))
            explained: Any = await live.answer(Explain(facts["Ana lives in Oslo"]))
        assert "Ana likes tea" in str(history)
        assert texts[1] in str(explained)
        assert await made.holds()

    asyncio.run(before())
    # As many partitions as before: the number of the log tells that it is another one.
    done = repartitioned(made.settings, 1)
    assert done.is_equal
    asyncio.run(after())
