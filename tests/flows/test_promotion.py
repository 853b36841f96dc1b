"""A branch is compared with the live memory, promoted, and rolled back."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.memories import Get
from palimpsest.ops.operations.provenance import History
from palimpsest.ops.replay.branches import TurnSelection, keep_branch, read_branch
from palimpsest.ops.replay.diff import compared
from palimpsest.ops.replay.differences import FactDifference, ScopeDiff
from palimpsest.ops.replay.promotion import alone, promote, rollback
from palimpsest.ops.replay.requests import Diff, Promote, Rollback
from palimpsest.ops.service.queries import queries
from palimpsest.schemas.commands import (
    ConfirmCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from tests.branches_by_hand import Lab
from tests.erased_bytes import where
from tests.messages import BEGIN

pytestmark = pytest.mark.usefixtures("sql_in_this_process")

TEXTS = (
    "Ana likes green tea. Ana lives in Oslo now.",
    "Ana has a dog named Rex.",
    "Ana does not like coffee.",
)
FIRST = {
    TEXTS[0]: ["Ana likes tea", "Ana lives in Oslo"],
    TEXTS[1]: ["Ana has a dog named Rex", "Rex is loud"],
    TEXTS[2]: ["Ana likes coffee"],
}
SECOND = {
    TEXTS[0]: ["Ana likes green tea", "Ana lives in Oslo"],
    TEXTS[1]: ["Ana has a dog named Rex", "Ana owns Rex"],
    TEXTS[2]: ["Ana does not like coffee"],
}
NEW = ["Ana does not like coffee", "Ana has a dog named Rex", "Ana likes green tea"]
NEW += ["Ana lives in Oslo", "Ana owns Rex"]


def said(by: dict[str, list[str]]) -> Callable[[str], list[str]]:
    return lambda text: by.get(text, [text])


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live memory with a branch, to be copied."""
    folder = tmp_path_factory.mktemp("made")

    async def making() -> None:
        made = Lab(folder, said(FIRST))
        await made.say(*TEXTS)
        await made.branch(said(SECOND), *TEXTS)

    asyncio.run(making())
    return folder


@pytest.fixture
def made(made_once: Path, tmp_path: Path) -> Lab:
    shutil.copytree(made_once, tmp_path / "data")
    return Lab(tmp_path / "data", said(FIRST))


async def promoted(made: Lab, **fields: Any) -> dict[str, int]:
    """What became of the only scope. The first answer is that it waits for a worker."""
    request = Promote("better", catch_up=False, allow_loss=True, **fields)
    await promote(made.settings, request)
    await made.run()
    [end] = (await promote(made.settings, request)).scopes
    assert end.status in ("applied", "nothing"), end
    return end.counts


def shown(each: FactDifference) -> tuple[str, str | None, str | None, str | None]:
    live, branch = each.live, each.branch
    return (
        each.kind,
        each.keep,
        None if live is None else live["content"],
        None if branch is None else branch["content"],
    )


def test_what_differs_is_told_side_by_side(made: Lab) -> None:
    async def trying() -> None:
        [scope] = await made.differences()
        found = await compared(made.settings, Diff("better"))
        assert found["totals"] == {"same": 2, "changed": 1, "gained": 2, "lost": 2}
        assert {shown(each) for each in scope.facts} == {
            ("changed", None, "Ana likes tea", "Ana likes green tea"),
            ("lost", None, "Rex is loud", None),
            ("lost", None, "Ana likes coffee", None),
            ("gained", None, None, "Ana does not like coffee"),
            ("gained", None, None, "Ana owns Rex"),
        }
        assert {each.evidence for each in scope.facts} == {(f"Ana: {text}",) for text in TEXTS}
        graph = {(part["kind"], part["name"]) for part in scope.graph if part["what"] == "relation"}
        assert ("gained", "Ana > owns > Rex") in graph
        assert ("lost", "Ana > likes > coffee") in graph
        spent = (scope.spent["live"]["turns"], scope.spent["branch"]["input_tokens"])
        assert spent == (3, 30)
        assert await compared(made.settings, Diff("better")) == found

    asyncio.run(trying())


