from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.database.analysis import (
    MAX_TERM_LENGTH,
    STOP_WORDS,
    algorithm,
    asks,
    query_tokens,
    tokens,
)

LANGUAGES = ["english", "german", "russian", "arabic", "hindi", "none"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("running", ["run", "running"]),
        ("Café", ["cafe"]),
        ("STRASSE straße", ["strass", "strasse", "strass", "strasse"]),
        ("ERR-4711", ["err-4711", "err", "4711"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("v0.58.1", ["v0.58.1", "v0", "58", "1"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("sha256", ["sha256", "sha", "256"]),
        ("2023-05-08", ["2023-05-08", "2023", "5", "8"]),
        ("1,000,000", ["1000000"]),
        ("3.14", ["3.14", "3", "14"]),
        ("anna@example.com", ["anna@example.com", "anna", "exampl", "example", "com"]),
        ("C++ C#", ["c++", "c", "c#", "c"]),
        ("de-stress", ["destress", "de", "stress"]),
        ("and/or", ["and", "or"]),
        ("Anna's", ["anna"]),
        ("don't", ["don", "t"]),
        ("__init__", ["init"]),
        ("... - _ '", []),
        ("", []),
    ],
)
def test_english_terms(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("数据库", ["数", "据", "库", "数据", "据库"]),
        ("Postgres数据", ["postgr", "postgres", "数", "据", "数据"]),
        ("ひらがな", ["ひ", "ら", "が", "な", "ひら", "らが", "がな"]),
        ("Ａ１", ["a1"]),
        ("ﬁne", ["fine"]),
    ],
)
def test_terms_of_other_scripts(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("written", "asked", "language"),
    [
        ("She was running", "runs", "english"),
        ("Die Häuser", "haus", "german"),
        ("Häuser", "hauser", "de"),
        ("медсестрой", "медсестра", "russian"),
        ("медсестрой", "медсестра", "english"),
        ("Зелёный", "зеленый", "english"),
        ("meetings", "meeting", "russian"),
        ("किताबें", "किताब", "english"),
        ("我家的猫叫小白", "猫", "english"),
        ("a de-stress day", "destress", "english"),
        ("see ERR-4711 again", "4711", "english"),
        ("the getUserName call", "user name", "english"),
        ("on 2023-05-08", "8", "english"),
        ("Wi-Fi", "WIFI", "english"),
    ],
)
def test_what_is_written_is_found(written: str, asked: str, language: str) -> None:
    assert set(query_tokens(asked, language)) <= set(tokens(written, language))


def test_queries_drop_function_words_unless_nothing_else_is_left() -> None:
    assert query_tokens("What did the nurses do in Hamburg?") == ["nurs", "hamburg"]
    assert query_tokens("who are you") == ["who", "are", "you"]
    assert query_tokens("Wo ist die Rechnung?", "german") == ["rechnung"]
    assert query_tokens("Где моя книга", "english") == ["книг"]


def test_function_words_of_another_language_are_kept() -> None:
    assert "die" in query_tokens("die hard", "english")


def test_a_query_asks_for_each_term_once() -> None:
    assert query_tokens("tea or Tea or teas") == ["tea"]


def test_languages_by_name_and_code() -> None:
    assert algorithm("EN") == algorithm("english") == "english"
    assert tokens("running", "none") == ["running"]
    with pytest.raises(ValueError, match="klingon"):
        tokens("x", "klingon")


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_function_words_are_listed_as_the_analyzer_writes_them(language: str) -> None:
    for word in STOP_WORDS[language]:
        assert word in tokens(word, language)


@given(st.text(max_size=200), st.sampled_from(LANGUAGES))
def test_any_text_gives_clean_terms(text: str, language: str) -> None:
    for term in tokens(text, language):
        assert 0 < len(term) <= MAX_TERM_LENGTH
        assert not any(char.isspace() for char in term)


@given(st.text(max_size=200), st.sampled_from(LANGUAGES))
def test_a_text_is_found_by_itself(text: str, language: str) -> None:
    assert set(query_tokens(text, language)) <= set(tokens(text, language))


@given(st.text(max_size=60), st.text(max_size=60))
def test_lines_are_analysed_apart(first: str, second: str) -> None:
    assert tokens(f"{first}\n{second}") == tokens(first) + tokens(second)


@given(st.from_regex(r"[A-Z]{2,5}-[0-9]{1,6}", fullmatch=True))
def test_identifiers_are_found_whole_and_by_part(identifier: str) -> None:
    found = tokens(f"It failed with {identifier}.")
    letters, digits = identifier.lower().split("-")
    assert identifier.lower() in found
    assert letters in found
    assert (digits.lstrip("0") or "0") in found


def test_long_blobs_are_no_terms() -> None:
    assert tokens("x" * 10_000) == []
    assert len(tokens("数" * 1_000)) == 1_999


def test_threads_get_the_same_terms() -> None:
    text = " ".join(f"nationality{n}s running houses" for n in range(300))
    expected = tokens(text)
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(tokens(text))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@pytest.mark.parametrize(
    "text",
    [
        "How is it?",
        "(really?!) Yes.",
        "元気\uff1f",
        "كيف الحال\u061f",
        "Πού μένεις;",
        "Πού μένεις\u037e",
        "ինչպե\u055eս",
    ],
)
def test_a_question_is_known_by_its_mark(text: str) -> None:
    assert asks(text)


@pytest.mark.parametrize("text", ["", "Fine.", "see http://a.de/x?y=1", "first; then", "x?y"])
def test_what_only_holds_such_a_sign_asks_nothing(text: str) -> None:
    assert not asks(text)
