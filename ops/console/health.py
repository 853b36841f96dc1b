"""The views of a memory's health, of its scheduled jobs, and of what time would take of it."""

from __future__ import annotations

from typing import Any, Final, get_args

from fastapi import Response

from palimpsest.ops.console.page import Page, PageOf, router
from palimpsest.ops.console.showing import count, number, url, words
from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.problems import KINDS, Problem, of_request
from palimpsest.ops.operations.lifecycle.health import Diagnose, RepairDomain
from palimpsest.ops.operations.lifecycle.jobs import RunJob
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.lifecycle.retention import Retention, SetRetention
from palimpsest.ops.operations.lifecycle.simulation import Simulate
from palimpsest.ops.operations.operation import Json, parameters

routes = router()

REPAIRED: Final = frozenset(get_args(parameters(RepairDomain)[0].type))
"""The domains that have a repair."""
ELSEWHERE: Final = {
    "providers": ("/pipeline", "See the models and their outages"),
    "stale": ("/simulation", "See what would fade"),
    "never_recalled": ("/simulation", "See what would fade"),
    "near_duplicates": ("/memories", "Look through the memories"),
    "overlong": ("/memories", "Look through the memories"),
}
"""Where a person finds what a domain without a repair is about."""
COUNTED: Final = {
    "accepted": "turns accepted",
    "recent": "recent turns",
    "turns_of_day": "turns in 24 h",
    "dead": "dead letters",
    "dead_of_day": "dead letters in 24 h",
    "lag": "records waiting",
    "oldest_seconds": "oldest wait in seconds",
}
"""What the counts of the queue are called; the names of the others are words."""


@routes.get("/diagnostics")
async def diagnostics(page: PageOf) -> Response:
    """The health by domain, the worst first, and the scheduled jobs."""
    found = await page.ask(Diagnose, scope=page.scope)
    domains = sorted(found["domains"].items(), key=lambda each: each[1]["score"])
    jobs = (await page.ask(Status))["jobs"]
    return page.render(
        "health.html",
        health=found,
        domains=domains,
        repairable=REPAIRED if page.may(RepairDomain) else (),
        jobs=jobs,
        may_run=page.may(RunJob),
    )


@routes.get("/diagnostics/{domain}")
async def domain(page: PageOf, domain: str) -> Response:
    """A domain with its counts, and its repair; with `preview`, what that would do."""
    return await _domain(page, domain, page.scope, preview=bool(page.query["preview"]))


async def _domain(
    page: Page, name: str, scope: str | None, preview: bool = False, refused: str = ""
) -> Response:
    found = (await page.ask(Diagnose, domain=name, scope=scope))["domains"].get(name)
    if found is None:
        raise NotFoundError(f"no partition is open here, so nothing is known of {name}")
    may_repair = name in REPAIRED and page.may(RepairDomain)
    plan = None
    if preview and may_repair:
        plan = await page.ask(RepairDomain, domain=name, scope=scope, dry_run=True)
    return page.render(
        "domain.html",
        name=name,
        scope=scope,
        domain=found,
        may_repair=may_repair,
        plan=plan,
        refused=refused,
        elsewhere=ELSEWHERE.get(name),
        counted_as=COUNTED,
        may_run=page.may(RunJob),
    )


@routes.post("/diagnostics/{domain}/repair")
async def repair(page: PageOf, domain: str) -> Response:
    """Repairs a domain. A refusal, as of a second repair in a short time, is shown on its page."""
    scope = page.form.get("scope") or None
    try:
        answer = await page.ask(RepairDomain, domain=domain, scope=scope, by=page.caller.name)
    except (Problem, RequestError) as error:
        problem = error if isinstance(error, Problem) else of_request(error)
        response = await _domain(page, domain, scope, refused=why_refused(problem))
        response.status_code = KINDS[problem.code][0]
        return response
    return page.see(url(f"/diagnostics/{domain}", scope=scope), repaired(answer))


