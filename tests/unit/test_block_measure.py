from __future__ import annotations

from tests.soak.context_block import answer_words, plain_list, shares

TURN = (
    "I finally moved to a bright apartment near the old harbour last Tuesday,"
    " and I love the light there."
)


def test_a_turn_stands_by_its_lead_or_by_most_of_its_longer_words() -> None:
    lead = f"- Ana: {TURN[:70]} …"
    words = (
        "- Ana finally moved to a bright apartment near the harbour on Tuesday and loves its light"
    )
    assert shares(lead, [TURN], "").evidence == 1.0
    assert shares(words, [TURN], "").evidence == 1.0
    assert shares("- Ana: I moved to a bright place.", [TURN], "").evidence == 0.0
    # Words of several lines are no turn.
    assert shares(words.replace(" near", "\n- near"), [TURN], "").evidence == 0.0


def test_the_words_of_the_answer_are_counted_by_stem() -> None:
    text = "## 2026-03-01\n- Ana: I was painting in 2024.\n- Ben: Nice!"
    found = shares(text, [TURN], "She paints, since 2024, with oil colours")
    assert answer_words("She paints, since 2024") >= {"paint", "2024"}
    assert found.answer is not None
    assert 0.3 < found.answer < 0.9
    assert found.filler == 0.5
    assert shares(text, [TURN], "no").answer is None


def test_the_plain_list_passes_over_what_does_not_fit() -> None:
    turns = [("Ana", "x" * 30), ("Ben", "y" * 300), ("Ana", "z" * 30)]
    assert plain_list(turns, 20) == f"Ana: {'x' * 30}\nAna: {'z' * 30}"
