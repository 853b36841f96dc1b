"""Chats of WhatsApp with files, edits and deletions, in the forms of phones and languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_whatsapp_notations import chat

MARK = "\u200e"
AT = "25/03/2025, 21:01 - "
IOS = f"{MARK}[25/03/2025, 21:01:10] "


@pytest.mark.parametrize(
    "lines",
    [
        [f"{AT}Ana: IMG-20250325-WA0001.jpg (file attached)", "The new house"],
        [f"{AT}Ana: {MARK}IMG-20250325-WA0001.jpg (file attached)", "The new house"],
        [f"{AT}Ana: {MARK}IMG-20250325-WA0001.jpg (archivo que nadie conoce)", "The new house"],
        [f"{AT}Ana: Plan v2.pdf (dosya ekli)", "The new house"],
        [f"{AT}Ana: <Media omitted>", "The new house"],
        [f"{AT}Ana: <Medya dahil edilmedi>", "The new house"],
        [f"{AT}Ana: <省略多媒体文件>", "The new house"],
        [f"{IOS}Ana: The new house {MARK}<attached: 00000012-PHOTO.jpg>"],
        [f"{IOS}Ana: Plan v2.pdf • {MARK}3 pages The new house {MARK}<attached: 12-Plan v2.pdf>"],
    ],
)
def test_a_caption_is_said_and_its_file_is_not(lines: list[str], tmp_path: Path) -> None:
    [turn], _ = chat(tmp_path, *lines)
    [plain], _ = chat(tmp_path, f"{AT}Ana: The new house")
    assert turn["content"] == "The new house"
    assert turn["turn_id"] == plain["turn_id"]


@pytest.mark.parametrize(
    "line",
    [
        f"{AT}Ana: {MARK}Plan.pdf (ein Anhang)",
        f"{AT}Ana: {MARK}Plan.pdf (file attached)\nPlan.pdf",
        f"{IOS}Ana: Plan v2.pdf • {MARK}3 pages {MARK}<attached: 00000012-Plan v2.pdf>",
        f"{IOS}Ana: Plan v2.pdf • {MARK}1 страница {MARK}документ пропущен",
    ],
)
def test_a_file_without_a_caption_is_counted(line: str, tmp_path: Path) -> None:
    turns, told = chat(tmp_path, line, f"{AT}Ana: x")
    assert [turn["content"] for turn in turns] == ["x"]
    assert "1 entry is left out: 1 file" in told


def test_code_is_no_file(tmp_path: Path) -> None:
    [turn], _ = chat(tmp_path, f"{AT}Ana: <div>", "hello", "</div>")
    assert turn["content"] == "<div>\nhello\n</div>"


@pytest.mark.parametrize(
    "mark",
    [
        "<This message was edited>",
        "<Se editó este mensaje.>",
        "<Diese Nachricht wurde bearbeitet.>",
        "<Ce message a été modifié>",
        "<Questo messaggio è stato modificato>",
        "<Mensagem editada>",
        "<Dit bericht is bewerkt>",
        "<Данное сообщение изменено>",
        "<Bu mesaj düzenlendi>",
        "<Ta wiadomość została zedytowana>",
        "<Pesan ini diedit>",
        "<此消息已编辑>",
        "<이 메시지는 수정되었습니다>",
        "<تم تعديل هذه الرسالة>",
        f"{MARK}<any words of any language>",
    ],
)
def test_the_mark_of_an_edit_is_no_word(mark: str, tmp_path: Path) -> None:
    [turn], _ = chat(tmp_path, f"{AT}Ana: I live in Porto {mark}")
    assert turn["content"] == "I live in Porto"


@pytest.mark.parametrize(
    "notice",
    [
        "This message was deleted by admin Ben.",
        "Diese Nachricht wurde vom Admin Ben gelöscht.",
        "El admin. Ben eliminó este mensaje.",
        "Mensagem apagada pelo admin Ben",
        "הודעה זו נמחקה",
        "Повідомлення видалено",
        "Waiting for this message. This may take a while.",
        "Waiting for this message",
        "U hebt dit bericht verwijderd",
        "Wiadomość została usunięta",
        "Meddelandet har raderats",
        "Це повідомлення було видалено",
        "此消息已被删除",
        "這則訊息已刪除",
        "ההודעה נמחקה",
        "To sporočilo je bilo izbrisano",
        "Aquest missatge s'ha suprimit",
    ],
)
def test_a_deleted_message_is_no_turn(notice: str, tmp_path: Path) -> None:
    turns, told = chat(tmp_path, f"{AT}Ana: {notice}", f"{AT}Ana: x")
    assert [turn["content"] for turn in turns] == ["x"]
    assert "1 deleted message" in told


@pytest.mark.parametrize(
    "name",
    [
        "WhatsApp Chat with Ana",
        "WhatsApp Chat - Ana",
        "WhatsApp Chat mit Ana",
        "WhatsApp-chat met Ana",
        "Chat de WhatsApp con Ana",
        "Chat WhatsApp con Ana (1)",
        "Conversa do WhatsApp com Ana",
        "Discussion WhatsApp avec Ana",
    ],
)
def test_a_chat_is_called_as_in_every_language(name: str) -> None:
    from palimpsest.ops.ingest.parsers.whatsapp import _chat

    assert _chat(name) == "Ana"


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("25/3/23, 21:01 น.", "2023-03-25T21:01"),
        ("[2023-03-25 21 h 01 min 10 s]", "2023-03-25T21:01"),
        ("23. 3. 25. 오후 9:01", "2023-03-25T21:01"),
        ("[23. 3. 25. 오후 9:01:10]", "2023-03-25T21:01"),
        ("25. 3. 23., 21:01", "2023-03-25T21:01"),
        ("25/03/2023, 9:01 ከሰዓት", "2023-03-25T21:01"),
        ("25/03/23, 9:01 GD", "2023-03-25T21:01"),
        ("2023/3/25, 下晝9:01", "2023-03-25T21:01"),
        ("25-3-2023, পূৰ্বাহ্ন 9.01", "2023-03-25T09:01"),
        ("25/3/2023, 21:1", "2023-03-25T21:01"),
        ("25/3/2023 9:01 da noite", "2023-03-25T21:01"),
        ("[25/3/23 (21:01:10)]", "2023-03-25T21:01"),
    ],
)
def test_notations_of_rare_languages_are_read(stamp: str, at: str, tmp_path: Path) -> None:
    line = f"{stamp} Ana: x" if stamp.startswith("[") else f"{stamp} - Ana: x"
    [turn], _ = chat(tmp_path, line)
    assert turn["at"].startswith(at)
