"""Runs of a re-extraction: budgets, live memories that go on, erasures, refusals, estimates."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.parts import SetupError
from palimpsest.ops.replay.branches import (
    BranchManifest,
    branch_folder,
    branch_statuses,
    drop_unused,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.reextraction import differing, estimate
from palimpsest.ops.replay.requests import Reextract, ReplayProgress
from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    DismissProposalsCommand,
    EraseScopeCommand,
    ForgetCommand,
    RememberCommand,
)
from palimpsest.schemas.identity import erase_token
from palimpsest.streams.logs.base import LogError
from tests.erased_bytes import where
from tests.flows.test_reextraction import NEW, OLD, TURNS, curated
from tests.harness import differing as different
from tests.messages import BEGIN
from tests.replayed import Live, facts, live_settings, provider, rows, said_of, state


async def without_files(live: Live) -> None:
    """Process all, and carry out nothing of what erasures are in files."""
    async with application(live.settings) as app:
        while not app.worker.drained:
            app.worker = app.worker.resumed()
            await app.worker.run(until_drained=True)


@pytest.mark.parametrize("decider", ["rules", "model"])
async def test_a_budget_is_not_passed_and_a_larger_one_goes_on(
    decider: str, tmp_path: Path
) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        sections = {"extraction": {"max_output_tokens": 256}, "decision": {"decider": decider}}
        live = Live(live_settings(tmp_path, server.url, **sections))
        live.say(*TURNS[:10])
        await live.run()
        whole = await live.branch("whole")
        spent = []
        for budget in (10, 2_000, 100_000):
            done = await live.branch(budget_tokens=budget)
            assert done.spent.tokens <= budget
            spent.append((done.ended, done.spent.calls))
        assert [ended for ended, _ in spent] == ["budget", "budget", "done"]
        assert spent[0][1] == 0 < spent[1][1] < whole.spent.calls <= spent[2][1]
    assert different(state(live.of_branch()), state(live.of_branch("whole"))) == []


async def test_the_live_memory_goes_on_and_what_comes_is_fed_later(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS[:6])
        await live.run()
        async with application(live.settings) as app:
            working = asyncio.create_task(app.worker.run())
            feeding = asyncio.create_task(live.branch())
            live.say(*TURNS[6:12], first=7)
            done = await feeding
            assert done.ended == "done"
            app.stop()
            await working
        await live.run()
        assert len(live.facts()) == 12
        later = await live.branch()
        assert later.branch.whole
        assert done.turns + later.turns == 12
        assert set(facts(live.of_branch())) == {text for turn in TURNS[:12] for text in NEW[turn]}
        assert [(each["behind"], each["erasures"]) for each in branch_statuses(live.settings)] == [
            (0, 0)
        ]
        await live.branch("at-once")
    assert different(state(live.of_branch()), state(live.of_branch("at-once"))) == []


async def test_what_is_erased_live_is_erased_in_the_branch_when_it_is_fed(tmp_path: Path) -> None:
    turn, fact = "My doctor says I have gout", "Ana suffers from gout"
    old, new = {turn: ["Ana has gout"], **OLD}, {turn: [fact], **NEW}
    async with provider({"old": old, "new": new}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(turn, TURNS[0])
        await live.run()
        await live.branch()
        assert where(branch_folder(live.settings, "new"), turn, fact)
        [told] = live.rows("SELECT memory_id FROM memory_rows WHERE content = ?", turn)
        known = live.facts()["Ana has gout"]
        live.command(ForgetCommand(memory_ids=(told[0], known), reason="private", hard=True))
        await live.run()
        [standing] = branch_statuses(live.settings)
        assert (standing["erasures"], standing["behind"]) == (1, 1)
        await live.branch()
        assert where(branch_folder(live.settings, "new"), turn, fact, "gout") == []
        assert list(facts(live.of_branch())) == NEW[TURNS[0]]
        assert [each["erasures"] for each in branch_statuses(live.settings)] == [0]
        # A branch made later never gets to know of it.
        asked = len(server.posts)
        await live.branch("later")
        assert [said_of(call) for call in server.posts[asked:]] == [TURNS[0]]
        assert where(branch_folder(live.settings, "later"), turn, fact, "gout") == []


async def test_what_the_log_still_says_of_an_erased_turn_reaches_no_model(tmp_path: Path) -> None:
    """As on Kafka, where single records stay what they were."""
    turn = "My doctor says I have gout"
    async with provider({"old": {turn: ["Ana has gout"], **OLD}, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(turn, *TURNS[:2])
        live.say(TURNS[2], scope="ben", first=9)
        live.command(RememberCommand(content="Ana sees Dr Gout on Mondays"))
        await live.run()
        ids = [key for (key,) in live.rows("SELECT memory_id FROM memory_rows WHERE scope = 'ana'")]
        live.command(EraseScopeCommand(reason="x", confirm_token=erase_token("ana", len(ids))))
        await without_files(live)
        live.say(TURNS[4], first=20)
        await without_files(live)
        assert where(tmp_path / "log", turn)
        asked = len(server.posts)
        await live.branch()
        prompts = [said_of(call) for call in server.posts[asked:]]
        assert sorted(filter(None, prompts)) == sorted([TURNS[2], TURNS[4]])
        assert where(branch_folder(live.settings, "new"), turn, "gout") == []


async def test_a_fact_that_was_erased_does_not_come_back_from_its_turn(tmp_path: Path) -> None:
    """Nobody knows any more what it said: all that no other live fact accounts for goes."""
    turn = "I have gout, and I paint boats"
    old = {turn: ["Ana has gout", "Ana paints boats"]}
    new = {turn: ["Gout plagues Ana", "Ana likes to paint boats"]}
    async with provider({"old": old, "new": new}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(turn)
        await live.run()
        live.command(
            ForgetCommand(memory_ids=(live.facts()["Ana has gout"],), reason="private", hard=True)
        )
        await live.run()
        await live.branch()
    assert list(facts(live.of_branch())) == ["Ana likes to paint boats"]
    assert [(row.status, row.matched_by) for row in curated(live)] == [("suppressed", "erased")]


async def test_an_erased_scope_is_erased_however_many_memories_the_branch_has(
    tmp_path: Path,
) -> None:
    async with provider({"old": OLD, "new": {TURNS[0]: ["One", "Two", "Three"]}}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(TURNS[0])
        await live.run()
        await live.branch()
        live.command(EraseScopeCommand(reason="she left", confirm_token=erase_token("ana", 99)))
        live.command(EraseScopeCommand(reason="she left", confirm_token=erase_token("ana", 2)))
        await live.run()
        await live.branch()
    assert facts(live.of_branch()) == {}
    assert [row.status for row in curated(live)] == ["not carried out", "re-applied"]


async def test_held_changes_are_applied_and_dismissed_by_what_they_say(tmp_path: Path) -> None:
    turns = ("I drink coffee", "I don't drink coffee", "I play chess", "I don't play chess")
    old = {
        turns[0]: ["Ana drinks coffee every morning"],
        turns[1]: ["Ana doesn't drink coffee every morning"],
        turns[2]: ["Ana plays chess on Sundays"],
        turns[3]: ["Ana doesn't play chess on Sundays"],
    }
    new = {turn: [f"{facts[0]} now"] for turn, facts in old.items()}
    held = "SELECT item_id FROM outcomes WHERE event = 'blocked' ORDER BY item_id"
    async with provider({"old": old, "new": new}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*turns)
        await live.run()
        items = dict(live.rows("SELECT content, item_id FROM held_proposals"))
        assert len(items) == 2
        applied = items["Ana doesn't drink coffee every morning"]
        dismissed = items["Ana doesn't play chess on Sundays"]
        live.command(ApplyProposalsCommand(item_ids=(applied,), reason="yes"))
        live.command(DismissProposalsCommand(item_ids=(dismissed, "unknown"), reason="no"))
        await live.run()
        await live.branch()
    assert rows(live.of_branch(), held) == []
    assert set(facts(live.of_branch())) == {
        "Ana doesn't drink coffee every morning now", "Ana plays chess on Sundays now"
    }  # fmt: skip
    assert Counter((row.command, row.status) for row in curated(live)) == {
        ("apply-proposals", "re-applied"): 1,
        ("dismiss-proposals", "re-applied"): 1,
        ("dismiss-proposals", "not carried out"): 1,
    }


async def test_a_turn_outside_the_selection_waits_for_the_live_extraction(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS[:2])
        await live.run()
        live.say(*TURNS[2:4], first=3)
        live.command(RememberCommand(content="Ana has a boat"))
        await live.run("normalize", "apply-writes")
        done = await live.branch(until=BEGIN)
        assert (done.ended, done.turns, done.waiting) == ("done", 2, 3)
        await live.run()
        done = await live.branch(until=BEGIN)
        assert (done.turns, done.waiting) == (2, 0)
        assert done.spent.calls == 0
    assert facts(live.of_branch()).keys() == live.facts().keys()


async def test_an_estimate_tells_what_a_run_takes_and_does_nothing(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        prices = {"input_price": 10.0, "output_price": 100.0}
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS)
        await live.run()
        before, asked = live.unchanged(), len(server.posts)
        own = differing(live.settings, [f"llm.{k}={v}" for k, v in prices.items()], None, "new")
        told = estimate(live.settings, Reextract("new", overrides=own, rate=2.0))
        assert (told.turns, told.recorded, told.input_tokens, told.output_tokens) == (
            *(16, True, 1600, 320),
        )
        assert told.cost == pytest.approx(1600 * 10e-6 + 320 * 100e-6)
        assert told.seconds == pytest.approx(8.0)
        some = estimate(live.settings, Reextract("new", overrides=own, sample=4))
        assert (some.turns, some.all_turns, some.output_tokens) == (4, 16, 80)
        assert (live.unchanged(), len(server.posts)) == (before, asked)
        assert branch_statuses(live.settings) == []


async def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS[:2])
        await live.run()
        with pytest.raises(SetupError, match="model"):
            await live.branch("absent", model="nobody")
        assert branch_statuses(live.settings) == []
        await live.branch()
        for wrong in ({"model": "old"}, {"scope": "ben"}):
            with pytest.raises(RequestError, match="was made with"):
                await live.branch(**wrong)  # type: ignore[arg-type]
        assert (await live.branch(model=None)).ended == "done"
        for name in ("Up", "a/b", ".."):
            with pytest.raises(RequestError, match="cannot name a branch"):
                await live.branch(name)
        rebuilt = BranchManifest(name="old", kind="rebuild", created_at=BEGIN, partitions=1)
        keep_branch(live.settings, rebuilt)
        with pytest.raises(RequestError, match="replay rebuild"):
            await live.branch("old")
        for given, why in (
            ((["llm.api_key=x"], None, None), "secret"),
            ((["log.kind=kafka"], None, None), "live log"),
            (([], "anthropic", None), "--model"),
            (([], "anthropic", "claude"), "base_url"),
        ):
            with pytest.raises(RequestError, match=why):
                differing(live.settings, *given)
        # The rules have one model, and no address.
        assert differing(live.settings, [], "rules") == ("llm.model=rules-2", "llm.provider=rules")
        async with application(live.of_branch()):
            with pytest.raises(LogError, match="being processed"):
                await live.branch()
            with pytest.raises(RequestError, match="works on the branch"):
                drop_unused(live.settings, "new")
        drop_unused(live.settings, "new")
        with pytest.raises(NotFoundError):
            read_branch(live.settings, "new")


async def test_a_stop_ends_it_and_the_rate_is_kept(tmp_path: Path) -> None:
    async with provider({"old": OLD, "new": NEW}) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS)
        await live.run()
        stopping = asyncio.Event()
        told: list[ReplayProgress] = []

        def report(step: ReplayProgress) -> None:
            told.append(step)
            stopping.set()

        done = await live.branch(report=report, stopping=stopping, rate=0.01)
        assert done.ended == "stopped"
        assert told == [ReplayProgress("extracting", 1, 32)]
        assert (await live.branch()).ended == "done"
    assert set(facts(live.of_branch())) == {text for turn in TURNS for text in NEW[turn]}
