"""A real Chromium on a real service, which is filled once: two scopes of invented conversations, a
change that was held back, dead letters and a branch."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flows.http_server import Served, server
from tests.flows.program import until
from tests.flows.test_dead_letters import mute_model

PATIENCE_MS = 60_000
MARKUP = '<script>document.title = "taken"</script> "><img src=x onerror="document.title=1">'
GARDEN = (
    ("Mira", "I grow tomatoes and basil on my balcony in Porto."),
    ("Jon", "Nice! I adopted a dog called Biscuit last week."),
    ("Mira", "I am allergic to walnuts, so no walnut cake please."),
    ("Jon", "I work as a baker and my sister Lena lives in Oslo."),
    ("Mira", f"My favourite tag is {MARKUP}"),
)
LATER = (
    ("Mira", "I moved to Lisbon in May."),
    ("Jon", "Biscuit likes the beach. I play the cello on Sundays."),
)
LAB = (
    ("Ana", "I live in Vienna. I prefer green tea."),
    ("Ana", "I moved to Graz. I live in Graz now."),
)


def missing() -> str | None:
    """What the tests lack, and how to install it."""
    try:
        import axe_playwright_python
        import playwright

        del axe_playwright_python, playwright
    except ModuleNotFoundError:
        return "install the dependency group `browser`: pip install --group browser"
    if shutil.which("chromium") is None:
        return "install Chromium: apt-get install chromium"
    return None


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    lacking = missing()
    if lacking is not None:
        if os.environ.get("PALIMPSEST_REQUIRE_BROWSER") == "1":
            pytest.fail(lacking)
        pytest.skip(lacking)
    with chromium() as launched:
        yield launched


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield launched
        launched.close()


def expect(shown: Any) -> Any:
    """Assertions of Playwright, which wait until they hold.

    What a click leads to is asked for with these, or after `wait_for_load_state()`: `count()`,
    `all()` and the like are answered at once, from as much of the next page as has arrived.
    """
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    return expect(shown)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without tokens on loopback, with everything in it that the views show."""
    folder = tmp_path_factory.mktemp("console") / "data"
    with mute_model() as url:
        model = ("llm.provider=openai", f"llm.base_url={url}", "llm.model=mute")
        with server(folder, *model) as first:
            publish(first, "broken", "call-1", (("Tess", "I live in Bergen."),) * 2)
    with server(folder) as served:
        publish(served, "garden", "balcony", GARDEN)
        publish(served, "garden", "summer", LATER, day=20)
        publish(served, "lab", "tea", LAB)
        with served.client() as client:
            order = {"kind": "reextract", "branch": "trial", "provider": "rules"}
            replay = client.post("/api/replays", json=order).json()["id"]
            until(lambda: client.get(f"/api/replays/{replay}").json()["state"] != "running")
            assert client.get(f"/api/replays/{replay}").json()["state"] == "done"
        yield served


def publish(
    served: Served, scope: str, session: str, said: tuple[tuple[str, str], ...], day: int = 1
) -> None:
    """Publishes a session, and returns when it is processed."""
    turns = [
        {
            "turn_id": f"{session}-{number}",
            "scope": scope,
            "session_id": session,
            "speaker": speaker,
            "content": text,
            "occurred_at": f"2026-05-{day:02}T10:{number:02}:00Z",
        }
        for number, (speaker, text) in enumerate(said, 1)
    ]
    with served.client() as client:
        answer = client.post("/api/turns", json=turns)
        assert answer.status_code == 202, answer.text
        served.settle(client)


@pytest.fixture
def page(browser: Any, service: Served) -> Iterator[Any]:
    """A new page at the service's address. The test fails if the page logs an error.

    With `PALIMPSEST_BROWSER_BYTES_S`, a page arrives that slowly: 15000 shows each place that reads
    a page before it is whole.
    """
    # Without motion: a colour halfway to another has a contrast of its own.
    context = browser.new_context(
        base_url=service.address,
        viewport={"width": 1280, "height": 900},
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    slow = os.environ.get("PALIMPSEST_BROWSER_BYTES_S")
    if slow is not None:
        context.new_cdp_session(opened).send(
            "Network.emulateNetworkConditions",
            {
                "offline": False,
                "latency": 20,
                "downloadThroughput": int(slow),
                "uploadThroughput": -1,
            },
        )
    complaints: list[str] = []
    opened.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.complaints = complaints
    yield opened
    context.close()
    assert complaints == []
