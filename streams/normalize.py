"""normalize: a published turn or command becomes an intent on the write-ahead log of memory."""

from __future__ import annotations

from schemas.messages import (
    Command,
    CommandIntent,
    ConversationTurn,
    MemoryCommand,
    MemoryWrite,
    ModifyCommand,
    NormalizedTurn,
    RawTurnIntent,
    RejectedTurnIntent,
    RememberCommand,
)
from schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES, TURNS_NORMALIZED
from streams.settings import ExtractionSettings
from streams.stage import Context, Emit, Message, Stage, Step, without_asks
from streams.text import content_hash, normalized_content, storage_content

EMPTY_CONTENT = "empty_content"
PRIVATE = "privacy_full"
EPISODIC = "episodic"


def normalize_stage(enabled: bool, settings: ExtractionSettings) -> Stage:
    """The stage; with `enabled` off turns are stored raw and not extracted from."""

    def process(message: Message, context: Context) -> Step:
        if context.misplaced:
            return Step(moved=True)
        body = message.body
        if isinstance(body, MemoryCommand):
            return _command(body)
        assert isinstance(body, ConversationTurn)
        rejected = _why_rejected(body)
        if rejected is not None:
            return Step(emits=(_write(rejected),))
        turn = normalized(body)
        emits = [_write(RawTurnIntent(turn=turn))]
        if enabled and turn.role in settings.roles:
            emits.append(Emit(TURNS_NORMALIZED, turn, "extract"))
        return Step(emits=tuple(emits))

    return Stage(
        name="normalize",
        reads=(CONVERSATION_TURNS, MEMORY_COMMANDS),
        process=without_asks(process),
        stateful=False,
    )


def normalized(turn: ConversationTurn) -> NormalizedTurn:
    """The turn with its storage content, and what is derived from it; unknown fields kept."""
    stored = storage_content(turn.content)
    return NormalizedTurn.model_validate(
        {
            **turn.model_dump(),
            "content": stored,
            "normalized_content": normalized_content(stored),
            "content_hash": content_hash(stored),
        }
    )


def _why_rejected(turn: ConversationTurn) -> RejectedTurnIntent | None:
    if turn.privacy == "full":
        reason = PRIVATE
    elif not storage_content(turn.content):
        reason = EMPTY_CONTENT
    else:
        return None
    return RejectedTurnIntent(turn_id=turn.turn_id, session_id=turn.session_id, reason=reason)


def _write(intent: RawTurnIntent | RejectedTurnIntent | CommandIntent) -> Emit:
    return Emit(MEMORY_WRITES, MemoryWrite(write=intent), "write")


def _command(body: MemoryCommand) -> Step:
    command = body.command
    error = _why_invalid(command)
    if error is None and isinstance(command, RememberCommand):
        stored = storage_content(command.content)
        command = command.model_copy(
            update={
                "content": stored,
                "normalized_content": normalized_content(stored),
                "content_hash": content_hash(stored),
            }
        )
    return Step(emits=(_write(CommandIntent(command=command, actor=body.actor, error=error)),))


def _why_invalid(command: Command) -> str | None:
    """Why a well-formed command cannot be carried out whatever the store holds."""
    if isinstance(command, RememberCommand) and not storage_content(command.content):
        return "invalid_request: content is empty"
    if isinstance(command, RememberCommand) and command.type == EPISODIC:
        return "invalid_request: the type episodic is for turns"
    if isinstance(command, ModifyCommand):
        if any(patch.type == EPISODIC for patch in command.patches):
            return "invalid_request: the type episodic is for turns"
        if any(not (patch.reason or command.reason) for patch in command.patches):
            return "invalid_request: a reason is needed for each patch, or for all"
        if any(
            patch.content is not None and not storage_content(patch.content)
            for patch in command.patches
        ):
            return "invalid_request: the new content is empty; to remove a memory, forget it"
    return None
