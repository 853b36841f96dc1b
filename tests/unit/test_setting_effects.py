"""Every setting changes something that can be seen: a case for each, with what two values do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops import parts, topics
from ops.embedded import application, open_log
from ops.kafka.options import kafka_options
from ops.parts import SetupError
from ops.service.local import Place, local_interface
from ops.service.routing import RoutedQueries
from ops.service.running import place_of
from ops.setting_sources import reference
from schemas.messages import ForgetCommand, RecoverCommand, RememberCommand
from schemas.rows import MentionRow, NameRow, Row, embedding_key
from schemas.topics import CONVERSATION_TURNS
from streams.apply_writes import apply_writes_stage
from streams.asking import ModelPort
from streams.failures import StageFailed
from streams.logs.base import Outgoing
from streams.logs.kafka import _application
from streams.logs.kafka_lane import Turns
from streams.logs.kafka_role import Role
from streams.models.base import ModelError, Prompt, Reply
from streams.output import outgoing
from streams.settings import Flags
from streams.stage import Context, Message, Stage
from streams.topology import PipelineSettings, stages
from tests.harness import BEGIN, commanded, published, turn
from tests.memory_rows import memory
from tests.servers import Late, ScriptedProvider, Text
from tests.setting_lab import Lab, free_port, happens, recall_of
from tests.unit import by_hand

See = Callable[[Lab], Awaitable[object]]
REMOTE_LLM = ("llm.provider=openai", "llm.base_url={server}", "llm.model=scripted")
REMOTE_VECTORS = (
    "embedding.provider=openai",
    "embedding.base_url={server}",
    "embedding.model=scripted",
)
LONG_VECTORS = ("embedding.dimensions=2048",)
BY_MODEL = ("decision.decider=model",)
CLUSTER = ("log.kind=kafka", "kafka.worker_token=secret")
PROMPT = Prompt("extract", "system", "user", {}, 100, {"content": "tea"})


@dataclass(frozen=True)
class Case:
    """`told` is what is seen with each of the two values, beside the settings of `given`."""

    see: See
    values: tuple[object, object]
    told: tuple[object, object]
    given: tuple[str, ...] = ()


# --- what is looked at: log and cluster -------------------------------------------------------


async def folder_of_log(lab: Lab) -> object:
    open_log(lab.settings, "process").close()
    return sorted(path.parent.parent.name for path in lab.folder.rglob("log.sqlite"))


async def kind_of_log(lab: Lab) -> object:
    try:
        open_log(lab.settings, "process").close()
    except SetupError:
        return "needs a cluster"
    return "a file"


async def partitions(lab: Lab) -> object:
    async with lab.ran() as seen:
        return len(seen.app.shards)


async def dead_letters(lab: Lab) -> object:
    async with lab.ran("tea " * 1_000) as seen:
        return len(seen.column("SELECT * FROM dead_letter_rows"))


async def leaves_in_time(lab: Lab) -> object:
    """Whether a record that grows old beside a running worker leaves within three seconds."""
    async with application(lab.settings, clock=lab.clock) as app:
        running = asyncio.create_task(app.run(until_drained=False))
        app.log.append([Outgoing("conversation-turns", "ana", b"ana", b"no message", {})])
        # Once a stage is at work, what was old at the start has gone.
        while app.log.position("normalize", "conversation-turns", 0) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        app.log.append([Outgoing("cache-invalidations", "ana", b"ana", b"{}", {})])
        lab.clock.advance(days=2)

        async def gone() -> None:
            while app.log.read("cache-invalidations", 0, 0, 1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        found = await happens(gone(), 3.0)
        app.stop()
        await running
        return found


async def name_of_topic(lab: Lab) -> object:
    return kafka_options(lab.settings).physical("memory-writes")


class _Faust:
    """What a client of Kafka is made with."""

    def __init__(self, lab: Lab) -> None:
        nothing: Any = None
        options = kafka_options(lab.settings)
        self.role = Role("store", options, (), nothing, nothing, nothing, nothing, Turns())
        self.made = _application(self.role, options, lab.folder)


async def addresses_of_brokers(lab: Lab) -> object:
    return [str(url) for url in _Faust(lab).made.conf.broker]


async def name_of_group(lab: Lab) -> object:
    return _Faust(lab).made.conf.id


async def session_timeout(lab: Lab) -> object:
    return _Faust(lab).made.conf.broker_session_timeout


class _Waiting:
    name, partition = "decide", 0
    limits: tuple[float, float] = (0.0, 0.0)

    def close(self) -> None:
        pass

    async def ended(self, grace_seconds: float, limit_seconds: float) -> None:
        self.limits = (grace_seconds, limit_seconds)


async def limits_of_a_rebalance(lab: Lab) -> tuple[float, float]:
    role, lane = _Faust(lab).role, _Waiting()
    role.lanes["decide", 0] = lane  # type: ignore[assignment]
    await role.quiesce()
    return lane.limits


async def grace(lab: Lab) -> object:
    return (await limits_of_a_rebalance(lab))[0]


async def quiescing(lab: Lab) -> object:
    return (await limits_of_a_rebalance(lab))[1]


async def replicas_asked_for(lab: Lab) -> object:
    from ops.cli.common import Cli
    from ops.cli.topics import create

    asked: list[int] = []

    class Admin:
        """Takes down what it is asked to make."""

        def __init__(self, **_: object) -> None:
            self.made: dict[str, Any] = {}

        def create_topics(self, wanted: dict[str, Any]) -> None:
            self.made = wanted
            asked.extend({topic["replication_factor"] for topic in wanted.values()})

        def wait_for_topics(self, names: object) -> None:
            pass

        def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
            code, places = (0, [{"replica_nodes": [1]}] * 8) if self.made else (3, [])
            return [{"name": n, "error_code": code, "partitions": places} for n in names]

        def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
            return {
                "topic": {
                    name: {k: {"value": v} for k, v in topic["configs"].items()}
                    for name, topic in self.made.items()
                }
            }

        def close(self) -> None:
            pass

    lab.patch.setattr(topics, "KafkaAdminClient", Admin)
    flags = ("log.kind=kafka", *(flag.format() for flag in lab.flags))
    create(Cli(lab.folder, None, flags), json=True)
    return asked


async def partitions_found(lab: Lab) -> object:
    """What a reader finds of a worker on another machine, which has partition 3."""
    settings = lab.settings
    place = Place(port=lab.port, token="secret")
    nothing: Any = None
    async with local_interface(nothing, lab.folder, place, lambda: [3]):
        routed = RoutedQueries(settings, 8)
        found = sorted(await routed.owners())
        await routed.close()
        return found


async def hosts_that_answer(lab: Lab) -> object:
    nothing: Any = None
    answering = []
    async with local_interface(nothing, lab.folder, place_of(lab.settings)) as said:
        for host in ("127.0.0.1", "127.0.0.2"):
            async with httpx.AsyncClient(trust_env=False) as client:
                try:
                    await client.post(f"http://{host}:{said.port}/ping")
                except httpx.ConnectError:
                    continue
                answering.append(host)
    return answering


async def listens_there(lab: Lab) -> object:
    nothing: Any = None
    async with local_interface(nothing, lab.folder, place_of(lab.settings)) as said:
        return said.port == lab.port


# --- models -----------------------------------------------------------------------------------


async def calls_for_a_turn(lab: Lab) -> object:
    async with lab.ran("I like tea", scripted=False):
        return len(lab.server.posts), len(lab.other.posts)


async def told_to_the_llm(lab: Lab) -> object:
    """Model and key of a call."""
    async with lab.ran("I like tea", scripted=False):
        call = lab.server.posts[0]
        return call.body["model"], call.headers["authorization"]


async def reply_in_time(lab: Lab) -> object:
    lab.server._latency_s = 0.3
    model = parts.language_model(lab.settings.llm)
    try:
        await model.generate(PROMPT)
    except ModelError:
        return False
    finally:
        await model.close()
    return True


async def calls_at_once(lab: Lab) -> object:
    released = asyncio.Event()
    lab.server.script = [Late(released, Text("{}"))]
    async with application(lab.settings, clock=lab.clock) as app:
        asking = [asyncio.create_task(app.models.generate(PROMPT, False)) for _ in range(4)]
        checks = len(lab.server.calls)
        await lab.server.called(checks + 1)
        await happens(lab.server.called(checks + 4), 0.5)
        count = len(lab.server.posts)
        released.set()
        await asyncio.gather(*asking)
        return count


async def embedded(lab: Lab) -> tuple[ScriptedProvider, list[int]]:
    """Lengths of the vectors of five texts and a question, with the provider that was asked."""
    settings = lab.settings
    model = parts.embedding_model(settings.embedding)
    nothing: Any = None
    port = ModelPort(nothing, model, 1, settings.embedding.batch)
    made = await port.embed([f"text {number}" for number in range(5)])
    lengths = {0 if vector is None else len(vector) for vector in made.vectors}
    if 0 not in lengths:
        await model.embed_query("which text?")
    await model.close()
    return lab.server, sorted(lengths)


async def calls_for_vectors(lab: Lab) -> object:
    server, _ = await embedded(lab)
    return len(server.posts), len(lab.other.posts)


async def lengths_of_vectors(lab: Lab) -> object:
    return (await embedded(lab))[1]


async def told_to_the_embedder(lab: Lab) -> object:
    server, _ = await embedded(lab)
    return server.posts[0].body["model"], server.posts[0].headers["authorization"]


async def vectors_in_time(lab: Lab) -> object:
    lab.server._latency_s = 0.3
    return (await embedded(lab))[1] != [0]


async def texts_sent(lab: Lab) -> object:
    """The first text and the question as the provider got them."""
    server, _ = await embedded(lab)
    return server.posts[0].body["input"][0], server.posts[-1].body["input"][0]  # type: ignore[index]


# --- the pipeline -----------------------------------------------------------------------------


async def turns_extracted(lab: Lab) -> object:
    spoken = turn("I like tea", 1)
    used = turn("The kettle is on", 2).model_copy(update={"role": "tool"})
    async with lab.ran(published(spoken), published(used)) as seen:
        return seen.purposes()["extract"]


async def context_shown(lab: Lab) -> object:
    """Earlier turns in what the model is asked about the last one."""
    async with lab.ran("Anise", "Borage", "Chervil", "Dill") as seen:
        last = next(p for p in seen.prompts if p.subject["content"] == "Dill")
        return [herb for herb in ("Anise", "Borage", "Chervil") if herb in last.user]


async def extraction_prompt(lab: Lab) -> Prompt:
    async with lab.ran("tea " * 100 + "saffron") as seen:
        return next(prompt for prompt in seen.prompts if prompt.purpose == "extract")


async def output_asked_for(lab: Lab) -> object:
    return (await extraction_prompt(lab)).max_output_tokens


async def whole_turn_is_shown(lab: Lab) -> object:
    return "saffron" in (await extraction_prompt(lab)).user


LIKING = "Ana likes green tea with milk"
ALIKE = "Ana likes green tea with lemon"
NOW = "Now Ana likes green tea with lemon"


async def decisions_asked(lab: Lab) -> object:
    async with lab.ran(LIKING, ALIKE) as seen:
        return seen.purposes()["decide"]


async def decisions_asked_of_the_same(lab: Lab) -> object:
    async with lab.ran(LIKING, "Ana likes the green tea with milk") as seen:
        return seen.purposes()["decide"]


async def candidates_of(lab: Lab, *facts: str) -> list[list[dict[str, Any]]]:
    """The candidates that each proposal was decided with."""
    async with lab.ran(*facts) as seen:
        return [json.loads(found) for found in seen.column("SELECT candidates FROM proposals")]


async def candidates_seen(lab: Lab) -> object:
    herbs = [f"Ana grows {herb} in her garden" for herb in ("anise", "borage", "chervil", "dill")]
    return max(len(found) for found in await candidates_of(lab, *herbs))


async def leg_of_candidates(lab: Lab) -> object:
    """Which leg the score of a candidate is."""
    [known] = [one for found in await candidates_of(lab, LIKING, ALIKE) for one in found]
    return [leg for leg in ("keyword", "cosine") if known["score"] == known[leg]]


async def contradictions_asked(lab: Lab) -> object:
    async with lab.ran(LIKING, NOW) as seen:
        return seen.purposes()["contradict"]


async def memories_left(lab: Lab) -> object:
    async with lab.ran(LIKING, NOW) as seen:
        return seen.column(
            "SELECT content FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted ORDER BY 1"
        )


async def facts_of_doubt(lab: Lab) -> object:
    async with lab.ran("Ana may like tea~0.5") as seen:
        return len(seen.column("SELECT 1 FROM memory_rows WHERE type <> 'episodic'"))


async def remembering(lab: Lab) -> object:
    command = commanded(RememberCommand(content="Ana plays the harp"), 1)
    async with lab.ran(command) as seen:
        [error] = seen.column("SELECT error FROM command_results")
        return error


async def old_record_left(lab: Lab) -> object:
    with open_log(lab.settings, "process", lab.clock) as log:
        log.append([Outgoing("cache-invalidations", "ana", b"ana", b"{}", {})])
    lab.clock.advance(days=2)
    async with lab.ran() as seen:
        return len(seen.app.log.read("cache-invalidations", 0, 0, 10))


async def fate_of_a_late_decision(lab: Lab) -> object:
    """A decision on a version that has changed since."""
    settings = replace(lab.settings.applying, flags=Flags(allow_update_delete=True))
    tea = by_hand.memory("tea", "Ana likes green tea", version=4)
    update = by_hand.proposal("Ana likes black tea", "UPDATE", target_id="tea", target_version=3)
    from schemas.messages import MemoryWrite

    message = by_hand.write_message(MemoryWrite(write=by_hand.proposals(update)))
    process = apply_writes_stage(settings).process(message, by_hand.context())
    return by_hand.drive(process, by_hand.Store.of(tea)).ends()[0][0]


async def recovering(lab: Lab) -> object:
    """The error of a recovery ten days after the forgetting."""
    async with lab.ran(commanded(RememberCommand(content="Ana plays the harp"), 1)) as seen:
        [memory_id] = seen.column("SELECT memory_id FROM memory_rows")
    forget = commanded(ForgetCommand(memory_ids=(memory_id,), reason="asked"), 2)
    async with lab.ran(forget):
        pass
    lab.clock.advance(days=10)
    late = commanded(RecoverCommand(memory_id=memory_id), 3)
    late = late.model_copy(update={"occurred_at": lab.clock.time})
    async with lab.ran(late) as seen:
        return seen.column("SELECT is_deleted FROM memory_rows")


async def entities_written(lab: Lab) -> object:
    async with lab.ran("Ana > likes > Lima / Ana likes Lima") as seen:
        return seen.column("SELECT name FROM entities ORDER BY 1")


async def batches_of_normalize(lab: Lab) -> object:
    async with lab.ran(*("tea " * 300 + str(n) for n in range(4))) as seen:
        return seen.batches("normalize")


async def kept_of_what_a_stop_meets(lab: Lab) -> object:
    """How many turns a stage has done that waited for its model when the worker was stopped."""
    begun, answered = asyncio.Event(), asyncio.Event()

    async def slow(prompt: Prompt) -> Reply:
        begun.set()
        await answered.wait()
        return Reply('{"facts": []}', "slow", "slow")

    async with application(lab.settings, clock=lab.clock) as app:
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn("Ana likes tea")))])
        lab.patch.setattr(app.language, "generate", slow)
        running = asyncio.create_task(app.run(until_drained=False))
        await begun.wait()
        app.stop()
        asyncio.get_running_loop().call_later(0.3, answered.set)
        await running
        return app.log.position("extract", "turns-normalized", 0)


async def batches_of_extract(lab: Lab) -> object:
    async with lab.ran("a", "b", "c", "d") as seen:
        return seen.batches("extract")


async def fate_of_a_broken_stage(lab: Lab) -> object:
    """Dead letters of two records that the program has a bug with."""

    def broken(message: Message, context: Context) -> Any:
        raise ZeroDivisionError(message.id)

    def with_a_bug(settings: PipelineSettings) -> list[Stage]:
        return [
            replace(stage, process=broken) if stage.name == "normalize" else stage
            for stage in stages(settings)
        ]

    lab.patch.setattr("ops.embedded.stages", with_a_bug)
    try:
        async with lab.ran("tea", "mint") as seen:
            return len(seen.column("SELECT 1 FROM dead_letter_rows"))
    except StageFailed:
        return "stopped"


async def tries_to_read(lab: Lab) -> object:
    async with lab.ran("? no JSON") as seen:
        return len(seen.prompts)


# --- stores and recall ------------------------------------------------------------------------


async def setting_of_database(lab: Lab, name: str) -> object:
    with lab.shard() as shard, shard.reading() as reader:
        return reader.execute(f"SELECT current_setting('{name}')").fetchone()[0]


async def memory_of_database(lab: Lab) -> object:
    return await setting_of_database(lab, "memory_limit")


async def threads_of_database(lab: Lab) -> object:
    return await setting_of_database(lab, "threads")


async def resident_scopes(lab: Lab) -> object:
    """Scopes that stay in memory of three that are asked for, a megabyte each and more."""
    rows = [
        memory(f"{scope}{n}", f"note {n}", n, scope=scope) for scope in "abc" for n in range(200)
    ]
    with lab.shard(*rows) as shard:
        for scope in "abc":
            shard.indexes.get(scope)
        return len([scope for scope in "abc" if shard.indexes.resident(scope) is not None])


async def found_by_stem(lab: Lab) -> object:
    rows = [memory("m", "Wir haben viele Häuser gesehen")]
    return len((await lab.recalled("Haus", rows))["results"])


TEAS: list[Row] = [
    memory(f"m{n:02}", f"Ana drinks tea number {n}", n, importance=n % 10 / 10)
    for n in range(1, 41)
]
NAMED: list[Row] = [
    *TEAS,
    NameRow(
        name_id="lima", entity_id="lima", scope="ana", name="Lima", canonical_name="lima",
        entity_type="place", first_seen=BEGIN, updated_at=BEGIN,
    ),
    MentionRow(
        memory_id="m07", text_key=embedding_key("Ana drinks tea number 7"), name_id="lima",
        scope="ana", mention_text="Lima", confidence=0.9,
    ),
]  # fmt: skip


async def method(lab: Lab) -> object:
    async with lab.ran("Ana drinks tea", "Ana grows mint") as seen:
        return (await recall_of(seen.app, "tea"))["method"]


async def parts_of_score(lab: Lab) -> dict[str, Any]:
    async with lab.ran("Ana drinks tea", "Ana grows mint") as seen:
        answer = await recall_of(seen.app, "the tea that Ana drinks", explain=True)
    parts: dict[str, Any] = answer["results"][0]["explanation"]["parts"]
    return parts


async def legs_of_score(lab: Lab) -> object:
    parts = await parts_of_score(lab)
    return parts["keyword"] > 0.0, parts["vector"] > 0.0


async def recency_counts(lab: Lab) -> object:
    return "profile" in await parts_of_score(lab)


async def size_of_pool(lab: Lab) -> object:
    return len((await lab.recalled("tea", TEAS, limit=50))["results"])


async def raised_by_graph(lab: Lab) -> object:
    answer = await lab.recalled("tea number 7 in Lima", NAMED, limit=50)
    return [r["id"] for r in answer["results"] if "graph" in r["explanation"]["parts"]]


async def graph_timed_out(lab: Lab) -> object:
    return (await lab.recalled("tea in Lima", NAMED))["understood"]["boost_timed_out"]


async def use_of_times(lab: Lab) -> object:
    answer = await lab.recalled("Ana's tea on 2026-03-01", TEAS)
    return answer["understood"]["times_used"]


async def intent_of_a_question(lab: Lab) -> object:
    understood = (await lab.recalled("How come they left?", TEAS))["understood"]
    return understood["intent"], understood["intent_by"]


async def looked_at_again(lab: Lab) -> object:
    """The method, and how many of the first results have another score."""
    async with lab.ran(*(f"Ana drinks tea number {n}" for n in range(4))) as seen:
        answer = await recall_of(seen.app, "does Ana drink tea", explain=True)
    parts = [result["explanation"]["parts"] for result in answer["results"]]
    return answer["method"], sum("rerank" in each for each in parts)


async def end_of_second_look(lab: Lab) -> object:
    lab.server._latency_s = 0.2
    return (await lab.recalled("tea", TEAS))["understood"]["reranked"]


CASES: dict[str, Case] = {
    "data_dir": Case(folder_of_log, ("{folder}/a", "{folder}/b"), (["a"], ["b"])),
    "log.kind": Case(kind_of_log, ("embedded", "kafka"), ("a file", "needs a cluster")),
    "log.partitions": Case(partitions, (1, 3), (1, 3)),
    "log.max_record_bytes": Case(dead_letters, (2_048, 100_000), (1, 0)),
    "log.expire_seconds": Case(leaves_in_time, (1, 600), (True, False)),
    "kafka.bootstrap_servers": Case(
        addresses_of_brokers, ("a:1", "b:2,c:3"), (["kafka://a:1"], ["kafka://b:2", "kafka://c:3"])
    ),
    "kafka.topic_prefix": Case(name_of_topic, ("", "x-"), ("memory-writes", "x-memory-writes")),
    "kafka.group": Case(name_of_group, ("a", "b"), ("a-store", "b-store")),
    "kafka.replication_factor": Case(replicas_asked_for, (1, 3), ([1], [3])),
    "kafka.session_seconds": Case(session_timeout, (7, 20), (7.0, 20.0)),
    "kafka.grace_seconds": Case(grace, (0, 5), (0.0, 5.0)),
    "kafka.quiesce_seconds": Case(quiescing, (7, 30), (7.0, 30.0)),
    "kafka.workers": Case(
        partitions_found, ("", "http://127.0.0.1:{port}"), ([], [3]), CLUSTER
    ),
    "kafka.worker_token": Case(
        partitions_found, ("other", "secret"), ([], [3]),
        ("log.kind=kafka", "kafka.workers=http://127.0.0.1:{port}"),
    ),
    "kafka.listen": Case(
        hosts_that_answer, ("127.0.0.1", "127.0.0.2"), (["127.0.0.1"], ["127.0.0.2"]), CLUSTER
    ),
    "kafka.listen_port": Case(listens_there, (0, "{port}"), (False, True), CLUSTER),
    "llm.provider": Case(
        calls_for_a_turn, ("rules", "openai"), ((0, 0), (1, 0)),
        ("llm.base_url={server}", "llm.model=scripted"),
    ),
    "llm.base_url": Case(
        calls_for_a_turn, ("{server}", "{other}"), ((1, 0), (0, 1)),
        ("llm.provider=openai", "llm.model=scripted"),
    ),
    "llm.model": Case(
        told_to_the_llm, ("scripted", "second"), (("scripted", "Bearer k"), ("second", "Bearer k")),
        (*REMOTE_LLM[:2], "llm.api_key=k"),
    ),
    "llm.api_key": Case(
        told_to_the_llm, ("k", "l"), (("scripted", "Bearer k"), ("scripted", "Bearer l")),
        REMOTE_LLM,
    ),
    "llm.timeout_seconds": Case(reply_in_time, (0.05, 30), (False, True), REMOTE_LLM),
    "llm.concurrency": Case(calls_at_once, (1, 4), (1, 4), REMOTE_LLM),
    "embedding.provider": Case(
        calls_for_vectors, ("hashing", "openai"), ((0, 0), (2, 0)), REMOTE_VECTORS[1:]
    ),
    "embedding.base_url": Case(
        calls_for_vectors, ("{server}", "{other}"), ((2, 0), (0, 2)),
        (REMOTE_VECTORS[0], REMOTE_VECTORS[2]),
    ),
    "embedding.model": Case(
        told_to_the_embedder, ("one", "two"), (("one", "Bearer k"), ("two", "Bearer k")),
        (*REMOTE_VECTORS[:2], "embedding.api_key=k"),
    ),
    "embedding.api_key": Case(
        told_to_the_embedder, ("k", "l"), (("scripted", "Bearer k"), ("scripted", "Bearer l")),
        REMOTE_VECTORS,
    ),
    "embedding.dimensions": Case(lengths_of_vectors, (32, 128), ([32], [128])),
    "embedding.timeout_seconds": Case(vectors_in_time, (0.05, 30), (False, True), REMOTE_VECTORS),
    "embedding.batch": Case(calls_for_vectors, (2, 5), ((4, 0), (2, 0)), REMOTE_VECTORS),
    "embedding.query_prefix": Case(
        texts_sent, ("", "q: "), (("text 0", "which text?"), ("text 0", "q: which text?")),
        REMOTE_VECTORS,
    ),
    "embedding.passage_prefix": Case(
        texts_sent, ("", "p: "), (("text 0", "which text?"), ("p: text 0", "which text?")),
        REMOTE_VECTORS,
    ),
    "extraction.roles": Case(turns_extracted, ("user", "user,tool"), (1, 2)),
    "extraction.context_turns": Case(context_shown, (0, 2), ([], ["Borage", "Chervil"])),
    "extraction.max_output_tokens": Case(output_asked_for, (64, 128), (64, 128)),
    "extraction.max_input_characters": Case(whole_turn_is_shown, (100, 10_000), (False, True)),
    "decision.decider": Case(decisions_asked, ("rules", "model"), (0, 1)),
    "decision.exact": Case(decisions_asked_of_the_same, (0.2, 1.0), (0, 1), BY_MODEL),
    "decision.near": Case(
        decisions_asked, (0.0, 1.0), (1, 0), (*BY_MODEL, "decision.min_score=0.5")
    ),
    "decision.candidates": Case(candidates_seen, (1, 3), (1, 3)),
    "decision.min_score": Case(candidates_seen, (1.0, 0.0), (0, 3)),
    "decision.semantic_contradiction": Case(
        contradictions_asked, ("false", "true"), (0, 1), BY_MODEL
    ),
    "pipeline.enabled": Case(memories_left, ("false", "true"), ([], [LIKING, NOW])),
    "pipeline.shadow_mode": Case(memories_left, ("true", "false"), ([], [LIKING, NOW])),
    "pipeline.allow_update_delete": Case(
        memories_left, ("false", "true"), ([LIKING], [NOW]),
        BY_MODEL,
    ),
    "pipeline.mutations_frozen": Case(
        remembering, ("true", "false"),
        ("frozen: memory may not be changed now (flag mutations_frozen)", None),
    ),
    "pipeline.autonomous_frozen": Case(old_record_left, ("true", "false"), (1, 0)),
    "pipeline.min_fact_confidence": Case(facts_of_doubt, (0.7, 0.4), (0, 1)),
    "pipeline.max_reconsiderations": Case(
        fate_of_a_late_decision, (0, 3), ("created", "reconsidered")
    ),
    "pipeline.recovery_days": Case(recovering, (5, 30), ([True], [False])),
    "search.language": Case(
        found_by_stem, ("english", "german"), (0, 1), ("recall.fusion=keyword",)
    ),
    "search.candidate_alpha": Case(leg_of_candidates, (0.0, 1.0), (["keyword"], ["cosine"])),
    "recall.fusion": Case(method, ("hybrid", "keyword"), ("hybrid", "keyword")),
    "recall.alpha": Case(legs_of_score, (0.0, 1.0), ((True, False), (False, True))),
    "recall.profile": Case(recency_counts, ("relevance", "balanced"), (False, True)),
    "recall.pool": Case(size_of_pool, (10, 100), (10, 40), ("recall.fusion=keyword",)),
    "recall.graph_weight": Case(raised_by_graph, (0.0, 0.5), ([], ["m07"])),
    "recall.graph_timeout_ms": Case(graph_timed_out, (0.000001, 60_000), (True, False)),
    "recall.time_words": Case(use_of_times, ("off", "prefer"), ("none", "prefer")),
    "recall.intent": Case(
        intent_of_a_question, ("words", "exemplars"), (("general", "default"), ("why", "exemplar"))
    ),
    "recall.rerank": Case(
        looked_at_again, ("off", "cosine"), (("hybrid", 0), ("hybrid+cosine", 4))
    ),
    "recall.rerank_top_n": Case(
        looked_at_again, (1, 20), (("hybrid+cosine", 1), ("hybrid+cosine", 4)),
        ("recall.rerank=cosine",),
    ),
    "recall.rerank_timeout_ms": Case(
        end_of_second_look, (20, 60_000), ("longer than 20 ms", "cosine"),
        (*REMOTE_VECTORS, "recall.rerank=cosine"),
    ),
    "recall.mmr": Case(method, ("false", "true"), ("hybrid", "hybrid+mmr")),
    "graph.enabled": Case(entities_written, ("false", "true"), ([], ["Ana", "Lima"])),
    "graph.extraction_writes_enabled": Case(
        entities_written, ("false", "true"), ([], ["Ana", "Lima"])
    ),
    "worker.batch_records": Case(batches_of_normalize, (1, 512), (4, 2)),
    "worker.batch_bytes": Case(batches_of_normalize, (1_024, 4_194_304), (4, 2)),
    "worker.model_batch_records": Case(batches_of_extract, (1, 8), (4, 2), REMOTE_LLM),
    "worker.batch_seconds": Case(batches_of_normalize, (0.000001, 60), (4, 2)),
    "worker.stop_seconds": Case(kept_of_what_a_stop_meets, (0.0, 60), (0, 1)),
    "worker.max_failures": Case(fate_of_a_broken_stage, (0, 100), ("stopped", 2)),
    "worker.max_attempts": Case(tries_to_read, (1, 3), (1, 3)),
    "store.memory_limit": Case(memory_of_database, (64, 256), ("64.0 MiB", "256.0 MiB")),
    "store.threads": Case(threads_of_database, (1, 2), (1, 2)),
    "store.index_bytes": Case(resident_scopes, (1_048_576, 536_870_912), (1, 3), LONG_VECTORS),
}  # fmt: skip


def test_every_setting_has_a_case() -> None:
    assert set(CASES) == {setting.key for setting in reference()}


@pytest.mark.parametrize("key", CASES)
async def test_every_setting_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, seen = CASES[key], []
    for number, value in enumerate(case.values):
        async with (
            ScriptedProvider(models=["scripted", "second"], dimensions=64) as server,
            ScriptedProvider(models=["scripted"], dimensions=64) as other,
        ):
            with monkeypatch.context() as patch:
                folder = tmp_path / str(number)
                folder.mkdir()
                flags = (*case.given, f"{key}={value}")
                lab = Lab(folder, patch, server, other, free_port(), flags)
                seen.append(await case.see(lab))
    assert tuple(seen) == case.told
