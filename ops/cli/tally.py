"""Counts and reports what `ingest` published and what it refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from palimpsest.ops.cli.common import echo, print_json, warn

if TYPE_CHECKING:
    from palimpsest.ops.awaited_turns import TurnKey
    from palimpsest.ops.ingest.known import Published, Standing
    from palimpsest.ops.queries.requests import JsonObject
    from palimpsest.streams.logs.base import Outgoing

MAX_TOLD = 100
"""Bad lines told one by one; the rest is counted."""
STANDINGS = ("stored", "rejected", "dead_letter", "pending")
SHOWN_TURNS = 3
"""Turns shown of a dry run."""


class Tally:
    """Counts turns as they become durable; reports bad lines and notes at once."""

    def __init__(self, as_json: bool, dry_run: bool, keeps_keys: bool = False) -> None:
        self._as_json = as_json
        self._dry_run = dry_run
        self._keeps_keys = keeps_keys
        self.keys: list[TurnKey] = []
        """What the published turns are waited for by."""
        self._settled: dict[str, int] = {}
        self.published = 0
        self._standings: Counter[Standing] = Counter()
        self._scopes: Counter[str] = Counter()
        self._bad: list[dict[str, str]] = []
        self._conflicts: list[dict[str, str]] = []
        self._notes: list[str] = []
        self._files: list[dict[str, str]] = []
        self._file = ""

    def took(self, name: str, form: str) -> None:
        """A source is read as `form`."""
        from palimpsest.ops.ingest.formats import FORMATS

        self._file = name
        self._files.append({"file": name, "format": form})
        if form != "turns" or self._dry_run:
            typer.echo(f"{name}: taken for {FORMATS[form]}", err=True)

    def note(self, text: str) -> None:
        """Something to know about the source being read."""
        told = text if text.startswith(self._file) else f"{self._file}: {text}"
        self._notes.append(told)
        typer.echo(told, err=True)

    def refuse(self, place: str, reason: str) -> None:
        """The item at `place` is refused."""
        self._bad.append({"place": place, "reason": reason})
        if len(self._bad) <= MAX_TOLD:
            warn(f"{place}: {reason}")

    def add(self, batch: Sequence[Outgoing], standings: Sequence[Standing]) -> None:
        """A batch is on the log."""
        for record, standing in zip(batch, standings, strict=True):
            self._standings[standing] += 1
            self._scopes[record.scope] += 1
            if standing == "conflict":
                self._conflict(record)
            if self._dry_run and self.published < SHOWN_TURNS and not self._as_json:
                echo(_shown(record))
            self.published += 1
        if self._keeps_keys:
            from palimpsest.ops.awaited_turns import key_of

            self.keys += [key_of(record)[0] for record in batch]

    def settle(self, found: Mapping[TurnKey, JsonObject]) -> None:
        """What became of the published turns by now; each reason is told once."""
        standings = [found.get(key, {"status": "pending"}) for key in self.keys]
        counts = Counter(str(each["status"]) for each in standings)
        self._settled = {name: counts[name] for name in STANDINGS}
        refused = (each for each in standings if each["status"] in ("rejected", "dead_letter"))
        for reason in [*dict.fromkeys(str(each["reason"]) for each in refused)][:MAX_TOLD]:
            warn(reason)

    def _conflict(self, record: Outgoing) -> None:
        turn_id = str(_body(record)["turn_id"])
        self._conflicts.append({"scope": record.scope, "turn_id": turn_id})
        if len(self._conflicts) <= MAX_TOLD:
            warn(
                f"turn_id {turn_id} of scope {record.scope} was published before with another"
                " content; the pipeline keeps the first and refuses this one: give it an id of its"
                " own"
            )

    def stopped(self) -> None:
        """Ctrl-C: report how many turns are durable."""
        warn(f"stopped: {self._durable()}")

    def failed(self) -> None:
        """Report how many turns are durable; the error itself follows."""
        warn(self._durable())

    def _durable(self) -> str:
        return (
            f"{self.published} turns were published before it stopped; publish the same again to go"
            " on, nothing is doubled"
        )

    def tell(self, before: Published) -> None:
        """The result. Raises Exit with code 1 when anything was bad."""
        for kind, told in (("bad lines", self._bad), ("conflicts", self._conflicts)):
            if len(told) > MAX_TOLD:
                warn(f"… and {len(told) - MAX_TOLD} more {kind}")
        if self._as_json:
            print_json(self._json())
        else:
            echo(self._line(before))
        if self._bad or self._conflicts or self._settled.get("dead_letter"):
            raise typer.Exit(1)

    def _line(self, before: Published) -> str:
        scopes = ", ".join(f"{scope} ({count})" for scope, count in self._scopes.items())
        into = f" into {scopes}" if scopes else ""
        done = "would be published" if self._dry_run else "published"
        line = f"{self.published} turns {done}{into}, {len(self._bad)} bad"
        known, conflicts = self._standings["known"], self._standings["conflict"]
        if known or conflicts:
            line += f": {self._standings['new']} new, {known} known before"
            line += f", {conflicts} in conflict" if conflicts else ""
            line += "" if before.complete else " (of the newest 200,000 published)"
        told = (f"{count} {name.replace('_', ' ')}" for name, count in self._settled.items())
        return f"{line}; {', '.join(told)}" if self._settled else line

    def _json(self) -> dict[str, object]:
        return {
            "published": 0 if self._dry_run else self.published,
            **({"dry_run": True, "found": self.published} if self._dry_run else {}),
            **{name: self._standings[name] for name in ("new", "known")},
            "conflicts": self._conflicts,
            "bad": self._bad,
            "scopes": dict(self._scopes),
            "files": self._files,
            "notes": self._notes,
            **({"settled": self._settled} if self._settled else {}),
        }


def _message(record: Outgoing) -> dict[str, object]:
    from pydantic_core import from_json

    found: dict[str, object] = from_json(record.value or b"")
    return found


def _body(record: Outgoing) -> dict[str, object]:
    body = _message(record)["body"]
    assert isinstance(body, dict)
    return body


def _shown(record: Outgoing) -> str:
    message, body = _message(record), _body(record)
    who = body.get("speaker") or body.get("role") or ""
    text = " ".join(str(body["content"]).split())
    at = str(message["occurred_at"])[:16].replace("T", " ")
    return f"  {at}  {who}: {text[:100]}{'…' if len(text) > 100 else ''}"
