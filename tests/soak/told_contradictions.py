"""How many of a hundred contradictions end right, are proposed, or are missed.

    python -m tests.soak.told_contradictions [--flags careful|full] [--kinds home work …] [--list]

Each line of `tests/data/told_contradictions.jsonl` is what one person said in 2023 and in 2025,
and which of the two is loaded first; both go through the pipeline with rules and the hashing
embedder. `ended`: what was said in 2023 holds no longer, without a question. `proposed`: a
proposal waits. `missed`: both hold, and nothing waits. `reversed`: what was said in 2025 ended.
`unread`: no fact was drawn from what was said in 2023.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from tests.harness import CAREFUL, FULL
from tests.unit.test_order_of_statements import Said, active, loaded, past, pending

DATA: Final = Path(__file__).parent.parent / "data" / "told_contradictions.jsonl"
EARLIER, LATER = 2023, 2025


def outcome(folder: Path, pair: dict[str, str], flags: str) -> str:
    said: list[Said] = [(EARLIER, pair["earlier"]), (LATER, pair["later"])]
    if pair["loaded_first"] == "later":
        said.reverse()
    with loaded(folder, said, FULL if flags == "full" else CAREFUL, [1]) as pipeline:
        holding = [newest for _, _, newest in active(pipeline)]
        ended = [since for _, since, _ in past(pipeline)]
        drawn = pipeline.values("SELECT occurred_at FROM fact_rows")
        waits = bool(pending(pipeline))
    if EARLIER not in [at.year for at in drawn]:
        return "unread"
    if LATER in ended:
        return "reversed"
    if waits:
        return "proposed"
    return "missed" if EARLIER in holding else "ended"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flags", choices=("careful", "full"), default="full")
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--list", action="store_true", help="print what did not end right")
    given = parser.parse_args()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(DATA.read_text().splitlines()):
            pair = json.loads(line)
            if given.kinds and pair["kind"] not in given.kinds:
                continue
            found = outcome(Path(folder) / str(number), pair, given.flags)
            counts[pair["kind"]][found] += 1
            counts["all"][found] += 1
            if given.list and found != "ended":
                first = pair["loaded_first"]
                print(f"{found}: {pair['earlier']} / {pair['later']} ({first} loaded first)")
    for kind, each in counts.items():
        print(f"{kind:12}", ", ".join(f"{count} {name}" for name, count in each.most_common()))


if __name__ == "__main__":
    main()
