"""normalize: a published turn or command becomes an intent on the write-ahead log of memory."""

from __future__ import annotations

from palimpsest.schemas.codec import identified, utc_offset_minutes
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    Command,
    DocumentTextCommand,
    ForgetCommand,
    MemoryCommand,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetPrivacyCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.identity import command_digest, turn_item_id
from palimpsest.schemas.messages import (
    CommandIntent,
    ConversationTurn,
    DocumentTextIntent,
    Intent,
    MemoryWrite,
    NormalizedTurn,
    RawTurnIntent,
    RejectedTurnIntent,
)
from palimpsest.schemas.normal_forms import (
    content_hash,
    normalized_content,
    storage_content,
    storage_lines,
)
from palimpsest.schemas.privacy import PRIVACY_FULL, person_key
from palimpsest.schemas.rows import DOCUMENT_CHUNK
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.streams.document_intents import why_not_added, why_not_taken, with_text
from palimpsest.streams.logs.base import Record
from palimpsest.streams.recorded_settings import Recorded, with_recorded
from palimpsest.streams.rules.explicit_intent import PHRASES, asks_to_remember
from palimpsest.streams.sensitive.admission import KnownPrivate, admission, nobody
from palimpsest.streams.sensitive.policy import PII_REJECTED, WHY_REFUSED, Policy, redactions
from palimpsest.streams.sensitive.spans import placeholders_in
from palimpsest.streams.settings import IntentSettings, PiiSettings
from palimpsest.streams.stage import Context, Emit, Message, Salvaged, Stage, Step, without_asks

DEFAULT_PII = PiiSettings()
DEFAULT_INTENT = IntentSettings()
EMPTY_CONTENT = "empty_content"
RESERVED_TYPES = {
    "episodic": "the type episodic is for turns",
    DOCUMENT_CHUNK: f"the type {DOCUMENT_CHUNK} is for documents",
}
MAX_NAME_CHARACTERS = 256
"""Maximum length of names in a turn: a remembered text is extracted from like a turn."""
FORGOTTEN_UNCONFIRMED = 25
"""Maximum number of memories that are forgotten at once without a preview's token."""


def normalize_stage(
    pii: PiiSettings = DEFAULT_PII,
    intent: IntentSettings = DEFAULT_INTENT,
    is_known_private: KnownPrivate = nobody,
    recorded: Recorded | None = None,
) -> Stage:
    """Returns the stage; its output carries the settings `recorded`. The effects of a turn depend
    on the scope's flags and on the turns before it, so apply-writes decides them."""
    policy = Policy.of(pii)
    phrases = (*intent.phrases, *intent.more_phrases)

    def process(message: Message, context: Context) -> Step:
        if context.misrouted:
            return Step(rerouted=True)
        step = _process(message, context, policy.is_refused(message.body), phrases)
        return with_recorded(step, recorded)

    return Stage(
        name="normalize",
        reads=(CONVERSATION_TURNS, MEMORY_COMMANDS),
        process=without_asks(process),
        stateful=False,
        on_invalid=_refused_command,
        admit=admission(pii, is_known_private),
    )


def _process(message: Message, context: Context, refused: bool, phrases: tuple[str, ...]) -> Step:
    body = message.body
    if isinstance(body, MemoryCommand):
        return _command(message, body, refused)
    assert isinstance(body, ConversationTurn)
    rejected = PII_REJECTED if refused else _why_rejected(body)
    if rejected is not None:
        marker = RejectedTurnIntent(
            turn_id=body.turn_id,
            item_id=turn_item_id(message.scope, body),
            session_id=body.session_id,
            reason=rejected,
        )
        return Step(emits=(_write(marker),))
    offset = utc_offset_minutes(context.record.value)
    turn = normalized(message.scope, body, offset, phrases)
    return Step(emits=(_write(RawTurnIntent(turn=turn)),))


def normalized(
    scope: str,
    turn: ConversationTurn,
    utc_offset_minutes: int = 0,
    phrases: tuple[str, ...] = PHRASES,
) -> NormalizedTurn:
    """Returns the turn with its storage content, and what is derived from it; unknown fields are
    kept. Only a user's words are a request to remember."""
    stored = storage_content(turn.content)
    has_lines = "\n" in turn.content.strip()
    declared = {name: getattr(turn, name) for name in ConversationTurn.model_fields}
    return NormalizedTurn.model_validate(
        {
            **declared,
            "content": stored,
            "normalized_content": normalized_content(stored),
            "content_hash": content_hash(stored),
            "item_id": turn_item_id(scope, turn),
            "published_content": turn.content if has_lines else None,
            "utc_offset_minutes": turn.utc_offset_minutes or utc_offset_minutes or None,
            "redactions": redactions(turn),
            "explicit_long_term_memory_intent": turn.role == "user"
            and asks_to_remember(stored, phrases),
            "extensions": turn.model_extra or None,
        }
    )


def _why_rejected(turn: ConversationTurn) -> str | None:
    if turn.privacy == "full":
        return PRIVACY_FULL
    return None if storage_content(turn.content) else EMPTY_CONTENT


