"""Removes raw records with a secret from the embedded log once all their readers have read them.

The log holds what a third-party producer sends unchanged; the stages read it without the sensitive
parts. Palimpsest's own publishers remove those before they append.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palimpsest.ops.maintenance.periodic import PeriodicTask, in_thread
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, Topic
from palimpsest.streams.logs.base import Position
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import PiiSettings

CONSUMER: Final = "purge"
"""The consumer whose position in the log marks how far raw records have been checked."""
LOOK_SECONDS: Final = 1.0
READ_RECORDS: Final = 500
READERS: Final[dict[Topic, Sequence[str]]] = {
    CONVERSATION_TURNS: ("normalize", "audit"),
    MEMORY_COMMANDS: ("normalize",),
}


class Purge:
    """Removes raw records of an embedded log opened for processing. It removes a record before it
    moves the position, so a crash between the two only repeats the removal."""

    def __init__(self, log: EmbeddedLog, settings: PiiSettings) -> None:
        self._is_wanted = settings.purge_raw and settings.mode != "off"
        self._log = log
        self._policy = Policy.of(settings)

    def tasks(self) -> list[PeriodicTask]:
        """None where it is not asked for."""
        if not self._is_wanted:
            return []
        name = "raw records with secrets in the log"
        return [PeriodicTask(name, LOOK_SECONDS, in_thread(self.once), last=True)]

    def once(self) -> int:
        """Returns the number of removed records. Blocks. Raises LogError."""
        removed = 0
        for topic, readers in READERS.items():
            for partition in range(self._log.partitions(topic.name)):
                removed += self._partition(topic.name, partition, readers)
        return removed

    def _partition(self, topic: str, partition: int, readers: Sequence[str]) -> int:
        end = min(self._log.position(reader, topic, partition) for reader in readers)
        offset = self._log.position(CONSUMER, topic, partition)
        removed = 0
        while offset < end:
            records = self._log.read(topic, partition, offset, READ_RECORDS)
            read = [record for record in records if record.offset < end]
            sensitive = [
                record.offset for record in read if self._policy.record(record) is not record
            ]
            if sensitive:
                removed += self._log.erase(topic, partition, sensitive)
            offset = read[-1].offset + 1 if len(read) == len(records) > 0 else end
            self._log.seek(Position(CONSUMER, topic, partition, offset))
        return removed
