"""The command line of measurements over folders of conversations in LoCoMo's layout."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

from palimpsest.ops.bench.data_sets import HALVES, DataSet
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings


def run_by_folder(
    about: str | None,
    measure: Callable[[Settings, DataSet, argparse.Namespace], Coroutine[None, None, JsonObject]],
    add_arguments: Callable[[argparse.ArgumentParser], object],
) -> None:
    """Prints, as JSON, what `measure` finds in each folder, in a data directory of its own."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    add_arguments(parser)
    given = parser.parse_args()
    found = []
    for folder in given.folders:
        with tempfile.TemporaryDirectory() as temporary:
            settings = load_settings(given.set, Path(temporary)).settings
            found.append(asyncio.run(measure(settings, DataSet(folder, given.half), given)))
    print(json.dumps({"sets": found}, indent=2))
