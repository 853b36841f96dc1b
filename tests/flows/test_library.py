"""The library: the product in a program's own process, with and without an event loop."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import palimpsest
from palimpsest import Actor, AsyncMemory, Memory, NotDoneError, NotFoundError, RequestError
from palimpsest.ops.embedding import tracker
from palimpsest.ops.library.memory_methods import MemoryMethods
from palimpsest.ops.operations.answers import Changes
from palimpsest.ops.operations.awaited_results import LOOK_SECONDS
from palimpsest.ops.operations.forgetting import ForgetPreview
from palimpsest.ops.service.executing import NotYetAppliedError
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.unit_of_work import UnitOfWork
from palimpsest.streams.runtime.runner import StageRunner
from tests.flows.program import PATIENCE_S, Program

SETTINGS = {"embedding.provider": "hashing"}


def opened(folder: Path, **given: Any) -> Memory:
    return Memory(folder, **{"scope": "ana", "settings": SETTINGS, "wait_seconds": 60.0, **given})


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with opened(tmp_path_factory.mktemp("library")) as made:
        made.add("I live in Lisbon with my sister Nora.", speaker="Ana", session_id="s1")
        made.add("The password is quokka.", speaker="Ben", scope="ben")
        made.wait_until_processed()
        yield made


# --- what it is like --------------------------------------------------------------------------


def test_the_examples_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reader would type them, in the order of the class."""
    # They switch to another model and back at once: its vectors are made only if the timer of the
    # tracker falls in between, and are shown then.
    monkeypatch.setattr(tracker, "TRACK_SECONDS", 3_600.0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    with opened(tmp_path / "methods") as memory:
        names = {"memory": memory, "folder": tmp_path / "class"}
        for name in ("__class__", *vars(MemoryMethods)):
            documented = Memory if name == "__class__" else getattr(Memory, name)
            text = inspect.getdoc(documented) or ""
            if ">>>" in text:
                runner.run(parser.get_doctest(text, dict(names), name, None, 0))
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 20


def test_the_package_offers_what_it_says_and_imports_nothing_until_then() -> None:
    code = (
        "import sys, palimpsest, palimpsest.streams.topology; print('duckdb' in sys.modules);"
        "from palimpsest import Memory; print(Memory.__name__, dir(palimpsest))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", f"Memory {sorted(palimpsest.__all__)}"]
    assert all(getattr(palimpsest, name) is not None for name in palimpsest.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Memori'"):
        _ = palimpsest.Memori


async def test_an_event_loop_goes_on_while_memory_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, ticked, real = threading.Event(), threading.Event(), Shard.__init__

    def slow(*given: Any) -> None:
        opening.set()
        assert ticked.wait(PATIENCE_S)  # the loop goes on while it is opened
        real(*given)

    async def ticking() -> None:
        while True:
            await asyncio.sleep(0.001)
            if opening.is_set():
                ticked.set()

    monkeypatch.setattr(Shard, "__init__", slow)
    beside = asyncio.create_task(ticking())
    async with AsyncMemory(tmp_path, scope="ana", settings=SETTINGS) as memory:
        added = await memory.add(["I live in Porto.", "I drink tea."], speaker="Ana")
        both = await asyncio.gather(memory.get(added.memory_ids[0]), memory.recall("tea"))
        await memory.wait_until_processed()
        change = await memory.remember("Ana bakes")
        await memory.forget([change.id], reason="asked")
        assert (await memory.recover(change.id)).version == 3
    beside.cancel()
    assert both[0].content == "I live in Porto."
    assert both[1].results[0].content == "I drink tea."
    assert ticked.is_set()


# --- read your writes -------------------------------------------------------------------------


def test_what_was_added_or_commanded_is_seen_at_once(memory: Memory) -> None:
    for number in range(3):
        word = f"marker{number}"
        added = memory.add(f"The {word} stands there.", scope="seen")
        assert turns_found(memory, word, scope="seen") == set(added.memory_ids)
        change = memory.remember(f"{word} is remembered", scope="seen")
        assert memory.get(change.id, scope="seen").version == 1
        memory.forget([change.id], reason="test", scope="seen")
        assert memory.get(change.id, scope="seen").is_deleted


def test_what_was_remembered_is_found_also_when_its_result_is_read_between_commit_and_index(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalled = threading.Event()
    real = UnitOfWork._refresh_indexes

    def slow(unit: UnitOfWork) -> None:
        if any(
            row.content == "The ladder stands in the barn." for row in unit._rows.staged(MemoryRow)
        ):
            recalled.wait(4 * LOOK_SECONDS)
        real(unit)

    memory.recall("ladder", scope="between")  # the index of the scope is resident
    monkeypatch.setattr(UnitOfWork, "_refresh_indexes", slow)
    made = memory.remember("The ladder stands in the barn.", scope="between")
    found = memory.recall("ladder barn", scope="between").results
    recalled.set()
    assert [each.id for each in found] == [made.id]


def turns_found(memory: Memory, text: str, **given: Any) -> set[str]:
    """The turns that a recall finds first, themselves or what was drawn from them."""
    best = memory.recall(text, **given).results[0]
    return {*best.derived_from} or {best.id}


@pytest.mark.parametrize("rest", [" filler" * 10_000, "   " + "x" * 60_000])
def test_a_long_question_is_searched_by_its_beginning(memory: Memory, rest: str) -> None:
    memory.add("The zebra lives in Oslo.", scope="long")
    asked = "\n" + "Where does the zebra live? " + rest
    found = memory.recall(asked, scope="long")
    assert found.query == asked
    assert "zebra" in found.results[0].content
    block = memory.context(asked, scope="long")
    assert "Oslo" in (block.text or "")
    words = memory.search(asked, scope="long")
    assert words.query == asked
    assert "zebra" in words.results[0].content
    far = rest + " zebra"
    assert not any(each.scores.keyword for each in memory.recall(far, scope="long").results)
    assert memory.search(far, scope="long").results == ()


def test_search_takes_as_long_a_query_as_recall_and_is_quick_with_it(memory: Memory) -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    began = time.process_time()
    assert memory.search(words[:100_000]).method == "keyword"
    assert time.process_time() - began < 2
    for ask in (memory.search, memory.recall):
        with pytest.raises(RequestError, match="characters"):
            ask(words[:100_001])


def test_threads_share_a_memory(memory: Memory) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in range(5):
                text = f"thread{number} said {count}"
                [memory_id] = memory.add(text, scope="threads").memory_ids
                assert memory.get(memory_id, scope="threads").content == text
                memory.remember(f"{text}!", scope="threads")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    stats = memory.stats(scope="threads")
    assert (stats.turns, stats.memories >= 20) == (20, True)


def test_the_same_turn_again_adds_nothing_and_another_text_under_its_id_neither(
    memory: Memory,
) -> None:
    turn = {"turn_id": "t1", "content": "I sail.", "occurred_at": "2026-03-01T09:00:00Z"}
    first = memory.add(turn, scope="again")
    assert memory.add(turn, scope="again") == first
    memory.add({**turn, "content": "I ski."}, scope="again")  # a dead letter; must not hang
    assert memory.stats(scope="again").turns == 1


def test_nothing_to_add_is_no_fault(memory: Memory) -> None:
    assert memory.add([]).memory_ids == ()


# --- what is refused --------------------------------------------------------------------------

_LOOP: dict[str, Any] = {}
_LOOP["a"] = _LOOP
BAD: dict[str, tuple[Callable[[Memory], object], str]] = {
    "another name": (lambda m: m.add({"text": "x"}), "turn 0: .*did you mean `content` for `text`"),
    "a misspelt name": (
        lambda m: m.add([{"role": "user", "content": "x", "occured_at": "2024-01-01T00:00:00Z"}]),
        "turn 0: did you mean `occurred_at`. `occured_at` is no field",
    ),
    "no turn": (lambda m: m.add(5), "turns: give a text, the fields of a turn, or a list of them"),  # type: ignore[arg-type]
    "no turn in a list": (lambda m: m.add(["x", 5]), "turn 1: give a text or the fields of a turn"),  # type: ignore[list-item]
    "no text": (lambda m: m.add([{"content": "ok"}, {"content": 5}]), "turn 1: content"),
    "NUL": (lambda m: m.add("a\0b"), "NUL character"),
    "surrogate": (lambda m: m.add("\ud83d"), "half a surrogate pair"),
    "role": (lambda m: m.add({"content": "x", "role": "wizard"}), "role"),
    "time": (lambda m: m.add({"content": "x", "occurred_at": "today"}), "RFC 3339"),
    "a scope inside": (lambda m: m.add({"content": "x", "scope": "ben"}), "scope: name it"),
    "an envelope": (lambda m: m.add({"body": {"content": "x"}}), "not an envelope"),
    "empty scope": (lambda m: m.add("x", scope=" "), "scope"),
    "empty question": (lambda m: m.recall(" "), "query: must not be blank"),
    "limit": (lambda m: m.recall("x", limit=0), "limit: .* greater than or equal to 1$"),
    "huge limit": (lambda m: m.list(limit=10**9), "limit: .* less than or equal to 1000$"),
    "no such filter": (lambda m: m.recall("x", colour="red"), "colour: there is no such argument"),
    "number for a list": (lambda m: m.recall("x", types=5), "types: Input should be a valid"),
    "no zone": (lambda m: m.recall("x", since=datetime(2026, 1, 1)), "since: .* no zone"),
    "no field": (lambda m: m.modify("x", reason="y"), "nothing to change"),
    "unknown field": (lambda m: m.remember("x", colour="red"), "colour: there is no such arg"),
    "share": (lambda m: m.remember("x", importance=3.0), "importance: .* less than or equal to 1$"),
    "none to forget": (lambda m: m.forget(reason="x"), "nothing says what to forget"),
    "sql": (lambda m: m.sql("DROP TABLE memory_rows"), "SELECT"),
    "no SQL": (lambda m: m.sql(None), "^query: Input should be a valid string$"),
    "no operation": (lambda m: m.send({"query": "x"}), "^operation: "),
    "itself": (lambda m: m.add([{"content": "hello", "metadata": _LOOP}]), "contains itself"),
    "no JSON": (lambda m: m.add([{"content": "hello", "metadata": {"a": {1}}}]), "that JSON has"),
    "two statements": (lambda m: m.sql("SELECT 1; SELECT 2"), "one"),
    "unknown name": (lambda m: m.get_entity("Lisbn"), "did you mean Lisbon"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told(memory: Memory, name: str) -> None:
    ask, expected = BAD[name]
    before = memory.stats()
    with pytest.raises(RequestError, match=expected):
        ask(memory)
    assert memory.stats() == before


@pytest.mark.parametrize("scope", [None, 5, "", " "])
def test_a_scope_that_is_none_is_told(tmp_path: Path, scope: Any) -> None:
    with pytest.raises(RequestError, match=r"^scope: "):
        Memory(tmp_path, scope=scope)


def test_an_empty_scope_is_not_the_default_one(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="scope: must not be blank"):
        Memory(tmp_path, scope="")


def test_no_id_of_another_scope_is_known(memory: Memory) -> None:
    [foreign] = (each.id for each in memory.list(types=["episodic"], scope="ben").memories)
    for use in (
        lambda: memory.get(foreign),
        lambda: memory.get(foreign[:8]),
        lambda: memory.history(foreign),
        lambda: memory.explain(foreign),
        lambda: memory.modify(foreign, content="x", reason="y"),
        lambda: memory.forget([foreign], reason="y"),
        lambda: memory.confirm(foreign),
    ):
        with pytest.raises(NotFoundError) as refused:
            use()
        assert str(refused.value).startswith("there is no memory")
        assert "quokka" not in str(refused.value)
    assert not memory.get(foreign, scope="ben").is_deleted


def test_what_is_not_done_raises_and_tells_why(memory: Memory) -> None:
    pinned = memory.remember("critical: Ring Nora first")
    with pytest.raises(NotDoneError, match="pinned") as refused:
        memory.forget([pinned.id], reason="test")
    assert refused.value.changes[0].status == "pinned"
    with pytest.raises(NotDoneError, match="version_conflict"):
        memory.modify(pinned.id, content="Ring Nora last", if_version=7, reason="test")
    with pytest.raises(NotDoneError, match="not_deleted"):
        memory.recover(pinned.id)
    memory.forget([pinned.id], reason="test", force=True)
    with pytest.raises(NotDoneError, match="deleted"):
        memory.modify(pinned.id, content="Ring Nora last", reason="test")
    with pytest.raises(NotDoneError, match="deleted") as refused:
        memory.forget([pinned.id], reason="test")
    assert refused.value.changes[0].status == "deleted"


def test_what_a_question_would_forget_is_shown(memory: Memory) -> None:
    made = memory.remember("The spare key lies under the flowerpot.")
    shown = memory.forget(query="spare key flowerpot")
    assert isinstance(shown, ForgetPreview)
    assert made.id in shown.ids
    done = memory.forget(shown.ids, reason="moved", confirm_token=shown.confirm_token)
    assert isinstance(done, Changes)


def test_a_machine_may_not_change_what_a_person_protects(memory: Memory) -> None:
    pinned = memory.remember("critical: Ring Nora second", scope="protected")
    with memory_of(memory, Actor(id="planner", type="agent")) as planner:
        with pytest.raises(NotDoneError, match="forbidden"):
            planner.forget([pinned.id], reason="tidy", force=True)
        said = planner.remember("The planner was here")
        assert planner.history(said.id).events[0].changed_by == "planner"


def memory_of(memory: Memory, actor: Actor) -> Memory:
    """Another one on the same folder, of the scope `protected`."""
    folder = memory.aio.background.settings.data_dir
    return opened(folder, scope="protected", actor=actor)


# --- who has the folder -----------------------------------------------------------------------


def test_a_second_one_uses_the_stages_of_the_first_and_takes_over_from_it(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    with second:
        with first:
            pass
        added = first.add("I live in Porto.", speaker="Ana")  # opened anew, beside the second
        assert turns_found(second, "Porto") == set(added.memory_ids)
        second.add("I drink tea.", speaker="Ana")
        second.wait_until_processed()
        assert first.recall("tea").results
        first.close()
        assert second.remember("Ana bakes").version == 1
    assert "Ana bakes" in [each.content for each in opened_list(tmp_path)]


def opened_list(folder: Path) -> tuple[Any, ...]:
    with opened(folder) as memory:
        return memory.list().memories


def test_when_the_one_that_has_the_folder_goes_the_other_takes_over(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        second = opened(tmp_path)
        with second:
            added = second.add("I live in Porto.", speaker="Ana")
            first.close()
            assert turns_found(second, "Porto") == set(added.memory_ids)
            added = second.add("I drink tea.", speaker="Ana")
            assert second.get(added.memory_ids[0]).content == "I drink tea."


def test_the_program_and_a_worker_beside_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "ana")
    with opened(program.data) as memory:
        memory.wait_until_processed()
        assert program.json("recall", "Lisbon", "--scope", "ana")["results"]
        assert program.json("remember", "Ana bakes", "--scope", "ana")["applied"] is True
        assert "being processed by" in program.fails("run", "--once")
    with program.worker(), opened(program.data) as memory:
        added = memory.add("I drink tea.", speaker="Ana")
        assert memory.get(added.memory_ids[0]).who == "Ana"
        assert memory.remember("Ana skis").version == 1
        memory.wait_until_processed()
        assert memory.sql("SELECT * FROM turns").num_rows == 2


def test_closing_finishes_and_forgetting_to_close_loses_nothing(tmp_path: Path) -> None:
    code = (
        "from palimpsest import Memory\n"
        f"memory = Memory({str(tmp_path)!r}, scope='ana', settings={SETTINGS!r})\n"
        "memory.add([f'note {n}' for n in range(50)], wait=False)\n"
        "print('out')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert (done.stdout, done.stderr) == ("out\n", "")
    with opened(tmp_path) as memory:
        memory.wait_until_processed()
        assert memory.stats().turns == 50


def test_whoever_waits_when_it_is_closed_is_told(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    started = threading.Event()
    told: list[str] = []

    async def never() -> None:
        started.set()
        await asyncio.Event().wait()

    def wait() -> None:
        with pytest.raises(RequestError) as closed:
            memory.aio.background.blocking(never())
        told.append(str(closed.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert started.wait(PATIENCE_S)
    memory.close()
    waiting.join(PATIENCE_S)
    assert "closed" in told[0]


def test_stages_that_end_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    memory = opened(tmp_path)
    memory.__enter__()
    monkeypatch.setattr(StageRunner, "process", broken)
    with pytest.raises(RequestError, match="the stages of this memory have ended"):
        memory.add("I drink tea.")
    monkeypatch.undo()
    with pytest.raises(Exception, match="the disk is gone"):
        memory.close()
    with memory:  # opened anew, it goes on where it was
        memory.wait_until_processed()
        assert memory.stats().turns == 1


def test_what_takes_too_long_is_told_and_still_done(tmp_path: Path) -> None:
    with opened(tmp_path, wait_seconds=0.0) as memory:
        with pytest.raises(NotYetAppliedError, match="durable, and still pending"):
            memory.remember("Ana bakes")
        memory.wait_until_processed()
        assert memory.list().memories[0].content == "Ana bakes"
