"""Data folders that earlier releases left: what is said of them is right, and they can be gone on
with. How they were made: `tests/data/README.md`."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import pytest

from palimpsest.ops.cli.doctor import examine
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.parts import shard_folder
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.shard import DATABASE_FILE, StoreError
from palimpsest.streams.models.settings import EmbeddingSettings
from palimpsest.streams.settings import PipelineSettings
from tests.erased_bytes import where
from tests.flows.program import Program
from tests.rebuilding import rebuilt
from tests.replayed import Live
from tests.unit.small_store import empty_store

DATA = Path(__file__).parents[1] / "data"
RELEASES = ("first-release", "release-0011")
SECRET = "a badger on a bicycle"
FACTS = {
    "Mara keeps bees on the roof",
    "Jonas moved to Bruges last week (week of 2026-02-23).",
    "Mara doesn't drink coffee every morning anymore.",
    "Jonas plays the viola every Tuesday",
    "Mara is allergic to walnuts.",
    "Jonas works at a bakery near the canal.",
    "Mara lives in Ghent with Mara's brother Jonas.",
}
OF = {"first-release": FACTS | {f"The door code of Jonas's cellar is {SECRET}."}}
"""What was remembered where not all of FACTS."""
COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default, comment"
    " FROM duckdb_columns() WHERE NOT internal ORDER BY schema_name, table_name, column_index"
)
KEYS = (
    "SELECT table_name, constraint_type, constraint_column_names FROM duckdb_constraints()"
    " WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY ALL"
)
LATE = "Jonas bought a red bicycle on 2026-03-02."


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(release: str, tmp_path: Path) -> Settings:
    with tarfile.open(DATA / f"{release}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return Settings(
        data_dir=tmp_path / "palimpsest-data",
        embedding=EmbeddingSettings(provider="hashing", dimensions=64),
        pipeline=PipelineSettings(allow_update_delete=True),
    )


def facts(settings: Settings) -> set[str]:
    live = Live(settings)
    return {text for (text,) in live.rows("SELECT content FROM memories WHERE type <> 'episodic'")}


async def answered(settings: Settings) -> tuple[Any, Any]:
    """The best of a recall, and the pinned ones by SQL."""
    async with queries(settings) as found:
        recalled: Any = await found.answer(Recall("walnuts", "home", limit=3))
        pinned = await found.table(SqlRequest("SELECT content FROM memories WHERE pinned"))
    return recalled["results"][0]["content"], pinned.to_pylist()


def test_what_is_remembered_is_told_and_goes_on(settings: Settings, release: str) -> None:
    known = OF.get(release, FACTS)
    if release == "first-release":
        assert rebuilt(settings, swap=True).kept is not None
    assert facts(settings) == known
    recalled, pinned = asyncio.run(answered(settings))
    assert recalled in ("I am allergic to walnuts.", "Mara is allergic to walnuts.")
    assert pinned == [{"content": "Mara is allergic to walnuts."}]
    checks = asyncio.run(examine(settings))
    assert [each for each in checks if not each.ok] == []
    live = Live(settings)
    live.say("I am allergic to walnuts.", "I have two goats.", scope="home", first=50)
    asyncio.run(worked(settings))
    assert facts(settings) == known | {LATE, "Ana is allergic to walnuts.", "Ana has two goats."}
    assert live.rows(
        "SELECT bool_and(holds), sum(facts_lost + turns_lost) FROM pipeline_total"
    ) == [(True, 0)]
    assert where(settings.data_dir, SECRET) == [] or release == "first-release"


async def worked(settings: Settings) -> None:
    async with application(settings) as app:
        await app.run(until_drained=True)


@pytest.mark.parametrize(
    "release", ["release-0011", pytest.param("first-release", marks=pytest.mark.soak)]
)
def test_its_stores_are_made_again_from_its_log(settings: Settings, release: str) -> None:
    done = rebuilt(settings, swap=True)
    if release == "release-0011":
        # A corrected memory names the ends of the relations that its text states.
        assert done.partitions[0].differing == {"mention_rows": 1}
        assert done.kept is None
        assert facts(settings) == FACTS
        done = rebuilt(settings, swap=True, anyway=True)
    assert done.kept is not None
    assert facts(settings) == OF.get(release, FACTS)
    asyncio.run(worked(settings))
    assert facts(settings) == OF.get(release, FACTS) | {LATE}
    assert rebuilt(settings).is_equal


@pytest.mark.parametrize("release", ["release-0011"])
def test_what_differs_is_refused_with_what_to_do(settings: Settings, tmp_path: Path) -> None:
    told = Program(
        tmp_path,
        PALIMPSEST_EMBEDDING__DIMENSIONS="64",
        PALIMPSEST_PIPELINE__ALLOW_UPDATE_DELETE="true",
    ).fails("replay", "rebuild", "--swap")
    assert "earlier release" in told
    assert "--swap --anyway" in told
    assert facts(settings) == FACTS


@pytest.mark.parametrize("release", ["first-release"])
def test_a_store_that_is_too_old_is_refused_with_what_to_do(settings: Settings) -> None:
    with pytest.raises(StoreError, match=r"older than what .* `palimpsest replay rebuild --swap`"):
        facts(settings)
    [stores] = [each for each in asyncio.run(examine(settings)) if each.check == "stores"]
    assert not stores.ok
    assert "replay rebuild --swap" in stores.advice


@pytest.mark.parametrize("release", ["release-0011"])
def test_a_migrated_store_has_the_tables_of_a_new_one(settings: Settings) -> None:
    assert facts(settings) == FACTS
    with duckdb.connect(str(shard_folder(settings, 0) / DATABASE_FILE)) as store:
        for catalog in (COLUMNS, KEYS):
            assert store.execute(catalog).fetchall() == empty_store().execute(catalog).fetchall()
