"""What a process has in memory."""

from __future__ import annotations

import resource
from pathlib import Path

from palimpsest.ops.requests import JsonObject

MIB = 2**20


def resident(pid: int | None = None) -> JsonObject:
    """MiB that a process, else this one, has in memory now (of this one the peak where that is not
    told), and how much of it are pages of files, which the system may drop."""
    try:
        lines = (
            Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        )
        kib = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        found, mapped = 1024 * kib["Rss"], 1024 * (kib["Rss"] - kib["Anonymous"])
    except (OSError, ValueError, KeyError, IndexError):
        found, mapped = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0
    return {"resident_mib": round(found / MIB, 1), "mapped_mib": round(mapped / MIB, 1)}
