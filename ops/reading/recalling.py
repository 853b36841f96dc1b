"""Recall: embed the question, search the scope's shard, tell the parts of every score."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from pydantic import JsonValue, TypeAdapter

from ops.reading.sources import Sources
from ops.requests import RecallRequest, RequestError
from streams.models.base import ModelError

if TYPE_CHECKING:
    from stores.recall import RecallAnswer


async def recall(sources: Sources, request: RecallRequest) -> JsonValue:
    """The answer in the shape of `recall --json`. Raises RequestError for what cannot be asked."""
    from stores.recall import Query, Recall  # with numpy: only when it is used

    if not request.scope.strip():
        raise RequestError("the scope is empty; name the memory space to search (--scope)")
    if not request.text.strip():
        raise RequestError("the question is empty")
    try:
        vector = await sources.embedding.embed_query(request.text)
    except ModelError:
        vector = None  # the answer's method tells that vectors did not take part
    names = {field.name for field in fields(Query)}
    query = Query(**{f.name: getattr(request, f.name) for f in fields(request) if f.name in names})
    answer = Recall(sources.shard_of(request.scope)).search(query, vector)
    told: JsonValue = _adapter().dump_python(answer, mode="json")
    return told


@cache
def _adapter() -> TypeAdapter[RecallAnswer]:
    from stores.recall import RecallAnswer

    return TypeAdapter(RecallAnswer)
