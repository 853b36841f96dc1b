"""What one change does to the graph, and how it adds names and mentions to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.messages import GraphWork
from palimpsest.schemas.normal_forms import canonical_name, shown_name
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameLinkRow, NameRow, RelationRow
from palimpsest.streams.claims.denial import stated_clauses
from palimpsest.streams.memory_rows import answer_row
from palimpsest.streams.stage import Message
from palimpsest.streams.store_port import Graph, MemoryText, Put, Write
from palimpsest.streams.text.linker import names_in

_ANSWERED = "alias"
"""What was answered here before all commands recorded their own name."""


@dataclass(slots=True)
class Work:
    """What the change `given` does so far."""

    message: Message
    graph: Graph
    given: GraphWork
    names: dict[str, NameRow]
    relations: dict[tuple[str, str, str], RelationRow]
    links: dict[tuple[str, str], NameLinkRow]
    changed: dict[tuple[object, ...], Row] = field(default_factory=dict)
    mentions: dict[tuple[str, str, str], MentionRow] = field(default_factory=dict)
    structure: list[Write] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    added: dict[str, list[JsonValue]] = field(default_factory=dict)
    known: dict[str, list[JsonValue]] = field(default_factory=dict)
    """What was authored, by kind: new, and as it was before."""
    entities_inserted: int = 0
    entities_updated: int = 0
    relations_inserted: int = 0
    relations_updated: int = 0
    # Counts only the change's own memories: how many earlier ones are linked depends on how far
    # apply-writes is.
    mentions_linked: int = 0

    @property
    def memory_ids(self) -> tuple[str, ...]:
        return self.given.memory_ids

    @property
    def by_person(self) -> bool | None:
        """Whether a person asked for it, None in older records."""
        return self.given.by_person

    @property
    def authors(self) -> bool:
        """Whether it adds to the graph without a text."""
        return bool(self.given.tells)

    def note(self, kind: str, what: str, is_known: bool) -> None:
        found = (self.known if is_known else self.added).setdefault(kind, [])
        if what not in found:
            found.append(what)

    def keep(self, row: NameRow) -> NameRow:
        self.names[row.canonical_name] = row
        self.changed[(NameRow, *row.key)] = row
        return row


def link_key(scope: str, name: str, alias: str) -> tuple[str, str]:
    return entity_id(scope, canonical(name)), entity_id(scope, canonical(alias))


def canonical(name: str) -> str:
    return canonical_name(shown_name(name))


def new_name(work: Work, shown: str, entity_type: str, mentions: int) -> NameRow:
    """Creates a name and links the earlier memories that contain it, so that it does not matter
    which came first."""
    name = canonical_name(shown)
    name_id = entity_id(work.message.scope, name)
    row = NameRow(
        name_id=name_id,
        scope=work.message.scope,
        name=shown,
        canonical_name=name,
        entity_id=name_id,
        entity_type=entity_type or "unknown",
        mentions=mentions,
        first_seen=work.message.recorded,
        updated_at=work.message.recorded,
    )
    work.entities_inserted += 1
    for mention in mentions_before(work, row):
        add_mention(work, *mention)
    return work.keep(row)


def mentions_before(work: Work, row: NameRow) -> Iterator[tuple[str, MemoryText, NameRow, str]]:
    """Yields the memories that contained a name before it was known: memory, text, name, and its
    spelling in the text."""
    for memory_id in work.graph.naming.get(row.canonical_name, ()):
        for text in work.graph.texts.get(memory_id, ()):
            spelling = names_in(text.text, row.canonical_name)
            if spelling is not None:
                yield memory_id, text, row, spelling


def answer_command(
    work: Work, command_id: str | None, error: str | None, result: JsonValue
) -> None:
    if command_id is None:  # the version that accepted it has answered it already
        return
    begun = work.graph.command
    kind, digest = (_ANSWERED, None) if begun is None else (begun.command, begun.digest)
    row = answer_row(work.message, command_id, kind, digest, result, error)
    work.structure.append(Put(row))


def add_mention(work: Work, memory_id: str, text: MemoryText, name: NameRow, spelling: str) -> None:
    key = (memory_id, text.key, name.name_id)
    known = work.mentions.get(key)
    if known is None or spelling < known.mention_text:
        work.mentions[key] = MentionRow(
            memory_id=memory_id,
            text_key=text.key,
            name_id=name.name_id,
            scope=work.message.scope,
            mention_text=spelling,
            confidence=1.0,
            stated=stated_clauses(text.text, spelling),
        )
