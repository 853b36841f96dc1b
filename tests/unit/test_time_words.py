from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.recall.time_words import TimeFilter, read_times, tells_time

# A Wednesday.
NOW = datetime(2024, 3, 13, 15, 30, tzinfo=UTC)


def at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def says(query: str, since: str | None, until: str | None, now: datetime = NOW) -> TimeFilter:
    found = read_times(query, now)
    assert (found.since, found.until) == (at(since), at(until)), found
    assert found
    return found


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("last_week", "2024-03-06T15:30", "2024-03-13T15:30:01"),
        ("last_month", "2024-02-13T15:30", "2024-03-13T15:30:01"),
        ("yesterday", "2024-03-12", "2024-03-13"),
        ("today", "2024-03-13", "2024-03-14"),
        ("the day before yesterday", "2024-03-11", "2024-03-12"),
        ("what did Ana do last week?", "2024-03-04", "2024-03-11"),
        ("the week before last", "2024-02-26", "2024-03-04"),
        ("last weekend", "2024-03-09", "2024-03-11"),
        ("plans of last month", "2024-02-01", "2024-03-01"),
        ("this year", "2024-01-01", "2025-01-01"),
        ("last night", "2024-03-12T12:00", "2024-03-13T12:00"),
        ("in May 2023", "2023-05-01", "2023-06-01"),
        ("early May 2023", "2023-05-01", "2023-06-01"),
        ("2023-05-01..2023-05-31", "2023-05-01", "2023-06-01"),
        ("2023-05-01..", "2023-05-01", None),
        ("..2023-05-31", None, "2023-06-01"),
        ("2023-05", "2023-05-01", "2023-06-01"),
        ("2023/05/08", "2023-05-08", "2023-05-09"),
        ("since June", "2023-06-01", None),
        ("since last Monday", "2024-03-11", None),
        ("before 8 May 2023", None, "2023-05-08"),
        ("after May 8th, 2023", "2023-05-09", None),
        ("until 8 May 2023", None, "2023-05-09"),
        ("from May 2023 onwards", "2023-05-01", None),
        ("on Monday", "2024-03-11", "2024-03-12"),
        ("on Wednesday", "2024-03-13", "2024-03-14"),
        ("last Wednesday", "2024-03-06", "2024-03-07"),
        ("on the 8th of May", "2023-05-08", "2023-05-09"),
        ("on 10 March", "2024-03-10", "2024-03-11"),
        ("on 20 March", "2023-03-20", "2023-03-21"),
        ("last March", "2023-03-01", "2023-04-01"),
        ("in March", "2024-03-01", "2024-04-01"),
        ("in may", "2023-05-01", "2023-06-01"),
        ("since march", "2024-03-01", None),
        ("between May and July 2023", "2023-05-01", "2023-08-01"),
        ("from May to July 2023", "2023-05-01", "2023-08-01"),
        ("from 1 to 12 May", "2023-05-01", "2023-05-13"),
        ("in May or June", "2023-05-01", "2023-07-01"),
        ("after 2022 and before February 2024", "2023-01-01", "2024-02-01"),
        ("in 2023", "2023-01-01", "2024-01-01"),
        ("3 days ago", "2024-03-10", "2024-03-11"),
        ("two weeks ago", "2024-02-25", "2024-03-03"),
        ("a couple weeks ago", "2024-02-25", "2024-03-03"),
        ("a month ago", "2024-01-29", "2024-02-29"),
        ("a year ago", "2022-09-13", "2023-09-14"),
        ("a few days ago", "2024-03-08", "2024-03-12"),
        ("several weeks ago", "2024-01-14", "2024-02-25"),
        ("twelve days ago", "2024-03-01", "2024-03-02"),
        ("in the last month", "2024-02-13T15:30", "2024-03-13T15:30:01"),
        ("over the past few months", "2023-10-13T15:30", "2024-03-13T15:30:01"),
        ("last month", "2024-02-01", "2024-03-01"),
        ("the past weekend", "2024-03-09", "2024-03-11"),
        ("what did we do the week before?", "2024-03-04", "2024-03-11"),
        ("the past two weeks", "2024-02-28T15:30", "2024-03-13T15:30:01"),
        ("2023-05-08T10:00:00Z", "2023-05-08T10:00", "2023-05-08T10:00:01"),
        ("2023-05-08T10:00+09:00", "2023-05-08T01:00", "2023-05-08T01:01"),
    ],
)
def test_english(query: str, since: str | None, until: str | None) -> None:
    says(query, since, until)


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("先週何をしましたか", "2024-03-04", "2024-03-11"),
        ("昨日の夜", "2024-03-12", "2024-03-13"),
        ("2023年5月8日", "2023-05-08", "2023-05-09"),
        ("２０２３年５月に", "2023-05-01", "2023-06-01"),
        ("5月1日から5月31日まで", "2023-05-01", "2023-06-01"),
        ("先週の月曜日に会った人", "2024-03-04", "2024-03-05"),
        ("三日前", "2024-03-10", "2024-03-11"),
        ("2か月前", "2023-12-29", "2024-01-29"),
        ("過去2週間", "2024-02-28T15:30", "2024-03-13T15:30:01"),
        ("6月以降", "2023-06-01", None),
        ("5月8日より前", None, "2023-05-08"),
        ("昨年", "2023-01-01", "2024-01-01"),
        ("на прошлой неделе", "2024-03-04", "2024-03-11"),
        ("вчера", "2024-03-12", "2024-03-13"),
        ("в мае 2023 года", "2023-05-01", "2023-06-01"),
        ("с 1 по 31 мая", "2023-05-01", "2023-06-01"),
        ("с июня", "2023-06-01", None),
        ("до 8 мая 2023", None, "2023-05-08"),
        ("после 8 мая 2023", "2023-05-09", None),
        ("три дня назад", "2024-03-10", "2024-03-11"),
        ("месяц назад", "2024-01-29", "2024-02-29"),
        ("в понедельник", "2024-03-11", "2024-03-12"),
        ("в прошлом году", "2023-01-01", "2024-01-01"),
        ("за последние 7 дней", "2024-03-06T15:30", "2024-03-13T15:30:01"),
        ("08.05.2023", "2023-05-08", "2023-05-09"),
        ("letzte Woche", "2024-03-04", "2024-03-11"),
        ("vor 3 Tagen", "2024-03-10", "2024-03-11"),
        ("vor dem 8. Mai 2023", None, "2023-05-08"),
        ("seit Juni", "2023-06-01", None),
        ("im März", "2024-03-01", "2024-04-01"),
        ("Was hat sie gestern gemacht", "2024-03-12", "2024-03-13"),
        ("zwischen Mai und Juli 2023", "2023-05-01", "2023-08-01"),
    ],
)
def test_other_languages(query: str, since: str | None, until: str | None) -> None:
    says(query, since, until)


