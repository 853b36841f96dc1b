"""Files of a store cut at random places, or gone: what is said is right, or says what to do."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from palimpsest.ops.cli.doctor import examine
from palimpsest.ops.errors import RequestError
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.database.damage import StoreDamaged
from palimpsest.stores.shard import StoreError
from tests.rebuilding import live_on, rebuilt, settings_of, state_of

TRIES = 12
EVERYTHING = "SELECT sha256(string_agg(m::VARCHAR, '' ORDER BY memory_id)) FROM memories m"
TOLD = "palimpsest replay rebuild --swap"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    live_on(folder, 2)
    synced(settings_of(folder))
    return folder


def synced(settings: Settings) -> int:
    """Bring LanceDB's copy up to date, from whatever it is; how many memories have a vector."""
    shard = open_shard(settings, 0, shard_options(settings, embedding_model(settings)))
    try:
        shard.vector_table().sync()
        with shard.reading() as reader:
            [(count,)] = reader.execute("SELECT count(*) FROM embeddings").fetchall()
        return int(count)
    finally:
        shard.close()


def asked(settings: Settings) -> object:
    async def asking() -> object:
        async with queries(settings) as found:
            return (await found.table(SqlRequest(EVERYTHING))).to_pylist()

    return asyncio.run(asking())


def store_files(folder: Path) -> list[Path]:
    """The database first."""
    shard = folder / "shards" / "0"
    copies = sorted(each for each in (shard / "vectors.lance").rglob("*") if each.is_file())
    return [shard / "memory.duckdb", *copies]


def test_a_store_cut_anywhere_says_what_is_right_or_what_to_do(sound: Path, tmp_path: Path) -> None:
    right = asked(settings_of(sound))
    chance = random.Random(7)
    refused = 0
    for number in range(TRIES):
        folder = tmp_path / str(number)
        shutil.copytree(sound, folder)
        database, *copies = store_files(folder)
        file = chance.choice(copies) if number % 4 == 0 else database
        os.truncate(file, chance.randrange(file.stat().st_size or 1))
        why = ""
        try:
            assert asked(settings_of(folder)) == right, file
            synced(settings_of(folder))
        except (StoreError, StoreDamaged, RequestError) as error:
            why = str(error)
        assert not why or TOLD in why, (file, why)
        refused += bool(why)
        shutil.rmtree(folder)
    assert TRIES / 2 < refused < TRIES


@pytest.mark.parametrize(
    "damage", ["cut", "removed", pytest.param("emptied", marks=pytest.mark.soak)]
)
def test_a_store_that_is_lost_is_made_again_and_until_then_refused(
    sound: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(sound, folder)
    settings = settings_of(folder)
    state, right = state_of(settings), asked(settings)
    if damage == "removed":
        rebuilt(settings)  # of before it was lost: it goes on from there
    file = folder / "shards" / "0" / "memory.duckdb"
    if damage == "cut":
        os.truncate(file, file.stat().st_size // 3)
    elif damage == "removed":
        shutil.rmtree(folder / "shards")
    else:
        file.unlink()
    [stores] = [each for each in asyncio.run(examine(settings)) if each.check == "stores"]
    assert not stores.ok
    assert TOLD in stores.advice
    with pytest.raises(StoreError, match=TOLD):
        asked(settings)
    done = rebuilt(settings, swap=True)
    assert done.kept is not None
    assert done.partitions[0].not_compared is not None
    assert asked(settings) == right
    assert state_of(settings) == state


def test_a_store_of_a_newer_program_is_refused_with_what_to_do(sound: Path, tmp_path: Path) -> None:
    import duckdb

    folder = tmp_path / "data"
    shutil.copytree(sound, folder)
    with duckdb.connect(str(folder / "shards" / "0" / "memory.duckdb")) as connection:
        connection.execute("INSERT INTO internal.migrations VALUES ('9999-of-a-later-day', 99)")
    settings = settings_of(folder)
    with pytest.raises(StoreError, match=TOLD):
        asked(settings)
    assert rebuilt(settings, swap=True).kept is not None
    asked(settings)
