"""The developer's views in a browser: asking why, following a memory's provenance, reviewing, the
graph. What a person typed or said is shown as text."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.browser.conftest import MARKUP, expect, publish
from tests.browser.test_console import WIDTHS, serious
from tests.flows.http_server import Served

SCOPE = "views"
SAID = (
    ("Ana", "I live in Vienna. I prefer green tea."),
    ("Ben", "I live in Oslo."),
    ("Ben", "I live in Bergen now."),
    ("Ana", "I moved to Graz. I live in Graz now."),
    ("Ana", "I am allergic to peanuts."),
    ("Ben", "Elizabeth Moore works at Brightwave. Liz Moore works at Brightwave."),
    ("Ben", "Elizabeth Moore lives in Oslo. Liz Moore lives in Oslo."),
    ("Ana", f"My favourite tag is {MARKUP}"),
)


@pytest.fixture(scope="module")
def filled(service: Served) -> Served:
    publish(service, SCOPE, "tea", SAID[:2])
    publish(service, SCOPE, "cake", SAID[2:], day=2)
    return service


def recalled(**query: object) -> str:
    return f"/recall?{urlencode({'scope': SCOPE, **query})}"


def memory_of(service: Served, words: str, **query: object) -> str:
    """The path of the one memory that has these words."""
    with service.client() as client:
        answer = client.get("/api/memories", params={"scope": SCOPE, "limit": 100, **query})
    [found] = [each["id"] for each in answer.json()["memories"] if words in each["content"]]
    return f"/memories/{found}"


def remembered(service: Served, text: str) -> str:
    """The path of a new memory."""
    with service.client() as client:
        answer = client.post("/api/memory/remember", json={"content": text, "scope": SCOPE})
    return f"/memories/{answer.json()['id']}"


def test_every_view_is_accessible_and_fits(page: Any, filled: Served) -> None:
    views = (
        "/recall",
        recalled(query="Where does Ana live?", why_not="peanuts", compare="ungrouped"),
        recalled(query="Where does Ana live?", view="context"),
        f"/memories?scope={SCOPE}",
        memory_of(filled, "Ana lives in Vienna"),
        f"/review?scope={SCOPE}",
        f"/graph?scope={SCOPE}",
        f"/entities/Ana?scope={SCOPE}&depth=2",
        "/recall?scope=nothing&query=anything",
        "/graph?scope=nothing",
    )
    for view in views:
        assert page.goto(view).status == 200, view
        assert serious(page) == [], view
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def test_a_question_shows_why_each_memory_was_found(page: Any, filled: Served) -> None:
    page.goto(f"/recall?scope={SCOPE}")
    page.get_by_label("Question").fill("What is Ana allergic to?")
    page.keyboard.press("Enter")
    first = page.locator(".result").first
    expect(first).to_contain_text("allergic to peanuts")
    first.get_by_text("by words").wait_for()
    page.wait_for_load_state()
    parts = [float(each.replace("−", "-")) for each in first.locator(".parts .n").all_inner_texts()]
    score = float(first.locator(".points").inner_text())
    assert sum(parts) == pytest.approx(score, abs=0.004)

    page.get_by_label("A memory that you miss").fill("Brightwave")
    page.get_by_role("button", name="Explain").click()
    reason = page.locator(".answer-to").first
    expect(reason).to_contain_text("Brightwave")
    expect(reason).to_contain_text("no.")

    page.get_by_text("Filters and times").click()
    page.get_by_label("Said by").fill("Ana")
    page.get_by_role("button", name="Recall").click()
    page.get_by_label("A memory that you miss").fill("Brightwave")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".answer-to").first).to_contain_text("It does not pass who.")
    # The link alone shows the same to somebody else.
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert "It does not pass who." in page.locator(".answer-to").first.inner_text()

    page.get_by_role("link", name="Context block").click()
    page.get_by_role("spinbutton", name="Budget").fill("300")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("of at most 300").wait_for()
    page.wait_for_load_state()
    tokens = [int(each.split()[-1]) for each in page.locator("td.n").all_inner_texts()]
    assert sum(tokens[:-1]) == tokens[-1] <= 300
    line = page.locator(".lines tr", has_text="peanuts").first
    line.get_by_role("link").click()
    page.get_by_role("heading", level=1).filter(has_text="peanuts").wait_for()
    page.go_back()
    page.wait_for_load_state()
    page.locator("summary", has_text="As one text").click()
    shown = page.locator(".lines tbody td:first-child").all_inner_texts()
    assert page.locator("pre").inner_text() == "\n".join(shown)


def test_markup_is_text_in_every_view(page: Any, filled: Served) -> None:
    with filled.client() as client:
        remember = {"content": f"<b>Eve</b> wrote {MARKUP}", "scope": SCOPE}
        client.post("/api/memory/remember", json=remember)
        for name in ("Ana", "Ben"):
            client.post(
                f"/api/entities/{name}/aliases",
                json={"alias": f"<i>{name}</i>", "scope": SCOPE},
            )
        structured = {
            "entities": [{"name": "<img src=x>", "type": "thing"}],
            "relations": [{"source": "Ana", "relationship": "likes", "target": "<img src=x>"}],
            "attributes": [{"entity": "Ana", "aspect": "<b>diet</b>", "kind": "constraint"}],
        }
        tag = {"content": "A tag of Ana", "scope": SCOPE, "structured": structured}
        assert client.post("/api/memory/remember", json=tag).status_code == 200
    for view in (
        recalled(query=MARKUP, why_not=MARKUP),
        recalled(query=MARKUP, view="context"),
        memory_of(filled, "favourite tag", types="episodic"),
        f"/memories?scope={SCOPE}",
        f"/graph?scope={SCOPE}&query={MARKUP}",
        f"/entities/Ana?scope={SCOPE}",
    ):
        page.goto(view)
        assert page.title().endswith("· Palimpsest")
        assert page.locator("main img, main b, main i, main script").count() == 0
    assert page.locator("svg text", has_text="<img src=x>").count() == 1
    assert page.locator("h3", has_text="<b>diet</b>").count() == 1
    page.get_by_text("Constraint").wait_for()


def test_a_memory_is_corrected_forgotten_and_recovered_and_its_history_tells_it(
    page: Any, filled: Served
) -> None:
    page.goto(remembered(filled, "Ana plays the cello on Mondays"))
    page.get_by_text("Correct", exact=True).click()
    page.get_by_label("What it should say").fill("Ana plays the cello on Fridays")
    page.get_by_role("button", name="Save the correction").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Ana plays the cello on Fridays")
    expect(page.locator("del").first).to_have_text("Mondays")
    page.get_by_role("button", name="Pin").click()
    page.get_by_role("button", name="Unpin").wait_for()
    page.get_by_role("button", name="Unpin").click()
    page.get_by_role("button", name="Pin").wait_for()
    page.wait_for_load_state()
    page.get_by_text("Forget", exact=True).click()
    page.get_by_label("Reason").last.fill("Ana took it back")
    page.get_by_role("button", name="Forget it").click()
    state = page.locator("h1 + .row .state")
    expect(state).to_have_text("forgotten", ignore_case=True)
    page.get_by_label("Reason").fill("she plays it after all")
    page.get_by_role("button", name="Recover").click()
    expect(state).to_have_text("active", ignore_case=True)
    told = page.locator(".timeline")
    expect(told).to_contain_text("Ana took it back")
    expect(told).to_contain_text("she plays it after all")


def test_a_change_on_an_old_page_changes_nothing(page: Any, filled: Served) -> None:
    path = remembered(filled, "Ana owns a red bicycle")
    page.goto(path)
    with filled.client() as client:
        changed = {"content": "Ana owns a blue bicycle", "reason": "she painted it"}
        client.post(f"/api/memory/{path.removeprefix('/memories/')}/correct", json=changed)
    page.get_by_text("Forget", exact=True).click()
    page.get_by_label("Reason").last.fill("sold")
    page.complaints.clear()
    page.get_by_role("button", name="Forget it").click()
    told = "Nothing was changed: it was changed since you saw it; look at it again."
    expect(page.get_by_role("status")).to_have_text(told)
    page.complaints.clear()  # the browser logs the conflict
    page.goto(path)
    assert page.get_by_role("heading", level=1).inner_text() == "Ana owns a blue bicycle"
    assert page.locator("h1 + .row .state").inner_text().lower() == "active"


def test_erasing_asks_again(page: Any, filled: Served) -> None:
    path = remembered(filled, "Ana hides the key under the pot")
    page.goto(path)
    page.get_by_role("link", name="Erase…").click()
    page.get_by_label("Reason").fill("she asked for it")
    page.get_by_label("to erase it").fill("no")
    page.get_by_role("button", name="Erase for good").click()
    page.get_by_role("alert").wait_for()
    page.complaints.clear()  # the browser logs the status 400
    page.get_by_label("to erase it").fill(path.removeprefix("/memories/")[:8])
    page.get_by_role("button", name="Erase for good").click()
    page.get_by_role("status").filter(has_text="Erased").wait_for()
    page.wait_for_load_state()
    assert "under the pot" not in page.content()
    page.goto(path)
    assert "under the pot" not in page.content()


def test_a_turn_leads_to_the_decision_and_its_candidates(page: Any, filled: Served) -> None:
    page.goto(memory_of(filled, "Ana lives in Vienna"))
    page.locator(".timeline > li.turn").first.get_by_text("I live in Vienna").wait_for()
    page.locator(".timeline > li.extraction").first.get_by_text("prompt").wait_for()
    held = page.locator(".timeline > li.decision", has_text="Graz").first
    held.locator("summary").click()
    held.locator("tr.target").get_by_text("Ana lives in Vienna.").wait_for()


def test_changes_and_merges_are_reviewed_by_keyboard_and_by_mouse(
    page: Any, filled: Served
) -> None:
    page.goto(f"/review?scope={SCOPE}")
    waiting = page.locator(".proposal").count()
    assert waiting >= 2
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("x")
    assert page.locator("[name=ids]").first.is_checked()
    page.keyboard.press("d")
    page.get_by_text("1 change dismissed").wait_for()
    expect(page.locator(".proposal")).to_have_count(waiting - 1)
    page.wait_for_load_state()

    chosen = page.locator(".proposal").first
    expect(chosen.locator("blockquote")).to_contain_text("Graz")
    page.get_by_placeholder("reason").fill("she moved")
    chosen.focus()
    page.keyboard.press("a")
    page.get_by_text("1 change updated").wait_for()
    page.wait_for_load_state()

    page.get_by_role("button", name="Merge").click()
    page.get_by_role("status").filter(has_text="merged").wait_for()
    page.goto(f"/entities/Liz Moore?scope={SCOPE}")
    page.get_by_role("button", name="Not the same").click()
    page.get_by_role("status").filter(has_text="separated").wait_for()


def test_the_neighbourhood_is_walked_by_links(page: Any, filled: Served) -> None:
    page.goto(f"/graph?scope={SCOPE}")
    page.get_by_role("row", name="Brightwave").get_by_role("link").click()
    page.locator("svg.graph a", has_text="Moore").first.click()
    page.wait_for_url("**/entities/*Moore*")
    expect(page.locator("section", has_text="Relations").first).to_contain_text("works at")
