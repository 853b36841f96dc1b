"""What ends what: single values by slot, and denials word for word."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.streams.claims.conflict import MAX_CHARACTERS, contradicts, denies, is_ambiguous
from palimpsest.streams.claims.source import as_stated
from palimpsest.streams.claims.values import apart
from tests.examples import examples

WORDS = (
    "Ana Ben: I my We not never doesn't no longer lives moved from to in Lisbon Madrid Japan works"
    " at Acme is married to single vegetarian eats meat quit stopped smoking smokes used gave up"
    " her job favourite colour blue green prefers tea over coffee , ; and but the a every morning"
    " now 5 2009 ? . ich nicht kein mehr wohne nach gezogen bei gekündigt aufgehört zu rauchen ist"
    " mag hasst die das Haus offen geschlossen Lieblingsfarbe 私は 弟 コーヒーを"
    " 飲みます 飲みません ではありません です に 住んでいます 東京 大阪 引っ越しました"
    " やめました が 好き 嫌い い ない る"
).split()


STATEMENTS = st.lists(st.sampled_from(WORDS), max_size=14)


@given(STATEMENTS, STATEMENTS)
@settings(max_examples=examples(62))
def test_any_words_can_be_read_and_no_statement_contradicts_itself(
    a: list[str], b: list[str]
) -> None:
    for join in (" ", ""):
        contradicts(join.join(a), join.join(b))
        as_stated(join.join(a), join.join(b))
        assert not contradicts(join.join(a), join.join(a))


@given(st.text(max_size=MAX_CHARACTERS + 10))
@settings(max_examples=examples(37))
def test_any_text_can_be_read(text: str) -> None:
    assert not contradicts(text, text)
    assert not is_ambiguous(text, [])


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("Ana lives in Lisbon.", "Ana moved to Madrid."),
        ("Ana moved to Lisbon.", "Ana lives in Madrid."),
        ("Ana moved to Lisbon.", "Ana moved to Madrid last week."),
        ("Ana lives in Lisbon, Portugal.", "Ana lives in Madrid, Spain."),
        ("Ana lives in Leeds with their cat.", "Ana moved to York."),
        ("Ana lives in Lisbon.", "Ana lives in Madrid with her parents."),
        ("Ana lives in lisbon.", "Ana moved to madrid."),
        ("Ana works at Acme.", "Ana started working at Brightwave."),
        ("Ana works as a nurse.", "Ana works as a pilot now."),
        ("Ana is single.", "Ana is engaged."),
        ("Ana is married to Tom.", "Ana is divorced."),
        ("Ana is dating Tom.", "Ana broke up with Tom."),
        ("Ana's boyfriend is Tom.", "Ana's boyfriend is Karl."),
        ("Ana is 34 years old.", "Ana is 35 years old."),
        ("Ana's birthday is on 4 May.", "Ana's birthday is on 5 May."),
        ("Ana is vegetarian.", "Ana eats meat again."),
        ("Ana's favourite colour is green.", "Ana's favourite color is blue now."),
        ("Ana's favourite film is Heat.", "Alien is Ana's favourite movie."),
        ("Ana has two cats.", "Ana has three cats."),
        ("Ana's email is ana@a.example.", "Ana's new e-mail address is ana@b.example."),
        ("Ana's phone number is 555 1000.", "Ana's phone number is 555 2000."),
        ("The meeting is on Tuesday.", "The meeting was moved to Thursday."),
        ("Ana's wedding is on 4 May.", "Ana's wedding is on 11 May."),
        # Denied word for word, whatever it says.
        ("Ana smokes.", "Ana quit smoking."),
        ("Ana eats sugar.", "Ana gave up sugar."),
        ("Ana loves opera.", "Ana hates opera."),
        ("Ana doesn't like opera.", "Ana loves opera."),
        ("Ana has a dog.", "Ana has no dog."),
        ("Ana drinks coffee every morning.", "Ana doesn't drink coffee every morning anymore."),
        ("The cellar door is locked.", "The cellar door is not locked."),
        ("Heike hat einen Hund.", "Heike hat keinen Hund mehr."),
        ("Ana: Ich rauche.", "Ana: Ich rauche nicht mehr."),
        ("ケンは肉を食べます。", "ケンは肉を食べません。"),
    ],
)
def test_the_known_cannot_stand_with_the_new(known: str, new: str) -> None:
    assert contradicts(new, known)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        # A place may lie in the other, and names are not what they seem.
        ("Ana lives in Córdoba.", "Ana lives in Spain."),
        ("Ana lives in Córdoba.", "Ana lives in Argentina."),
        ("Ana lives in London.", "Ana moved to Camden."),
        ("Ana lives near Boston.", "Ana lives in Cambridge."),
        ("Ana lives in Lisbon.", "Ana lives in Lissabon."),
        ("Ana lives in lisbon.", "Ana lives in portugal."),
        ("Ana lives in Lisbon with her cat.", "Ana lives in Portugal."),
        ("Ana stayed in Lisbon with her aunt.", "Ana lives in Madrid."),
        ("Ana lives in Lisbon.", "Ana moved to Gmail."),
        # Another word stands beside it.
        ("Ana lives in Lisbon.", "Ana also lives in Madrid."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid for two weeks."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid as a child."),
        ("Ana lives in Lisbon.", "Ana lives in Madrid on weekends."),
        ("Ana works at Acme.", "Ana works at Brightwave now as well."),
        ("Ana works at Acme.", "Ana works at Brightwave."),
        # A part, a form, a judgement, an older state.
        ("Ana works at Acme.", "Ana works at Acme Robotics now."),
        ("Ana is a teacher.", "Ana became a head teacher."),
        ("Ana is married to Liz.", "Ana is married to Elizabeth."),
        ("Ana is 34 years old.", "Ana is 24 years old."),
        ("Ana's favourite food is pizza.", "Ana's favourite food is delicious."),
        ("Ana's favourite band is Blur.", "Ana's favourite band is British."),
        ("Ana's favourite drink is coffee.", "Ana's favourite drink is espresso."),
        ("Ana has a cat.", "Ana has two cats."),
        ("Ana's phone number is 555 1000.", "Ana's phone number is +1 555-1000."),
        ("Ana's email is ana@a.example.", "Ana's work email is ana@b.example."),
        ("Ana's exam is on 5 June.", "Ana's exam is on 9 June."),
        ("Ana is vegetarian.", "Ana is vegan."),
        # Another thing is denied.
        ("Ana likes chocolate.", "Ana doesn't like the chocolate."),
        ("Ana likes chocolate.", "Ana doesn't just like chocolate."),
        ("Ana smokes.", "Ana quit smoking for Lent."),
        ("Ana smokes.", "Ana's sister doesn't smoke."),
        ("Ana likes working.", "Ana likes not working."),
        ("Some tests pass.", "Some tests do not pass."),
        ("My brother is married.", "My brother is not married."),
        ("Ana: He likes jazz.", "Ana: He doesn't like jazz."),
        ("Ana: The door is locked.", "Ben: The door is not locked."),
        ("Ana likes tea.", "Does Ana not like tea?"),
        ("Ana likes tea.", 'Ana "doesn\'t like" tea.'),
    ],
)
def test_both_may_be_true(known: str, new: str) -> None:
    assert not contradicts(new, known)


@pytest.mark.parametrize(
    ("moved", "known_on", "ends"),
    [
        ("in 2009", date(2026, 3, 1), False),
        ("in 2026", date(2026, 3, 1), False),
        ("in 2027", date(2026, 3, 1), True),
        ("in February 2026", date(2026, 3, 1), False),
        ("in March 2026", date(2026, 3, 1), True),
        ("on 2026-03-12", date(2026, 3, 1), True),
        ("on 2026-02-12", date(2026, 3, 1), False),
        ("in March 2026", None, False),
    ],
)
def test_what_happened_before_it_was_known_ends_nothing(
    moved: str, known_on: date | None, ends: bool
) -> None:
    assert contradicts(f"Ana moved to Madrid {moved}.", "Ana lives in Lisbon.", known_on) is ends


def test_a_name_that_two_people_share_is_nobodys() -> None:
    assert is_ambiguous("Sam lives in York.", ["Sam from work lives in Leeds."])
    assert is_ambiguous("Sam lives in York.", ["Ana's brother Sam plays chess."])
    assert not is_ambiguous("Sam lives in York.", ["Sam lives in Leeds.", "Ana knows Sam."])
    assert not is_ambiguous("Ana's brother Sam lives in York.", ["Sam from work lives in Leeds."])


@pytest.mark.parametrize(
    ("source", "fact", "only"),
    [
        ("I moved to Berlin.", "Ana moved to Berlin.", True),
        ("Oh, by the way, I moved to Berlin last month!", "Ana moved to Berlin.", True),
        ("Hi all. I live in Tokyo, Japan. How are you?", "Ana lives in Tokyo, Japan.", True),
        ("I don't smoke and I love tea.", "Ana does not smoke.", True),
        ("My sister isn't vegan anymore.", "Ana's sister is not vegan anymore.", True),
        ("It's fine. But I don't smoke anymore.", "Ana no longer smokes.", True),
        ("I quit Bosch and work at Siemens.", "Ana quit Bosch.", True),
        ("I don't live in Oslo anymore, I moved to Rome.", "Ana no longer lives in Oslo.", True),
        ("I got divorced, and I live alone.", "Ana got divorced.", True),
        (
            "I'm not vegetarian anymore, but I do not eat pork.",
            "Ana is no longer vegetarian.",
            True,
        ),
        ("I don't have a dog, I have two dogs.", "Ana does not have a dog.", False),
        ("I left Bosch, I came back in May.", "Ana left Bosch.", False),
        ("I don't eat meat, I only eat fish.", "Ana does not eat meat.", False),
        ("If I quit Bosch, I work at Siemens.", "Ana quit Bosch.", False),
        ("I wish I lived in Rome and worked at Siemens.", "Ana works at Siemens.", False),
        ("I moved to Rome, I was five.", "Ana moved to Rome.", False),
        ("I quit Bosch, my sister says.", "Ana quit Bosch.", False),
        ("I'm not vegetarian, as my aunt says.", "Ana is not vegetarian.", False),
        ("I don't eat meat this month.", "Ana does not eat meat.", False),
        ("I moved to Rome two years ago.", "Ana moved to Rome.", False),
        ("I don't smoke because of the baby.", "Ana does not smoke.", False),
        ("", "Ana does not smoke.", False),
    ],
)
def test_a_source_that_says_more_than_the_fact(source: str, fact: str, only: bool) -> None:
    assert as_stated(source, fact) == (fact if only else None)


def test_a_fact_is_news_where_its_source_says_now() -> None:
    assert as_stated("I work at Bosch now.", "Ana works at Bosch.") == "Ana works at Bosch now."


def test_denials_are_symmetric() -> None:
    assert denies("Ana smokes.", "Ana doesn't smoke.")
    assert denies("Ana doesn't smoke.", "Ana smokes.")


def test_places_apart() -> None:
    assert apart("lisbon", "madrid")
    assert apart("japan", "spain")
    assert apart("osaka", "spain")
    assert not apart("osaka", "japan")
    assert not apart("cambridge", "united states")
    assert not apart("lisbon", "nowhere")


def test_who_stopped_playing_does_not_play_any_more() -> None:
    assert contradicts("Ana stopped playing the cello.", "Ana plays the cello.")
    assert not contradicts("Ana stopped playing the cello.", "Ana plays the violin.")
