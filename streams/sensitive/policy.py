"""What is done about secrets and personal numbers in what producers send.

A record is made safe as bytes, before anything else is known of it. So whatever follows from it
(the message, ids and hashes, a dead letter, the copy for another partition) follows from the text
without the secret: also a hash would give away a password that can be guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import from_json

from palimpsest.schemas.commands import MemoryCommand
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.erasure.scrubbing import says_withheld, unread_speaker, withheld_value
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS, TOPICS
from palimpsest.streams.logs.base import Record
from palimpsest.streams.sensitive.detection import is_unclear, plain, redacted
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.sensitive.spans import SECRETS, Kind, placeholder, placeholders_in

REFUSED: Final = "[REFUSED:pii]"
"""In the place of a text that speaks of a secret without a span that could be taken out."""
PII_REJECTED: Final = "pii_rejected"
WHY_REFUSED: Final = (
    f"{PII_REJECTED}: the text speaks of a password, a key or a personal number and does not say it"
    " in a form that could be left out; say it without, or set pii.mode to redact"
)

_OWN_HEADERS: Final = frozenset({"content-type", "traceparent"})
_ENVELOPE: Final = frozenset(
    {"id", "schema", "scope", "occurred_at", "correlation_id", "causation_id"}
)
_REFERENCES: Final = frozenset({"command", "memory_id", "memory_ids", "item_ids", "confirm_token"})
_NAMING: Final = frozenset({"session_id", "source_id"})
"""Fields that name something: people and conversations are often named by a telephone number."""
_PERSONS: Final = frozenset({"speaker", "person", "who"})
"""Fields that name a person: two who are named by their numbers are two."""
_REFERENCE: Final = re.compile(r"[0-9a-f-]{8,64}|[a-z]{3,10}(?:-[a-z]{3,10})?")
_BETWEEN_WORDS: Final = re.compile(r"[\s_-]")
_SECRET_NAMES: Final[dict[str, Kind]] = {
    **dict.fromkeys(("password", "passwd", "pwd", "pw", "passphrase"), "password"),
    **dict.fromkeys(("passcode", "pin", "passwort", "kennwort", "パスワード"), "password"),
    **dict.fromkeys(("apikey", "secret", "secretkey", "clientsecret", "accesskey"), "api_key"),
    **dict.fromkeys(("privatekey",), "private_key"),
    **dict.fromkeys(("accesstoken", "authtoken", "refreshtoken", "authorization"), "token"),
    **dict.fromkeys(("bearertoken", "apitoken", "sessiontoken", "idtoken"), "token"),
}
"""Names of members whose text is a secret whatever it looks like."""

BodyT = TypeVar("BodyT", bound=Frozen)


class PiiRejected(ValueError):
    """A text that is refused for what it speaks of. It does not quote the text."""

    def __init__(self) -> None:
        super().__init__(WHY_REFUSED)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which kinds are taken out; `refuses` texts that speak of a secret where nothing could be.

    Names of scopes, ids of messages, turns and memories are never changed: they say what is the
    same. What names a session or a source loses secrets, not numbers.
    """

    kinds: frozenset[Kind]
    refuses: bool = False

    @staticmethod
    def of(settings: PiiSettings) -> Policy:
        if settings.mode == "off":
            return Policy(frozenset())
        return Policy(frozenset(settings.kinds), settings.mode == "reject")

    def text(self, text: str) -> str:
        """The text without what is sensitive, REFUSED for one that cannot be without."""
        return self._text(text, self.kinds)

    def record(self, record: Record) -> Record:
        """A producer's record without what is sensitive, itself where there is nothing. Never
        raises: what is no message is made safe as the text it is."""
        if not self.kinds or record.value is None or not TOPICS[record.topic].open_to_producers:
            return record
        value = self.value(record.topic, record.value)
        headers = {
            name: held if name in _OWN_HEADERS else self._bytes(held)
            for name, held in record.headers.items()
        }
        if value == record.value and headers == record.headers:
            return record
        return replace(record, value=value, headers=headers)

    def value(self, topic: str, value: bytes) -> bytes:
        """The same of the bytes of a record of a topic that is open to producers."""
        try:
            raw = from_json(value)
        except ValueError:
            return self._bytes(value)
        cleaning = self._turn if topic == CONVERSATION_TURNS.name else self._command
        cleaned = self._members(raw, lambda name, held: name in _ENVELOPE, {"body": cleaning})
        return value if cleaned == raw else json.dumps(cleaned, ensure_ascii=False).encode()

    def turn(self, turn: ConversationTurn) -> ConversationTurn:
        """The turn as it may be published. Raises PiiRejected."""
        return self._checked(turn, self._turn)

    def command(self, command: MemoryCommand) -> MemoryCommand:
        """The command as it may be given. Raises PiiRejected."""
        return self._checked(command, self._command)

    def json(self, held: JsonValue) -> JsonValue:
        """A JSON value as it may be in the metadata of a turn or a command."""
        return self._any(held)

    def is_refused(self, body: Frozen) -> bool:
        """Whether a message that came through `record` is one that must not be stored."""
        return self.refuses and any(REFUSED in text for text in texts(body.model_dump(mode="json")))

    def _checked(self, body: BodyT, cleaning: Callable[[JsonValue], JsonValue]) -> BodyT:
        if not self.kinds:
            return body
        raw = body.model_dump(mode="json")
        cleaned = cleaning(raw)
        if self.refuses and any(REFUSED in text for text in texts(cleaned)):
            raise PiiRejected
        return body if cleaned == raw else type(body).model_validate(cleaned)

    # --- by what a member is for ------------------------------------------------------------

    def _turn(self, raw: JsonValue) -> JsonValue:
        return self._members(raw, lambda name, held: name == "turn_id", {})

    def _command(self, raw: JsonValue) -> JsonValue:
        """The body of a command, the command in it, the patches in that: at each of them there
        are references alongside texts."""
        if isinstance(raw, list):
            return [self._command(held) for held in raw]
        inner = dict.fromkeys(("command", "patches"), self._command)
        return self._members(raw, lambda name, held: name in _REFERENCES and _refers(held), inner)

    def _members(
        self,
        raw: JsonValue,
        is_kept: Callable[[str, JsonValue], bool],
        inner: Mapping[str, Callable[[JsonValue], JsonValue]],
    ) -> JsonValue:
        """An object without what is sensitive: some members are kept as they are, some have a way
        of their own."""
        if not isinstance(raw, dict):
            return self._any(raw)
        cleaned: dict[str, JsonValue] = {}
        for name, held in raw.items():
            if is_kept(name, held):
                cleaned[name] = held
            elif name in inner:
                cleaned[name] = inner[name](held)
            else:
                cleaned[self.text(name)] = self._member(name, held)
        return cleaned

    def _member(self, name: str, held: JsonValue) -> JsonValue:
        if name in _NAMING and isinstance(held, str):
            return self._text(held, self.kinds & SECRETS)
        if name in _PERSONS and isinstance(held, str):
            return self._text(held, self.kinds, names=True)
        kind = _SECRET_NAMES.get(_BETWEEN_WORDS.sub("", name.lower()))
        if kind in self.kinds and isinstance(held, str | int) and not isinstance(held, bool):
            written = str(held)
            if written.strip() and not placeholders_in(written) and written != REFUSED:
                return placeholder(str(kind))
        return self._any(held)

    def _any(self, raw: JsonValue) -> JsonValue:
        if isinstance(raw, str):
            return self.text(raw)
        if isinstance(raw, list):
            return [self._any(held) for held in raw]
        if isinstance(raw, dict):
            return {self.text(name): self._member(name, held) for name, held in raw.items()}
        # A number may be one of a card; true and false are none.
        if isinstance(raw, bool) or not isinstance(raw, int) or abs(raw) < 10**11:
            return raw
        written = str(raw) if abs(raw) < 10**30 else ""
        cleaned = self.text(written)
        return raw if cleaned == written else cleaned

    def _text(self, text: str, kinds: frozenset[Kind], names: bool = False) -> str:
        cleaned = redacted(text, kinds, names)
        if self.refuses and is_unclear(plain(cleaned)):
            return REFUSED
        return cleaned

    def _bytes(self, value: bytes) -> bytes:
        text = value.decode("utf-8", "surrogateescape")
        cleaned = self.text(text)
        return value if cleaned == text else cleaned.encode("utf-8", "surrogateescape")


