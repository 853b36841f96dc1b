"""The views of an operator who keeps a memory in order: its health with the repairs and the jobs,
and what retention and decay would take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palimpsest.ops.console.health import repaired, why_refused
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.operations.lifecycle.health import RepairDomain
from tests.browser.conftest import MARKUP, expect, publish
from tests.browser.test_console import serious
from tests.flows.http_server import Served
from tests.flows.program import PATIENCE_S, until

SCOPE = "orchard"
SAID = (
    ("Mira", "I live in Porto. I am allergic to walnuts."),
    ("Jon", f"My favourite tag is {MARKUP}"),
)


@pytest.fixture(scope="module")
def orchard(service: Served) -> Served:
    publish(service, SCOPE, "trees", SAID)
    with service.client() as client:
        asked = {"query": f"Who is allergic? {MARKUP}", "scope": SCOPE, "group": False}
        assert client.post("/api/memory/recall", json=asked).json()["results"]
        simulated = {"scope": SCOPE, "days_ahead": 0}
        url = "/api/retention/simulate"
        until(lambda: client.get(url, params=simulated).json()["recalls_recorded"] > 0)
    return service


async def lose_postings(served: Served) -> None:
    """Behind the program's back."""
    assert served.up.app is not None
    for shard in served.up.app.shards.values():
        async with shard.lock:
            with shard.writing() as connection:
                connection.execute("DELETE FROM fts_docs WHERE scope = ?", [SCOPE])


def test_a_domain_is_repaired_after_a_dry_run(
    page: Any, orchard: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run_coroutine_threadsafe(lose_postings(orchard), orchard.loop).result(PATIENCE_S)
    page.goto("/diagnostics")
    row = page.get_by_role("row").filter(has_text="without postings")
    assert "palimpsest repair index" in row.inner_text()
    row.get_by_role("link", name="Index", exact=True).click()
    page.get_by_role("heading", name="Health: index").wait_for()
    page.wait_for_load_state()
    page.get_by_role("textbox", name="Scope").fill(SCOPE)
    assert page.get_by_role("button", name="Repair").count() == 0
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("row").filter(has_text=SCOPE).get_by_text("missing").wait_for()
    assert serious(page) == []

    async def refused(operation: RepairDomain, sources: object) -> None:
        wait = {"Retry-After": "540"}
        raise Problem("rate_limited", f"{operation.domain} was repaired a minute ago", wait)

    with monkeypatch.context() as patched:
        patched.setattr(RepairDomain, "read", refused)
        page.get_by_role("button", name=f"Repair {SCOPE}").click()
        expect(page.get_by_role("alert")).to_contain_text(
            "index was repaired a minute ago. It can be repaired again in 9 minutes."
        )
    page.complaints.clear()  # the browser logs the status 429

    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name=f"Repair {SCOPE}").click()
    page.get_by_role("status").filter(has_text="The score was 0.").wait_for()
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text(f"There is nothing to repair in {SCOPE}.").wait_for()


def test_a_job_is_run_and_its_outcome_is_shown(page: Any, service: Served) -> None:
    page.goto("/diagnostics")
    row = page.get_by_role("row").filter(has_text="Retention")
    row.get_by_role("button", name="Run now").click()
    page.get_by_role("status").filter(has_text="retention: ok").wait_for()
    expect(row).to_contain_text("Ok", use_inner_text=True)


def test_what_a_setting_would_take_is_shown_with_the_recalls_of_it(
    page: Any, orchard: Served
) -> None:
    page.goto("/simulation")
    page.get_by_role("textbox", name="Scope").fill(SCOPE)
    page.get_by_label("Decay rate").fill("0")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_text("Nothing would be taken").wait_for()
    page.get_by_label("Decay rate").fill("9.5")
    page.get_by_label("Days ahead").fill("10")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_text("more than now").first.wait_for()
    page.wait_for_load_state()
    assert "decay_rate=9.5" in page.url
    asked = page.get_by_role("row").filter(has_text="Who is allergic?")
    assert MARKUP in asked.inner_text()
    assert "Mira is allergic to walnuts." in asked.inner_text()
    assert page.locator("main img, main script").count() == 0
    row = page.get_by_label("Table of memories").get_by_role("row").filter(has_text="walnuts")
    assert "Fades" in row.inner_text()
    row.get_by_role("link").click()
    page.get_by_role("heading", level=1, name="Mira is allergic to walnuts.").wait_for()


def test_a_refusal_and_a_repair_are_told_in_words() -> None:
    wait = Problem("rate_limited", "repaired just now", {"Retry-After": "20"})
    assert why_refused(wait).endswith("It can be repaired again in 20 seconds.")
    assert why_refused(Problem("frozen", "frozen")) == "Nothing was repaired: frozen."
    answer = {"scopes": {"a": {"unlinked": 2}, "b": {"unlinked": 1}}, "score_before": 0.5}
    assert repaired({**answer, "score_after": None}).startswith("Repairing: 3 unlinked.")
    assert repaired({**answer, "scopes": {}}) == "There was nothing to repair."


def test_a_simulated_window_is_set_for_what_it_was_shown_to_take(
    page: Any, service: Served
) -> None:
    publish(service, "cellar", "shelf", (("Mira", "I live in Faro. I am allergic to walnuts."),))

    def forget(words: str) -> None:
        listed = client.get("/api/memories", params={"scope": "cellar", "types": "fact"}).json()
        [memory] = [each["id"] for each in listed["memories"] if words in each["content"]]
        named = {"memory_ids": [memory], "scope": "cellar", "reason": "moved away"}
        assert client.post("/api/memory/forget", json=named).status_code == 200

    def kept() -> tuple[int, str]:
        windows = client.get("/api/retention", params={"scope": "cellar"}).json()["windows"]
        [found] = [each for each in windows if each["window"] == "deleted_days"]
        return found["days"], found["origin"]

    with service.client() as client:
        before = kept()
        forget("Faro")
        page.goto("/simulation?scope=cellar&deleted_days=0")
        page.get_by_text("removes 1 forgotten memory for good").wait_for()
        assert serious(page) == []
        forget("walnuts")
        page.get_by_label("Reason").fill("a small cellar")
        page.get_by_label("Remove it for good").check()
        page.get_by_role("button", name="Keep for 0 days").click()
        simulated = {"scope": "cellar", "deleted_days": 0, "days_ahead": 0}
        now = client.get("/api/retention/simulate", params=simulated).json()["by_reason"]["swept"]
        assert now > 1
        told = f"Nothing was changed: the next sweep would remove {now} forgotten memories"
        expect(page.get_by_role("alert")).to_contain_text(told)
        page.complaints.clear()  # the browser logs the status 409
        assert kept() == before
        unconfirmed = {"swept": str(now), "reason": "x"}
        origin = {"Origin": service.address}
        answer = client.post(
            "/simulation?scope=cellar&deleted_days=0", data=unconfirmed, headers=origin
        )
        assert (answer.status_code, kept()) == (409, before)
        page.get_by_label("Reason").fill("a small cellar")
        page.get_by_label("Remove them for good").check()
        page.get_by_role("button", name="Keep for 0 days").click()
        page.get_by_role("status").filter(
            has_text="cellar keeps forgotten memories for 0 days"
        ).wait_for()
        assert kept() == (0, "this scope")
        page.goto("/simulation?scope=cellar&deleted_days=0")
        assert page.get_by_role("button", name="Keep for").count() == 0
        page.goto("/simulation?scope=cellar&deleted_days=60")
        page.get_by_text("removes nothing").wait_for()