@pytest.mark.parametrize(
    "query",
    [
        "what may I march for",
        "May I ask what April said?",
        "they march 3 times",
        "she may 8 or 9 times",
        "what did August write to June",
        "a poem by June",
        "room 2023",
        "release 2.10.2023.1",
        "31 June",
        "2023-13-40",
        "next week",
        "the last time we met",
        "this is the third week of it",
        "daytime",
        "todayish",
        "ERR-2023-05x",
        "",
        "а что в марке",
        "月の光が好き",
        "after 2023 and before 2020",
        "9999-12-31..",
    ],
)
def test_what_is_no_time_is_left_alone(query: str) -> None:
    assert read_times(query, NOW) == TimeFilter()


def test_the_words_are_told() -> None:
    assert read_times("What did Ana say in May or June?", NOW).words == ("in May", "June")
    assert read_times("since last week, what changed?", NOW).words == ("since last week",)


def test_the_rest_is_the_query_without_them() -> None:
    found = read_times("What did Ana say in May or June, since 2 May, about tea?", NOW)
    assert found.rest == "What did Ana say or , , about tea?"
    assert read_times("last_week", NOW).rest == ""
    assert read_times("昨日、ハチは何をした", NOW).rest == "、ハチは何をした"
    assert read_times("tea " * 600, NOW).rest == ""


@pytest.mark.parametrize(
    ("query", "strict"),
    [
        ("last_week", True),
        ("tea last_week", True),
        ("tea 2023-05-01..2023-05-31", True),
        ("tea 2023-05-01..", True),
        ("yesterday?", True),
        ("in May 2023", True),
        ("tea in May 2023", False),
        ("tea 2023-05-01", False),
        ("what did she do yesterday", False),
    ],
)
def test_what_is_written_as_a_filter_is_strict(query: str, strict: bool) -> None:
    assert read_times(query, NOW).strict is strict


def test_days_begin_in_the_zone_of_now() -> None:
    tokyo = timezone(timedelta(hours=9))
    # 15:30 UTC is half past midnight of the 14th in Tokyo.
    found = read_times("yesterday", NOW.astimezone(tokyo))
    assert found.since == datetime(2024, 3, 12, 15, tzinfo=UTC)
    assert found.until == datetime(2024, 3, 13, 15, tzinfo=UTC)


def test_now_needs_a_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        read_times("yesterday", datetime(2024, 3, 13))


def test_29_february_is_found_in_a_leap_year() -> None:
    says("on 29 February", "2024-02-29", "2024-03-01")
    says("on 29 February", "2024-02-29", "2024-03-01", datetime(2027, 1, 5, tzinfo=UTC))


def test_the_end_of_a_month_a_month_back_exists() -> None:
    says(
        "last_month",
        "2024-02-29T08:00",
        "2024-03-31T08:00:01",
        datetime(2024, 3, 31, 8, tzinfo=UTC),
    )


WORDS = (
    "since before in last may March 8 31 2023 2023-05-01 .. to and week month ago a vor с по мая"
    " назад 5月 から 先週 99 of the"
)
PIECES = st.sampled_from(WORDS.split())


@given(st.lists(PIECES, max_size=9).map(" ".join) | st.text(max_size=60), st.datetimes())
def test_never_raises_and_never_gives_an_empty_span(query: str, now: datetime) -> None:
    found = read_times(query, now.replace(tzinfo=UTC))
    assert bool(found) == (found.since is not None or found.until is not None)
    if found.since is not None and found.until is not None:
        assert found.since < found.until


@pytest.mark.parametrize(
    "text",
    [
        "I moved last week.", "YESTERDAY!", "(on Fridays)", "two years ago", "in 2019",
        "by June 5th", "letzte Woche", "вчера приехала", "la semaine dernière", "el viernes",
        "a giugno", "昨日引っ越しました", "3月に行きます", "어제 왔어",
    ],
)  # fmt: skip
def test_a_text_tells_a_time(text: str) -> None:
    assert tells_time(text)


@pytest.mark.parametrize("text", ["May I ask you?", "Sundae", "20190", "lasting", "猫が好き", ""])
def test_a_text_tells_no_time(text: str) -> None:
    assert not tells_time(text)
