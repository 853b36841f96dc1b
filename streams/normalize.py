"""normalize: a published turn or command becomes an intent on the write-ahead log of memory."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from pydantic_core import Url

from palimpsest.schemas.codec import identified, utc_offset_minutes
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    AliasCommand,
    ChangeEmbeddingCommand,
    Command,
    DocumentTextCommand,
    ForgetCommand,
    MemoryCommand,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetPrivacyCommand,
    UnaliasCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.entities import (
    AddToGraphCommand,
    EditEntityCommand,
    RemoveFromGraphCommand,
)
from palimpsest.schemas.identity import EMBEDDING_SCOPE, command_digest, document_id, turn_item_id
from palimpsest.schemas.messages import (
    EDITION,
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
    one_line,
    storage_content,
)
from palimpsest.schemas.privacy import PRIVACY_FULL, person_key
from palimpsest.schemas.rows.memories import DOCUMENT_CHUNK, PROFILE
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.streams.logs.base import Record
from palimpsest.streams.recorded_settings import Recorded, with_recorded
from palimpsest.streams.rules.explicit_intent import PHRASES, asks_to_remember
from palimpsest.streams.sensitive.policy import (
    PII_REJECTED,
    WHY_REFUSED,
    KnownPrivate,
    Policy,
    admission,
    nobody,
    redactions,
)
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.sensitive.spans import placeholders_in
from palimpsest.streams.settings import IntentSettings
from palimpsest.streams.stage import Context, Emit, Message, Salvaged, Stage, Step, without_asks

_OF_THE_GRAPH = (
    AliasCommand,
    UnaliasCommand,
    EditEntityCommand,
    AddToGraphCommand,
    RemoveFromGraphCommand,
    RememberCommand,
)
DEFAULT_PII = PiiSettings()
DEFAULT_INTENT = IntentSettings()
EMPTY_CONTENT = "empty_content"
RESERVED_TYPES = {
    "episodic": "the type episodic is for turns",
    DOCUMENT_CHUNK: f"the type {DOCUMENT_CHUNK} is for documents",
    PROFILE: f"the type {PROFILE} is for what a model sums up of an entity",
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
    rejected = None if storage_content(body.content) else EMPTY_CONTENT
    if refused:
        rejected = PII_REJECTED
    elif body.privacy == "full":
        rejected = PRIVACY_FULL
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
    kept. Only a user's words are a request to remember, and only those that echo no context."""
    stored = storage_content(turn.content)
    declared = {name: getattr(turn, name) for name in ConversationTurn.model_fields}
    return NormalizedTurn.model_validate(
        {
            **declared,
            "content": stored,
            "normalized_content": normalized_content(stored),
            "content_hash": content_hash(stored),
            "item_id": turn_item_id(scope, turn),
            "utc_offset_minutes": turn.utc_offset_minutes or utc_offset_minutes or None,
            "redactions": redactions(turn),
            "explicit_long_term_memory_intent": turn.role == "user"
            and asks_to_remember(one_line(spoken(stored)), phrases),
            "extensions": turn.model_extra or None,
        }
    )


def _write(intent: Intent, index: str = "write") -> Emit:
    return Emit(MEMORY_WRITES, MemoryWrite(write=intent, edition=EDITION), index)


def _command(message: Message, body: MemoryCommand, refused: bool) -> Step:
    command = body.command
    digest = command_digest(message.scope, body)
    if refused:
        # Of a secret no text is left; a document whose text has one has failed.
        if isinstance(body.command, DocumentTextCommand):
            failed = DocumentTextCommand(document_id=body.command.document_id, error=WHY_REFUSED)
            return Step(emits=(_write(DocumentTextIntent(text=failed)),))
        return Step(emits=(_write(CommandIntent(actor=body.actor, error=WHY_REFUSED)),))
    error = _why_invalid(message.scope, command)
    if error is None and isinstance(command, DocumentTextCommand):
        return Step(emits=(_write(DocumentTextIntent(text=command)),))
    if error is None and isinstance(command, RememberCommand):
        command = command.model_copy(update={"content": storage_content(command.content)})
    texts: list[DocumentTextCommand] = []
    if error is None and isinstance(command, AddDocumentCommand):
        command, texts, error = with_text(message.scope, message.id, command)
    if error is None and isinstance(command, UpdateShortTermCommand):
        command = command.model_copy(update={"summary": storage_content(command.summary)})
    hides = True if isinstance(command, ForgetCommand | RecoverCommand) else None
    is_cascade = isinstance(command, ForgetCommand) and bool(command.cascade)
    intent = CommandIntent(
        command=command,
        actor=body.actor,
        error=error,
        digest=digest,
        hides=hides,
        guards=True if is_cascade or body.actor.type != "human" else None,
        supersedes=True if isinstance(command, ModifyCommand) else None,
        guards_graph=True if isinstance(command, _OF_THE_GRAPH) else None,
    )
    emits = [_write(intent)]
    if error is None:
        emits += [_write(DocumentTextIntent(text=each), f"text-{each.first}") for each in texts]
    return Step(emits=tuple(emits))


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


