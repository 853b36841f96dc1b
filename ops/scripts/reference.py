"""The references of settings, commands, routes and views, written from the program itself.

python -m palimpsest.ops.scripts.reference      writes settings.md, commands.md, routes.md,
                                        tables.md and metrics.md in ops/docs, the
                                        dashboard and alert rules in ops/dashboards,
                                        and tests/golden/help.txt in a checkout
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sources import reference
from palimpsest.ops.sql.saved_queries import SAVED_QUERIES
from palimpsest.ops.telemetry.catalogue import ALERTS, GROUPS, PREFIX, Metric, Unit
from palimpsest.ops.terminal.common import PANEL, as_written

OPS = Path(__file__).resolve().parents[1]
FOLDER = OPS / "docs"
DASHBOARDS = OPS / "dashboards"
HELP = OPS.parent / "tests" / "golden" / "help.txt"


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


@dataclass(frozen=True, slots=True)
class Listed:
    """A command: its whole name, and the heading of the help under which it stands. `command` is
    what typer made of it."""

    name: str
    panel: str
    command: Any

    @property
    def help(self) -> str:
        return as_written(self.command.help or "")


def commands() -> Iterator[Listed]:
    """Every command, in the order of the help."""
    from typer.main import get_command

    from palimpsest.ops.cli.main import whole

    program: Any = get_command(whole())
    for name in program.list_commands(None):
        found = program.commands[name]
        for words, command in _below(found, name):
            yield Listed(f"palimpsest {words}", str(found.rich_help_panel), command)


def _below(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, each in inner.items():
        yield from _below(each, f"{name} {word}")


def render_commands() -> str:
    """A section a command, under the headings of the help: what it does and an example."""
    lines = [
        "# Commands",
        "",
        "Written by `make docs`; do not edit. Every command takes `--help`, `--data-dir`,",
        "`--config` and `--set KEY=VALUE`; those that print data take `--json`. The exit code is 0",
        "on success, 1 on failure, 2 on a usage error. Errors are printed as a line on stderr;",
        'with `--json` also on stdout, as `{"error": "…"}`.',
        "",
    ]
    for panel, listed in groupby(commands(), key=lambda each: each.panel):
        lines += [f"## {panel}", ""]
        for each in listed:
            about, _, example = each.help.partition("Example:")
            lines += [f"### {each.name.removeprefix('palimpsest ')}", "", _unwrapped(about), ""]
            if example.strip():
                lines += ["```sh", example.strip(), "```", ""]
    return "\n".join(lines)


def render_help() -> str:
    """The words of every `--help`, without the options that all commands have: a test compares
    them with what they were, so that each change of them is seen and meant."""
    lines = []
    for each in commands():
        lines += [f"# {each.name} ({each.panel})", _unwrapped(each.help)]
        own = (e for e in each.command.params if getattr(e, "rich_help_panel", None) != PANEL)
        lines += map(_described, own)
        lines.append("")
    return "\n".join(lines)


def _described(option: Any) -> str:
    """An argument or an option in a line: its spellings, bounds, default and help."""
    default = option.default
    said = "/".join([*option.opts, *option.secondary_opts])
    if not said.startswith("-"):
        said = said.upper()
    kind = option.type_descriptor.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = tuple(each.value for each in kind)
    about = [said, "|".join(map(str, choices))] if choices else [said]
    bounds = [getattr(option, name, None) for name in ("min", "max")]
    if bounds != [None, None]:
        about.append("..".join("" if bound is None else str(bound) for bound in bounds))
    notes = ["required"] if option.required else []
    if isinstance(default, str | int | float) and default not in ("", False):
        notes.append(f"default {default}")
    about += [f"[{note}]" for note in notes]
    return f"  {' '.join(about)}: {option.help or ''}".rstrip()


def _unwrapped(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def render_routes() -> str:
    """A table of the routes of the HTTP service, from its OpenAPI document."""
    from palimpsest.ops.server.application import document

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


# ---- metrics and alerts ----
_RANGE: Final = "[$__rate_interval]"
_GRAFANA_UNITS: Final[dict[Unit, str]] = {"seconds": "s", "1 or 0": "bool"}
_QUANTILES: Final = ("0.5", "0.95")


def render_page() -> str:
    """Tables of the metrics by subject, and of the alerts."""
    lines = [
        "# Metrics and alerts",
        "",
        "Written by `make docs`; do not edit. [observability.md](observability.md) tells where to",
        f"read them. All names start with `{PREFIX}`; counters end in `_total` and count from the",
        "start of the process.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group.title}", ""]
        lines += ["| name | kind | unit | labels | meaning | when it is bad |", "| --- " * 6 + "|"]
        lines += [
            f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(each.labels)} |"
            f" {each.meaning} | {each.when_bad} |"
            for each in group.metrics
        ]
    lines += ["", "## Alerts", "", "| alert | severity | for | means |", "| --- " * 4 + "|"]
    lines += [
        f"| [{each.name}](runbooks/{each.slug}.md) | {each.severity} | {each.minutes} min |"
        f" {each.summary.replace('{{ ', '`').replace(' }}', '`')} |"
        for each in ALERTS
    ]
    return "\n".join([*lines, ""])


def render_alerts() -> str:
    """Alert rules for Prometheus' `rule_files`."""
    lines = [
        "# Written by `make docs`; do not edit.",
        "groups:",
        "  - name: palimpsest",
        "    rules:",
    ]
    for each in ALERTS:
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.expr)}",
            f"        for: {each.minutes}m",
            f"        labels: {{severity: {each.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(each.summary)}",
            f"          runbook: ops/docs/runbooks/{each.slug}.md",
        ]
    return "\n".join([*lines, ""])


