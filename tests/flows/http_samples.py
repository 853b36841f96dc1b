"""A request that is right for every route of the HTTP service, and one that is wrong.

`{scope}` and `{id}` stand for a memory space and a memory in it, `{command}` for a command that was
carried out there, `{document}` for a document, `{replay}` for a replay that was started,
`{compared}` for a comparison that has ended and `{branch}` for a branch; `{text}` for a text that
is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.flows.http_server import JSON

NDJSON: Final = {"Content-Type": "application/x-ndjson"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """`status` is that of the right request. `of_all`: only whoever sees all scopes may ask.
    `before`: what is done to the memory first. `wrong`: other parameters, another path, or
    another body, that make no sense. `asks`: whether an answer needs the stores."""

    path: str
    body: Json | str | None = None
    status: int = 200
    of_all: bool = False
    before: str = ""
    wrong: str | Json | None = None
    asks: bool = True
    streams: bool = False

    def request(self, **values: str) -> Json:
        """The arguments of a client's request."""
        return given(self.path, self.body, values)

    def wrong_request(self, **values: str) -> Json:
        if isinstance(self.wrong, str) and self.wrong.startswith("/"):
            return given(self.wrong, self.body, values)
        if isinstance(self.wrong, str):
            return given(f"{self.path.partition('?')[0]}?{self.wrong}", self.body, values)
        return given(self.path, self.wrong, values)


def given(path: str, body: Json | str | None, values: Mapping[str, str]) -> Json:
    request: Json = {"url": filled(path, values)}
    if isinstance(body, str):
        return {**request, "content": filled(body, values).encode(), "headers": NDJSON}
    if body is not None:
        text = filled(json.dumps(body), values)
        request |= {"content": text.encode(), "headers": JSON}
    return request


def filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


AT: Final = "2026-03-01T09:30:00Z"
EXPORT: Final = "".join(
    json.dumps(line) + "\n"
    for line in (
        {"format": "palimpsest-scope", "version": 1, "scope": "else", "exported_at": AT},
        {
            **{"kind": "memory", "id": "00000000-0000-5000-8000-000000000001", "type": "fact"},
            **{"content": "{text}", "importance": 0.5, "confidence": 1.0},
            **dict.fromkeys(("occurred_at", "created_at", "updated_at"), AT),
        },
        {"kind": "end", "lines": 1},
    )
)
LONG: Final = "x" * 300
"""Longer than any name or id."""
ASKED: Final = {"query": "Oslo", "scope": "{scope}"}
CHANGE: Final = {"content": "{text}", "reason": "x"}
SPOKEN: Final = {"turn_id": "t9", "content": "{text}", "scope": "{scope}"}

COUNT: Final = {"query": "SELECT count(*) FROM memories"}

