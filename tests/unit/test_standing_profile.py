from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.stores.recall.context import Profile
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.standing_profile import _ASKS_FOR_PREFERENCES, StandingProfile
from palimpsest.stores.shard import Shard
from tests.memory_rows import BEGIN, SCOPE, memory, open_shard, turn, write


def whole_profile(shard: Shard, question: str) -> Profile:
    allowed = Retriever(shard).search(Query(SCOPE, question)).allowed
    with shard.reading() as reader:
        now = BEGIN + timedelta(days=9)
        return StandingProfile(reader, allowed, now, lambda ids: {}).of(())


def profile_of(shard: Shard, question: str) -> tuple[list[str], list[str], list[str]]:
    found = whole_profile(shard, question)
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


LIKED = {
    "Ana": ("Ana likes jazz.", "Ana does not like calculus.", "Ana's favorite tea is mint."),
    "Ana Maria": ("Ana Maria loves fado.",),
    "Ben": ("I like chess.", "Ben is into chess."),
}


def liked(folder: Path, *speakers: str) -> Shard:
    shard = open_shard(folder)
    rows = [replace(turn(f"t{n}", "hello there", n), who=who) for n, who in enumerate(speakers)]
    rows += [
        replace(memory(text, text, 100), type="preference", who=who)
        for who in speakers
        for text in LIKED[who]
    ]
    write(shard, rows)
    return shard


def test_all_that_persons_like_is_there_where_that_is_asked(tmp_path: Path) -> None:
    def asked(question: str) -> dict[str, list[str]]:
        found = whole_profile(shard, question).preferences
        return {name: sorted(piece.text for piece in pieces) for name, pieces in found}

    with closing(liked(tmp_path, *LIKED)) as shard:
        ana = {"Ana": ["Ana does not like calculus.", "Ana likes jazz."], "": [LIKED["Ana"][2]]}
        assert asked("What music does Ana like?") == ana
        assert asked("What are Ana Maria's hobbies?") == {"Ana Maria": ["Ana Maria loves fado."]}
        assert asked("What does Ben like doing?") == {
            "": ["I like chess."],
            "Ben": ["Ben is into chess."],
        }
        assert asked("Where does Ana live?") == {}
        assert asked("What do people like?") == {}


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("What foods doesn't Nebraas like?", True),
        ("what kind of music do I enjoy listening to", True),
        ("What kind of music do Ana and Ben enjoy most?", True),
        ("What sports does John like besides basketball?", True),
        ("What activities is Vanessa interested in?", True),
        ("Which hobbies do they share?", True),
        ("How does Elise spend her free time?", True),
        ("Could you suggest something for tonight?", False),
        ("What does John like about LeBron James?", False),
        ("Why does John like Aragorn?", False),
        ("What did Maria say it was like?", False),
        ("What is it like being there?", False),
        ("What would Ana like to eat?", False),
        ("What does the soup taste like?", False),
        ("What book did Caroline recommend to Melanie?", False),
        ("What is Evan's favorite food?", False),
    ],
)
def test_a_question_for_what_somebody_likes(question: str, asks: bool) -> None:
    assert (_ASKS_FOR_PREFERENCES.search(question) is not None) is asks
