"""The picture of a terminal that the README shows, from a real run.

python -m palimpsest.ops.scripts.picture      writes ops/docs/terminal.svg
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "terminal.svg"
WIDTH = 100
CHAT = """\
3/2/26, 9:00 AM - Ana: I moved to Lisbon in March.
3/2/26, 9:01 AM - Ben: Lovely! I work at a bakery in Ghent.
3/2/26, 9:02 AM - Ana: I drink coffee every morning.
3/16/26, 9:00 AM - Ana: I don't drink coffee every morning anymore.
3/16/26, 9:01 AM - Ben: I am allergic to walnuts.
"""
FONT_FROM_AFAR = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich names a server for its font; the picture is to need no network."""
COMMANDS = (
    ("ingest", "chat.txt", "--scope", "friends"),
    ("run", "--once"),
    ("recall", "where does Ana live?", "--scope", "friends", "--limit", "2"),
    ("context", "what should I bake for Ben?", "--scope", "friends", "--budget", "200"),
)


def transcript(folder: Path) -> Iterator[tuple[str, str]]:
    """Every command as it is typed, and what it printed, run one after the other in `folder`."""
    (folder / "chat.txt").write_text(CHAT, encoding="utf-8")
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    for arguments in COMMANDS:
        typed = " ".join(f'"{each}"' if " " in each else each for each in arguments)
        done = subprocess.run(  # noqa: S603 - its own commands
            [sys.executable, "-m", "palimpsest.ops.cli.main", *arguments],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        yield f"palimpsest {typed}", done.stdout


def draw() -> str:
    """The run as an SVG."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        tempfile.TemporaryDirectory() as folder,
    ):
        console = Console(record=True, width=WIDTH, file=nowhere, highlight=False)
        for typed, printed in transcript(Path(folder)):
            console.print(Text(f"$ {typed}", style="bold green"))
            console.print(Text.from_ansi(printed.rstrip("\n")))
            console.print()
        picture = console.export_svg(title="palimpsest", unique_id="palimpsest")
        return FONT_FROM_AFAR.sub("", picture)


def main() -> None:
    """Write the picture."""
    TARGET.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
