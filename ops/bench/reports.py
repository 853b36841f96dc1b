"""Prints what a benchmark found for people."""

from __future__ import annotations

from typing import Any

from palimpsest.ops.terminal.tables import console, table, text


def report(result: dict[str, Any]) -> None:
    """Prints objects with the same fields as the rows of a table, each named by its path, and the
    fields of any other object in a line each."""
    tables: dict[tuple[str, ...], list[tuple[object, ...]]] = {}

    def walk(path: str, found: dict[str, Any]) -> None:
        parts: dict[str, list[dict[str, Any]]] = {}
        own: dict[str, object] = {}
        for name, value in found.items():
            listed = value if isinstance(value, list) else [value]
            if listed and all(isinstance(each, dict) for each in listed):
                parts[name] = listed
            else:
                own[name] = value
        if own:
            tables.setdefault(tuple(own), []).append((path, *own.values()))
        for name, several in parts.items():
            for number, each in enumerate(several, 1):
                numbered = f"{name} {number}" if len(several) > 1 else name
                walk(f"{path} {numbered}".strip(), each)

    walk("", result)
    out = console()
    for columns, rows in tables.items():
        if len(rows) > 1:
            out.print(table(("", *columns), rows))
        else:
            [(path, *values)] = rows
            for name, value in zip(columns, values, strict=True):
                out.print(f"{path} {name}: {text(value)}".strip())
        out.print()
