"""Persons are told apart by all words of their names."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from palimpsest.stores.recall.persons import holders_of, persons_in
from palimpsest.streams.claims.conflict import is_ambiguous
from palimpsest.streams.memory_rows import edge
from tests.memory_rows import SCOPE, memory, open_shard, turn, write
from tests.unit.test_standing_profile import profile_of

USERS = ["user_1", "user_2", "user_10"]
DOCTORS = ["Dr Lee", "Dr. Kim"]
VICTORS = ["Victor Hugo", "Victor Lopez", "Ana"]


@pytest.mark.parametrize(
    ("question", "speakers", "named"),
    [
        ("what can user_2 eat?", USERS, ["user_2"]),
        ("what can user_1 eat?", USERS, ["user_1"]),
        ("what can user_3 eat?", USERS, []),
        ("what can the user eat?", USERS, []),
        ("what can user 2 eat?", ["user 1", "user 2"], ["user 2"]),
        ("what can user-2 eat?", ["user-1", "user-2"], ["user-2"]),
        ("what can Dr Kim eat?", DOCTORS, ["Dr. Kim"]),
        ("what can Dr. Lee eat?", DOCTORS, ["Dr Lee"]),
        ("what can Lee eat?", DOCTORS, ["Dr Lee"]),
        ("what does the Dr say?", DOCTORS, []),
        ("what can Victor Lopez eat?", VICTORS, ["Victor Lopez"]),
        ("what can Lopez eat?", VICTORS, ["Victor Lopez"]),
        ("what can Victor eat?", VICTORS, ["Victor Hugo", "Victor Lopez"]),
        ("what can Ana and Victor Hugo eat?", VICTORS, ["Victor Hugo", "Ana"]),
        ("what can Ana Maria eat?", ["Ana", "Ana Maria"], ["Ana Maria"]),
        ("what can Ana eat?", ["Ana", "Ana Maria"], ["Ana"]),
        ("can Ana and Ana Maria meet?", ["Ana", "Ana Maria"], ["Ana", "Ana Maria"]),
        ("what can anyone eat?", VICTORS, []),
        ("Ana Maria Ana", ["Ana", "Ana Maria"], ["Ana", "Ana Maria"]),
        ("Dr Lee?", ["Lee", "Dr Lee"], ["Dr Lee"]),
        ("Ana Maria Lopez?", ["Ana Maria", "Maria Lopez"], ["Ana Maria", "Maria Lopez"]),
        ("Ana Maria Lopez?", ["Ana Maria Lopez", "Maria Lopez", "Ana"], ["Ana Maria Lopez"]),
    ],
)
def test_whom_a_question_names(question: str, speakers: list[str], named: list[str]) -> None:
    assert persons_in(question, speakers) == named


@pytest.mark.parametrize(
    ("text", "speakers", "holders"),
    [
        ("user_1 is allergic to nuts.", USERS, {"user_1"}),
        ("user_10 is allergic to nuts.", USERS, {"user_10"}),
        ("Dr Lee is allergic to nuts.", DOCTORS, {"Dr Lee"}),
        ("Lee is allergic to nuts.", DOCTORS, {"Dr Lee"}),
        ("Victor Hugo's sister is vegan.", VICTORS, {"Victor Hugo"}),
        ("Victor is vegan.", VICTORS, {"Victor Hugo", "Victor Lopez"}),
        ("Ana Maria is vegan.", ["Ana", "Ana Maria"], {"Ana Maria"}),
        ("Rita is vegan.", VICTORS, set()),
    ],
)
def test_whom_a_statement_begins_with(text: str, speakers: list[str], holders: set[str]) -> None:
    assert holders_of(text, speakers) == holders


@pytest.mark.parametrize(
    ("one", "other"), [("user_1", "user_2"), ("Dr Lee", "Dr Kim"), ("Victor Hugo", "Victor Lopez")]
)
def test_a_profile_shows_nothing_of_another_person(tmp_path: Path, one: str, other: str) -> None:
    rows = [replace(turn(f"t{who}", "hello there", 0), who=who) for who in (one, other)]
    rows += [
        replace(memory(f"f{who}", text, 100), categories=("health",), who="pipeline")
        for who, text in (
            (one, f"{one} is allergic to nuts."),
            (other, f"{other} is allergic to milk."),
        )
    ]
    with closing(open_shard(tmp_path)) as shard:
        write(shard, rows)
        for who, thing in ((one, "nuts"), (other, "milk")):
            essential, *_ = profile_of(shard, f"what can {who} eat?")
            assert essential == [f"{who} is allergic to {thing}."]


def test_of_two_with_one_first_name_a_fact_is_about_who_said_it(tmp_path: Path) -> None:
    one, other = "Victor Hugo", "Victor Lopez"
    rows = [replace(turn(f"t{who}", "hello there", 0), who=who) for who in (one, other)]
    fact = replace(memory("f", "Victor is vegan.", 100), categories=("health",), who="pipeline")
    with closing(open_shard(tmp_path)) as shard:
        write(shard, [*rows, fact, edge("f", f"t{other}", "derived_from", SCOPE)])
        assert profile_of(shard, f"what can {other} eat?")[0] == ["Victor is vegan."]
        assert profile_of(shard, f"what can {one} eat?")[0] == []


@pytest.mark.parametrize(
    ("statement", "other", "ambiguous"),
    [
        ("Dr Lee moved to York.", "Ana's colleague Dr Kim lives in Oslo.", False),
        ("Dr Lee moved to York.", "Ana's colleague Dr Lee lives in Oslo.", True),
        ("Victor Lopez moved to York.", "Ana's brother Victor Hugo lives in Oslo.", False),
        ("Victor Lopez moved to York.", "Ana's brother Victor lives in Oslo.", True),
        ("Victor moved to York.", "Ana's brother Victor Hugo lives in Oslo.", True),
    ],
)
def test_a_namesake_has_the_same_name(statement: str, other: str, ambiguous: bool) -> None:
    assert is_ambiguous(statement, [other]) == ambiguous


def test_two_last_names_are_two_persons_of_a_first_name() -> None:
    others = ["Victor Hugo lives in Leeds.", "Victor Lopez lives in Bath."]
    assert is_ambiguous("Victor moved to York.", others)
    assert not is_ambiguous("Victor moved to York.", others[:1])
    assert not is_ambiguous("Victor Hugo moved to York.", others)
