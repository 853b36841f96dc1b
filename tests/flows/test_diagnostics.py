"""How healthy a memory is, told of memories that are healthy or not."""

from __future__ import annotations

from tests.flows.program import Program


def counts(program: Program, domain: str) -> dict[str, int]:
    found: dict[str, int] = program.json("diagnose", domain)["domains"][domain]["counts"]
    return found


def test_what_was_told_twice_in_other_order_is_counted(program: Program) -> None:
    for text in ("Ana likes tea.", "Tea Ana likes!", "Ben likes tea.", "Чай любит Аня."):
        program.ok("remember", text, "--scope", "a")
    program.ok("remember", "Tea, Ana likes.", "--scope", "b")
    program.ok("remember", "Ana likes tea " + "and tea " * 400, "--scope", "b")
    program.ok("run", "--once")
    counted = counts(program, "near_duplicates")
    assert counted["memories"] >= 6
    assert counted["same_words"] == 1
    assert counts(program, "overlong")["overlong"] == 1
    told = program.json("diagnose")
    assert told["domains"]["near_duplicates"]["status"] == "healthy"
    assert "near_duplicates: healthy" in program.ok("diagnose")
    assert "1 memory with the words of another" in program.ok("diagnose", "--scope", "a")
    assert "there is no domain weather" in program.fails("diagnose", "weather")
    assert "index: nothing to repair" in program.ok("repair", "index", "--dry-run")
