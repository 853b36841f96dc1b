"""The pictures of the console in README and docs, from a real service in the system's Chromium.

python -m palimpsest.ops.scripts.pictures      writes the pictures in ops/docs
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import httpx

from palimpsest.ops.demo.show import SCOPE, perform
from palimpsest.ops.opening import publisher
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing

DOCS: Final = Path(__file__).parents[1] / "docs"
SIZES: Final = {390: 844, 1440: 900}
"""The height by the width, in points."""
SCHEMES: Final = ("light", "dark")
COLOURS: Final = 64
PATIENCE_S: Final = 60
EARLY: Final = (
    ("Tom", "The ferry is on time. I play the cello on Sundays."),
    ("Maya", "I am learning Portuguese. I own a red bicycle."),
)
"""Said while nothing is extracted: a branch has facts of it, the live memory has none."""
LATER: Final = (
    ("Tom", "I moved to Porto. I live in Porto now."),
    ("Maya", "I don't love grilled sardines anymore."),
    ("Tom", "Elizabeth Moore works at Brightwave. Liz Moore works at Brightwave."),
    ("Tom", "Elizabeth Moore lives in Porto. Liz Moore lives in Porto."),
    ("Maya", "My rye starter is called Gertrude."),
)
"""Said while changes need an approval: some of it waits for a person."""
BROKEN: Final = (
    b'{"turn_id": "pier-1", "speaker": "Tom", "content": "I live in',
    b'{"turn_id": "pier-2", "speaker": "Tom", "content": "The pier is closed."}',
)
RECALLS: Final = ("Where does Tom live?", "What is Maya allergic to?", "Who bakes the cake?")
NOTES: Final = """Opening the shop

The ovens are lit at four. The rye dough is folded twice and rests for forty minutes.

