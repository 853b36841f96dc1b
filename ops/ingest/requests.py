"""How to read conversations, as the command `ingest` and the route of the same name ask for it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from palimpsest.ops.ingest.parsers import DateOrder
from palimpsest.ops.operations.operation import Doc, Json, Operation, Surface, Texts

Format: TypeAlias = Literal[
    "turns",
    "messages",
    "chatgpt",
    "claude",
    "slack",
    "whatsapp",
    "telegram",
    "discord",
    "zoom",
    "mail",
    "captions",
    "locomo",
]


class Reading(Operation[Any], kw_only=True):
    """How to read a conversation; what is not given is recognised, or has its default."""

    format: Annotated[
        Format | None, Doc("the format, if it is not recognised", option="--from/--format")
    ] = None
    scope: Annotated[
        str | None,
        Doc(
            "the memory space; by default the turn's own, the LoCoMo file's name, or default",
            min_length=1,
            max_length=256,
            not_blank=True,
            option="--scope/-s",
        ),
    ] = None
    me: Annotated[
        str, Doc("your name, for exports that call you only user or human", max_length=256)
    ] = ""
    timezone: Annotated[str, Doc("zone of times that name none or are in UTC", max_length=64)] = (
        "UTC"
    )
    date_order: Annotated[
        DateOrder | None, Doc("order of day, month and year in a WhatsApp chat")
    ] = None
    session_id: Annotated[
        str | None, Doc("name of the conversation; by default the source's", max_length=256)
    ] = None


class SentFile(Reading, kw_only=True):
    """A file that is sent to the service."""

    name: Annotated[str, Doc("the file's name", min_length=1, max_length=256)]
    modified: Annotated[
        datetime | None,
        Doc("when the file was written: the time of messages without one; by default now"),
    ] = None


class Ingest(Reading, kw_only=True):
    """Publish conversation turns from files to the log.

    Reads turns as JSON lines; messages with role and content; exports of ChatGPT, Claude, Slack,
    WhatsApp, Telegram (JSON) and Discord (DiscordChatExporter's JSON, the data package), also as a
    zip or a folder; mail (mbox, .eml); Zoom's saved chats; transcripts (SRT, VTT, the text of Zoom,
    Teams, Meet and Otter, lines as "Ana: Hello"); LoCoMo files. The format is detected. Turns are
    durable when the command ends; `palimpsest run` turns them into memories, which `--wait` waits
    for. Invalid lines are reported by number and skipped. Publishing a file again, or a longer
    version of it, creates no duplicates; on the embedded log not under another name either.

    Example: palimpsest ingest conversation.jsonl --scope support
    """

    files: Annotated[
        Texts, Doc("files, zip archives or folders; - is stdin", argument=True, metavar="FILE…")
    ]
    since: Annotated[
        datetime | None, Doc("time of messages without one; by default the file's time")
    ] = None
    captions: Annotated[
        bool, Doc("LoCoMo: append captions of images to the text", option="--captions")
    ] = False
    dry_run: Annotated[bool, Doc("only show what would be published", option="--dry-run")] = False
    wait: Annotated[
        float, Doc("seconds to wait until the turns are stored or refused", ge=0, le=3600)
    ] = 0.0

    surface: ClassVar = Surface(command="ingest")

    def is_done(self, answer: Json) -> bool:
        settled = answer.get("settled", {})
        return not (answer["bad"] or answer["conflicts"] or settled.get("dead_letter"))
