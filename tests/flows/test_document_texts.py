"""Documents that come in parts, that are none, or that may not come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import AddDocumentCommand, DocumentTextCommand, SetFlagsCommand
from palimpsest.streams.normalize import texts_of
from tests.documents import active_chunks, added, deleted, documents, run, sentences, statuses
from tests.harness import Pipeline

TEXT = sentences(40)
PAGE = AddDocumentCommand(kind="url", source="https://example.org/a")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as opened:
        yield opened
        assert opened.dead_letters() == []
        assert opened.balance().holds


def test_frozen_memory_takes_no_document(pipeline: Pipeline) -> None:
    run(pipeline, PAGE, SetFlagsCommand(mutations_frozen=True))
    page = pipeline.result()[1]["id"]
    run(pipeline, added(TEXT), deleted(pipeline), *texts_of(page, TEXT, PAGE), first=3)
    assert str(pipeline.result(3)[0]).startswith("frozen")
    assert str(pipeline.result(4)[0]).startswith("frozen")
    [document] = documents(pipeline)
    assert (document["status"], str(document["error"])[:6]) == ("failed", "frozen")
    assert active_chunks(pipeline) == []


@pytest.mark.parametrize(
    "command",
    [
        added("", kind="text"),
        added(" \n\t "),
        AddDocumentCommand(kind="text"),
        AddDocumentCommand(kind="file", digest="0" * 64, chunks=1),
        AddDocumentCommand(kind="url"),
        AddDocumentCommand(kind="url", source="file:///etc/passwd"),
        AddDocumentCommand(kind="url", source="http://a:b@example.org/"),
        AddDocumentCommand(kind="url", source="http://exa mple.org/"),
        added("text", chunk_overlap=150),
        DocumentTextCommand(document_id="x"),
        DocumentTextCommand(document_id="x", digest="0" * 64, total=1, characters=1, chunks=(" ",)),
        DocumentTextCommand(
            document_id="x", digest="0" * 64, total=1, characters=2, chunks=("a", "b")
        ),
    ],
)
def test_what_is_no_document_is_told(pipeline: Pipeline, command: Any) -> None:
    run(pipeline, command)
    assert str(pipeline.result()[0]).startswith("invalid_request: ")
    assert documents(pipeline) == []


def test_parts_that_belong_nowhere_do_nothing(pipeline: Pipeline) -> None:
    run(pipeline, PAGE, added(TEXT))
    page, text = (pipeline.result(number)[1]["id"] for number in (1, 2))
    parts = texts_of(page, sentences(3_000), AddDocumentCommand(kind="url"))
    assert len(parts) > 2
    stray = texts_of("unknown", sentences(9), PAGE)[0]
    error = DocumentTextCommand(document_id=text, error="too late")
    other = texts_of(text, sentences(12), PAGE)[0]
    run(pipeline, parts[1], stray, error, other, first=3)
    assert statuses(pipeline) == ["done", "queued"]
    run(pipeline, parts[0], parts[2], parts[0], first=10)
    assert statuses(pipeline) == ["chunking", "done"]
    run(pipeline, *parts[1:], first=20)
    assert statuses(pipeline) == ["done", "done"]
    assert len(active_chunks(pipeline)) == sum(pipeline.values("SELECT chunks FROM documents"))


def test_a_page_that_changed_on_its_way_in_fails(pipeline: Pipeline) -> None:
    """As where the first half of it was sent before a crash, and another page after it."""
    run(pipeline, PAGE)
    page = pipeline.result()[1]["id"]
    old, new = (texts_of(page, sentences(3_000, kind), PAGE) for kind in ("old", "new"))
    run(pipeline, old[0], *new, first=2)
    [document] = documents(pipeline)
    assert (document["status"], document["error"].partition(":")[0]) == ("failed", "changed")
    assert active_chunks(pipeline) == []


def test_the_same_id_for_another_document_is_a_conflict(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        run(pipeline, added(TEXT))
        run(pipeline, added(sentences(5, "fjord")))
        [refused] = pipeline.dead_letters()
        assert "command_id_conflict" in refused.reason
        assert len(documents(pipeline)) == 1


@pytest.mark.timeout(280)
def test_a_large_text(pipeline: Pipeline) -> None:
    text = sentences(22_000)
    assert len(text) > 1_100_000
    texts = texts_of("-", text, AddDocumentCommand(kind="text"))
    told = {"digest": texts[0].digest, "chunks": texts[0].total, "characters": len(text)}
    run(pipeline, AddDocumentCommand(kind="text", **told), *texts)
    [document] = documents(pipeline)
    assert (document["status"], document["chunks"]) == ("done", texts[0].total)
    assert pipeline.values("SELECT count(*) FROM document_memories") == [texts[0].total]
