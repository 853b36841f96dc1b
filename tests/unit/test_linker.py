"""The inline linker: which names of a text may be entities, the same before and after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.rows.graph import NameRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.scope_caches import NameCache, NameView
from palimpsest.streams.memory_rows import archived, changed, deleted, with_content
from palimpsest.streams.store_port import Graph, LoadGraph, MemoryText, Progress, Put
from palimpsest.streams.text.linker import (
    MAX_NAMES,
    candidate_names,
    canonical_name,
    names_in,
    unspaced_part,
)
from tests.examples import examples
from tests.messages import BEGIN
from tests.unit.by_hand import memory


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("we met Rita in Oslo", {"rita", "oslo"}),
        ("New York City is big", {"new", "york", "city", "new york", "york city", "new york city"}),
        ("Rita's cat", {"rita", "rita's"}),
        ("run R2D2 on AWS with python3.11", {"r2d2", "aws", "r2d2 on aws"} - {"r2d2 on aws"}),
        ('the "quiet room" there', {"quiet room"}),
        ("«тихая комната» там", {"тихая комната"}),
        ("iPhone and McDonald", {"iphone", "mcdonald"}),
        ("nothing here at all", set()),
        ("Ana, Ben", {"ana", "ben"}),
        ("A cat", set()),
        ("", set()),
    ],
)
def test_candidate_names(text: str, names: set[str]) -> None:
    found = set(candidate_names(text))
    assert names <= found
    if not names:
        assert not {name for name in found if len(name) > 1}
    assert "r2d2 on aws" not in found


def test_how_a_name_stands_in_the_text_is_kept() -> None:
    assert candidate_names("we love OSLO and Oslo")["oslo"] == "OSLO"


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("we met in OSLO", "oslo", "OSLO"),
        ("oslo is small here", "oslo", None),
        ("Bartholomew came", "art", None),
        ("東京都に住んでいます", "東京", "東京"),
        ("나는 서울에서 일한다", "서울", "서울"),
        ("서울대학교에 다닌다", "서울", None),
        ("지수는 왔다", "지수", "지수"),
        ("수지수학 학원", "지수", None),
        ("이지수입니다", "지수", None),
        ("هل رأيت علي؟", "علي", "علي"),
        ("السلام عليك", "علي", None),
        ("العلي الكبير", "علي", None),
        ("جاء وليام اليوم", "ليام", None),
        ("سافرت إلى القاهرة،", "القاهرة", "القاهرة"),
        ("نسكن بالقاهرة", "القاهرة", "القاهرة"),
        ("والسودان بعيد", "السودان", "السودان"),
        ("إلى السودان", "سودان", "سودان"),
        ("القاهرةي", "القاهرة", None),
        ("פגשתי את דנה.", "דנה", "דנה"),
        ("הדנהים באו", "דנה", None),
        ("אני גר בירושלים", "ירושלים", "ירושלים"),
        ("לאורה כאן", "אורה", None),
        ("राम ने कहा।", "राम", "राम"),
        ("रामायण पढ़ी", "राम", None),
        ("आराम करो", "राम", None),
        ("नई दिल्ली में", "दिल्ली", "दिल्ली"),
        ("தமிழ் நாடு", "தமிழ்", "தமிழ்"),
        ("ฉันอยู่กรุงเทพมหานคร", "กรุงเทพ", "กรุงเทพ"),
        ("ﾄﾖﾀの車", "トヨタ", "トヨタ"),
        ("Bobby came", "bob", None),
        ("Bob-like", "bob", None),
        ("It is raining", "it", None),
        ("the IT team", "it", "IT"),
        ("We met", "we", None),
        ("Oslo", "東京", None),
    ],
)
def test_names_in(text: str, name: str, shown: str | None) -> None:
    assert names_in(text, name) == shown


@given(st.text())
def test_a_canonical_name_is_its_own(name: str) -> None:
    once = canonical_name(name)
    assert canonical_name(once) == once or not once.isascii()


@given(st.text(max_size=400))
def test_no_text_breaks_it_or_makes_it_long(text: str) -> None:
    assert len(candidate_names(text)) <= MAX_NAMES
    unspaced_part(text)


# --- linking afterwards finds what linking at once would have ---------------------------------


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    shard = Shard(tmp_path_factory.mktemp("shard"), ShardOptions("hashing-1-16", 16))
    yield shard
    shard.close()


def progress(number: int) -> Progress:
    return Progress("apply-writes", {"memory-writes": number}, [], [], -1)


WORDS = st.sampled_from(
    """Ana Oslo New York R2D2 Python 3.11 3.11/3.12 Coca-Cola Coca-Cola's Node.js C++ "quiet the The
    Who and 东京 東京都に عليك علي דנה ודנה दिल्ली กรุงเทพ McDonald O'Brien It running Running v0.58.1
    Ångström straße Straße ß «Тихая» _X_ E-Mail 1,000 iPhone get_User 007 A7
    ﾄﾖﾀ Ｏｓｌｏ ㍿トヨタ Ⅷ İzmir ﬁEld Анну Карениной Коле 🦊 🦊Fox""".split()
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(words=st.lists(WORDS, min_size=1, max_size=6), speaker=st.sampled_from(["", "Dr. No"]))
@example(words=["Python", "3.11/3.12"], speaker="")
@example(words=["The", "Who"], speaker="")
@example(words=["عليك", "علي"], speaker="")
@example(words=["ﾄﾖﾀ", "Ｏｓｌｏ"], speaker="")
@example(words=["İzmir", "ﬁEld", "Ⅷ"], speaker="")
@example(words=["㍿トヨタ"], speaker="Ｏｓｌｏ")
def test_what_the_linker_would_find_is_found_afterwards(
    shard: Shard, words: list[str], speaker: str
) -> None:
    content = " ".join(words)
    # A scope of its own each time: what is searched is only this memory.
    scope = f"scope {content} {speaker}"
    row = memory(f"id {scope}", content, scope=scope, type="episodic", who=speaker, write_seq=1)
    unit = shard.unit()
    if unit._rows.get(MemoryRow, row.key) is None:  # else it is an example that was tried before
        unit.stage([Put(row)])
        unit.commit(progress(1))
    text = linked_text("episodic", speaker, content)
    names = {name for name in candidate_names(text) if len(name) >= 2}
    names |= {w for w in unspaced_part(text).split() if len(w) >= 2}
    graph = shard.unit().answer(LoadGraph(scope, tuple(sorted(names))))
    assert isinstance(graph, Graph)
    for name in names:
        assert row.memory_id in graph.naming[name], name
        assert graph.texts[row.memory_id] == (MemoryText(row.embedding_key, text),)


def test_replaced_texts_and_tombstones_are_found_too(shard: Shard) -> None:
    first = memory("changing", "we met in Trondheim", scope="changes", write_seq=1)
    second = with_content(changed(first, BEGIN, "pipeline", 2), "we met in Bodø")
    gone = deleted(changed(second, BEGIN, "pipeline", 3), BEGIN)
    rows: list[MemoryRow] = [first, second, gone]
    for number, row in enumerate(rows):
        unit = shard.unit()
        unit._rows.get(MemoryRow, (row.memory_id,))
        if number:
            unit.stage([Put(archived(rows[number - 1], "changed", BEGIN))])
        unit.stage([Put(row)])
        unit.commit(progress(1))
    graph = shard.unit().answer(LoadGraph("changes", ("trondheim", "bodø", "oslo")))
    assert isinstance(graph, Graph)
    assert graph.naming == {
        "trondheim": ("changing",),
        "bodø": ("changing",),
        "oslo": (),
    }
    texts = [(each.key, each.text) for each in graph.texts["changing"]]
    assert texts[:2] == [(each.embedding_key, each.content) for each in (first, second)]


# --- known names ------------------------------------------------------------------------------


def name_row(name: str) -> NameRow:
    return NameRow(
        name_id=entity_id("ana", name),
        entity_id=entity_id("ana", name),
        scope="ana",
        name=name,
        canonical_name=name,
        entity_type="unknown",
        first_seen=BEGIN,
        updated_at=BEGIN,
    )


def test_a_batch_sees_its_own_names_and_others_only_after_the_commit(shard: Shard) -> None:
    cache = NameCache(shard.reading)
    mine, theirs = NameView(cache), NameView(cache)
    mine.match("ana", ("oslo",), "")
    mine.staged(name_row("oslo"))
    mine.staged(name_row("kristiania"))
    wanted = ("oslo", "kristiania", "bergen")
    assert set(mine.match("ana", wanted, "")) == {"oslo", "kristiania"}
    assert theirs.match("ana", wanted, "") == {}
    assert mine.match("ben", wanted, "") == {}
    mine.commit()
    assert set(theirs.match("ana", wanted, "")) == {"oslo", "kristiania"}


def test_unspaced_names_are_looked_for_in_the_text(shard: Shard) -> None:
    view = NameView(NameCache(shard.reading))
    view.staged(name_row("東京"))
    assert set(view.match("ana", (), "東京都に住む")) == {"東京"}
    assert view.match("ana", (), "大阪に住む") == {}
