"""Minutes of steady load on Kafka while workers and broker are killed, frozen and restarted.

    python -m tests.soak.steady_load --minutes 5 --rate 100 --worker-kills 30

Prints what was done and what came of it: every turn counted once, the balance over all shards,
and the state of every scope held against the same turns through the embedded log without a fault.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.kafka.broker import Broker
from palimpsest.streams.logs.base import LogError, Outgoing
from tests.soak.lab import Lab, different, embedded_states, told

SEED = 20_261_122
BROKER_DOWN_SECONDS = 4.0
SETTLE_SECONDS = 8.0
DRAIN_SECONDS = 600.0


@dataclass
class Plan:
    """What is done to the installation, and how often."""

    minutes: float
    rate: int
    scopes: int
    worker_kills: int
    broker_kills: int
    stop_seconds: float
    workers: int


@dataclass
class SteadyLoad:
    """Publishes at a steady rate from a thread of its own, through outages of the broker."""

    lab: Lab
    turns: Sequence[Outgoing]
    rate: int
    chunks_per_second: int = 5
    done: int = 0
    retries: int = 0
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.thread.start()

    def join(self) -> None:
        """Until all is published. Raises what hindered it."""
        assert self.thread is not None
        self.thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        began = time.monotonic()
        size = max(1, self.rate // self.chunks_per_second)
        try:
            for start in range(0, len(self.turns), size):
                wait = began + start / self.rate - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                self._append(self.turns[start : start + size])
                self.done = min(start + size, len(self.turns))
        except BaseException as error:
            self.error = error

    def _append(self, chunk: Sequence[Outgoing]) -> None:
        """Sent again when it is not known to have arrived: the same turns are the same turns."""
        while True:
            try:
                self.lab.log.append(chunk)
                return
            except LogError:
                self.retries += 1
                time.sleep(0.5)


@dataclass
class Chaos:
    """Does the plan's deeds, one after another, while the load runs."""

    lab: Lab
    plan: Plan
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    happened: Counter[str] = field(default_factory=Counter)
    names: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    recoveries: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds from a deed until every partition was open somewhere, where that was before the
    next deed."""

    def begin(self) -> None:
        for _ in range(self.plan.workers):
            self._start()

    def _start(self) -> str:
        name = f"worker-{next(self.names)}"
        self.lab.start(name)
        return name

    def deeds(self) -> list[Callable[[], None]]:
        """Spread so that every kind comes early and late."""
        deeds: list[Callable[[], None]] = [self.kill_worker] * self.plan.worker_kills
        rare = [self.kill_broker] * self.plan.broker_kills
        rare += [self.roll, self.join_and_leave]
        if self.plan.stop_seconds:
            rare.append(self.freeze)
        for number, deed in enumerate(rare):
            deeds.insert(round((number + 1) * len(deeds) / (len(rare) + 1)), deed)
        return deeds

    def kill_worker(self) -> None:
        victim = self.chance.choice(sorted(self.lab.workers))
        self.lab.kill(victim)
        self._start()

    def kill_broker(self) -> None:
        self.lab.broker.kill()
        time.sleep(BROKER_DOWN_SECONDS)
        self.lab.broker.start()

    def roll(self) -> None:
        """Every worker in turn: a new one joins, then the old one leaves by SIGTERM."""
        for name in sorted(self.lab.workers):
            self._start()
            time.sleep(SETTLE_SECONDS / 2)
            self.lab.stop(name)

    def join_and_leave(self) -> None:
        name = self._start()
        time.sleep(SETTLE_SECONDS)
        self.lab.stop(name)

    def freeze(self) -> None:
        """Longer than any session: others take over, and it finds out when it wakes."""
        victim = self.chance.choice(sorted(self.lab.workers))
        self.lab.signal(victim, signal.SIGSTOP)
        self._start()
        time.sleep(self.plan.stop_seconds)
        self.lab.signal(victim, signal.SIGCONT)
        time.sleep(SETTLE_SECONDS)
        self.lab.stop(victim)

    def run(self, until: float) -> None:
        deeds = self.deeds()
        for number, deed in enumerate(deeds):
            left = until - time.monotonic()
            wait = left / (len(deeds) - number + 1) * self.chance.uniform(0.6, 1.2)
            time.sleep(max(0.5, wait))
            sys.stderr.write(f"{left:5.0f} s left: {deed.__name__}\n")
            began = time.monotonic()
            deed()
            self.happened[deed.__name__] += 1
            self._check()
            known = (deed.__name__, began, sum(self.happened.values()))
            threading.Thread(target=self._watch, args=known, daemon=True).start()

    def _watch(self, deed: str, began: float, number: int) -> None:
        """Note when every partition is open again, unless something else happens before."""
        while sum(self.happened.values()) == number:
            if len(self.lab.owners()) == self.lab.partitions:
                self.recoveries[deed].append(time.monotonic() - began)
                return
            if time.monotonic() - began > DRAIN_SECONDS:
                return
            time.sleep(0.1)

    def _check(self) -> None:
        for name, worker in [*self.lab.workers.items()]:
            if worker.poll() is not None:
                self.happened[f"ended by itself with {worker.returncode}"] += 1
                sys.stderr.write(f"{name} ended with {worker.returncode}: {self.lab.tail(name)}\n")
                self.lab.workers.pop(name)
                self._start()


def soak(plan: Plan, folder: Path) -> dict[str, object]:
    """Run the plan; the figures."""
    turns = list(records(Load(int(plan.minutes * 60 * plan.rate), plan.scopes)))
    with Broker(folder / "broker") as broker, Lab(folder / "lab", broker, "soak") as lab:
        chaos = Chaos(lab, plan)
        chaos.begin()
        lab.until_owned(plan.workers)
        load = SteadyLoad(lab, turns, plan.rate)
        began = time.monotonic()
        load.start()
        chaos.run(began + plan.minutes * 60)
        load.join()
        loaded = time.monotonic() - began
        lag = lab.lag()
        drained = lab.until_drained(DRAIN_SECONDS)
        status = lab.status()
        stops = [lab.stop(name) for name in sorted(lab.workers)]
        states = lab.states()
        published = sum(
            lab.log.end_offset("conversation-turns", number) for number in range(lab.partitions)
        )
    expected = embedded_states(folder / "embedded", turns)
    return {
        "turns": len(turns),
        "records_published": published,
        "producer_retries": load.retries,
        "seconds_of_load": round(loaded, 1),
        "lag_at_the_end_of_load": lag,
        "seconds_to_drain": round(drained, 1),
        "happened": dict(chaos.happened),
        "seconds_until_all_partitions_are_open_again": {
            deed: {"median": round(median(found), 1), "most": round(max(found), 1), "n": len(found)}
            for deed, found in chaos.recoveries.items()
        },
        "balance": status["balance"],
        "dead_letters": status["dead_letters"],
        "slowest_stop_seconds": round(max(stops), 2),
        "scopes": len(expected),
        "scopes_that_differ": different(states, expected),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was lost, doubled or changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.steady_load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=100, help="turns a second")
    parser.add_argument("--scopes", type=int, default=40)
    parser.add_argument("--worker-kills", type=int, default=30)
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--stop-seconds", type=float, default=70.0, help="one SIGSTOP; 0 for none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one")
    given = parser.parse_args(arguments)
    plan = Plan(
        given.minutes,
        given.rate,
        given.scopes,
        given.worker_kills,
        given.broker_kills,
        given.stop_seconds,
        given.workers,
    )
    with tempfile.TemporaryDirectory() as temporary:
        figures = soak(plan, given.folder or Path(temporary))
    told(figures)
    balance = figures["balance"]
    assert isinstance(balance, dict)
    whole = balance["holds"] and balance["turns"]["accepted"] == figures["turns"]
    return 0 if whole and not figures["scopes_that_differ"] else 1


if __name__ == "__main__":
    sys.exit(main())
