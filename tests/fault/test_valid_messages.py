"""Whatever the JSON Schemas allow is taken: no producer's message stops or confuses the worker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from tests.examples import examples
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.schema_values import SchemaValues, read_schema

EXAMPLES = examples(150)
AT_ONCE = 75
SCOPES = ("ana", "ben", "embedding-0")
TURNS = ("t1", "t2", "t3")
MEMORIES = [turn_memory_id(scope, turn) for scope in SCOPES for turn in TURNS]
SENTENCES = (
    "I moved to Lisbon last year.",
    "I don't drink coffee anymore.",
    'My sister Rita said: "I hate Mondays".\n- one\n- two',
    "critical: [a,b]: remember that I am allergic to walnuts until tomorrow",
    "Ich wohne seit gestern in Berlin.",
    "昨日、東京に引っ越しました。",
    "....!!!!....",
)
PREFERRED: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from(("m1", "m2")),
    "scope": st.sampled_from(SCOPES),
    "turn_id": st.sampled_from(TURNS),
    "content": st.sampled_from(SENTENCES),
    "memory_id": st.sampled_from(MEMORIES),
    "memory_ids": st.lists(st.sampled_from(MEMORIES), min_size=1, max_size=3),
    "reason": st.just("because"),
    "mutations_frozen": st.just(False),
    "enabled": st.just(True),
    "name": st.sampled_from(("Rita", "Lisbon")),
    "alias": st.sampled_from(("Rita", "Lisboa")),
}
VALID = st.one_of(
    [
        st.tuples(st.just(topic), SchemaValues(read_schema(name), PREFERRED).values())
        for topic, name in (
            (CONVERSATION_TURNS, "conversation-turn-1"),
            (MEMORY_COMMANDS, "memory-command-1"),
        )
    ]
)


def test_any_valid_message_leaves_the_worker_running_and_the_balance_equal(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        published: Counter[str] = Counter()

        def check() -> None:
            pipeline.run()
            balance = pipeline.balance()
            assert balance.holds, balance
            assert balance.turns["in_flight"] == balance.facts["in_flight"] == 0
            dead_letters = pipeline.dead_letters()
            unexpected = [x.reason for x in dead_letters if x.failure == "unexpected"]
            assert unexpected == []

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(VALID)
        def publish(example: tuple[Any, dict[str, Any]]) -> None:
            topic, message = example
            value = json.dumps(message, ensure_ascii=False).encode()
            pipeline.raw(topic, value, key=str(message["scope"]).encode())
            published[topic.name] += 1
            if sum(published.values()) % AT_ONCE == 0:
                check()

        publish()
        check()
        assert sum(published.values()) >= EXAMPLES
        assert min(published.values()) > EXAMPLES // 4
        balance = pipeline.balance()
        assert balance.turns["stored"] > EXAMPLES // 20
        # Only what a schema cannot say is refused: another text under a turn id, a time beyond the
        # calendar in UTC.
        reasons = Counter(
            dead_letter.reason.partition(":")[0] for dead_letter in pipeline.dead_letters()
        )
        assert set(reasons) <= {
            "turn_id_conflict",
            "command_id_conflict",
            "not a valid conversation-turn/1",
        }, reasons
