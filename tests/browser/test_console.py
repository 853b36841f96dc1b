"""The console in a browser: every view without errors, for keyboards, screen readers and phones;
what an operator does there, by clicks and typing."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from palimpsest.ops.console.page import static_files
from tests.browser.conftest import MARKUP, expect, publish
from tests.flows.http_server import Served, problem, server

VIEWS = (
    "/pipeline",
    "/diagnostics",
    "/diagnostics/queue?preview=on",
    "/simulation?scope=garden",
    "/simulation?scope=garden&decay_rate=9&days_ahead=3000",
    "/scopes",
    "/sessions?scope=garden",
    "/sessions/balcony?scope=garden",
    "/dead-letters",
    "/replay",
    "/documents",
    "/privacy?scope=garden",
    "/sql?query=SELECT scope, count(*) AS n FROM turns GROUP BY scope&chart=bar&x=scope&y=n",
)
WIDTHS = (1440, 390)
PAGE = {"Accept": "text/html"}


def serious(page: Any) -> list[tuple[str, str]]:
    """What axe finds that is serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_load_state()
    found = Axe().run(page).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible_and_fits(page: Any, view: str) -> None:
    answer = page.goto(view)
    assert answer.status == 200
    assert serious(page) == []
    page.emulate_media(color_scheme="dark")
    assert serious(page) == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.title().endswith("· Palimpsest")


def test_the_pipeline_follows_what_happens(page: Any, service: Served) -> None:
    page.goto("/")
    page.wait_for_selector("text=holds: nothing is lost")
    page.wait_for_selector("[data-connection]:text('live')")
    balance = page.get_by_role("group", name="Balance of turns")
    before = int(re.findall(r"\d+", balance.inner_text())[0])
    publish(service, "live", "now", (("Mira", "I like swimming."),))
    expect(balance.locator("b").first).to_have_text(str(before + 1))
    counted = [int(each) for each in re.findall(r"\d+", balance.inner_text())]
    assert counted[0] == sum(counted[1:]) == before + 1


def test_a_session_is_a_timeline_of_turns_with_their_facts(page: Any) -> None:
    page.goto("/scopes")
    page.get_by_role("link", name="garden").click()
    page.get_by_role("link", name="balcony").click()
    row = page.get_by_role("row").filter(has_text="walnut cake")
    expect(row).to_contain_text("Mira is allergic to walnuts.")
    expect(page.get_by_role("row").filter(has_text="favourite")).to_contain_text(MARKUP)
    assert page.title() == "balcony · Palimpsest"
    page.get_by_label("Show turns and facts").fill("biscuit adopted")
    expect(page.locator("tbody tr:visible")).to_have_count(1)


def test_a_dead_letter_is_edited_and_sent_and_another_discarded(page: Any) -> None:
    page.goto("/dead-letters")
    page.get_by_role("link", name="extract: malformed output").click()
    assert "failure=" in page.url
    page.locator("tbody th a").first.click()
    page.wait_for_load_state()
    record = page.get_by_label("Edit")
    whole = record.input_value()
    record.fill(whole.replace('"scope": "broken"', '"scope": "garden"'))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("alert").filter(has_text="its scope is broken").wait_for()
    page.get_by_label("Edit").fill("{")
    page.get_by_role("button", name="Check").click()
    page.get_by_role("alert").filter(has_text="Not sent").wait_for()
    page.get_by_label("Edit").fill(whole.replace("Bergen", "Bremen"))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("status").filter(has_text="is valid").wait_for()
    page.get_by_role("button", name="Send the edited record").click()
    page.get_by_text("The edited record was sent.", exact=True).wait_for()
    page.goto("/dead-letters")
    page.get_by_label("Choose all").check()
    page.get_by_role("button", name="Discard the chosen").click()
    page.get_by_text("1 dead letter discarded.", exact=True).wait_for()
    page.wait_for_selector("text=No dead letters")


def test_a_query_is_a_link_to_a_table_a_chart_and_files(page: Any) -> None:
    page.goto("/sql")
    page.locator("textarea[name=query]").fill(
        "SELECT who, count(*) AS n FROM memories GROUP BY ALL ORDER BY 1"
    )
    page.get_by_role("button", name="Run").click()
    assert "query=SELECT" in page.url
    expect(page.get_by_role("cell", name="Mira", exact=True)).to_have_count(1)
    page.wait_for_load_state()
    rows = page.locator("#rows tbody tr").count()
    page.locator("summary", has_text="Chart").click()
    page.get_by_role("button", name="Draw").click()
    expect(page.locator(".chart rect")).to_have_count(rows)
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    assert started.value.path().read_text().splitlines()[0] == '"who","n"'
    page.locator("textarea[name=query]").fill("DROP TABLE memories")
    page.get_by_role("button", name="Run").click()
    assert page.get_by_role("alert").inner_text()


