"""How many answers that take long a token may have open."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.service import Streams


async def parts() -> AsyncIterator[str]:
    for part in ("one", "two"):
        yield part


async def test_a_stream_counts_from_its_beginning_to_its_end() -> None:
    streams = Streams(each=2)
    # Requests that come together are all granted before one of them is read.
    first, second = (streams.counted("ana", parts()) for _ in range(2))
    with pytest.raises(Problem, match="2 streams of this token are open"):
        streams.counted("ana", parts())
    streams.check("ben")
    assert [part async for part in first] == ["one", "two"]
    third = streams.counted("ana", parts())
    with pytest.raises(Problem):
        streams.check("ana")
    del second, third  # their clients were gone before they were read
    streams.check("ana")
