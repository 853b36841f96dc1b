"""run: processes what was published."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.terminal.common import AsJson, Cli, command, on_terminal, print_json, warn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime

    from palimpsest.ops.maintenance.process import Process
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.requests import JsonObject
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.streams.runtime.model_port import Outage


ASKING_STAGES = frozenset({"extract", "decide"})
"""Stages that wait for models."""
ONCE_TRIES = 4
"""Of a model that fails, about eight seconds, before `run --once` ends with what is left."""

AGAIN_SECONDS = 2.0
"""Before a worker begins again."""


def register(app: typer.Typer) -> None:
    command(app)(run)


def run(
    cli: Cli,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything is processed.")
    ] = False,
    stages: Annotated[
        str | None, typer.Option(help="Only these stages, separated by commas.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run the stages of the pipeline.

    Runs until SIGTERM or Ctrl-C, which first finishes the running batches, a second or two of work.
    With --once it stops when all published records are processed; the exit code is 1 if it stops
    before, for example because a model is unavailable and all remaining records wait for it. The
    next run continues from there. Meanwhile recall, sql, status and the others work from other
    terminals.

    Example: palimpsest run --once
    """

    import asyncio

    only = [name.strip() for name in (stages or "").split(",") if name.strip()]
    result = asyncio.run(_run(cli.settings, once, only))
    if json:
        print_json(result)
    else:
        from palimpsest.ops.terminal.tables import print_run

        print_run(result)
    if result["stopped"]:
        left = _listed(cast("dict[str, int]", result["left"]))
        goes_on = f"left: {left}. `palimpsest run` goes on from there"
        warn(f"stopped; {goes_on if left else 'everything that was published is processed'}")
        if once:
            raise typer.Exit(1)


async def _run(settings: Settings, once: bool, only: list[str]) -> JsonObject:
    import asyncio

    from palimpsest.ops.operations.answers import refused_since
    from palimpsest.ops.operations.lifecycle.pipeline import balance as balance_of
    from palimpsest.ops.operations.lifecycle.pipeline import not_drawn
    from palimpsest.ops.parts import embedding_choice
    from palimpsest.ops.terminal.progress import watched
    from palimpsest.ops.worker.bootstrap import running
    from palimpsest.ops.worker.local import serving_reads

    is_new = not (settings.data_dir / "shards").exists()
    is_patient = settings.log.kind == "kafka" and not once
    async with _begun_again(is_patient), running(settings, only, patient=is_patient) as app:
        if (is_new or app.warnings) and (choice := embedding_choice(settings)) is not None:
            warn(f"embedding model {app.embedding.model}, {choice}")
        for warning in app.warnings:
            warn(warning)
        if app.gate.unusable is not None:
            warn(f"extraction waits, all else runs: {app.gate.unusable}")
            if once:
                app.gate.on_waiting = partial(_stop_if_all_else_is_done, app)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, app)
        began = time.perf_counter()
        async with serving_reads(app) as sources:
            balance: JsonObject = {}

            async def weigh() -> None:
                # Finding the rest of a long log takes time, and a stop must be quick.
                if not app.gate.stopping or not app.left():
                    balance.update(await asyncio.to_thread(balance_of, sources))
                    balance.update(await asyncio.to_thread(not_drawn, sources))

            since = await asyncio.to_thread(_waiting_since, sources) if once else None
            app.on_drained = weigh
            app.models.on_outage = on_outage(app, once)
            with watched(app) if on_terminal() else contextlib.nullcontext():
                await app.run(until_drained=once)
            result = _summary(app, time.perf_counter() - began, balance)
            refused = (
                [] if since is None else await asyncio.to_thread(refused_since, sources, since)
            )
            result["refused"] = [*refused]
            left: JsonObject = {**app.left()}
            return {**result, "stopped": app.gate.stopping and not app.finished, "left": left}


def _waiting_since(sources: Sources) -> datetime | None:
    """When the oldest record that waits for any stage was appended; None if nothing waits."""
    from palimpsest.ops.reading.stage_lags import stage_lags

    lags = stage_lags(sources.settings, sources.shards, sources.log)
    waiting = (each.waiting_since(sources.log) for each in lags)
    return min(filter(None, waiting), default=None)


@contextlib.asynccontextmanager
async def _begun_again(is_patient: bool) -> AsyncIterator[None]:
    """Restarts the program in the same process after a temporary failure of the log: this discards
    all state of a broken client."""

    import asyncio

    from palimpsest.streams.logs.base import LogUnavailable

    try:
        yield
    except LogUnavailable as error:
        if not is_patient:
            raise
        warn(f"{error}; the worker begins again")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
        await asyncio.sleep(AGAIN_SECONDS)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (own arguments)


def on_outage(app: Process, once: bool) -> Callable[[str, Outage], None]:
    """Reports a failing provider; with `once`, stops when all remaining work waits for it."""

    def report(name: str, outage: Outage) -> None:
        if outage.is_new:
            warn(f"waiting for {name}, which is tried again: {outage.reason}")
        waits = _all_else_is_done(app)
        if once and outage.tries >= ONCE_TRIES and waits and not app.gate.stopping:
            warn(f"given up for now after {outage.tries} tries: {outage.reason}")
            app.stop()

    return report


def _all_else_is_done(app: Process) -> bool:
    return {stage for stage, left in app.left().items() if left} <= ASKING_STAGES


def _stop_if_all_else_is_done(app: Process) -> None:
    if _all_else_is_done(app) and not app.gate.stopping:
        app.stop()


def _stop(app: Process) -> None:
    """Stops, and reports which work is finished first."""
    if app.gate.stopping:
        warn("stopping at once: the next run does the unfinished work again")
    else:
        doing = _listed(app.under_way())
        warn(f"stopping: finishing {doing or 'nothing'}; Ctrl-C again stops at once")
    app.stop()


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{stage} {count:,}" for stage, count in counts.items())


def _summary(app: Process, seconds: float, balance: JsonObject) -> JsonObject:
    names = ("records", "skipped", "emitted", "dead", "batches")
    stages: dict[str, dict[str, float]] = {}
    for runner in app.runners:
        counts = runner.counts
        known = stages.setdefault(runner.stage.name, {**dict.fromkeys(names, 0), "seconds": 0.0})
        for name in names:
            known[name] += getattr(counts, name)
        known["seconds"] = round(known["seconds"] + sum(counts.seconds.values()), 4)
    shown: JsonObject = {name: {**counted} for name, counted in stages.items()}
    return {"stages": shown, "seconds": round(seconds, 3), "balance": balance}
