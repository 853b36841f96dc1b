"""Tables as a service sends them. A module of its own: Arrow is imported when SQL is requested."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import ipc

from palimpsest.ops.errors import RequestError

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"


def read(content: bytes) -> pa.Table:
    """Parses an Arrow stream. Raises RequestError for other content."""
    try:
        table: pa.Table = ipc.open_stream(content).read_all()
    except (pa.ArrowInvalid, OSError):
        raise RequestError("the answer is no Arrow stream; check the base_url") from None
    return table
