"""Who may do what over HTTP: tokens, scopes, permissions. That others learn nothing is tried for
every route in `test_http_statuses`."""

from __future__ import annotations

import hmac
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.service import Rates
from palimpsest.ops.http.tokens import Caller, Tokens, hashed, matches
from palimpsest.ops.parts import SetupError
from palimpsest.ops.settings.sections import HttpSettings
from tests.flows.http_server import Served, made_token, problem, server
from tests.flows.program import PATIENCE_S, Program


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two scopes, each with a memory and a token of its own; and a token for all."""
    program = Program(tmp_path_factory.mktemp("callers"), PALIMPSEST_EMBEDDING__DIMENSIONS="64")
    for scope in ("ana", "ben"):
        text = f"{scope.title()} lives in Oslo with a {scope}fish."
        program.ok("ingest", program.turns(text), "--scope", scope)
    program.ok("run", "--once")
    with server(program.data) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    made = {scope: served.token(scope, scope) for scope in ("ana", "ben")}
    made["all"] = served.token("all", "*")
    made["prefix"] = served.token("prefix", "an*", may=["recall"])
    return made


def test_a_token_for_one_scope_need_not_name_it(served: Served, tokens: dict[str, str]) -> None:
    with served.client(tokens["ana"]) as client:
        found = client.get("/api/memories").json()["memories"]
        assert {each["scope"] for each in found} == {"ana"}
        recalled = client.post("/api/memory/recall", json={"query": "Oslo"}).json()
        assert {each["scope"] for each in recalled["results"]} == {"ana"}
    with served.client(tokens["prefix"]) as client:
        assert client.get("/api/memories?scope=ana").status_code == 200
        problem(client.get("/api/memories?scope=ben"), 404, "not_found")
        problem(client.get("/api/memories"), 422, "invalid")


def test_only_own_scopes_are_listed(served: Served, tokens: dict[str, str]) -> None:
    for name, own in (("ana", ["ana"]), ("prefix", ["ana"]), ("all", ["ana", "ben"])):
        with served.client(tokens[name]) as client:
            found = client.get("/api/scopes").json()["scopes"]
            assert sorted(each["scope"] for each in found) == own


def test_a_turn_goes_into_an_own_scope_only(served: Served, tokens: dict[str, str]) -> None:
    turn = {"turn_id": "x", "content": "hello", "scope": "ben"}
    with served.client(tokens["ana"]) as client:
        problem(client.post("/api/turns", json=turn), 404, "not_found")
        answer = client.post("/api/turns", json=[turn, {"turn_id": "y", "content": "hello"}])
        assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
        assert [each["where"] for each in answer.json()["refused"]] == ["body[0]"]
        enveloped = {"schema": "conversation-turn/1", "id": "m", "body": turn, "scope": "ben"}
        problem(client.post("/api/turns", json=enveloped), 404, "not_found")


def test_nobody_without_a_valid_token_is_answered(served: Served, tokens: dict[str, str]) -> None:
    good = tokens["ana"]
    wrong = ["", "Bearer", "Bearer x", f"Bearer {good}x", f"Bearer {good[:-1]}"]
    wrong += [f"Basic {good}", good, f"Token {good}", "Bearer \u00e9"]
    with served.client() as client:
        for value in wrong:
            headers = [(b"Authorization", value.encode("utf-8"))]
            for path in ("/api/memories", "/api/nothing", "/nothing"):
                answer = client.get(path, headers=headers)
                problem(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/health", "/ready", "/openapi.json"):
            assert client.get(path).status_code == 200
        headers = {"Authorization": f"bearer   {good}"}
        assert client.get("/api/memories", headers=headers).status_code == 200


def test_time_tells_nothing_of_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are compared, all of them, and in a time that does not depend on where they differ."""
    tokens = Tokens(tmp_path)
    good, other = (made_token(tmp_path, name, "*") for name in "ab")
    compared: list[tuple[str, str]] = []

    def compare(kept: str, given: str) -> bool:
        compared.append((kept, given))
        return hmac.compare_digest(kept, given)

    monkeypatch.setattr("palimpsest.ops.http.tokens.hmac", SimpleNamespace(compare_digest=compare))
    for secret in (good, f"{good[:-1]}_", "x"):
        tokens.caller(secret)
        assert compared == [(hashed(each), hashed(secret)) for each in (good, other)]
        compared.clear()


