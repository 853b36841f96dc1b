"""Lists show what was said at the same moment in the order of the log."""

from __future__ import annotations

from pathlib import Path

from palimpsest import Memory

SETTINGS = {"embedding.provider": "hashing", "llm.provider": "rules"}
AT = "2026-02-03T10:00:00Z"


def test_turns_and_memories_of_one_moment_are_listed_in_order(tmp_path: Path) -> None:
    said = [f"Line {number:02} of the poem" for number in range(12)]
    noted = [f"Note {number:02} of the poem" for number in range(12)]
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        memory.add([{"content": text, "speaker": "Ana", "occurred_at": AT} for text in said])
        memory.wait_until_processed()
        for text in noted:
            memory.remember(text)
        for size in (40, 5):
            page = memory.list(limit=size)
            listed = [each.content for each in page.memories]
            while page.next_cursor is not None:
                page = memory.list(limit=size, cursor=page.next_cursor)
                listed += [each.content for each in page.memories]
            assert listed == [*reversed(noted), *reversed(said)]
