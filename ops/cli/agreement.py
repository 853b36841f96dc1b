"""replay agreement: deciders compared."""

from __future__ import annotations

from typing import cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json
from palimpsest.ops.cli.options import OfScope


def register(group: typer.Typer) -> None:
    command(group, reads=True)(agreement)


def agreement(cli: Cli, scope: OfScope = None, json: AsJson = False) -> None:
    """Show how often deciders agree with the live one, and with what people did afterwards.

    Further deciders are named in pipeline.shadow_deciders.

    Example: palimpsest replay agreement --scope support
    """
    from palimpsest.ops.queries.requests import AgreementRequest

    answer = cast("dict[str, list[dict[str, object]]]", cli.ask(AgreementRequest(scope)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    measured = ("proposals", "failed", "same_action", "agrees", "judged", "with_people", "earned")
    print_listed(("scope", "decider", *measured), answer["deciders"], "nothing was decided yet")
