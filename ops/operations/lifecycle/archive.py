"""The cold tier: where archived states of memories lie, and moving them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar

from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.stores.shard import Shard


class ArchiveReport(Answer):
    """`due` states were old enough to move, `moved` have moved; in all, so many states now lie in
    the tables (`in_tables`) and so many in `files` (`in_files`, of `file_bytes` bytes)."""

    due: int
    moved: int
    in_tables: int
    in_files: int
    files: int
    file_bytes: int


class Archive(Read[ArchiveReport]):
    """Move archived states that are older than the setting `archive.after_days` to Parquet files in
    the data folder. Everything reads them there as before.

    Example: palimpsest archive --dry-run
    """

    dry_run: Annotated[bool, Doc("only count what would move")] = False
    after_days: Annotated[
        int | None, Doc("age in days instead of that of the settings", ge=0, le=36_500)
    ] = None

    surface: ClassVar = OPERATING(("POST", "/api/archive"), command="archive")

    async def read(self, sources: Sources) -> Json:
        import asyncio

        from palimpsest.ops.lifecycle.archive import move_states

        days = sources.settings.archive.after_days if self.after_days is None else self.after_days
        before = sources.now() - timedelta(days=days)
        answers = []
        for shard in sources.shards.values():
            [(due,)] = await asyncio.to_thread(shard.fetch, _DUE, [before])
            moved = 0 if self.dry_run else (await move_states(shard, before)).states
            answers.append({"due": due, "moved": moved, **await asyncio.to_thread(_held, shard)})
        return self.merge(answers)

    def merge(self, answers: Sequence[Json]) -> Json:
        return {each.name: sum(one[each.name] for one in answers) for each in fields(ArchiveReport)}


_DUE = "SELECT count(*) FROM memory_archive WHERE archived_at < ?"


def _held(shard: Shard) -> dict[str, int]:
    from palimpsest.stores.database.archive import files_of

    with shard.reading() as reader:
        [(in_tables,)] = reader.execute("SELECT count(*) FROM memory_archive").fetchall()
        files = [asdict(each) for each in files_of(reader)]
    return {
        "in_tables": in_tables,
        "in_files": sum(each["rows"] for each in files),
        "files": len(files),
        "file_bytes": sum(each["bytes"] for each in files),
    }
