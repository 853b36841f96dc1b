"""Recall over any history of a few scopes: none sees another, and a restart changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.recall.query import Query
from tests.examples import examples
from tests.memory_rows import after, drawn, embed, memory, open_shard, write
from tests.unit.recall_parts import answer, ids, said_anew

TEXT = st.lists(
    st.sampled_from(
        ["tea", "violin", "kitten", "ski", "the", "red", "Ana", "Ben", "May", "2026", "reads"]
    ),
    min_size=1,
    max_size=7,
).map(" ".join)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Row]]:
    """Batches of turns, facts drawn from them, changes and deletions over three scopes."""
    batches: list[list[Row]] = []
    seq = 0
    last: dict[tuple[str, str], str] = {}
    known: dict[str, MemoryRow] = {}
    for _ in range(draw(st.integers(1, 5))):
        batch: list[Row] = []
        for _ in range(draw(st.integers(1, 8))):
            seq += 1
            scope = draw(st.sampled_from(("ana", "ben", "a'na")))
            what = draw(st.sampled_from(("turn", "turn", "fact", "change", "delete")))
            mine = [i for i, row in known.items() if row.scope == scope]
            text = draw(TEXT)
            if what in ("turn", "fact") or not mine:
                kind = "episodic" if what == "turn" else "fact"
                session = draw(st.sampled_from(("s1", "s2")))
                who = draw(st.sampled_from(("Ana", "Ben")))
                row = memory(
                    f"{scope}{seq}", text, seq, type=kind, scope=scope, who=who,
                    session_id=session if kind == "episodic" else "",
                )  # fmt: skip
                batch.append(row)
                if kind == "episodic":
                    before = last.get((scope, session))
                    if before is not None:
                        batch.append(after(before, row.memory_id, row.scope))
                    last[(scope, session)] = row.memory_id
                elif turns := [i for i in mine if known[i].type == "episodic"]:
                    batch.append(drawn(row.memory_id, draw(st.sampled_from(turns)), scope))
            else:
                row = known[draw(st.sampled_from(mine))]
                row = replace(row, write_seq=seq, version=row.version + 1)
                if what == "delete":
                    row = replace(row, is_deleted=True)
                else:
                    row = replace(said_anew(row, text), is_deleted=False)
                batch.append(row)
            known[row.memory_id] = row
        batches.append(batch)
    return batches


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.too_slow])
@given(histories(), TEXT, st.booleans())
def test_no_scope_sees_another_and_a_restart_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], text: str, group: bool
) -> None:
    folder = tmp_path_factory.mktemp("shard")
    shard = open_shard(folder)
    scopes = {row.scope for batch in batches for row in batch if isinstance(row, MemoryRow)}
    queries = [Query(s, text, 50, group=group, neighbours=1, explain=True) for s in scopes]
    queries = sorted(queries, key=lambda query: query.scope)
    for batch in batches:
        write(shard, batch)
        for query in queries:
            for vector in (embed(text), None):
                found = answer(shard, query, vector)
                assert all(result.scope == query.scope for result in found.results)
                beside = [n.id for result in found.results for n in result.neighbours]
                assert all(i.startswith(query.scope) for i in (*ids(found), *beside))
    kept = [answer(shard, q, embed(text)) for q in queries]
    shard.indexes.clear()
    assert kept == [answer(shard, q, embed(text)) for q in queries]
    shard.close()
    shard = open_shard(folder)
    assert kept == [answer(shard, q, embed(text)) for q in queries]
    shard.close()


@pytest.mark.parametrize("recovered", ["ab", "ba"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_turns_of_a_session_that_was_deleted_return_to_their_positions(
    tmp_path: Path, recovered: str, goes_on: bool
) -> None:
    a, b, c = (memory(i, "tea", n, type="episodic", session_id="s1") for n, i in enumerate("abc"))
    shard = open_shard(tmp_path)
    query = Query(a.scope, "tea", group=False, neighbours=1)
    gone = [replace(row, version=2, is_deleted=True) for row in (a, b)]
    write(shard, [a, b, after("a", "b", a.scope), *gone])
    assert not answer(shard, query).results  # the index is loaded without them
    if goes_on:
        write(shard, [c, after("b", "c", a.scope)])
    for name in recovered:
        write(shard, [replace({"a": a, "b": b}[name], version=3)])
    found = {each.id: each.neighbours for each in answer(shard, query).results}
    assert [(each.id, each.offset) for each in found["a"]] == [("b", 1)]
    assert [(e.id, e.offset) for e in found["b"]] == [("a", -1), ("c", 1)][: 1 + goes_on]
