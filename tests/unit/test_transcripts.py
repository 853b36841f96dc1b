"""Transcripts of meetings and captions, as programs write them: who says what, and when."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Unreadable
from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read
from tests.unit.test_ingest_parts import turns

ZOOM = """WEBVTT

1
00:00:03.120 --> 00:00:05.550
Ana Lopez: Good morning.

2
00:00:13.010 --> 00:00:15.990
Ben O'Neil (he/him): Note: it is late.

3
00:00:16.010 --> 00:00:18.990
Dr. Müller [Guest]: Hello.

4
00:00:19.010 --> 00:00:20.990
+1 555 0100 / Lobby: Hi.
"""
TEAMS = """Weekly Sync
March 2, 2026, 9:00AM

Lopez, Ana   0:03
Good morning.

Ben O'Neil   0:09
Hi. I moved to Porto.
It was in May.

Lopez, Ana   1:02:09
Bye.
"""
OTTER = """Ana Lopez  0:00\x20\x20
Good morning.

Unknown Speaker  1:02:09\x20\x20
Bye.

Transcribed by https://otter.ai
"""
ZOOM_TEXT = "[Ana Lopez] 09:01:12\nGood morning.\n\n[Ben] 09:01:20\nHi there.\nI moved.\n"
MEET = """Weekly Sync (2026-03-02 09:00 GMT) - Transcript
Attendees
Ana Lopez, Ben O'Neil

00:00:00
Ana Lopez: Good morning.
Ben O'Neil: Hi.

00:05:00
Ana Lopez: I moved to Porto.

Meeting ended after 00:32:16
"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "zoom.vtt",
            ZOOM,
            [
                ("Ana Lopez", "Good morning."),
                ("Ben O'Neil (he/him)", "Note: it is late."),
                ("Dr. Müller [Guest]", "Hello."),
                ("+1 555 0100 / Lobby", "Hi."),
            ],
        ),
        (
            "teams.txt",
            TEAMS,
            [
                ("Lopez, Ana", "Good morning."),
                ("Ben O'Neil", "Hi. I moved to Porto. It was in May."),
                ("Lopez, Ana", "Bye."),
            ],
        ),
        ("otter.txt", OTTER, [("Ana Lopez", "Good morning."), ("Unknown Speaker", "Bye.")]),
        ("zoom.txt", ZOOM_TEXT, [("Ana Lopez", "Good morning."), ("Ben", "Hi there. I moved.")]),
        (
            "meet.txt",
            MEET,
            [
                ("Ana Lopez", "Good morning."),
                ("Ben O'Neil", "Hi."),
                ("Ana Lopez", "I moved to Porto."),
            ],
        ),
    ],
)
def test_who_speaks_in_a_meeting(
    name: str, text: str, said: list[tuple[str, str]], tmp_path: Path
) -> None:
    found, told = turns(tmp_path / name, text)
    assert [(each["speaker"], each["content"]) for each in found] == [
        (who if "555" not in who else found[-1]["speaker"], words) for who, words in said
    ]
    assert "BAD" not in told
    assert "cues without words" not in told


def test_lines_of_the_program_are_counted(tmp_path: Path) -> None:
    assert "1 entry is left out: 1 line of the program" in turns(tmp_path / "a.txt", OTTER)[1]
    _, told = turns(tmp_path / "b.txt", MEET)
    assert "4 entries are left out: 3 lines before the first time, 1 line of the program" in told


def test_who_speaks_after_a_dash_is_not_who_spoke_before(tmp_path: Path) -> None:
    found, _ = turns(
        tmp_path / "a.srt",
        "1\n00:00:01,000 --> 00:00:02,000\nAna: It is cold\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\n- How cold?\n- Very.\n\n"
        "3\n00:00:05,000 --> 00:00:06,000\n-5 degrees.\n\n"
        "4\n00:00:07,000 --> 00:00:08,000\nAna: See?\n",
    )
    assert [(each["speaker"], each["content"]) for each in found] == [
        ("Ana", "It is cold"),
        ("", "How cold?"),
        ("", "Very."),
        ("", "-5 degrees."),
        ("Ana", "See?"),
    ]


def test_cues_that_are_shown_word_by_word_are_said_once(tmp_path: Path) -> None:
    found, told = turns(
        tmp_path / "a.vtt",
        "WEBVTT\n\n00:00:00.160 --> 00:00:02.389 align:start position:0%\n \n"
        "hello<00:00:00.480><c> and</c><00:00:00.640><c> welcome</c>\n\n"
        "00:00:02.389 --> 00:00:02.399\nhello and welcome\n \n\n"
        "00:00:02.399 --> 00:00:04.500\nhello and welcome\nto<00:00:02.720><c> the</c> show\n\n"
        "00:00:04.500 --> 00:00:04.510\nto the show\n \n",
    )
    assert [each["content"] for each in found] == ["hello and welcome to the show"]
    assert "3 repeated lines" in told


