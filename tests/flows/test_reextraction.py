"""Re-extraction into a branch, over real HTTP: another model's words, and what people did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from palimpsest.ops.replay.branches import branch_folder
from palimpsest.ops.replay.live_log import Ledger
from palimpsest.ops.replay.requests import Curated
from palimpsest.schemas.commands import (
    ConfirmCommand,
    ForgetCommand,
    ImportCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
)
from palimpsest.schemas.portable import NumberedLine, PortableMemory
from tests.messages import BEGIN
from tests.replayed import Live, facts, live_settings, provider, rows, said_of

TOPICS = (
    "walnuts", "coffee", "Lisbon", "violin", "chess", "tulips", "Norwegian", "sailing",
    "pottery", "beekeeping", "astronomy", "marathons", "falconry", "origami", "geology", "opera",
)  # fmt: skip
TURNS = tuple(f"Let me tell you about {topic}" for topic in TOPICS)
OLD = {turn: [f"Ana is fond of {topic}"] for turn, topic in zip(TURNS, TOPICS, strict=True)}
NEW = {
    turn: [f"Ana has been fond of {topic} for years"]
    for turn, topic in zip(TURNS, TOPICS, strict=True)
}


def curated(live: Live, name: str = "new") -> list[Curated]:
    with Ledger.opened(branch_folder(live.settings, name)) as ledger:
        return ledger.curated()


def modify(memory_id: str, **fields: object) -> ModifyCommand:
    patch = MemoryPatch.model_validate({"memory_id": memory_id, **fields})
    return ModifyCommand(patches=(patch,), reason="a person did")


async def test_what_people_did_is_done_again_in_other_words(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS)
        await live.run()
        known = live.facts()
        ids = [known[f"Ana is fond of {topic}"] for topic in TOPICS]
        for number in range(5):
            live.command(modify(ids[number], importance=0.77, tags=("seen",)))
        for number in range(5, 10):
            live.command(ForgetCommand(memory_ids=(ids[number],), reason="not any more"))
        for number in range(10, 13):
            live.command(modify(ids[number], pinned=True))
        for number in range(13, 16):
            live.command(modify(ids[number], content=f"Ana loathes {TOPICS[number]}"))
        await live.run()
        before = live.unchanged()
        asked = len(server.posts)
        done = await live.branch()
        assert (done.ended, done.turns, done.commands, done.waiting) == ("done", 16, 16, 0)
        assert live.unchanged() == before
        assert len(server.posts) - asked == 16
    told = {row.live_id: row for row in curated(live)}
    assert told.keys() == set(ids)
    assert {row.status for row in told.values()} == {"re-applied"}
    assert {row.matched_by for row in told.values()} == {"embedding"}
    own = facts(live.of_branch())
    kept = [*TOPICS[:5], *TOPICS[10:13]]
    assert own.keys() == {
        *(f"Ana has been fond of {topic} for years" for topic in kept),
        *(f"Ana loathes {topic}" for topic in TOPICS[13:]),
    }
    by_content = dict(
        rows(live.of_branch(), "SELECT content, (importance, tags, pinned) FROM memory_rows")
    )
    for topic in TOPICS[:5]:
        found = by_content[f"Ana has been fond of {topic} for years"]
        assert (round(found[0], 2), found[1]) == (0.77, ["seen"])
    for topic in TOPICS[10:13]:
        assert by_content[f"Ana has been fond of {topic} for years"][2] is True


async def test_a_forgotten_fact_does_not_come_back_in_other_words(tmp_path: Path) -> None:
    turn = "I take pills for my heart, and I live by the harbour"
    old = {turn: ["Ana takes pills for her heart", "Ana lives by the harbour"]}
    new = {
        turn: [
            "Ana takes daily pills for her weak heart",
            "For her heart Ana takes pills",
            "Ana lives right by the harbour",
        ]
    }
    async with provider({"old": old, "new": new}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(turn)
        await live.run()
        forgotten = live.facts()["Ana takes pills for her heart"]
        live.command(ForgetCommand(memory_ids=(forgotten,), reason="nobody's business"))
        await live.run()
        await live.branch()
        assert list(facts(live.of_branch())) == ["Ana lives right by the harbour"]
        assert Counter(row.status for row in curated(live)) == {"re-applied": 1, "suppressed": 1}
        # Said again by another turn it is new; of the same turn it stays forgotten.
        live.say(turn, first=2)
        await live.run()
        await live.branch()
        assert len(facts(live.of_branch())) == 3


async def test_what_finds_no_counterpart_is_listed(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": {**NEW, TURNS[0]: ["The weather is nice"]}}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS[:2])
        await live.run()
        ids = live.facts()
        live.command(modify(ids["Ana is fond of walnuts"], content="Ana hates walnuts"))
        live.command(modify(ids["Ana is fond of coffee"], content="Ana hates tea", if_version=7))
        live.command(modify("00000000-0000-5000-8000-000000000000", pinned=True))
        await live.run()
        await live.branch()
    found = [(row.live_id, row.status) for row in curated(live)]
    assert found == [
        (ids["Ana is fond of walnuts"], "no counterpart"),
        (ids["Ana is fond of coffee"], "not carried out"),
        ("00000000-0000-5000-8000-000000000000", "not carried out"),
    ]
    assert set(facts(live.of_branch())) == {
        "The weather is nice", "Ana has been fond of coffee for years"
    }  # fmt: skip


async def test_the_same_id_is_no_counterpart_where_the_words_are_others(tmp_path: Path) -> None:
    """The same model, asked again, may tell its facts in another order: ids count places."""
    turn = "I keep goats, and I paint boats"
    said = {turn: ["Ana keeps goats", "Ana paints boats"]}
    async with provider({"old": said}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(turn)
        await live.run()
        goats = live.facts()["Ana keeps goats"]
        live.command(ForgetCommand(memory_ids=(goats,), reason="sold them"))
        await live.run()
        said[turn].reverse()
        await live.branch("again", model=None)
    assert list(facts(live.of_branch("again"))) == ["Ana paints boats"]
    [row] = curated(live, "again")
    assert row.live_id != row.branch_id


async def test_a_correction_finds_what_an_earlier_command_has_changed(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(TURNS[0])
        await live.run()
        [known] = live.facts().values()
        live.command(modify(known, content="Ana collects stamps of all things"))
        live.command(ForgetCommand(memory_ids=(known,), reason="wrong"))
        live.command(RecoverCommand(memory_id=known, reason="right after all", if_version=3))
        live.command(modify(known, pinned=True, if_version=4))
        await live.run()
        await live.branch()
    assert [row.status for row in curated(live)] == ["re-applied"] * 4
    assert len({row.branch_id for row in curated(live)}) == 1
    assert list(facts(live.of_branch())) == ["Ana collects stamps of all things"]


async def test_a_correction_that_the_model_knew_already_makes_one_memory(tmp_path: Path) -> None:
    turn = "I paint boats"
    new = {turn: ["Ana paints big boats", "Ana paints canoes"]}
    async with provider({"old": {turn: ["Ana paints ships"]}, "new": new}) as server:
        live = Live(live_settings(tmp_path, server.url, decision={"decider": "rules", "near": 0.3}))
        live.say(turn)
        await live.run()
        [known] = live.facts().values()
        live.command(modify(known, content="Ana paints canoes"), modify(known, pinned=True))
        await live.run()
        await live.branch()
        kept = rows(live.of_branch(), "SELECT pinned FROM memory_rows WHERE dedup_key IS NOT NULL")
    assert list(facts(live.of_branch())) == ["Ana paints canoes"]
    assert kept == [(True,)]
    assert [row.status for row in curated(live)] == ["re-applied", "suppressed", "re-applied"]


async def test_an_imported_fact_keeps_its_id(tmp_path: Path) -> None:
    taken = PortableMemory(
        id="11111111-1111-5111-8111-111111111111",
        type="fact",
        content="Ana keeps goats",
        importance=0.5,
        confidence=0.9,
        why="extracted-fact",
        source_type="extraction",
        occurred_at=BEGIN,
        created_at=BEGIN,
        updated_at=BEGIN,
    )
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        lines = (NumberedLine(number=1, line=taken),)
        live.command(ImportCommand(from_scope="ana", lines=lines))
        live.command(
            modify(taken.id, pinned=True), ForgetCommand(memory_ids=(taken.id,), reason="x")
        )
        live.command(ConfirmCommand(memory_id=taken.id))
        await live.run()
        await live.branch()
    assert [(row.status, row.branch_id) for row in curated(live)] == [
        ("re-applied", taken.id),
        ("refused", taken.id),
        ("re-applied", taken.id),
    ]
    assert list(facts(live.of_branch())) == ["Ana keeps goats"]


async def test_turns_outside_the_selection_keep_what_was_extracted(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url, log={"partitions": 2}))
        live.say(*TURNS[:4])
        live.say(*TURNS[4:8], scope="ben")
        await live.run()
        asked = len(server.posts)
        for _ in range(2):
            await live.branch(scope="ben")
        assert {said_of(call) for call in server.posts[asked:]} - {None} == set(TURNS[4:8])
        own = live.of_branch()
        assert set(facts(own)) == {words for turn in TURNS[:4] for words in OLD[turn]}
        assert set(facts(own, "ben")) == {words for turn in TURNS[4:8] for words in NEW[turn]}
        asked = len(server.posts)
        done = await live.branch("some", sample=3)
        assert done.turns == 8
        assert len({said_of(call) for call in server.posts[asked:]} - {None}) == 3
