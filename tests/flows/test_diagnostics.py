"""How healthy a memory is, told of memories that are healthy or not."""

from __future__ import annotations

from tests.flows.program import SAID, Program


def counts(program: Program, domain: str) -> dict[str, int]:
    found: dict[str, int] = program.json("diagnostics", domain)["domains"][domain]["counts"]
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
    told = program.json("diagnostics")
    assert told["domains"]["near_duplicates"]["status"] == "healthy"
    assert "near_duplicates: healthy" in program.ok("diagnostics")
    assert "there is no domain weather" in program.fails("diagnostics", "weather")


def test_what_http_can_be_asked_the_program_can(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("run", "--once")
    found = program.json("search", "walnuts", "--scope", "home")
    assert found["method"] == "keyword"
    assert all("walnuts" in each["content"] for each in found["results"])
    assert "walnuts" in program.ok("search", "walnuts", "--scope", "home")
    listed = program.json("entities", "--scope", "home")
    assert "Nora" in {each["name"] for each in listed["entities"]}
    [nora] = program.json("entities", "--scope", "home", "--query", "nor")["entities"]
    assert nora["name"] == "Nora"
    assert "Lisbon" in program.ok("entities", "--scope", "home")
    vectors = program.ok("embeddings", "--scope", "home").splitlines()
    assert len(vectors) == program.json("stats", "--scope", "home")["embedded"]
