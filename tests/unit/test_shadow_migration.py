"""A store from before there were further deciders: its flags stay, and nothing is earned."""

from __future__ import annotations

from pathlib import Path

import duckdb

from palimpsest.schemas.rows.pipeline import FlagsRow, ShadowProposalRow
from palimpsest.stores.database.migrations import MIGRATIONS, migrate
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.settings import Flags
from tests.memory_rows import open_shard

NAMES = [each.name for each in MIGRATIONS]
BEFORE = NAMES[: next(i for i, name in enumerate(NAMES) if "shadow-proposals" in name)]


def test_flags_of_before(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    with duckdb.connect(str(folder / DATABASE_FILE)) as before:
        migrate(before, BEFORE)
        before.execute("INSERT INTO scope_flags BY NAME SELECT 'ana' AS scope, true AS shadow_mode")
    shard = open_shard(folder)
    try:
        assert shard.flags == {"ana": FlagsRow(scope="ana", shadow_mode=True)}
        with shard.reading() as reader:
            assert select(reader, ShadowProposalRow, "true", []) == []
    finally:
        shard.close()


def test_what_is_earned_counts_where_nobody_set_it() -> None:
    for default, own, earned, allowed in (
        (False, None, True, True),
        (False, None, False, False),
        (False, None, None, False),
        (False, False, True, False),
        (False, True, False, True),
        (True, None, False, True),
        (True, False, True, False),
    ):
        row = FlagsRow(scope="ana", allow_update_delete=own, earned_update_delete=earned)
        flags = effective(Flags(allow_update_delete=default), row)
        assert flags.allow_update_delete is allowed, (default, own, earned)
