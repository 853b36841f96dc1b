"""The OpenAPI document as a file, a line for each route and each schema, so that each change
of it is seen. After a change that is meant, `python -m tests.unit.test_openapi` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from palimpsest.ops.server.application import document

FILE = Path(__file__).parents[1] / "golden" / "openapi.json"


def written() -> str:
    made = document()
    told = {
        f"{method.upper()} {path}": operation
        for path, operations in made["paths"].items()
        for method, operation in operations.items()
    }
    told |= made["components"]["schemas"]
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in told.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_document_is_as_it_was() -> None:
    assert written() == FILE.read_text(encoding="utf-8"), "see the first lines of this file"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
