"""The references of settings, commands, routes and views, written from the program itself.

python -m palimpsest.ops.reference      writes settings.md, commands.md, routes.md and tables.md
                                        in ops/docs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, cast

from palimpsest.ops.cli.common import as_written
from palimpsest.ops.queries.saved_queries import SAVED_QUERIES
from palimpsest.ops.settings.sources import reference

FOLDER = Path(__file__).parent / "docs"


class _Command(Protocol):
    help: str | None


def render_settings() -> str:
    """A table of every setting with its type, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs`; do not edit. In the file `palimpsest.toml` (`[llm]`, then",
        '`provider = "ollama"`), in the environment (`PALIMPSEST_LLM__PROVIDER=ollama`) or as a',
        "flag of any command (`--set llm.provider=ollama`); a flag wins over the environment, that",
        "over the file. An unknown name is refused. `palimpsest settings` prints what is in",
        "effect, and where each value came from. Give keys by the environment or the file: other",
        "users of the machine see the flags of a running command (`ps`).",
        "",
        "| setting | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for setting in reference():
        kind = setting.type.replace("|", "or")
        lines.append(
            f"| `{setting.key}` | {kind} | {_default(setting.default)} | {setting.description} |"
        )
    return "\n".join([*lines, ""])


def _default(value: object) -> str:
    if value is None or value in ((), ""):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`"
    return f"`{value}`"


def commands() -> Iterator[tuple[str, str]]:
    """(full name, help) of every command."""
    from typer.main import get_command

    from palimpsest.ops.cli.main import app

    yield from _below(get_command(app), "palimpsest")


def _below(group: object, prefix: str) -> Iterator[tuple[str, str]]:
    inner = cast("Mapping[str, _Command]", getattr(group, "commands", {}))
    for name, command in inner.items():
        if getattr(command, "commands", None):
            yield from _below(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", as_written(command.help or "")


def render_commands() -> str:
    """A section a command: what it does and an example."""
    lines = [
        "# Commands",
        "",
        "Written by `make docs`; do not edit. Every command takes `--help`, `--data-dir`,",
        "`--config` and `--set KEY=VALUE`; those that print data take `--json`. The exit code is 0",
        "when it worked, 1 when it failed, 2 when it was used wrongly. What is wrong is said in a",
        'line on stderr; with `--json` also on stdout, as `{"error": "…"}`.',
        "",
    ]
    for name, text in commands():
        about, _, example = text.partition("Example:")
        lines += [f"## {name.removeprefix('palimpsest ')}", "", _unwrapped(about), ""]
        if example.strip():
            lines += ["```sh", example.strip(), "```", ""]
    return "\n".join(lines)


def _unwrapped(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def render_routes() -> str:
    """A table of the routes of the HTTP service, from its OpenAPI document."""
    from palimpsest.ops.http.application import document

    lines = [
        "# Routes",
        "",
        "Written by `make docs`; do not edit. `/openapi.json` of a running service tells bodies,",
        "parameters and answers in full; [http.md](http.md) tells how to use them.",
        "",
        "| method | route | does | statuses |",
        "| --- | --- | --- | --- |",
    ]
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            about = " ".join(operation["description"].split())
            statuses = ", ".join(sorted(operation["responses"]))
            lines.append(f"| {method.upper()} | `{path}` | {about} | {statuses} |")
    return "\n".join([*lines, ""])


def render_tables() -> str:
    """Every view that analysts see, with what its columns hold."""
    import duckdb

    from palimpsest.stores.database.migrations import migrate
    from palimpsest.stores.database.sql import MATCH_BM25, install_terms
    from palimpsest.stores.database.views import VIEWS, install_views

    with duckdb.connect() as store:
        migrate(store)
        install_terms(store, "english")
        install_views(store, MATCH_BM25)
        found = store.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns()"
            " WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
        ).fetchall()
    lines = [
        "# Views",
        "",
        "Written by `make docs`; do not edit. What `palimpsest sql` and a snapshot show, and any",
        "client of DuckDB that opens `shards/<partition>/memory.duckdb` while no worker runs.",
        "`.tables` and `.schema VIEW` tell the same. Tables lie in the schema `internal` and may",
        "change with any version. Times are UTC.",
        "",
        "In `palimpsest sql` and in a snapshot every view also has a column `partition`, and the",
        "rows of all partitions.",
        "",
        "`match_bm25(scope, query)` gives `memory_id`, `score` and `content` of the memories that",
        "hold the words, best first; in `palimpsest sql` only.",
    ]
    for name in sorted(VIEWS):
        lines += ["", f"## {name}", "", VIEWS[name].meaning, "", "| column | type | holds |"]
        lines.append("| --- | --- | --- |")
        lines += [
            f"| `{column}` | {kind} | {comment or ''} |"
            for view, column, kind, comment in found
            if view == name
        ]
    lines += ["", "## Saved queries", "", '`palimpsest sql ".run NAME"` runs one.']
    for name, saved in SAVED_QUERIES.items():
        lines += ["", f"### {name}", "", saved.meaning, "", "```sql", saved.sql, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "settings.md").write_text(render_settings(), encoding="utf-8")
    (FOLDER / "commands.md").write_text(render_commands(), encoding="utf-8")
    (FOLDER / "routes.md").write_text(render_routes(), encoding="utf-8")
    (FOLDER / "tables.md").write_text(render_tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
