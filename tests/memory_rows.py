"""Rows for tests of the stores, and a shard that takes them without a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from palimpsest.schemas.memory_texts import dedup_key, embedding_key, embedding_text
from palimpsest.schemas.normal_forms import content_hash, normalized_content
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.hashing import hashed
from palimpsest.streams.store_port import KeepVector, Load, Progress, Put, Vector, Write

BEGIN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
DIMENSIONS = 64
MODEL = "hashing-test"
SCOPE = "ana"


def embed(text: str) -> Vector:
    return hashed(text, DIMENSIONS)


def memory(memory_id: str, content: str, write_seq: int = 1, **fields: object) -> MemoryRow:
    """A fact unless `type` says otherwise."""
    kind = str(fields.pop("type", "fact"))
    who = str(fields.pop("who", "Ana" if kind == "episodic" else "pipeline"))
    scope = str(fields.pop("scope", SCOPE))
    digest = content_hash(content)
    at = BEGIN + timedelta(seconds=write_seq)
    row = MemoryRow(
        memory_id=memory_id,
        scope=scope,
        type=kind,
        content=content,
        normalized_content=normalized_content(content),
        content_hash=digest,
        dedup_key=None if kind == "episodic" else dedup_key(scope, f"{digest}{memory_id}"),
        embedding_key="",
        importance=0.5,
        confidence=0.9,
        who=who,
        source_id=memory_id,
        occurred_at=at,
        created_at=at,
        updated_at=at,
        updated_by="test",
        write_seq=write_seq,
    )
    row = replace(row, **fields)  # type: ignore[arg-type]
    if not row.embedding_key:
        row = replace(row, embedding_key=embedding_key(text_of(row)))
    return row


def text_of(row: MemoryRow) -> str:
    return embedding_text(row.type, row.who, row.content, row.occurred_at)


def turn(memory_id: str, content: str, write_seq: int = 1, **fields: object) -> MemoryRow:
    return memory(memory_id, content, write_seq, type="episodic", **fields)


def drawn(fact: str, source: str, scope: str = SCOPE) -> EdgeRow:
    return EdgeRow(source_id=fact, target_id=source, relation_type="derived_from", scope=scope)


def after(earlier: str, later: str, scope: str = SCOPE) -> EdgeRow:
    return EdgeRow(source_id=earlier, target_id=later, relation_type="temporal", scope=scope)


def vector_of(row: MemoryRow) -> Vector:
    return embed(text_of(row))


def packed_of(row: MemoryRow) -> bytes:
    """What stands for the packed token vectors of its text."""
    return f"tokens of {text_of(row)}".encode()


def options(**fields: object) -> ShardOptions:
    return replace(ShardOptions(MODEL, DIMENSIONS), **fields)  # type: ignore[arg-type]


def open_shard(folder: Path, **fields: object) -> Shard:
    return Shard(folder, options(**fields))


def write(shard: Shard, rows: Sequence[Row], vectors: bool = True) -> None:
    """Commit rows as one batch, each memory with its vector."""
    unit = shard.unit()
    for row in rows:
        writes: list[Write] = [Put(row)]
        if isinstance(row, MemoryRow):
            unit.answer(Load(row.scope, memory_ids=(row.memory_id,)))
            if vectors and not row.is_deleted:
                kept = KeepVector(row.embedding_key, vector_of(row), packed_of(row))
                writes.insert(0, kept)
        unit.stage(writes)
    unit.commit(Progress("test", {}, (), (), 0))


def conversation(
    lines: Sequence[tuple[str, str]], session: str = "s1", first: int = 1, scope: str = SCOPE
) -> list[Row]:
    """Turns of speaker and text, one after the other, with the edges between them."""
    rows: list[Row] = []
    for number, (who, text) in enumerate(lines):
        memory_id = f"{scope}-{session}-{number}"
        rows.append(turn(memory_id, text, first + number, who=who, session_id=session, scope=scope))
        if number:
            rows.append(after(f"{scope}-{session}-{number - 1}", memory_id, scope))
    return rows
