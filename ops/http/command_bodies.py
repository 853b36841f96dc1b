"""What requests that change memory may say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from palimpsest.ops.http.bodies import LeastScore, Limit, Names, OwnScope, Said, Share, Text
from palimpsest.schemas.commands import Structure
from palimpsest.schemas.envelope import UtcTime

Name = Annotated[str, Field(min_length=1, max_length=256)]
Reason = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]
Version = Annotated[
    int | None, Field(ge=1, le=2**62, description="only when the memory is at this version")
]
Id = Annotated[str, Field(min_length=1, max_length=64)]


class RememberBody(Said):
    """A text to keep. `critical:` before it pins it, `[a,b]:` tags it."""

    content: Text
    scope: OwnScope = None
    type: Name | None = Field(default=None, description="else inferred from its words")
    importance: Share | None = None
    tags: tuple[Name, ...] = ()
    pinned: bool = False
    who: Name | None = None
    project: Name | None = None
    session_id: str = Field(default="", max_length=256)
    source_type: Name = Field(default="manual", description="where the text is from")
    source_id: str | None = Field(default=None, max_length=512)
    structured: Structure | None = Field(default=None, description="what the graph takes with it")
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class Change(Said):
    """What to change; what is not named stays."""

    content: Text | None = None
    type: Name | None = None
    importance: Share | None = None
    tags: tuple[Name, ...] | None = None
    pinned: bool | None = None
    who: Name | None = None
    if_version: Version = None


class Patch(Change):
    id: Id
    reason: Reason | None = None


class ModifyBody(Said):
    """Changes of many memories of one scope. A reason is needed, for all or for each."""

    patches: tuple[Patch, ...] = Field(min_length=1, max_length=200)
    reason: Reason | None = None
    scope: OwnScope = None

    @model_validator(mode="after")
    def _reasons(self) -> ModifyBody:
        if self.reason is None and any(patch.reason is None for patch in self.patches):
            raise ValueError("give a reason, for all or for each patch")
        return self


class ChangeBody(Change):
    """A change of one memory."""

    reason: Reason


class CorrectBody(Said):
    """What a memory shall say."""

    content: Text
    reason: Reason = "corrected"
    if_version: Version = None


class ReasonBody(Said):
    reason: str = Field(default="", max_length=2_000)
    if_version: Version = None


class ForgetParameters(Said):
    reason: Reason
    force: bool = Field(default=False, description="also a pinned one")
    hard: bool = Field(default=False, description="erase what it says, for good")
    if_version: Version = None
    wait: float | None = Field(
        default=None, ge=0, le=60, description="seconds to wait for the result; else as set"
    )


class ForgetBody(Said):
    """What to forget: by ids, by a question, or by what all of the other fields say. `preview`
    changes nothing and gives a `confirm_token` for what it shows, which `execute` needs for
    many."""

    mode: Literal["preview", "execute"] = "preview"
    scope: OwnScope = None
    ids: tuple[Id, ...] = Field(default=(), max_length=200)
    query: Text | None = None
    type: Names = ()
    tags: Names = ()
    who: Name | None = None
    role: Names = ()
    min_score: LeastScore = None
    source_type: Name | None = None
    since: UtcTime | None = None
    until: UtcTime | None = None
    limit: Annotated[Limit, Field(le=200)] | None = None
    cascade: bool = Field(default=False, description="also what was drawn from nothing else")
    reason: Reason | None = Field(default=None, description="needed to execute")
    force: bool = Field(default=False, description="also pinned ones")
    hard: bool = Field(default=False, description="erase what they say, for good")
    confirm_token: str | None = None

    @model_validator(mode="after")
    def _reason(self) -> ForgetBody:
        if self.mode == "execute" and self.reason is None:
            raise ValueError("give a reason to forget")
        return self


class EraseBody(ForgetBody):
    """What to erase, for good: chosen as what to forget, or all that a scope holds."""

    hard: Literal[True] = True
    whole_scope: bool = Field(default=False, description="all of the scope; needs `admin` too")


class AliasBody(Said):
    """Another name of the same."""

    alias: Name
    scope: OwnScope = None
    reason: str = Field(default="", max_length=2_000)
