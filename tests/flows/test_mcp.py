"""The tools of agents, called by the SDK's own client over both transports."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import Client, StdioServerParameters

from palimpsest import Memory
from tests.flows.program import PATIENCE_S, Program, until
from tests.warm_program import warm_command

SAID = (
    "I live in Lisbon with my sister Nora.",
    "I drink coffee every morning.",
    "We saw Porto.",
)
TOOLS = {
    "search_memory",
    "get_context",
    "remember_fact",
    "correct_fact",
    "confirm_fact",
    "forget_fact",
    "get_entity_info",
    "add_to_graph",
    "remove_from_graph",
    "graph_stats",
    "memory_stats",
    "explain_fact",
    "weak_facts",
    "update_short_term_memory",
    "create_long_term_memory",
    "update_long_term_memory",
    "delete_long_term_memory",
}


@dataclass
class Agent:
    """A client that keeps which tools it has called."""

    client: Client
    called: set[str] = field(default_factory=set)

    async def use(self, tool: str, **arguments: Any) -> Any:
        """What a tool that must succeed answers."""
        self.called.add(tool)
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        return result.structured_content

    async def fails(self, tool: str, **arguments: Any) -> str:
        """What a tool that must fail says."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return str(result.content[0].text)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program(tmp_path_factory.mktemp("mcp"), PALIMPSEST_ACCESS__RECORD="false")
    program.ok("ingest", program.turns(*SAID), "--scope", "ana")
    note = {"turn_id": "n", "content": "Coffee costs 3 euros.", "metadata": {"page": 2}}
    program.ok("ingest", "-", "--scope", "ana", stdin=json.dumps(note).encode())
    program.ok("ingest", program.turns("The quokka is mine.", name="b.jsonl"), "--scope", "ben")
    program.ok("run", "--once")
    program.ok("flags", "ana", "--self-teaching-enabled")
    program.ok("run", "--once")
    return program


def over_stdio(program: Program, *options: str, scope: str = "ana") -> StdioServerParameters:
    command = program.folder / "palimpsest"
    warm_command(command)
    arguments = ["mcp", "--scope", scope, *options]
    return StdioServerParameters(
        command=str(command), args=arguments, cwd=program.folder, env=program.environment
    )


@contextlib.contextmanager
def over_http(program: Program, *options: str) -> Iterator[str]:
    """The address of a server, which SIGTERM stops cleanly at the end."""
    process = program.start("mcp", "--scope", "ana", "--http", "--port", "0", *options)
    try:
        until(lambda: "\n" in process.errors() or process.poll() is not None)
        found = re.search(r"serving (\S+)", process.errors())
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert "Traceback" not in errors, errors


@contextlib.asynccontextmanager
async def agent_over(transport: str, program: Program) -> AsyncIterator[Agent]:
    with contextlib.ExitStack() as undo:
        kind, _, mode = transport.partition(" ")
        server = over_stdio(program) if kind == "stdio" else undo.enter_context(over_http(program))
        async with Client(server, mode=mode or "auto") as client:
            yield Agent(client)


@pytest.mark.parametrize("transport", ["stdio legacy", "http"])
async def test_every_tool_is_listed_and_called(transport: str, program: Program) -> None:
    """`legacy` is the handshake of clients from before the protocol of 2026."""
    async with agent_over(transport, program) as agent:
        listed = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert set(listed) == TOOLS
        for tool in listed.values():
            assert tool.description
            assert tool.annotations is not None
            described = tool.input_schema.get("properties", {}).values()
            assert all(parameter.get("description") for parameter in described), tool.name
        await remembers(agent, f"by {transport}")
        await explains(agent)
        await teaches(agent, f"by {transport}")
        assert agent.called == TOOLS


async def remembers(agent: Agent, text: str) -> None:
    done = await agent.use("remember_fact", content=f"Ana signs letters {text}", tags=["style"])
    again = await agent.use("remember_fact", content=f"ana signs  letters {text}.")
    assert (done["already_known"], again["already_known"]) == (False, True)
    assert again["id"] == done["id"]
    found = await agent.use("search_memory", query=f"signs letters {text}", limit=3)
    assert found["memories"][0]["id"] == done["id"]
    fixed = await agent.use(
        "correct_fact", memory_id=done["id"][:8], content=f"Ana types {text}", reason="she said"
    )
    assert (fixed["id"], fixed["version"]) == (done["id"], 2)
    confirmed = await agent.use("confirm_fact", memory_id=done["id"])
    assert confirmed["protected"] is False  # that is a person's
    gone = await agent.use("forget_fact", memory_id=done["id"], reason="asked")
    assert gone["version"] == 4
    found = await agent.use("search_memory", query=f"types {text}")
    assert done["id"] not in {each["id"] for each in found["memories"]}


