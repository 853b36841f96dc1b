"""Documents for tests."""

from __future__ import annotations

from typing import Any

from palimpsest.schemas.commands import AddDocumentCommand, Command, DeleteDocumentCommand
from tests.harness import Pipeline

SIZE = {"chunk_characters": 200, "chunk_overlap": 20}


def sentences(count: int, about: str = "harbour") -> str:
    """Text whose every sentence is another."""
    return " ".join(f"Sentence {n} tells of the {about} of Oslo in winter." for n in range(count))


def added(text: str, **fields: Any) -> AddDocumentCommand:
    """In small chunks, so that little text has many."""
    return AddDocumentCommand.model_validate({"kind": "text", "text": text, **SIZE, **fields})


def run(pipeline: Pipeline, *commands: Command, first: int = 1, **fields: Any) -> None:
    """These commands, numbered from `first`, and all that comes of them."""
    pipeline.command(*commands, first=first, **fields)
    pipeline.run()


def deleted(pipeline: Pipeline, number: int | str = 1, scope: str = "ana") -> DeleteDocumentCommand:
    """Of the document that the command with this number added."""
    found = pipeline.result(number, scope)[1]["id"]
    return DeleteDocumentCommand(document_id=found, reason="outdated")


def documents(pipeline: Pipeline) -> list[dict[str, Any]]:
    return pipeline.rows("SELECT * FROM documents ORDER BY document_id")


def statuses(pipeline: Pipeline) -> list[str]:
    return sorted(pipeline.values("SELECT status FROM documents"))


def active_chunks(pipeline: Pipeline, scope: str = "ana") -> list[str]:
    """Contents, in the order of the documents and of their positions."""
    return pipeline.values(
        "SELECT m.content FROM document_memories l JOIN memory_rows m USING (memory_id)"
        " WHERE l.scope = ? AND NOT m.is_deleted ORDER BY l.document_id, l.position",
        scope,
    )
