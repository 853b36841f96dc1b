"""A collector that keeps what it receives by OTLP in a file, and the traces in it.

It is the test's own, unless `OTLP_COLLECTOR` names a program of the OpenTelemetry Collector with
the `otlp` receiver and the `file` exporter, which is then run; both write OTLP's JSON, a request a
line."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.flows.program import until

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:PORT"}}}}
exporters: {file: {path: "FILE"}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [file]}}
"""
IDS = re.compile(r"(?<=Id\": \")[^\"]+")


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any] = field(hash=False)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.id}-01"


@dataclass(frozen=True)
class Collector:
    """Receives at `endpoint`, keeps it in `file`."""

    endpoint: str
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        """For a process that sends its traces here, soon."""
        return {
            "PALIMPSEST_TELEMETRY__TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def text(self) -> str:
        return self.file.read_text(encoding="utf-8") if self.file.exists() else ""

    def spans(self) -> list[Span]:
        """All that came, by their beginning."""
        requests = [json.loads(line) for line in self.text().splitlines()]
        found = [
            _span(each)
            for request in requests
            for resource in request.get("resourceSpans", ())
            for scope in resource["scopeSpans"]
            for each in scope["spans"]
        ]
        return sorted(found, key=lambda span: span.began)

    def until(self, *names: str) -> list[Span]:
        """The spans, once there are some whose names begin like these, and all their parents but
        that of the first."""

        def are_there() -> bool:
            spans = self.spans()
            ids = {span.id for span in spans}
            return all(any(span.name.startswith(name) for span in spans) for name in names) and all(
                span.parent in ids for span in spans[1:]
            )

        until(are_there)
        return self.spans()


def _span(raw: dict[str, Any]) -> Span:
    times = int(raw["startTimeUnixNano"]), int(raw["endTimeUnixNano"])
    failed = raw.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR")
    attributes = {each["key"]: next(iter(each["value"].values())) for each in raw["attributes"]}
    ids = raw["traceId"], raw["spanId"], raw.get("parentSpanId", "")
    return Span(raw["name"], *ids, *times, failed, attributes)


@contextlib.contextmanager
def collector(folder: Path) -> Iterator[Collector]:
    program = os.environ.get("OTLP_COLLECTOR")
    file = folder / "traces.jsonl"
    with _real(program, file) if program else _own(file) as endpoint:
        yield Collector(endpoint, file)


@contextlib.contextmanager
def _own(file: Path) -> Iterator[str]:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            line = _as_otlp_json(service.ExportTraceServiceRequest.FromString(body))
            with lock, file.open("a", encoding="utf-8") as out:
                out.write(f"{line}\n")
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()


def _as_otlp_json(request: Any) -> str:
    """As the protocol has it: ids in hexadecimal, where protobuf's JSON has Base64."""
    from base64 import b64decode

    from google.protobuf.json_format import MessageToDict

    text = json.dumps(MessageToDict(request))
    return IDS.sub(lambda found: b64decode(found[0]).hex(), text)


@contextlib.contextmanager
def _real(program: str, file: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = file.with_name("collector.yaml")
    config.write_text(CONFIG.replace("PORT", str(port)).replace("FILE", str(file)))
    with file.with_name("collector.out").open("wb") as out:
        command = [program, "--config", f"file:{config}"]
        running = subprocess.Popen(command, stdout=out, stderr=out)

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        until(lambda: listens() or running.poll() is not None)
        assert running.poll() is None, config.with_name("collector.out").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


STAGES = ("normalize", "apply-writes", "extract", "decide", "graph-persist", "audit")


def check_turn(spans: list[Span], caller: str | None = None) -> None:
    """One trace with the publication of a turn, all stages and a call to a model, whole: every span
    has its parent, and none begins before it. `caller` is the traceparent of the first one."""
    assert {span.trace for span in spans} == {spans[0].trace}
    by_id = {span.id: span for span in spans}
    first, *others = spans
    assert first.name == "publish conversation-turns"
    assert first.parent == ("" if caller is None else caller.split("-")[2])
    for span in others:
        assert span.parent in by_id, span
        assert by_id[span.parent].began <= span.began <= span.ended, span
    names = [span.name for span in spans]
    assert {f"process {stage}" for stage in STAGES} <= {*names}
    # The turn was applied before it was extracted from, its facts after.
    order = [names.index(f"process {stage}") for stage in STAGES[:4]]
    assert order == sorted(order)
    calls = [span for span in spans if span.name.startswith("chat ")]
    assert {by_id[call.parent].name for call in calls} >= {"process extract"}
    assert not [span for span in spans if span.failed]
