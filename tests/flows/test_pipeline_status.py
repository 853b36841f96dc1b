"""What `status` says of records that wait, and of models that cannot be used."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import sources_of
from tests.flows.test_embedding_migration import (
    MIGRATE,
    Tagged,
    at_work,
    say,
    settings_of,
    settled,
    spaces,
    until,
)


async def test_the_oldest_record_that_waits_has_its_time(tmp_path: Path) -> None:
    async with application(settings_of(tmp_path), make_embedding=Tagged) as app:
        before = datetime.now(UTC)
        say(app, 0, 1)
        between = datetime.now(UTC)
        say(app, 1, 2)
        sources = sources_of(app)
        status = await DirectQueries(sources).answer(Status())
        sources.sql.close()
    since = {each["stage"]: each["waiting_since"] for each in status["stages"]}
    assert before <= datetime.fromisoformat(since["normalize"]) <= between
    assert since["extract"] is None


async def test_a_model_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    async with at_work(settings) as (app, answer):
        say(app, 0, 2)
        await until(lambda: settled(app, 2))
        await answer(MIGRATE)
        await until(lambda: spaces(app) == {"second"})

    def keyless(given: Settings) -> Tagged:
        if given.embedding_model == "second":
            raise SetupError("embedding: second needs a key; set embedding.api_key")
        return Tagged(given)

    async with at_work(settings, make_embedding=keyless) as (app, answer):
        found = (await answer(Status()))["providers"]["embedding"]
    assert (found["model"], found["state"]) == ("second", "unusable")
    assert "set embedding.api_key" in found["reason"]
    assert "palimpsest embedding migrate" in found["reason"]
