"""The page for contributors names files, folders and tests that are there."""

from __future__ import annotations

import re

from tests.source_modules import ROOT

PAGE = (ROOT / "ops" / "docs" / "contributing.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([^`\n]+)`", PAGE)
TESTS = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/test_*.py")}


def test_every_file_is_there() -> None:
    files = [name.partition("::")[0] for name in NAMED if re.search(r"\.(py|md|yml)\b", name)]
    places = [*ROOT.glob("tests/*"), ROOT, ROOT / "stores" / "database"]
    missing = [
        name
        for name in files
        if "<" not in name and not any(any(place.glob(name)) for place in places)
    ]
    assert len(files) > 40
    assert missing == []


def test_every_test_is_there() -> None:
    said = "\n".join(TESTS.values())
    tests = [name.rpartition("::")[2] for name in NAMED if re.search(r"(^|::)test_\w+$", name)]
    assert len(tests) > 15
    assert [name for name in tests if f"def {name}(" not in said] == []


def test_every_folder_is_there_and_drawn() -> None:
    tree = PAGE.split("```")[1]
    path: list[str] = []
    drawn = set()
    for line in tree.strip().splitlines():
        name = re.match(r"( *)([a-z]+)/", line)
        assert name is not None, line
        del path[len(name[1]) // 2 :]
        if path[:1] != ["tests"]:
            found = re.findall(r"([a-z]+)/(?= |$)", line) if path else [name[2]]
            drawn |= {"/".join((*path, folder)) for folder in found}
        path.append(name[2])
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("schemas", "streams", "stores", "ops")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert packages <= drawn
    assert [name for name in sorted(drawn) if not (ROOT / name).is_dir()] == []