def why_refused(problem: Problem) -> str:
    """Why nothing was repaired, and when to try again where that is known."""
    seconds = problem.headers.get("Retry-After", "")
    if not seconds.isdecimal():
        return f"Nothing was repaired: {problem.detail}."
    minutes = round(int(seconds) / 60)
    wait = count(minutes, "minute") if minutes else count(int(seconds), "second")
    return f"Nothing was repaired: {problem.detail}. It can be repaired again in {wait}."


def repaired(answer: Json) -> str:
    """What a repair did, in a sentence or two."""
    total: dict[str, int] = {}
    for counts in answer["scopes"].values():
        for kind, found in counts.items():
            total[kind] = total.get(kind, 0) + found
    if not total:
        return "There was nothing to repair."
    what = ", ".join(f"{number(found)} {words(kind)}" for kind, found in total.items())
    if answer["score_after"] is None:
        return f"Repairing: {what}. The worker does the rest; reload this page for the new score."
    before, after = (number(answer[name], 2) for name in ("score_before", "score_after"))
    return f"Repaired: {what}. The score was {before}, and is {after} now."


@routes.post("/jobs/{name}/run")
async def run_job(page: PageOf, name: str) -> Response:
    """Runs a scheduled job now."""
    runs = (await page.ask(RunJob, name=name))["runs"]
    told = "; ".join(f"{each['outcome'] or 'still running'}, {each['detail']}" for each in runs)
    return page.see(url("/diagnostics"), f"{words(name)}: {told or 'no partition is open'}.")


# ---- simulation ----
@routes.get("/simulation")
async def simulation(page: PageOf) -> Response:
    """What retention and decay would take with the settings of the URL, or the form for them."""
    if page.scope is None:
        return page.see(page.here(scope=await page.chosen_scope()))
    return await _simulation(page)


async def _simulation(page: Page, refused: str = "") -> Response:
    windows = (await page.ask(Retention, scope=page.scope))["windows"]
    kept = next(each for each in windows if each["window"] == "deleted_days")
    asked = page.fields_of(Simulate)
    shown: dict[str, Any] = {"simulation": None, "present": None, "texts": {}, "swept": None}
    if len(asked) > 1:  # more than the scope
        found = await page.ask(Simulate, **asked)
        missing = (each["memory_id"] for r in found["recalls"] for each in r["missing"])
        shown |= {"simulation": found, "texts": await page.memories(page.scope, missing)}
        changed = {"deleted_days", "decay_rate"} & {*asked}
        if changed:
            kept_fields = {name: each for name, each in asked.items() if name not in changed}
            shown["present"] = await page.ask(Simulate, **{**kept_fields, "limit": 1, "cursor": 0})
        if asked.get("deleted_days", str(kept["days"])) != str(kept["days"]):
            shown["swept"] = await _swept_next(page) if page.may(SetRetention) else None
    form = {each.name: each for each in parameters(Simulate)}
    return page.render("simulation.html", form=form, kept=kept, refused=refused, **shown)


async def _swept_next(page: Page) -> int:
    """How many forgotten memories the next sweep would remove with the window of the URL."""
    days = page.query["deleted_days"]
    asked = {"scope": page.scope, "deleted_days": days, "days_ahead": 0, "limit": 1}
    return int((await page.ask(Simulate, **asked))["by_reason"].get("swept", 0))


@routes.post("/simulation")
async def keep_for(page: PageOf) -> Response:
    """Keeps forgotten memories of the scope for the days of the URL from now on. Changes nothing if
    that would remove another number of them than the page has shown, or was not confirmed."""
    swept = await _swept_next(page)
    lost = count(swept, "forgotten memory", "forgotten memories")
    if page.form.get("swept") != str(swept) or (swept and not page.form.get("confirmed")):
        told = (
            f"Nothing was changed: the next sweep would remove {lost} for good. Confirm it below."
        )
        response = await _simulation(page, refused=told)
        response.status_code = KINDS["conflict"][0]
        return response
    days, reason = page.query["deleted_days"], page.form.get("reason", "")
    await page.ask(SetRetention, scope=page.scope, deleted_days=days, reason=reason)
    told = f"{page.scope} keeps forgotten memories for {days} days. The next sweep removes {lost}."
    return page.see(url("/simulation", scope=page.scope), told)
