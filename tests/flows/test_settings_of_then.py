"""A rebuild follows the settings that applied when a record was written, not those of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.program import Program

TURNS = (
    "I live in Lisbon. I drink coffee every morning.",
    "I don't drink coffee every morning anymore. I live in Braga now.",
    "My sister Nora lives in Porto.",
)
THEN = {
    "updates": {"PALIMPSEST_PIPELINE__ALLOW_UPDATE_DELETE": "true"},
    "shadow": {"PALIMPSEST_PIPELINE__SHADOW_MODE": "true"},
    "off": {"PALIMPSEST_PIPELINE__ENABLED": "false"},
    "frozen": {"PALIMPSEST_PIPELINE__MUTATIONS_FROZEN": "true"},
    "confidence": {"PALIMPSEST_PIPELINE__MIN_FACT_CONFIDENCE": "0.99"},
    "graph": {"PALIMPSEST_GRAPH__ENABLED": "false"},
    "sessions": {
        "PALIMPSEST_SHORT_TERM__TURNS": "1",
        "PALIMPSEST_SESSIONS__SILENCE_MINUTES": "0.01",
        "PALIMPSEST_EXTRACTION__CONTEXT_TURNS": "0",
    },
}


@pytest.mark.parametrize("named", THEN)
def test_a_rebuild_follows_the_settings_of_then_from_environment(
    tmp_path: Path, named: str
) -> None:
    then = Program(tmp_path, **THEN[named])
    then.ok("ingest", then.turns(*TURNS))
    then.ok("run", "--once")
    today = Program(tmp_path)
    swapped = today.json("replay", "rebuild", "--swap")
    assert [each["differing"] for each in swapped["partitions"]] == [{}]
    assert swapped["kept"] is not None


def test_a_rebuild_follows_settings_of_a_flag_and_of_a_file_that_changed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(*TURNS[:2]))
    program.ok("run", "--once", "--set", "pipeline.allow_update_delete=true")
    (tmp_path / "palimpsest.toml").write_text("[pipeline]\nmin_fact_confidence = 0.99\n")
    more = program.turns(TURNS[2], name="more.jsonl", session_id="s2", turn_id="t9")
    program.ok("ingest", more)
    program.ok("run", "--once")
    (tmp_path / "palimpsest.toml").unlink()
    [partition] = program.json("replay", "rebuild")["partitions"]
    assert partition["differing"] == {}
