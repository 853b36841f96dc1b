"""The domains of the memory's health: how the counts of each become a score, a sentence and the
command that mends it. Pure: the counts are made in `ops.health.checkup`.

A count is of one partition, or of one scope in it; those of several partitions are merged. A
domain without anything to count is healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from palimpsest.streams.text.counts import counted

Counts: TypeAlias = dict[str, int]
Status = Literal["healthy", "degraded", "unhealthy"]

HEALTHY: Final = 0.8
DEGRADED: Final = 0.5
"""Minimum scores of a healthy and of a degraded domain; below, it is unhealthy."""
DEAD_SHARE: Final = 0.01
"""Share of dead letters in recent turns over which they are redriven."""
RECENT_TURNS: Final = 1_000
TURNS_OF_A_DAY: Final = 100
"""The newest turns that all dead letters, and those of the last 24 hours, are compared with at
least."""
FEWEST_CALLS: Final = 10
"""Calls of a model that its failed ones are compared with at least: one of two says little."""
TOMBSTONE_SHARE: Final = 0.30
"""Share of forgotten memories over which they are swept."""
PROMPT_SECONDS: Final = 300
LATE_SECONDS: Final = 7_200
"""A record may wait for the first without harm; one that waits for the second makes a score 0."""
LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
FULL_BYTES: Final = 1024 * 1024
"""Free bytes of the disk below which it is nearly full, and full."""
LONGEST_CHARACTERS: Final = 2_000
"""Maximum length of an extracted memory: a longer one is not a single fact."""
ENTITIES_EXPECTED: Final = 20
"""Extracted memories of which at least one should name an entity."""
LOW_IMPORTANCE: Final = 0.3
"""An importance below it, and no recall for long, make a memory a candidate to forget."""
HYGIENE: Final = 0.5
"""The lowest score of a domain that says how memories are used: nothing is broken there."""

_MERGED: Final[Mapping[str, Callable[[Iterable[int]], int]]] = {
    "oldest_seconds": max,
    "stale_days": max,
    **dict.fromkeys(("providers", "waiting"), max),
    **dict.fromkeys(("llm_calls", "llm_failed", "embedding_calls", "embedding_failed"), max),
    "free_bytes": min,
    "enabled": min,
    "extraction_writes_enabled": min,
}
"""How a count of several partitions is made, other than by addition. Those of one worker share its
models."""


@dataclass(frozen=True, slots=True)
class Domain:
    """`weight` counts in the composite score. `remedy` returns a command, or None where there is
    nothing to mend; `is_due` whether scheduled maintenance repairs it."""

    weight: float
    score: Callable[[Counts], float]
    reason: Callable[[Counts], str]
    remedy: Callable[[Counts], str | None] = lambda counts: None
    is_due: Callable[[Counts], bool] = lambda counts: False


def _share(part: int, whole: int) -> float:
    return part / max(1, whole)


def _work(counts: Counts) -> int:
    return max(counts["recent"], min(counts["accepted"], RECENT_TURNS))


def _dead_share(counts: Counts) -> float:
    """The larger one of all dead letters and of those of the last 24 hours."""
    day = max(counts["turns_of_day"], min(counts["accepted"], TURNS_OF_A_DAY))
    return max(_share(counts["dead"], _work(counts)), _share(counts["dead_of_day"], day))


def _queue_score(counts: Counts) -> float:
    late = (counts["oldest_seconds"] - PROMPT_SECONDS) / (LATE_SECONDS - PROMPT_SECONDS)
    return min(1.0 - 20.0 * _dead_share(counts), 1.0 - max(0.0, late))


def _queue_reason(counts: Counts) -> str:
    waiting = "nothing waiting"
    if counts["lag"]:
        oldest = _time(counts["oldest_seconds"])
        waiting = (
            f"{counted(counts['lag'], 'records')} waiting for a stage, the oldest for {oldest}"
        )
    dead = (
        f"{counted(counts['dead'], 'dead letters')} among {counted(_work(counts), 'recent turns')}"
    )
    of_day = f"in 24 h {counts['dead_of_day']} among {counted(counts['turns_of_day'], 'turns')}"
    return f"{waiting}; {f'{dead}; {of_day}' if counts['dead'] else 'no dead letters'}"


def _queue_remedy(counts: Counts) -> str | None:
    if _dead_share(counts) > DEAD_SHARE:
        return "palimpsest repair queue"
    return "palimpsest run" if counts["oldest_seconds"] > PROMPT_SECONDS else None


_INDEX: Final = {
    "missing": ("memory without postings", "memories without postings"),
    "extra": ("memory indexed though it is gone", "gone memories indexed"),
    "wrong": ("memory with wrong postings", "memories with wrong postings"),
    "vectors": ("vector differs in LanceDB", "vectors differ in LanceDB"),
}
_EMBEDDINGS: Final = {
    "missing": ("memory without a vector", "memories without a vector"),
    "other_model": ("of them has one of another model", "of them have one of another model"),
    "stale": ("key of another text", "keys of other texts"),
}
_GRAPH: Final = {
    "orphans": ("row of a gone memory or name", "rows of gone memories or names"),
    "dangling": ("relation without its ends", "relations without their ends"),
    "miscounted": ("wrong count", "wrong counts"),
    "unlinked": ("memory not linked", "memories not linked"),
}
"""What can be wrong, by count: the words for one, and for several."""


def _told(counts: Counts, words: Mapping[str, tuple[str, str]]) -> str:
    """The counts that are not zero."""
    return ", ".join(
        f"{counts[name]:,} {one if counts[name] == 1 else several}"
        for name, (one, several) in words.items()
        if counts[name]
    )


def _storage_score(counts: Counts) -> float:
    free = counts["free_bytes"]
    room = 0.0 if free < FULL_BYTES else DEGRADED if free < LEAST_FREE_BYTES else 1.0
    return min(1.0 - 2 / 3 * _share(counts["tombstones"], counts["stored"]), room)


def _storage_reason(counts: Counts) -> str:
    share = _share(counts["tombstones"], counts["stored"])
    free = counts["free_bytes"] / 2**30
    kept = f"{share:.0%} of {counted(counts['stored'], 'stored memories')} forgotten"
    return f"{kept}; {counts['file_bytes'] / 2**20:.1f} MiB used, {free:.1f} GiB free"


def _storage_remedy(counts: Counts) -> str | None:
    if counts["free_bytes"] < LEAST_FREE_BYTES:
        return "make room on the disk"
    return "palimpsest jobs run retention" if _is_swept(counts) else None


def _is_swept(counts: Counts) -> bool:
    return _share(counts["tombstones"], counts["stored"]) > TOMBSTONE_SHARE


def _is_empty(counts: Counts) -> bool:
    """Whether a graph that is searched has nothing to be found, despite many memories."""
    return counts["enabled"] > 0 and not counts["names"] and counts["unnamed"] >= ENTITIES_EXPECTED


def _graph_score(counts: Counts) -> float:
    rows = counts["names"] + counts["relations"] + counts["mentions"]
    # 1 % of wrong rows is as bad as 1 % of dead letters.
    wrong = 20.0 * _share(counts["orphans"] + counts["dangling"] + counts["miscounted"], rows)
    score = 1.0 - max(wrong, _share(counts["unlinked"], counts["sampled"]))
    return min(score, DEGRADED) if _is_empty(counts) else score


def _graph_reason(counts: Counts) -> str:
    found = _told(counts, _GRAPH)
    if counts["unlinked"]:
        found += f" to names in them, of {counts['sampled']} looked at"
    relations = counted(counts["relations"], "relations")
    whole = f"{counted(counts['names'], 'names')} and {relations}, all in order"
    unnamed = f"{counted(counts['unnamed'], 'extracted memories')} without any entity"
    only_read = counts["enabled"] and not counts["extraction_writes_enabled"]
    off = "; turns add nothing: graph.extraction_writes_enabled is off" if only_read else ""
    return f"{found or whole}; {unnamed}{off}"


def _graph_remedy(counts: Counts) -> str | None:
    if any(counts[each] for each in _GRAPH):
        return "palimpsest repair graph"
    if not _is_empty(counts):
        return None
    if not counts["extraction_writes_enabled"]:
        return "turn on graph.extraction_writes_enabled, or write entities by `structured`"
    return "extract with a language model: see `palimpsest doctor`"


_MODELS: Final = {"llm": "the language model", "embedding": "the embedding model"}


def _providers_score(counts: Counts) -> float:
    failed = [_share(counts["failed"], counts["calls"] + counts["failed"])]
    for model in _MODELS:
        calls = max(FEWEST_CALLS, counts[f"{model}_calls"])
        failed.append(_share(counts[f"{model}_failed"], calls))
    return 1.0 - max(_share(counts["waiting"], counts["providers"]), *failed)


def _providers_reason(counts: Counts) -> str:
    calls = f"{counted(counts['calls'], 'recent model calls')}, {counts['failed']} failed"
    for model, name in _MODELS.items():
        if counts[f"{model}_calls"]:
            answered = counts[f"{model}_calls"] - counts[f"{model}_failed"]
            calls += f"; {name} answered {answered} of {counts[f'{model}_calls']} newest calls"
    if counts["waiting"]:
        return f"{counts['waiting']} of {counts['providers']} models do not answer; {calls}"
    return calls


def _near_score(counts: Counts) -> float:
    words = _share(counts["same_words"], counts["memories"])
    return max(HYGIENE, 1.0 - max(words, _share(counts["alike"], counts["compared"])))


def _never_reason(counts: Counts) -> str:
    if not counts["recalled"]:
        return "no recall is recorded yet, so nothing can be said"
    never = f"{counts['never']} of {counted(counts['old'], 'memories')}"
    return f"{never} older than {counted(counts['stale_days'], 'days')} never recalled"


def _unused(score: Callable[[Counts], float], reason: Callable[[Counts], str]) -> Domain:
    def remedy(counts: Counts) -> str | None:
        return "palimpsest weak" if score(counts) < HEALTHY else None

    return Domain(0.5, score, reason, remedy)


def _repaired(
    name: str,
    weight: float,
    wrong: Sequence[str],
    whole: str,
    reason: Callable[[Counts], str],
) -> Domain:
    """A domain that `palimpsest repair` mends: its score is the share of `whole` that is not
    `wrong`."""

    def found(counts: Counts) -> int:
        return sum(counts[each] for each in wrong)

    return Domain(
        weight,
        lambda counts: 1.0 - _share(found(counts), counts[whole]),
        reason,
        lambda counts: f"palimpsest repair {name}" if found(counts) else None,
        lambda counts: found(counts) > 0,
    )


DOMAINS: Final[Mapping[str, Domain]] = {
    "queue": Domain(
        3.0,
        _queue_score,
        _queue_reason,
        _queue_remedy,
        lambda counts: _dead_share(counts) > DEAD_SHARE,
    ),
    "index": _repaired(
        "index",
        3.0,
        [*_INDEX],
        "active",
        lambda counts: (
            _told(counts, _INDEX) or f"all {counted(counts['active'], 'active memories')} indexed"
        ),
    ),
    "embeddings": _repaired(
        "embeddings",
        2.0,
        ["missing", "stale"],
        "active",
        lambda counts: (
            _told(counts, _EMBEDDINGS)
            or f"all {counted(counts['active'], 'active memories')} embedded"
        ),
    ),
    "storage": Domain(2.0, _storage_score, _storage_reason, _storage_remedy, _is_swept),
    "graph": Domain(
        2.0,
        _graph_score,
        _graph_reason,
        _graph_remedy,
        lambda counts: any(counts[each] for each in _GRAPH),
    ),
    "providers": Domain(
        3.0,
        _providers_score,
        _providers_reason,
        lambda counts: None if _providers_score(counts) >= HEALTHY else "palimpsest doctor",
    ),
    "duplicates": _repaired(
        "duplicates",
        1.0,
        ["repeated"],
        "memories",
        lambda counts: (
            f"{counts['repeated']} of {counted(counts['memories'], 'extracted memories')} repeat"
            " another"
            if counts["repeated"]
            else f"no text twice in {counted(counts['memories'], 'extracted memories')}"
        ),
    ),
    "near_duplicates": Domain(
        0.5,
        _near_score,
        lambda counts: (
            f"{counted(counts['same_words'], 'memories')} with the words of another;"
            f" {counts['alike']} of {counts['compared']} compared by vector nearly equal another"
        ),
        lambda counts: (
            "look at them, and `palimpsest forget ID` what says the same"
            if counts["same_words"] + counts["alike"]
            else None
        ),
    ),
    "stale": _unused(
        lambda counts: 1.0 - HYGIENE * _share(counts["stale"], counts["recalled"]),
        lambda counts: (
            f"{counts['stale']} of {counted(counts['recalled'], 'memories')} ever recalled not"
            f" within {counted(counts['stale_days'], 'days')}"
        ),
    ),
    "never_recalled": _unused(
        lambda counts: (
            1.0 - HYGIENE * _share(counts["never"], counts["old"]) if counts["recalled"] else 1.0
        ),
        _never_reason,
    ),
    "low_value": Domain(
        0.5,
        lambda counts: 1.0 - HYGIENE * _share(counts["low_value"], counts["memories"]),
        lambda counts: (
            f"{counts['low_value']} of {counted(counts['memories'], 'extracted memories')} with an"
            f" importance under {LOW_IMPORTANCE:g} and no recall for"
            f" {counted(counts['stale_days'], 'days')}"
        ),
        lambda counts: "palimpsest sql '.run low-value'" if counts["low_value"] else None,
    ),
    "overlong": Domain(
        0.5,
        lambda counts: max(HYGIENE, 1.0 - _share(counts["overlong"], counts["memories"])),
        lambda counts: (
            f"{counts['overlong']} of {counted(counts['memories'], 'extracted memories')}"
            f" longer than {LONGEST_CHARACTERS:,} characters"
        ),
        lambda counts: (
            "shorten them: `palimpsest modify ID --content TEXT`" if counts["overlong"] else None
        ),
    ),
}


def score_of(name: str, counts: Counts) -> float:
    """From 0 to 1, with 4 decimals, rounded down: only what is perfect has 1."""
    return int(max(0.0, min(1.0, DOMAINS[name].score(counts))) * 10_000) / 10_000


def status_of(score: float) -> Status:
    return "healthy" if score >= HEALTHY else "degraded" if score >= DEGRADED else "unhealthy"


def merged(parts: Iterable[Counts]) -> Counts:
    """The counts of several partitions as one."""
    listed = [*parts]
    return {
        name: _MERGED.get(name, sum)([part[name] for part in listed])
        for name in (listed[0] if listed else ())
    }


Trend: TypeAlias = Mapping[str, float]
"""A score by day, as `2026-03-01`."""


def composite(scores: Mapping[str, float]) -> float:
    """The weighted mean of the scores of domains, with 4 decimals."""
    total = sum(DOMAINS[name].weight * score for name, score in scores.items())
    weights = sum(DOMAINS[name].weight for name in scores)
    return round(total / weights, 4) if scores else 1.0


def lowest(trends: Iterable[Trend]) -> dict[str, float]:
    """The lowest score of each day, of several partitions or workers."""
    found: dict[str, float] = {}
    for day, score in (each for trend in trends for each in trend.items()):
        found[day] = min(score, found.get(day, 1.0))
    return dict(sorted(found.items()))


def judged(
    counted: Mapping[str, Mapping[str, Counts]],
    recorded: Sequence[tuple[str, Mapping[str, float]]] = (),
) -> dict[str, Any]:
    """The answer of `diagnose`, from the counts by domain and partition, and the day and scores of
    what is recorded of each partition. The composite score is the weighted mean of the domains',
    the status that of the worst domain."""
    kept = [
        (day, {name: score for name, score in scores.items() if name in counted})
        for day, scores in recorded
    ]
    domains = {
        name: _judged(
            name,
            merged(parts.values()),
            {key: score_of(name, parts[key]) for key in parts},
            lowest({day: scores[name]} for day, scores in kept if name in scores),
        )
        for name, parts in counted.items()
        if parts
    }
    return _answer(domains, lowest({day: composite(scores)} for day, scores in kept if scores))


def judged_of_all(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merges the answers of several workers."""
    parts = [answer["domains"] for answer in answers]
    domains = {
        name: _judged(
            name,
            merged(part[name]["counts"] for part in named),
            dict(each for part in named for each in part[name]["partitions"].items()),
            lowest(part[name]["trend"] for part in named),
        )
        for name in DOMAINS
        if (named := [part for part in parts if name in part])
    }
    return _answer(domains, lowest(answer["trend"] for answer in answers))


def _answer(domains: Mapping[str, Mapping[str, Any]], trend: Trend) -> dict[str, Any]:
    scores = {name: found["score"] for name, found in domains.items()}
    return {
        "score": composite(scores),
        "status": status_of(min(scores.values(), default=1.0)),
        "trend": {**trend},
        "domains": {**domains},
    }


def _judged(
    name: str, counts: Counts, partitions: Mapping[str, float], trend: Trend
) -> dict[str, Any]:
    score = score_of(name, counts)
    return {
        "score": score,
        "weight": DOMAINS[name].weight,
        "status": status_of(score),
        "reason": DOMAINS[name].reason(counts),
        "recommendation": DOMAINS[name].remedy(counts),
        "counts": counts,
        "partitions": {**partitions},
        "trend": {**trend},
    }


# ---- words ----
def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"
