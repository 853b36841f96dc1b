"""Documents in the pipeline: taken in, found, known again, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.embedding.tracker import catch_up
from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.documents import DocumentChunks, Documents, GetDocument
from palimpsest.ops.operations.lifecycle.fading import Weak
from palimpsest.ops.operations.memories import Context, Recall
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    ConfirmCommand,
    DeleteDocumentCommand,
    DocumentTextCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.stores.lock import StoreLock
from palimpsest.streams.models.base import TransientModelError
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.normalize import chunks, texts_of
from palimpsest.streams.store_port import Vector
from tests.documents import active_chunks, added, deleted, documents, run, sentences, statuses
from tests.harness import DIMENSIONS, FULL, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

TEXT = sentences(40)
JAPANESE = "京都の港には多くの船が来る。" * 30
GERMAN = "Der Hafen von Bergen ist im Winter eisfrei " * 30
PAGE = AddDocumentCommand(kind="url", source="https://example.org/a")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as opened:
        yield opened
        assert opened.dead_letters() == []
        assert opened.balance().holds


def asked(pipeline: Pipeline, request: Read[Any]) -> Any:
    sources = Sources(
        Settings(), pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
    )
    return asyncio.run(DirectQueries(sources).answer(request))


@pytest.mark.parametrize("text", [TEXT, JAPANESE, GERMAN, "x", "短い文。"])
def test_a_text_becomes_its_chunks(pipeline: Pipeline, text: str) -> None:
    run(pipeline, added(text, title="Ports"))
    [document] = documents(pipeline)
    expected = chunks(text, 200, 20)
    assert (document["status"], document["chunks"]) == ("done", len(expected))
    assert document["characters"] == len(text)
    assert active_chunks(pipeline) == expected
    rows = pipeline.rows("SELECT DISTINCT type, importance, tags, source_id, why FROM memories")
    assert rows == [
        {
            "type": "document_chunk",
            "importance": 0.3,
            "tags": ["Ports"],
            "source_id": document["document_id"],
            "why": "document",
        }
    ]
    assert pipeline.values("SELECT DISTINCT event FROM history_rows") == ["created"]
    assert pipeline.values("SELECT count(*) FROM extractions") == [0]


def test_recall_finds_a_chunk_and_tells_its_document(pipeline: Pipeline) -> None:
    run(pipeline, added(TEXT, title="Ports", kind="file", source="ports.md"))
    found = asked(pipeline, Recall("what does sentence 17 tell?", "ana"))["results"][0]
    assert "Sentence 17 " in found["content"]
    assert (found["type"], found["tags"]) == ("document_chunk", ["Ports"])
    shown = asked(pipeline, GetDocument(found["source_id"]))
    assert (shown["source"], shown["kind"], shown["status"]) == ("ports.md", "file", "done")
    context = asked(pipeline, Context("what does sentence 17 tell?", "ana"))["text"]
    assert "- Ports: " in context


class Away(HashingEmbeddingModel):
    """Answers once `here` is set."""

    here = False

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if not self.here:
            raise TransientModelError("away")
        return await super().embed_passages(texts)


def test_a_document_waits_for_its_vectors_and_is_found_by_words_meanwhile(tmp_path: Path) -> None:
    model = Away(DIMENSIONS)
    with Pipeline(tmp_path, embedding=model) as pipeline:
        run(pipeline, added(TEXT))
        assert statuses(pipeline) == ["embedding"]
        model.here = True
        found = asked(pipeline, Recall("sentence 17", "ana"))["results"][0]
        assert "Sentence 17 " in found["content"]
        pipeline.shard.lock = StoreLock()
        asyncio.run(catch_up(pipeline.shard, model))
        assert statuses(pipeline) == ["done"]


def test_documents_and_chunks_come_in_pages(pipeline: Pipeline) -> None:
    for number in range(5):
        run(pipeline, added(f"{TEXT} {number}", title=str(number)), first=number)
        pipeline.clock.advance(seconds=1)
    told, before = [], None
    for _ in range(3):
        page = asked(pipeline, Documents("ana", limit=2, cursor=before))
        told += [each["title"] for each in page["documents"]]
        before = page["next_cursor"]
    assert (told, before) == (["4", "3", "2", "1", "0"], None)
    document_id = asked(pipeline, Documents())["documents"][0]["id"]
    positions: list[int] = []
    after = None
    while True:
        listed = asked(pipeline, DocumentChunks(document_id[:8], limit=4, cursor=after))
        positions += [each["position"] for each in listed["chunks"]]
        after = listed["next_cursor"]
        if after is None:
            break
    assert positions == list(range(len(chunks(f"{TEXT} 4", 200, 20))))
    with pytest.raises(NotFoundError):
        asked(pipeline, GetDocument("0" * 36))


def test_what_a_document_says_twice_is_one_memory(pipeline: Pipeline) -> None:
    paragraph = f"{'The same words again and again. ' * 5}\n\n"
    run(pipeline, added(paragraph * 6, chunk_overlap=0))
    rows = pipeline.rows("SELECT position, memory_id FROM document_memories ORDER BY position")
    assert [row["position"] for row in rows] == list(range(6))
    assert len({row["memory_id"] for row in rows}) == 1
    assert statuses(pipeline) == ["done"]
    run(pipeline, deleted(pipeline), first=2)
    assert pipeline.result(2)[1]["forgotten"] == 1


def test_the_same_text_and_the_same_address_are_known_again(pipeline: Pipeline) -> None:
    run(pipeline, added(TEXT), added(TEXT, title="other"), PAGE, PAGE)
    first, again, page, page_again = (pipeline.result(number)[1] for number in (1, 2, 3, 4))
    assert again == {"id": first["id"], "deduped": True}
    assert page_again == {"id": page["id"], "deduped": True}
    assert statuses(pipeline) == ["done", "queued"]
    run(pipeline, deleted(pipeline, 1), deleted(pipeline, 3), first=5)
    run(pipeline, added(TEXT), PAGE, first=7)
    assert not pipeline.result(7)[1]["deduped"]
    assert not pipeline.result(8)[1]["deduped"]
    assert statuses(pipeline) == ["deleted", "deleted", "done", "queued"]


def test_a_failed_address_may_be_added_again(pipeline: Pipeline) -> None:
    run(pipeline, PAGE)
    wrong = DocumentTextCommand(document_id=pipeline.result()[1]["id"], error="status 404")
    run(pipeline, wrong, first=2)
    [document] = documents(pipeline)
    assert (document["status"], document["error"]) == ("failed", "status 404")
    run(pipeline, PAGE, first=3)
    assert not pipeline.result(3)[1]["deduped"]


def test_two_scopes_have_each_their_own(pipeline: Pipeline) -> None:
    run(pipeline, added(TEXT))
    run(pipeline, added(TEXT), scope="ben")
    assert pipeline.result(1, "ana")[1]["id"] != pipeline.result(1, "ben")[1]["id"]
    assert active_chunks(pipeline, "ana") == active_chunks(pipeline, "ben") != []
    run(pipeline, deleted(pipeline, 1, "ana"), scope="ben", first=2)
    assert str(pipeline.result(2, "ben")[0]).startswith("not_found")
    run(pipeline, deleted(pipeline, 1, "ana"), first=2)
    assert active_chunks(pipeline, "ana") == []
    assert len(active_chunks(pipeline, "ben")) > 3


def test_chunks_that_equal_memories_are_memories_of_their_own(pipeline: Pipeline) -> None:
    """What was remembered stays when the document goes, and a document when that is forgotten."""
    said = "The kettle holds two litres of water."
    run(pipeline, RememberCommand(content=said), added(said))
    run(pipeline, added(f"{said} And more."), RememberCommand(content=f"{said} And more."), first=3)
    remembered = [pipeline.result(number)[1] for number in (1, 4)]
    assert [each["deduped"] for each in remembered] == [False, False]
    run(pipeline, deleted(pipeline, 2), deleted(pipeline, 3), first=5)
    for each in remembered:
        [row] = pipeline.rows("SELECT type FROM memories WHERE memory_id = ?", each["id"])
        assert row["type"] != "document_chunk"
    run(pipeline, added(said), first=7)
    forget = ForgetCommand(memory_ids=(remembered[0]["id"],), reason="x")
    run(pipeline, forget, first=8)
    assert active_chunks(pipeline) == [said]
    run(pipeline, RememberCommand(content="z", source_id=pipeline.result(7)[1]["id"]), first=9)
    assert not pipeline.result(9)[1]["deduped"]


def test_two_documents_share_no_chunk(pipeline: Pipeline) -> None:
    same = sentences(4, "fjord")
    run(pipeline, added(same), added(f"{same}\n\n{TEXT}"))
    run(pipeline, deleted(pipeline, 1), first=3)
    kept = pipeline.values(
        "SELECT count(*) FROM memories WHERE source_id = ?", pipeline.result(2)[1]["id"]
    )
    assert kept == pipeline.values("SELECT chunks FROM documents WHERE status = 'done'")


def test_deleting_forgets_with_a_trail_and_spares_what_is_protected(pipeline: Pipeline) -> None:
    run(pipeline, added(sentences(400)))
    ids = pipeline.values("SELECT memory_id FROM document_memories ORDER BY position")
    assert len(ids) > 75  # more than are forgotten at once
    pinned = MemoryPatch(memory_id=ids[3], pinned=True)
    run(
        pipeline,
        ModifyCommand(patches=(pinned,), reason="mine"),
        ConfirmCommand(memory_id=ids[60]),
        ForgetCommand(memory_ids=(ids[5],), reason="x"),
        first=2,
    )
    run(pipeline, deleted(pipeline), first=5)
    assert pipeline.result(5) == (
        None,
        {
            "id": pipeline.result()[1]["id"],
            "status": "deleted",
            "forgotten": len(ids) - 3,
            "kept": 2,
        },
    )
    assert len(active_chunks(pipeline)) == 2
    events = pipeline.rows(
        "SELECT reason, changed_by, count(*) AS n FROM history_rows WHERE event = 'deleted'"
        " AND reason = 'outdated' GROUP BY ALL"
    )
    assert events == [{"reason": "outdated", "changed_by": "local", "n": len(ids) - 3}]
    run(pipeline, RecoverCommand(memory_id=ids[10]), first=6)
    assert pipeline.result(6)[1]["status"] == "recovered"
    run(pipeline, deleted(pipeline), first=7)
    assert pipeline.result(7)[1]["forgotten"] == 0


def test_a_document_is_deleted_while_it_is_queued(pipeline: Pipeline) -> None:
    run(pipeline, PAGE)
    page = pipeline.result()[1]["id"]
    run(pipeline, deleted(pipeline), first=2)
    assert pipeline.result(2)[1]["forgotten"] == 0
    run(pipeline, *texts_of(page, TEXT, PAGE), first=3)
    assert statuses(pipeline) == ["deleted"]
    assert active_chunks(pipeline) == []


def test_adding_and_deleting_in_one_batch(pipeline: Pipeline) -> None:
    run(pipeline, added(TEXT))
    document = pipeline.result()[1]["id"]
    with Pipeline(pipeline.folder / "other") as other:
        other.command(added(TEXT), DeleteDocumentCommand(document_id=document, reason="x"))
        other.run()
        assert other.result(2)[1]["forgotten"] == len(chunks(TEXT, 200, 20))
        assert active_chunks(other) == []


def test_no_decision_is_shown_a_chunk(tmp_path: Path) -> None:
    settings = pipeline_settings(FULL, "model")
    with Pipeline(tmp_path, settings, ScriptedModel(spoken)) as pipeline:
        run(pipeline, added("Ana lives in Oslo."))
        pipeline.say("Now Ana lives in Bergen / Ana > lives_in > Bergen")
        pipeline.run()
        assert active_chunks(pipeline) == ["Ana lives in Oslo."]
        [candidates] = pipeline.values("SELECT candidates FROM proposals")
        assert candidates == "[]"
        chunk = pipeline.values("SELECT memory_id FROM document_memories")[0]
        assert asked(pipeline, Weak("ana", below=1.1))["memories"] != []
        assert chunk not in str(asked(pipeline, Weak("ana", below=1.1)))


def test_a_chunk_stays_one_and_can_be_corrected(pipeline: Pipeline) -> None:
    run(pipeline, added(f"{TEXT}"))
    first, second = pipeline.values("SELECT memory_id FROM document_memories ORDER BY position")[:2]
    text = pipeline.values("SELECT content FROM memories WHERE memory_id = ?", second)[0]
    run(
        pipeline,
        ModifyCommand(patches=(MemoryPatch(memory_id=first, type="fact"),), reason="x"),
        ModifyCommand(patches=(MemoryPatch(memory_id=first, content=text),), reason="x"),
        RememberCommand(content="x y z", type="document_chunk"),
        first=2,
    )
    assert pipeline.result(2)[1][0]["status"] == "invalid_request"
    assert pipeline.result(3)[1][0]["status"] == "updated"
    assert str(pipeline.result(4)[0]).startswith("invalid_request")


def test_machines_delete_documents_and_not_what_is_protected(pipeline: Pipeline) -> None:
    agent = Actor(id="helper", type="agent")
    run(pipeline, added(TEXT), actor=agent)
    run(pipeline, deleted(pipeline), first=2, actor=agent)
    assert active_chunks(pipeline) == []
    assert pipeline.values("SELECT DISTINCT added_by FROM documents") == ["helper"]


def test_forgetting_by_type_previews_chunks(pipeline: Pipeline) -> None:
    run(pipeline, added(TEXT))
    shown = asked(pipeline, PreviewForget(scope="ana", types=("document_chunk",)))
    assert len(shown["candidates"]) == len(active_chunks(pipeline))
