"""How many examples the property tests try: few where each takes long, so that the suite stays
quick; PALIMPSEST_EXAMPLES=10 tries ten times as many."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("PALIMPSEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    return count * TIMES
