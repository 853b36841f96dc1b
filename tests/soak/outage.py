"""An outage of the model provider under load on Kafka: what waits, and how it catches up.

    python -m tests.soak.outage --minutes 5 --rate 10

Turns are published at a steady rate before, during and after the outage. Told are the facts that
waited, whether turns went on being stored, how often a partition was seen without an owner (a
rebalance closes it), and how long catching up took.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palimpsest.ops.bench.instant_provider import MODEL, running_provider
from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.kafka.broker import Broker
from palimpsest.ops.requests import JsonObject
from tests.soak.lab import Lab, told
from tests.soak.steady_load import SteadyLoad

WARM_SECONDS = 20.0
LOOK_SECONDS = 1.0


@dataclass
class Watched:
    """What was seen while the provider was away, once a second."""

    looks: int = 0
    without_an_owner: int = 0
    owners: set[int] = field(default_factory=set)
    most_lag: int = 0

    def look(self, lab: Lab) -> None:
        owners = lab.owners()
        self.looks += 1
        self.without_an_owner += len(owners) < lab.partitions
        self.owners |= set(owners.values())
        self.most_lag = max(self.most_lag, *lab.lag().values())


def outage(minutes: float, rate: int, workers: int, folder: Path) -> dict[str, object]:
    """Run it; the figures."""
    seconds = 2 * WARM_SECONDS + 60 * minutes
    turns = list(records(Load(int(seconds * rate), 40)))
    with contextlib.ExitStack() as stack:
        provider = contextlib.ExitStack()
        stack.enter_context(provider)
        url = provider.enter_context(running_provider())
        broker = stack.enter_context(Broker(folder / "broker"))
        model = ("llm.provider=openai", f"llm.base_url={url}", f"llm.model={MODEL}")
        lab = stack.enter_context(Lab(folder / "lab", broker, "outage", overrides=model))
        for number in range(workers):
            lab.start(f"worker-{number}")
        lab.until_owned(workers)
        load = SteadyLoad(lab, turns, rate)
        load.start()
        time.sleep(WARM_SECONDS)
        provider.close()
        before, watched = _balance(lab), Watched()
        away = time.monotonic()
        while time.monotonic() - away < 60 * minutes:
            watched.look(lab)
            time.sleep(LOOK_SECONDS)
        published, during = load.done, _balance(lab)
        stack.enter_context(running_provider(int(url.rpartition(":")[2].partition("/")[0])))
        load.join()
        caught_up = lab.until_drained(1_800.0)
        status = lab.status()
        for name in sorted(lab.workers):
            lab.stop(name)
    return {
        "turns": len(turns),
        "minutes_without_provider": minutes,
        "turns_published_when_it_came_back": published,
        "turns_stored_when_it_came_back": _count(during, "turns", "stored"),
        "facts_extracted_meanwhile": _count(during, "facts", "extracted")
        - _count(before, "facts", "extracted"),
        "most_lag_of_a_role": watched.most_lag,
        "looks": watched.looks,
        "looks_that_found_a_partition_without_an_owner": watched.without_an_owner,
        "processes_that_owned_one": len(watched.owners),
        "seconds_to_catch_up_after_the_load": round(caught_up, 1),
        "balance": status["balance"],
        "dead_letters": status["dead_letters"],
    }


def _balance(lab: Lab) -> JsonObject:
    balance = lab.status()["balance"]
    assert isinstance(balance, dict)
    return balance


def _count(balance: JsonObject, kind: str, name: str) -> int:
    counts = balance[kind]
    assert isinstance(counts, dict)
    return int(str(counts[name]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every turn was stored, every fact settled and there is no dead letter."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.outage", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the provider is away")
    parser.add_argument("--rate", type=int, default=10, help="turns a second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        figures = outage(given.minutes, given.rate, given.workers, given.folder or Path(temporary))
    told(figures)
    balance = figures["balance"]
    assert isinstance(balance, dict)
    whole = balance["holds"] and _count(balance, "turns", "stored") == figures["turns"]
    settled = _count(balance, "facts", "in_flight") == 0
    return 0 if whole and settled and not figures["dead_letters"] else 1


if __name__ == "__main__":
    sys.exit(main())
