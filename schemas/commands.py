"""What a person, an agent or a timer asks for: the commands of `memory-commands`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from palimpsest.schemas.document_commands import (
    AddDocumentCommand,
    DeleteDocumentCommand,
    DocumentTextCommand,
)
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.portable import NumberedLine
from palimpsest.schemas.privacy import Privacy
from palimpsest.schemas.promotion_commands import PromoteCommand, RollbackPromotionCommand
from palimpsest.schemas.shadow_commands import RecordShadowProposalsCommand
from palimpsest.schemas.triples import Share, Triple

ActorType = Literal["human", "agent", "pipeline", "system"]


class StructuredAttribute(Frozen):
    """An attribute or constraint of an entity, authored with a memory."""

    entity: str
    aspect: str
    kind: Literal["attribute", "constraint"] = "attribute"


class StructuredEntity(Frozen):
    name: str
    type: str = "unknown"
    aliases: tuple[str, ...] = ()


class Structure(Frozen):
    """Graph writes that go with a remembered text."""

    entities: tuple[StructuredEntity, ...] = ()
    attributes: tuple[StructuredAttribute, ...] = ()
    relations: tuple[Triple, ...] = ()


class Actor(Frozen):
    """Who gave a command. A machine actor (any but `human`) may not change what a pinned or
    confirmed memory says, unpin or forget it, whatever is forced."""

    id: str = Field(default="local", max_length=256)
    type: ActorType = "human"


class RememberCommand(Frozen):
    """Save a text on someone's explicit wish. `self_taught`: on an agent's own, which the scope
    must allow. `lineage` is that of the agent's persona; 0 is kept for what all personas share."""

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
    no one can recover them."""

    command: Literal["forget"] = "forget"
    memory_ids: tuple[str, ...] = Field(min_length=1, max_length=200)
    reason: str
    force: bool = False
    if_version: int | None = None
    cascade: bool | None = None
    confirm_token: str | None = None
    hard: bool | None = None


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


class ImportCommand(Frozen):
    """Take lines of an exported scope. What has an id that is there already stays as it is."""

    command: Literal["import"] = "import"
    from_scope: str = Field(min_length=1, max_length=256)
    lines: tuple[NumberedLine, ...] = Field(min_length=1, max_length=500)


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
    was forgotten, nobody else wrote one and the user's last turn is no wish to be remembered."""

    command: Literal["update-short-term-memory"] = "update-short-term-memory"
    session_id: str = Field(max_length=256)
    summary: str
    turns: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=500)


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
    | SetPrivacyCommand
    | AliasCommand
    | AddDocumentCommand
    | DocumentTextCommand
    | DeleteDocumentCommand
    | ImportCommand
    | SessionEndCommand
    | UpdateShortTermCommand
    | PromoteCommand
    | RollbackPromotionCommand
    | RecordShadowProposalsCommand,
    Field(discriminator="command"),
]


class MemoryCommand(Frozen):
    """A wish of a person, an agent or a timer, with who gave it."""

    command: Command
    actor: Actor = Actor()
