"""Write what an installation without extras brings: a page with licences and sizes, and a software
bill of materials (CycloneDX). Run `python -m palimpsest.ops.scripts.dependencies` in the
environment that is to be described.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"
FOLDER: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = "dependencies.md"
BILL: Final = "sbom.json"
_MEGABYTE: Final = 1_000_000
_HEAD: Final = """# What an installation brings
Written by `python -m palimpsest.ops.scripts.dependencies`; `sbom.json` has the same as CycloneDX.
Without extras, on Linux with Python 3.11: {count} packages, {size:.0f} MB. Files of models are
checked by their SHA-256 when they are loaded (`streams/models/wordpiece.py`).

| package | version | licence | MB |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Component:
    """An installed package; `size` in bytes, without compiled Python files."""

    name: str
    version: str
    licence: str
    size: int


def installed() -> list[Component]:
    """Returns all direct and indirect dependencies of the project without extras, by name."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found: dict[str, Component] = {}
    left = [Requirement(each).name for each in project["dependencies"]]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found[name] = _component(name)
            left += _needs(name)
    return [each for _, each in sorted(found.items())]


def _needs(package: str) -> Iterator[str]:
    for line in metadata.requires(package) or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed.name


def _component(name: str) -> Component:
    found = metadata.distribution(name)
    files = [Path(str(found.locate_file(each))) for each in found.files or ()]
    size = sum(each.stat().st_size for each in files if each.is_file() and each.suffix != ".pyc")
    return Component(name, found.version, _licence(found.metadata), size)


def _licence(told: metadata.PackageMetadata) -> str:
    """Returns the licence expression, else the classifiers, else the first line of the text."""
    told_by = told.get_all("Classifier") or []
    classified = [each.rpartition(" :: ")[2] for each in told_by if each.startswith("License ::")]
    text = (told["License"] or "").strip().partition("\n")[0] if "License" in told else ""
    expression = next(iter(told.get_all("License-Expression") or ()), "")
    return expression or ", ".join(classified) or text[:60] or "not told"


def page(components: list[Component]) -> str:
    rows = [
        f"| {each.name} | {each.version} | {each.licence} | {each.size / _MEGABYTE:.1f} |"
        for each in sorted(components, key=lambda each: (-each.size, each.name))
    ]
    size = sum(each.size for each in components) / _MEGABYTE
    return _HEAD.format(count=len(components), size=size) + "\n".join(rows) + "\n"


def bill(components: list[Component]) -> str:
    told = [
        {
            "type": "library",
            "name": each.name,
            "version": each.version,
            "purl": f"pkg:pypi/{each.name}@{each.version}",
            "licenses": [{"license": {"name": each.licence}}],
        }
        for each in components
    ]
    made = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": told}
    return json.dumps(made, indent=1) + "\n"


def main() -> None:
    components = installed()
    (FOLDER / PAGE).write_text(page(components), encoding="utf-8")
    (FOLDER / BILL).write_text(bill(components), encoding="utf-8")


if __name__ == "__main__":
    main()
