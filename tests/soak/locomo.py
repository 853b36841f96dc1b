"""Conversations through Kafka and through the embedded log: the same memory in every scope?

    python -m tests.soak.locomo FOLDER_OF_CONVERSATIONS --store-workers 2

Prints what differs, and the balance.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.ops.ingest.locomo import read_locomo
from palimpsest.ops.ingest.parsers.base import Bad, ReadOptions
from palimpsest.ops.kafka.broker import Broker
from palimpsest.schemas.limits import DEFAULT_MAX_RECORD_BYTES
from palimpsest.streams.kafka.cluster import ROLES, STATELESS, STORE
from palimpsest.streams.logs.base import Outgoing, partition_for
from tests.soak.lab import Lab, different, embedded_states, told


def conversations(files: Sequence[Path]) -> Iterator[Outgoing]:
    """The turns of LoCoMo files, each a scope of its own."""
    options = ReadOptions(None, DEFAULT_MAX_RECORD_BYTES, datetime.now(UTC))
    for file in files:
        with file.open("rb") as opened:
            for item in read_locomo(opened, str(file), file.stem, options):
                if isinstance(item, Bad):
                    raise ValueError(f"{item.place}: {item.reason}")
                yield item


def compare(files: Sequence[Path], folder: Path, store_workers: int) -> dict[str, object]:
    """Publish, process with one stateless worker and this many with stores, hold against the
    embedded log."""
    turns = list(conversations(files))
    scopes = sorted({out.scope for out in turns})
    with Broker(folder / "broker") as broker, Lab(folder / "lab", broker, "locomo") as lab:
        lab.start("stateless", *ROLES[STATELESS])
        for number in range(store_workers):
            lab.start(f"store-{number}", *ROLES[STORE])
        lab.until_owned(store_workers)
        owners = lab.owners()
        began = time.monotonic()
        lab.publish(turns)
        lab.until_drained(1_200.0)
        seconds = time.monotonic() - began
        status = lab.status()
        for name in sorted(lab.workers):
            lab.stop(name)
        states = lab.states()
        partitions = lab.partitions
    expected = embedded_states(folder / "embedded", turns)
    return {
        "turns": len(turns),
        "partitions": {scope: partition_for(scope, partitions) for scope in scopes},
        "partitions_of_workers": {
            pid: [p for p, o in owners.items() if o == pid] for pid in sorted(set(owners.values()))
        },
        "seconds": round(seconds, 1),
        "balance": status["balance"],
        "scopes_that_differ": different(states, expected),
        "scopes_the_same": sorted(states.keys() & expected.keys()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every scope is the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.locomo", description=__doc__)
    parser.add_argument("conversations", type=Path, help="folder of LoCoMo files")
    parser.add_argument("--store-workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one")
    given = parser.parse_args(arguments)
    files = sorted(given.conversations.glob("*.json"))
    with tempfile.TemporaryDirectory() as temporary:
        figures = compare(files, given.folder or Path(temporary), given.store_workers)
    told(figures)
    return 1 if figures["scopes_that_differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