def test_a_branch_is_compared_with_the_live_memory(page: Any) -> None:
    page.goto("/replay")
    row = page.get_by_role("row").filter(has_text="trial").first
    row.get_by_role("button", name="Compare with live").click()
    page.get_by_role("heading", name="Comparison of trial").wait_for()
    page.get_by_text("Preview promotion").wait_for()
    expect(page.get_by_label("Totals")).to_contain_text("same")
    assert serious(page) == []


def test_a_level_is_set_a_document_added_and_a_memory_erased(page: Any) -> None:
    page.goto("/privacy?scope=lab")
    page.locator("input[name=person]").fill("Ana")
    page.locator("select[name=level]").select_option("partial")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row").filter(has_text="Ana")).to_have_count(1)
    page.wait_for_load_state()
    page.locator("input[name=person]").fill("Nobody")
    page.locator("input[name=all_scopes]").check()
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("status")).to_contain_text("The level is none now in")
    page.goto("/documents?scope=lab")
    page.locator("input[name=title]").fill("Notes")
    page.locator("textarea[name=text]").fill("The kettle is descaled on Fridays.")
    page.get_by_role("button", name="Add").click()
    page.get_by_text("descaled on Fridays").wait_for()
    page.wait_for_load_state()
    [memory] = [
        each.get_attribute("href").rpartition("/")[2]
        for each in page.locator("li a[href^='/memories/']").all()
    ]
    page.goto("/privacy?scope=lab")
    page.locator("summary", has_text="Some memories").click()
    page.locator("textarea[name=ids]").fill(memory)
    page.locator("form:has(textarea[name=ids]) input[name=reason]").fill("asked for")
    page.get_by_role("button", name="Erase them").click()
    page.get_by_text("Where a copy may remain").wait_for()
    assert serious(page) == []


def test_a_token_signs_in_and_shows_what_it_may(browser: Any, tmp_path: Any) -> None:
    with server(tmp_path) as served:
        reader = served.token("reader", "home", may=("recall",))
        served.token("owner", "*")
        context = browser.new_context(base_url=served.address)
        page = context.new_page()
        page.goto("/sessions?scope=home")
        assert "/sign-in?next=" in page.url
        assert serious(page) == []
        page.get_by_label("Token").fill("palimpsest_wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").filter(has_text="unknown").wait_for()
        page.get_by_label("Token").fill(reader)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Sessions of home").wait_for()
        page.wait_for_load_state()
        links = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
        assert "Scopes" in links
        assert not {"Pipeline", "SQL", "Replay", "Dead letters"} & {*links}
        page.goto("/privacy?scope=home")
        assert page.locator("main form[method=post]").count() == 0
        [cookie] = [each for each in context.cookies() if each["name"] == "palimpsest_token"]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto("/pipeline")
        assert "lacks the permission admin" in page.inner_text("main")
        page.goto("/scopes")
        page.get_by_role("button", name="Sign out").click()
        page.goto("/scopes")
        assert "/sign-in" in page.url
        context.close()
        form = {"scope": "home", "level": "full"}
        with served.client() as client:
            client.cookies.set("palimpsest_token", reader)
            problem(client.post("/privacy", data=form), 403, "forbidden")
            answer = client.post("/privacy", data=form, headers={"Origin": "https://example.com"})
            problem(answer, 403, "forbidden")
            assert client.get("/api/scopes").status_code == 200


def test_errors_are_pages_for_browsers_and_problems_for_programs(service: Served) -> None:
    with service.client() as client:
        page = client.get("/nowhere", headers=PAGE)
        assert page.status_code == 404
        assert "<h1>There is no such thing</h1>" in page.text
        problem(client.get("/nowhere"), 404, "not_found")
        problem(client.get("/api/memory/x", headers=PAGE), 404, "not_found")
        problem(client.post("/documents", data={"text": "x"}), 403, "forbidden")
        bad = client.get("/sessions?limit=many", headers=PAGE)
        assert (bad.status_code, "limit" in bad.text) == (422, True)


def test_the_console_is_small_and_runs_nothing_of_others(service: Served) -> None:
    with service.client() as client:
        first = client.get("/pipeline", headers=PAGE)
        assert first.headers["content-security-policy"].startswith("default-src 'none'")
        linked = re.findall(r'(?:src|href)="(/static/[^"]+)"', first.text)
        sizes = [len(client.get(each).content) for each in {*linked}]
        assert len(first.content) + sum(sizes) < 150_000
        assert sum(map(len, static_files().values())) < 400_000
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", first.text)
        assert "immutable" in client.get(linked[0]).headers["cache-control"]
        assert httpx.URL(client.get("/").headers["location"]).path == "/pipeline"
