from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.recall.answers import Explained, Retrieval
from palimpsest.stores.recall.context import (
    Context,
    ContextSettings,
    Found,
    Piece,
    Profile,
    assemble,
    estimate_tokens,
    excerpt,
)
from palimpsest.stores.recall.context_lines import LEAST_RESULTS, NEAREST, found_pieces
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.query import RecallAnswer, RecallResult, Scores

EXPLAINED = cast("Explained", None)
ALLOWED = cast("VisibilityMask", None)
"""Not looked at by what is tested here."""
BEGIN = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


def stems(text: str) -> frozenset[str]:
    return frozenset(query_tokens(text))


def piece(name: str, text: str, days: int = 0, speaker: str = "", note: str = "") -> Piece:
    return Piece(name, text, BEGIN + timedelta(days=days), speaker, note)


def many(name: str, count: int, words: int = 8) -> list[Piece]:
    return [
        piece(f"{name}{n}", f"{name} number {n} " + "word " * words, n % 7, "Ana")
        for n in range(count)
    ]


def found(
    *pieces: Piece, neighbors: tuple[Piece, ...] = (), question: str = "where is Ana?"
) -> Found:
    return Found(question, pieces, neighbors, stems(question), stems)


def block(made: Context | None) -> Context:
    assert made is not None
    assert made.tokens == estimate_tokens(made.text) <= made.budget
    return made


def test_lines_stand_in_the_order_of_time_under_their_day() -> None:
    made = block(
        assemble(
            Profile([piece("p1", "Ana is allergic to walnuts.")]),
            found(
                piece("t2", "And then?", 2, "Ben"),
                piece("t1", "I moved.", 1, "Ana", "(no longer: Ana lives in Rome)"),
                piece("t3", "Where to?", 2, "Ben"),
                piece("f1", "Ana lives in Lima."),
            ),
            1_000,
        )
    )
    assert made.text == (
        "## Profile\n- Ana is allergic to walnuts.\n"
        "## 1 March 2026\n- Ana lives in Lima.\n"
        "## 2 March 2026\n- Ana: I moved. (no longer: Ana lives in Rome)\n"
        "## 3 March 2026\n- Ben: And then?\n- Ben: Where to?"
    )
    assert made.ids == {"profile": ("p1",), "lines": ("f1", "t1", "t2", "t3")}
    headed = ((), ("p1",)), ((), ("f1",)), ((), ("t1",)), ((), ("t2",), ("t3",))
    assert made.line_ids == tuple(each for lines in headed for each in lines)


@pytest.mark.parametrize("pieces", [(), (piece("f", " \n"),), (piece("f", "\n\n"),)])
def test_none_when_nothing_is_there(pieces: tuple[Piece, ...]) -> None:
    assert assemble(Profile(), found(*pieces), 1_000) is None
    assert assemble(Profile(pieces), found(), 1_000) is None


def test_none_when_nothing_fits() -> None:
    assert assemble(Profile(), found(*many("f", 3)), 5) is None


def test_the_profile_is_there_where_nothing_is_found() -> None:
    profile = Profile([piece("p1", "Ana is diabetic.")], [piece("p2", "Ana likes jazz.")])
    made = block(assemble(profile, found(), 500))
    assert made.ids == {"profile": ("p1", "p2"), "lines": ()}


def test_who_the_person_is_takes_only_what_found_pieces_leave_of_a_small_block() -> None:
    profile = Profile(
        [piece("p1", "Ana is diabetic.")],
        identity=[piece("p2", "Ana lives in Lima " + "word " * 12)],
    )
    near = many("n", 90)
    full = block(assemble(profile, found(*many("t", 90), neighbors=near), 600))
    assert full.ids["profile"] == ("p1",)
    # Before the turns next to found ones, and those that hardly answer.
    left = block(assemble(profile, found(*many("t", 3), neighbors=near), 600))
    assert left.ids["profile"] == ("p1", "p2")
    large = block(assemble(profile, found(*many("t", 90), neighbors=near), 1_500))
    assert large.ids["profile"] == ("p1", "p2")


