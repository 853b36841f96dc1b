"""What goes with forgotten memories: what was drawn from them and from nothing else. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def drawn_from_nothing_else(
    gone: Collection[str], sources: Mapping[str, Collection[str]], active: Collection[str]
) -> tuple[str, ...]:
    """The memories of `sources`, sorted, all of whose sources are `gone`, inactive, or go with
    them in turn. `sources` are those that each memory was drawn from, or that said the same
    again; `active` are the memories that are not forgotten, of all that are named."""
    going = set(gone)
    while True:
        more = {
            memory_id
            for memory_id, known in sources.items()
            if memory_id in active
            and memory_id not in going
            and not going.isdisjoint(known)
            and all(source in going or source not in active for source in known)
        }
        if not more:
            return tuple(sorted(going - set(gone)))
        going |= more
