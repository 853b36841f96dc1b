"""What a person, an agent or a timer asks for: the commands of `memory-commands`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from palimpsest.schemas.aspects import ClassifyFactsCommand, WeighAspectsCommand
from palimpsest.schemas.entities import (
    AddToGraphCommand,
    EditEntityCommand,
    RemoveFromGraphCommand,
    Structure,
)
from palimpsest.schemas.envelope import Actor, Frozen, Share, UtcTime
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.limits import CHUNK_CHARACTERS, CHUNK_OVERLAP
from palimpsest.schemas.portable import NumberedLine
from palimpsest.schemas.promotions import Id, PromotionChange
from palimpsest.schemas.rows.enumerations import Privacy

# The command that keeps what further deciders proposed: they act on nothing.

Tokens = Annotated[int, Field(ge=0)]


class ShadowProposal(Frozen):
    """What a further decider made of a fact that the live one decided in this `round`: an action,
    or (in `error`) why there is none. `latency_ms` in milliseconds."""

    item_id: str
    round: int = Field(default=0, ge=0)
    turn_memory_id: str
    decider: str = Field(min_length=1, max_length=512)
    action: Literal["ADD", "UPDATE", "DELETE", "NONE"] | None = None
    target_id: str | None = None
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    reason: str = ""
    error: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    latency_ms: float | None = None
    cost: float | None = None


class RecordShadowProposalsCommand(Frozen):
    """Keep what further deciders proposed: the worker's alone."""

    command: Literal["record-shadow-proposals"] = "record-shadow-proposals"
    proposals: tuple[ShadowProposal, ...] = Field(min_length=1, max_length=500)


# Commands that bring a branch's facts into the live memory, and take them out again. What is to
# be changed in one scope may be more than a record holds: it is sent in parts, which are kept
# until the last of them carries all out at once.


class PromoteCommand(Frozen):
    """Bring what a branch has other than the live memory into this scope, a person's alone.

    `part` (from 0) of `parts` with the same `plan_id`; the last part carries out all. `after` is
    the promotion that was the scope's newest when branch and live memory were compared.
    """

    command: Literal["promote"] = "promote"
    promotion_id: Id
    branch: str = Field(min_length=1, max_length=64)
    plan_id: Id
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1, le=100_000)
    after: str | None = None
    reason: str = ""
    changes: tuple[PromotionChange, ...] = ()


class RollbackPromotionCommand(Frozen):
    """Undo a promotion in this scope, a person's alone: what it added goes, what it replaced or
    forgot comes back. What was changed since stays as it is now."""

    command: Literal["rollback-promotion"] = "rollback-promotion"
    promotion_id: Id
    reason: str = ""


