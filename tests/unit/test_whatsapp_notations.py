"""Chats of WhatsApp in the notations of phones: when, by whom, what is no message, and the same id
for the same message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Note
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using


def chat(tmp_path: Path, *lines: str, **choices: object) -> tuple[list[dict[str, str]], str]:
    """The turns of a chat (with `at`), and what was told of the rest."""
    path = tmp_path / "chat.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    turns: list[dict[str, str]] = []
    told: list[str] = []
    for item in read(path, using("whatsapp", **choices))[1]:
        if isinstance(item, Outgoing):
            message = json.loads(item.value or b"")
            turns.append({**message["body"], "at": message["occurred_at"]})
        else:
            told.append(item.text if isinstance(item, Note) else f"BAD {item.reason}")
    return turns, "\n".join(told)


# The 25th of March 2025 at 21:01, by language and phone.
EVENING = {
    "Arabic iOS": "[٢٥\u200f/٣\u200f/٢٠٢٥، ٩:٠١:١٠ م] Ana: x",
    "Arabic Android": "٢٥\u200f/٣\u200f/٢٠٢٥، ٩:٠١ م - Ana: x",
    "Bulgarian": "25.03.25 г., 21:01 ч. - Ana: x",
    "Bulgarian iOS": "[25.03.25 г., 21:01:10 ч.] Ana: x",
    "Chinese iOS": "[2025/3/25 下午9:01:10] Ana: x",
    "Chinese Android": "2025/3/25 晚上9:01 - Ana: x",
    "Chinese characters": "2025年3月25日 晚上9:01 - Ana: x",
    "Croatian": "25. 03. 2025. 21:01 - Ana: x",
    "Danish": "25.03.2025 21.01 - Ana: x",
    "Dutch": "25-03-2025 21:01 - Ana: x",
    "English AM": "3/25/25, 9:01 PM - Ana: x",
    "English with a narrow space": "[3/25/25, 9:01:10\u202fPM] Ana: x",
    "Finnish": "25.3.2025 klo 21.01 - Ana: x",
    "Finnish iOS": "[25.3.2025 klo 21.01.10] Ana: x",
    "French": "25/03/2025 à 21:01 - Ana: x",
    "French of Canada": "2025-03-25 21 h 01 - Ana: x",
    "German": "25.03.25, 21:01 - Ana: x",
    "Greek": "25/3/25, 9:01 μ.μ. - Ana: x",
    "Greek iOS": "[25/3/25, 9:01:10 μ.μ.] Ana: x",
    "Hindi": "25/3/25, 9:01 pm - Ana: x",
    "Hindi, older": "25/3/25, 9:01 अपराह्न - Ana: x",
    "Hungarian": "2025. 03. 25. 21:01 - Ana: x",
    "Hungarian iOS": "[2025. 03. 25. 21:01:10] Ana: x",
    "Hungarian, half a day": "2025. 03. 25. du. 9:01 - Ana: x",
    "Indonesian": "25/03/25 21.01 - Ana: x",
    "Japanese": "2025/03/25 午後9:01 - Ana: x",
    "Korean": "2025. 3. 25. 오후 9:01 - Ana: x",
    "Korean iOS": "[2025. 3. 25. 오후 9:01:10] Ana: x",
    "Malay": "25/3/25, 9:01 PTG - Ana: x",
    "Persian": "۲۰۲۵/۳/۲۵،\u200f ۲۱:۰۱ - Ana: x",
    "Persian years": "۱۴۰۴/۱/۵،\u200f ۹:۰۱ ب.ظ. - Ana: x",
    "Portuguese": "25/03/2025 às 21:01 - Ana: x",
    "Slovak": "25. 3. 2025, 21:01 - Ana: x",
    "Slovak iOS": "[25. 3. 2025, 21:01:10] Ana: x",
    "Spanish": "25/3/25, 9:01 p.\u00a0m. - Ana: x",
    "Swedish": "2025-03-25 21:01 - Ana: x",
    "Tamil": "25/3/25, பிற்பகல் 9:01 - Ana: x",
    "Thai years": "25/3/2568 21:01 - Ana: x",
    "Thai years of two digits": "25/3/68 21:01 - Ana: x",
    "Turkish": "25.03.2025 ÖS 9:01 - Ana: x",
    "Vietnamese": "25/3/25, 9:01 CH - Ana: x",
    "Vietnamese iOS": "[21:01:10, 25/3/2025] Ana: x",
}


@pytest.mark.parametrize("notation", EVENING)
def test_a_message_is_the_same_in_every_notation(notation: str, tmp_path: Path) -> None:
    [expected], _ = chat(tmp_path, "25/03/2025, 21:01 - Ana: x")
    [turn], told = chat(tmp_path, EVENING[notation])
    assert turn["at"].startswith("2025-03-25T21:01")
    assert turn["speaker"] == "Ana"
    assert "BAD" not in told
    assert turn["turn_id"] == expected["turn_id"]


MORNINGS = [
    "[٢٥\u200f/٣\u200f/٢٠٢٥، ٩:٠١:١٠ ص] Ana: x",
    "25/3/25, 9:01 π.μ. - Ana: x",
    "2025/3/25 上午9:01 - Ana: x",
    "2025/3/25 早上9:01 - Ana: x",
    "2025. 3. 25. 오전 9:01 - Ana: x",
    "25/3/25, 9:01 PG - Ana: x",
    "25.03.2025 ÖÖ 9:01 - Ana: x",
    "25/3/25, முற்பகல் 9:01 - Ana: x",
    "25/3/25, 9:01 SA - Ana: x",
    "2025/03/25 午前9:01 - Ana: x",
    "2025. 03. 25. de. 9:01 - Ana: x",
    "25/3/25, 9:01 a. m. - Ana: x",
]


@pytest.mark.parametrize("line", MORNINGS)
def test_the_first_half_of_a_day_is_known_in_each_language(line: str, tmp_path: Path) -> None:
    [turn], _ = chat(tmp_path, line)
    assert turn["at"].startswith("2025-03-25T09:01")


def test_noon_and_midnight_are_hours_of_their_halves(tmp_path: Path) -> None:
    turns, _ = chat(
        tmp_path,
        "2025. 3. 25. 오전 12:05 - Ana: a",
        "2025. 3. 25. 오후 12:05 - Ana: b",
        "2025/3/25 中午12:06 - Ana: c",
        "2025/3/25 凌晨3:06 - Ana: d",
    )
    assert [turn["at"][11:16] for turn in turns] == ["00:05", "12:05", "12:06", "03:06"]


def test_ids_depend_neither_on_phone_nor_on_the_order_guessed(tmp_path: Path) -> None:
    iphone, _ = chat(
        tmp_path,
        "[02/03/2025, 18:00:05] ~\u202fAna: See you",
        "[02/03/2025, 18:00:40] Ben: ok",
        "[02/03/2025, 18:00:50] Ben: ok",
        "[02/03/2025, 18:01:00] Ben: two\u00a0lines",
        "here",
    )
    android, _ = chat(
        tmp_path,
        "3/2/25, 6:00\u202fPM - Ana: See you",
        "3/2/25, 6:00\u202fPM - Ben: ok",
        "3/2/25, 6:00\u202fPM - Ben: ok",
        "3/2/25, 6:01\u202fPM - Ben: two lines",
        "here",
        "3/25/25, 6:01\u202fPM - Ben: later",
    )
    other, _ = chat(tmp_path, "02/03/2025, 18:00 - Ana: See you", date_order="mdy")
    ids = [turn["turn_id"] for turn in iphone]
    assert len(set(ids)) == 4
    assert [turn["turn_id"] for turn in android][:4] == ids
    assert other[0]["turn_id"] == ids[0]


def test_notices_are_told_by_the_mark_of_the_program(tmp_path: Path) -> None:
    turns, told = chat(
        tmp_path,
        "[25/03/2025, 21:00:00] Trip: \u200eAna ने आपको जोड़ा",
        "[25/03/2025, 21:00:01] Trip: \u200eAna mengganti nama grup menjadi \u201cRoma: 2025\u201d",
        "[25/03/2025, 21:00:02] Ana: \u200eKode keamanan Anda dengan Ana telah berubah.",
        "[25/03/2025, 21:00:03] Ana: \u200eपैनल कॉल छूट गई",
        "\u200e[25/03/2025, 21:00:04] Ana: \u200eछवि छोड़ी गई",
        "\u200e[25/03/2025, 21:00:05] Ana: Our house \u200eछवि छोड़ी गई",
        "[25/03/2025, 21:00:06] Ana: \u200ePOLL:",
        "When?",
        "\u200eOPTION: Friday (\u200e2 votes)",
        "[25/03/2025, 21:00:07] Ana: I added you \u200e<This message was edited>",
        "[25/03/2025, 21:00:08] \u202aTrip\u202c: \u200eThis message was deleted.",
    )
    assert [turn["content"] for turn in turns] == [
        "Our house",
        "POLL:\nWhen?\nOPTION: Friday (2 votes)",
        "I added you",
    ]
    assert {turn["speaker"] for turn in turns} == {"Ana"}
    assert "6 entries are left out: 4 notices of WhatsApp, 1 file, 1 deleted message" in told


def test_notices_of_android_have_no_name(tmp_path: Path) -> None:
    turns, told = chat(
        tmp_path,
        "25/3/25, 9:01 pm - Ana ने आपको जोड़ा",
        '25/3/25, 9:01 pm - Ana mengubah nama grup dari "A: b" menjadi "B"',
        "25/3/25, 9:02 pm - Ana: <मीडिया के बिना>",
        "25/3/25, 9:02 pm - Ana: \u200eIMG-20250325-WA0001.jpg (file terlampir)",
        "25/3/25, 9:02 pm - Ana: Pesan ini telah dihapus",
        "25/3/25, 9:03 pm - Ana: null",
        "25/3/25, 9:04 pm - Ana: x",
    )
    assert [turn["content"] for turn in turns] == ["x"]
    assert "3 files, 2 notices of WhatsApp, 1 deleted message" in told


def test_a_time_in_unknown_words_is_bad_and_nobody_elses_words(tmp_path: Path) -> None:
    turns, told = chat(
        tmp_path,
        "25/3/25, 9:01 pm - Ana: x",
        "25/3/25, 9:02 qqq - Ben: y",
        "25/3/25, 9:03 pm - Ana: z",
    )
    assert [turn["content"] for turn in turns] == ["x", "z"]
    assert "BAD a time that cannot be read: 25/3/25, 9:02 qqq" in told


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("1403/12/30", "2025-03-20"),
        ("1404/1/1", "2025-03-21"),
        ("1402/7/1", "2023-09-23"),
        ("1399/12/30", "2021-03-20"),
        ("1404/12/30", None),
        ("1446/9/25", None),
    ],
)
def test_days_of_other_calendars(stamp: str, at: str | None, tmp_path: Path) -> None:
    turns, told = chat(tmp_path, f"{stamp}, 21:01 - Ana: x")
    assert [turn["at"][:10] for turn in turns] == ([] if at is None else [at])
    assert ("BAD there is no such date" in told) == (at is None)


@pytest.mark.parametrize(
    "text",
    [
        "Det här meddelandet togs bort",
        "Du tog bort detta meddelande",
        "Tato zpráva byla odstraněna",
        "Tuto zprávu jste smazali",
        "Odstránili ste túto správu",
        "Du slettet denne meldingen",
        "Du slettede denne besked",
        "Denne meldingen ble slettet",
        "Ați șters acest mesaj",
        "Διαγράψατε αυτό το μήνυμα",
        "Izbrisali ste ovu poruku",
        "Изтрихте това съобщение",
        "Ez az üzenet törölve lett",
    ],
)
def test_a_deleted_message_is_no_word_of_anyone(text: str, tmp_path: Path) -> None:
    turns, told = chat(tmp_path, "25/03/2025, 21:00 - Ana: x", f"25/03/2025, 21:01 - Bo: {text}")
    assert [turn["content"] for turn in turns] == ["x"]
    assert "1 deleted message" in told


def test_a_chat_with_the_time_before_the_date_is_no_transcript(tmp_path: Path) -> None:
    path = tmp_path / "chat.txt"
    path.write_text("18:05, 14/03/2024 - An: chào\n18:06, 14/03/2024 - Minh: chào\n")
    form, items = read(path)
    bodies = [json.loads(each.value or b"")["body"] for each in items if isinstance(each, Outgoing)]
    assert form == "whatsapp"
    assert [each["speaker"] for each in bodies] == ["An", "Minh"]
