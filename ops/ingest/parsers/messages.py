"""Messages in the format of chat APIs: `role` and `content`.

They come as a JSON array, as `{"messages": […]}`, or one per line; a line may also be a whole
conversation with its `messages`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from palimpsest.ops.ingest.parsers.base import (
    TRIED,
    Bad,
    Document,
    Found,
    Item,
    Keys,
    LeftOut,
    ReadOptions,
    Twice,
    Unreadable,
    Utterance,
    edit_time,
    is_json,
    iso_time,
    lenient_json,
    named,
    said,
    told_time,
    unix_time,
    unread_time,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import Role

ROLES: Final[dict[str, Role]] = {
    **{"user": "user", "human": "user"},
    **{"assistant": "assistant", "ai": "assistant", "model": "assistant"},
    **{"system": "system", "developer": "system", "tool": "tool", "function": "tool"},
}
TEXT_PARTS: Final = ("text", "input_text", "output_text")
TIMES: Final = ("occurred_at", "timestamp", "created_at", "create_time", "time", "date", "ts")
LATE_TIMES: Final = ("createdAt", "sent_at", "datetime")
"""Further names of times, which were not read at first: turns of that time have their file's."""
EDITS: Final = ("revised_at", "edited_at", "updated_at", "update_time", "edit_date")
SPEAKERS: Final = ("speaker", "name", "author")
SESSIONS: Final = ("session_id", "conversation_id", "thread_id")
IDS: Final = ("id", "message_id", "uuid")


def is_message(value: object) -> bool:
    """Whether a JSON value is one message."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and any(member in value for member in ("content", "parts", "tool_calls"))
        and "turn_id" not in value
    )


def is_messages(value: object) -> bool:
    """Whether a JSON value is a message, a list of them, or a conversation with `messages`."""
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    for each in value[:TRIED] if isinstance(value, list) else [value]:
        is_conversation = isinstance(each, dict) and isinstance(each.get("messages"), list)
        if is_messages(each) if is_conversation else is_message(each):
            return True
    return False


def read_messages(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the messages in order. Raises Unreadable for JSON that is nested too deeply."""
    return said(_found(document, options))


def _found(document: Document, options: ReadOptions) -> Found:
    for conversation in _conversations(document):
        if isinstance(conversation, Bad):
            yield conversation
        else:
            yield from _messages(conversation, options)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The messages of one session, each with its place."""

    session: str
    messages: list[tuple[str, object]]
    scope: str = ""
    is_of_file: bool = True
    """Whether the session has its name from the file's."""


def _conversations(document: Document) -> Iterator[_Conversation | Bad]:
    """Yields a conversation for each list and each value with `messages`, and one for all loose
    messages."""
    loose: list[tuple[str, object]] = []
    values: list[tuple[str, object]] = []
    for found in _values(document):
        if isinstance(found, Bad):
            yield found
        else:
            values.append(found)
    for number, (place, value) in enumerate(values, 1):
        inner = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(inner, list):
            loose.append((place, value))
            continue
        own = _own(value, (*SESSIONS, *IDS)) if isinstance(value, dict) else ""
        session = own or (f"{document.stem}-{number}" if len(values) > 1 else document.stem)
        scope = _own(value, ("scope",)) if isinstance(value, dict) else ""
        messages = [(f"{place}[{index}]", each) for index, each in enumerate(inner)]
        yield _Conversation(session, messages, scope, is_of_file=not own)
    if loose:
        yield _Conversation(document.stem or _begins(loose), loose, is_of_file=bool(document.stem))


def _values(document: Document) -> Iterator[tuple[str, object] | Bad]:
    """Yields the JSON values of a document with their places: a single one, those of a list of
    conversations, or one per line."""
    try:
        whole = lenient_json(document.text)
    except Twice as error:
        if is_json(document.text):  # and not a value per line
            raise Unreadable(str(error)) from None
    except RecursionError:
        raise Unreadable("JSON that is nested too deeply") from None
    except ValueError:
        pass
    else:
        if isinstance(whole, list) and not any(is_message(each) for each in whole):
            for number, each in enumerate(whole):
                yield f"{document.name}[{number}]", each
        else:
            yield document.name, whole
        return
    yield from _values_of_lines(document)


