"""The supported formats, their detection and their parsers. A new format takes a parser in its own
file, a line in FORMATS and a line in PARSERS."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from palimpsest.ops.ingest.lines import FIELDS, near_miss
from palimpsest.ops.ingest.locomo import is_locomo
from palimpsest.ops.ingest.parsers import chatgpt, claude
from palimpsest.ops.ingest.parsers.base import (
    EMPTY,
    Document,
    Item,
    ReadOptions,
    Unreadable,
    damage,
    decoded,
    is_export,
)
from palimpsest.ops.ingest.parsers.captions import is_captions, read_captions
from palimpsest.ops.ingest.parsers.dialogue import is_dialogue
from palimpsest.ops.ingest.parsers.discord import is_discord, read_discord
from palimpsest.ops.ingest.parsers.discord_package import is_package_channel, package_files
from palimpsest.ops.ingest.parsers.kept import KEPT, is_kept, is_list_of_memories
from palimpsest.ops.ingest.parsers.mail import is_mail, is_mail_file
from palimpsest.ops.ingest.parsers.messages import is_messages, read_messages
from palimpsest.ops.ingest.parsers.slack import day_files, is_slack_day
from palimpsest.ops.ingest.parsers.telegram import is_telegram, read_telegram
from palimpsest.ops.ingest.parsers.whatsapp import is_whatsapp, read_whatsapp
from palimpsest.ops.ingest.parsers.zoom import is_zoom, read_zoom
from palimpsest.ops.ingest.sources import Bundle

Parser: TypeAlias = Callable[[Document, ReadOptions], Iterator[Item]]

FORMATS: Final = {
    "turns": "turns of Palimpsest, a JSON object a line",
    "messages": "messages with role and content (OpenAI and others)",
    "chatgpt": "a ChatGPT export",
    "claude": "a Claude export",
    "slack": "a Slack export",
    "whatsapp": "a WhatsApp chat",
    "telegram": "a Telegram export (JSON)",
    "discord": "a Discord channel (JSON of DiscordChatExporter) or data package",
    "zoom": "a chat saved by Zoom",
    "mail": "mail (mbox, .eml)",
    "captions": "a transcript (SRT, VTT, lines with names)",
    "locomo": "a LoCoMo file",
}
"""Description by the name for `--from`."""

PARSERS: Final[dict[str, Parser]] = {
    "messages": read_messages,
    "chatgpt": chatgpt.read_chatgpt,
    "claude": claude.read_claude,
    "whatsapp": read_whatsapp,
    "telegram": read_telegram,
    "discord": read_discord,
    "zoom": read_zoom,
    "captions": read_captions,
}
"""Parsers that read one document; turns, Slack, mail and LoCoMo have their own readers."""

CONVERSATIONS: Final = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
"""Name of the file in the archives of ChatGPT and Claude."""
_JSON: Final = re.compile(r".*\.json", re.DOTALL | re.IGNORECASE)
_RESULT: Final = re.compile(r"(?:.*/)?result(?: ?\(\d{1,3}\))?\.json", re.DOTALL)
"""Name of a Telegram export."""
_CHAT: Final = re.compile(r"\s*\{\s*\"name\"\s*:\s*(?:null|\"[^\"\n]{0,300}\")\s*,\s*\"type\"\s*:")
"""The beginning of a chat of Telegram."""
_CHANNEL: Final = re.compile(r"\s*\{\s*\"guild\"\s*:")
"""The beginning of a channel of DiscordChatExporter."""
_TEXTS: Final = (".jsonl", ".ndjson", ".json", ".vtt", ".srt", ".txt")
"""Endings of files that may be read one by one."""
_CHATS: Final = (("zoom", is_zoom), ("captions", is_captions), ("whatsapp", is_whatsapp))
"""Formats of lines, by what tells them."""
_PAGE: Final = re.compile(r"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_LINES_TRIED: Final = 20


def format_of_value(value: object) -> str | None:
    """Returns the format of parsed JSON; None if it matches none."""
    if is_export(value, chatgpt.MEMBER, dict):
        return "chatgpt"
    if is_export(value, claude.MEMBER, list) or is_kept(value):
        return "claude"
    if is_slack_day(value):
        return "slack"
    if is_telegram(value):
        return "telegram"
    if is_discord(value):
        return "discord"
    if is_locomo(value):
        return "locomo"
    if is_messages(value):
        return "messages"
    first = value[0] if isinstance(value, list) and value else value
    return "turns" if isinstance(first, dict) and ("turn_id" in first or "body" in first) else None


def format_of_text(first: bytes, whole: Callable[[], bytes]) -> str:
    """Detects the format of a file from its first line (including the line end) and, if that is not
    enough, from the whole file. Raises Unreadable, which says what the file seems to be."""
    line = _json(first)
    if isinstance(line, dict):
        found = format_of_value(line)
        if found is None and not _is_like_a_turn(line) and not whole()[len(first) :].strip():
            raise Unreadable(_OTHER_JSON)
        return found or "turns"
    if is_mail(whole()):
        return "mail"
    text = decoded(whole())
    if not text.strip():
        raise Unreadable(EMPTY)
    if text.lstrip()[:1] in "{[":
        value = _json(text.encode())
        found = format_of_value(value)
        if found is not None:
            return found
        if is_package_channel(value):
            raise Unreadable(
                "a channel of a Discord data package; name the package (the zip or its folder),"
                " which says what the channel and its owner are called"
            )
        if isinstance(value, list) or (value is not None and "\n" in text.strip()):
            raise Unreadable(_OTHER_JSON)
    found = _format_of_lines(text)
    if found is None:
        raise Unreadable(_seems(text))
    return found


def _format_of_lines(text: str) -> str | None:
    """Returns the format of a text that is no JSON; None if it matches none."""
    for form, is_of_form in _CHATS:
        if is_of_form(text):
            return form
    objects = [each for each in map(_json, _first_lines(text)) if isinstance(each, dict)]
    if objects:
        return format_of_value(objects[0]) or "turns"
    return "captions" if is_dialogue(text) else None


def _first_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()][:_LINES_TRIED]


def _seems(text: str) -> str:
    """Returns what a text without a conversation seems to be, and what to do."""
    if text.lstrip()[:1] in "{[" and (found := damage(text)):
        return found
    if _PAGE.match(text):
        return (
            "a web page (HTML); export the conversation as JSON (Telegram: machine-readable JSON)"
        )
    if is_table(_first_lines(text)):
        return (
            "a table (CSV); write each row as a JSON object a line, with turn_id, speaker, content"
            " and occurred_at"
        )
    return f"no conversation that ingest knows; {KNOWN}"


KNOWN: Final = f"it takes {', '.join(FORMATS)} (--from says which; see palimpsest ingest --help)"


_OTHER_JSON: Final = f"JSON, but no conversation that ingest knows; {KNOWN}"


def _is_like_a_turn(value: dict[str, object]) -> bool:
    """Whether an object has a field of a turn, perhaps under another name."""
    return any(name in FIELDS or near_miss(name, ()) for name in value)


def _json(data: bytes | str) -> object:
    """Returns parsed JSON; None for anything else."""
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def is_table(lines: list[str]) -> bool:
    """Whether the lines look like rows of a table: each has as many separators as the first."""
    for separator in (",", ";", "\t"):
        columns = lines[0].count(separator)
        plain = [re.sub(r'"[^"]*"', "", line).count(separator) for line in lines]
        if columns and all(count == columns for count in plain):
            return True
    return False


def members(bundle: Bundle) -> tuple[str, list[str]]:
    """Returns the format of a folder or archive, and its files to read: also the damaged ones of
    its export, which are named when they are read. Raises Unreadable."""
    names = bundle.names
    damaged: dict[str, str] = {}
    form = _form_of_exports(bundle, damaged)
    kept = _json_files(
        bundle, is_list_of_memories if form == "chatgpt" else is_kept, KEPT.fullmatch
    )
    if form is not None or kept.sound:
        exports = [name for name in names if CONVERSATIONS.fullmatch(name)]
        taken = exports if form else [name for name in exports if name in damaged]
        return form or "claude", [*taken, *kept.in_order]
    damaged |= kept.damaged
    days = day_files(names)
    if days:
        return "slack", days
    if channels := package_files(names):
        return "discord", channels
    for form, is_of_form, is_one in (
        ("telegram", is_telegram, lambda name, text: _RESULT.fullmatch(name) or _CHAT.match(text)),
        ("discord", is_discord, lambda _, text: _CHANNEL.match(text)),
    ):
        found = _json_files(bundle, is_of_form, _JSON.fullmatch, is_one)
        if found.sound:
            return form, found.in_order
        damaged |= found.damaged
    if mails := [name for name in names if is_mail_file(name)]:
        return "mail", mails
    chats = [name for name in names if name.lower().endswith(".txt")]
    for name in chats:
        try:
            if is_whatsapp(decoded(bundle.read(name))):
                return "whatsapp", chats
        except Unreadable as error:
            damaged.setdefault(name, str(error))
    lines = [name for name in names if name.lower().endswith(_TEXTS)]
    some = f"; name its files one by one ({', '.join(lines[:3])}, …)" if lines else ""
    unread = "".join(f"; {name}: {why}" for name, why in list(damaged.items())[:1])
    raise Unreadable(
        "there is no export of ChatGPT, Claude, Slack, WhatsApp, Telegram or Discord, and no mail,"
        f" in it{unread}{some}"
    )


def _form_of_exports(bundle: Bundle, damaged: dict[str, str]) -> str | None:
    """Returns the program whose conversations a folder or archive has, if it has any. Those that
    cannot be read go into `damaged`, with the reason: they hide no others."""
    for name in bundle.names:
        if CONVERSATIONS.fullmatch(name):
            try:
                found = format_of_text(b"", lambda name=name: bundle.read(name))  # type: ignore[misc]
            except Unreadable as error:
                damaged[name] = str(error)
                continue
            if found in ("chatgpt", "claude"):
                return found
    return None


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of one form in a folder or archive. Those that are damaged, with the reason, are of it
    by their name or by how they begin."""

    sound: list[str]
    damaged: dict[str, str]

    @property
    def in_order(self) -> list[str]:
        return sorted([*self.sound, *self.damaged])


def _json_files(
    bundle: Bundle,
    is_of_form: Callable[[object], bool],
    called: Callable[[str], object],
    is_one: Callable[[str, str], object] = lambda *_: True,
) -> _Files:
    """Returns the JSON files of a form among those that are `called` so. A damaged one is of the
    form if `is_one` holds for its name and its text, which is empty if it cannot be read."""
    found = _Files([], {})
    for name in filter(called, bundle.names):
        text, why = "", EMPTY
        try:
            text = decoded(bundle.read(name))
        except Unreadable as error:
            why = str(error)
        value = _json(text)
        if is_of_form(value):
            found.sound.append(name)
        elif value is None and is_one(name, text):
            found.damaged[name] = (damage(text) or "not JSON") if text.strip() else why
    return found
