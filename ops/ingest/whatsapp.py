"""WhatsApp's "Export chat": a text with a date, a time, a speaker and a message per line.

Every phone writes dates in the format of its language, and names neither the format nor the time
zone. The order of day and month is therefore inferred from the whole file and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, cast, get_args

from palimpsest.ops.ingest.base import (
    Bad,
    Choices,
    DateOrder,
    Document,
    Item,
    Keys,
    Note,
    Unreadable,
    Utterance,
    named,
    with_offset,
)

_MARKS: Final = dict.fromkeys(
    map(ord, "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2069\ufeff")
)
"""Bidirectional marks that WhatsApp inserts; they carry no text."""
_SPACES: Final = dict.fromkeys(map(ord, "\u202f\u00a0\u2009"), " ")
_LINE: Final = re.compile(
    r"\[?(?P<date>\d{1,4}[./-]\d{1,2}[./-]\d{1,4})\.?,? +(?:at |um )?"
    r"(?P<time>\d{1,2}[:.]\d{2}(?:[:.]\d{2})?)"
    r"(?: ?(?P<half>[APap])\.? ?[Mm]\.?)?(?:\] ?| [-–] )(?P<rest>.*)",
    re.DOTALL,
)
_SPEAKER: Final = re.compile(r"(?P<name>[^:\n\"“”„«»]{1,80}?): ?(?P<text>.*)", re.DOTALL)
MEDIA: Final = re.compile(
    r"<[^<>\n]{3,60}>|null"
    r"|(?:image|video|audio|sticker|GIF|document|Contact card) omitted"
    r"|(?:Bild|Video|Audio|Sticker|GIF|Dokument|Kontaktkarte) weggelassen"
    r"|(?:imagen|video|audio|sticker|GIF|documento) omitid[oa]"
    r"|(?:image|vid[ée]o|audio|sticker|GIF|document) (?:absente?|omise?)"
    r"|(?:immagine|video|audio|sticker|GIF|documento) omess[oa]"
    r"|(?:imagem|v[ií]deo|[áa]udio|figurinha|GIF|documento) (?:ocultad|omitid)[oa]"
    r"|(?:afbeelding|video|audio|sticker|GIF|document) weggelaten"
    r"|(?:изображение|видео|аудио|стикер|GIF|документ|файл):? (?:отсутствует|пропущен[оа]?)"
    r"|(?:画像|動画|ビデオ|音声|オーディオ|ステッカー|スタンプ|GIF|文書|ドキュメント|メディア)"
    r" ?(?:は含まれていません|[がは]省略されました)"
    r"|(?:görüntü|resim|video|ses|çıkartma|GIF|belge) dahil edilmedi"
    r"|(?:obraz|plik wideo|plik audio|naklejka|GIF|dokument)(?: został[oa]?)? pominięt[oya]"
    r"|(?:图像|图片|視訊|视频|音频|贴图|動態圖|文件|圖片)(?:已忽略|已省略)"
    # A file next to the chat.
    r"|[^<>\n]{1,200} \((?:file attached|Datei angehängt|archivo adjunto|fichier joint"
    r"|file allegato|(?:arquivo|ficheiro) anexado|bestand bijgevoegd|файл добавлен|添付ファイル)\)"
    r"|(?:Missed (?:voice|video) call|Verpasster (?:Sprach|Video)anruf"
    r"|(?:Llamada|Videollamada)(?: de voz)? perdida|Appel (?:vocal|vidéo) manqué"
    r"|(?:Chiamata vocale|Videochiamata) persa|Chamada de (?:voz|vídeo) perdida"
    r"|Gemiste (?:spraak|video-?)oproep|Пропущенный (?:аудио|видео)звонок|不在着信)"
    r"|(?:You deleted this message|This message was deleted"
    r"|Diese Nachricht wurde gel(?:ö|oe)scht|Du hast diese Nachricht gel(?:ö|oe)scht"
    r"|Se eliminó este mensaje|Este mensaje fue eliminado|Eliminaste este mensaje"
    r"|Ce message a été supprimé|Vous avez supprimé ce message"
    r"|Questo messaggio è stato eliminato|Hai eliminato questo messaggio"
    r"|(?:Esta mensagem foi|Mensagem) apagada|(?:Você apagou|Apagou) esta mensagem"
    r"|Dit bericht (?:is|werd) verwijderd|(?:Je hebt|U heeft) dit bericht verwijderd"
    r"|(?:Данное |Это )?сообщение (?:было )?удалено|Вы удалили (?:данное|это) сообщение"
    r"|このメッセージ(?:は削除されました|を削除しました)|Bu mesaj silindi|Bu mesajı sildiniz"
    r"|Ta wiadomość została usunięta|Usunięto tę wiadomość"
    r"|此(?:消息|訊息)已(?:删除|刪除)|[您你]已?[删刪]除了?(?:这条消息|此訊息))[.。]?"
    # The notice of a chat's encryption, which some phones attribute to a speaker.
    r"|(?:Messages|Nachrichten|Los mensajes|Les messages|I messaggi|As mensagens|Berichten"
    r"|Сообщения|メッセージ|Mesajlar|Wiadomości|消息|訊息)"
    r"(?![^\n]{0,40}(?:Signal|Telegram|Threema|iMessage|Matrix))"
    r"[^\n]{0,80}?(?:end-to-end encrypt|end-to-end-encrypt|Ende-zu-Ende-verschl(?:ü|ue)ssel"
    r"|cifrad[oa]s de extremo a extremo|chiffrés de bout en bout|crittografat[ie] end-to-end"
    r"|criptografia de ponta a ponta|end-to-end versleuteld|сквозн\w{1,3} шифрован"
    r"|エンドツーエンド(?:で)?暗号化|uçtan uca şifreli|szyfrowan\w{1,3} (?:metodą )?end-to-end"
    r"|端[到對]端加密)[^\n]{0,400}",
    re.IGNORECASE,
)
"""Placeholders for media and deleted messages, and system notices."""
_EDITED: Final = re.compile(
    r" ?<[^<>\n]*(?:edited|bearbeitet|editad[ao]|modifi|編集)[^<>\n]*>$", re.I
)
NAMES: Final[dict[DateOrder, str]] = {
    "dmy": "day/month/year",
    "mdy": "month/day/year",
    "ymd": "year/month/day",
}


@dataclass(slots=True)
class _Entry:
    """A raw message: the numbers of its date, its time, and the rest."""

    line: int
    stamp: str
    date: tuple[int, int, int]
    clock: tuple[int, int, int]
    rest: str


def is_whatsapp(text: str) -> bool:
    """Whether one of the first lines begins like a message."""
    return any(_match(line) for line in text.split("\n")[:20])


def read_whatsapp(document: Document, choices: Choices) -> Iterator[Item]:
    """Yields the messages in order; a line that begins no message continues the previous one.
    Raises Unreadable if there is none."""
    entries = list(_entries(document.text))
    if not entries:
        raise Unreadable("no WhatsApp chat: no line begins with a date, a time and a speaker")
    order, why = choices.date_order, "as told by --date-order"
    if order is None:
        order, why = date_order(entries)
    yield Note(f"dates are read as {NAMES[order]} ({why}), times as those of {choices.zone.key}")
    keys = Keys("whatsapp")
    system = media = 0
    for entry in entries:
        place = f"{document.name}:{entry.line}"
        said = _SPEAKER.fullmatch(entry.rest)
        if said is None:
            system += 1
            continue
        text = _EDITED.sub("", said["text"]).strip()
        if not text or MEDIA.fullmatch(text):
            media += 1
            continue
        local = _moment(entry, order)
        at = None if local is None else with_offset(local, choices.zone)
        if local is None or at is None:
            yield Bad(place, f"there is no such date in {NAMES[order]}: {entry.stamp}")
            continue
        speaker = named(said["name"].removeprefix("~"))
        yield Utterance(
            place=place,
            # The raw stamp: a longer export may be read in another date order, with the same keys.
            key=keys.key(entry.stamp, speaker, text),
            text=text,
            at=at,
            session=choices.session or f"{_chat(document.stem)} {local.date().isoformat()}".strip(),
            speaker=speaker,
        )
    if system or media:
        yield Note(
            f"{system + media} entries without words are left out: {system} of WhatsApp itself,"
            f" {media} of media or deleted"
        )


def _chat(stem: str) -> str:
    """Returns the name of the chat from the name of its file."""
    stem = re.sub(r"^_?WhatsApp[ -]+Chat( with|( -))?[ -]*", "", stem, flags=re.I)
    return re.sub(r" ?\(\d+\)$", "", stem).strip("_ ")[:200]


def _match(line: str) -> re.Match[str] | None:
    return _LINE.fullmatch(line.translate(_MARKS | _SPACES).rstrip("\r"))


def _entries(text: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    for number, line in enumerate(text.split("\n"), 1):
        match = _match(line)
        if match is None:
            if entry is not None:
                entry.rest += "\n" + line.translate(_MARKS).rstrip("\r")
            continue
        if entry is not None:
            yield entry
        date = cast("tuple[int, int, int]", tuple(map(int, re.split(r"[./-]", match["date"]))))
        parts = [*map(int, re.split(r"[:.]", match["time"])), 0]
        half = (match["half"] or "").lower()
        hour = parts[0] % 12 + (12 if half == "p" else 0) if half else parts[0]
        stamp = f"{match['date']} {match['time']}{' ' + half + 'm' if half else ''}"
        entry = _Entry(number, stamp, date, (hour, parts[1], parts[2]), match["rest"])
    if entry is not None:
        yield entry


def _moment(entry: _Entry, order: DateOrder) -> datetime | None:
    year, month, day = (entry.date[order.index(part)] for part in "ymd")
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, *entry.clock)
    except ValueError:
        return None


def date_order(entries: Sequence[_Entry]) -> tuple[DateOrder, str]:
    """Returns the order in which all dates exist and time runs back least, and how it was
    inferred."""
    possible = [order for order in _orders(entries) if all(_moment(e, order) for e in entries)]
    if len(possible) == 1:
        return possible[0], "no other order gives dates that exist"
    orders = possible or _orders(entries)
    steps = {order: _steps_back(entries, order) for order in orders}
    fewest = [order for order in orders if steps[order] == min(steps.values())]
    if len(fewest) == 1:
        return fewest[0], "in any other order time would run back"
    by_form, why = _by_form(entries[0].stamp)
    likely = by_form or fewest[0]
    if by_form not in fewest:
        spans = {order: _span(entries, order) for order in fewest}
        likely = min(fewest, key=lambda order: spans[order])
        shorter = spans[likely] < max(spans.values())
        why = "assumed: the chat is then the shorter" if shorter else "assumed"
    others = ", ".join(f"--date-order {order}" for order in fewest if order != likely)
    return likely, f"{why}; {others} reads them otherwise"


def _by_form(stamp: str) -> tuple[DateOrder | None, str]:
    """Infers the order from the notation: languages with points or dashes put the day first; a
    12-hour clock next to numbers without a leading zero is American."""
    if re.match(r"\d+[.-]", stamp):
        return "dmy", "as dates with points or dashes are"
    if stamp.endswith("m") and not re.match(r"0\d|\d+/0", stamp):
        return "mdy", "assumed from the 12-hour clock"
    return None, ""


def _span(entries: Sequence[_Entry], order: DateOrder) -> float:
    first, last = _moment(entries[0], order), _moment(entries[-1], order)
    return abs((last - first).total_seconds()) if first and last else 0.0


def _orders(entries: Sequence[_Entry]) -> list[DateOrder]:
    if any(entry.date[0] > 31 for entry in entries):
        return ["ymd"]
    return [order for order in get_args(DateOrder) if order != "ymd"]


def _steps_back(entries: Sequence[_Entry], order: DateOrder) -> int:
    moments = [moment for entry in entries if (moment := _moment(entry, order))]
    return sum(later < earlier for earlier, later in pairwise(moments))
