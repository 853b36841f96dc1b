"""Changing memories over HTTP: every route with every status and every outcome it can have."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.flows.http_server import Served, problem, server
from tests.flows.program import until

NOBODY = "00000000-0000-5000-8000-000000000000"
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    many = [f"http.{kind}_per_minute=1000000" for kind in ("modify", "delete", "batch_forget")]
    with server(tmp_path_factory.mktemp("changing"), *many) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def remembered(client: httpx.Client, content: str = "", **fields: Any) -> str:
    """The id of a new memory."""
    content = content or f"Ana owns exactly {next(NUMBERS)} teapots."
    answer = client.post("/api/memory/remember", json={"content": content, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def of(client: httpx.Client, memory_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/memory/{memory_id}").json()
    return found


def test_a_text_is_remembered_and_found_at_once(client: httpx.Client) -> None:
    body = {"content": "critical: [health, food]: Ana never eats peanuts.", "scope": "ana"}
    said = client.post("/api/memory/remember", json=body).json()
    assert (said["applied"], said["deduped"]) == (True, False)
    found = client.post("/api/memory/recall", json={"query": "peanuts", "scope": "ana"}).json()
    first = found["results"][0]
    assert first["id"] == said["id"]
    assert (first["type"], first["pinned"], first["tags"]) == ("rule", True, ["health", "food"])
    again = client.post("/api/memory/remember", json={**body, "content": "ana never eats peanuts"})
    told = again.json()
    assert (told["id"], told["deduped"], told["version"]) == (first["id"], True, 1)


def test_what_is_structured_goes_into_the_graph(client: httpx.Client, served: Served) -> None:
    relation = {"source": "Zoe", "relationship": "leads", "target": "Apollo", "confidence": 0.9}
    structured = {"entities": [{"name": "Zoe", "type": "person"}], "relations": [relation]}
    remembered(client, "Zoe leads Apollo.", scope="graph", structured=structured)
    asked = {"scope": "graph"}
    until(lambda: client.get("/api/entities/Apollo", params=asked).status_code == 200)
    assert client.get("/api/entities/zoe", params=asked).json()["relations"][0]["name"] == "Apollo"
    body = {"alias": "Zoë", "scope": "graph"}
    assert client.post("/api/entities/Zoe/aliases", json=body).status_code == 200
    assert client.get("/api/entities/Zoë", params=asked).json()["name"] == "Zoe"
    misspelled = {"attributes": [{"entity": "Zoe", "aspect": "diet", "knd": "constraint"}]}
    wrong = {"content": "Zoe eats no fish.", "scope": "graph", "structured": misspelled}
    told = problem(client.post("/api/memory/remember", json=wrong), 422, "invalid")
    assert "knd" in json.dumps(told)


def test_one_memory_is_changed(client: httpx.Client) -> None:
    memory_id = remembered(client)
    change = {
        "content": "Ana owns a samovar.",
        "tags": ["tea"],
        "reason": "she said",
        "if_version": 1,
    }
    said = client.patch(f"/api/memory/{memory_id}", json=change).json()
    assert (said["status"], said["version"]) == ("updated", 2)
    assert of(client, memory_id)["tags"] == ["tea"]
    again = client.patch(f"/api/memory/{memory_id}", json={"tags": ["tea"], "reason": "x"}).json()
    assert (again["status"], again["version"]) == ("no_changes", 2)
    place = f"/api/memory/{memory_id}"
    corrected = client.post(f"{place}/correct", json={"content": "Ana sold the samovar."})
    assert corrected.json()["version"] == 3
    assert client.post(f"{place}/pin").json()["version"] == 4
    assert client.post(f"{place}/unpin", json={"reason": "no"}).json()["version"] == 5
    assert client.post(f"{place}/confirm").json()["status"] == "confirmed"
    events = client.get(f"{place}/history").json()["events"]
    told = [each for each in events if each["event"] == "updated"]
    assert (told[0]["new_content"], told[0]["reason"]) == ("Ana owns a samovar.", "she said")
    assert {each["changed_by"] for each in told} == {"local"}


def test_a_memory_is_forgotten_and_recovered(client: httpx.Client) -> None:
    memory_id = remembered(client, "Ana hid the key under the mat.")
    place = f"/api/memory/{memory_id}"
    asked = {"reason": "asked for", "if_version": "1"}
    assert client.delete(place, params=asked).json()["status"] == "forgotten"
    found = client.post("/api/memory/recall", json={"query": "key under the mat"}).json()
    assert memory_id not in {each["id"] for each in found["results"]}
    assert of(client, memory_id)["is_deleted"] is True
    assert client.post(f"{place}/recover", json={"reason": "a mistake"}).json()["version"] == 3
    assert of(client, memory_id)["is_deleted"] is False


CHANGE = {"content": "Ana has something else.", "reason": "x"}


def test_each_conflict_is_told_apart(client: httpx.Client) -> None:
    one, other = remembered(client), remembered(client, "Ana sails on Sundays.")
    place = f"/api/memory/{one}"
    said = problem(client.patch(place, json={**CHANGE, "if_version": 7}), 409, "version_conflict")
    assert said["version"] == 1
    same = {"content": "ana sails on sundays", "reason": "x"}
    said = problem(client.patch(place, json=same), 409, "duplicate_content_hash")
    assert said["duplicate_of"] == other
    problem(client.post(f"{place}/recover"), 409, "not_deleted")
    client.post(f"{place}/pin")
    problem(client.delete(place, params={"reason": "x"}), 409, "pinned")
    asked = {"reason": "x", "if_version": 9, "force": True}
    problem(client.delete(place, params=asked), 409, "version_conflict")
    assert client.delete(place, params={"reason": "x", "force": True}).status_code == 200
    problem(client.delete(place, params={"reason": "x"}), 409, "deleted")
    problem(client.patch(place, json=CHANGE), 409, "deleted")
    problem(client.post(f"{place}/recover", json={"if_version": 1}), 409, "version_conflict")
    problem(client.post(f"{place}/confirm"), 404, "not_found")


def test_after_its_time_nothing_is_recovered(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("late")
    with server(folder, "pipeline.recovery_days=0") as served, served.client() as client:
        memory_id = remembered(client)
        client.delete(f"/api/memory/{memory_id}", params={"reason": "x"})
        problem(client.post(f"/api/memory/{memory_id}/recover"), 409, "retention_expired")


def test_a_machine_may_not_touch_what_is_protected(client: httpx.Client) -> None:
    machine = {"Actor-Type": "agent"}
    place = f"/api/memory/{remembered(client, pinned=True)}"
    problem(client.patch(place, json=CHANGE, headers=machine), 403, "forbidden")
    problem(client.post(f"{place}/unpin", headers=machine), 403, "forbidden")
    asked = {"reason": "x", "force": "true"}
    problem(client.delete(place, params=asked, headers=machine), 403, "forbidden")
    mild = {"importance": 0.2, "reason": "x"}
    assert client.patch(place, json=mild, headers=machine).status_code == 200


def test_many_are_changed_each_for_itself(client: httpx.Client) -> None:
    one, other = remembered(client), remembered(client)
    gone = remembered(client)
    client.delete(f"/api/memory/{gone}", params={"reason": "x"})
    patches = [
        {"memory_id": one, "importance": 0.1},
        {"memory_id": other, "importance": 0.1, "if_version": 5},
        {"memory_id": gone, "importance": 0.1},
        {"memory_id": NOBODY, "importance": 0.1},
    ]
    said = client.post("/api/memory/modify", json={"patches": patches, "reason": "x"}).json()
    statuses = [each["status"] for each in said["changes"]]
    assert statuses == ["updated", "version_conflict", "deleted", "not_found"]


def test_several_of_which_none_changed_are_answered_as_one_is(
    client: httpx.Client,
) -> None:
    gone = remembered(client)

    def sent(route: str, *ids: str) -> httpx.Response:
        body = {"memory_ids": [*ids], "reason": "asked"}
        return client.post(f"/api/memory/{route}", json=body)

    other = NOBODY.replace("0000-5", "0001-5")
    for route in ("forget", "erase"):
        said = problem(sent(route, NOBODY, other), 404, "not_found")
        assert [each["id"] for each in said["changes"]] == [NOBODY, other]
    assert sent("forget", gone).json()["applied"] is True
    problem(sent("forget", gone), 409, "deleted")
    mixed = sent("forget", gone, NOBODY)
    assert (mixed.status_code, mixed.json()["applied"]) == (200, False)
    state = client.get(f"/api/commands/{mixed.json()['command_id']}").json()
    assert state["applied"] is False


@pytest.mark.parametrize("route", ["forget", "erase"])
def test_a_row_that_is_refused_is_the_error_if_it_is_the_only_one(
    client: httpx.Client, route: str
) -> None:
    gone, kept = remembered(client), remembered(client)
    client.delete(f"/api/memory/{gone}", params={"reason": "x"})

    def sent(*ids: str) -> httpx.Response:
        return client.post(f"/api/memory/{route}", json={"memory_ids": ids, "reason": "x"})

    said = problem(sent(NOBODY), 404, "not_found")
    assert (said["changes"][0]["id"], said["changes"][0]["status"]) == (NOBODY, "not_found")
    if route == "forget":
        problem(sent(gone), 409, "deleted")
    else:
        assert sent(gone).json()["changes"][0]["status"] == "erased"
    said = sent(kept, NOBODY).json()
    assert said["applied"]
    done = {"forget": "forgotten", "erase": "erased"}[route]
    assert [each["status"] for each in said["changes"]] == [done, "not_found"]
    assert said["applied"] is True


def test_many_are_forgotten_after_a_look(client: httpx.Client) -> None:
    for number in range(30):
        remembered(client, f"Ana saw heron number {number}.", scope="herons")
    body: dict[str, Any] = {"scope": "herons", "types": "fact", "source_type": "manual"}
    shown = client.post("/api/memory/forget", json={**body, "reason": "too many"}).json()
    assert len(shown["candidates"]) == 30
    assert shown["needs_confirmation"] is True
    execute = {**body, "reason": "too many", "mode": "execute"}
    problem(client.post("/api/memory/forget", json=execute), 409, "confirmation_required")
    confirmed = {**execute, "confirm_token": shown["confirm_token"]}
    remembered(client, "Ana saw one heron more.", scope="herons")
    problem(client.post("/api/memory/forget", json=confirmed), 409, "confirm_mismatch")
    shown = client.post("/api/memory/forget", json=body).json()
    confirmed = {**body, "reason": "x", "confirm_token": shown["confirm_token"]}
    said = client.post("/api/memory/forget", json=confirmed).json()
    assert {each["status"] for each in said["changes"]} == {"forgotten"}
    problem(client.post("/api/memory/forget", json=execute), 404, "not_found")


WRONG: list[tuple[str, str, Any]] = [
    ("POST", "/api/memory/remember", {"content": "x", "importance": 2}),
    ("POST", "/api/memory/remember", {"content": "x", "kind": "fact"}),
    ("POST", "/api/memory/modify", {"patches": [{"memory_id": "x", "pinned": True}]}),
    ("POST", "/api/memory/modify", {"patches": [{"memory_id": "x"}] * 201, "reason": "x"}),
    ("POST", "/api/memory/forget", {"mode": "execute", "memory_ids": ["x"]}),
    ("POST", "/api/memory/forget", {"mode": "both", "memory_ids": ["x"]}),
    ("PATCH", f"/api/memory/{NOBODY}", {"content": "x", "reason": " "}),
    ("DELETE", f"/api/memory/{NOBODY}?reason=x&if_version=0", None),
    ("DELETE", f"/api/memory/{NOBODY}?reason=x&purge=true", None),
    ("POST", f"/api/memory/{NOBODY}/pin?wait=-1", {}),
    ("POST", f"/api/memory/{NOBODY}/recover", {"if_version": "new"}),
    ("PUT", f"/api/sessions/{'x' * 257}/memory", {"summary": "x"}),
]


def test_what_makes_no_sense_is_refused(client: httpx.Client) -> None:
    for method, path, body in WRONG:
        problem(client.request(method, path, json=body), 422, "invalid")


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_what_is_no_json_is_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    for path in ("remember", "modify", "forget", f"{NOBODY}/confirm"):
        answer = client.post(f"/api/memory/{path}", content=b"{}", headers=headers)
        problem(answer, 415, "unsupported_media_type")


def test_who_does_not_wait_is_told_where_to_look(client: httpx.Client, served: Served) -> None:
    answer = client.post("/api/memory/remember?wait=0", json={"content": "Ana fences."})
    assert answer.status_code == 202
    said = answer.json()
    place = answer.headers["location"]
    assert place == f"/api/commands/{said['command_id']}"
    assert client.get(place).status_code == 200
    until(lambda: client.get(place).json()["applied"])
    found = client.get(place).json()
    assert (found["command"], found["error"]) == ("remember", None)
    assert of(client, found["result"]["id"])["content"] == "Ana fences."
    problem(client.get(f"/api/commands/{NOBODY}"), 404, "not_found")
    refused = problem(
        client.post(f"/api/memory/{found['result']['id']}/recover"), 409, "not_deleted"
    )
    told = client.get(f"/api/commands/{refused['command_id']}").json()
    assert (told["applied"], told["error"].partition(":")[0]) == (False, "not_deleted")


def test_the_same_key_is_done_once(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "order 66"}
    change = {"content": "Ana has a boat.", "reason": "x"}
    place = f"/api/memory/{remembered(client)}"
    first = client.patch(place, json=change, headers=key)
    again = client.patch(place, json=change, headers=key)
    assert first.json() == again.json()
    assert of(client, place.rpartition("/")[2])["version"] == 2
    other = client.patch(place, json={**change, "content": "Ana has a barge."}, headers=key)
    problem(other, 409, "idempotency_conflict")
    too_long = {"Idempotency-Key": "x" * 300}
    problem(client.patch(place, json=change, headers=too_long), 422, "invalid")


def test_of_two_at_once_one_is_told_of_the_other(client: httpx.Client, served: Served) -> None:
    memory_id = remembered(client)
    statuses = []

    def change(number: int) -> None:
        with served.client() as own:
            body = {"content": f"Ana counts to {number}.", "reason": "x", "if_version": 1}
            statuses.append(own.patch(f"/api/memory/{memory_id}", json=body).status_code)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 409, 409, 409, 409, 409]


def test_changes_are_counted_however_they_come_and_looks_are_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    few = ("http.modify_per_minute=1", "http.batch_forget_per_minute=1")
    with server(tmp_path_factory.mktemp("rates"), *few) as served, served.client() as client:
        assert client.post(f"/api/memory/{remembered(client)}/pin").status_code == 200
        problem(client.post("/api/rpc/pin", json={"memory_id": NOBODY}), 429, "rate_limited")
        many = {"memory_ids": [NOBODY, NOBODY[:-1] + "1"], "reason": "x"}
        for _ in range(3):
            shown = client.post("/api/memory/forget", json={**many, "mode": "preview"})
            assert shown.status_code == 200
        problem(client.post("/api/memory/forget", json=many), 404, "not_found")
        problem(client.post("/api/rpc/forget", json=many), 429, "rate_limited")


def test_a_token_of_a_machine_stays_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server(tmp_path_factory.mktemp("may")) as served:
        with served.client(served.token("ben", "ben")) as ben:
            memory_id = remembered(ben, pinned=True)
        asked = {"reason": "x", "force": "true"}
        with served.client(served.token("bot", "ben", actor="agent")) as bot:
            for headers in ({}, {"Actor-Type": "human"}):
                answer = bot.delete(f"/api/memory/{memory_id}", params=asked, headers=headers)
                problem(answer, 403, "forbidden")
        with served.client(served.token("ana", "ana")) as ana:
            patches = {"patches": [{"memory_id": memory_id, **CHANGE}], "scope": "ana"}
            said = ana.post("/api/memory/modify", json=patches).json()
            assert [each["status"] for each in said["changes"]] == ["not_found"]