def render_dashboard() -> str:
    """A dashboard with a row per subject and a panel per metric."""
    panels: list[JsonObject] = []
    top = 0
    for group in GROUPS:
        row: JsonObject = {"h": 1, "w": 24, "x": 0, "y": top}
        panels.append({"type": "row", "title": group.title, "gridPos": row, "panels": []})
        top += 1
        for number, metric in enumerate(group.metrics):
            place = {"h": 7, "w": 8, "x": number % 3 * 8, "y": top + number // 3 * 7}
            panels.append(_panel(metric, place))
        top += -(-len(group.metrics) // 3) * 7
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    dashboard = {
        "uid": "palimpsest",
        "title": "Palimpsest",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus"}],
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _panel(metric: Metric, place: dict[str, int]) -> JsonObject:
    per_second = metric.kind == "counter"
    unit = _GRAFANA_UNITS.get(metric.unit, "short")
    return {
        "type": "timeseries",
        "title": metric.name.replace("_", " ") + (" per second" if per_second else ""),
        "description": f"{metric.meaning}. When it is bad: {metric.when_bad}.",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {**place},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "AB"[number], "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(_queries(metric))
        ],
    }


def _queries(metric: Metric) -> list[tuple[str, str]]:
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.by)
    by = f" by ({', '.join(metric.by)})" if metric.by else ""
    if metric.kind == "gauge":
        # Each service reports the whole state. A single truth is bad where one of them denies it.
        whole = f"max by ({', '.join(metric.labels)})" if metric.labels else "min"
        inner = f"{whole} ({metric.sample})"
        return [(f"sum{by} ({inner})" if metric.by != metric.labels else inner, legend)]
    if metric.kind == "counter":
        return [(f"sum{by} (rate({metric.sample}{_RANGE}))", legend)]
    labels = ", ".join(("le", *metric.by))
    buckets = f"sum by ({labels}) (rate({metric.sample}_bucket{_RANGE}))"
    return [
        (f"histogram_quantile({each}, {buckets})", f"{legend} p{float(each) * 100:g}".strip())
        for each in _QUANTILES
    ]


def files() -> dict[Path, str]:
    """The text of every generated file."""
    return {
        FOLDER / "settings.md": render_settings(),
        FOLDER / "commands.md": render_commands(),
        FOLDER / "routes.md": render_routes(),
        FOLDER / "tables.md": render_tables(),
        FOLDER / "metrics.md": render_page(),
        DASHBOARDS / "palimpsest.json": render_dashboard(),
        DASHBOARDS / "alerts.yml": render_alerts(),
        HELP: render_help(),
    }


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
