"""The replays as requests: fields and help of their commands, orders of background replays, and
arguments of the functions that carry them out (`ops/replay/jobs.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.operation import Doc, Json, Operation, Surface

# ---- fields of several replays, and of `StartReplay` ----
Partition = Annotated[int | None, Doc("only this partition", ge=0)]
OffsetOrTime = Annotated[
    int | datetime | None, Doc("as of this offset of memory-writes, or this time (RFC 3339)")
]
Provider = Annotated[
    str | None,
    Doc(
        "the extractor: rules, ollama, openai or anthropic; its address is a setting", max_length=64
    ),
]
Model = Annotated[str | None, Doc("the model's name", min_length=1, max_length=256)]
OfScope = Annotated[
    str | None,
    Doc("only turns of this memory space", min_length=1, max_length=256, option="--scope/-s"),
]
TurnsSince = Annotated[datetime | None, Doc("turns of this time or later")]
Sample = Annotated[int | None, Doc("maximum number of these turns, spread evenly", ge=1)]
Rate = Annotated[float | None, Doc("maximum turns per second", ge=0.01)]
BudgetTokens = Annotated[int | None, Doc("maximum tokens read and written, over all runs", ge=1)]
DryRun = Annotated[bool, Doc("only show what would be done", option="--dry-run")]
AllowLoss = Annotated[bool, Doc("also forget facts that the branch lacks", option="--allow-loss")]
CatchUp = Annotated[
    bool,
    Doc("first bring the branch up to date with its own model", option="--catch-up/--no-catch-up"),
]
_ForCommand: Final = partial(Doc, surfaces=("command",))
_Branch = Annotated[str, Doc("the branch", max_length=64, argument=True, metavar="NAME")]
_Scopes = Annotated[
    tuple[str, ...],
    _ForCommand("only this memory space; may be repeated", option="--scope/-s"),
]
_Reason = Annotated[str, _ForCommand("why; kept in the history")]
_Wait = Annotated[float, _ForCommand("seconds to wait for the results of a scope", ge=0)]


NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raises RequestError for an invalid name of a branch."""
    if not NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot name a branch: lower-case letters, digits, '.', '_' and '-', at most"
            " 64, beginning with a letter or digit"
        )


class ReplayRequest(Operation[Any]):
    """A long operation that reads the log again. Its command carries it out and shows the progress;
    `StartReplay` starts it in the background, where it has the fields that HTTP has."""

    stops: ClassVar[bool] = False
    """Whether it ends after its present step when it is asked to."""

    def validate(self) -> None:
        for field in ("name", "branch"):
            if hasattr(self, field):
                check_name(getattr(self, field))

    def is_done(self, answer: Json) -> bool:
        """Whether an answer says that all is done, for the exit code."""
        return True


class Rebuild(ReplayRequest):
    """Rebuild the stores from the log, alongside the live ones, and compare both.

    Calls no model: facts and decisions are read from the log, and vectors are copied from the live
    stores. A worker may keep running. After an interruption, the same command resumes. With --swap
    the new stores replace the live ones, which are kept as a branch until `palimpsest replay drop`.
    With --until they are as of that time, to read with --branch. With --shards the log is rewritten
    with that number of partitions, too; stop the worker first.

    Example: palimpsest replay rebuild
    """

    partition: Partition = None
    swap: Annotated[bool, _ForCommand("replace the live stores", option="--swap")] = False
    until: OffsetOrTime = None
    name: Annotated[str, Doc("the branch to create", max_length=64)] = "rebuild"
    shards: Annotated[
        int | None,
        _ForCommand("change the number of partitions of log and stores", ge=1, le=1024),
    ] = None
    anyway: Annotated[
        bool, _ForCommand("with --swap: replace even if they differ", option="--anyway")
    ] = False

    surface: ClassVar = Surface(command="replay rebuild")
    stops: ClassVar = True

    def validate(self) -> None:
        super().validate()
        if self.anyway and not self.swap:
            raise RequestError("--anyway is for --swap")
        if self.shards is not None and self.partition is not None:
            raise RequestError("--shards is of all partitions")

    def is_done(self, answer: Json) -> bool:
        return not answer["stopped"] and (answer["equal"] or self.anyway)


class Reextract(ReplayRequest):
    """Extract facts from old turns again with another model or settings, into a branch.

    --provider, --model and --set define the differences; people's changes are applied again to the
    corresponding facts. The live memory is only read. After an interruption, the same command
    resumes; run later, it adds what has arrived since.

    Example: palimpsest replay reextract --branch better --provider rules --dry-run
    """

    branch: Annotated[str, Doc("the branch to create or to resume", max_length=64)]
    provider: Provider = None
    model: Model = None
    scope: OfScope = None
    since: TurnsSince = None
    until: Annotated[datetime | None, Doc("turns before this time")] = None
    sample: Sample = None
    rate: Rate = None
    budget_tokens: BudgetTokens = None
    dry_run: DryRun = False
    overrides: Annotated[
        tuple[str, ...],
        Doc("settings that differ from the live ones, as --set takes them", surfaces=("library",)),
    ] = ()

    surface: ClassVar = Surface(command="replay reextract")
    stops: ClassVar = True

    def is_done(self, answer: Json) -> bool:
        return self.dry_run or answer["ended"] == "done"