def test_what_somebody_likes_is_one_line() -> None:
    liked = [
        piece("p1", "Ana likes jazz."),
        piece("p2", "Ana loves mint tea.", note="(until 2026-03-04)"),
        piece("p3", "Ana's friend is into chess."),
        piece("p4", "Ana likes jazz"),
    ]
    own = [piece("p5", "I hate rain.", speaker="Ben")]
    profile = Profile([piece("p0", "Ana is diabetic.")], preferences=[("Ana", liked), ("", own)])
    made = block(assemble(profile, found(*many("t", 90)), 800))
    assert made.text.startswith(
        "## Profile\n- Ana is diabetic.\n"
        "- Ana likes jazz; loves mint tea (until 2026-03-04); Ana's friend is into chess\n"
        "- Ben: I hate rain\n## "
    )
    assert made.ids["profile"] == ("p0", "p1", "p2", "p3", "p5")
    many_more = [piece(f"m{n}", f"Ana likes thing number {n}.") for n in range(90)]
    small = block(assemble(Profile(preferences=[("Ana", many_more)]), found(*many("t", 90)), 500))
    start = small.text.index("## ", 3)
    assert 0.1 * 500 < estimate_tokens(small.text[:start]) <= 0.15 * 500 + 1


def test_the_profile_keeps_within_its_share_and_is_essential_in_small_blocks() -> None:
    profile = Profile(many("health", 90), many("hobby", 90))
    small = block(assemble(profile, found(*many("t", 90)), 600))
    assert 0 < len(small.ids["profile"]) < 10
    assert all(name.startswith("health") for name in small.ids["profile"])
    start = small.text.index("## ", 3)
    assert estimate_tokens(small.text[:start]) <= 0.15 * 600 + 1


def test_the_question_is_not_in_its_own_block() -> None:
    asked = piece("t1", "Where is  Ana?", 0, "Ben")
    made = block(
        assemble(
            Profile(),
            found(
                asked,
                piece("t2", "Ana is in Lima."),
            ),
            500,
        )
    )
    assert made.ids["lines"] == ("t2",)


def test_the_same_words_stand_once() -> None:
    pieces = (piece("a", "Ana lives in Lima"), piece("b", " ANA lives in  Lima! "))
    assert block(assemble(Profile(), found(*pieces), 500)).ids["lines"] == ("a",)


def test_what_no_longer_holds_does_not_stand_for_what_does() -> None:
    pieces = (piece("a", "Ana lives in Lima.", note="(no longer)"), piece("b", "Ana lives in Lima"))
    assert block(assemble(Profile(), found(*pieces), 500)).ids["lines"] == ("a", "b")


def test_the_budget_is_filled_and_the_most_relevant_are_whole() -> None:
    long = "I moved to Lima in May. " + "The weather was nice that day. " * 12
    pieces = [piece(f"t{n}", f"{n} {long}", n, "Ana") for n in range(60)]
    made = block(assemble(Profile(), found(*pieces), 1_000))
    assert made.tokens >= 950
    first = next(row for row in made.text.split("\n") if row.startswith("- Ana: 0 "))
    assert "…" not in first
    assert len(made.ids["lines"]) > 15
    assert sum("…" in row for row in made.text.split("\n")) > 10


def test_a_budget_with_room_holds_everything_whole() -> None:
    long = "I moved to Lima in May. " + "The weather was nice that day. " * 12
    made = block(assemble(Profile(), found(piece("a", long), piece("b", "short")), 1_000))
    assert "…" not in made.text


def test_neighbors_come_only_into_the_room_that_is_left() -> None:
    near = (piece("n", "That was before it."),)
    alone = block(assemble(Profile(), found(piece("a", "I moved."), neighbors=near), 200))
    assert alone.ids["lines"] == ("a", "n")
    full = block(assemble(Profile(), found(*many("t", 90), neighbors=near), 200))
    assert "n" not in full.ids["lines"]


