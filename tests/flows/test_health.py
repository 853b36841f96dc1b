"""Damage made on purpose: it is seen, the repair heals it, and nothing of it is left."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.health.domains import DOMAINS
from palimpsest.ops.health.recording import record_scores
from palimpsest.ops.health.repairs import MAINTENANCE
from palimpsest.ops.health.trends import DAYS
from palimpsest.ops.operations.lifecycle.health import Diagnose, RepairDomain
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.scopes import Scopes
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.commands import ForgetCommand, Merge, RememberCommand, RepairCommand
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.model_port import Outage, Usage
from palimpsest.streams.settings import GraphSettings
from tests.fault.test_broken_stages import raising
from tests.harness import Pipeline, differing
from tests.rebuilding import opened, rebuilt, settings_of

TALK = (
    "Ana lives in Oslo / Ana > lives_in > Oslo",
    "Ben works at Siemens / Ben > works_at > Siemens",
    "Ana likes green tea / Rita bakes cakes",
    "Ana likes long walks by the sea",
)
REMEMBERED = ("Ben keeps bees on the roof", "Rita speaks Greek and Latin")
RECORDED = {"history_rows", "command_results"}
"""The tables that tell of a repair."""


def sources_of(pipeline: Pipeline, **given: Any) -> Sources:
    return Sources(
        settings=pipeline.settings,
        log=pipeline.log,
        shards={0: pipeline.shard},
        partitions=1,
        embedding=pipeline.embedding,
        append=pipeline.log.append,
        now=pipeline.clock,
        **given,
    )


def diagnosed(pipeline: Pipeline, domain: str, **given: Any) -> dict[str, Any]:
    found = Diagnose(domain).read(sources_of(pipeline, **given))
    return dict(found["domains"][domain])  # type: ignore[index]


def repaired(pipeline: Pipeline, domain: str, **given: Any) -> dict[str, Any]:
    return dict(asyncio.run(RepairDomain(domain, **given).read(sources_of(pipeline))))  # type: ignore[arg-type]


def change(pipeline: Pipeline, *statements: str) -> None:
    """By SQL, behind the program's back."""
    with pipeline.shard.writing() as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a memory in which everything is in order, closed."""
    folder = tmp_path_factory.mktemp("filled")
    with opened(folder) as pipeline:
        pipeline.say(*TALK)
        pipeline.say(TALK[0], scope="ben")
        pipeline.command(*(RememberCommand(content=text) for text in REMEMBERED))
        pipeline.run()
    (folder / "shard").unlink()  # names its place as a whole
    return folder


@pytest.fixture
def pipeline(filled: Path, tmp_path: Path) -> Iterator[Pipeline]:
    folder = shutil.copytree(filled, tmp_path / "copy")
    (folder / "shard").symlink_to(folder / "shards" / "0", target_is_directory=True)
    with opened(folder) as pipeline:
        pipeline.shard.vector_table().sync()
        yield pipeline


def test_what_is_in_order_is_healthy(pipeline: Pipeline) -> None:
    found = Diagnose().read(sources_of(pipeline))
    assert (found["score"], found["status"]) == (1.0, "healthy")
    assert {*found["domains"]} == {*DOMAINS}
    for name, domain in found["domains"].items():
        assert domain["score"] == 1.0, (name, domain)
        assert domain["recommendation"] is None
        assert domain["partitions"] == {"0": 1.0}


def sql(*statements: str) -> Callable[[Pipeline], None]:
    return lambda pipeline: change(pipeline, *statements)


def lost_vectors(pipeline: Pipeline) -> None:
    pipeline.shard.vector_table()._table.delete("scope = 'ana'")


def vectors_of_gone_memories(pipeline: Pipeline) -> None:
    table = pipeline.shard.vector_table()._table
    rows = table.search().limit(1).to_arrow()
    names = rows.column_names
    table.add(rows.set_column(names.index("memory_id"), "memory_id", [["gone"]]).select(names))


ONE = "(SELECT min(memory_id) FROM memory_rows WHERE type = 'fact' AND scope = 'ana')"
A_DOUBLE = (
    "INSERT INTO memory_rows BY NAME SELECT * REPLACE ('double' AS memory_id, NULL AS dedup_key,"
    " created_at + INTERVAL 1 DAY AS created_at) FROM memory_rows"
    " WHERE content = 'Ana likes green tea'"
)
MISSING_LINKS = (
    "DELETE FROM mention_rows WHERE memory_id IN"
    " (SELECT memory_id FROM memory_rows WHERE content = 'Ana likes long walks by the sea')"
)


@dataclass(frozen=True)
class Damage:
    """What is done, and a part of the reason that tells of it."""

    domain: str
    do: Callable[[Pipeline], None]
    told: str


REPAIRED = {
    "no postings": Damage(
        "index",
        sql(*(f"DELETE FROM {t} WHERE memory_id = {ONE}" for t in ("fts_docs", "fts_postings"))),
        "1 memory without postings",
    ),
    "postings of a gone memory": Damage(
        "index",
        sql(
            "INSERT INTO fts_docs VALUES ('gone', 'ana', 1)",
            "INSERT INTO fts_postings VALUES ('ana', 'tea', 'gone', 1)",
        ),
        "1 memory indexed though it is gone",
    ),
    "postings without their memory's length": Damage(
        "index",
        sql("INSERT INTO fts_postings VALUES ('ana', 'tea', 'gone', 1)"),
        "though it is gone",
    ),
    "half of the postings": Damage(
        "index",
        sql("DELETE FROM fts_postings WHERE term IN ('oslo', 'bee', 'tea')"),
        "with wrong postings",
    ),
    "lost rows of LanceDB": Damage("index", lost_vectors, "vectors differ in LanceDB"),
    "rows too many in LanceDB": Damage(
        "index", vectors_of_gone_memories, "1 vector differs in LanceDB"
    ),
    "no vectors": Damage("embeddings", sql("DELETE FROM embeddings"), "without a vector"),
    "vectors of another model": Damage(
        "embeddings", sql("UPDATE embeddings SET model = 'other'"), "have one of another model"
    ),
    "vectors of another length": Damage(
        "embeddings", sql("UPDATE embeddings SET vector = vector[:7]"), "without a vector"
    ),
    "a key of another text": Damage(
        "embeddings",
        sql(f"UPDATE memory_rows SET embedding_key = 'other' WHERE memory_id = {ONE}"),
        "1 key of another text",
    ),
    "a turn's key of another text": Damage(
        "embeddings",
        sql("UPDATE memory_rows SET embedding_key = 'other' WHERE type = 'episodic'"),
        "without a vector",
    ),
    "mentions of a gone memory": Damage(
        "graph",
        sql(
            "INSERT INTO mention_rows BY NAME SELECT * REPLACE ('gone' AS memory_id)"
            " FROM mention_rows LIMIT 1"
        ),
        "1 row of a gone memory or name",
    ),
    "a relation without an end": Damage(
        "graph",
        sql(
            "INSERT INTO relation_rows BY NAME SELECT * REPLACE ('gone' AS target_name_id)"
            " FROM relation_rows LIMIT 1"
        ),
        "1 relation without its ends",
    ),
    "counts too low": Damage(
        "graph",
        sql("UPDATE name_rows SET mentions = 0 WHERE canonical_name IN ('oslo', 'siemens')"),
        "3 wrong counts",
    ),
    "memories that lost their links": Damage("graph", sql(MISSING_LINKS), "not linked to names"),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_damage_of_what_can_be_made_again(name: str, pipeline: Pipeline) -> None:
    """Seen, named, healed; the store is then as it was, and that which its log makes."""
    damage = REPAIRED[name]
    before = pipeline.state_by_table()
    damage.do(pipeline)
    seen = diagnosed(pipeline, damage.domain)
    assert seen["score"] < 1.0
    assert damage.told in seen["reason"]
    assert f"palimpsest repair {damage.domain}" in seen["recommendation"]
    hurt = pipeline.state_by_table()
    planned = repaired(pipeline, damage.domain, dry_run=True)
    assert planned["scopes"]
    assert pipeline.state_by_table() == hurt
    done = repaired(pipeline, damage.domain)
    assert done["scopes"] == planned["scopes"]
    assert (done["score_before"], done["score_after"]) == (seen["score"], 1.0)
    assert diagnosed(pipeline, damage.domain)["reason"] not in (seen["reason"], "")
    assert repaired(pipeline, damage.domain)["scopes"] == {}
    kept = {"embeddings"} if name == "vectors of another model" else set()
    assert {*differing(pipeline.run().state_by_table(), before)} == RECORDED | kept
    if name in ("no postings", "no vectors", "counts too low"):  # one of each domain
        settings = settings_of(pipeline.folder)
        pipeline.close()
        assert rebuilt(settings).is_equal


# ---- what the pipeline still has to process, or no program can mend ----
def poison(pipeline: Pipeline) -> None:
    """A turn at which a stage fails, as by a bug that is gone in the next version."""
    pipeline.spoiled = raising("extract")
    pipeline.say("Ana likes POISON", first=50)
    pipeline.run()
    pipeline.spoiled = lambda stage: stage


def test_dead_letters_are_sent_again(pipeline: Pipeline) -> None:
    poison(pipeline)
    seen = diagnosed(pipeline, "queue")
    assert seen["status"] == "unhealthy"
    assert "1 dead letter among 6 recent turns" in seen["reason"]
    assert "repair queue" in seen["recommendation"]
    assert repaired(pipeline, "queue", dry_run=True)["scopes"] == {"ana": {"dead_letters": 1}}
    done = repaired(pipeline, "queue")
    assert done["score_after"] is None
    pipeline.run()
    assert diagnosed(pipeline, "queue")["score"] == 1.0
    assert "Ana likes POISON" in pipeline.memories()
    assert pipeline.balance().holds
    settings = settings_of(pipeline.folder)
    pipeline.close()
    assert rebuilt(settings).is_equal


def test_what_no_one_can_send_again_is_told(pipeline: Pipeline) -> None:
    pipeline.raw(CONVERSATION_TURNS, b"{")
    pipeline.run()
    assert diagnosed(pipeline, "queue")["score"] < 1.0
    planned = repaired(pipeline, "queue", dry_run=True)
    assert [{*each} for each in planned["scopes"].values()] == [{"refused"}]


def test_records_that_wait_for_long(pipeline: Pipeline) -> None:
    pipeline.say("Ana likes tulips", first=60)
    pipeline.clock.advance(minutes=4)
    assert diagnosed(pipeline, "queue")["score"] == 1.0
    pipeline.clock.advance(minutes=55)
    seen = diagnosed(pipeline, "queue")
    assert seen["status"] == "degraded"
    assert "2 records waiting for a stage, the oldest for 59 min" in seen["reason"]
    assert seen["recommendation"] == "palimpsest run"
    pipeline.run()
    assert diagnosed(pipeline, "queue")["score"] == 1.0


def double(pipeline: Pipeline) -> None:
    """A memory twice, as a process finds it that opens the store."""
    change(pipeline, A_DOUBLE)
    pipeline.reopen()


def test_exact_duplicates_become_one(pipeline: Pipeline) -> None:
    before = pipeline.state_by_table()
    double(pipeline)
    seen = diagnosed(pipeline, "duplicates")
    assert "1 of 9 extracted memories repeat another" in seen["reason"]
    assert repaired(pipeline, "duplicates", dry_run=True)["scopes"] == {"ana": {"repeated": 1}}
    repaired(pipeline, "duplicates")
    pipeline.run()
    assert diagnosed(pipeline, "duplicates")["score"] == 1.0
    [edge] = pipeline.rows("SELECT * FROM memory_edges WHERE relation_type = 'supersedes'")
    assert edge["target_id"] == "double"
    [told] = pipeline.rows("SELECT * FROM history_rows WHERE memory_id = 'double'")
    assert (told["event"], told["reason"]) == ("deleted", f"exact duplicate of {edge['source_id']}")
    # But for the duplicate, which is now forgotten, the store is as it was.
    change(
        pipeline,
        "DELETE FROM memory_rows WHERE memory_id = 'double'",
        "DELETE FROM memory_archive WHERE memory_id = 'double'",
        "DELETE FROM memory_edges WHERE target_id = 'double'",
    )
    assert {*differing(pipeline.state_by_table(), before)} == RECORDED


@pytest.mark.parametrize("pinned", ["double", "original", "both", "neither"])
def test_the_oldest_or_pinned_one_stays(pinned: str, pipeline: Pipeline) -> None:
    double(pipeline)
    [original] = pipeline.values(
        "SELECT memory_id FROM memory_rows WHERE content = 'Ana likes green tea'"
        " AND dedup_key IS NOT NULL"
    )
    ids = {"double": ["double"], "original": [original], "both": ["double", original]}
    for each in ids.get(pinned, []):
        change(pipeline, f"UPDATE memory_rows SET pinned = true WHERE memory_id = '{each}'")
    repaired(pipeline, "duplicates")
    pipeline.run()
    left = pipeline.rows(
        "SELECT memory_id, dedup_key FROM memory_rows WHERE content = 'Ana likes green tea'"
        " AND NOT is_deleted ORDER BY dedup_key NULLS LAST"
    )
    assert {row["memory_id"] for row in left} == {*ids.get(pinned, [original])}
    assert left[0]["dedup_key"] is not None


def test_another_scope_stays_as_it_is(pipeline: Pipeline) -> None:
    """With the same words in it, and named by a forged command."""
    double(pipeline)
    change(pipeline, "UPDATE memory_rows SET scope = 'ben' WHERE memory_id = 'double'")
    assert diagnosed(pipeline, "duplicates")["score"] == 1.0
    [mine] = pipeline.values(
        "SELECT memory_id FROM memory_rows WHERE content = 'Ana likes green tea' AND scope = 'ana'"
    )
    forged = RepairCommand(
        domain="duplicates",
        by="x",
        at=pipeline.clock(),
        score_before=0.5,
        merges=(Merge(keep=mine, forget=("double",)),),
    )
    pipeline.command(forged, first=90, actor=MAINTENANCE)
    pipeline.command(forged, first=91)
    pipeline.run()
    assert pipeline.values("SELECT is_deleted FROM memory_rows WHERE memory_id = 'double'") == [
        False
    ]
    assert pipeline.result(90)[1]["merged"] == 0
    assert str(pipeline.result(91)[0]).startswith("forbidden: ")


def forgotten(pipeline: Pipeline) -> None:
    ids = pipeline.values("SELECT memory_id FROM memory_rows WHERE scope = 'ana' LIMIT 6")
    pipeline.command(ForgetCommand(memory_ids=tuple(ids), reason="x"), first=70)
    pipeline.run()


def alike(pipeline: Pipeline) -> None:
    """Two memories with nearly the same vector, and other words."""
    change(
        pipeline,
        "UPDATE embeddings SET vector = (SELECT list_transform(vector, lambda v: v + 0.001) FROM"
        f" embeddings WHERE embedding_key = sha256('{REMEMBERED[0]}'))"
        f" WHERE embedding_key = sha256('{REMEMBERED[1]}')",
    )


OLD = "last_accessed = created_at + INTERVAL 1 HOUR, access_count = 1"
SEEN = {
    "forgotten memories": Damage("storage", forgotten, "46% of"),
    "the same words": Damage(
        "near_duplicates",
        lambda p: p.command(RememberCommand(content="Latin and Greek, Rita speaks"), first=80),
        "1 memory with the words of another",
    ),
    "nearly the same vector": Damage("near_duplicates", alike, "1 of 8 compared by vector"),
    "memories not recalled for long": Damage(
        "stale",
        sql(f"UPDATE memory_rows SET {OLD} WHERE type = 'fact'"),
        "ever recalled not within",
    ),
    "memories never recalled": Damage(
        "never_recalled", sql(f"UPDATE memory_rows SET {OLD} WHERE memory_id = {ONE}"), "never"
    ),
    "little worth": Damage(
        "low_value",
        sql(f"UPDATE memory_rows SET importance = 0.2 WHERE memory_id = {ONE}"),
        "1 of 8 extracted memories with an importance under 0.3 and no recall for 90 days",
    ),
    "a long memory": Damage(
        "overlong",
        sql(f"UPDATE memory_rows SET content = repeat('long ', 500) WHERE memory_id = {ONE}"),
        "1 of 8 extracted memories longer than 2,000 characters",
    ),
    "replies that no one can read": Damage(
        "providers",
        lambda p: p.say("? nothing", "? nothing at all", first=85),
        "2 failed",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_damage_that_is_only_told(name: str, pipeline: Pipeline) -> None:
    damage = SEEN[name]
    damage.do(pipeline)
    pipeline.run()
    pipeline.clock.advance(
        days=100 if damage.domain in ("stale", "never_recalled", "low_value") else 0
    )
    seen = diagnosed(pipeline, damage.domain)
    assert seen["score"] < 1.0, seen
    assert damage.told in seen["reason"]
    if seen["status"] != "healthy":
        assert seen["recommendation"] is not None


def test_what_is_pinned_or_recalled_is_no_low_value(pipeline: Pipeline) -> None:
    SEEN["little worth"].do(pipeline)
    assert diagnosed(pipeline, "low_value")["score"] == 1.0  # it is not old yet
    pipeline.clock.advance(days=100)
    seen = diagnosed(pipeline, "low_value")
    assert (seen["counts"]["low_value"], seen["score"]) == (1, 0.9375)
    for healed in ("pinned = true", "pinned = false, last_accessed = created_at + INTERVAL 99 DAY"):
        change(pipeline, f"UPDATE memory_rows SET {healed} WHERE memory_id = {ONE}")
        assert diagnosed(pipeline, "low_value")["score"] == 1.0


def test_the_newest_calls_of_a_model(pipeline: Pipeline) -> None:
    usage = Usage()
    for number in range(130):
        with suppress(OSError), usage.call("llm:openai"):
            if number >= 100:
                raise OSError
    with usage.call("embedding"):
        pass
    seen = diagnosed(pipeline, "providers", usage=usage)
    assert seen["score"] == 0.7
    assert "the language model answered 70 of 100 newest calls" in seen["reason"]
    assert "the embedding model answered 1 of 1 newest calls" in seen["reason"]
    for _ in range(100):
        with usage.call("llm:openai"):
            pass
    assert diagnosed(pipeline, "providers", usage=usage)["score"] == 1.0


def test_the_trend_of_the_last_days(pipeline: Pipeline) -> None:
    """A score a day, kept by the log: over a restart, a rebuild and a damage that was healed."""

    def append(records: Sequence[Outgoing]) -> None:
        pipeline.log.append(records)
        pipeline.run()

    def record() -> str:
        settings, log = pipeline.settings, pipeline.log
        context = JobContext(pipeline.shard, 0, pipeline.clock(), settings, log, append)
        return asyncio.run(record_scores(context))

    told, days = [], []
    for damage in ("SELECT 1", "DELETE FROM fts_docs WHERE scope = 'ana'", "SELECT 1"):
        change(pipeline, damage)
        told.append(record())
        days.append(pipeline.clock().date().isoformat())
        if told[-1] != "score 1":
            repaired(pipeline, "index")
            pipeline.run()
        pipeline.clock.advance(days=1)
    assert (told[0], told[2]) == ("score 1", "score 1")
    assert told[1].startswith("score 0.8")
    assert "index 0.1" in told[1]
    pipeline.reopen()
    found = Diagnose().read(sources_of(pipeline))
    index = found["domains"]["index"]["trend"]
    assert ([*index], index[days[0]], index[days[2]]) == (days, 1.0, 1.0)
    assert index[days[1]] < 0.2
    assert found["domains"]["queue"]["trend"] == dict.fromkeys(days, 1.0)
    assert [f"score {score:g}" for score in found["trend"].values()] == [
        each.partition(":")[0] for each in told
    ]
    status = asyncio.run(Status().read(sources_of(pipeline)))
    assert status["health"] == found["trend"]
    # It is of all scopes; no scope is made for it, and it ends.
    assert Diagnose(scope="ben").read(sources_of(pipeline))["trend"] == {}
    scopes = {each["scope"] for each in Scopes().read(sources_of(pipeline))["scopes"]}
    assert scopes == {"ana", "ben"}
    pipeline.clock.advance(days=DAYS)
    assert Diagnose("index").read(sources_of(pipeline))["trend"] == {}
    before = pipeline.rows("SELECT metadata FROM history_rows WHERE event = 'diagnosed'")
    settings = settings_of(pipeline.folder)
    pipeline.close()
    assert len(before) == 3
    assert rebuilt(settings).is_equal


def test_a_provider_that_does_not_answer(pipeline: Pipeline) -> None:
    seen = diagnosed(pipeline, "providers", outages={"embedding": Outage("refused", 3)})
    assert (seen["score"], seen["recommendation"]) == (0.5, "palimpsest doctor")
    assert "1 of 2 models do not answer" in seen["reason"]


def test_a_graph_that_nothing_is_written_to(pipeline: Pipeline) -> None:
    seen = diagnosed(pipeline, "graph")
    assert (seen["counts"]["enabled"], seen["counts"]["extraction_writes_enabled"]) == (1, 1)
    assert "turns add nothing" not in seen["reason"]
    graph = GraphSettings(extraction_writes_enabled=False)
    pipeline.settings = pipeline.settings.model_copy(update={"graph": graph})
    seen = diagnosed(pipeline, "graph")
    assert (seen["score"], seen["counts"]["extraction_writes_enabled"]) == (1.0, 0)
    assert "turns add nothing: graph.extraction_writes_enabled is off" in seen["reason"]
    pipeline.command(
        *(RememberCommand(content=f"it rained {n} times") for n in range(20)), first=90
    )
    pipeline.run()
    change(pipeline, *(f"DELETE FROM {name}_rows" for name in ("mention", "relation", "name")))
    seen = diagnosed(pipeline, "graph")
    assert (seen["score"], seen["status"]) == (0.5, "degraded")
    assert "turn on graph.extraction_writes_enabled" in seen["recommendation"]


def test_a_scope_of_its_own(pipeline: Pipeline) -> None:
    """Another scope's damage neither counts for a scope nor is repaired with it."""
    change(pipeline, "DELETE FROM fts_docs WHERE scope = 'ana'")
    found = Diagnose(scope="ben").read(sources_of(pipeline))
    assert found["domains"]["index"]["score"] == 1.0
    assert found["domains"]["index"]["counts"]["active"] == 2
    assert repaired(pipeline, "index", scope="ben")["scopes"] == {}
    assert [*repaired(pipeline, "index", scope="ana")["scopes"]] == ["ana"]
