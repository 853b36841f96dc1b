"""Words for the end of a time, read from when and where they were said."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.streams.text.dates import MOST_CHARACTERS, end_of
from tests.examples import examples

BERLIN = timezone(timedelta(hours=1))
SAID_AT = datetime(2024, 3, 12, 9, 30, tzinfo=BERLIN)
"""A Tuesday."""

DAYS = {
    "2024-03-12": ["today", "heute", "今日", "end of the day"],
    "2024-03-13": ["tomorrow", "until tomorrow", "morgen", "明日", "あしたまで"],
    "2024-03-14": ["the day after tomorrow", "übermorgen", "明後日"],
    "2024-03-15": [
        *("next Friday", "Friday", "this Friday", "in 3 days", "by Friday", "nächsten Freitag"),
        *("bis Freitag", "金曜日", "次の金曜日", "三日後", "March 15", "15. März", "3月15日まで"),
        *("2024-03-15", "20240315", "the 15th", "15.03.2024", "15/03/2024", "２０２４年３月１５日"),
        *("le 15 mars", "viernes", "в пятницу", "  next\tFriday. "),
    ],
    "2024-03-17": ["end of the week", "this week", "Ende der Woche", "今週", "週末"],
    "2024-03-19": ["Tuesday", "next Tuesday"],
    "2024-03-22": ["Friday next week", "Freitag nächster Woche", "来週の金曜日"],
    "2024-03-24": ["next week", "next weekend", "nächste Woche", "来週"],
    "2024-03-25": ["再来週の月曜日", "Monday of next week after next"],
    "2024-03-26": ["in two weeks", "in 2 weeks", "in a fortnight", "in zwei Wochen", "2週間後"],
    "2024-03-31": [
        *("until the end of March", "end of the month", "March", "end of this quarter"),
        *("Ende März", "bis Ende des Monats", "Monatsende", "3月末", "月末", "今月いっぱい"),
    ],
    "2024-04-30": ["next month", "end of next month", "nächsten Monat", "来月", "来月末まで"],
    "2024-05-12": ["in 2 months", "2か月後"],
    "2024-06-30": ["next quarter", "nächstes Quartal"],
    "2024-12-31": ["2024", "end of the year", "Jahresende", "今年", "年末", "end of 2024"],
    "2025-03-11": ["2025-03-11", "11 March 2025"],
    "2025-02-28": ["February 2025", "end of February 2025", "2025年2月"],
    "2027-03-12": ["in 3 years", "3年後"],
}
MOMENTS = {
    "2024-03-12T17:00:00+01:00": ["5 pm", "today at 5pm"],
    "2024-03-13T08:00:00+01:00": ["8 am", "tomorrow at 8:00"],
    "2024-03-12T10:30:00+01:00": ["in an hour", "10:30"],
    "2024-03-15T12:00:00+01:00": ["Friday at noon"],
    "2025-03-15T17:00:00+00:00": ["15 Mar 2025 18:00 CET", "2025-03-15T18:00:00+01:00"],
    "2025-03-15T18:00:00+01:00": ["2025-03-15T18:00", "2025-03-15 18:00:00"],
}
NONE = (
    *("", " ", "soon", "never", "forever", "ongoing", "until further notice", "when it is done"),
    *(
        "12",
        "1.2.3",
        "1742000000",
        "Q3",
        "03/04/2025",
        "4-5-2025",
        "2024-02-30",
        "Feb 30",
        "13月1日",
    ),
    *("9999-12-31", "0001-01-01", "in 100000 years", "beginning of March", "今まで", "駅", "月"),
    *("x" * 10_000, "1" * 10_000, "next " * 100, "(" * MOST_CHARACTERS, "\0", "٣ مارس", "😀"),
)


@pytest.mark.parametrize("day", DAYS)
def test_a_day_lasts_to_its_end_where_it_was_said(day: str) -> None:
    last = datetime.fromisoformat(f"{day}T23:59:59+01:00")
    assert {words: end_of(words, SAID_AT) for words in DAYS[day]} == dict.fromkeys(DAYS[day], last)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_time_of_day(moment: str) -> None:
    assert {end_of(words, SAID_AT) for words in MOMENTS[moment]} == {datetime.fromisoformat(moment)}


@pytest.mark.parametrize("words", NONE, ids=lambda words: repr(words[:20]))
def test_what_names_no_time_for_sure(words: str) -> None:
    assert end_of(words, SAID_AT) is None


def test_the_offset_is_that_of_who_said_it() -> None:
    late = datetime(2026, 3, 1, 16, 30, tzinfo=UTC)
    tokyo = late.astimezone(timezone(timedelta(hours=9)))
    assert end_of("tomorrow", late) == datetime(2026, 3, 2, 23, 59, 59, tzinfo=UTC)
    assert end_of("tomorrow", tokyo) == datetime(2026, 3, 3, 14, 59, 59, tzinfo=UTC)
    assert end_of("2026-03-05", tokyo) == datetime(2026, 3, 5, 14, 59, 59, tzinfo=UTC)


def test_neither_the_clock_nor_the_machine_s_zone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import dateparser.date
    import dateparser.date_parser
    import dateparser.freshness_date_parser
    import dateparser.parser
    import dateparser.utils
    import dateparser.utils.time_spans

    def read(*_: object) -> NoReturn:
        raise AssertionError("the world was read")

    class Known(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Frozen(datetime, metaclass=Known):
        now = classmethod(read)  # type: ignore[assignment]
        today = classmethod(read)  # type: ignore[assignment]
        utcnow = classmethod(read)  # type: ignore[assignment]

    for module in (
        *(dateparser.date, dateparser.date_parser, dateparser.freshness_date_parser),
        *(dateparser.parser, dateparser.utils, dateparser.utils.time_spans),
    ):
        for name in ("datetime", "get_localzone", "_get_localzone"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, Frozen if name == "datetime" else read)
    for day, said in DAYS.items():
        last = datetime.fromisoformat(f"{day}T23:59:59+01:00")
        assert [end_of(words, SAID_AT) for words in said] == [last] * len(said)
    for words in NONE:
        assert end_of(words, SAID_AT) is None


def test_nothing_is_loaded_for_it_before_it_is_needed() -> None:
    program = (
        "import sys, palimpsest.streams.topology, palimpsest.streams.rules.model,"
        " palimpsest.ops.cli.main; print('dateparser' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from([word for said in DAYS.values() for word in said]),
    st.integers(-(10**6), 10**6).map(str),
)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(max_examples=examples(37))
@given(
    st.lists(PIECES, max_size=4).map(" ".join),
    st.datetimes(timezones=ZONES),
)
def test_any_words_at_any_time_raise_nothing_and_say_the_same_again(
    words: str, said_at: Any
) -> None:
    found = end_of(words, said_at)
    assert found == end_of(words, said_at)
    assert found is None or found.tzinfo is UTC