async def teaches(agent: Agent, text: str) -> None:
    kept = await agent.use(
        "update_short_term_memory", session_id="talk", summary=f"Of Lisbon, {text}."
    )
    assert kept["session_id"] == "talk"
    told = await agent.use("get_context", query="where does Ana live?", session_id="talk")
    assert f"Summary: Of Lisbon, {text}." in told["text"]
    content = f"Ana hums {text}"
    made = await agent.use("create_long_term_memory", content=content, memory_type="server")
    changed = await agent.use(
        "update_long_term_memory",
        memory_id=made["id"],
        content=f"Ana whistles {text}",
        memory_type="server",
        reason="heard again",
    )
    assert (changed["id"], changed["version"]) == (made["id"], 2)
    gone = await agent.use(
        "delete_long_term_memory", memory_id=made["id"], memory_type="server", reason="only tried"
    )
    assert (gone["id"], gone["version"]) == (made["id"], 3)


async def explains(agent: Agent) -> None:
    assert "Lisbon" in (await agent.use("get_context", query="where does Ana live?"))["text"]
    lisbon = await agent.use("get_entity_info", name="lisbon")
    assert lisbon["name"] == "Lisbon"
    assert any("Lisbon" in each["content"] for each in lisbon["memories"])
    are_turns = [each["type"] == "episodic" for each in lisbon["memories"]]
    assert {*are_turns} == {False, True}
    assert are_turns == sorted(are_turns)
    only = await agent.use(
        "search_memory", query="Ana in Lisbon with coffee", entity_name="Lisbon", limit=5
    )
    assert only["memories"]
    assert all("Lisbon" in each["content"] for each in only["memories"])
    facts = await agent.use("search_memory", query="coffee", types=["fact", "preference"], limit=1)
    assert facts["memories"][0]["metadata"] == {}
    about = await agent.use("search_memory", query="coffee", metadata=["page=2"])
    assert [each["metadata"] for each in about["memories"]] == [{"page": 2}]
    explained = await agent.use("explain_fact", memory_id=facts["memories"][0]["id"])
    assert [each["content"] for each in explained["drawn_from"]] == [SAID[1]]
    assert explained["decisions"][0]["action"] == "ADD"
    assert (await agent.use("weak_facts"))["memories"] == []
    weak = await agent.use("weak_facts", below=1.0, days=1)
    assert all(each["fades_at"] > each["occurred_at"] for each in weak["memories"])
    assert any("Lisbon" in each["content"] for each in weak["memories"])
    assert (await agent.use("memory_stats"))["turns"] == len(SAID) + 1
    assert (await agent.use("graph_stats"))["entities"] > 0
    owns = {"source": "Ana", "relationship": "owns", "target": "Oboe"}
    await agent.use("add_to_graph", structured={"relations": [owns]})
    assert "Ana owns Oboe" in str((await agent.use("get_entity_info", name="Oboe"))["relations"])
    gone = await agent.use("remove_from_graph", structured={"relations": [owns]})
    assert gone["removed"]["relations"] == ["Ana owns Oboe"]
    assert (await agent.use("get_entity_info", name="Oboe"))["relations"] == []


async def test_errors_say_what_to_do(program: Program) -> None:
    async with agent_over("stdio", program) as agent:
        assert "there is no memory" in await agent.fails("explain_fact", memory_id="nothing")
        assert "did you mean Lisbon" in await agent.fails("get_entity_info", name="Lisbn")
        assert "query: must not be blank" in await agent.fails("search_memory", query=" ")
        assert "or equal to 1" in await agent.fails("search_memory", query="x", limit=0)
        assert "equal to 100" in await agent.fails("search_memory", query="x", limit=101)
        assert "limit" in await agent.fails("search_memory", query="x", limit=True)
        assert "types" in await agent.fails("search_memory", query="x", types=" ")
        await agent.use("search_memory", query="x", types="fact,preference")
        for after in ("last_week", "yesterday", "2026-03-01"):
            assert await agent.use("search_memory", query="x", after=after)
        assert "after" in await agent.fails("search_memory", query="x", after="last year")
        assert "zone" in await agent.fails("search_memory", query="x", after="2026-01-01T00:00:00")
        assert "memory_id" in await agent.fails("forget_fact", reason="x")


