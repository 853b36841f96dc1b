"""What a view is, and what those columns hold that are of no row (`schemas.rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from palimpsest.stores.database.balance import FACT_STATES, TURN_STATES

PARTITION = "partition"
"""The column that every view has in a query: the partition that the row lies in."""

COLUMNS: dict[str, str] = {
    "embedding_model": "the models that it has vectors of, with commas; NULL while it has none",
    "speaker": "who said it",
    "outcome": "what became of it: created, updated, deleted, none, deduped, skipped, blocked,"
    " shadowed or dropped; NULL while it is on its way",
    "outcome_reason": "why",
    "scope": "the memory space",
    "entity_id": "id of the entity",
    "entity_name": "the entity's name",
    "aliases": "other names that it goes by",
    "times_told": "how often what was said or authored of the graph named it",
    "source_entity_id": "the entity that it goes from",
    "target_entity_id": "the entity that it goes to",
}
"""Columns that no table has under their name, or not with that meaning."""

_KINDS = {"turns": TURN_STATES, "facts": FACT_STATES}
_STATES = {
    "stored": "stored as memories",
    "rejected": "rejected, with a marker in place of the text",
    "created": "that became memories",
    "updated": "that updated a memory",
    "deleted": "that had a memory forgotten",
    "none": "that were known already",
    "deduped": "whose text was there already",
    "skipped": "skipped by a rule",
    "blocked": "blocked by the mode",
    "shadowed": "decided in shadow mode, so only recorded",
    "dropped": "whose decision was no use",
    "dead": "in dead letters",
    "in_flight": "on their way",
    "lost": "that cannot be found: must be 0",
}

PIPELINE_COLUMNS: dict[str, str] = {
    "state": "where it is now: one of the columns of pipeline_balance",
    "detail": "why, or the place in the log where it was met",
    "memory_id": "the memory that it became or was decided about",
    "turns_accepted": "turns that were published",
    "facts_extracted": "facts that were extracted",
    "holds": "whether everything that went in was found again",
    **{
        f"{kind}_{state}": f"{kind} {_STATES[state]}"
        for kind, states in _KINDS.items()
        for state in states
    },
}


@dataclass(frozen=True, slots=True)
class View:
    """`columns` explains those that hold something else than the columns of their names in the
    tables of the query."""

    meaning: str
    query: str
    columns: Mapping[str, str] = field(default_factory=dict)


def quoted(text: str) -> str:
    """The text as SQL writes it, where no parameter can be given."""
    return "'" + text.replace("'", "''") + "'"
