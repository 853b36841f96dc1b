"""Normal forms of a text, as `schemas.normal_forms` has them."""

from palimpsest.schemas.normal_forms import (
    content_hash,
    normalized_content,
    storage_content,
    storage_lines,
)

__all__ = ["content_hash", "normalized_content", "storage_content", "storage_lines"]