Deliveries by the canal come on Tuesdays and Fridays, before seven.
"""
CHAT: Final = """12.03.26, 09:14 - Nadia: I live in Lisbon now.
12.03.26, 09:15 - Tom: I am allergic to shellfish.
12.03.26, 09:16 - Nadia: Noted!
"""


@dataclass(frozen=True, slots=True)
class View:
    """A view at `path`; `prepare` brings its page into the state that is shown."""

    name: str
    title: str
    path: str
    prepare: Callable[[Any], None] = lambda _: None


def upload(page: Any) -> None:
    """Uploads the chat and waits until it is stored."""
    chat = {"name": "WhatsApp Chat with Nadia.txt", "mimeType": "text/plain"}
    page.locator("summary", has_text="Upload a conversation").click()
    page.locator("input[type=file]").set_input_files({**chat, "buffer": CHAT.encode()})
    page.locator("details input[name=scope]").fill("harbour")
    page.get_by_role("button", name="Upload", exact=True).click()
    page.get_by_text("3 of 3 new turns").wait_for()
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")


QUESTION: Final = "/recall?scope=demo&query=does Maya drink coffee?"
BY_KIND: Final = "SELECT type, count(*) AS n FROM memories GROUP BY type ORDER BY n DESC"
VIEWS: Final = (
    View("recall", "Recall", QUESTION),
    View("why-not", "Recall: why not this one?", f"{QUESTION}&why_not=walnuts&limit=3"),
    View("compare", "Recall: two settings side by side", f"{QUESTION}&compare=ungrouped"),
    View("context", "Recall: the context block", f"{QUESTION}&view=context"),
    View("memories", "Memories", "/memories?scope=demo&types=fact"),
    View("memory", "A memory's provenance", "/memories/{coffee}"),
    View("review", "Review", "/review?scope=demo"),
    View("graph", "Graph", "/graph?scope=demo"),
    View("entity", "An entity", "/entities/Maya?scope=demo&depth=2"),
    View("upload", "Scopes: uploading a conversation", "/scopes", upload),
    View("sessions", "Sessions", "/sessions?scope=demo"),
    View("session", "A session with its facts", "/sessions/kitchen?scope=demo"),
    View("documents", "Documents", "/documents?scope=demo"),
    View("privacy", "Privacy", "/privacy?scope=demo"),
    View("pipeline", "Pipeline", "/pipeline"),
    View("health", "Health", "/diagnostics"),
    View("repair", "A repair before it is made", "/diagnostics/queue?preview=on"),
    View("dead-letters", "Dead letters", "/dead-letters"),
    View("dead-letter", "A dead letter", "/dead-letters/{dead}"),
    View("replay", "Replay", "/replay"),
    View("comparison", "A branch against the live memory", "/replay/{diff}"),
    View("promotion", "What a promotion would change", "/replay/{promote}"),
    View(
        "simulation",
        "Simulation",
        "/simulation?scope=demo&deleted_days=0&decay_rate=0.4&days_ahead=14",
    ),
    View("sql", "SQL", f"/sql?query={BY_KIND}&chart=bar&x=type&y=n"),
)
"""In the order of the navigation; what stands in braces is an id of the service."""


def memory_with(client: httpx.Client, words: str) -> str:
    """The id of an extracted memory with these words."""
    ask: dict[str, str | int] = {"scope": SCOPE, "limit": 100}
    found = client.get("/api/memories", params=ask).raise_for_status().json()["memories"]
    return next(
        str(each["id"])
        for each in found
        if words in each["content"] and each["type"] in ("fact", "preference")
    )


def views(client: httpx.Client) -> Iterator[View]:
    """The views with the ids of what the service has in it."""
    replays = client.get("/api/replays").raise_for_status().json()["replays"]
    dead = client.get("/api/dead-letters").raise_for_status().json()["dead_letters"]
    ids = {each["kind"]: each["id"] for each in replays}
    ids |= {"dead": dead[0]["id"], "coffee": memory_with(client, "longer drinks coffee")}
    for view in VIEWS:
        yield replace(view, path=view.path.format(**ids))


def publish(
    client: httpx.Client, session: str, day: int, said: tuple[tuple[str, str], ...]
) -> None:
    """Publishes a session and waits until it is processed."""
    turns = [
        {
            "turn_id": f"{session}-{number}",
            "scope": SCOPE,
            "session_id": session,
            "speaker": speaker,
            "content": text,
            "occurred_at": f"2026-04-{day:02}T19:{number:02}:00Z",
        }
        for number, (speaker, text) in enumerate(said, 1)
    ]
    client.post("/api/turns", params={"wait": PATIENCE_S}, json=turns).raise_for_status()


@contextlib.contextmanager
def service(folder: Path, *flags: str) -> Iterator[httpx.Client]:
    """A client of a service on the folder, in a process of its own."""
    options = ["--data-dir", str(folder), *(f"--set={flag}" for flag in flags)]
    command = [sys.executable, "-m", "palimpsest.ops.cli.main", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603
        try:
            assert running.stderr is not None
            line = next(each for each in running.stderr if "serving at" in each)
            address = line.partition("serving at ")[2].split(";")[0].strip()
            with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as client:
                yield client
        finally:
            running.terminate()


def replayed(client: httpx.Client, **order: object) -> None:
    """Starts a replay and waits until it is done."""
    job = client.post("/api/replays", json=order).raise_for_status().json()["id"]
    ends = time.monotonic() + PATIENCE_S
    while (state := client.get(f"/api/replays/{job}").json()["state"]) == "running":
        assert time.monotonic() < ends, order
        time.sleep(0.2)
    assert state == "done", (order, state)


def fill(client: httpx.Client) -> None:
    """What a memory in use has beside its conversations."""
    publish(client, "quay", 18, LATER)
    for question in RECALLS:
        ask = {"query": question, "scope": SCOPE}
        client.post("/api/memory/recall", json=ask).raise_for_status()
    notes = {"title": "Opening the shop", "text": NOTES, "scope": SCOPE}
    client.post("/api/documents", json=notes).raise_for_status()
    drum_machine = memory_with(client, "drum machine")
    forgotten = {"memory_ids": [drum_machine], "scope": SCOPE, "reason": "no longer of use"}
    client.post("/api/memory/forget", json=forgotten).raise_for_status()
    level = {"scope": SCOPE, "person": "Nora", "level": "partial", "reason": "she asked for it"}
    client.put("/api/privacy", json=level).raise_for_status()
    replayed(client, kind="reextract", branch="rules-again", provider="rules")
    replayed(client, kind="diff", branch="rules-again")
    replayed(client, kind="promote", branch="rules-again", dry_run=True)


def photograph(page: Any, view: View, address: str) -> Iterator[tuple[str, bytes]]:
    """The view at each width, light and dark, by file name."""
    from PIL import Image

    # From narrow to wide: the navigation of a phone scrolls to the current view as it loads.
    page.set_viewport_size({"width": 390, "height": SIZES[390]})
    page.goto(f"{address}{view.path}")
    view.prepare(page)
    for width, height in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            # A palette of the commonest colours keeps areas and text exact in a small file.
            common = sorted(taken.getcolors(width * height) or (), reverse=True)[:COLOURS]
            palette = Image.new("P", (1, 1))
            palette.putpalette([each for _, rgb in common for each in cast("tuple[int, ...]", rgb)])
            small = io.BytesIO()
            reduced = taken.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB")
            reduced.save(small, "WEBP", lossless=True, quality=50, method=3)
            yield f"{view.name}-{width}-{scheme}.webp", small.getvalue()


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[httpx.Client]:
    """A client of a service on the demo, with all that the views show."""
    data = folder / "data"
    demo = load_settings(["pipeline.allow_update_delete=true"], data, None, {}).settings
    asyncio.run(perform(demo, lambda _: contextlib.nullcontext()))
    with publisher(demo) as append:
        append([Outgoing(CONVERSATION_TURNS.name, SCOPE, b"pier", each) for each in BROKEN])
    with service(data, "pipeline.enabled=false") as client:
        publish(client, "ferry", 11, EARLY)
    with service(data) as client:
        fill(client)
        yield client


def gallery(shown: Iterable[View]) -> str:
    """The page of the docs that shows each view at each size."""
    lines = [
        "# Pictures of the console",
        "Every view on the demo's conversation, 1,440 and 390 points wide, light and dark. `make"
        " pictures` takes them again.",
    ]
    for view in shown:
        lines += ["", f"## {view.title}"]
        for width in reversed(SIZES):
            names = (f"{view.name}-{width}-{scheme}" for scheme in SCHEMES)
            lines.append(
                " ".join(f"![{view.title}, {each}](console/{each}.webp)" for each in names)
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pictures and the page that shows them all."""
    from playwright.sync_api import sync_playwright

    target = DOCS / "console"
    with (
        tempfile.TemporaryDirectory() as folder,
        filled(Path(folder)) as client,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        ) as browser,
    ):
        page = browser.new_context(reduced_motion="reduce").new_page()
        shown = [*views(client)]
        taken = dict(
            chain.from_iterable(photograph(page, each, str(client.base_url)) for each in shown)
        )
    for old in target.iterdir():
        old.unlink()
    for name, picture in taken.items():
        (target / name).write_bytes(picture)
    (DOCS / "console-pictures.md").write_text(gallery(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
