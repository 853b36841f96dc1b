"""Opens the embedded log and the stores of a data folder, and checks that they belong together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from palimpsest.ops.folder_swap import unexchanged
from palimpsest.ops.log_folder import is_begun, log_folder, lost_log, make_private
from palimpsest.ops.parts import SetupError, embedding_model, open_shard, shard_options, utc_now
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_CHANGES
from palimpsest.stores.settings import ShardOptions
from palimpsest.streams.logs.base import LogError, LogReader, Outgoing
from palimpsest.streams.logs.embedded import EmbeddedLog, Mode

if TYPE_CHECKING:
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.models.base import EmbeddingModel


def open_log(
    settings: Settings, mode: Mode, clock: Callable[[], datetime] = utc_now
) -> EmbeddedLog:
    """Opens the embedded log. Raises LogError, also for one that is gone while its stores are
    there, and SetupError for a log that is not embedded."""
    if settings.log.kind != "embedded":
        raise SetupError(
            "log.kind is kafka: this command needs the embedded log; unset it, or use the Kafka"
            " worker"
        )
    folder = log_folder(settings)
    partitions = settings.log.partitions
    with unexchanged(settings.data_dir):
        if mode != "read":
            with contextlib.suppress(OSError):  # creating the log reports it
                make_private(settings.data_dir)
        if (lost := lost_log(settings)) is not None:
            raise LogError(": ".join(lost))
        if partitions is None and mode != "read" and not is_begun(settings):
            partitions = 1
        return EmbeddedLog(folder, partitions, clock, mode)


@contextlib.contextmanager
def publisher(
    settings: Settings,
) -> Iterator[Callable[[Sequence[Outgoing]], list[tuple[int, int]]]]:
    """A function that appends records durably, in a folder where a worker may run or not."""
    if settings.log.kind == "kafka":
        from palimpsest.streams.kafka.log import KafkaLog

        with KafkaLog.open(settings.cluster) as cluster:
            yield cluster.append
        return
    with open_log(settings, "publish") as log:
        yield log.append


# --- the log and its stores -----------------------------------------------------------------------

NUMBER_STATE: Final = "log_number"


def number_of(log: LogReader) -> int:
    """The number of an embedded log, which another one has once it is dealt out again. What was
    noted of offsets is true of one number only. 0 on Kafka, where partitions stay."""
    return log.number() if isinstance(log, EmbeddedLog) else 0


def note_log(shard: Shard, log: LogReader) -> None:
    """As a worker on Kafka does at the first assignment; of an embedded log its number."""
    if isinstance(log, EmbeddedLog):
        if log.number():
            shard.set_state(NUMBER_STATE, str(log.number()))
        return
    from palimpsest.streams.kafka.cluster import READ_BY, STORE
    from palimpsest.streams.kafka.log import KafkaLog
    from palimpsest.streams.kafka.role import LOG_STATE, state_of

    if isinstance(log, KafkaLog) and shard.state(LOG_STATE) is None:
        shard.set_state(LOG_STATE, state_of(log.identity(), READ_BY[STORE]))


def is_of_another(shard: Shard, log: EmbeddedLog) -> bool:
    """Whether the store was made from another embedded log than the one alongside it."""
    return int(shard.state(NUMBER_STATE) or 0) != log.number()


def check_shard(log: EmbeddedLog, partition: int, shard: Shard) -> None:
    """Raises StoreError for an empty store if the log shows that a store had content, since
    processing the log again would repeat model calls; and for a store built from another log."""
    from palimpsest.stores.database.damage import REBUILD
    from palimpsest.stores.shard import StoreError

    # An empty log may be that of a branch, whose stores come from the live log.
    has_more = log.end_offset(MEMORY_CHANGES.name, partition) > 0
    if shard.is_untouched and has_more:
        raise StoreError(
            f"the store of partition {partition} in {shard.folder} is empty, and the log tells of"
            f" one that was not: it was removed or lost; {REBUILD}"
        )
    if shard.is_untouched:
        note_log(shard, log)
    elif has_more and is_of_another(shard, log):
        raise StoreError(
            f"the store of partition {partition} in {shard.folder} was made from another log than"
            f" {log.path}: one of both is from before the log was dealt out into other partitions,"
            f" or from after; {REBUILD}"
        )


def open_shards(
    settings: Settings, log: EmbeddedLog, options: ShardOptions, undo: contextlib.AsyncExitStack
) -> dict[int, Shard]:
    """Opens the shard of every partition; `undo` closes them."""
    shards = {}
    for partition in range(log.partitions(CONVERSATION_TURNS.name)):
        shard = open_shard(settings, partition, options)
        undo.callback(shard.close)
        check_shard(log, partition, shard)
        shards[partition] = shard
    return shards


@dataclass(slots=True)
class ReaderResources:
    """The resources of a reader without a worker: the log, and the shard of every partition."""

    settings: Settings
    log: EmbeddedLog
    shards: dict[int, Shard]
    embedding: EmbeddingModel


@contextlib.asynccontextmanager
async def readers(settings: Settings) -> AsyncIterator[ReaderResources]:
    """Opens log and stores for reading. Raises LogError, StoreError or FolderInUse."""
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(open_log(settings, "read"))
        embedding = embedding_model(settings)
        undo.push_async_callback(embedding.close)
        options = shard_options(settings, embedding)
        yield ReaderResources(settings, log, open_shards(settings, log, options, undo), embedding)
