"""settings and doctor: the effective settings, and a check of the set-up."""

from __future__ import annotations

from typing import Annotated

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json


def register(app: typer.Typer) -> None:
    command(app)(settings)
    command(app)(doctor)


def settings(
    cli: Cli,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from their defaults.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the effective settings and the source of each; secrets are masked.

    Flags override the environment (PALIMPSEST_LLM__PROVIDER), which overrides palimpsest.toml,
    which overrides the defaults.

    Example: palimpsest settings --changed
    """
    effective = [
        (key, value, source)
        for key, value, source in cli.load().effective()
        if not changed or source != "default"
    ]
    if json:
        print_json({key: {"value": value, "source": source} for key, value, source in effective})
        return
    from palimpsest.ops.cli.tables import console, table

    console().print(table(("setting", "value", "from"), list(effective)))


def doctor(cli: Cli, json: AsJson = False) -> None:
    """Check the set-up, and explain how to fix each problem.

    Checks the data folder, disk, log, stores, language model, embedding model and versions.

    Example: palimpsest doctor
    """
    import asyncio

    from palimpsest.ops.maintenance.doctor import examine

    findings = asyncio.run(examine(cli.settings))
    if json:
        print_json(
            [{"check": f.check, "ok": f.ok, "found": f.found, "advice": f.advice} for f in findings]
        )
    else:
        from palimpsest.ops.cli.tables import console, text

        out = console()
        for finding in findings:
            mark = "[green]ok[/]  " if finding.ok else "[red]bad[/] "
            out.print(f"{mark}{finding.check:<16} {text(finding.found)}", soft_wrap=True)
            if finding.advice:
                out.print(f"    [bold]{text(finding.advice)}[/]")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