def test_promoted_rolled_back_and_promoted_again(made: Lab) -> None:
    async def trying() -> None:
        before = await made.facts()
        planned = await promote(made.settings, Promote("better", catch_up=False, dry_run=True))
        assert planned.scopes[0].counts == {"gain": 2, "replace": 1, "lose": 2, "keep": 0}
        assert await made.facts() == before
        for _ in range(2):
            assert await promoted(made) == {"gained": 2, "changed": 1, "lost": 2, "kept": 0}
            after = await made.facts()
            assert [*after] == NEW
            for same in ("Ana lives in Oslo", "Ana has a dog named Rex"):
                assert after[same] == before[same]
            assert after["Ana likes green tea"] == before["Ana likes tea"]
            assert read_branch(made.settings, "better").promotion == ""
            assert (await compared(made.settings, Diff("better")))["totals"]["same"] == 5
            newest = (await made.promotions())[0]
            assert (newest.status, newest.branch, newest.scopes) == ("applied", "better", ("ana",))
            undo = Rollback(newest.promotion_id[:8])
            assert (await rollback(made.settings, undo)).scopes[0].status == "waiting"
            await made.run()
            assert await made.facts() == before
            assert await made.holds()
        assert [each.status for each in await made.promotions()] == ["rolled-back"] * 2

    asyncio.run(trying())


def test_what_is_promoted_is_explained(made: Lab) -> None:
    async def trying() -> None:
        await promoted(made, reason="a better model")
        owns = (await made.facts())["Ana owns Rex"]
        async with queries(made.settings) as asked:
            memory: Any = await asked.answer(Get(owns))
            history: Any = await asked.answer(History(owns))
        [event] = [each for each in history["events"] if each["event"] == "created"]
        assert event["reason"] == "a better model"
        assert event["metadata"]["branch"] == "better"
        assert event["metadata"]["extraction_model"] == "second-2"
        assert memory["extraction_model"] == "second-2"
        [relation] = await made.rows("SELECT * FROM relations WHERE relation_type = 'owns'")
        assert relation["mentions"] == 1

    asyncio.run(trying())


def test_what_another_model_drew_marks_nothing_as_outdated(made: Lab) -> None:
    """The turns say what they said: only the reading of them is another."""

    async def trying() -> None:
        await promoted(made)
        assert await made.marks() == {}
        [newest] = await made.promotions()
        await rollback(made.settings, Rollback(newest.promotion_id))
        await made.run()
        assert await made.marks() == {}

    asyncio.run(trying())


async def check_counterparts(made: Lab, scope: ScopeDiff) -> None:
    """What stays because people changed it names what the branch has in its place."""
    drawn = {
        each.live["memory_id"]: None if each.branch is None else each.branch["memory_id"]
        for each in scope.facts
        if each.keep == "curated" and each.live is not None
    }
    curated = "SELECT memory_id, counterpart FROM promotion_items WHERE why = 'curated'"
    beside = {row["memory_id"]: row["counterpart"] for row in await made.rows(curated)}
    assert beside == drawn
    assert set(beside.values()) > {None}