SAMPLES: Final[dict[str, Sample]] = {
    "POST /api/memory/recall": Sample("/api/memory/recall", ASKED, wrong={"query": " "}),
    "POST /api/memory/context": Sample("/api/memory/context", ASKED, wrong={"query": " "}),
    "GET /api/memory/search": Sample("/api/memory/search?query=Oslo&scope={scope}", wrong="query="),
    "GET /api/memories": Sample("/api/memories?scope={scope}", wrong="limit=0"),
    "GET /api/memory/{memory_id}": Sample("/api/memory/{id}", wrong=f"/api/memory/{LONG}"),
    "PATCH /api/memory/{memory_id}": Sample("/api/memory/{id}", CHANGE, wrong={"content": "x"}),
    "DELETE /api/memory/{memory_id}": Sample("/api/memory/{id}?reason=x", wrong="reason="),
    "GET /api/memory/{memory_id}/history": Sample("/api/memory/{id}/history", wrong="limit=0"),
    "GET /api/memory/{memory_id}/explain": Sample(
        "/api/memory/{id}/explain", wrong=f"/api/memory/{LONG}/explain"
    ),
    "GET /api/sessions/{session_id}/memory": Sample(
        "/api/sessions/s1/memory?scope={scope}", wrong="limit=0"
    ),
    "GET /api/embeddings": Sample("/api/embeddings?scope={scope}", wrong="scope=%20"),
    "POST /api/turns": Sample("/api/turns", SPOKEN, status=202, wrong={"turn_id": "x"}, asks=False),
    "POST /api/memory/remember": Sample(
        "/api/memory/remember",
        {"content": "{text}", "scope": "{scope}"},
        wrong={"content": " "},
        asks=False,
    ),
    "POST /api/memory/modify": Sample(
        "/api/memory/modify",
        {"scope": "{scope}", "patches": [{"memory_id": "{id}", **CHANGE}]},
        wrong={"patches": []},
        asks=False,
    ),
    "POST /api/memory/{memory_id}/correct": Sample(
        "/api/memory/{id}/correct", {"content": "{text}"}, wrong={}
    ),
    "POST /api/memory/{memory_id}/pin": Sample("/api/memory/{id}/pin", {}, wrong={"why": "x"}),
    "POST /api/memory/{memory_id}/unpin": Sample("/api/memory/{id}/unpin", {}, wrong={"why": "x"}),
    "POST /api/memory/{memory_id}/confirm": Sample(
        "/api/memory/{id}/confirm", {}, wrong={"why": "x"}
    ),
    "POST /api/memory/{memory_id}/recover": Sample(
        "/api/memory/{id}/recover", {}, before="forget", wrong={"if_version": "x"}
    ),
    "POST /api/memory/forget": Sample(
        "/api/memory/forget",
        {"scope": "{scope}", "memory_ids": ["{id}"], "reason": "x"},
        wrong={"mode": "execute"},
        asks=False,
    ),
    "POST /api/memory/erase": Sample(
        "/api/memory/erase",
        {"scope": "{scope}", "memory_ids": ["{id}"], "reason": "x"},
        wrong={"mode": "execute"},
        asks=False,
    ),
    "POST /api/memory/forget/preview": Sample(
        "/api/memory/forget/preview",
        {"scope": "{scope}", "memory_ids": ["{id}"]},
        wrong={"limit": 0},
    ),
    "POST /api/memory/erase-scope": Sample(
        "/api/memory/erase-scope",
        {"scope": "{scope}", "reason": "x", "memories": 0},
        wrong={"scope": "x", "mode": "execute"},
        status=409,
        asks=False,
    ),
    "POST /api/memory/erase-scope/preview": Sample(
        "/api/memory/erase-scope/preview", {"scope": "{scope}"}, wrong={"scope": " "}
    ),
    "GET /api/proposals": Sample("/api/proposals?scope={scope}", wrong="limit=0"),
    "POST /api/proposals/apply": Sample(
        "/api/proposals/apply", {"scope": "{scope}", "all": True}, wrong={}
    ),
    "POST /api/proposals/dismiss": Sample(
        "/api/proposals/dismiss", {"scope": "{scope}", "all": True}, wrong={}
    ),
    "GET /api/flags": Sample("/api/flags?scope={scope}", wrong="scope=%20"),
    "POST /api/flags": Sample(
        "/api/flags",
        {"scope": "{scope}", "self_teaching_enabled": True},
        wrong={"scope": " "},
        asks=False,
    ),
    "GET /api/dead-letters": Sample("/api/dead-letters", of_all=True, wrong="limit=0"),
    "GET /api/dead-letters/{dead_letter_id}": Sample(
        "/api/dead-letters/{dead}", of_all=True, wrong=f"/api/dead-letters/{LONG}"
    ),
    "POST /api/dead-letters/redrive": Sample(
        "/api/dead-letters/redrive", {"all": True}, of_all=True, wrong={}
    ),
    "POST /api/dead-letters/{dead_letter_id}/amend": Sample(
        "/api/dead-letters/{dead}/amend", {"record": "{}"}, of_all=True, wrong={}
    ),
    "POST /api/dead-letters/discard": Sample(
        "/api/dead-letters/discard", {"ids": ["{dead}"]}, of_all=True, wrong={"ids": []}
    ),
    "GET /api/retention/simulate": Sample(
        "/api/retention/simulate?scope={scope}", wrong="days_ahead=-1"
    ),
    "POST /api/archive": Sample(
        "/api/archive", {"dry_run": True}, of_all=True, wrong={"after_days": -1}
    ),
    "GET /api/embedding": Sample("/api/embedding", of_all=True),
    "POST /api/embedding/migrate": Sample(
        "/api/embedding/migrate", {"to": "hashing", "dimensions": 96}, of_all=True, wrong={"to": ""}
    ),
    "POST /api/embedding/cancel": Sample("/api/embedding/cancel", {}, of_all=True),
    "POST /api/embedding/switch": Sample(
        "/api/embedding/switch", {}, status=422, of_all=True, wrong={"allow_missing": -1}
    ),
    "POST /api/embedding/back": Sample("/api/embedding/back", {}, status=422, of_all=True),
    "POST /api/embedding/drop-old": Sample(
        "/api/embedding/drop-old", {}, of_all=True, wrong={"confirm": 3}
    ),
    "GET /api/sessions/{session_id}/timeline": Sample(
        "/api/sessions/s1/timeline?scope={scope}", wrong="limit=0"
    ),
    "GET /api/sessions": Sample("/api/sessions?scope={scope}", wrong="limit=0"),
    "PUT /api/sessions/{session_id}/memory": Sample(
        "/api/sessions/s1/memory", {"summary": "{text}", "scope": "{scope}"}, wrong={}, asks=False
    ),
    "POST /api/sessions/{session_id}/end": Sample(
        "/api/sessions/s1/end", {"scope": "{scope}"}, wrong={"why": "x"}, asks=False
    ),
    "GET /api/privacy": Sample("/api/privacy?scope={scope}", wrong="limit=0"),
    "PUT /api/privacy": Sample(
        "/api/privacy",
        {"level": "partial", "person": "Zoe", "scope": "{scope}"},
        wrong={"level": "all"},
        asks=False,
    ),
    "POST /api/documents": Sample(
        "/api/documents", {"text": "{text}", "scope": "{scope}"}, wrong={}, asks=False
    ),
    "GET /api/documents": Sample("/api/documents?scope={scope}", wrong="limit=0"),
    "GET /api/documents/{document_id}": Sample("/api/documents/{document}", wrong="scope="),
    "GET /api/documents/{document_id}/chunks": Sample(
        "/api/documents/{document}/chunks", wrong="limit=0"
    ),
    "DELETE /api/documents/{document_id}": Sample(
        "/api/documents/{document}?reason=x", wrong="reason="
    ),
    "GET /api/scopes": Sample("/api/scopes"),
    "GET /api/weak": Sample("/api/weak?scope={scope}", wrong="limit=0"),
    "POST /api/memory/decay": Sample("/api/memory/decay", {"scope": "{scope}"}, wrong={"limit": 0}),
    "POST /api/entities/{name}/aliases": Sample(
        "/api/entities/Oslo/aliases",
        {"alias": "Christiania", "scope": "{scope}"},
        wrong={},
        asks=False,
    ),
    "POST /api/graph": Sample(
        "/api/graph",
        {"structured": {"entities": [{"name": "Oslo"}]}, "scope": "{scope}"},
        wrong={"structured": {"entitys": []}},
        asks=False,
    ),
    "POST /api/graph/remove": Sample(
        "/api/graph/remove",
        {"structured": {"aspects": [{"entity": "Oslo", "aspect": "budget"}]}, "scope": "{scope}"},
        wrong={"structured": {"entities": []}},
        asks=False,
    ),
    "PATCH /api/entities/{name}": Sample(
        "/api/entities/Oslo",
        {"pinned": True, "scope": "{scope}"},
        wrong={"pinned": True, "unknown": 1},
        asks=False,
    ),
    "DELETE /api/entities/{name}/aliases/{alias}": Sample(
        "/api/entities/Oslo/aliases/Christiania?scope={scope}", wrong="wait=-1", asks=False
    ),
    "GET /api/graph": Sample("/api/graph?scope={scope}", wrong="depth=9"),
    "GET /api/graph/stats": Sample("/api/graph/stats?scope={scope}", wrong="limit=-1"),
    "GET /api/merges": Sample("/api/merges?scope={scope}", wrong="limit=0"),
    "GET /api/commands/{command_id}": Sample("/api/commands/{command}", wrong="scope="),
    "GET /api/entities": Sample("/api/entities?scope={scope}", wrong="limit=0"),
    "GET /api/entities/{name}": Sample("/api/entities/Oslo?scope={scope}", wrong="limit=0"),
    "GET /api/pipeline/events": Sample(
        "/api/pipeline/events", of_all=True, asks=False, streams=True
    ),
    "GET /api/events": Sample(
        "/api/events?scope={scope}", wrong="scope=%20", asks=False, streams=True
    ),
    "GET /api/scopes/{scope}/export": Sample("/api/scopes/{scope}/export", wrong="deleted=x"),
    "POST /api/scopes/{scope}/import": Sample(
        "/api/scopes/{scope}/import", EXPORT, of_all=True, wrong="wait=-1", asks=False
    ),
    "POST /api/ingest": Sample(
        "/api/ingest?name=a.jsonl&scope={scope}",
        json.dumps(SPOKEN),
        status=202,
        wrong="name=",
        asks=False,
    ),
    "GET /api/sql": Sample(
        "/api/sql?query=SELECT count(*) FROM memories&format=csv", of_all=True, wrong="query="
    ),
    "POST /api/sql": Sample("/api/sql", COUNT, of_all=True, wrong={"query": ""}),
    "GET /api/pipeline/status": Sample("/api/pipeline/status", of_all=True),
    "GET /api/diagnostics": Sample(
        "/api/diagnostics?domain=queue", of_all=True, wrong=f"domain={LONG}"
    ),
    "POST /api/jobs/{name}/run": Sample(
        "/api/jobs/retention/run", {"timeout": 10}, of_all=True, wrong={"timeout": -1}
    ),
    "GET /api/retention": Sample("/api/retention?scope={scope}", wrong="scope=%20"),
    "PUT /api/retention": Sample(
        "/api/retention",
        {"scope": "{scope}", "history_days": 30},
        wrong={"scope": "{scope}", "history_days": -1},
        asks=False,
    ),
    "POST /api/retention/sweep": Sample(
        "/api/retention/sweep", {"timeout": 10}, of_all=True, wrong={"timeout": -1}
    ),
    "POST /api/repairs/{domain}": Sample(
        "/api/repairs/index", {"dry_run": True}, of_all=True, wrong={"scope": " "}
    ),
    "GET /api/replay/agreement": Sample("/api/replay/agreement?scope={scope}", wrong="scope=%20"),
    "GET /api/stats": Sample("/api/stats?scope={scope}", wrong="scope=%20"),
    "POST /api/replays": Sample(
        "/api/replays",
        {"kind": "diff", "branch": "nothing"},
        status=201,
        of_all=True,
        asks=False,
        wrong={"kind": "diff", "branch": "A b"},
    ),
    "GET /api/replays": Sample("/api/replays", of_all=True, asks=False),
    "GET /api/replays/{replay_id}": Sample(
        "/api/replays/{replay}", of_all=True, asks=False, wrong=f"/api/replays/{LONG}"
    ),
    "GET /api/replays/{replay_id}/differences": Sample(
        "/api/replays/{compared}/differences", of_all=True, wrong="limit=0", asks=False
    ),
    "POST /api/replays/{replay_id}/stop": Sample(
        "/api/replays/{replay}/stop", of_all=True, asks=False, wrong=f"/api/replays/{LONG}/stop"
    ),
    "GET /api/branches": Sample("/api/branches", of_all=True, asks=False),
    "DELETE /api/branches/{branch}": Sample(
        "/api/branches/{branch}", of_all=True, asks=False, wrong=f"/api/branches/{LONG}"
    ),
    "GET /metrics": Sample("/metrics", of_all=True, asks=False),
    "GET /health": Sample("/health", asks=False),
    "GET /ready": Sample("/ready"),
    "GET /docs": Sample("/docs", asks=False),
}