async def test_an_agent_has_its_scope_alone(program: Program) -> None:
    [foreign] = program.json("list", "--scope", "ben", "--types", "episodic")["memories"]
    async with agent_over("stdio", program) as agent:
        for tool in ("explain_fact", "confirm_fact"):
            told = await agent.fails(tool, memory_id=foreign["id"])
            assert "there is no memory" in told
            assert "quokka" not in told
        told = await agent.fails("forget_fact", memory_id=foreign["id"], reason="x")
        assert "there is no memory" in told
        found = await agent.use("search_memory", query="whose is the quokka?", limit=50)
        assert "quokka" not in str(found)


async def test_an_agent_may_not_undo_what_a_person_protects(program: Program) -> None:
    with Memory(program.data, scope="ana", settings={"embedding.provider": "hashing"}) as person:
        pinned = person.remember("critical: Never ring Nora before nine")
        async with agent_over("stdio", program) as agent:  # beside the person's own program
            for tool, given in (("forget_fact", {}), ("correct_fact", {"content": "Ring Nora"})):
                told = await agent.fails(tool, memory_id=pinned.id, reason="tidy", **given)
                assert "only a person" in told
            rung = await agent.use("remember_fact", content="Nora was rung at ten")
        assert person.history(rung["id"]).events[0].actor_type == "agent"


async def test_an_agent_teaches_itself_only_where_that_is_allowed(program: Program) -> None:
    new = {"content": "Ben hums", "memory_type": "server"}
    options = ("--personal-scope", "ana", "--lineage", "7")
    async with Client(over_stdio(program, *options, scope="ben")) as client:
        agent = Agent(client)
        told = await agent.fails("create_long_term_memory", **new)
        assert "self_teaching_enabled" in told
        own = await agent.use("remember_fact", content="Ben keeps owls")
        told = await agent.fails(
            "update_long_term_memory",
            **{"memory_id": own["id"], "content": "Ben keeps cats", "memory_type": "server"},
            reason="x",
        )
        assert "self_teaching_enabled" in told
        told = await agent.fails(
            "delete_long_term_memory", memory_id=own["id"], memory_type="server", reason="x"
        )
        assert "self_teaching_enabled" in told
        # The person's own space allows it, and what lies there is changed there.
        made = await agent.use(
            "create_long_term_memory", content="Ana greets Ben", memory_type="personal"
        )
        told = await agent.fails(
            "update_long_term_memory",
            **{"memory_id": made["id"], "content": "x y", "memory_type": "server"},
            reason="x",
        )
        assert "there is no memory" in told
    found = program.json("get", made["id"])
    assert (found["scope"], found["source_type"]) == ("ana", "self-taught")
    assert found["metadata"] == {"lineage": 7}
    program.ok("forget", made["id"], "--reason", "only tried")
    program.ok("run", "--once")


async def test_an_agent_deletes_by_itself_only_what_it_taught_itself(program: Program) -> None:
    settings = {"embedding.provider": "hashing"}
    with Memory(program.data, scope="ana", settings=settings) as person:
        kept = person.remember("Ana has a boat")
        options = ("--personal-scope", "ana")
        async with Client(over_stdio(program, *options, scope="ben")) as client:
            agent = Agent(client)

            async def create(content: str) -> str:
                new = {"content": content, "memory_type": "personal"}
                return str((await agent.use("create_long_term_memory", **new))["id"])

            pinned, sure, own = [await create(f"Ana hums {each}") for each in ("a", "b", "c")]
            person.pin(pinned, reason="right")
            person.confirm(sure)
            given = {"memory_type": "personal", "reason": "no more"}
            told = await agent.fails("delete_long_term_memory", memory_id=kept.id, **given)
            assert "only what an agent wrote by itself" in told
            for each in (pinned, sure):
                told = await agent.fails("delete_long_term_memory", memory_id=each, **given)
                assert "only a person" in told
            await agent.use("delete_long_term_memory", memory_id=own, **given)
        assert person.get(own).is_deleted
        assert not any(person.get(each).is_deleted for each in (kept.id, pinned, sure))
        person.forget([kept.id, pinned, sure], reason="only tried", force=True)


