"""Which memories are forgotten together with others: those derived only from them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def drawn_from_nothing_else(
    gone: Collection[str], sources: Mapping[str, Collection[str]], active: Collection[str]
) -> tuple[str, ...]:
    """Returns the memories of `sources`, sorted, all of whose sources are `gone`, inactive, or
    forgotten with them in turn. `sources` maps each memory to those that it was derived from or
    that repeated it; `active` are the memories among all these that are not forgotten."""
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
