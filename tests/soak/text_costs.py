"""What every text costs: finding secrets in it, and linking the names in it.

    python -m tests.soak.text_costs [TEXTS [NAMES]]

Budgets: 1 ms for 1,000 characters, since every turn is searched twice, where it is published and in
normalize; and 1 ms to link a memory at 10,000 known names, since apply-writes links as it writes.
"""

from __future__ import annotations

import json
import random
import string
import sys
import time
from datetime import UTC, datetime
from typing import Final

import duckdb

from palimpsest.ops.bench.measures import times
from palimpsest.ops.requests import JsonObject
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.rows.graph import NameRow
from palimpsest.stores.writing.scope_caches import NameCache, NameView
from palimpsest.streams.sensitive.detection import redacted
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.text.linker import candidate_names, names_in, unspaced_part

SCOPE: Final = "bench"
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
WORDS: Final = (
    "we met in spring and talked about work music food the harbour and a long walk".split()
)


def measure(texts: int, names: int) -> JsonObject:
    """Milliseconds of processor time a text, which other programs affect less."""
    return {
        "characters": CHARACTERS,
        "secrets_ms": {name: _redaction_ms(unit, texts) for name, unit in TEXTS.items()},
        "names": names,
        "linking_ms": _linking_ms(names, texts),
    }


def _redaction_ms(unit: str, rounds: int) -> JsonObject:
    """With the default kinds."""
    kinds = PiiSettings().kinds
    text = (unit * (CHARACTERS // len(unit) + 1))[:CHARACTERS]
    redacted(text, kinds)
    took = []
    for _ in range(rounds):
        began = time.thread_time()
        redacted(text, kinds)
        took.append(1000 * (time.thread_time() - began))
    return times(took)


def _linking_ms(count: int, texts: int) -> JsonObject:
    chance = random.Random(0)
    names = _names(chance, count)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE name_rows (name_id VARCHAR, canonical_name VARCHAR, scope VARCHAR)"
    )
    cache = NameCache(connection.cursor)
    cache.of(SCOPE)
    for name in names:
        cache.add(_row(name))
    took = []
    for _ in range(texts):
        words = chance.choices(WORDS, k=30)
        for name in chance.sample(names, min(3, count)):
            words.insert(chance.randrange(len(words)), name.title())
        text = " ".join(words)
        began = time.thread_time()
        known = NameView(cache).match(SCOPE, tuple(candidate_names(text)), unspaced_part(text))
        for name in known:
            names_in(text, name)
        took.append(1000 * (time.thread_time() - began))
    return times(took)


def _names(chance: random.Random, count: int) -> list[str]:
    """Distinct two-word names, one in ten in a script without spaces."""
    names: dict[str, None] = {}
    while len(names) < count:
        if chance.random() < 0.1:
            name = "".join(chr(chance.randint(0x4E00, 0x9FA5)) for _ in range(3))
        else:
            name = " ".join("".join(chance.choices(string.ascii_lowercase, k=6)) for _ in range(2))
        names[name] = None
    return list(names)


def _row(name: str) -> NameRow:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return NameRow(
        name_id=entity_id(SCOPE, name),
        entity_id=entity_id(SCOPE, name),
        scope=SCOPE,
        name=name,
        canonical_name=name,
        entity_type="unknown",
        first_seen=at,
        updated_at=at,
    )


if __name__ == "__main__":
    counts = dict(enumerate(map(int, sys.argv[1:])))
    print(json.dumps(measure(counts.get(0, 2_000), counts.get(1, 10_000)), indent=2))
