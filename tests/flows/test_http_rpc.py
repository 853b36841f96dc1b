"""`POST /api/rpc/{slug}`: every operation by its name, under the rules of its route."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palimpsest.ops.http.tokens import PERMISSIONS
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from tests.flows.http_fresh import fresh
from tests.flows.http_server import Served, problem, server

NOBODY = "00000000-0000-5000-8000-000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("rpc")) as running:
        running.token("all", "*")
        yield running


@pytest.mark.parametrize("needed", PERMISSIONS)
def test_an_operation_needs_its_permission(served: Served, needed: str) -> None:
    may = [each for each in PERMISSIONS if each != needed]
    with (
        served.client(served.token(f"without {needed}", "*", may=may)) as other,
        served.client(served.token(f"some {needed}", "ana")) as of_one,
        served.client() as nobody,
    ):
        for slug, kind in OPERATIONS.items():
            if kind.surface.permission != needed:
                continue
            problem(other.post(f"/api/rpc/{slug}", json={}), 403, "forbidden")
            problem(nobody.post(f"/api/rpc/{slug}", json={}), 401, "unauthorized")
            if kind.surface.sees_all:
                problem(of_one.post(f"/api/rpc/{slug}", json={}), 403, "forbidden")


def test_every_operation_needs_a_known_permission() -> None:
    assert {kind.surface.permission for kind in OPERATIONS.values()} <= {*PERMISSIONS}


def test_the_answer_is_that_of_the_route(served: Served) -> None:
    with served.client(served.token("ana", "ana")) as client:
        made = fresh(client, "ana")
        said = client.post("/api/rpc/get", json={"memory_id": made["id"]})
        assert said.json() == client.get(f"/api/memory/{made['id']}").json()
        pending = client.post("/api/rpc/remember", json={"content": made["text"], "wait": 0})
        assert pending.status_code == 202
        command_id = pending.json()["command_id"]
        assert pending.json() == {"command_id": command_id, "applied": False, "scope": "ana"}
        problem(client.post("/api/rpc/get", json={"memory": "x"}), 422, "invalid")
        problem(client.post("/api/rpc/nothing", json={}), 404, "not_found")
        asked = {"memory_id": made["id"], "reason": "x", "pinned": True, "if_version": 9}
        # A client raises what was refused; here it is the answer.
        told = client.post("/api/rpc/modify", json=asked).json()
        assert (told["applied"], told["status"], told["version"]) == (False, "version_conflict", 1)
        patches = [{"memory_id": each, "importance": 0.1} for each in (made["id"], NOBODY)]
        both = client.post("/api/rpc/modify_many", json={"patches": patches, "reason": "x"})
        assert [each["status"] for each in both.json()["changes"]] == ["updated", "not_found"]


def test_what_is_anothers_is_not_there(served: Served) -> None:
    with served.client(served.token("owner", "ben")) as client:
        memory_id = fresh(client, "ben")["id"]
    with served.client(served.token("other", "cay")) as client:
        for slug, more in (
            *(("locate", {}), ("get", {}), ("history", {}), ("explain", {}), ("pin", {})),
            *(("modify", {"pinned": True, "reason": "x"}), ("forget_one", {"reason": "x"})),
        ):
            told = [
                problem(
                    client.post(f"/api/rpc/{slug}", json={"memory_id": each, **more}),
                    404,
                    "not_found",
                )["detail"].replace(each, "")
                for each in (memory_id, NOBODY, memory_id[:8])
            ]
            assert len(set(told)) == 1
        patches = [{"memory_id": memory_id, "pinned": True}]
        body = {"patches": patches, "reason": "x"}
        told = problem(client.post("/api/rpc/modify_many", json=body), 404, "not_found")
        assert "ben" not in told["detail"]
        problem(client.post("/api/rpc/list", json={"scope": "ben"}), 404, "not_found")