def _why_invalid(scope: str, command: Command) -> str | None:
    """Returns why a well-formed command cannot be executed regardless of the store."""
    if isinstance(command, ChangeEmbeddingCommand) and not EMBEDDING_SCOPE.fullmatch(scope):
        return (
            "invalid_request: the embedding model belongs to a whole store, not to a scope; use"
            " `palimpsest embedding`"
        )
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
    if isinstance(command, UpdateShortTermCommand) and not storage_content(command.summary):
        return "invalid_request: the summary is empty; say what the session is about"
    return _why_not_modified(command) if isinstance(command, ModifyCommand) else None


def _why_not_modified(command: ModifyCommand) -> str | None:
    for patch in command.patches:
        if patch.type in RESERVED_TYPES:
            return f"invalid_request: {RESERVED_TYPES[patch.type]}"
    if any(not (patch.reason or command.reason).strip() for patch in command.patches):
        return "invalid_request: a reason is needed for each patch, or for all"
    contents = [patch.content for patch in command.patches if patch.content is not None]
    if not all(storage_content(each) for each in contents):
        return "invalid_request: the new content is empty; to remove a memory, forget it"
    return None


def _why_not_remembered(command: RememberCommand) -> str | None:
    if not storage_content(command.content):
        return "invalid_request: content is empty"
    if command.type in RESERVED_TYPES and not (command.type == PROFILE and command.drawn_from):
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


# --- documents: a command with its text becomes the document and its chunks -----------------------