def test_what_people_did_stays(tmp_path: Path) -> None:
    """Modified, pinned, confirmed and recovered ones stay; what was forgotten does not come back
    in other words, and what was erased not at all."""
    first = {"t": ["Ana sings well", "Ana runs far", "Ana reads books", "Ana paints doors red"]}
    first["u"] = ["Ana is afraid of big dogs", "Ana swims daily", "Ana hides a key"]
    second = {"t": ["Ana sings very well", "Ana runs very far", "Ana reads many books"]}
    second["u"] = ["Ana is very afraid of big dogs", "A key is under the mat"]

    async def trying() -> None:
        made = Lab(tmp_path, said(first))
        await made.say("t", "u")
        ids = await made.facts()
        patch = MemoryPatch(memory_id=ids["Ana sings well"], content="Ana sings in a choir")
        pin = MemoryPatch(memory_id=ids["Ana runs far"], pinned=True)
        swims = ids["Ana swims daily"]
        await made.command(
            ModifyCommand(patches=(patch, pin), reason="mine"),
            ConfirmCommand(memory_id=ids["Ana reads books"]),
            ForgetCommand(memory_ids=(ids["Ana is afraid of big dogs"], swims), reason="mine"),
            RecoverCommand(memory_id=swims),
            ForgetCommand(memory_ids=(ids["Ana hides a key"],), reason="mine", hard=True),
            RememberCommand(content="Ana was born in Bergen"),
        )
        await made.branch(said(second), "t", "u")
        [scope] = await made.differences()
        assert {shown(each) for each in scope.facts} >= {
            ("changed", "curated", "Ana runs far", "Ana runs very far"),
            ("changed", "curated", "Ana reads books", "Ana reads many books"),
            ("lost", "curated", "Ana swims daily", None),
            ("lost", None, "Ana paints doors red", None),
            ("gained", "suppressed", None, "Ana is very afraid of big dogs"),
            ("gained", "erased", None, "A key is under the mat"),
        }
        await promoted(made)
        kept = {"Ana sings in a choir", "Ana runs far", "Ana reads books", "Ana swims daily"}
        assert kept <= {*await made.facts()}
        assert "Ana was born in Bergen" in await made.facts()
        items = await made.rows("SELECT why, count(*) AS n FROM promotion_items GROUP BY why")
        told = {row["why"]: row["n"] for row in items}
        assert (told["curated"], told["suppressed"], told["erased"]) == (4, 1, 1)
        await check_counterparts(made, scope)
        assert not any("afraid" in fact or "key" in fact for fact in await made.facts())
        assert "Ana paints doors red" not in await made.facts()

    asyncio.run(trying())


def test_turns_that_came_since_keep_their_own_facts(made: Lab) -> None:
    async def trying() -> None:
        await made.say("Ana plays the cello", first=9)
        end = await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        assert end.behind > 0
        await made.run()
        assert [*await made.facts()] == sorted([*NEW, "Ana plays the cello"])

    asyncio.run(trying())


def test_only_what_was_extracted_anew_is_promoted(made: Lab) -> None:
    async def trying() -> None:
        later = BEGIN.replace(year=BEGIN.year + 1)
        for selection in (TurnSelection(scope="ben"), TurnSelection(since=later)):
            branch = read_branch(made.settings, "better").model_copy(
                update={"selection": selection}
            )
            keep_branch(made.settings, branch)
            [scope] = await made.differences()
            assert (scope.facts, scope.decisions, scope.spent["branch"]["turns"]) == ((), (), 0)
            assert (
                await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
            ).scopes[0].status == ("nothing")

    asyncio.run(trying())


def test_what_cannot_be_promoted_is_told(made: Lab) -> None:
    async def trying() -> None:
        branch = read_branch(made.settings, "better")

        async def refused(why: str, **changed: Any) -> None:
            keep_branch(made.settings, branch.model_copy(update=changed))
            with pytest.raises(RequestError, match=why):
                await promote(made.settings, Promote("better", catch_up=False, most_behind=2))

        await refused("is not whole", whole=False)
        await refused("only a re-extraction can be promoted", kind="rebuild")
        await refused("records behind the live log", read_through={})
        with alone(made.settings):
            await refused("another promotion or rollback is under way")
        for request in (
            Promote("none", catch_up=False),
            Promote("better", catch_up=False, scopes=("none",)),
        ):
            with pytest.raises(NotFoundError):
                await promote(made.settings, request)
        with pytest.raises(NotFoundError):
            await rollback(made.settings, Rollback("0" * 36))
        assert await made.promotions() == []
        caught = read_branch(made.settings, "better").model_copy(update={"whole": False})
        keep_branch(made.settings, caught)

        with pytest.raises(RequestError, match="is not whole"):
            await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        keep_branch(made.settings, branch)
        end = await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        assert end.scopes[0].status == "waiting"

    asyncio.run(trying())