FIRST = "1\n00:00:01,000 --> 00:00:02,000\nAna: One\n\n2\n"


@pytest.mark.parametrize(
    "timing",
    [
        "00:00:04,000 -> 00:00:05,000",
        "00:00:04,000 —> 00:00:05,000",
        "00:00:04 , 000 --> 00:00:05 , 000",
        "0:0:4.0 -> 0:0:5",
    ],
)
def test_a_time_in_a_loose_notation_is_read(tmp_path: Path, timing: str) -> None:
    (tmp_path / "a.srt").write_text(f"{FIRST}{timing}\nBen: I am allergic to nuts.\n")
    items = read(tmp_path / "a.srt")[1]
    assert [item for item in items if isinstance(item, Bad)] == []
    said = [json.loads(item.value or b"") for item in items if isinstance(item, Outgoing)]
    assert [(each["body"]["speaker"], each["body"]["content"]) for each in said] == [
        ("Ana", "One"),
        ("Ben", "I am allergic to nuts."),
    ]
    assert said[1]["occurred_at"] == "2026-03-01T12:00:04Z"


@pytest.mark.parametrize(
    "timing", ["--> 00:00:09,000", "00:00:xx -> 00:00:05", "00:00:04 —>00:0x:05", "00:00:04 -->"]
)
def test_a_cue_whose_time_cannot_be_read_is_bad_and_not_the_words_of_another(
    tmp_path: Path, timing: str
) -> None:
    (tmp_path / "a.srt").write_text(f"{FIRST}{timing}\nBen: I am allergic to nuts.\n")
    bad = [item for item in read(tmp_path / "a.srt")[1] if isinstance(item, Bad)]
    assert [(each.place.rpartition(":")[2], each.reason) for each in bad] == [
        ("6", f"a time that cannot be read: {timing}")
    ]
    assert ("Ana", "One") in spoken(tmp_path / "a.srt")


def test_lines_with_times_that_are_loose_or_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "[00:00:01] Ana: Hello\n[00:00:02] Ben: Hi\n[1:2:3] Cy: hey\n[00:00:xx] Dora: lost?\n"
    )
    assert spoken(tmp_path / "a.txt") == [
        ("Ana", "Hello"),
        ("Ben", "Hi"),
        ("Cy", "hey"),
        ("Dora", "lost?"),
    ]
    bad = [item.reason for item in read(tmp_path / "a.txt")[1] if isinstance(item, Bad)]
    assert bad == ["a time that cannot be read: [00:00:xx] Dora: lost?"]


@pytest.mark.parametrize("text", ["5 -> 6", "10:30 -> 11:00 moved to: Friday", "1:2 for us"])
def test_words_that_begin_with_numbers_are_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.srt").write_text(f"{FIRST}00:00:04,000 --> 00:00:05,000\nBen: It is\n{text}\n")
    assert spoken(tmp_path / "a.srt")[1] == ("Ben", f"It is {text}")


def spoken(path: Path) -> list[tuple[object, object]]:
    return [(each["speaker"], each["content"]) for each in turns(path, path.read_text())[0]]


def captions(*cues: str) -> str:
    return "\n".join(
        f"{number}\n00:00:{number:02},000 --> 00:00:{number:02},900\n{text}\n"
        for number, text in enumerate(cues, 1)
    )


@pytest.mark.parametrize(
    "sound",
    [
        *("[music]", "[MUSIC PLAYING]", "(laughter)", "(Applause)", "♪", "♪♪", "♪ la la la ♪"),
        *("♪ Happy birthday\nto you ♪", "♪ First line\n♪ second line", "- [door slams]"),
        *("<i>[dramatic music\nplaying]</i>", "[Musik] [Applaus]", "[laughs] (sighs)", "（笑）"),
        *(
            "【音楽】",
            "［拍手］",
            "[смех]",
            "[موسيقى]",
            "# Old songs #",
            "Ana: [coughs]",
            "🎵 oh 🎵",
        ),
    ],
)
def test_sounds_and_songs_are_nobodys_words(tmp_path: Path, sound: str) -> None:
    found, told = turns(tmp_path / "a.srt", captions("Ana: It is late.", sound, "Good night."))
    assert [each["content"] for each in found] == ["It is late.", "Good night."]
    assert "1 entry is left out: 1 description of sounds and songs" in told


@pytest.mark.parametrize(
    "words",
    [
        *("(I moved to Porto in May, as you know)", "(It is late.)", "[laughs] I am fine", "# one"),
        *("♪ la la ♪ Good morning", "I like [music]", "(a) first (b) second", "[1] is cited"),
    ],
)
def test_words_beside_sounds_are_said(tmp_path: Path, words: str) -> None:
    found, told = turns(tmp_path / "a.srt", captions("Ana: It is late.", words))
    assert [each["content"] for each in found] == ["It is late.", words]
    assert "sounds" not in told