DocumentKind = Literal["text", "url", "file"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AddDocumentCommand(Frozen):
    """Take a document in. `source` is the address of a URL or the name of a file.

    Without `text`, that of a URL is fetched; of others it follows as `document-text` commands,
    `chunks` chunks in all, and `digest` tells which text it is. The size and the overlap of chunks
    are in characters: they stand here so that the same log always gives the same chunks.
    """

    command: Literal["add-document"] = "add-document"
    kind: DocumentKind
    source: str | None = Field(default=None, max_length=2_048)
    title: str = Field(default="", max_length=512)
    text: str | None = None
    digest: Digest | None = None
    chunks: int | None = Field(default=None, ge=1)
    characters: int | None = Field(default=None, ge=1)
    content_type: str | None = Field(default=None, max_length=256)
    chunk_characters: int = Field(default=CHUNK_CHARACTERS, ge=200, le=8_000)
    chunk_overlap: int = Field(default=CHUNK_OVERLAP, ge=0, le=2_000)


class DocumentTextCommand(Frozen):
    """Some chunks of a document's text, from chunk number `first` on of `total`; or, with `error`,
    why there is no text."""

    command: Literal["document-text"] = "document-text"
    document_id: str = Field(min_length=1, max_length=64)
    digest: Digest | None = None
    first: int = Field(default=0, ge=0)
    total: int | None = Field(default=None, ge=1)
    characters: int | None = Field(default=None, ge=1)
    chunks: tuple[str, ...] = ()
    title: str = Field(default="", max_length=512)
    content_type: str | None = Field(default=None, max_length=256)
    error: str | None = Field(default=None, max_length=2_000)


class DeleteDocumentCommand(Frozen):
    """Forget a document with all its chunks, but those that are pinned or confirmed."""

    command: Literal["delete-document"] = "delete-document"
    document_id: str = Field(min_length=1, max_length=64)
    reason: str = Field(pattern=r"\S", max_length=2_000)


class MemoryVersion(Frozen):
    """A memory as it was read."""

    memory_id: Id
    version: int


class RememberCommand(Frozen):
    """Save a text on someone's explicit wish. `self_taught`: on an agent's own, which the scope
    must allow. `lineage` is that of the agent's persona; 0 is kept for what all personas share.
    `drawn_from`: a model wrote it from these memories, and the worker sends it: it is kept only
    where none of them was changed or forgotten since, in the place of the one before with the same
    `source_id`, and nothing is extracted from it."""

    command: Literal["remember"] = "remember"
    content: str
    type: str | None = None
    importance: Share | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    who: str | None = None
    project: str | None = None
    session_id: str = ""
    source_type: str = "manual"
    source_id: str | None = None
    structured: Structure | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    self_taught: bool | None = None
    lineage: int | None = Field(default=None, ge=0)
    drawn_from: tuple[MemoryVersion, ...] | None = Field(default=None, min_length=1, max_length=200)
    # Of older records; nothing reads them, so a producer may send anything under their names.
    normalized_content: JsonValue = None
    content_hash: JsonValue = None


class MemoryPatch(Frozen):
    """What to change of one memory; None leaves a field as it is."""

    memory_id: str
    content: str | None = None
    type: str | None = None
    importance: Share | None = None
    tags: tuple[str, ...] | None = None
    pinned: bool | None = None
    who: str | None = None
    reason: str | None = None
    if_version: int | None = None


class ModifyCommand(Frozen):
    """Change memories. `self_taught`: on an agent's own, which the scope must allow."""

    command: Literal["modify"] = "modify"
    patches: tuple[MemoryPatch, ...] = Field(min_length=1, max_length=200)
    reason: str = ""
    self_taught: bool | None = None


class ForgetCommand(Frozen):
    """Soft-delete memories. `force` is needed for pinned ones; a machine actor may forget neither
    pinned nor confirmed ones, forced or not. `cascade`: also those that were drawn from nothing
    else. `confirm_token` is that of a preview: nothing is forgotten unless it is still what the
    preview showed. `hard`: their texts are erased, also of those that were forgotten before, and
    no one can recover them. `self_taught`: on an agent's own, which the scope must allow, and only
    memories that agents wrote on their own."""

    command: Literal["forget"] = "forget"
    memory_ids: tuple[str, ...] = Field(min_length=1, max_length=200)
    reason: str
    force: bool = False
    if_version: int | None = None
    cascade: bool | None = None
    confirm_token: str | None = None
    hard: bool | None = None
    self_taught: bool | None = None


class EraseScopeCommand(Frozen):
    """Erase every memory of the scope, pinned ones too: a person's alone. `confirm_token` is that
    of a preview that counted them."""

    command: Literal["erase-scope"] = "erase-scope"
    reason: str = Field(pattern=r"\S")
    confirm_token: str


class RecoverCommand(Frozen):
    command: Literal["recover"] = "recover"
    memory_id: str
    reason: str = ""
    if_version: int | None = None


class ConfirmCommand(Frozen):
    """A person vouches for a memory: it no longer decays and no machine may change or destroy it.
    A machine's confirmation raises the confidence alone."""

    command: Literal["confirm"] = "confirm"
    memory_id: str
    reason: str = ""
    if_version: int | None = None


class ApplyProposalsCommand(Frozen):
    """A person lets changes that were held back happen after all, by the ids of their facts; the
    memory must be as the decision saw it. `force` is needed for pinned ones."""

    command: Literal["apply-proposals"] = "apply-proposals"
    item_ids: tuple[str, ...] = Field(min_length=1, max_length=200)
    reason: str = Field(pattern=r"\S")
    force: bool = False


class DismissProposalsCommand(Frozen):
    """A person gives changes that were held back up for good, by the ids of their facts."""

    command: Literal["dismiss-proposals"] = "dismiss-proposals"
    item_ids: tuple[str, ...] = Field(min_length=1, max_length=200)
    reason: str = Field(pattern=r"\S")


class SetFlagsCommand(Frozen):
    """Change the flags of one scope; None leaves a flag as it is. `earned_update_delete` is the
    worker's alone: whether the scope may update and delete where nobody has said so."""

    command: Literal["set-flags"] = "set-flags"
    enabled: bool | None = None
    shadow_mode: bool | None = None
    allow_update_delete: bool | None = None
    mutations_frozen: bool | None = None
    autonomous_frozen: bool | None = None
    self_teaching_enabled: bool | None = None
    earned_update_delete: bool | None = None
    reason: str = ""


Days = Annotated[int, Field(ge=0, le=36_500)]


class SetRetentionCommand(Frozen):
    """Set the retention windows of one scope, in days, a person's alone; None leaves a window as it
    is. `as_configured` first drops all that were set."""

    command: Literal["set-retention"] = "set-retention"
    deleted_days: Days | None = None
    history_days: Days | None = None
    completed_days: Days | None = None
    dead_letter_days: Days | None = None
    recall_days: Days | None = None
    as_configured: bool = False
    reason: str = ""


SweepStep = Literal[
    "mentions", "vectors", "memories", "history", "completed", "dead-letters", "recalls"
]


class SweepCommand(Frozen):
    """One step of the retention sweep in one scope: everything of its kind that is not later than
    `before` is removed. Who gives it chooses a time such that this is little."""

    command: Literal["sweep"] = "sweep"
    step: SweepStep
    before: UtcTime


class SetPrivacyCommand(Frozen):
    """Set the privacy level of a person in the scope, or (without a person) of the whole scope.
    From its place in the log on: `full` keeps nothing of what the person says, `partial` lets no
    agent write memories about the person by itself. Only a person may lower a level."""

    command: Literal["set-privacy"] = "set-privacy"
    person: str | None = Field(default=None, max_length=256)
    level: Privacy
    reason: str = ""


class AliasCommand(Frozen):
    """Tell that two names mean one entity; names are never guessed to be the same."""

    command: Literal["alias"] = "alias"
    name: str = Field(min_length=1)
    alias: str = Field(min_length=1)
    reason: str = ""


class UnaliasCommand(Frozen):
    """Tell that two names do not mean one entity: takes an alias back, or keeps two entities from
    being proposed as one."""

    command: Literal["unalias"] = "unalias"
    name: str = Field(min_length=1)
    alias: str = Field(min_length=1)
    reason: str = ""


class ImportCommand(Frozen):
    """Take lines of an exported scope. What has an id that is there already stays as it is."""

    command: Literal["import"] = "import"
    from_scope: str = Field(min_length=1, max_length=256)
    lines: tuple[NumberedLine, ...] = Field(min_length=1, max_length=500)


class RecalledMemory(Frozen):
    """A memory that was returned, at this rank from 1. `score`: from 0 to 1, of a recall."""

    memory_id: str = Field(min_length=1, max_length=64)
    rank: int = Field(ge=1)
    score: float | None = None


class RecordedRecall(Frozen):
    """A read that was answered `at` this time. `question_id` is the same for equal questions."""

    recall_id: str = Field(min_length=1, max_length=64)
    kind: Literal["recall", "context", "get"]
    at: UtcTime
    session_id: str = Field(default="", max_length=256)
    asked_by: str | None = Field(default=None, max_length=256)
    question_id: str | None = Field(default=None, max_length=64)
    question: str | None = None
    results: tuple[RecalledMemory, ...] = Field(default=(), max_length=50)


class Access(Frozen):
    """A memory was returned at this time; by which recall is not told any more."""

    memory_id: str = Field(min_length=1, max_length=64)
    at: UtcTime


class RecordAccessCommand(Frozen):
    """Keep what was asked, and reinforce what was returned: the worker's alone. `erased` are the
    accesses of memories that were erased since: without them a rebuild would let these fade."""

    command: Literal["record-access"] = "record-access"
    recalls: tuple[RecordedRecall, ...] = Field(min_length=1, max_length=500)
    erased: tuple[Access, ...] = ()


class DecayCommand(Frozen):
    """Let the confidence of the scope's memories fade up to the record's time, and forget those
    below `floor`. `since`: nothing fades for the time before it."""

    command: Literal["decay"] = "decay"
    floor: Share = 0.05
    since: UtcTime | None = None


class EmbeddingChoice(Frozen):
    """An embedding model. `space` names its vectors: those of two spaces are never compared."""

    provider: Literal["local", "ollama", "openai", "hashing"]
    model: str = Field(min_length=1, max_length=256)
    space: str = Field(min_length=1, max_length=300)
    dimensions: int = Field(ge=8, le=65_536)
    base_url: str | None = Field(default=None, max_length=2_048)


class ChangeEmbeddingCommand(Frozen):
    """Change the embedding model of the partition that the command lies in.

    `migrate`: make vectors by the model `to`, while `live` serves; with `switch`, the worker gives
    the command to switch once no more than `allow_missing` memories lack one. `switch`: search with
    `to` from this record on. `cancel`: end the migration. `drop`: remove the vectors of `to`.
    `live` is the model in use when the command was given; the command is refused if that changed.
    """

    command: Literal["change-embedding"] = "change-embedding"
    action: Literal["migrate", "switch", "cancel", "drop"]
    live: EmbeddingChoice
    to: EmbeddingChoice
    switch: bool = False
    allow_missing: int = Field(default=0, ge=0, le=2**62)


class SessionEndCommand(Frozen):
    """End a session: what it said is complete. `after_turn`: by silence after this turn (its
    memory); where another turn has followed it goes on."""

    command: Literal["session-end"] = "session-end"
    session_id: str = Field(min_length=1, max_length=256)
    reason: str = ""
    after_turn: str | None = None


class UpdateShortTermCommand(Frozen):
    """Keep a summary of a session for some hours, in the place of the one before. `turns`: it was
    made by a model from these (their memories, oldest first), and is kept only where none of them
    was forgotten, nobody else wrote one and the user's last turn is no wish to be remembered.
    `yields_to_wish`: it is refused where that turn is one."""

    command: Literal["update-short-term-memory"] = "update-short-term-memory"
    session_id: str = Field(max_length=256)
    summary: str
    yields_to_wish: bool | None = None
    turns: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=500)


