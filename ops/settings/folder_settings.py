"""The settings that the memories of a data folder are indexed with, stored in the folder, so that
they need not be repeated.

What is set elsewhere for a run counts, and is kept from then on. The settings of the embedding are
taken together or not at all: a model of one provider says nothing to another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.durable_files import write_whole

FILE_NAME: Final = "index.toml"
_HEAD: Final = (
    "# What the memories in this folder are indexed with; a setting given elsewhere wins.\n"
)
_EMBEDDING: Final = (
    *("provider", "base_url", "model", "dimensions"),
    *("query_prefix", "passage_prefix"),
)


def keep_index_settings(settings: Settings) -> None:
    """Raises OSError."""
    search = {"language": settings.search.language}
    embedding = {
        name: value
        for name in _EMBEDDING
        if (value := getattr(settings.embedding, name)) is not None
        and not (name == "base_url" and "@" in value)  # a password
    }
    # JSON's strings and numbers are TOML's, too.
    tables = {"search": search, "embedding": embedding}
    text = _HEAD + "".join(
        f"[{table}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in held.items())
        for table, held in tables.items()
    )
    path = settings.data_dir / FILE_NAME
    content = text.encode()
    if not path.is_file() or path.read_bytes() != content:
        write_whole(path, content)


def kept_in(folder: Path) -> Path | None:
    """The folder's file, if it has one."""
    path = folder / FILE_NAME
    return path if path.is_file() else None


def still_applying(kept: Mapping[str, object], set_now: Mapping[str, object]) -> dict[str, object]:
    """The stored settings, by dotted key, that still apply alongside those that are set: a
    service's key or time limit does not change the model."""
    embeds_otherwise = any(f"embedding.{name}" in set_now for name in _EMBEDDING)
    return {
        key: value
        for key, value in kept.items()
        if not (embeds_otherwise and key.startswith("embedding."))
    }
