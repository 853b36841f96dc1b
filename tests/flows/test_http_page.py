"""The page of documentation: whole, and nothing on it that could run or lies elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from palimpsest.ops.server.application import document, html
from tests.flows.http_server import server
from tests.flows.program import PATIENCE_S

VOID = {"meta"}


class Page(HTMLParser):
    """What is on a page; fails at a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                assert value not in self.anchors
                self.anchors.add(str(value))
            if name == "href":
                self.links.add(str(value))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_all_of_the_document(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        served.token("a", "*")
        answer = httpx.get(f"{served.address}/docs", trust_env=False, timeout=PATIENCE_S)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    told = document()
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in page.text
            assert operation["operationId"] in page.anchors
    assert set(told["components"]["schemas"]) <= page.anchors
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.anchors
    assert {link for link in page.links if not link.startswith("#")} == {"/openapi.json"}


def test_nothing_on_it_runs_or_is_fetched(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        answer = httpx.get(f"{served.address}/docs", trust_env=False, timeout=PATIENCE_S)
    page = Page(answer.text)
    assert not page.tags & {"script", "img", "link", "iframe", "form", "object", "svg"}
    allowed = {"id", "href", "lang", "charset", "name", "content"}
    assert page.attributes <= allowed
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    policy = answer.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert policy.endswith(f"style-src 'sha256-{digest}'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_what_the_document_says_stays_text(text: str) -> None:
    said = {
        "info": {"title": text, "version": text, "description": text},
        "paths": {
            f"/{text}": {
                "get": {
                    "tags": [text],
                    "operationId": text,
                    "description": text,
                    "parameters": [{"name": text, "in": text, "schema": {"enum": [text]}}],
                    "requestBody": {"content": {text: {"schema": {"$ref": f"#/x/{text}"}}}},
                    "responses": {text: {"description": text}},
                }
            }
        },
        "components": {
            "schemas": {f"{text}2": {"properties": {text: {"type": text, "default": text}}}}
        },
    }
    assert not Page(html(said, text)).tags & {"script", "img"}