def _write(intent: Intent, index: str = "write") -> Emit:
    return Emit(MEMORY_WRITES, MemoryWrite(write=intent), index)


def _command(message: Message, body: MemoryCommand, refused: bool) -> Step:
    command = body.command
    digest = command_digest(message.scope, body)
    if refused:
        return _refused(body)
    error = _why_invalid(command)
    if error is None and isinstance(command, DocumentTextCommand):
        return Step(emits=(_write(DocumentTextIntent(text=command)),))
    if error is None and isinstance(command, RememberCommand):
        command = command.model_copy(update={"content": storage_content(command.content)})
    texts: list[DocumentTextCommand] = []
    if error is None and isinstance(command, AddDocumentCommand):
        command, texts, error = with_text(message.scope, message.id, command)
    if error is None and isinstance(command, UpdateShortTermCommand):
        command = command.model_copy(update={"summary": storage_lines(command.summary)})
    hides = True if isinstance(command, ForgetCommand | RecoverCommand) else None
    is_cascade = isinstance(command, ForgetCommand) and bool(command.cascade)
    intent = CommandIntent(
        command=command,
        actor=body.actor,
        error=error,
        digest=digest,
        hides=hides,
        guards=True if is_cascade or body.actor.type != "human" else None,
    )
    emits = [_write(intent)]
    if error is None:
        emits += [_write(DocumentTextIntent(text=each), f"text-{each.first}") for each in texts]
    return Step(emits=tuple(emits))


def _refused(body: MemoryCommand) -> Step:
    """A command that mentions a secret leaves no text; a document whose text does has failed."""
    if isinstance(body.command, DocumentTextCommand):
        failed = DocumentTextCommand(document_id=body.command.document_id, error=WHY_REFUSED)
        return Step(emits=(_write(DocumentTextIntent(text=failed)),))
    return Step(emits=(_write(CommandIntent(actor=body.actor, error=WHY_REFUSED)),))


def _refused_command(record: Record, why: str) -> Salvaged | None:
    """An invalid command still has a result, if it has the id and scope of the waiting caller."""
    if record.topic != MEMORY_COMMANDS.name:
        return None
    try:
        message = identified(record.value, MEMORY_COMMANDS, record.timestamp)
    except ValueError:
        return None
    intent = CommandIntent(error=f"invalid_request: {why}")
    return Salvaged(Step(emits=(_write(intent),)), message)


def _why_invalid(command: Command) -> str | None:
    """Returns why a well-formed command cannot be executed regardless of the store."""
    if isinstance(command, RememberCommand):
        return _why_not_remembered(command)
    if isinstance(command, AddDocumentCommand):
        return why_not_added(command)
    if isinstance(command, DocumentTextCommand):
        return why_not_taken(command)
    if isinstance(command, SetPrivacyCommand):
        return _why_not_set(command)
    if isinstance(command, ForgetCommand):
        return _why_not_forgotten(command)
    if isinstance(command, UpdateShortTermCommand) and not storage_lines(command.summary):
        return "invalid_request: the summary is empty; say what the session is about"
    if isinstance(command, ModifyCommand):
        for patch in command.patches:
            if patch.type in RESERVED_TYPES:
                return f"invalid_request: {RESERVED_TYPES[patch.type]}"
        if any(not (patch.reason or command.reason).strip() for patch in command.patches):
            return "invalid_request: a reason is needed for each patch, or for all"
        if any(
            patch.content is not None and not storage_content(patch.content)
            for patch in command.patches
        ):
            return "invalid_request: the new content is empty; to remove a memory, forget it"
    return None


def _why_not_remembered(command: RememberCommand) -> str | None:
    if not storage_content(command.content):
        return "invalid_request: content is empty"
    if command.type in RESERVED_TYPES:
        return f"invalid_request: {RESERVED_TYPES[command.type]}"
    for name in ("who", "session_id", "project"):
        if len(getattr(command, name) or "") > MAX_NAME_CHARACTERS:
            return f"invalid_request: {name} is longer than {MAX_NAME_CHARACTERS} characters"
    return None


def _why_not_set(command: SetPrivacyCommand) -> str | None:
    if command.person is None:
        return None
    if not person_key(command.person):
        return "invalid_request: the person's name is empty; leave it out to mean the whole scope"
    if placeholders_in(command.person):
        return (
            "invalid_request: the name is a number or a secret, which pii.kinds removes from stored"
            " texts, so it cannot identify a person; set the level of the whole scope,"
            " or publish such turns with privacy full"
        )
    return None


def _why_not_forgotten(command: ForgetCommand) -> str | None:
    if not command.reason.strip():
        return "invalid_request: a reason is needed to forget"
    count = len(set(command.memory_ids))
    if count > FORGOTTEN_UNCONFIRMED and command.confirm_token is None:
        return (
            f"confirmation_required: {count} memories at once, more than {FORGOTTEN_UNCONFIRMED};"
            " look at a preview and send its confirm_token"
        )
    return None
