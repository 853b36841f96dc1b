"""What chats hold that nobody said, and what was lost of what they say."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.ingest.opening import open_source
from palimpsest.ops.ingest.parsers.base import ReadOptions
from palimpsest.ops.ingest.parsers.slack import _plain
from palimpsest.ops.ingest.parsers.whatsapp import expression
from palimpsest.ops.ingest.records import Published
from palimpsest.streams.logs.base import Outgoing

NOW = datetime(2026, 3, 5, tzinfo=UTC)


def records(folder: Path, name: str, text: str) -> list[Outgoing]:
    (folder / name).write_text(text)
    options = ReadOptions(None, 1 << 20, NOW)
    with open_source(str(folder / name), options) as source:
        return [each for each, _ in source.items if isinstance(each, Outgoing)]


@pytest.mark.parametrize(
    "notice",
    [
        "Diese Nachricht wurde geloescht",
        "Diese Nachricht wurde gelöscht.",
        "Du hast diese Nachricht gelöscht.",
        "Bild weggelassen",
        "Se eliminó este mensaje.",
        "Ce message a été supprimé",
        "imagen omitida",
        "Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt. Niemand außerhalb dieses Chats"
        " kann sie lesen oder anhören.",
        "Messages and calls are end-to-end encrypted. No one outside of this chat, not even"
        " WhatsApp, can read or listen to them.",
    ],
)
def test_notices_of_whatsapp_are_no_memories(notice: str, tmp_path: Path) -> None:
    chat = f"[01.02.26, 09:00:00] Ana: {notice}\n[01.02.26, 09:01:00] Ana: Ich wohne in Köln.\n"
    assert len(records(tmp_path, "chat.txt", chat)) == 1


_NOTICES = {
    "en": "This message was deleted|You deleted this message.|video omitted|Missed voice call"
    "|IMG-20260201-WA0001.jpg (file attached)|<Media omitted>",
    "de": "Diese Nachricht wurde gelöscht.|Video weggelassen|<Medien ausgeschlossen>"
    "|IMG-1.jpg (Datei angehängt)|Verpasster Sprachanruf",
    "es": "Se eliminó este mensaje.|Eliminaste este mensaje|imagen omitida|<Multimedia omitido>"
    "|Los mensajes y las llamadas están cifrados de extremo a extremo. Nadie fuera de este chat.",
    "fr": "Ce message a été supprimé|Vous avez supprimé ce message|image absente|<Médias omis>"
    "|Les messages et les appels sont chiffrés de bout en bout. Aucun tiers ne peut les lire.",
    "it": "Questo messaggio è stato eliminato|immagine omessa|<Media omessi>"
    "|I messaggi e le chiamate sono crittografati end-to-end. Nessuno al di fuori della chat.",
    "pt": "Mensagem apagada|Você apagou esta mensagem|imagem ocultada|<Mídia oculta>"
    "|As mensagens e as chamadas são protegidas com a criptografia de ponta a ponta.",
    "nl": "Dit bericht is verwijderd|afbeelding weggelaten|<Media weggelaten>"
    "|Berichten en oproepen worden end-to-end versleuteld. Niemand buiten deze chat.",
    "ru": "Данное сообщение удалено|Вы удалили данное сообщение|изображение отсутствует"
    "|<Без медиафайлов>|Пропущенный аудиозвонок|Сообщения и звонки защищены сквозным шифрованием."
    " Третьи лица, включая WhatsApp, не могут прочитать ваши сообщения.",
    "ja": "このメッセージは削除されました|このメッセージを削除しました。|画像は含まれていません"
    "|<メディアは含まれていません>|メッセージと通話はエンドツーエンド暗号化されています。",
    "tr": "Bu mesaj silindi|görüntü dahil edilmedi|<Medya dahil edilmedi>"
    "|Mesajlar ve aramalar uçtan uca şifrelidir. Bu sohbetin dışındaki hiç kimse okuyamaz.",
    "pl": "Ta wiadomość została usunięta|obraz pominięto|<Pominięto multimedia>"
    "|Wiadomości i połączenia są szyfrowane metodą end-to-end.",
    "zh": "此消息已删除|您删除了这条消息|图片已忽略|消息和通话已进行端到端加密。",
}


@pytest.mark.parametrize("language", _NOTICES)
def test_notices_of_whatsapp_are_no_memories_in_each_language(
    language: str, tmp_path: Path
) -> None:
    lines = [f"01.02.26, 09:00 - Ana: {said}" for said in _NOTICES[language].split("|")]
    chat = "\n".join([*lines, "01.02.26, 09:01 - Ana: I live in Porto."])
    [kept] = records(tmp_path, "chat.txt", chat)
    assert b"I live in Porto." in (kept.value or b"")


@pytest.mark.parametrize(
    "said",
    [
        "Сообщения надо шифровать",
        "メッセージを削除しましたか？",
        "Das Bild weggelassen hat Ben.",
        "Our messages are not end-to-end encrypted, right?",
    ],
)
def test_what_people_say_of_such_things_is_kept(said: str) -> None:
    assert expression("notice").fullmatch(said) is None


def test_times_of_slack_are_read() -> None:
    mark = (
        "due <!date^1392734382^{date_num}^https://example.org|Feb 18, 2014> for <!subteam^S1|@ops>"
    )
    assert _plain(mark, {}) == "due Feb 18, 2014 for @ops"
    assert _plain("at <!date^1392734382^{time}>", {}) == "at 2014-02-18T14:39:42Z"
    assert _plain("<!here> <!channel|channel>", {}) == "@here @channel"


def test_lines_with_role_and_content_have_their_own_scope(tmp_path: Path) -> None:
    line = {"role": "user", "content": "I live in Porto."}
    text = json.dumps(line | {"scope": "work"}) + "\n" + json.dumps(line) + "\n"
    assert [each.scope for each in records(tmp_path, "m.jsonl", text)] == ["work", "default"]
    whole = json.dumps([{"scope": "home", "messages": [line]}])
    assert [each.scope for each in records(tmp_path, "n.json", whole)] == ["home"]


def test_another_speaker_under_a_known_id_is_a_conflict(tmp_path: Path) -> None:
    line = {"turn_id": "t", "speaker": "Ana", "content": "I live in Porto."}
    lines = [line, line | {"content": "I live  in Porto."}, line | {"speaker": "Ben"}]
    found = records(tmp_path, "t.jsonl", "\n".join(map(json.dumps, lines)))
    known = Published(None)
    assert [known.standing(each) for each in found] == ["new", "known", "conflict"]
