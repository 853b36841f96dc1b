"""What the rules make of one sentence: whose it is, what is left alone, what is split."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.schemas.messages import ContextTurn, NormalizedTurn
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.streams.prompting.prompts import TRUNCATED, extraction_prompt
from palimpsest.streams.prompting.replies import ExtractionDraft
from palimpsest.streams.rules.dates import with_dates
from palimpsest.streams.rules.model import answer
from palimpsest.streams.rules.passages import passages
from palimpsest.streams.rules.quotes import masked
from palimpsest.streams.rules.stated_ends import stated_end
from tests.unit.reply_texts import read_extraction

AT = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


def a_turn(content: str, speaker: str = "Ana") -> NormalizedTurn:
    return NormalizedTurn(
        turn_id="t",
        speaker=speaker,
        content=content,
        normalized_content=content,
        content_hash="0" * 64,
    )


def extract(said: str, speaker: str = "Ana", lines: bool = True) -> ExtractionDraft:
    turn = a_turn(storage_content(said), speaker)
    prompt = extraction_prompt(turn, AT, [], lines=said if lines else None)
    return read_extraction(answer(prompt))


def facts(said: str, speaker: str = "Ana", lines: bool = True) -> list[str]:
    """The facts that pass the gate."""
    return [f.content for f in extract(said, speaker, lines).facts if f.confidence >= 0.7]


# --- whose it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "Ich wohne in Berlin.",
        "Lavoro in banca a Torino.",
        "Tengo dos hijos y un perro.",
        "Je travaille dans un hôpital.",
        "Moro em Coimbra com minha irmã.",
        "Ik woon in Utrecht.",
        "Jag bor i Malmö med min katt.",
        "Saya tinggal di Jakarta.",
        "京都に住んでいます。",
        "Я живу в Казани.",
        "أسكن في عمان منذ سنتين.",
        "Me and my friend went to Prague.",
        "Took the night train to Vienna.",
        "Birthday: 3 May 1990, in Ghent",
        "We visited my aunt in Ghent.",
        "My husband and I live in Cork.",
    ],
)
def test_the_same_words_of_two_speakers_stay_two_facts(said: str) -> None:
    (first,), (second,) = facts(said, "Ana"), facts(said, "Bruno")
    assert first != second
    assert first.startswith("Ana")
    assert second.startswith("Bruno")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Me gusta el café.", "Ana: Me gusta el café."),
        ("Il me plaît beaucoup, ce livre.", "Ana: Il me plaît beaucoup, ce livre."),
        ("I miei amici vivono a Torino.", "Ana: I miei amici vivono a Torino."),
        ("Hij belt me elke dag.", "Ana: Hij belt me elke dag."),
    ],
)
def test_no_word_of_another_language_is_taken_for_english(said: str, kept: str) -> None:
    assert facts(said) == [kept]


@pytest.mark.parametrize(
    "said",
    ["No meat for me since May.", "No changes for my team in June.", "I no longer eat meat."],
)
def test_a_negation_is_no_greeting(said: str) -> None:
    (fact,) = facts(said)
    assert fact.lower().startswith(("no ", "ana: no ", "ana no longer"))


# --- quotations and code ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("My boss said: I hate remote work.", "Ana's boss said: I hate remote work."),
        ('Rita shouted "I quit my job" to the boss.', 'Rita shouted "I quit my job" to the boss.'),
        ("I set `my_port = 80` in the config.", "Ana set `my_port = 80` in the config."),
        ("My motto is 'I never give up', as ever.", "Ana's motto is 'I never give up', as ever."),
        ("Tom: I live in Boston now", 'Ana quotes Tom: "I live in Boston now"'),
    ],
)
def test_quotations_and_code_are_not_rewritten(said: str, told: str) -> None:
    draft = extract(said)
    assert [fact.content for fact in draft.facts] == [told]
    assert draft.triples == ()


@pytest.mark.parametrize(
    "said",
    [
        "```\nI hate my code\n```",
        "~~~\nI hate my code",
        "> I hate your idea",
        "SELECT name, city FROM people WHERE id = 7;",
        "$ git commit -m 'I fix my mess'",
        '"I have a dream that my children will be free."',
    ],
)
def test_what_is_only_quoted_or_code_states_nothing(said: str) -> None:
    assert facts(said) == []


def test_a_quotation_comes_back_as_it_was() -> None:
    text = 'She said "I am 5\' tall." Then `x = "y"` and «Je suis là» and 「私」.'
    hidden = masked(text)
    assert hidden.restored(hidden.text) == text
    assert "I am" not in hidden.text


# --- lines ------------------------------------------------------------------------------------


def test_a_list_stays_with_the_line_that_leads_to_it() -> None:
    said = "My allergies:\n- walnuts\n- shellfish"
    assert facts(said) == ["Ana's allergies: walnuts; shellfish"]
    assert facts(said, lines=False) == ["Ana's allergies: walnuts; shellfish"]


def test_items_that_are_clauses_stand_alone() -> None:
    said = "About me:\n- I live in Porto\n- my wife is from Chile"
    assert facts(said) == ["Ana lives in Porto", "Ana's wife is from Chile"]
    assert facts(said, lines=False) == ["Ana lives in Porto", "Ana's wife is from Chile"]


def test_a_wrapped_line_is_no_end_of_a_sentence() -> None:
    said = "I moved to Ghent with my two dogs and my old\npiano because the rent was too high."
    assert passages(said) == [said.replace("\n", " ")]
    assert passages("i like tea\ni hate rain") == ["i like tea", "i hate rain"]


def test_what_was_cut_off_is_no_statement() -> None:
    said = "I live in Porto. I work at a bank in the old town."
    prompt = extraction_prompt(a_turn(said), AT, [], max_characters=30)
    assert TRUNCATED in prompt.user
    draft = read_extraction(answer(prompt))
    assert [fact.content for fact in draft.facts] == ["Ana lives in Porto."]


# --- several facts in a sentence --------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "I moved to Lisbon and started a job at a bakery.",
            ["Ana moved to Lisbon", "Ana started a job at a bakery."],
        ),
        ("I love tea but my sister hates it.", ["Ana loves tea", "Ana's sister hates tea."]),
        ("I work at Acme and I live in Rome.", ["Ana works at Acme", "Ana lives in Rome."]),
        (
            "Last week I quit the choir and joined a club.",
            [
                "Last week (week of 2026-02-23) Ana quit the choir",
                "Last week (week of 2026-02-23) Ana joined a club.",
            ],
        ),
    ],
)
def test_two_facts_in_a_sentence_are_split_with_their_subject(said: str, told: list[str]) -> None:
    assert facts(said) == told


@pytest.mark.parametrize(
    "said",
    [
        "I don't drink and drive.",
        "I like to read and write at night.",
        "I helped my sister who moved to Lisbon and started a job.",
        "I love bread and butter.",
        "I bought a house and painted it.",
        "If I eat nuts, I get a rash.",
        "When I was young, I lived in Rome.",
        "My boss thinks I moved to Rome and started a firm.",
        "I used to smoke and drink a lot.",
        "I met Rita, Tom and my cousin in Rome.",
    ],
)
def test_what_reaches_over_the_joint_keeps_a_sentence_whole(said: str) -> None:
    assert len(facts(said)) == 1


# --- what is not stated -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "If I moved to Oslo, I would buy a boat.",
        "I would move to Oslo if I had the money.",
        "Imagine I lived on Mars.",
        "Had I studied law, I would own a yacht.",
        "I married a toaster. Just kidding!",
        "I'm the queen of England, jk",
        "Should I quit my job?! ",
        "what did you do in Rome last summer",
        "Is the cache enabled in production",
        "هل تحب الشاي؟",
        "元気ですか。",
        "Write me a poem about the sea.",
        "Translate this into French: I live in a village. My wife is a baker.",
        "Maybe I visited Oslo.",
        "Vielleicht ziehe ich nach Wien.",
    ],
)
def test_questions_jokes_suppositions_and_doubts_state_nothing(said: str) -> None:
    assert facts(said) == []
    assert extract(said).triples == ()


@pytest.mark.parametrize(
    "said",
    [
        "Maybe I visited Oslo when I was five.",
        "Apparently Rita moved to Bergen.",
        "Probably my sister Rita loves jazz.",
        "We use DuckDB for analytics.",
        "My neighbour thinks I love opera.",
        "Rita said that I love opera.",
        "My sister is Norwegian.",
        "It made me feel that I love jazz.",
        "I never visited Oslo.",
        "Everyone loves jazz in my town.",
        "I wish I lived in Oslo.",
    ],
)
def test_only_what_is_plainly_stated_is_related(said: str) -> None:
    assert extract(said).triples == ()


def test_a_relation_is_read_from_what_is_kept_of_a_doubtful_wish_to_remember() -> None:
    turn = a_turn("Remember that maybe I visited Oslo.").model_copy(
        update={"explicit_long_term_memory_intent": True}
    )
    draft = read_extraction(answer(extraction_prompt(turn, AT, [])))
    assert draft.facts
    assert draft.triples == ()


def test_a_full_stop_inside_a_name_ends_nothing() -> None:
    draft = extract("I was born in the U.S. in 1990. I work for Dr. J. Okafor in the lab.")
    assert [fact.content for fact in draft.facts] == [
        "Ana was born in the U.S. in 1990.",
        "Ana works for Dr. J. Okafor in the lab.",
    ]
    assert [triple.target for triple in draft.triples] == ["U.S.", "Dr. J. Okafor"]


# --- time -------------------------------------------------------------------------------------


def test_yesterday_is_counted_from_the_day_of_the_speaker() -> None:
    at = datetime(2026, 3, 1, 16, 0, tzinfo=UTC)  # 01:00 on the second in Japan
    turn = a_turn("I adopted a cat yesterday.")
    utc = extraction_prompt(turn, at, [])
    local = extraction_prompt(turn, at, [], utc_offset_minutes=540)
    assert "(2026-02-28)" in answer(utc)
    assert "(2026-03-01)" in answer(local)
    assert local.subject["occurred_at"] == "2026-03-02T01:00:00+09:00"
    assert "2026-03-02T01:00:00+09:00 (Monday)" in local.user


def test_until_ends_with_the_day_of_the_speaker() -> None:
    at = datetime(2026, 3, 2, 1, 0, tzinfo=timezone(timedelta(hours=9)))
    assert stated_end("until tomorrow", at) == datetime(2026, 3, 3, 14, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize("offset", [-1439, 0, 1439])
@pytest.mark.parametrize("year", [1, 9999])
def test_the_first_and_the_last_year_raise_nothing(year: int, offset: int) -> None:
    for at in (datetime(year, 1, 1, tzinfo=UTC), datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)):
        said = "Last year, last month, next year, next month, 99 years ago and yesterday I moved"
        turn = a_turn(f"{said} until the end of the month.")
        prompt = extraction_prompt(
            turn,
            at,
            [ContextTurn(speaker="Ben", occurred_at=at, content="Hello")],
            utc_offset_minutes=offset,
        )
        assert str(prompt.subject["occurred_at"])[:4] in [
            f"{near:04d}" for near in (year - 1, year, year + 1)
        ]
        read_extraction(answer(prompt))


@pytest.mark.parametrize("words", ["la\u017ft week", "f\u0131ve days ago", "th\u0130s month"])
def test_letters_that_are_others_in_another_case_raise_nothing(words: str) -> None:
    assert with_dates(f"I moved {words}", AT) == f"I moved {words}"


def test_years_have_four_digits_and_stay_in_the_calendar() -> None:
    assert with_dates("next year", datetime(9999, 5, 1, tzinfo=UTC)) == "next year"
    assert with_dates("last month", datetime(1, 1, 1, tzinfo=UTC)) == "last month"
    assert with_dates("last year", datetime(1000, 5, 1, tzinfo=UTC)) == "last year (0999)"


PIECES = (
    "I I'm my me We Ana Rita's and but , ; : \" ' ` ``` ~~~ \n - * 1. > | # “ ” 「 」 if would"
    " maybe said: Tom: yesterday last la\u017ft year until end of month \ud800 \U000f0000"
    " \U000f8000 京都 か。 \u061f \u0660 \u2028 \x85 ich non que [truncated] is a lives in it"
    " dont im i ."
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(st.sampled_from(PIECES.split(" ")), max_size=50).map(" ".join),
)


@given(
    TEXTS,
    TEXTS,
    st.datetimes(timezones=st.just(UTC)),
    st.integers(-1_439, 1_439),
    st.booleans(),
)
@settings(max_examples=600, deadline=None)
def test_no_text_and_no_time_raises(
    said: str, speaker: str, at: datetime, offset: int, intent: bool
) -> None:
    turn = a_turn("x").model_copy(
        update={
            "content": said,
            "speaker": speaker,
            "explicit_long_term_memory_intent": intent,
        }
    )
    # Not validated: a lone surrogate is no text for the schema, and must not raise here either.
    context = [ContextTurn.model_construct(speaker=speaker, occurred_at=at, content=said)]
    prompt = extraction_prompt(turn, at, context, 120, lines=said, utc_offset_minutes=offset)
    first = answer(prompt)
    assert first == answer(prompt)
    assert read_extraction(first).warnings == ()
