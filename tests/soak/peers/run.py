"""Runs a peer in its own environment: python run.py PEER TASK ANSWERS

It has the standard library and the peer's packages, nothing of the project. TASK is a JSON file:
`folder`, `embeddings` (the base URL of OpenAI's API of embeddings), `dimensions`, `limit`, `turns`
of `scope`, `id` and `text`, `questions` of `scope` and `text`. ANSWERS gets what was found, and how
long it took.

A peer is a file with `make(folder, embed, dimensions)`, whose result has `add(scope, turns)`,
called once a scope, and `search(scope, text, limit)`, which gives the turns' ids, the best first.
`embed` makes vectors of texts, as passages or as questions; its `url` is that of the API.
"""

from __future__ import annotations

import http.client
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


class Embed:
    """Vectors of texts over one connection, which is kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._path = f"{parts.path}/embeddings"
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def __call__(self, texts: list[str], is_query: bool = False) -> list[list[float]]:
        body = json.dumps({"model": "query" if is_query else "passage", "input": texts})
        self._connection.request("POST", self._path, body)
        answer = json.loads(self._connection.getresponse().read())
        vectors: list[list[float]] = [item["embedding"] for item in answer["data"]]
        return vectors


def main(peer: str, task_file: str, answers_file: str) -> None:
    task = json.loads(Path(task_file).read_text(encoding="utf-8"))
    Path(answers_file).write_text(json.dumps(answers(peer, task)), encoding="utf-8")


def answers(peer: str, task: Json) -> Json:
    embed = Embed(task["embeddings"])
    embed(["ready"], is_query=True)
    memory = runpy.run_path(peer)["make"](task["folder"], embed, task["dimensions"])
    by_scope: dict[str, list[Json]] = {}
    for turn in task["turns"]:
        by_scope.setdefault(turn["scope"], []).append(turn)
    began = time.perf_counter()
    for scope, turns in by_scope.items():
        memory.add(scope, [(turn["id"], turn["text"]) for turn in turns])
    seconds = time.perf_counter() - began
    for scope in by_scope:
        memory.search(scope, "ready", task["limit"])
    found = []
    for question in task["questions"]:
        began = time.perf_counter()
        ids = memory.search(question["scope"], question["text"], task["limit"])
        found.append({"ids": ids, "ms": 1000 * (time.perf_counter() - began)})
    return {"seconds": seconds, "found": found}


if __name__ == "__main__":
    main(*sys.argv[1:])