async def test_an_agent_reads_both_its_scopes(program: Program) -> None:
    async with Client(over_stdio(program, "--personal-scope", "ana", scope="ben")) as client:
        agent = Agent(client)
        made = await agent.use(
            "create_long_term_memory", content="Ana feeds the quokka", memory_type="personal"
        )
        found = await agent.use("search_memory", query="whose is the quokka?", limit=4)
        by_scope = {each["scope"]: each["content"] for each in found["memories"][::-1]}
        assert by_scope["ana"] == "Ana feeds the quokka"
        assert "quokka is mine" in by_scope["ben"]
        scores = [each["score"] for each in found["memories"]]
        assert scores == sorted(scores, reverse=True)
        # What both have is answered once, and what one knows nothing of by the other one.
        await agent.use("remember_fact", content="Ana feeds the quokka.")
        found = await agent.use("search_memory", query="Ana feeds the quokka", limit=20)
        said = [each["content"].rstrip(".") for each in found["memories"]]
        assert said.count("Ana feeds the quokka") == 1
        found = await agent.use("search_memory", query="Ana", entity_name="Nora")
        assert {each["scope"] for each in found["memories"]} == {"ana"}
        assert found["notices"][-1].startswith("ben: nothing called Nora is known")
        told = await agent.use("get_context", query="who feeds the quokka?", budget=400)
        assert "# Personal memory (ana)" in told["text"]
        assert "# Shared memory (ben)" in told["text"]
        assert told["text"].count("Ana feeds the quokka") == 1
        lisbon = await agent.use("get_entity_info", name="lisbon")
        assert lisbon["name"] == "Lisbon"
        assert {each["scope"] for each in lisbon["memories"]} == {"ana"}
        assert "ben: nothing called Lisbn" in await agent.fails("get_entity_info", name="Lisbn")
        assert "query: must not be blank" in await agent.fails("search_memory", query=" ")
    program.ok("forget", made["id"], "--reason", "only tried")
    program.ok("run", "--once")


async def test_lineage_0_is_refused_and_no_person_is_made_up(program: Program) -> None:
    async with Client(over_stdio(program, "--lineage", "0")) as client:
        agent = Agent(client)
        new = {"content": "Ana hums"}
        told = await agent.fails("create_long_term_memory", **new, memory_type="server")
        assert "lineage 0" in told
        assert "migration" in told
        told = await agent.fails("create_long_term_memory", **new, memory_type="personal")
        assert "memory_type server" in told


async def test_no_summary_stands_for_what_is_to_be_remembered(program: Program) -> None:
    with Memory(program.data, scope="ana", settings={"embedding.provider": "hashing"}) as person:
        wish = {"role": "user", "content": "Please remember that I moved to Porto"}
        [memory_id] = person.add([wish], session_id="wish").memory_ids
        async with agent_over("stdio", program) as agent:
            told = await agent.fails("update_short_term_memory", session_id="wish", summary="Hm.")
            assert "create_long_term_memory" in told
            shown = await agent.use("get_context", query="what now?", session_id="wish")
            assert "update_short_term_memory" not in shown["text"]
        person.wait_until_processed()
        person.forget([memory_id], reason="only tried", cascade=True)


async def test_an_entity_has_its_attributes(program: Program) -> None:
    rule = {"entity": "Kiosk", "aspect": "opening hours", "kind": "constraint"}
    hours = "The kiosk is closed on Mondays"
    with Memory(program.data, scope="ana", settings={"embedding.provider": "hashing"}) as person:
        made = person.remember(hours, structured={"attributes": [rule]})
        person.wait_until_processed()
        async with agent_over("stdio", program) as agent:
            kiosk = await agent.use("get_entity_info", name="kiosk")
            assert kiosk["attributes"] == [f"opening hours (constraint): {hours}"]
        person.forget([made.id], reason="only tried")


async def test_two_clients_share_a_folder(program: Program) -> None:
    """As two desktop programs do, each with a server of its own, which come and go."""
    async with agent_over("stdio", program) as first:
        async with agent_over("stdio", program) as second:
            done = await first.use("remember_fact", content="Ana keeps bees")
            found = await second.use("search_memory", query="bees", limit=1)
            assert found["memories"][0]["id"] == done["id"]
        done = await first.use("remember_fact", content="Ana keeps goats")
        assert (await first.use("explain_fact", memory_id=done["id"]))["memory"]["id"] == done["id"]


def test_only_this_machine_is_answered(program: Program) -> None:
    with over_http(program) as address:
        assert address.startswith("http://127.0.0.1:")
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accepted = {"Accept": "application/json, text/event-stream"}
        for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            answer = httpx.post(
                address, json=body, headers={**accepted, **header}, timeout=PATIENCE_S
            )
            assert answer.status_code in (403, 421), answer.text


def test_a_port_that_is_taken_is_told(program: Program) -> None:
    with over_http(program) as address:
        port = address.rpartition(":")[2].partition("/")[0]
        told = program.fails("mcp", "--http", "--port", port)
    assert f"cannot listen at 127.0.0.1:{port}: another program uses this port" in told
