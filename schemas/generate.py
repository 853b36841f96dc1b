"""Write the JSON Schema of every message to schemas/json/, or check that the files are fresh.

    python -m palimpsest.schemas.generate          writes missing and stale files
    python -m palimpsest.schemas.generate --check  writes nothing; exits 1 and names what is stale

A schema that is no longer current keeps its file: producers may still use it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from palimpsest.schemas.codec import render_json_schema
from palimpsest.schemas.messages import SCHEMAS

FOLDER = Path(__file__).with_name("json")


def file_name(schema: str) -> str:
    """`conversation-turn/1` is in `conversation-turn-1.json`."""
    return schema.replace("/", "-") + ".json"


def stale(folder: Path = FOLDER) -> dict[Path, str]:
    """The files that are missing or differ from the message types, with the text to write."""
    wanted = {folder / file_name(schema): render_json_schema(schema) for schema in SCHEMAS}
    return {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Exit code: 0 when all is fresh or was written, 1 when --check found something stale."""
    parser = argparse.ArgumentParser(
        prog="python -m palimpsest.schemas.generate", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="only tell what is stale")
    check = parser.parse_args(arguments).check
    found = stale(folder)
    for path, text in found.items():
        sys.stdout.write(f"{'stale' if check else 'wrote'} {path}\n")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and found:
        sys.stderr.write("run: python -m palimpsest.schemas.generate\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
