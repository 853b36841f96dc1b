"""Turns a second through Kafka, and how long a turn takes to become searchable.

    python -m tests.soak.throughput --turns 4000 --workers 1 2
    python -m tests.soak.throughput --rate 100 --seconds 20

Throughput: turns lie ready, workers start, and the clock runs from the first stored turn to the
last one (`stored`), and on until every stage has acknowledged everything.
Latency: from the time at which the broker took a turn to that at which it took the outcome of its
intent, which is sent after the turn was committed to the store with its vector.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.kafka.broker import Broker
from palimpsest.schemas.codec import decode
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_CHANGES, Topic
from palimpsest.streams.logs.base import Record
from tests.soak.lab import Lab, told
from tests.soak.steady_load import SteadyLoad

DRAIN_SECONDS = 1_200.0
WARM_TURNS = 200
READ_RECORDS = 2_000


def throughput(lab: Lab, turns: int, scopes: int, workers: int) -> dict[str, object]:
    """Process what lies ready with this many processes."""
    lab.publish(records(Load(turns, scopes)))
    for number in range(workers):
        lab.start(f"worker-{number}")
    began = time.monotonic()
    lab.until_drained(DRAIN_SECONDS)
    drained = datetime.now(UTC)
    wall = time.monotonic() - began
    processor = sum(_cpu_seconds(worker.pid) for worker in lab.workers.values())
    for name in sorted(lab.workers):
        lab.stop(name)
    taken = _times(lab, MEMORY_CHANGES)
    first = min(taken.values())
    stored = (max(taken.values()) - first).total_seconds()
    seconds = (drained - first).total_seconds()
    return {
        "workers": workers,
        "turns": turns,
        "stored_seconds": round(stored, 2),
        "stored_turns_per_second": round(turns / stored, 1),
        "seconds": round(seconds, 2),
        "turns_per_second": round(turns / seconds, 1),
        "wall_seconds_with_start": round(wall, 2),
        "cpu_seconds": round(processor, 2),
    }


def latency(lab: Lab, rate: int, seconds: int, scopes: int, workers: int) -> dict[str, object]:
    """Publish at a steady rate; how long the turns took."""
    turns = list(records(Load(WARM_TURNS + rate * seconds, scopes)))
    for number in range(workers):
        lab.start(f"worker-{number}")
    lab.publish(turns[:WARM_TURNS])
    lab.until_drained()
    lab.until_owned(workers)
    load = SteadyLoad(lab, turns[WARM_TURNS:], rate, chunks_per_second=50)
    load.start()
    assert load.thread is not None
    load.thread.join()
    lab.until_drained()
    for name in sorted(lab.workers):
        lab.stop(name)
    published, taken = _times(lab, CONVERSATION_TURNS), _times(lab, MEMORY_CHANGES)
    measured = sorted(
        (taken[number] - at).total_seconds() * 1000
        for number, at in sorted(published.items(), key=lambda item: item[1])[WARM_TURNS:]
    )
    return {
        "workers": workers,
        "turns_per_second": rate,
        "turns": len(measured),
        "p50_ms": _percentile(measured, 50),
        "p95_ms": _percentile(measured, 95),
        "p99_ms": _percentile(measured, 99),
        "worst_ms": round(measured[-1]),
    }


def _times(lab: Lab, topic: Topic) -> dict[str, datetime]:
    """When the log took the first record of every correlation."""
    found: dict[str, datetime] = {}
    for record in _all(lab, topic):
        message = decode(record.value, topic, record.timestamp)
        before = found.get(message.correlation_id)
        if before is None or record.timestamp < before:
            found[message.correlation_id] = record.timestamp
    return found


def _all(lab: Lab, topic: Topic) -> list[Record]:
    found: list[Record] = []
    for partition in range(lab.partitions):
        offset, end = 0, lab.log.end_offset(topic.name, partition)
        while offset < end:
            found += lab.log.read(topic.name, partition, offset, READ_RECORDS)
            offset = found[-1].offset + 1
    return found


def _percentile(values: Sequence[float], percent: int) -> int:
    return round(values[min(len(values) - 1, len(values) * percent // 100)])


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.throughput")
    parser.add_argument("--turns", type=int, default=4000, help="for throughput; 0 for none")
    parser.add_argument("--scopes", type=int, default=40)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rate", type=int, default=0, help="for latency, turns a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        with Broker(folder / "broker") as broker:
            for workers in given.workers:
                if given.turns:
                    name = f"through-{workers}"
                    with Lab(folder / name, broker, name, given.partitions) as lab:
                        told(throughput(lab, given.turns, given.scopes, workers))
                if given.rate:
                    name = f"latency-{workers}"
                    with Lab(folder / name, broker, name, given.partitions) as lab:
                        told(latency(lab, given.rate, given.seconds, given.scopes, workers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
