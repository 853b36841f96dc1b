"""A memory with a past, made by hand and in this process, and its stores made anew."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.replay.rebuild import Rebuilt, rebuild
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.entities import (
    AddToGraphCommand,
    EditEntityCommand,
    NamedRelation,
    RemoveFromGraphCommand,
    Structure,
    StructuredAspect,
    StructuredAttribute,
    StructureToRemove,
)
from palimpsest.schemas.envelope import Triple
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.streams.logs.settings import LogSettings
from palimpsest.streams.models.settings import EmbeddingSettings
from tests.harness import DIMENSIONS, FULL, Crash, Pipeline, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

PEOPLE = ("Ana", "Ben", "Rita", "東京", "علي")
PLACES = ("Oslo", "New York", "Bergen", "Node.js", "大阪")
BEGINNINGS = ("", "", "", "Now ", "Gone ", "Same ", "Odd ", "Garbled ", "? ")
STEPS = ("decode", "deduplicate", "ask", "step", "commit", "send")
STOPPED = ("decide", "apply-writes", "graph-persist", "audit")


def settings_of(folder: Path, partitions: int | None = None) -> Settings:
    """Those by which the folder's stores are made anew: of the pipeline that filled them."""
    embedding = EmbeddingSettings(provider="hashing", dimensions=DIMENSIONS)
    made = pipeline_settings(FULL, "model")
    log = LogSettings(partitions=partitions)
    return made.model_copy(update={"data_dir": folder, "embedding": embedding, "log": log})


def opened(folder: Path) -> Pipeline:
    """All stages on the folder, with a store where a worker would have it."""
    place = folder / "shards" / "0"
    if not place.exists():
        place.mkdir(parents=True)
        (folder / "shard").symlink_to(place, target_is_directory=True)
    return Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken), batch=7)


def says(chance: random.Random) -> str:
    person, place = chance.choice(PEOPLE), chance.choice(PLACES)
    verb = chance.choice(("lives in", "likes", "never likes", "works at"))
    said = f"{chance.choice(BEGINNINGS)}{person} {verb} {place}"
    return f"{said} / {person} > knows > {place}" if chance.random() < 0.3 else said


def authored(chance: random.Random) -> Structure:
    """A relation, and an attribute with a text of its own."""
    person, place = chance.choice(PEOPLE), chance.choice(PLACES)
    return Structure(
        attributes=(StructuredAttribute(entity=person, aspect="home", content=says(chance)),),
        relations=(Triple(source=person, relationship="owns", target=place),),
    )


def added_or_removed(structure: Structure) -> Command:
    """By the length of the text: half of them remove what the others add."""
    [attribute], [relation] = structure.attributes, structure.relations
    if len(attribute.content or "") % 2:
        return AddToGraphCommand(structured=structure)
    gone = NamedRelation(
        source=relation.source, relationship=relation.relationship, target=relation.target
    )
    aspect = StructuredAspect(entity=attribute.entity, aspect=attribute.aspect)
    return RemoveFromGraphCommand(
        structured=StructureToRemove(aspects=(aspect,), relations=(gone,))
    )


def orders(chance: random.Random, ids: list[str]) -> Command:
    """Something that a person does, to any memory of these."""
    one = chance.choice(ids)
    return chance.choice(
        [
            RememberCommand(content=says(chance), pinned=chance.random() < 0.3),
            ModifyCommand(patches=(MemoryPatch(memory_id=one, content=says(chance)),)),
            ModifyCommand(patches=(MemoryPatch(memory_id=one, pinned=True),)),
            ForgetCommand(memory_ids=(one,), reason="wrong", cascade=True, force=True),
            ForgetCommand(memory_ids=(one,), reason="private", hard=True, force=True),
            RecoverCommand(memory_id=one),
            AliasCommand(name="Ana", alias="Anna"),
            EditEntityCommand(name="Ana", rename="Anja", type="person"),
            EditEntityCommand(name=chance.choice(PEOPLE), archived=chance.random() < 0.5),
            added_or_removed(authored(chance)),
        ]
    )


def live_on(
    folder: Path,
    rounds: int,
    seed: int = 1,
    commands: int = 10,
    start: int = 0,
    erases: bool = True,
) -> int:
    """Turns, commands and crashes, one a round; how many crashes there were. `start`: how many
    rounds there were before. `erases`: whether some forgotten texts are erased."""
    chance = random.Random(seed)
    crashes = 0
    for number in range(start, start + rounds):
        with opened(folder) as pipeline:
            pipeline.crash_at(chance.choice(STOPPED), chance.choice(STEPS), chance.randint(1, 2))
            for scope in ("ana", "ben"):
                said = [says(chance) for _ in range(4)]
                pipeline.say(*said, scope=scope, first=number * 100)
                ids = pipeline.values("SELECT memory_id FROM memory_rows WHERE scope = ?", scope)
                for each in range(commands // 2 if ids else 0):
                    order = orders(chance, ids)
                    if isinstance(order, ForgetCommand) and not erases:
                        order = order.model_copy(update={"hard": None})
                    pipeline.command(order, first=number * 100 + each, scope=scope)
            try:
                pipeline.run()
            except Crash:
                crashes += 1
                pipeline.reopen()
            pipeline.disarm()
            pipeline.run()
            if pipeline.shard.has_erasures:
                execute_in(pipeline.log, 0, pipeline.shard)
    return crashes


def rebuilt(settings: Settings, **wanted: object) -> Rebuilt:
    return asyncio.run(rebuild(settings, Rebuild(**wanted)))  # type: ignore[arg-type]


def state_of(settings: Settings) -> str:
    """The state hash of a folder's store that nobody has open."""
    shard = open_shard(settings, 0, shard_options(settings, embedding_model(settings)))
    try:
        with shard.reading() as reader:
            return state_hash(reader)
    finally:
        shard.close()