def _values_of_lines(document: Document) -> Iterator[tuple[str, object] | Bad]:
    for number, line in enumerate(document.text.split("\n"), 1):
        if line.strip():
            place = f"{document.name}:{number}"
            try:
                value = lenient_json(line)
            except Twice as error:
                yield Bad(place, str(error))
            except (ValueError, RecursionError) as error:
                yield Bad(place, f"not JSON: {error}")
            else:
                yield place, value


def _begins(loose: list[tuple[str, object]]) -> str:
    """Derives a name for a conversation from standard input from its first message."""
    return derived_id("stdin", json.dumps(loose[0][1], sort_keys=True))[:8]


def _messages(conversation: _Conversation, options: ReadOptions) -> Found:
    keys: dict[str, Keys] = {}
    for place, message in conversation.messages:
        if not isinstance(message, dict):
            yield Bad(place, "not a JSON object with `role` and `content`")
            continue
        role = ROLES.get(str(message.get("role")).lower())
        if role is None:
            known = ", ".join(ROLES)
            yield Bad(place, f"{message.get('role')!r} is no role; expected one of {known}")
            continue
        text, others = _words(message.get("content", message.get("parts")))
        yield from map(LeftOut, others)
        if message.get("tool_calls"):
            yield LeftOut("calls of tools")
        if not text.strip():
            if not others and not message.get("tool_calls"):
                yield LeftOut("messages without text")
            continue
        own = _own(message, IDS)
        session = options.session or _own(message, SESSIONS) or conversation.session
        speaker = _own(message, SPEAKERS)
        at, told, is_late, unread = _time(message, options)
        by_text = keys.setdefault(session, Keys("messages", session))
        if own:
            naming = by_text.of_id(own, at is not None)
        else:
            content = by_text.of_content(role, speaker, text, told=told, is_dated=at is not None)
            naming = replace(content, is_late=is_late)
        is_of_file = conversation.is_of_file and session == conversation.session
        yield Utterance(
            place=place,
            key=naming.key_as(session),
            naming=naming if is_of_file else naming.fixed(),
            text=text,
            at=at,
            unread=unread,
            session=session[:256],
            speaker=speaker or (options.me if role == "user" else ""),
            role=role,
            source_id=own or None,
            revised_at=edit_time(_edited(message, options), at) if own else None,
            scope=_own(message, ("scope",)) or conversation.scope or None,
        )


def _own(value: dict[str, object], names: tuple[str, ...]) -> str:
    return next((found for name in names if (found := named(value.get(name)))), "")


def _time(
    message: dict[str, object], options: ReadOptions
) -> tuple[datetime | None, str, bool, str]:
    """Returns the first time that can be read, as it is told in a key, and whether it was not read
    at first; if none can, the first that cannot."""
    unread = ""
    for name in (*TIMES, *LATE_TIMES):
        value = message.get(name)
        at = iso_time(value, options.zone) or unix_time(value)
        if at is not None:
            return at, _told(value, at), name in LATE_TIMES, ""
        unread = unread or unread_time(value)
    return None, "", False, unread


def _told(value: object, at: datetime) -> str:
    if isinstance(value, str) and unix_time(value) is None:
        return told_time(datetime.fromisoformat(value.strip()))
    return told_time(at)


def _edited(message: dict[str, object], options: ReadOptions) -> datetime | None:
    values = (message.get(name) for name in EDITS)
    times = (iso_time(value, options.zone) or unix_time(value) for value in values)
    return next(filter(None, times), None)


def _words(content: object) -> tuple[str, list[str]]:
    """Returns the text of a message's content (the content itself, or the text parts of a list),
    and the kinds of its other parts."""
    if isinstance(content, str):
        return content, []
    texts, others = [], []
    for part in content if isinstance(content, list) else [content]:
        fields = part if isinstance(part, dict) else {"text": part}
        text, kind = fields.get("text"), fields.get("type")
        if (kind is None or kind in TEXT_PARTS) and isinstance(text, str):
            texts.append(text)
        elif part is not None:
            # Gemini's parts have no type, but a member of its name.
            name = named(kind) or next((named(each) for each in fields if each != "text"), "")
            others.append(f"parts of type {name or 'unknown'}")
    return "\n".join(texts), others
