"""What an operator does in the console: promotes a branch and rolls it back, rebuilds, uploads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import MARKUP, expect, publish
from tests.browser.test_console import serious
from tests.flows.http_server import Served, problem, server

CHAT = """12.03.26, 09:14 - Nadia: I live in Lisbon now.
12.03.26, 09:15 - Tom: I am allergic to shellfish.
12.03.26, 09:16 - Nadia: <b>Noted</b>
"""
REPLAY_MS = 90_000
"""A replay is a process of its own, on a machine that may be busy."""


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose turns came in while nothing was extracted, so a branch has new facts."""
    folder = tmp_path_factory.mktemp("operating") / "data"
    with server(folder, "pipeline.enabled=false") as first:
        publish(first, "harbour", "quay", (("Rosa", "I live in Genoa. I am allergic to nuts."),))
    with server(folder) as served:
        yield served


@pytest.fixture
def at(browser: Any, unread: Served) -> Iterator[Any]:
    context = browser.new_context(base_url=unread.address, reduced_motion="reduce")
    context.set_default_timeout(REPLAY_MS)
    yield context.new_page()
    context.close()


def facts(served: Served, scope: str) -> set[str]:
    with served.client() as client:
        found = client.get("/api/memories", params={"scope": scope}).json()["memories"]
    return {each["content"] for each in found if each["type"] != "episodic"}


def done(page: Any, title: str) -> None:
    """Waits until the replay with this title is done."""
    page.get_by_role("heading", name=title, exact=True).wait_for()
    page.get_by_label("Progress").locator(".state.good").wait_for()
    page.wait_for_load_state()


def test_a_branch_is_promoted_and_rolled_back(at: Any, unread: Served) -> None:
    assert facts(unread, "harbour") == set()
    at.goto("/replay")
    at.locator("input[name=branch][required]").fill("better")
    at.get_by_role("button", name="Start").click()
    done(at, "Extraction into better")
    at.get_by_role("button", name="Compare with live").click()
    done(at, "Comparison of better")
    assert "Rosa lives in Genoa." in at.locator("#differences").inner_text()
    at.get_by_role("button", name="Preview promotion").click()
    done(at, "Preview: Promotion of better")
    told = at.locator(".equation").inner_text()
    assert facts(unread, "harbour") == set()
    at.get_by_role("button", name="Promote better").click()
    done(at, "Promotion of better")
    assert at.locator(".equation").inner_text() == told
    assert "Rosa lives in Genoa." in facts(unread, "harbour")
    at.locator("summary", has_text="Roll back").click()
    at.get_by_text("It removes what the promotion added").wait_for()
    at.get_by_role("button", name="Roll back").click()
    at.get_by_role("heading", name="Rollback of").wait_for()
    at.get_by_label("Progress").locator(".state.good").wait_for()
    assert facts(unread, "harbour") == set()
    assert serious(at) == []


def test_a_rebuild_says_what_it_will_do_and_what_differs(at: Any, unread: Served) -> None:
    at.goto("/replay")
    at.locator("summary", has_text="Rebuild the stores").click()
    at.get_by_text("the live stores stay as they are").wait_for()
    at.get_by_role("button", name="Rebuild").click()
    done(at, "Rebuild into rebuild")
    at.get_by_text("the same as the live ones").wait_for()


def test_a_conversation_is_uploaded(page: Any, service: Served, tmp_path: Path) -> None:
    chat = tmp_path / "Chat with <b>Nadia.txt"
    chat.write_text(CHAT)
    page.goto("/scopes")
    page.locator("summary", has_text="Upload a conversation").click()
    page.get_by_label("Scope").fill("chats")
    page.locator("input[type=file]").set_input_files(chat)
    page.get_by_role("button", name="Upload").click()
    page.get_by_text("3 of 3 new turns are stored.").wait_for()
    expect(page.locator("output")).to_contain_text("Read as whatsapp: 3 turns")
    assert page.locator("output b").count() == 0
    assert serious(page) == []
    page.get_by_role("button", name="Upload").click()
    page.get_by_text("3 of them had been published before").wait_for()
    page.get_by_role("link", name="Sessions of chats").click()
    page.get_by_role("heading", name="Sessions of chats").wait_for()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody th a").click()
    expect(page.locator("#turns")).to_contain_text("Nadia lives in Lisbon.")
    page.get_by_text("<b>Noted</b>").wait_for()


def test_a_file_that_is_no_conversation_is_refused_with_a_reason(
    page: Any, service: Served, tmp_path: Path
) -> None:
    page.goto("/scopes")
    page.locator("summary", has_text="Upload a conversation").click()
    said = page.locator("p[role=status]")
    for name, content, why in (
        ("empty.txt", b"", "empty.txt is empty"),
        ("table.csv", b"a,b,c\n1,2,3\n4,5,6\n", "a table (CSV)"),
        ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "a picture"),
        ("broken.zip", b"PK\x03\x04" + bytes(100), "a damaged zip archive"),
        ("notes.txt", f"just some words\n{MARKUP}".encode(), "no conversation"),
    ):
        (tmp_path / name).write_bytes(content)
        page.locator("input[type=file]").set_input_files(tmp_path / name)
        page.get_by_role("button", name="Upload").click()
        page.get_by_text(why).wait_for()
        assert "problem" in said.get_attribute("class")
    page.locator("form[data-upload]").evaluate("form => form.dataset.limit = 10")
    page.get_by_role("button", name="Upload").click()
    page.get_by_text("are allowed (http.max_ingest_bytes)").wait_for()
    page.complaints.clear()  # the browser logs each status 422


def test_a_document_is_uploaded(page: Any, service: Served, tmp_path: Path) -> None:
    page.goto("/documents?scope=shelf")
    page.get_by_label("Or a file").set_input_files(
        {"name": "x.txt", "mimeType": "text/plain", "buffer": b"\x00\xffbinary"}
    )
    page.get_by_role("button", name="Add").click()
    page.get_by_text("no text in UTF-8").wait_for()
    note = tmp_path / "boiler.md"
    note.write_text("# Boiler\n\nThe boiler is serviced in October.\n")
    page.get_by_label("Or a file").set_input_files(note)
    page.get_by_role("button", name="Add").click()
    page.get_by_text("serviced in October").wait_for()
    assert "/documents/" in page.url


def test_a_token_that_only_recalls_uploads_nothing(browser: Any, tmp_path: Path) -> None:
    with server(tmp_path) as served:
        reader = served.token("reader", "home", may=("recall",))
        context = browser.new_context(base_url=served.address)
        page = context.new_page()
        page.goto("/sign-in?next=/scopes")
        page.get_by_label("Token").fill(reader)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Scopes").wait_for()
        page.wait_for_load_state()
        assert page.get_by_text("Upload a conversation").count() == 0
        send = "fetch('/api/ingest?name=a.txt', {method: 'POST', body: new Blob(['x'])})"
        assert page.evaluate(f"{send}.then(answer => answer.status)") == 403
        context.close()
        kind = {"Content-Type": "application/octet-stream"}
        with served.client(reader) as client:
            answer = client.post("/api/ingest?name=a.txt", content=CHAT, headers=kind)
            problem(answer, 403, "forbidden")
        with served.client(served.token("writer", "home", may=("remember",))) as client:
            url = "/api/ingest?name=a.txt&scope=other"
            problem(client.post(url, content=CHAT, headers=kind), 404, "not_found")
            line = '{"turn_id": "1", "content": "Hello there.", "scope": "other"}'
            answer = client.post("/api/ingest?name=a.jsonl", content=line, headers=kind)
            assert answer.json()["scopes"] == {"home": 1}