NEAR = 4
"""A cut is looked for in the last part of this many of a chunk."""
LONGEST_CLUSTER = 64
"""Characters that are taken for one grapheme at most: what goes on longer is cut all the same."""

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SENTENCE = re.compile(
    r"""[.!?…]+["'”’»)\]]*(?=\s)   # with a space behind: no number, no address
    |[。！？｡．][」』）”’]*          # scripts that write none
    |[।؟۔]|\n""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s")
_JOINERS = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_FLAGS = range(0x1F1E6, 0x1F200)


def chunks(text: str, size: int, overlap: int) -> list[str]:
    """The text in storage form, in pieces of at most `size` characters, each but the first
    beginning up to `overlap` characters before the one before ended, or at the grapheme that is
    there; none is empty. `overlap` is at most half of `size`."""
    text = unicodedata.normalize("NFC", text.replace("\0", "")).strip()
    found: list[str] = []
    start = 0
    while start < len(text):
        end = _end(text, start, size)
        stored = storage_content(text[start:end])
        if stored:
            found.append(stored)
        if end >= len(text):
            break
        start = max(_start(text, end, overlap), start + 1)
    return found


def batches(found: Sequence[str], characters: int) -> list[tuple[int, tuple[str, ...]]]:
    """Successive chunks as groups of up to so many characters, each with the number of its first
    chunk; a chunk that is longer is alone."""
    groups: list[tuple[int, tuple[str, ...]]] = []
    first, length = 0, 0
    for number, chunk in enumerate(found):
        if number > first and length + len(chunk) > characters:
            groups.append((first, tuple(found[first:number])))
            first, length = number, 0
        length += len(chunk)
    return [*groups, (first, tuple(found[first:]))] if found else []


def _end(text: str, start: int, size: int) -> int:
    """Where the chunk that begins at `start` ends: after the last paragraph, sentence or word that
    ends near its greatest length, else between two graphemes."""
    most = start + size
    if most >= len(text):
        return len(text)
    near = most - size // NEAR
    for ending in (_PARAGRAPH, _SENTENCE, _SPACE):
        cuts = [match.end() for match in ending.finditer(text, near, most)]
        if cuts:
            return cuts[-1]
    return _between_graphemes(text, most, start + 1)


def _start(text: str, end: int, overlap: int) -> int:
    """Where the next chunk begins: with a sentence or a word of the overlap."""
    if not overlap:
        return end
    least = end - overlap
    for ending in (_SENTENCE, _SPACE):
        found = ending.search(text, least, end)
        if found is not None and found.end() < end:
            return found.end()
    return _between_graphemes(text, least, least - LONGEST_CLUSTER)


def _between_graphemes(text: str, place: int, least: int) -> int:
    """The nearest place before which a grapheme ends, at or before `place`."""
    lowest = max(least, place - LONGEST_CLUSTER)
    for here in range(place, lowest - 1, -1):
        if not _is_inside(text, here):
            return here
    return place


def _is_inside(text: str, place: int) -> bool:
    """Whether a cut at the place would part what is shown as one character."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after in _JOINERS or before in _JOINERS or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    code = ord(after)
    if code in _SKIN_TONES or code in _TAGS or (before == "\r" and after == "\n"):
        return True
    if code in _FLAGS and ord(before) in _FLAGS:
        run = place
        while run > 0 and ord(text[run - 1]) in _FLAGS:
            run -= 1
        return (place - run) % 2 == 1
    return _is_jamo(before) and _is_jamo(after)


def _is_jamo(character: str) -> bool:
    return 0x1100 <= ord(character) <= 0x11FF


BATCH_CHARACTERS = 20_000
"""Of chunks that are stored together, about ten: a record of them and of what became of them is far
smaller than what a log takes, and others' records need not wait long."""


def why_not_added(command: AddDocumentCommand) -> str | None:
    """Why a well-formed command to add a document cannot be executed."""
    if command.chunk_overlap * 2 > command.chunk_characters:
        return "invalid_request: chunk_overlap is more than half of chunk_characters"
    if command.kind == "url":
        return why_no_address(command.source or "")
    if command.text is None and None in (command.digest, command.chunks, command.characters):
        return f"invalid_request: a document of the kind {command.kind} needs its text"
    return None


def why_no_address(url: str) -> str | None:
    """Why nothing is fetched from the address."""
    if not url.lower().startswith(("http://", "https://")):
        return "invalid_request: an address begins with http:// or https://"
    if any(ord(character) <= 32 for character in url):
        return "invalid_request: an address has no spaces in it"
    try:
        parts = Url(url)
    except ValueError as error:
        return f"invalid_request: this is no address: {error}"
    if parts.username is not None or parts.password is not None:
        return "invalid_request: an address may not have a user name or a password in it"
    return None


def why_not_taken(text: DocumentTextCommand) -> str | None:
    """Why these are no chunks of a text."""
    if text.error is not None:
        return None
    if None in (text.digest, text.total, text.characters) or not text.chunks:
        return "invalid_request: a document's text needs digest, total, characters and chunks"
    if text.total is not None and text.first + len(text.chunks) > text.total:
        return f"invalid_request: there are more chunks than the {text.total} in all"
    if any(not storage_content(chunk) for chunk in text.chunks):
        return "invalid_request: a chunk is empty"
    if len(text.chunks) > 1 and sum(map(len, text.chunks)) > BATCH_CHARACTERS:
        return f"invalid_request: chunks of more than {BATCH_CHARACTERS} characters at once"
    return None


def with_text(
    scope: str, command_id: str, command: AddDocumentCommand
) -> tuple[AddDocumentCommand, list[DocumentTextCommand], str | None]:
    """The command without its text, the chunks of that by the batch, and why it is not executed
    after all."""
    if command.text is None:
        return command, [], None
    texts = texts_of(document_id(scope, command_id), command.text, command)
    if not texts:
        return command, [], "invalid_request: the document has no text"
    first = texts[0]
    facts = {"digest": first.digest, "chunks": first.total, "characters": first.characters}
    return command.model_copy(update={"text": None, **facts}), texts, None


def texts_of(
    document: str,
    text: str,
    command: AddDocumentCommand,
    title: str = "",
    batch_characters: int = BATCH_CHARACTERS,
) -> list[DocumentTextCommand]:
    """The chunks of a document's text by the batch; none where there is nothing in it."""
    found = chunks(text, command.chunk_characters, command.chunk_overlap)
    said = "\n".join(map(one_line, found))
    digest = hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()
    return [
        DocumentTextCommand(
            document_id=document,
            digest=digest,
            first=first,
            total=len(found),
            characters=len(text),
            chunks=batch,
            title=title,
            content_type=command.content_type,
        )
        for first, batch in batches(found, batch_characters)
    ]