def test_sounds_among_the_lines_of_a_cue_part_no_sentence(tmp_path: Path) -> None:
    text = captions("Ana: We were", "[thunder]", "[laughter]\nin Porto", "<v Ben>(sighs)\nWhen?")
    found, told = turns(tmp_path / "a.srt", text)
    assert [(each["speaker"], each["content"]) for each in found] == [
        ("Ana", "We were in Porto"),
        ("Ben", "When?"),
    ]
    assert "3 descriptions of sounds and songs" in told


def test_captions_of_sounds_alone_have_no_turns(tmp_path: Path) -> None:
    found, told = turns(tmp_path / "a.srt", captions("[music]", "♪ la ♪"))
    assert found == []
    assert "2 entries are left out: 2 descriptions of sounds and songs" in told
    assert "names no speakers" not in told


def said(path: Path, text: str) -> tuple[list[tuple[str, str]], str]:
    found, told = turns(path, text)
    assert "BAD" not in told
    return [(each["speaker"], each["content"]) for each in found], told


HEADS = [
    "Ann Lee (0:12)\nHello.\n\nBen (0:15)\nHi.\n",
    "Ann Lee (00:00:12):\nHello.\n\nBen (00:00:15):\nHi.\n",
    "Ann Lee (0:12): Hello.\nBen (0:15): Hi.\n",
    "Ann Lee [00:00:12]: Hello.\nBen [00:00:15]: Hi.\n",
    "Ann Lee 00:00:12\nHello.\n\nBen 00:00:15\nHi.\n",
    "Ann Lee\n0:12\nHello.\n\nBen\n0:15\nHi.\n",
    "Ann Lee, 0:12\nHello.\n\nBen, 0:15\nHi.\n",
    "Ann Lee | 00:12\nHello.\n\nBen | 00:15\nHi.\n",
    "[00:00:12] Ann Lee:\nHello.\n\n[00:00:15] Ben:\nHi.\n",
    "[00:00:12]\nAnn Lee: Hello.\n\n[00:00:15]\nBen: Hi.\n",
]


@pytest.mark.parametrize("text", HEADS)
def test_a_name_and_a_time_in_any_order(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    records = [each for each in read(tmp_path / "a.txt")[1] if isinstance(each, Outgoing)]
    found = [json.loads(each.value or b"") for each in records]
    assert [
        (each["body"]["speaker"], each["body"]["content"], each["occurred_at"]) for each in found
    ] == [
        ("Ann Lee", "Hello.", "2026-03-01T12:00:12Z"),
        ("Ben", "Hi.", "2026-03-01T12:00:15Z"),
    ]


def test_one_paragraph_with_a_time(tmp_path: Path) -> None:
    assert said(tmp_path / "a.txt", "Ann Lee  0:12\nHello.\n")[0] == [("Ann Lee", "Hello.")]


NAMED = "Ann: Hello\nBen: I moved to Porto.\nAnn: When?\n"


def test_lines_with_names_alone(tmp_path: Path) -> None:
    assert read_format(tmp_path / "a.txt", NAMED) == "captions"
    found, told = said(tmp_path / "a.txt", NAMED)
    assert found == [("Ann", "Hello"), ("Ben", "I moved to Porto."), ("Ann", "When?")]
    assert "3 turns tell no time" in told


def read_format(path: Path, text: str) -> str:
    path.write_text(text)
    return read(path)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\ufeff" + NAMED.replace("\n", "\r\n"),
            [("Ann", "Hello"), ("Ben", "I moved to Porto."), ("Ann", "When?")],
        ),
        (
            "Ann: It was\nvery late.\n\nNote: and cold.\nBen: Yes\nAnn: So\nit\nBen: is\n",
            [
                ("Ann", "It was\nvery late.\n\nNote: and cold."),
                *(("Ben", "Yes"), ("Ann", "So\nit"), ("Ben", "is")),
            ],
        ),
        (
            "Ann Lee:\nRemember: milk.\nBen:\nYes.\nAnn Lee:\nCy Ode is here.\nCy Ode: Hi.\n",
            [
                ("Ann Lee", "Remember: milk."),
                *(("Ben", "Yes."), ("Ann Lee", "Cy Ode is here."), ("Cy Ode", "Hi.")),
            ],
        ),
        (
            "**Ann:** Hi\n\n**Ben**: Yo\n\n**Ann:** So\n",
            [("Ann", "Hi"), ("Ben", "Yo"), ("Ann", "So")],
        ),
        (
            "Élise : Salut\nZoë : Bonjour\nÉlise : Oui\n",
            [("Élise", "Salut"), ("Zoë", "Bonjour"), ("Élise", "Oui")],
        ),
        (
            "Анна: Привет\nБорис: Да\nАнна: Нет\n",
            [("Анна", "Привет"), ("Борис", "Да"), ("Анна", "Нет")],
        ),
        (
            "田中：こんにちは\n佐藤：はい\n田中：じゃあ\n",
            [("田中", "こんにちは"), ("佐藤", "はい"), ("田中", "じゃあ")],
        ),
        (
            "سارة: مرحبا\nعمر: أهلا\nسارة: نعم\n",
            [("سارة", "مرحبا"), ("عمر", "أهلا"), ("سارة", "نعم")],
        ),
        (
            "Q: Why?\nA: So.\nQ: And?\nA: No.\n",
            [("Q", "Why?"), ("A", "So."), ("Q", "And?"), ("A", "No.")],
        ),
    ],
)
def test_lines_with_names_of_many_kinds(
    tmp_path: Path, text: str, expected: list[tuple[str, str]]
) -> None:
    found, _ = said(tmp_path / "a.txt", text)
    assert found == expected


