"""The views of those who operate a memory: the pipeline, dead letters, replays, SQL with charts."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, Literal

from fastapi import Response

from palimpsest.ops.console.page import ANALYST, Page, PageOf, router
from palimpsest.ops.console.showing import count, own_path, url
from palimpsest.ops.errors import RequestError
from palimpsest.ops.http.scope_routes import run_query
from palimpsest.ops.operations.dead_letters import (
    AmendDeadLetter,
    DeadLetters,
    Discard,
    GetDeadLetter,
    Redrive,
)
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json
from palimpsest.ops.reading.rows import Row
from palimpsest.ops.replay.operations import (
    Branches,
    DropBranch,
    GetReplay,
    ReplayDifferences,
    Replays,
    StartReplay,
    StopReplay,
)
from palimpsest.ops.sql.output import json_rows
from palimpsest.ops.sql.saved_queries import COLUMNS, SAVED_QUERIES
from palimpsest.stores.database.view_columns import PARTITION
from palimpsest.streams.models.base import Prices

routes = router()

PLACES: Final = {
    "normalize": (170, 30),
    "apply-writes": (455, 30),
    "extract": (800, 30),
    "decide": (800, 175),
    "graph-persist": (455, 175),
    "audit": (170, 175),
}
"""Where each stage stands in the picture: the left upper corner, in units of its view box."""
WORST: Final = ("stopped", "waiting", "running", "idle")
ALWAYS: Final = frozenset(
    {"stored", "rejected", "dead", "in_flight", "created", "updated", "deleted"}
)
"""Terms of the balance that are shown even when they are zero."""


@dataclass(frozen=True, slots=True)
class Node:
    """A stage of the picture, over all partitions."""

    name: str
    x: int
    y: int
    state: str
    lag: int
    waiting_since: str | None


def nodes(stages: Sequence[Any]) -> list[Node]:
    """The stages of the picture: the lag of all partitions, the worst state of one, and since
    when its oldest record waits."""
    found = []
    for name, (x, y) in PLACES.items():
        of = [each for each in stages if each["stage"] == name]
        states = [each["state"] for each in of]
        state = next((each for each in WORST if each in states), "stopped")
        since = min((each["waiting_since"] for each in of if each["waiting_since"]), default=None)
        found.append(Node(name, x, y, state, sum(each["lag"] for each in of), since))
    return found


def equation(counts: dict[str, int]) -> dict[str, Any]:
    """The balance of turns or facts: what came in (its first entry), and the terms that sum up to
    it. Leaves out terms that are mostly zero and are so now."""
    (whole, total), *terms = counts.items()
    shown = [(name, n) for name, n in terms if n or name in ALWAYS]
    summed = sum(n for name, n in terms if name != "lost")
    return {"whole": whole, "total": total, "terms": shown, "holds": total == summed}


@routes.get("/pipeline")
async def pipeline(page: PageOf) -> Response:
    """The stages, the balance of turns and facts, models and jobs; renewed as events arrive."""
    status = await page.ask(Status)
    metrics, llm = page.service.metrics, page.service.settings.llm
    usage = metrics.of_models()
    called, cost = usage.get(f"llm:{llm.provider}"), None
    if called and (llm.input_price, llm.output_price) != (None, None):
        prices = Prices(llm.input_price or 0.0, llm.output_price or 0.0)
        cost = prices.of(called.input_tokens, called.output_tokens)
    return page.render(
        "pipeline.html",
        status=status,
        nodes=nodes(status["stages"]),
        turns=equation(status["balance"]["turns"]),
        facts=equation(status["balance"]["facts"]),
        batches=metrics.of_stages(),
        usage=usage,
        cost=cost,
        held=sum(status["pending"].values()),
    )


# ---- dead letters ----
LISTED = 200
"""Dead letters of a page."""
STATUSES = (("dead", "Dead"), ("redriven", "Sent again"), ("dropped", "Discarded"), ("all", "All"))


@routes.get("/dead-letters")
async def dead_letters(page: PageOf) -> Response:
    """The dead letters, with their number by stage and failure."""
    asked = {"limit": 10_000, **page.fields_of(DeadLetters)}
    found = (await page.ask(DeadLetters, **asked))["dead_letters"]
    failure = page.query.get("failure")
    groups = Counter((each["stage"], each["failure"]) for each in found)
    shown = [each for each in found if failure in (None, each["failure"])]
    start = page.start_of(len(shown))
    return page.render(
        "dead_letters.html",
        letters=shown[start : start + LISTED],
        part=(start, LISTED, len(shown)),
        groups=groups.most_common(),
        statuses=STATUSES,
        can_change=page.may(Redrive),
    )


@routes.get("/dead-letters/{dead_letter_id}")
async def dead_letter(page: PageOf, dead_letter_id: str) -> Response:
    """One dead letter with its record."""
    return await _shown(page, dead_letter_id)


async def _shown(page: Page, dead_letter_id: str, **edited: Any) -> Response:
    found = await page.ask(GetDeadLetter, dead_letter_id=dead_letter_id)
    values = {"edited": None, "checked": None, **edited}
    return page.render(
        "dead_letter.html", letter=found, can_change=page.may(AmendDeadLetter), **values
    )


@routes.post("/dead-letters/{dead_letter_id}/amend")
async def amend(page: PageOf, dead_letter_id: str) -> Response:
    """Checks an edited record, or sends it: an invalid one is shown again with what is wrong."""
    record = page.form.get("record", "").replace("\r\n", "\n")
    is_check = page.form.get("do") == "check"
    answer = await page.ask(
        AmendDeadLetter, dead_letter_id=dead_letter_id, record=record, dry_run=is_check
    )
    if answer["redriven"]:
        return page.see(f"/dead-letters/{answer['id']}", "The edited record was sent.")
    return await _shown(page, dead_letter_id, edited=record, checked=answer)


@routes.post("/dead-letters/redrive")
async def redrive(page: PageOf) -> Response:
    """Sends records again: those that were chosen."""
    answer = await page.ask(Redrive, ids=page.form.getlist("id"))
    notice = f"{count(len(answer['redriven']), 'record')} sent again."
    for each in answer["refused"]:
        notice += f" {each['id'][:8]} was not: {each['reason']}."
    return page.see(own_path(page.form.get("after", "/dead-letters")), notice)


@routes.post("/dead-letters/discard")
async def discard(page: PageOf) -> Response:
    """Discards those that were chosen."""
    answer = await page.ask(Discard, ids=page.form.getlist("id"))
    notice = f"{count(len(answer['discarded']), 'dead letter')} discarded."
    return page.see(url("/dead-letters"), notice)


# ---- replays ----
FIELDS: Final = ("kind", "branch", "name", "provider", "model", "scope", "sample", "promotion")
"""The fields of an order that the forms have."""
OUTCOMES: Final = {"gain": "gained", "replace": "changed", "lose": "lost", "keep": "kept"}
"""What a preview counts, in the words of what was done."""
CHECKS: Final = ("dry_run", "allow_loss")


@routes.get("/replay")
async def replays(page: PageOf) -> Response:
    """The branches and the replays."""
    found = (await page.ask(Replays))["replays"]
    branches = (await page.ask(Branches))["branches"]
    return page.render("replays.html", replays=found, branches=branches)


@routes.post("/replay")
async def start(page: PageOf) -> Response:
    """Starts a replay, and shows its progress."""
    order: dict[str, Any] = {name: page.form.get(name) or None for name in FIELDS}
    order |= {name: True for name in CHECKS if page.form.get(name)}
    replay = await page.ask(StartReplay, **order)
    return page.see(f"/replay/{replay['id']}")


@routes.get("/replay/{replay_id}")
async def replay(page: PageOf, replay_id: str) -> Response:
    """The progress or the result of a replay; of a comparison, a page of its differences."""
    found = await page.ask(GetReplay, replay_id=replay_id)
    differences: Json = {"differences": [], "next_cursor": None}
    if found["kind"] == "diff" and found["state"] == "done":
        asked = page.fields_of(ReplayDifferences, "cursor", "limit")
        differences = await page.ask(ReplayDifferences, replay_id=replay_id, **asked)
    return page.render(
        "replay.html", replay=found, left=seconds_left(found), **differences, changes=changes(found)
    )


def seconds_left(replay: Json) -> float | None:
    """Seconds until a running step is done, by what it has done so far; None if that is unknown."""
    progress = replay["progress"]
    if replay["state"] != "running" or not progress or not progress["done"]:
        return None
    began = datetime.fromisoformat(replay["started_at"])
    spent = (datetime.now(UTC) - began).total_seconds()
    return float(spent / progress["done"] * (progress["total"] - progress["done"]))


def changes(replay: Json) -> list[tuple[str, int]]:
    """What a promotion or a rollback does over all scopes, by kind of change."""
    total: dict[str, int] = {}
    result = replay["result"] or {}
    if replay["kind"] in ("promote", "rollback"):
        for scope in result.get("scopes", ()):
            scope["counts"] = {OUTCOMES.get(k, k): n for k, n in scope["counts"].items()}
            for kind, number in scope["counts"].items():
                total[kind] = total.get(kind, 0) + number
    return [(kind, total.pop(kind)) for kind in OUTCOMES.values() if kind in total] + [
        *total.items()
    ]


@routes.post("/replay/{replay_id}/stop")
async def stop(page: PageOf, replay_id: str) -> Response:
    """Stops a replay."""
    found = await page.ask(StopReplay, replay_id=replay_id)
    return page.see(f"/replay/{replay_id}", f"The replay is {found['state']}.")


@routes.post("/replay/branches/{branch}/drop")
async def drop(page: PageOf, branch: str) -> Response:
    """Removes a branch."""
    await page.ask(DropBranch, branch=branch)
    return page.see(url("/replay"), f"The branch {branch} was removed.")


# ---- SQL ----
ROWS: Final = 200
"""Rows of a page."""
_VIEWS: Final[dict[str, list[Row]]] = {}
"""The columns of the views, the same as long as this process runs."""


@routes.get("/sql")
async def sql(page: PageOf) -> Response:
    """A page of the result of the query in the URL; without one, only the schema."""
    page.check(ANALYST)
    if not _VIEWS:
        columns = COLUMNS.format(partition=PARTITION, named="")
        schema = json_rows(await run_query(page.service, page.caller, columns))
        _VIEWS.update((name, [*of]) for name, of in groupby(schema, key=lambda row: row["view"]))
    query = page.query["query"].strip()
    shown: dict[str, Any] = {"columns": [], "rows": [], "total": 0, "error": "", "chart": None}
    if query:
        try:
            table = await run_query(page.service, page.caller, query)
        except RequestError as error:
            shown["error"] = str(error)
        else:
            start, total = page.start_of(table.num_rows), table.num_rows
            shown |= {"columns": table.column_names, "total": total, "part": (start, ROWS, total)}
            shown["rows"] = await asyncio.to_thread(json_rows, table.slice(start, ROWS))
            shown["chart"] = await asyncio.to_thread(_chart, page.query, table)
    return page.render("sql.html", views=_VIEWS, saved=SAVED_QUERIES, query=query, **shown)


def _chart(query: dict[str, str], table: Any) -> Chart | None:
    form, x, y = query["chart"], query["x"], query["y"]
    if form not in ("bar", "line", "scatter") or not {x, y} <= {*table.column_names}:
        return None
    rows = json_rows(table.slice(0, 10_000))
    return chart(form, [(row[x], row[y]) for row in rows])


# ---- charts of a result ----
WIDTH: Final = 1000
HEIGHT: Final = 320
LEFT: Final = 70
BOTTOM: Final = 40
MOST_POINTS: Final = 2_000
LABELS: Final = 8
Form = Literal["bar", "line", "scatter"]


@dataclass(frozen=True, slots=True)
class Point:
    """A value in its place, in units of the view box, with its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`labels` lie below, `ticks` to the left. `width` is that of a bar, `base` where it stands."""

    form: str
    points: list[Point]
    labels: list[Point]
    ticks: list[Point]
    width: float
    base: float

    @property
    def path(self) -> str:
        """The line through all points."""
        return "M" + "L".join(f"{each.x:.1f} {each.y:.1f}" for each in self.points)


def chart(form: str, pairs: Sequence[tuple[Any, Any]]) -> Chart | None:
    """A chart of x and y values in their order; None if no y is a number."""
    kept = [(x, float(y)) for x, y in pairs if _is_number(y)][:MOST_POINTS]
    if not kept:
        return None
    low = min(0.0, *(y for _, y in kept)) if form != "scatter" else min(y for _, y in kept)
    high = max(0.0, *(y for _, y in kept)) if form != "scatter" else max(y for _, y in kept)
    span = high - low or 1.0
    room = WIDTH - LEFT
    step = room / len(kept)
    places = _places(form, [x for x, _ in kept], room, step)

    def level(y: float) -> float:
        return (HEIGHT - BOTTOM) - (y - low) / span * (HEIGHT - BOTTOM - 15)

    points = [
        Point(place, level(y), f"{x}: {y:g}") for place, (x, y) in zip(places, kept, strict=True)
    ]
    shown = max(1, len(kept) // LABELS)
    labels = [
        Point(place, HEIGHT - BOTTOM + 22, str(x)[:16])
        for place, (x, _) in list(zip(places, kept, strict=True))[::shown]
    ]
    # Four lines or a few more, at 1, 2 or 5 of a power of ten.
    size = 10.0 ** math.floor(math.log10(span / 4))
    tick = next(each * size for each in (1, 2, 5, 10) if each * size * 5 >= span)
    ticks = [
        Point(LEFT, level(n * tick), f"{n * tick:g}")
        for n in range(math.ceil(low / tick), math.floor((low + span) / tick) + 1)
    ]
    return Chart(form, points, labels, ticks, max(1.0, step * 0.7), level(0.0))


def _places(form: str, values: Sequence[Any], room: float, step: float) -> list[float]:
    """Where each x lies: by its number in a scatter plot of numbers, else evenly."""
    if form == "scatter" and all(_is_number(x) for x in values):
        low, high = min(values), max(values)
        return [LEFT + 10 + (x - low) / ((high - low) or 1) * (room - 20) for x in values]
    return [LEFT + step * (n + 0.5) for n in range(len(values))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
