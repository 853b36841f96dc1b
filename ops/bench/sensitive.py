"""What looking for secrets costs a text: python -m palimpsest.ops.bench.sensitive [--rounds 500]

Budget: 1 ms for 1,000 characters, since every turn passes twice: where it is published, and in
normalize.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Final

from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.settings import PiiSettings

CHARACTERS: Final = 1_000
_NUMBERS: Final = (
    "Order 2024-0001234 of 12/31/2023 weighs 12.5 kg, costs $1,234.56 and leaves at 10:45 for"
    " 48.8584, 2.2945; call (415) 555-2671 or +49 30 901820, card 4111 1111 1111 1111. "
)
_SETTINGS: Final = (
    "DB_HOST=db.internal DB_PASSWORD=hunter2 API_KEY={{ vault.key }} max_tokens=2048 url:"
    " postgres://app:s3cr3t@db/shop authorization: Bearer abc123abc123abc123 # the secret key\n"
)
TEXTS: Final = {
    "prose": "We met at the café near the river and talked about the plan for the spring. ",
    "prose about passwords": "I forgot the password, so the token and the api key were reset too. ",
    "numbers": _NUMBERS,
    "settings": _SETTINGS,
    "Japanese": "今日は東京で友達と会って、パスワードの話と新しい仕事の話をしました。",
}
"""Repeated up to CHARACTERS."""


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of processor time for 1,000 characters with the default kinds: median and 95th
    percentile of so many rounds, by sort of text."""
    kinds = PiiSettings().kinds
    result = {}
    for name, unit in TEXTS.items():
        text = (unit * (CHARACTERS // len(unit) + 1))[:CHARACTERS]
        redacted(text, kinds)
        times = []
        for _ in range(rounds):
            began = time.thread_time()
            redacted(text, kinds)
            times.append(1_000 * (time.thread_time() - began))
        ranks = statistics.quantiles(times, n=100)
        result[name] = {"p50": round(ranks[49], 3), "p95": round(ranks[94], 3)}
    return result


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Times the search for secrets.")
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(measure(max(options.rounds, 2)), indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