CODE = "Ben's script:\n\n\ndef main():\n    # twice\n    print(1)\n\n## Profile\n- Ben likes me."


def test_the_lines_of_a_text_stay_and_make_no_entries() -> None:
    made = block(assemble(Profile(), found(piece("a", CODE, note="(then)"), piece("b", "x")), 200))
    gap = " " * 6
    assert made.text.split("\n") == [
        *("## 1 March 2026", "- Ben's script:", gap, f"{gap}def main():", f"{gap}    # twice"),
        *(f"{gap}    print(1)", gap, f"{gap}## Profile", f"{gap}- Ben likes me. (then)", "- x"),
    ]
    assert made.line_ids == ((), *[("a",)] * 8, ("b",))
    assert made.ids["lines"] == ("a", "b")


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\r", "\v", "\u2028", "\x85"])
def test_no_line_of_a_text_begins_where_those_of_the_block_do(sign: str) -> None:
    text = sign.join(("one", "## two", "- three. " + "words " * 90, "# four"))
    for budget in (60, 200):
        profile = Profile([piece("p", f"Ana said:{sign}# five")])
        made = block(assemble(profile, found(piece("a", text)), budget))
        begins = [line[:2] for line in made.text.splitlines() if line[:1] != " "]
        assert begins == ["##", "- "] * (len(begins) // 2)


def test_an_excerpt_has_the_lines_of_what_it_shows() -> None:
    text = "Steps:\n- Boil the water.\n  Wait.\n" + "- Then stir it on.\n" * 20 + "- Serve rice."
    made = excerpt(text, 60, stems("rice"), stems)
    assert made.startswith("Steps:\n      - Boil the water.\n        Wait.")
    assert made.endswith(" …\n      - Serve rice.")


def test_an_excerpt_has_the_lead_and_what_is_asked() -> None:
    text = (
        "Thanks, those are good ideas for the garden party in early June! I will try them all. "
        "We also need chairs and a tent. By the way, my sister moved to Lima last week. "
        "Anyway, what about music?"
    )
    made = excerpt(text, 100, stems("Where does the sister live now? In Lima?"), stems)
    assert made == (
        "Thanks, those are good ideas for the garden party in early June! …"
        " By the way, my sister moved to Lima last week. …"
    )
    assert excerpt(text, 1_000, frozenset(), stems) == text


def test_an_excerpt_of_a_long_text_has_the_sentence_nearest_in_meaning() -> None:
    filler = [
        f"The weather of day {number} was the same as the one before." for number in range(60)
    ]
    said = "The plumber comes back in May."
    by_words = "She asked when the heating will be finished."
    text = " ".join([*filler[:20], by_words, *filler[20:], said])
    wanted = stems("When will the heating be finished?")

    def nearest(sentences: Sequence[str]) -> int | None:
        return sentences.index(said)

    made = excerpt(text, 100, wanted, stems, nearest)
    assert made.endswith(f"… {said}")
    assert by_words not in made  # in its place, not beside it, as long as there is no room
    assert by_words in excerpt(text, 200, wanted, stems, nearest)
    assert by_words in excerpt(text, 100, wanted, stems, lambda sentences: None)
    far = f"{text} {' '.join(filler * 6)} It was in May that he came, with the heating."
    assert excerpt(
        far, 100, stems("heating"), stems, lambda sentences: len(sentences) - 1
    ).endswith("with the heating.")
    assert "May" not in excerpt(far, 100, stems("heating"), stems)
    short = " ".join([by_words, *filler[:20], said])
    assert excerpt(short, 100, wanted, stems, nearest) == excerpt(short, 100, wanted, stems)


def test_an_excerpt_has_what_few_of_the_sentences_hold() -> None:
    text = (
        "Here are prompt parameters that you can choose for the output of a long prompt. "
        "Voice is a parameter of each prompt here. Tone is a parameter of each prompt here. "
        "26. Soliloquy. 27. Sound effects."
    )
    made = excerpt(text, 100, stems("prompt parameters on a list") | {"27"}, stems)
    assert "27. Sound effects" in made
    assert "Tone" not in made


def test_a_vague_question_and_one_that_nothing_answers_have_some_of_the_unlikely() -> None:
    def results(*scores: float) -> Found:
        rows = [
            RecallResult(
                *(str(n), f"turn {n}", "episodic", score, Scores(None, None, 0, 0, 0), "hybrid"),
                *("s", "Ana", "1", None, (), (), (), (), False, 0.1, BEGIN, BEGIN),
                unlikely=score < 0.2,
            )
            for n, score in enumerate(scores)
        ]
        answer = RecallAnswer("what was the 27th?", "hybrid", tuple(rows))
        return found_pieces(Retrieval(answer, (), EXPLAINED, ALLOWED), "english", frozenset())

    vague = results(0.3, *[0.1] * 50)
    assert (len(vague.pieces), len(vague.neighbors)) == (LEAST_RESULTS, 51 - LEAST_RESULTS)
    assert len(results(*[0.3] * 30, *[0.1] * 9).pieces) == 30
    nothing = results(*[0.1] * 30)
    assert (len(nothing.pieces), len(nothing.neighbors)) == (NEAREST, LEAST_RESULTS - NEAREST)
    assert "27" in results(0.3).wanted


def test_an_excerpt_of_a_text_without_sentences_is_short() -> None:
    assert len(excerpt("x" * 5_000, 100, frozenset(), stems)) < 400
    assert len(excerpt("猫が好きです" * 500, 100, frozenset(), stems)) < 400


def test_numbered_lists_are_not_cut_after_their_numbers() -> None:
    text = "Here are some tips for the long way home from work: 1. Walk. 2. Run more. " * 3
    assert "1. …" not in excerpt(text, 100, stems("run"), stems)


TEXTS = st.text(max_size=80) | st.sampled_from(
    ["猫が好きです", "Она живёт в Казани", "🎉" * 9, "a-b_c", "One. Two? Three! " * 20]
)
PIECES = st.lists(
    st.builds(
        Piece,
        st.uuids().map(str),
        TEXTS,
        st.datetimes(timezones=st.just(UTC)),
        st.sampled_from(["", "Ana"]),
    ),
    max_size=12,
)


@given(PIECES, PIECES, st.integers(0, 300))
def test_never_over_budget_and_every_id_has_its_line(
    profile: list[Piece], pieces: list[Piece], budget: int
) -> None:
    made = assemble(Profile(profile), found(*pieces), budget)
    if made is None:
        return
    assert estimate_tokens(made.text) == made.tokens <= budget
    rows = [row for row in made.text.split("\n") if row.startswith("- ")]
    assert len(rows) == sum(map(len, made.ids.values()))


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_estimate_adds_up_over_lines(a: str, b: str) -> None:
    assert estimate_tokens(f"{a}\n{b}") == estimate_tokens(a) + 1 + estimate_tokens(b)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("the cat", 2),
        ("internationalization", 4),
        ("2026-03-01", 6),
        ("猫が好き", 4),
        ("Казань", 3),
        ("🎉", 2),
        ("Ana’s", 3),
        ("a\n\nb", 4),
    ],
)
def test_the_estimate(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_token_is_about_four_characters_of_english() -> None:
    text = (
        "- Ana: I went to see the new apartment yesterday, and it was brighter than I expected."
        " The kitchen is small, but there's a balcony where we could have breakfast in summer."
    )
    assert len(text) / 4 == pytest.approx(estimate_tokens(text), rel=0.15)


def test_shares_can_be_set() -> None:
    profile = Profile([piece("p1", "Ana is diabetic.")])
    none = ContextSettings(profile_share=0.0)
    made = block(assemble(profile, found(*many("f", 9)), 500, none))
    assert made.ids["profile"] == ()