def test_a_token_is_kept_as_a_hash_and_revoked_at_once(tmp_path: Path) -> None:
    with server(tmp_path) as served, served.client() as anybody:
        assert anybody.get("/api/memories").status_code == 200
        token = served.token("first", "home")
        file = tmp_path / "tokens.json"
        assert token not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        problem(anybody.get("/api/memories"), 401, "unauthorized")
        with served.client(token) as client:
            assert client.get("/api/memories").status_code == 200
            Tokens(tmp_path).revoke("first")
            problem(client.get("/api/memories"), 401, "unauthorized")
        # What was closed does not open by itself.
        problem(anybody.get("/api/memories"), 401, "unauthorized")
        file.write_text("{")
        problem(anybody.get("/api/memories"), 503, "unavailable")


def test_others_than_this_machine_need_tokens(tmp_path: Path) -> None:
    with (
        pytest.raises(SetupError, match="make a token first"),
        server(tmp_path, "http.host=0.0.0.0"),
    ):
        pass
    token = made_token(tmp_path, "a", "*")
    with server(tmp_path, "http.host=0.0.0.0") as served:
        url = served.address.replace("0.0.0.0", "127.0.0.1")
        problem(
            httpx.get(f"{url}/api/memories", trust_env=False, timeout=PATIENCE_S),
            401,
            "unauthorized",
        )
        headers = {"Authorization": f"Bearer {token}", "Host": "memory.example"}
        answer = httpx.get(
            f"{url}/api/memories", headers=headers, trust_env=False, timeout=PATIENCE_S
        )
        assert answer.status_code == 200


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        port = served.address.rpartition(":")[2]
        reason = f"cannot listen at 127.0.0.1:{port}: another program uses this port; .* --port"
        with pytest.raises(SetupError, match=reason):
            server(tmp_path / "other", f"http.port={port}").__enter__()


@pytest.mark.parametrize(
    ("pattern", "scope", "expected"),
    [
        ("ana", "ana", True),
        ("ana", "ana ", False),
        ("ana", "Ana", False),
        ("ana", "anabel", False),
        ("ana*", "anabel", True),
        ("ana*", "ana", True),
        ("ana*", "an", False),
        ("*", "anything", True),
        ("a*b", "axb", False),
    ],
)
def test_a_scope_is_matched_exactly_or_by_its_beginning(
    pattern: str, scope: str, expected: bool
) -> None:
    assert matches(pattern, scope) is expected
    caller = Caller("1", "a", (pattern,), ("recall",), "agent")
    if expected:
        assert caller.scope(scope) == scope
    else:
        with pytest.raises(NotFoundError):
            caller.scope(scope)


def test_rates_count_a_minute_for_each_caller() -> None:
    now = [0.0]
    rates = Rates(HttpSettings(modify_per_minute=2), lambda: now[0])
    rates.count("a", "modify")
    now[0] = 20.5
    rates.count("a", "modify")
    with pytest.raises(Problem) as refused:
        rates.count("a", "modify")
    assert refused.value.code == "rate_limited"
    assert refused.value.headers == {"Retry-After": "40"}
    rates.count("b", "modify")
    rates.count("a", "delete")
    now[0] = 60.0
    rates.count("a", "modify")


def test_tokens_on_the_command_line(program: Program) -> None:
    made = program.json("tokens", "create", "helpdesk", "-s", "support", "-s", "team-*")
    assert re.fullmatch(r"palimpsest_[\w-]{43}", made["token"])
    assert made["permissions"] == ["recall", "remember"]
    assert "there is a token helpdesk" in program.fails("tokens", "create", "helpdesk", "-s", "a")
    secret = program.ok("tokens", "create", "b", "-s", "*", "-p", "sql", "-p", "admin").strip()
    [first, second] = program.json("tokens", "list")["tokens"]
    assert first == {name: value for name, value in made.items() if name != "token"}
    assert (second["scopes"], second["permissions"]) == (["*"], ["sql", "admin"])
    assert secret not in program.ok("tokens", "list")
    program.ok("tokens", "revoke", "b")
    program.ok("tokens", "revoke", first["id"])
    assert "there is no token" in program.fails("tokens", "revoke", "b")
    assert program.json("tokens", "list") == {"tokens": []}
    program.fails("tokens", "create", " ", "-s", "a", code=2)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    made_token(tmp_path, "a", "*")
    with pytest.raises(RequestError, match="already"):
        made_token(tmp_path, "a", "b")
    assert [token.scopes for token in Tokens(tmp_path).all()] == [("*",)]
