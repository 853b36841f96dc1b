"""A history in which nearly everything happens, and its fold into another store."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.replay.fold import FoldJob, FoldResult, fold_partition
from palimpsest.ops.replay.requests import UNWATCHED, Watch
from palimpsest.ops.requests import ExportRequest
from palimpsest.ops.service.exporting import export_scope
from palimpsest.schemas.commands import (
    AliasCommand,
    ApplyProposalsCommand,
    Command,
    ConfirmCommand,
    DismissProposalsCommand,
    ForgetCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SessionEndCommand,
    SetFlagsCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.state_hash import table_hashes
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.topology import STAGE_NAMES, stages
from tests.documents import added, deleted, sentences
from tests.harness import CAREFUL, Clock, Pipeline, pipeline_settings
from tests.messages import redriven
from tests.spoken_model import ScriptedModel, spoken

TALK = (
    "Ana lives in Oslo near the harbour / Ana > lives in > Oslo",
    "Now Ana lives in Bergen near the harbour",
    "Ana likes green tea / Ben likes black coffee / Ana > knows > Ben",
    "Gone Ben likes black coffee",
    "Odd Ana likes green tea",
    "Same Ana likes green tea",
    "Nora doesn't play the cello 'at home' / Nora > plays > cello",
    "Ana wohnt jetzt in Tübingen, Königsstraße 12 / Ana > wohnt in > Tübingen",
    "アナは京都に住んでいます / アナ > 住む > 京都",
    "Ana likes green tea~0.3",
    "? Garbled",
    "Garbled Ana likes green tea in the morning",
)
SCOPES = ("ana", "ben", "cleo")
FACTS = (
    "SELECT memory_id FROM memory_rows WHERE scope = 'ana' AND type <> 'episodic'"
    " AND NOT is_deleted AND NOT pinned ORDER BY memory_id"
)
HELD = (
    "SELECT h.item_id FROM held_proposals h JOIN outcomes o ON o.item_id = h.item_id"
    " WHERE o.event = 'blocked' AND h.scope = 'ana' ORDER BY 1"
)


def recorded(folder: Path, seed: int = 0, clock: Clock | None = None) -> Pipeline:
    """The pipeline of `lived`; what decides is its model."""
    chance = random.Random(seed)
    batch = {name: chance.choice((1, 3, 7, 256)) for name in STAGE_NAMES}
    settings = pipeline_settings(CAREFUL, "model")
    model = ScriptedModel(spoken)
    return Pipeline(folder, settings, model, batch=batch, clock=clock or Clock())


class History:
    """What people and agents do, a thing after another; everything that follows is carried out."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._turns = 0
        self._commands = 0

    def say(self, *texts: str, **fields: Any) -> None:
        self.pipeline.say(*texts, first=1 + self._turns, **fields)
        self._turns += len(texts)

    def command(self, *commands: Command, scope: str = "ana") -> int:
        """The number of the first."""
        first = 1 + self._commands
        self.pipeline.command(*commands, first=first, scope=scope)
        self._commands += len(commands)
        return first

    def run(self) -> None:
        self.pipeline.run()
        self.pipeline.clock.advance(hours=7)

    def one(self) -> str:
        """A memory that is there."""
        found = self.pipeline.values(FACTS)
        return str(found[len(found) // 2])


def live_to_an_erasure(pipeline: Pipeline) -> History:
    """The beginning of a history of three scopes. Erased texts are still in the files."""
    history = History(pipeline)
    for scope in SCOPES:
        history.say(*TALK, scope=scope, session_id=f"{scope}-1")
    history.run()
    _curate(history)
    return history


def live(pipeline: Pipeline) -> None:
    """The whole history."""
    history = live_to_an_erasure(pipeline)
    execute_in(pipeline.log, 0, pipeline.shard)
    _hold(history)
    _keep_documents(history)
    _redrive(history)
    for session in ("ana-2", "ana-3"):
        history.say(
            TALK[0], "Ana adopted a cat called Miso / Ana > owns > Miso", session_id=session
        )
        history.command(UpdateShortTermCommand(session_id=session, summary="They spoke of a cat."))
        history.run()
    history.command(SessionEndCommand(session_id="ana-3"))
    # What comes twice, under the same id with another text, and what is no message.
    pipeline.say(TALK[0], "Something else", scope="ben", first=1, session_id="ben-1")
    pipeline.raw(CONVERSATION_TURNS, b"{")
    history.run()
    _import(history)


def _curate(history: History) -> None:
    history.command(
        RememberCommand(content="critical: Ana's pin is 4711", who="Ana", tags=("bank",)),
        RememberCommand(content="[pin]: Nora never eats nuts", pinned=True),
        RememberCommand(content='Ben\'s "new" job is in Ghent; DROP TABLE x', session_id="ana-1"),
        AliasCommand(name="Nora", alias="Eleonora"),
        AliasCommand(name="Nora", alias="Nora"),
    )
    history.run()
    changed, gone = history.pipeline.values(FACTS)[:2]
    history.command(
        ModifyCommand(
            patches=(MemoryPatch(memory_id=changed, content="Ana lives in Bodø"),), reason="moved"
        ),
        ForgetCommand(memory_ids=(gone,), reason="private"),
        ConfirmCommand(memory_id=history.one()),
    )
    history.run()
    history.command(RecoverCommand(memory_id=gone), RecoverCommand(memory_id=changed))
    history.run()
    erased = history.pipeline.values(
        "SELECT memory_id FROM memory_rows WHERE type = 'episodic' AND scope = 'ana'"
        " ORDER BY content LIMIT 1"
    )
    history.command(
        ForgetCommand(memory_ids=tuple(erased), reason="asked", hard=True, cascade=True)
    )
    history.run()


def _hold(history: History) -> None:
    """Changes that are held back, one applied and one dismissed; then modes that change."""
    history.say("Now Ana likes red tea", "Gone Nora plays the flute", "Now Miso is a dog")
    history.run()
    held = history.pipeline.values(HELD)
    history.command(
        ApplyProposalsCommand(item_ids=tuple(held[:1]), reason="true"),
        DismissProposalsCommand(item_ids=tuple(held[1:2]), reason="a joke"),
    )
    history.run()
    history.command(SetFlagsCommand(allow_update_delete=True), scope="ben")
    history.command(SetFlagsCommand(shadow_mode=True), scope="cleo")
    for scope in SCOPES:
        history.say(
            "Now Ben likes white coffee", "Rex barks at Ben / Rex > likes > Ben", scope=scope
        )
    history.run()
    history.command(SetFlagsCommand(shadow_mode=False, enabled=False), scope="cleo")
    history.say("Cleo keeps bees on the roof", scope="cleo")
    history.run()


def _keep_documents(history: History) -> None:
    first = history.command(
        added(sentences(12), title="Harbours"),
        added(sentences(3, "castle"), title="Castles"),
        added("", title="Nothing"),
    )
    history.run()
    history.command(deleted(history.pipeline, first))
    history.run()


def _redrive(history: History) -> None:
    for dead_letter in history.pipeline.dead_letters():
        if dead_letter.stage in ("extract", "decide"):
            topic, message = redriven(dead_letter)
            history.pipeline.publish(message, topic=topic)
    history.run()


def _import(history: History) -> None:
    pipeline = history.pipeline
    sources = Sources(
        pipeline.settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
    )
    path = pipeline.folder / "ben.ndjson"
    export_scope(sources, ExportRequest("ben", deleted=True), path)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    numbered = [{"number": n, "line": line} for n, line in enumerate(lines[1:-1], 2)]
    command = ImportCommand.model_validate({"from_scope": "ben", "lines": numbered})
    history.command(command, scope="dora")
    history.run()
    history.say("Dora met Ben / Dora > met > Ben", scope="dora")
    history.run()


# --- the fold ---------------------------------------------------------------------------------


def beside(pipeline: Pipeline, folder: Path) -> Pipeline:
    """The same log, and no store."""
    pipeline.close()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(pipeline.folder / "log", folder / "log", dirs_exist_ok=True)
    return Pipeline(folder, pipeline.settings, pipeline.language, clock=pipeline.clock)


def ends_of(pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """The end of every topic, for each stage with a store."""
    return {
        stage.name: {topic.name: pipeline.log.end_offset(topic.name, 0) for topic in stage.reads}
        for stage in stages(pipeline.settings)
        if stage.stateful
    }


def fold(
    pipeline: Pipeline,
    ends: dict[str, dict[str, int]],
    *stored: Path,
    stopping: Callable[[], bool] = UNWATCHED.stopping,
) -> FoldResult:
    """Fold what the pipeline's log has into its store."""
    pipeline.shard.lock = StoreLock()  # one belongs to the loop in which it was waited for
    files = tuple(folder / "shard" / DATABASE_FILE for folder in stored)
    job = FoldJob(pipeline.settings, pipeline.settings, 0, ends, files)
    known = (pipeline.log, pipeline.shard, pipeline.embedding)
    return asyncio.run(fold_partition(job, *known, Watch(stopping=stopping)))


def hashes(pipeline: Pipeline) -> dict[str, str]:
    """The state hash by table, with the times of the log."""
    with pipeline.shard.reading() as reader:
        return table_hashes(reader, times=True)