class Diff(ReplayRequest):
    """Compare a branch with the live memory: facts, decisions, graph, tokens, recall.

    Works while a worker runs. Two facts are paired if their texts are equal, or if they come from
    the same turn and are similar; `keep` gives the reason why a promotion would not change one.

    Example: palimpsest replay diff better
    """

    branch: _Branch
    scopes: _Scopes = ()
    questions: Annotated[
        str | None,
        _ForCommand(
            "queries to run on both: one JSON object per line, see the documentation",
            metavar="PATH",
        ),
    ] = None
    out: Annotated[
        str | None,
        _ForCommand(
            "output: a folder of Parquet, facts as .parquet, lines as .jsonl", metavar="PATH"
        ),
    ] = None

    surface: ClassVar = Surface(command="replay diff")

    @property
    def writes_lines(self) -> bool:
        return self.out is not None and self.out.endswith(".jsonl")

    def validate(self) -> None:
        super().validate()
        if self.writes_lines and self.questions is not None:
            raise RequestError(
                "--questions needs the whole comparison at once; it cannot be combined with a"
                " .jsonl"
            )


class _ByScope(ReplayRequest):
    """Is done where no scope refused it."""

    def is_done(self, answer: Json) -> bool:
        return all(each["status"] != "refused" for each in answer["scopes"])


class Promote(_ByScope):
    """Apply the differences of a branch to the live memory, each scope atomically.

    Facts that only the branch has are added, and those with another text are changed in place. With
    --allow-loss, facts that the branch lacks are forgotten; without it, a scope that would lose any
    is refused, and they are shown. Memories that people changed, pinned, confirmed or forgot stay
    unchanged, and so do turns, remembered texts, and facts from later turns. After an interruption,
    the same command resumes. Undo it with `palimpsest replay rollback`.

    Example: palimpsest replay promote better --dry-run
    """

    branch: _Branch
    scopes: _Scopes = ()
    reason: _Reason = ""
    dry_run: DryRun = False
    allow_loss: AllowLoss = False
    catch_up: CatchUp = True
    most_behind: Annotated[
        int,
        _ForCommand("maximum number of log records that the branch may lag behind", ge=0),
    ] = 1_000
    wait: _Wait = 600.0

    surface: ClassVar = Surface(command="replay promote")


class Rollback(_ByScope):
    """Undo a promotion: remove what it added, restore what it replaced or forgot.

    Memories changed or written since stay unchanged.

    Example: palimpsest replay rollback 6f9619ff
    """

    promotion: Annotated[
        str,
        Doc("its id, or the first 8 characters", max_length=64, argument=True, metavar="PROMOTION"),
    ]
    reason: _Reason = ""
    wait: _Wait = 600.0

    surface: ClassVar = Surface(command="replay rollback")


REPLAYS: Final[Mapping[str, type[ReplayRequest]]] = {
    kind.slug: kind for kind in (Rebuild, Reextract, Diff, Promote, Rollback)
}
"""By the kind that an order names."""


# ---- what replays tell ----
@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """`done` of `total` in `unit` (such as "records" or "turns") of the step `phase`."""

    phase: str
    done: int
    total: int
    unit: str = "records"


Report: TypeAlias = Callable[[ReplayProgress], None]
"""Called from any thread, at most a few times per second by each reporter."""


def unreported(_: ReplayProgress) -> None:
    """Discards the progress."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who follows a rebuild, which ends after its present step once `stopping` returns true."""

    report: Report = unreported
    stopping: Callable[[], bool] = lambda: False


UNWATCHED: Final = Watch()
"""Nobody: it runs to its end."""


MatchedBy = Literal["same id", "equal text", "embedding", "words", "erased"]
"""How a counterpart was found: by its id, which equals that of the live memory if it does not come
from a model's words; by its normalized text; by the cosine of the texts, or by their common words
where there is no vector. `erased`: the text is gone, and no other live fact of the turn accounts
for the branch's."""

Status = Literal["fed", "re-applied", "refused", "suppressed", "no counterpart", "not carried out"]
"""`fed`: the branch has the command, and its result is not known yet. `re-applied`: the branch
executed it. `refused`: the branch did not, and `detail` says why. `suppressed`: the branch said a
forgotten or corrected thing in other words and forgot that, too. `no counterpart`: nothing in the
branch corresponds. `not carried out`: the live memory refused the command, so the branch did not
get it."""


@dataclass(frozen=True, slots=True)
class Curated:
    """One memory that a person's command named or took along, and the result in a branch; it has
    no texts, which an erasure would have to find. `live_id` is its id in the live memory; for
    apply-proposals and dismiss-proposals it is the id of the pending fact, and `branch_id` that of
    the branch's pending fact. `partition` and `offset` locate the command in the live
    memory-writes. `similarity` is from 0 to 1, None if nothing was compared."""

    command_id: str
    command: str
    scope: str
    partition: int
    offset: int
    live_id: str
    branch_id: str | None
    matched_by: MatchedBy | None
    similarity: float | None
    status: Status
    detail: str = ""
