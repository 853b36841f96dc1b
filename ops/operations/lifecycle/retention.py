"""Retention: the windows of a scope, and a sweep on request."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.lifecycle.jobs import JobRun, run_on_request
from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read, Surface, Write

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources


class Window(Answer):
    """A retention window in days, and where it is set."""

    window: str
    days: int
    origin: str


class ScopeRetention(Answer):
    """The windows in effect for a scope."""

    scope: str
    windows: tuple[Window, ...]


class Retention(Read[ScopeRetention]):
    """Show how long a scope keeps deleted memories, history, completed items, dead letters and
    recorded recalls, and where each window is set.

    Example: palimpsest retention show --scope support
    """

    scope: shared.Scope = ""

    surface: ClassVar = Surface(
        ("GET", "/api/retention"),
        tag="operation",
        command="retention show",
        panel="Run and operate",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.lifecycle.retention import configured, own_windows

        with sources.shard_of(self.scope).reading() as reader:
            own = own_windows(reader, self.scope)
        windows = []
        for name, days in own.items():
            section = "pipeline.recovery_days" if name == "deleted_days" else f"retention.{name}"
            origin = f"setting {section}" if days is None else "this scope"
            known = configured(sources.settings, name) if days is None else days
            windows.append({"window": name, "days": known, "origin": origin})
        return {"scope": self.scope, "windows": windows}


class RetentionSet(Applied, kw_only=True):
    """The scope's own windows after the change; None where the settings apply."""

    status: str
    windows: dict[str, int | None]


def _days(what: str) -> Doc:
    return Doc(f"days for which the scope keeps {what}", ge=0, le=36_500)


class SetRetention(Write[RetentionSet]):
    """Set how long a scope keeps what, instead of the settings; what is not named stays as it is.

    Example: palimpsest retention set support --history-days 30
    """

    scope: shared.OwnScope = ""
    deleted_days: Annotated[int | None, _days("forgotten memories, to be recovered")] = None
    history_days: Annotated[int | None, _days("history events")] = None
    completed_days: Annotated[int | None, _days("completed pipeline items")] = None
    dead_letter_days: Annotated[int | None, _days("dead letters")] = None
    recall_days: Annotated[int | None, _days("recorded recalls")] = None
    as_configured: Annotated[
        bool, Doc("first drop all windows that were set, so that the settings apply")
    ] = False
    reason: shared.Reason = ""

    body: ClassVar = "SetRetentionCommand"
    surface: ClassVar = Surface(
        ("PUT", "/api/retention"),
        tag="operation",
        command="retention set",
        panel="Run and operate",
        permission="admin",
    )

    def validate(self) -> None:
        from palimpsest.streams.apply.upkeep import WINDOWS

        if not self.as_configured and all(getattr(self, name) is None for name in WINDOWS):
            raise RequestError("name at least one window, for example history_days")


class SweepLeft(Answer):
    """How many rows a step of the sweep would remove in a scope."""

    scope: str
    step: str
    rows: int


class Sweep(Answer):
    """The runs of a sweep by partition, or, of a dry run, what is left for it to remove."""

    runs: tuple[JobRun, ...] = ()
    left: tuple[SweepLeft, ...] = ()


class SweepRetention(Read[Sweep]):
    """Remove what is past its retention window now, or show how much that is (`dry_run`).

    Example: palimpsest retention sweep --dry-run
    """

    scope: shared.AnyScope = None
    dry_run: Annotated[bool, Doc("only show how many rows each step would remove")] = False
    timeout: shared.Timeout = 20.0

    surface: ClassVar = OPERATING(
        ("POST", "/api/retention/sweep"), command="retention sweep", needs_stages=True
    )

    async def read(self, sources: Sources) -> Json:
        import asyncio

        if self.dry_run:
            return {"runs": [], "left": await asyncio.to_thread(self._left, sources)}
        return {
            "runs": await run_on_request(sources, "retention", self.timeout, self.scope),
            "left": [],
        }

    def _left(self, sources: Sources) -> Json:
        from palimpsest.ops.lifecycle.retention import left

        return [
            asdict(SweepLeft(*each))
            for shard in sources.shards.values()
            for each in left(shard, sources.settings, sources.now(), self.scope)
        ]