class Merge(Frozen):
    """Memories of one scope, type and text as one: `keep` stays, the others are forgotten."""

    keep: Id
    forget: tuple[Id, ...] = Field(min_length=1, max_length=200)


class CausalPair(Frozen):
    """Two turns, each as the model saw it, of which the first led to the second."""

    cause: MemoryVersion
    effect: MemoryVersion


class LinkCausesCommand(Frozen):
    """Keep which turns led to others, as a model inferred it from consecutive ones: the worker's
    alone. Pairs of which one was changed or forgotten since are left out. `through` is the write
    number of the last turn that was looked at."""

    command: Literal["link-causes"] = "link-causes"
    model: str = Field(max_length=512)
    confidence: Share
    examined: int = Field(ge=1)
    through: int = Field(ge=0)
    pairs: tuple[CausalPair, ...] = Field(default=(), max_length=500)


class ConsolidateCommand(Frozen):
    """Keep what a model drew from a session as a whole: the worker's alone. `extraction` is what
    rests on one turn and, by fact, on others before it. `sources` are these turns as the model saw
    them: a fact of which one was changed or forgotten since is left out."""

    command: Literal["consolidate"] = "consolidate"
    session_id: str = Field(min_length=1, max_length=256)
    extraction: FactsExtracted
    sources: tuple[MemoryVersion, ...] = Field(default=(), max_length=500)


