"""privacy and set-privacy: whose words are not kept, and about whom no agent may write."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from palimpsest.ops.cli.command_results import carry_out_and_tell
from palimpsest.ops.cli.common import AsJson, Cli, command, print_json, wrong_use
from palimpsest.ops.cli.options import InScope, Key, Reason, Wait
from palimpsest.ops.cli.scopes import tell_unknown

Level = Annotated[str, typer.Argument(metavar="LEVEL", help="none, partial or full.")]
Person = Annotated[
    str | None, typer.Option(help="The speaker's name; without it the level of the whole scope.")
]
OfScope = Annotated[str, typer.Option("--scope", "-s", help="The memory space.")]
WHOLE_SCOPE = "(the whole scope)"


def register(app: typer.Typer) -> None:
    command(app)(privacy)
    command(app, "set-privacy")(set_privacy)


def privacy(cli: Cli, scope: InScope, json: AsJson = False) -> None:
    """List the privacy levels of a memory space: who has which, since when and why.

    Example: palimpsest privacy --scope support
    """
    from palimpsest.ops.queries.requests import PrivacyRequest

    answer = cast("dict[str, list[dict[str, object]]]", cli.ask(PrivacyRequest(scope)))
    tell_unknown(cli, scope)
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import console, table

    rows = [
        (
            row["person"] or WHOLE_SCOPE,
            row["level"],
            str(row["since"])[:19],
            row["changed_by"],
            row["reason"],
        )
        for row in answer["levels"]
    ]
    console().print(table(("person", "level", "since", "by", "reason"), [*rows]))


def set_privacy(
    cli: Cli,
    level: Level,
    scope: OfScope,
    person: Person = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Set the privacy level of a person, or of a whole memory space: `full` keeps nothing of what
    is said from then on, `partial` lets no agent write memories about the person by itself.

    Raising a level tells how many memories are there from before, and how to erase them.

    Example: palimpsest set-privacy full --person Ana --scope support --reason "she asked"
    """
    from palimpsest.schemas.commands import SetPrivacyCommand
    from palimpsest.schemas.privacy import LEVELS

    known = next((each for each in LEVELS if each == level), None)
    if known is None:
        raise wrong_use(f"there is no level {level}; the levels are {', '.join(LEVELS)}")
    order = SetPrivacyCommand(person=person, level=known, reason=reason)
    carry_out_and_tell(cli, scope, order, wait, json, key)
