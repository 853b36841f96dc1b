"""The two checks for contradictions: the coarse one that flags, the strict one that decides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.streams.statements.parsing import MAX_CHARACTERS, read
from palimpsest.streams.text.contradiction import (
    ANTONYMS,
    NEGATIONS,
    contradicts,
    shared_tokens,
    tokens,
    words_oppose,
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana likes green tea", "Ana doesn't like green tea"),
        ("Ana likes green tea", "Ana doesn\u2019t like green tea"),
        ("we don't deploy on Friday", "we deploy Friday"),
        ("the cache is enabled", "the cache is disabled"),
        ("guests: allow uploads of files", "guests: deny uploads of files"),
        ("the server accepts plain passwords", "the server rejects plain passwords"),
        ("always run the tests", "never run the tests"),
        ("the light is on", "the light is off"),
        ("the flag is true", "the flag is false"),
        ("Ana works without a net", "Ana works with a net"),
        ("Ana not only likes tea, Ana doesn't like milk", "Ana likes milk"),
    ],
)
def test_opposing_words_are_found_from_both_sides(a: str, b: str) -> None:
    assert words_oppose(a, b)
    assert words_oppose(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ana likes green tea", "Ana likes black tea"),
        # Only one shared word.
        ("Ana likes tea", "Ben doesn't like tea"),
        # Both sides negate.
        ("Ana never eats meat", "Ana doesn't eat meat, never"),
        # The same half of a pair, and both halves on one side: no opposition.
        ("the cache is enabled", "the cache is enabled now"),
        ("turn the light on and off", "turn the light on"),
        ("notebook of Ana", "the notebook of Ana"),
        ("", ""),
    ],
)
def test_no_opposing_words(a: str, b: str) -> None:
    assert not words_oppose(a, b)


@pytest.mark.parametrize(
    "said",
    [
        "Ana plays not only chess but go",
        "Ana has no problem with chess",
        "Ana plays, not just chess",
    ],
)
def test_a_wording_with_not_or_no_that_negates_nothing_flags_nothing(said: str) -> None:
    assert not words_oppose(said, "Ana plays chess with Ben and has a board")


def test_apostrophes_are_removed_and_short_tokens_left_out() -> None:
    assert tokens("I don't, can\u2019t & a B-52 won't") == {"dont", "cant", "52", "wont"}
    assert tokens("don't") == {"dont"} <= NEGATIONS


def test_shared_tokens_counts_words_once() -> None:
    assert shared_tokens("tea tea and cake", "Tea, cake, cake!") == 2


def test_the_lists_hold_what_tokens_can_give() -> None:
    for word in {*NEGATIONS, *(half for pair in ANTONYMS for half in pair)}:
        assert tokens(word) == {word}


@given(st.text(), st.text())
@settings(deadline=None)
def test_symmetric_and_never_with_itself(a: str, b: str) -> None:
    assert words_oppose(a, b) == words_oppose(b, a)
    assert not words_oppose(a, a)


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
@settings(max_examples=1000, deadline=None)
def test_any_words_can_be_read_and_no_statement_contradicts_itself(
    a: list[str], b: list[str]
) -> None:
    for join in (" ", ""):
        contradicts(join.join(a), join.join(b))
        assert not contradicts(join.join(a), join.join(a))


@given(st.text(max_size=MAX_CHARACTERS + 10))
@settings(max_examples=500, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    read(text)
    assert not contradicts(text, text)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("Ana drinks coffee every morning.", "Ana doesn't drink coffee every morning anymore."),
        ("Ana: I like tea.", "Ana doesn't like tea."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid with Ben."),
        ("Ana lives in Lisbon.", "Ana moved from Lisbon to Smallville."),
        ("Ana is vegetarian.", "Ana eats meat now."),
        ("Ana works at Acme as a cook.", "Ana quit her job at Acme."),
        ("Ana: Ich wohne in Berlin.", "Ana: Ich bin nach Wien gezogen."),
        ("Ana: コーヒーを飲みます。", "Ana: コーヒーは飲みません。"),
        ("Ana: 田中さんは先生です。", "Ana: 田中さんは先生ではありません。"),
        ("Ana: ベジタリアンです。", "Ana: 肉を食べます。"),
        ("Ana: 独身です。", "Ana: 結婚しています。"),
        ("Ana: タバコを吸います。", "Ana: タバコをやめました。"),
    ],
)
def test_the_known_cannot_stand_with_the_new(known: str, new: str) -> None:
    assert contradicts(new, known)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        # What was said may have ended before what is known began.
        ("Ana lives in Lisbon.", "Ana moved to Madrid in 2009."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid as a child."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid for two weeks."),
        ("Ana lives in Lisbon.", "Ana moved to Madrid before moving to Lisbon."),
        ("Haru: 大阪に住んでいます。", "Haru: 2009年に東京に引っ越しました。"),
        # An event stays true.
        ("Ana moved to Lisbon.", "Ana lives in Madrid."),
        # A district lies in a city, a city in a country.
        ("Ana lives in London.", "Ana moved to Camden."),
        ("Ana lives in Japan.", "Ana lives in Osaka now."),
        ("Ana lives in Lisbon.", "Ana: Ich wohne in Lissabon."),
        # What another sentence named.
        ("Ana loves that.", "Ana doesn't love that."),
        ("Ana: He likes jazz.", "Ana: He doesn't like jazz."),
        ("Ana knows.", "Ana doesn't know."),
        ("Ana: Das ist gut.", "Ana: Das ist nicht gut."),
        ("Ana: 好きです。", "Ana: 好きじゃないです。"),
        # Other days.
        ("Ana: 今日は忙しいです。", "Ana: 今日は忙しくないです。"),
        ("Ana hat gestern Fleisch gegessen.", "Ana hat gestern kein Fleisch gegessen."),
        ("Ana went to the gym.", "Ana did not go to the gym."),
        # Whose it is: another speaker's door is another door.
        ("Ana: The back door is locked.", "Ben: The back door is not locked."),
        ("My brother is married.", "My brother is not married."),
        # One more, beside what is known.
        ("Ana works at Acme.", "Ana also works at Brightwave."),
        ("Ana works at Acme.", "Ana works at Brightwave as well."),
        ("Ana: Ich arbeite bei Bosch.", "Ana: Ich arbeite auch bei Siemens."),
        # One of many is no other one.
        ("Ana: Mein Lieblingsbuch ist Momo.", "Ana: Mein Lieblingsbuch ist ein Krimi."),
        # Doubt, condition, quotation, restriction.
        ("Ana likes tea.", 'Ana "doesn\'t like" tea.'),
        ("Ana likes tea.", "Ana doesn't like tea unless it is green."),
        ("Ana likes tea.", "Does Ana not like tea?"),
        # Several of it may hold, of several people too.
        ("Ana's cousins live in Lisbon.", "Ana's cousins live in Madrid."),
        ("Ana's cousin lives in Lisbon.", "Ana's cousins moved to Madrid."),
        ("Ana's cousin is married.", "Ana's cousins are not married."),
        ("Ana's favourite dishes are soup.", "Ana's favourite dishes are stew."),
        ("One of Ana's favourite songs is Blue.", "One of Ana's favourite songs is Green."),
        ("Yuki: トヨタで働いています。", "Yuki: 東京で働いています。"),
        # The same value told in another way.
        ("Ana's birthday is June 13.", "Ana's birthday is 13 June."),
        ("The timeout is 60 seconds.", "The timeout is 1 minute."),
    ],
)
def test_both_may_be_true(known: str, new: str) -> None:
    assert not contradicts(new, known)
