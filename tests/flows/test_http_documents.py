"""Documents over HTTP: what is answered, to whom, and how large they may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.documents import sentences
from tests.flows.http_server import Served, problem, server
from tests.flows.program import until
from tests.flows.web import Web, answer, web

NOBODY = "00000000-0000-5000-8000-000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(
        tmp_path_factory.mktemp("http"),
        "documents.allow_private=true",
        "http.delete_per_minute=1000",
        "http.unprocessed_bytes_per_token=100000000",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    return served.token("home", "home")


@pytest.fixture
def client(served: Served, token: str) -> Iterator[httpx.Client]:
    with served.client(token) as client:
        yield client


@pytest.fixture(scope="module")
def pages() -> Iterator[Web]:
    with web() as running:
        yield running


def added(client: httpx.Client, **body: Any) -> str:
    """The id of a document that is done, or has failed."""
    said = client.post("/api/documents?wait=60", json=body)
    assert said.status_code == 200, said.text
    found: str = said.json()["id"]
    until(lambda: of(client, found)["status"] in ("done", "failed"))
    return found


def of(client: httpx.Client, document_id: str) -> dict[str, Any]:
    told: dict[str, Any] = client.get(f"/api/documents/{document_id}").json()
    return told


def test_a_text_is_added_found_and_deleted(client: httpx.Client) -> None:
    body = {"text": sentences(200, "lighthouse"), "title": "Lights", "name": "lights.md"}
    document_id = added(client, **body)
    again = client.post("/api/documents?wait=60", json=body).json()
    assert again["applied"]
    assert (again["id"], again["deduped"]) == (document_id, True)
    told = of(client, document_id)
    assert (told["kind"], told["source"], told["scope"]) == ("file", "lights.md", "home")
    listed = client.get("/api/documents", params={"status": "done"}).json()["documents"]
    assert told in listed
    found = client.post("/api/memory/recall", json={"query": "sentence 77 of the lighthouse"})
    best = found.json()["results"][0]
    assert (best["source_id"], best["tags"]) == (document_id, ["Lights"])
    page = client.get(f"/api/documents/{document_id}/chunks?limit=3").json()
    rest = client.get(f"/api/documents/{document_id}/chunks?cursor={page['next_cursor']}").json()
    assert len(page["chunks"]) + len(rest["chunks"]) == told["chunks"]
    assert best["id"] in {each["id"] for each in page["chunks"] + rest["chunks"]}
    gone = client.delete(f"/api/documents/{document_id}", params={"reason": "dark", "wait": 60})
    told_gone = gone.json()
    told_gone.pop("command_id")
    assert told_gone == {
        "applied": True, "id": document_id, "status": "deleted",
        "forgotten": told["chunks"], "kept": 0,
    }  # fmt: skip
    assert of(client, document_id)["status"] == "deleted"
    assert document_id not in client.get("/api/documents").text
    found = client.post("/api/memory/recall", json={"query": "sentence 77 of the lighthouse"})
    assert document_id not in found.text


def test_a_page_is_fetched(client: httpx.Client, pages: Web) -> None:
    page = f"<title>Fog</title><article><p>{sentences(40, 'fog')}</p></article>"
    pages.pages["/fog"] = answer(page.encode())
    told = of(client, added(client, url=pages.url("/fog")))
    assert (told["status"], told["title"], told["content_type"]) == ("done", "Fog", "text/html")
    told = of(client, added(client, url=pages.url("/nothing")))
    assert (told["status"], told["error"]) == ("failed", "it was answered with the status 404")


def test_html_that_is_given_loses_its_tags(client: httpx.Client) -> None:
    page = f"<html><title>Given</title><body><p>{sentences(30, 'mast')}</p></body></html>"
    document_id = added(client, text=page, content_type="text/html")
    assert of(client, document_id)["title"] == "Given"
    assert "<p>" not in client.get(f"/api/documents/{document_id}/chunks").text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "a", "url": "http://example.org"},
        {"text": " "},
        {"text": ""},
        {"text": "a\x00b"},
        {"text": "%PDF-1.7"},
        {"url": "file:///etc/passwd"},
        {"url": "http://a:b@example.org/"},
        {"url": "http://example.org", "name": "x"},
        {"text": "a", "content_type": "application/pdf"},
        {"text": "<html></html>", "content_type": "text/html"},
        {"text": "a", "title": "x" * 513},
        {"text": "a", "kind": "url"},
        {"text": "a", "scope": " "},
    ],
)
def test_what_is_no_document_is_told(client: httpx.Client, body: dict[str, Any]) -> None:
    problem(client.post("/api/documents", json=body), 422, "invalid")


def test_a_document_may_be_larger_than_other_bodies(client: httpx.Client) -> None:
    text = sentences(25_000, "gale")
    assert 1_200_000 < len(text) < 5_000_000
    command_id = client.post("/api/documents", json={"text": text}).json()["command_id"]
    until(lambda: client.get(f"/api/commands/{command_id}").json()["applied"])
    document_id = client.get(f"/api/commands/{command_id}").json()["result"]["id"]
    until(lambda: of(client, document_id)["status"] not in ("extracting", "chunking"))
    assert of(client, document_id)["chunks"] > 500
    problem(client.post("/api/memory/remember", json={"content": text}), 413, "too_large")
    huge = {"text": "x" * (10 * 1024 * 1024)}
    assert "documents.max_bytes" in problem(
        client.post("/api/documents", json=huge), 413, "too_large"
    )["detail"]  # fmt: skip


def test_an_idempotency_key_adds_once(client: httpx.Client) -> None:
    large = {"text": sentences(6_000, "storm")}
    headers = {"Idempotency-Key": "storm"}
    first = client.post("/api/documents?wait=60", json=large, headers=headers).json()
    again = client.post("/api/documents?wait=60", json=large, headers=headers).json()
    assert first == again
    problem(
        client.post("/api/documents", json={"text": "other"}, headers=headers),
        409,
        "idempotency_conflict",
    )


def test_two_at_once_are_one(client: httpx.Client, pages: Web) -> None:
    pages.pages["/twice"] = answer(sentences(20, "twin").encode(), "text/plain")
    body = {"url": pages.url("/twice"), "scope": "home"}
    said = [client.post("/api/documents?wait=0", json=body) for _ in range(5)]
    assert {each.status_code for each in said} == {202}
    served_ids = set()
    for each in said:
        place = each.headers["Location"]
        until(lambda place=place: client.get(place).json()["applied"])
        served_ids.add(client.get(place).json()["result"]["id"])
    assert len(served_ids) == 1
    until(lambda: of(client, *served_ids)["status"] == "done")
    assert pages.asked["/twice"] == 1
