"""The page of dependencies and the bill of materials name all that the project asks for."""

from __future__ import annotations

import json
import re
import tomllib

from palimpsest.ops.scripts.dependencies import BILL, FOLDER, PAGE

ROOT = FOLDER.parent.parent


def test_every_dependency_is_on_the_page_and_in_the_bill() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {re.split(r"[<>=]", each)[0].lower() for each in project["dependencies"]}
    told = json.loads((FOLDER / BILL).read_text())["components"]
    assert asked <= {each["name"] for each in told}
    assert "not told" not in {each["licenses"][0]["license"]["name"] for each in told}
    page = (FOLDER / PAGE).read_text()
    assert all(f"| {each['name']} | {each['version']} |" in page for each in told)
