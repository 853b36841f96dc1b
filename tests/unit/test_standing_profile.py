from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.standing_profile import StandingProfile
from palimpsest.stores.shard import Shard
from tests.memory_rows import BEGIN, SCOPE, memory, open_shard, turn, write


def profile_of(shard: Shard, question: str) -> tuple[list[str], list[str], list[str]]:
    allowed = Retriever(shard).search(Query(SCOPE, question)).allowed
    with shard.reading() as reader:
        now = BEGIN + timedelta(days=9)
        found = StandingProfile(reader, allowed, now, lambda ids: {}).of(())
    essential, others, identity = (
        [piece.text for piece in part] for part in (found.essential, found.others, found.identity)
    )
    return essential, others, identity


def filled(folder: Path, *speakers: str) -> Shard:
    shard = open_shard(folder)
    rows = [replace(turn(f"t{n}", "hello there", n), who=who) for n, who in enumerate(speakers)]
    facts = [
        ("f1", "Ana is allergic to walnuts", ("food",), "Ana", None),
        ("f2", "Ana lives in Lima", ("home",), "Ana", None),
        ("f3", "Ana stayed in Rome", ("home",), "Ana", BEGIN),
        ("f4", "Ana saw a film", ("event",), "Ana", None),
        ("f5", "Ben is diabetic", ("health",), "Ben", None),
    ]
    rows += [
        replace(memory(name, text, 100), categories=categories, who=who, valid_until=until)
        for name, text, categories, who, until in facts
    ]
    write(shard, rows)
    return shard


def test_of_the_only_speaker_whatever_is_asked(tmp_path: Path) -> None:
    with closing(filled(tmp_path, "Ana", "Ana")) as shard:
        essential, others, identity = profile_of(shard, "suggest a dinner")
        assert "Ana is allergic to walnuts" in essential
        assert identity == ["Ana lives in Lima"]
        assert others == []


def test_of_whom_the_question_names_where_several_speak(tmp_path: Path) -> None:
    with closing(filled(tmp_path, "Ana", "Ben")) as shard:
        assert profile_of(shard, "what can Ben eat?") == (["Ben is diabetic"], [], [])
        assert profile_of(shard, "suggest a dinner") == ([], [], [])


def test_what_another_line_says_in_full_is_said_once(tmp_path: Path) -> None:
    texts = (
        "Ana has had a cough for weeks",
        "Ana has had a cough for six weeks (as of March 2026)",
        "Ana is allergic to nuts",
        "Ana is not allergic to nuts",
    )
    with closing(open_shard(tmp_path)) as shard:
        rows = [replace(turn("t", "hello there", 0), who="Ana")]
        rows += [
            replace(memory(f"f{n}", text, 100), categories=("health",), who="Ana")
            for n, text in enumerate(texts)
        ]
        write(shard, rows)
        essential, *_ = profile_of(shard, "how is Ana?")
        assert sorted(essential) == sorted(texts[1:])
