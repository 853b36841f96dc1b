"""Requests as JSON, as they are sent between processes."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from palimpsest.ops.queries.requests import JsonObject


def as_json(request: Any) -> JsonObject:
    """The fields of a request as a JSON object, without unset ones."""
    body: JsonObject = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if value is None:
            continue
        if isinstance(value, datetime):
            value = value.isoformat()
        body[field.name] = list(value) if isinstance(value, tuple) else value
    return body
