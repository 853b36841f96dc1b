"""The documentation page: the OpenAPI document as HTML, without scripts or external resources."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from palimpsest.ops.http.routing import errors

Json = Mapping[str, Any]

page = APIRouter(tags=["operation"], responses=errors("misdirected", "forbidden", "failed"))

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h2 { border-bottom: 1px solid; margin-top: 3rem; text-transform: capitalize; }
h3 { font-size: 1rem; margin: 2rem 0 0.25rem; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; }
nav { columns: 2; }
nav a { display: block; }
table { border-collapse: collapse; margin: 0.5rem 0; width: 100%; }
caption { font-weight: 600; text-align: left; }
td, th { border-bottom: 1px solid color-mix(in srgb, currentcolor 25%, transparent);
  overflow-wrap: anywhere; padding: 0.2rem 0.5rem 0.2rem 0; text-align: left;
  vertical-align: top; }
"""
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src"
    f" 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)
_CODE: Final = re.compile(r"`([^`]+)`")


@page.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """This documentation, for people."""
    shown = html(request.app.openapi(), request.scope.get("root_path", ""))
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
    return HTMLResponse(shown, headers=headers)


def html(document: Json, root: str = "") -> str:
    """Renders a document; `root` is the path prefix of the service."""
    title = f"{document['info']['title']} {document['info']['version']}"
    groups = _groups(document)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{_text(document['info']['description'])}</p>",
        f'<p>For programs: <a href="{escape(root)}/openapi.json">openapi.json</a>.</p>',
        f"<nav>{''.join(_links(groups))}</nav>",
        *_operations(groups),
        "<h2>Schemas</h2>",
        *(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
        "</body></html>",
    ]
    return "\n".join(parts)


Groups = dict[str, list[tuple[str, str, Json]]]


def _groups(document: Json) -> Groups:
    """Method, path and operation by tag."""
    groups: Groups = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return groups


def _links(groups: Groups) -> Iterator[str]:
    for operations in groups.values():
        for method, path, operation in operations:
            name = escape(f"{method} {path}")
            yield f'<a href="#{escape(operation["operationId"])}"><code>{name}</code></a>'


def _operations(groups: Groups) -> Iterator[str]:
    for tag, operations in groups.items():
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, operation in operations:
            anchor = escape(operation["operationId"])
            yield f'<h3 id="{anchor}"><code>{escape(f"{method} {path}")}</code></h3>'
            yield f"<p>{_text(operation['description'])}</p>"
            yield _parameters(operation.get("parameters", ()))
            yield _body(operation.get("requestBody", {}))
            yield _answers(operation["responses"])


def _parameters(parameters: Iterable[Json]) -> str:
    rows = [
        (
            f"<code>{escape(each['name'])}</code>",
            escape(each["in"]) + (", required" if each.get("required") else ""),
            _type(each["schema"]),
            _text(each.get("description", each["schema"].get("description", ""))),
        )
        for each in parameters
    ]
    return _table("Parameters", rows)


def _body(body: Json) -> str:
    rows = [
        (f"<code>{escape(media)}</code>", _type(content.get("schema", {})))
        for media, content in body.get("content", {}).items()
    ]
    return _table("Body", rows)


def _answers(answers: Json) -> str:
    rows = [
        (
            escape(status),
            _text(answer["description"]),
            ", ".join(_type(each.get("schema", {})) for each in answer.get("content", {}).values()),
        )
        for status, answer in sorted(answers.items())
    ]
    return _table("Answers", rows)


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(about) + (", required" if field in required else ""),
            _text(about.get("description", "")),
        )
        for field, about in schema.get("properties", {}).items()
    ]
    text = _text(schema.get("description", ""))
    return f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3><p>{text}</p>' + _table(
        "Fields", rows
    )


def _type(schema: Json) -> str:
    """The type of a value as HTML, with links to the schemas that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[joined])))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    format_name = escape(str(schema.get("format", schema.get("type", "any"))))
    bounds = [
        f"{word} {escape(str(schema[name]))}" for name, word in _BOUNDS.items() if name in schema
    ]
    return ", ".join([format_name, *bounds])


_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "default": "else",
}


def _table(caption: str, rows: Iterable[tuple[str, ...]]) -> str:
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    if not cells:
        return ""
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{caption}</caption>{lines}</table>"


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