def _refers(held: JsonValue) -> bool:
    """Whether it is nothing but ids, or the name of a command."""
    if isinstance(held, list):
        return all(isinstance(each, str) and _REFERENCE.fullmatch(each) for each in held)
    return isinstance(held, str) and _REFERENCE.fullmatch(held) is not None


def texts(raw: JsonValue) -> Iterator[str]:
    """Every text in a JSON value, names of members too, in order."""
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, list):
        for held in raw:
            yield from texts(held)
    elif isinstance(raw, dict):
        for name, held in cast("Mapping[str, JsonValue]", raw).items():
            yield name
            yield from texts(held)


def redactions(turn: ConversationTurn) -> tuple[str, ...]:
    """The kinds that were taken out of a turn, each once: those of its content in order, then
    those of its other fields."""
    found = placeholders_in(turn.content)
    others = turn.model_dump(mode="json", exclude={"content"})
    for text in texts(others):
        found += placeholders_in(text)
    return tuple(dict.fromkeys(found))


KnownPrivate = Callable[[str, str], bool]
"""Whether a speaker of a scope is known to keep nothing, before the store is asked in order."""


def nobody(scope: str, speaker: str) -> bool:
    return False


def admission(
    pii: PiiSettings, is_known_private: KnownPrivate = nobody
) -> Callable[[Record], Record]:
    """For `Stage.admit`. A turn that asks for nothing of it to be kept has lost its text before
    anything else is known of it, so a dead letter or a copy for another partition has none; and so
    has what is no valid turn of a private speaker, which no later stage would look at."""
    policy = Policy.of(pii)

    def admit(record: Record) -> Record:
        record = policy.record(record)
        if record.topic != CONVERSATION_TURNS.name or record.value is None:
            return record
        is_withheld = says_withheld(record.value)
        if not is_withheld and is_known_private is not nobody:
            unread = unread_speaker(record.value)
            is_withheld = unread is not None and is_known_private(*unread)
        if not is_withheld:
            return record
        return replace(record, value=withheld_value(record.value), headers={})

    return admit