def test_what_waits_in_the_log_is_done_once(made: Lab) -> None:
    """Promoted again before a worker came: what was changed after the command lay in the log is
    changed after it was carried out."""

    async def trying() -> None:
        ids = await made.facts()
        await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        begun = read_branch(made.settings, "better").promotion
        # The command lies in the log; what comes after it in the log is carried out after it.
        patch = MemoryPatch(memory_id=ids["Ana likes tea"], content="Ana loves tea", if_version=1)
        await made.command(ModifyCommand(patches=(patch,), reason="mine"))
        end = await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        assert (end.promotion_id, end.scopes[0].status) == (begun, "applied")
        assert [*await made.facts()] == NEW
        newest = await made.promotions()
        assert len(newest) == 1

    asyncio.run(trying())


def test_questions_are_asked_of_both(made: Lab) -> None:
    async def trying() -> None:
        file = made.folder / "questions.jsonl"
        asked = [
            {"scope": "ana", "question": "Who owns Rex?", "expected": ["Ana owns Rex"]},
            {"scope": "ana", "question": "What does Ana drink?", "expected": ["t1"]},
        ]
        file.write_text("\n".join(json.dumps(each) for each in asked))
        found = await compared(made.settings, Diff("better", questions=str(file)))
        first, other = found["recall"]["questions"]
        assert first["live"] is None
        assert first["branch"] is not None
        assert other["live"] is not None
        file.write_text('{"scope": "ana"}')
        with pytest.raises(RequestError, match="line 1 is no question"):
            await compared(made.settings, Diff("better", questions=str(file)))

    asyncio.run(trying())


def test_what_is_erased_after_a_promotion_leaves_the_log_too(made: Lab) -> None:
    async def trying() -> None:
        await promoted(made)
        ids = [(await made.facts())[fact] for fact in ("Ana owns Rex", "Ana likes green tea")]
        texts = ("Ana owns Rex", "Ana likes tea")
        assert where(made.folder / "log", *texts)
        await made.command(ForgetCommand(memory_ids=tuple(ids), reason="mine", hard=True))
        assert where(made.folder / "log", *texts) == []
        assert where(made.folder / "shards", *texts) == []
        [done] = await made.promotions()
        await rollback(made.settings, Rollback(done.promotion_id))
        await made.run()
        assert not {"Ana owns Rex", "Ana likes tea", "Ana likes green tea"} & {*await made.facts()}
        assert {"Rex is loud", "Ana likes coffee"} <= {*await made.facts()}
        assert await made.holds()

    asyncio.run(trying())


def test_a_refused_scope_is_promoted_once_that_is_over(made: Lab) -> None:
    async def trying() -> None:
        await made.command(SetFlagsCommand(mutations_frozen=True))
        await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        await made.run()
        assert await made.promotions() == []
        await made.command(SetFlagsCommand(mutations_frozen=False))
        assert (await promoted(made))["gained"] == 2

    asyncio.run(trying())


def test_scopes_in_several_partitions(tmp_path: Path) -> None:
    """The branch has one partition, the live memory three; only the named scopes are promoted."""

    async def trying() -> None:
        made = Lab(tmp_path, said(FIRST), partitions=3)
        scopes = ("ana", "it's", "zoë")
        for scope in scopes:
            made.publish(made.settings, enumerate(TEXTS, 1), scope)
        await made.run()
        for scope in scopes:
            await made.branch(said(SECOND), *TEXTS, scope=scope)
        request = Promote("better", catch_up=False, scopes=scopes[1:], allow_loss=True)
        end = await promote(made.settings, request)
        assert [each.scope for each in end.scopes] == [*scopes[1:]]
        await made.run()
        end = await promote(made.settings, request)
        assert {each.status for each in end.scopes} == {"applied"}
        rows = await made.rows("SELECT scope, content FROM memories WHERE type <> 'episodic'")
        found = {scope: {r["content"] for r in rows if r["scope"] == scope} for scope in scopes}
        assert found["ana"] != {*NEW}
        assert all(found[scope] == {*NEW} for scope in scopes[1:])
        assert await made.holds()

    asyncio.run(trying())
