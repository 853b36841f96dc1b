"""The OpenAPI document tells the truth: requests made from it find no failure of the service and no
answer that the document does not know.

PALIMPSEST_HTTP_EXAMPLES sets how many valid and how many wrong requests are made for each
operation (default 2).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.flows.http_server import Served, server
from tests.flows.program import PATIENCE_S, SAID

FEW = 2
EXAMPLES = int(os.environ.get("PALIMPSEST_HTTP_EXAMPLES", str(FEW)))
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
)
NEVER_ENDS = {"/api/events", "/api/pipeline/events"}


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    return str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    many = [f"http.{kind}_per_minute=1000000" for kind in ("modify", "delete", "batch_forget")]
    folder = tmp_path_factory.mktemp("document")
    with server(folder, "http.wait_seconds=0.2", *many) as running, running.client() as client:
        turns = [
            {"turn_id": f"t{number}", "speaker": "Ana", "content": text}
            for number, text in enumerate(SAID)
        ]
        assert client.post("/api/turns", json=turns).json()["accepted"] == len(SAID)
        running.settle(client)
        yield running


@pytest.mark.timeout(3_600 if EXAMPLES > FEW else 280)
def test_every_answer_is_one_that_the_document_tells(served: Served) -> None:
    document = httpx.get(
        f"{served.address}/openapi.json", trust_env=False, timeout=PATIENCE_S
    ).json()
    for path in NEVER_ENDS:
        del document["paths"][path]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=served.address)
    operations = [found.ok() for found in schema.get_all_operations()]
    made = 0
    for operation in operations:
        for mode in GenerationMode:
            if mode is GenerationMode.NEGATIVE and not _has_input(operation):
                continue

            @settings(
                max_examples=EXAMPLES,
                database=None,
                derandomize=EXAMPLES <= FEW,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode))
            def answers(case: Any) -> None:
                nonlocal made
                made += 1
                case.call_and_validate(checks=CHECKS, timeout=30)

            answers()
    print(f"{made} requests to {len(operations)} operations")
    assert made >= len(operations)
    with served.client() as client:
        served.settle(client)
        assert client.get("/api/pipeline/status").json()["balance"]["holds"]


def _has_input(operation: Any) -> bool:
    """Whether there is anything that a request could say wrongly."""
    return bool(operation.body or operation.query or operation.path_parameters)


def test_every_error_is_told_as_a_problem(served: Served) -> None:
    document = httpx.get(
        f"{served.address}/openapi.json", trust_env=False, timeout=PATIENCE_S
    ).json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (path, method)
            assert operation["description"], (path, method)
