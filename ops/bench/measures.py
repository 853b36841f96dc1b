"""What the benchmarks measure with: times, memory, disk, and the share of the evidence found."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from palimpsest.ops.bench.data_sets import CATEGORIES, HALVES, Question
from palimpsest.ops.requests import JsonObject
from palimpsest.stores.index import lance
from palimpsest.stores.shard import DATABASE_FILE

KS: Final = (1, 5, 10, 50)
MIB: Final = 2**20


def ms_since(began: float) -> float:
    """Milliseconds since a time of `time.perf_counter()`."""
    return 1000 * (time.perf_counter() - began)


def times(ms: Sequence[float]) -> JsonObject:
    """The number of calls, and quantiles of their milliseconds."""
    found = np.array(ms or [0.0])
    quantiles = {f"p{q}": round(float(np.percentile(found, q)), 3) for q in (50, 95, 99)}
    return {"count": len(ms), **quantiles, "maximum": round(float(found.max()), 3)}


def resident_mib(pid: int | None = None) -> tuple[float, float]:
    """The resident memory of a process (default: this one), and how much of it are pages of files,
    which the system may drop. Where the system does not say, the peak of this process."""
    try:
        lines = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text(encoding="ascii").split("\n")
        kib = {
            name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines[1:-1])
        }
        return round(kib["Rss"] / 1024, 1), round((kib["Rss"] - kib["Anonymous"]) / 1024, 1)
    except (OSError, ValueError, KeyError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1), 0.0


def memory() -> JsonObject:
    """The memory of this process."""
    whole, mapped = resident_mib()
    return {"resident_mib": whole, "mapped_mib": mapped}


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def disk_bytes(shards: Sequence[Path], memories: int, log: Path | None = None) -> JsonObject:
    """Bytes of the folders of closed shards and of the log (None: not counted), by store; `each` is
    the total divided by `memories`."""
    sizes: dict[str, int] = {} if log is None else {"log": size(log)}
    sizes["duckdb"] = sum(size(folder / DATABASE_FILE) for folder in shards)
    sizes["lancedb"] = sum(size(folder / lance.FOLDER) for folder in shards)
    return {**sizes, "each": round(sum(sizes.values()) / max(memories, 1))}


@dataclass(frozen=True, slots=True)
class Found:
    """The result for a question: the share of its evidence among the first k turns for each k, the
    rank of the first evidence (None: not returned), and milliseconds."""

    question: Question
    recall: tuple[float, ...]
    first: int | None
    ms: float


def judged(question: Question, turns: Sequence[str], ms: float) -> Found:
    """Compares `turns`, best first and possibly with repetitions, with the evidence."""
    turns = list(dict.fromkeys(turns))
    shares = tuple(
        sum(turn in turns[:k] for turn in question.evidence) / len(question.evidence) for k in KS
    )
    ranks = [turns.index(turn) + 1 for turn in question.evidence if turn in turns]
    return Found(question, shares, min(ranks, default=None), ms)


def summary(found: Sequence[Found]) -> JsonObject:
    """Means over all questions, by category, by half and, where the data has several, by role of
    the evidence and by type; times."""
    return {
        **_means(found),
        "by_category": {
            name: _means([each for each in found if each.question.category == number])
            for number, name in CATEGORIES.items()
        },
        "by_half": {
            half: _means([each for each in found if each.question.half == half]) for half in HALVES
        },
        "by_role": _by_name(found, [" and ".join(each.question.roles) for each in found]),
        "by_type": _by_name(found, [each.question.type for each in found]),
        "ms": times([each.ms for each in found]),
    }


def _by_name(found: Sequence[Found], names: Sequence[str]) -> JsonObject:
    """Returns nothing if there is only one name."""
    known = sorted({*names})
    if len(known) < 2:
        return {}
    pairs = list(zip(found, names, strict=True))
    return {name: _means([each for each, own in pairs if own == name]) for name in known}


def _means(found: Sequence[Found]) -> JsonObject:
    count = len(found)
    if not count:
        return {"questions": 0}
    means: JsonObject = {"questions": count}
    for number, k in enumerate(KS):
        means[f"recall@{k}"] = round(sum(each.recall[number] for each in found) / count, 4)
        means[f"hit@{k}"] = round(sum(each.recall[number] > 0 for each in found) / count, 4)
    means["mrr"] = round(sum(1 / each.first for each in found if each.first) / count, 4)
    return means
