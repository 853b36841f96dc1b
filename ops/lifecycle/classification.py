"""A language model sorts facts by the aspects of the entities that they name: the nightly job.

Facts that name an entity and have no place among its aspects are shown to the model, some at once,
with the entity's name, type and aspects. What it answers goes into the log as a command, so that a
rebuild calls no model; a reply that was paid for is recorded before, so that a run which is
repeated after a crash does not pay again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from palimpsest.ops.lifecycle.shared import (
    ask,
    command_record,
    due_rows,
    finish_all,
    language_models,
)
from palimpsest.ops.scheduling.jobs import JobContext, JobFailed
from palimpsest.schemas.aspects import ClassifiedFact, ClassifyFactsCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.memories import SOURCE_LIST
from palimpsest.streams.prompting.summaries import (
    aspects_prompt,
    read_aspects,
    shown_aspects,
)
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.text.counts import counted

CLASSIFIER: Final = Actor(id="classifier", type="system")
FACTS_PER_CALL: Final = 12
LEAST_FACTS: Final = 2
"""Of an entity that is no person: a single one nearly always tells of someone else, who likes it or
has it."""
MOST_FACTS: Final = 60
"""Facts of an entity in a run, the oldest first; the next run goes on."""
MOST_ENTITIES: Final = 100
"""Entities of a run on a partition, those with most facts first."""
MOST_TOLD: Final = 3
"""Refused parts of replies that a run tells."""
# A fact has a place among the aspects of an entity where anyone said so, or a model of its present
# text; and none is looked for while a result says that the model had none for this version.
_DUE: Final = f"""
WITH named AS (
    SELECT n.scope, n.entity_id, m.memory_id, m.version, m.content, m.created_at,
        min(n.canonical_name) AS name
    FROM mention_rows t JOIN name_rows n USING (name_id)
        JOIN memory_rows m ON m.memory_id = t.memory_id AND m.embedding_key = t.text_key
    WHERE NOT m.is_deleted AND m.type NOT IN {SOURCE_LIST}
        AND (m.valid_until IS NULL OR m.valid_until > $at) AND coalesce(n.scope = $scope, true)
    GROUP BY ALL),
placed AS (
    SELECT n.entity_id, t.memory_id
    FROM attribute_rows t JOIN aspect_rows a USING (aspect_id) JOIN name_rows n USING (name_id)
        JOIN memory_rows m ON m.memory_id = t.memory_id
    WHERE t.text_key IS NULL OR t.text_key = m.embedding_key),
left_out AS (
    SELECT scope, result->>'entity_id' AS entity_id,
        unnest(json_extract_string(result, '$.left_out[*]')) AS fact
    FROM command_results WHERE command = 'classify-facts' AND error IS NULL)
SELECT f.scope, f.entity_id, any_value(k.name), any_value(k.entity_type),
    (SELECT coalesce(list(DISTINCT a.canonical_name), []) FROM aspect_rows a
        JOIN name_rows n USING (name_id) WHERE n.entity_id = f.entity_id AND a.weight > 0),
    list({{'memory_id': f.memory_id, 'version': f.version, 'text': f.content, 'name': f.name}}
        ORDER BY f.created_at, f.memory_id)[:{MOST_FACTS}]
FROM named f JOIN known_entities k ON k.entity_id = f.entity_id AND k.scope = f.scope
    ANTI JOIN placed p ON p.entity_id = f.entity_id AND p.memory_id = f.memory_id
    ANTI JOIN left_out l ON l.scope = f.scope AND l.entity_id = f.entity_id
        AND l.fact = f.memory_id || ' ' || f.version
WHERE NOT k.archived
GROUP BY f.scope, f.entity_id
HAVING count(*) >= {LEAST_FACTS} OR any_value(k.entity_type) = 'person'
ORDER BY count(*) DESC, f.scope, f.entity_id LIMIT {MOST_ENTITIES}"""


@dataclass(frozen=True, slots=True)
class _Fact:
    memory_id: str
    version: int
    text: str
    name: str
    """By which it calls the entity."""

    @property
    def key(self) -> str:
        return f"{self.memory_id} {self.version}"


@dataclass(slots=True)
class _Due:
    scope: str
    entity_id: str
    name: str
    entity_type: str
    aspects: set[str]
    facts: list[_Fact]


@dataclass(slots=True)
class _Done:
    """What a run did: entities and facts, and what of replies, or which replies, it refused."""

    entities: int = 0
    facts: int = 0
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def told(self) -> Iterator[str]:
        yield f"{counted(self.facts, 'facts')} of {counted(self.entities, 'entities')}"
        for these, what in ((self.refused, "refused"), (self.failed, "replies not usable")):
            if these:
                more = ", …" if len(these) > MOST_TOLD else ""
                yield f"{len(these)} {what} ({', '.join(these[:MOST_TOLD])}{more})"


async def classification(context: JobContext) -> str:
    """Classifies the facts that are due; returns what it did. Raises JobFailed where the model
    answered nothing usable at all."""
    models = language_models(context)
    if models is None:
        return "no language model is set (llm.provider): facts have the aspects that people name"
    done = _Done()
    due = await asyncio.to_thread(_due, context)
    await finish_all(_classify(context, models, each, done) for each in due)
    if done.failed and not done.entities:
        raise JobFailed(f"none of {counted(len(done.failed), 'entities')}: {done.failed[0]}")
    return ", ".join(done.told())


def _due(context: JobContext) -> list[_Due]:
    return [
        _Due(scope, entity_id, name, entity_type, {*aspects}, [_Fact(**each) for each in facts])
        for scope, entity_id, name, entity_type, aspects, facts in due_rows(
            context, _DUE, at=context.at
        )
    ]


async def _classify(context: JobContext, models: ModelPort, due: _Due, done: _Done) -> None:
    """One call after another: each is shown the aspects of those before."""
    for first in range(0, len(due.facts), FACTS_PER_CALL):
        facts = due.facts[first : first + FACTS_PER_CALL]
        texts = [fact.text for fact in facts]
        known = sorted(due.aspects)
        prompt = aspects_prompt(due.name, due.entity_type, known, texts)
        shown = [each for some in shown_aspects(due.entity_type, known) for each in some]
        read = partial(read_aspects, name=due.name, count=len(facts), shown=shown)
        try:
            reply, model = await ask(models, prompt, due.scope, read)
        except JobFailed as error:
            done.failed.append(f"{due.name}: {error}")
            return
        command = ClassifyFactsCommand(
            model=model,
            entity_id=due.entity_id,
            entity_type=reply.entity_type,
            facts=tuple(
                ClassifiedFact(
                    memory_id=facts[index].memory_id,
                    version=facts[index].version,
                    entity=facts[index].name,
                    aspect=place.aspect,
                    kind=place.kind,
                )
                for index, place in sorted(reply.places.items())
            ),
            left_out=tuple(
                fact.key for index, fact in enumerate(facts) if index not in reply.places
            ),
        )
        keys = [fact.key for fact in facts]
        record = command_record(context, due.scope, command, CLASSIFIER, due.entity_id, *keys)
        await asyncio.to_thread(context.append, [record])
        due.aspects.update(place.aspect for place in reply.places.values())
        done.facts += len(reply.places)
        done.refused += [f"{due.name}: {each}" for each in reply.refused]
    done.entities += 1