def test_the_head_of_a_transcript_is_nobodys(tmp_path: Path) -> None:
    head = "Weekly Sync\nDate: 2 March 2026\nParticipants: Ann, Ben\n\n"
    found, told = said(tmp_path / "a.txt", head + NAMED)
    assert found[0] == ("Ann", "Hello")
    assert "3 lines before the first speaker" in told


def test_a_time_before_few_of_the_names_is_counted(tmp_path: Path) -> None:
    found, told = said(tmp_path / "a.txt", NAMED * 3 + "[9:41 AM] Ann: Late\n")
    assert found[-1] == ("Ann", "Late")
    assert "1 time before a name" in told


@pytest.mark.parametrize(
    "text",
    [
        *("INFO: a\nERROR: b\nINFO: c\n", "Title: a\nDate: b\n\nTitle: c\nDate: d\n"),
        *("A story.\nHe said: no.\nThen he went.\nAnd she went.\n", "key: 1\nkey: 2\n"),
        *("Files: a\nCopyright: b\nLicense: c\n\nFiles: d\nCopyright: e\nLicense: f\n", "Ann: a\n"),
        *("- name: Ann\n  age: 5\n- name: Ben\n  age: 6\n", "http://a.b/c\nhttp://a.b/d\n"),
        "commit 1\nAuthor: Ann\nDate: x\n\n    a\n\ncommit 2\nAuthor: Ann\nDate: y\n\n    b\n",
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(Unreadable):
        read(tmp_path / "a.txt")


def test_a_transcript_that_goes_on_or_is_renamed_doubles_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "a.txt", tmp_path / "b" / "other.txt"
    known = {each["turn_id"] for each in turns(first, NAMED)[0]}
    longer = {each["turn_id"] for each in turns(first, NAMED + "Ben: Hello\nAnn: Hello\n")[0]}
    assert known < longer
    assert len(longer) == len(known) + 2
    turns(second, NAMED)
    published = Published(None)
    for path in (first, second):
        records = [each for each in read(path)[1] if isinstance(each, Outgoing)]
        found = [
            published.standing(each)
            for each in recognised(records, published, datetime.now(UTC), lambda _: None)
        ]
    assert found == ["known"] * 3


def test_a_chat_in_which_somebody_writes_a_plan_is_a_chat(tmp_path: Path) -> None:
    plan = "Lunch - 12:30\nDinner - 18:30\nAnn: and\nBen: or\nAnn: so\n"
    text = f"24/11/17, 20:15 - Ann: Plan:\n{plan}24/11/17, 20:16 - Ben: Fine\n"
    assert read_format(tmp_path / "a.txt", text) == "whatsapp"


def test_an_arrow_and_a_line_of_a_chat_in_a_transcript_are_words(tmp_path: Path) -> None:
    text = "Ann Lee  0:01\n-->\n\nBen  0:02\n[02.03.26, 10:00:00] Zed: hi\n\nAnn Lee  0:03\nSo.\n"
    assert said(tmp_path / "a.txt", text)[0] == [
        ("Ann Lee", "-->"),
        ("Ben", "[02.03.26, 10:00:00] Zed: hi"),
        ("Ann Lee", "So."),
    ]


def test_long_words_between_names(tmp_path: Path) -> None:
    words = "\n".join(f"line {number}" for number in range(12))
    text = "".join(f"{name}: First.\n{words}\n" for name in ("Ann", "Ben", "Ann", "Ben"))
    found, _ = said(tmp_path / "a.txt", text)
    assert found == [(name, f"First.\n{words}") for name in ("Ann", "Ben", "Ann", "Ben")]
