"""A store with vectors of one local model, opened with another: what happens to those who had the
multilingual one by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.program import SAID, Program

BEFORE, NOW = "multilingual-e5-small-q4", "answerai-colbert-small-int8"
MODELS = "SELECT DISTINCT embedding_model FROM memories"
ASKED = ("recall", "Is there an allergy to walnuts?", "--scope", "ana")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """With memories from before the default changed."""
    program = Program(tmp_path, PALIMPSEST_EMBEDDING__PROVIDER="local")
    program.ok("ingest", program.turns(*SAID), "--scope", "ana")
    program.ok("run", "--once", "--set", f"embedding.model={BEFORE}")
    assert models(program) == {BEFORE}
    return program


def models(program: Program) -> set[str]:
    return {
        model for row in program.json("sql", MODELS) for model in row["embedding_model"].split(", ")
    }


def test_it_is_told_and_found_by_keywords_and_embedded_anew(program: Program) -> None:
    found = program.json(*ASKED)
    assert found["method"] == "keyword"
    assert "walnuts" in found["results"][0]["content"]
    told = program.run("doctor").stdout
    assert f"are of {BEFORE}, embedding is {NOW}" in told
    assert "embedding.model" in told

    told = program.run("run", "--once").stderr
    assert f"embedding model {NOW}, chosen by search.language = english" in told
    assert f"are of {BEFORE}, embedding is {NOW} now" in told
    assert models(program) == {BEFORE, NOW}
    assert program.json(*ASKED)["method"] != "keyword"
    program.ok("doctor")


def test_its_vectors_stay_where_its_model_is_set(program: Program) -> None:
    for setting in (f"embedding.model={BEFORE}", "search.language=german"):
        told = program.run("run", "--once", "--set", setting).stderr
        assert "are of" not in told
        assert program.json(*ASKED, "--set", setting)["method"] != "keyword"
    assert models(program) == {BEFORE}