class RepairCommand(Frozen):
    """Record a repair of a domain of the memory's health, and carry out what of it changes memory:
    the worker's alone. `by` asked for it. `figures` are what it found to mend in the scope; the
    scores are those of the domain in the partition, from 0 to 1: `score_after` is None while the
    pipeline still has to process what was repaired. `at` tells it from other repairs."""

    command: Literal["repair"] = "repair"
    domain: str = Field(min_length=1, max_length=64)
    by: str = Field(max_length=256)
    at: UtcTime
    figures: dict[str, int] = Field(default_factory=dict)
    score_before: Share
    score_after: Share | None = None
    merges: tuple[Merge, ...] = Field(default=(), max_length=200)


class RecordHealthCommand(Frozen):
    """Record the health of the partition that the command lies in, for the trend of the last days:
    the worker's alone. `scores` are those of its domains at `at`."""

    command: Literal["record-health"] = "record-health"
    scores: dict[str, Share]
    at: UtcTime


Command = Annotated[
    RememberCommand
    | ModifyCommand
    | ForgetCommand
    | EraseScopeCommand
    | RecoverCommand
    | ConfirmCommand
    | ApplyProposalsCommand
    | DismissProposalsCommand
    | SetFlagsCommand
    | SetRetentionCommand
    | SweepCommand
    | SetPrivacyCommand
    | AliasCommand
    | UnaliasCommand
    | EditEntityCommand
    | AddToGraphCommand
    | RemoveFromGraphCommand
    | AddDocumentCommand
    | DocumentTextCommand
    | DeleteDocumentCommand
    | ImportCommand
    | ChangeEmbeddingCommand
    | SessionEndCommand
    | UpdateShortTermCommand
    | PromoteCommand
    | RollbackPromotionCommand
    | RecordShadowProposalsCommand
    | RecordAccessCommand
    | DecayCommand
    | LinkCausesCommand
    | ConsolidateCommand
    | ClassifyFactsCommand
    | WeighAspectsCommand
    | RepairCommand
    | RecordHealthCommand,
    Field(discriminator="command"),
]


class MemoryCommand(Frozen):
    """A wish of a person, an agent or a timer, with who gave it."""

    command: Command
    actor: Actor = Actor()
