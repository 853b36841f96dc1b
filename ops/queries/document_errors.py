"""What is answered for a document that there is not."""

from __future__ import annotations

from palimpsest.ops.queries.errors import NotFoundError


def no_document(document_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no document {document_id}; `palimpsest documents list` shows what there is"
    )
