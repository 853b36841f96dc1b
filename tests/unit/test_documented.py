"""What can be called or set is documented, the references are fresh, the README tells the truth."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from palimpsest.ops.cli.main import whole
from palimpsest.ops.operations.operation import example, parameters
from palimpsest.ops.scripts.reference import (
    FOLDER,
    HELP,
    commands,
    render_commands,
    render_help,
    render_routes,
    render_settings,
    render_tables,
)
from palimpsest.ops.settings.sources import reference
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from tests.flows.program import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
ANOTHER_PROJECT = re.compile(
    r"\bpalimpsest\[|\b(?:pipx? install|uv add|uvx)\s(?:-\S+\s)*['\"]?palimpsest\b(?!-)"
)
"""The name that belongs to another project on the package index, where something is installed."""


def test_no_page_or_message_installs_the_other_project_of_the_name() -> None:
    assert ANOTHER_PROJECT.search("pip install -U palimpsest\n")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    texts = (".md", ".py", ".toml", ".yml", ".txt", "Makefile", "Dockerfile", "run")
    wrong = [
        f"{name}: {found[0]}"
        for name in listed
        if name.endswith(texts) and not name.startswith("tests/") and (ROOT / name).is_file()
        for found in ANOTHER_PROJECT.finditer((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_every_view_and_column_is_explained() -> None:
    assert [line for line in render_tables().splitlines() if line.endswith("|  |")] == []


def test_the_references_are_fresh() -> None:
    assert (FOLDER / "tables.md").read_text(encoding="utf-8") == render_tables()
    assert (FOLDER / "routes.md").read_text(encoding="utf-8") == render_routes(), "make docs"
    assert (FOLDER / "settings.md").read_text(encoding="utf-8") == render_settings(), "make docs"
    assert (FOLDER / "commands.md").read_text(encoding="utf-8") == render_commands(), "make docs"


def test_every_help_is_as_it_was() -> None:
    assert HELP.read_text(encoding="utf-8") == render_help(), "make docs, and look at what changed"


def test_every_operation_with_a_command_has_an_example_of_it() -> None:
    given = {kind.surface.command: example(kind) for kind in OPERATIONS.values()}
    wrong = [
        command
        for command, line in given.items()
        if command is not None and not (line or "").startswith(f"palimpsest {command}")
    ]
    assert wrong == []


def test_every_field_of_every_operation_is_described() -> None:
    described = [each for kind in OPERATIONS.values() for each in parameters(kind)]
    assert all(each.doc.text for each in described)


def test_every_setting_is_documented() -> None:
    text = (FOLDER / "settings.md").read_text(encoding="utf-8")
    assert [s.key for s in reference() if f"`{s.key}`" not in text] == []


def test_every_command_is_documented_with_an_example() -> None:
    found = {each.name: each.help for each in commands()}
    assert {"palimpsest ingest", "palimpsest recall", "palimpsest dead-letters redrive"} <= set(
        found
    )
    missing = [
        name for name, text in found.items() if f"Example: {name}" not in " ".join(text.split())
    ]
    assert missing == []


def test_every_command_takes_the_options_of_settings() -> None:
    def below(group: Any) -> Iterator[Any]:
        for command in group.commands.values():
            yield from below(command) if hasattr(command, "commands") else [command]

    for command in below(get_command(whole())):
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--data-dir", "--config", "--set"} <= options, command.name


def test_every_make_task_of_the_readme_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for task in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", README, re.MULTILINE):
        assert f"\n{''.join(task)}:" in makefile


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target
