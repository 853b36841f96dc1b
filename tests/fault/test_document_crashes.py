"""Documents come in whole and once, wherever the process ends; nothing is fetched twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import AddDocumentCommand
from palimpsest.streams.normalize import chunks, texts_of
from tests.documents import active_chunks, added, deleted, sentences, statuses
from tests.fault.stops import copied, run_and_copy
from tests.flows.program import PATIENCE_S, Program, until
from tests.flows.web import HELD, answer, web
from tests.harness import Crash, Pipeline, differing

LONG = sentences(500)
PAGE = AddDocumentCommand(kind="url", source="https://example.org/a")


def publish(pipeline: Pipeline) -> None:
    """A long text, a page whose text came after all, and one that was deleted on its way in."""
    pipeline.command(added(LONG, chunk_characters=2_000), PAGE, added(sentences(90, "fjord")))


def finish(pipeline: Pipeline) -> None:
    page = pipeline.result(2)[1]["id"]
    pipeline.command(*texts_of(page, sentences(350, "page"), PAGE, "A page"), first=4)
    pipeline.command(deleted(pipeline, 3), first=40)
    pipeline.run_through()


def whole(folder: Path, batch: int) -> tuple[dict[str, str], list[str]]:
    with Pipeline(folder, batch=batch) as pipeline:
        publish(pipeline)
        pipeline.run()
        finish(pipeline)
        assert statuses(pipeline) == ["deleted", "done", "done"]
        return pipeline.state_by_table(), active_chunks(pipeline)


def test_the_state_does_not_depend_on_batches(tmp_path: Path) -> None:
    states = [whole(tmp_path / str(batch), batch) for batch in (1, 3, 256)]
    for state, kept in states[1:]:
        assert differing(states[0][0], state) == []
        assert kept == states[0][1]


def boundaries(folder: Path) -> list[tuple[str, str]]:
    """Every step of the stages that a document passes."""
    with Pipeline(folder, batch=2) as pipeline:
        publish(pipeline)
        pipeline.run()
        finish(pipeline)
        return sorted(
            place for place in pipeline.happened if place[0] in ("normalize", "apply-writes")
        )


def test_a_crash_at_any_step_changes_nothing(tmp_path: Path) -> None:
    expected, kept = whole(tmp_path / "whole", 256)
    places = boundaries(tmp_path / "steps")
    assert len(places) >= 8
    nth = {place: 1 + number % 3 for number, place in enumerate(places)}
    with Pipeline(tmp_path / "begun", batch=2) as pipeline:
        publish(pipeline)
        stopped = run_and_copy(pipeline, lambda stop: nth.get(stop[:2]) == stop[2], tmp_path)
        for place in places:
            if (*place, nth[place]) not in stopped:
                # So often it is done with what comes later only.
                stopped[*place, nth[place]] = copied(pipeline.folder, tmp_path / "-".join(place))
    for stop, folder in stopped.items():
        with Pipeline(folder, batch=2) as pipeline:
            pipeline.run()
            pipeline.crash_at(*stop)
            finish(pipeline)
            assert differing(expected, pipeline.state_by_table()) == [], stop
            assert active_chunks(pipeline) == kept
            assert pipeline.balance().holds


def test_every_status_is_seen_and_survives(tmp_path: Path) -> None:
    """The text applied part by part, with a new process after each."""
    seen = []
    with Pipeline(tmp_path, batch=1) as pipeline:
        texts = texts_of("-", LONG, AddDocumentCommand(kind="text"))
        told = {"digest": texts[0].digest, "chunks": texts[0].total, "characters": len(LONG)}
        pipeline.command(PAGE, AddDocumentCommand(kind="text", **told))
        pipeline.run()
        seen += statuses(pipeline)
        for number, text in enumerate(texts, start=3):
            pipeline.crash_at("apply-writes", "commit")
            pipeline.command(text, first=number)
            with pytest.raises(Crash):
                pipeline.run()
            pipeline.reopen().run()
            seen += statuses(pipeline)
        assert list(dict.fromkeys(seen)) == ["extracting", "queued", "chunking", "done"]
        assert active_chunks(pipeline) == chunks(LONG, 2_000, 200)


# --- the program itself, killed ---------------------------------------------------------------


def program_in(folder: Path, **more: str) -> Program:
    allowed = {"PALIMPSEST_DOCUMENTS__ALLOW_PRIVATE": "true", **more}
    return Program(folder, PALIMPSEST_EMBEDDING__DIMENSIONS="64", **allowed)


def listed(program: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = program.json("documents", "list")["documents"]
    return found


def test_a_fetch_that_was_killed_is_begun_again_and_a_rebuild_fetches_nothing(
    tmp_path: Path,
) -> None:
    program = program_in(tmp_path)
    page = answer(sentences(900).encode(), "text/plain")
    with web(page=HELD) as served:
        program.ok("documents", "add", served.url("/page"), "-s", "s")
        process = program.start("run")
        assert served.arrived.acquire(timeout=PATIENCE_S)
        process.kill()
        process.wait()
        [queued] = listed(program)
        assert queued["status"] == "queued"
        served.pages["/page"] = page
        program.ok("run", "--once")
        [done] = listed(program)
        assert (done["id"], done["status"]) == (queued["id"], "done")
        assert served.asked["/page"] == 2
        # From the log alone: what is in it is not fetched again.
        before = program.json("sql", "SELECT * FROM document_memories ORDER BY ALL")
        shutil.rmtree(program.data / "shards")
        assert "replay rebuild --swap" in program.fails("run", "--once")
        program.ok("replay", "rebuild", "--swap")
        program.ok("run", "--once")
        assert listed(program) == [done]
        assert program.json("sql", "SELECT * FROM document_memories ORDER BY ALL") == before
        assert served.asked["/page"] == 2


def test_a_worker_that_is_killed_with_the_text_in_the_log_does_not_fetch_it_again(
    tmp_path: Path,
) -> None:
    """Killed as soon as the text is appended: whatever was applied of it, the rest follows."""
    program = program_in(tmp_path)
    page = answer(sentences(6_000).encode(), "text/plain")
    with web(page=page) as served:
        program.ok("documents", "add", served.url("/page"), "-s", "s")
        log = program.data / "log" / "log.sqlite"
        size = log.stat().st_size
        process = program.start("run")
        assert served.arrived.acquire(timeout=PATIENCE_S)
        until(lambda: sum(p.stat().st_size for p in log.parent.iterdir()) > size + 300_000)
        process.kill()
        process.wait()
        program.ok("run", "--once")
        [done] = listed(program)
        assert done["status"] == "done"
        assert done["chunks"] == len(chunks(sentences(6_000), 2_000, 200))
        assert served.asked["/page"] <= 2


def test_what_cannot_be_fetched_fails_and_is_told(tmp_path: Path) -> None:
    program = program_in(tmp_path, PALIMPSEST_DOCUMENTS__ALLOW_PRIVATE="false")
    with web(page=b"x") as served:
        program.ok("documents", "add", served.url("/page"), "-s", "s")
        program.ok("run", "--once")
        [failed] = listed(program)
        assert failed["status"] == "failed"
        assert "documents.allow_private" in failed["error"]
        assert not served.asked
    program.environment["PALIMPSEST_DOCUMENTS__ALLOW_PRIVATE"] = "true"
    with web(page=answer(b"hello", "text/plain")) as served:
        program.ok("documents", "add", served.url("/page"), "-s", "s")
        program.ok("documents", "add", served.url("/page"), "-s", "s")
        program.ok("documents", "add", served.url("/gone"), "-s", "s")
        program.ok("run", "--once")
        # Added in the same moment, two have no order of their own.
        *_, first = found = listed(program)
        assert first["status"] == "failed"
        now = {each["source"]: each["status"] for each in found if each["id"] != first["id"]}
        assert now == {served.url("/page"): "done", served.url("/gone"): "failed"}
        assert served.asked == {"/page": 1, "/gone": 1}
