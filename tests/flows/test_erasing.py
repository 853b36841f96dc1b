"""Erasing: what was said is gone from every file, and all else is as it was."""

from __future__ import annotations

import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    EraseScopeCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import erase_token, turn_memory_id
from palimpsest.schemas.topics import CONVERSATION_TURNS, FACTS_EXTRACTED
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.spoken_model import ScriptedModel, spoken

SECRET = "I love my green flowerpot"
FOREIGN = "Ana wohnt in der Königsstraße 12 in Tübingen"
OTHER = "Ben works at a bakery in Ghent"


def pipeline(folder: Path, **given: Any) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL), **given)


def erase(running: Pipeline, *memory_ids: str, number: int = 50, **given: Any) -> Any:
    running.command(
        ForgetCommand(memory_ids=memory_ids, reason="asked for", hard=True, **given), first=number
    )
    running.run()
    execute_in(running.log, 0, running.shard)
    error, result = running.result(number)
    return result if error is None else error


def everything(running: Pipeline) -> list[str]:
    return running.values("SELECT content FROM memory_rows WHERE NOT is_deleted ORDER BY ALL")


def test_a_turn_with_its_facts_is_in_no_file_any_more(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(SECRET, FOREIGN, OTHER)
        running.run()
        running.shard.vector_table().sync()
        before = everything(running)
        assert where(tmp_path, SECRET, FOREIGN)
        ids = [turn_memory_id("ana", f"t{number}") for number in (1, 2)]
        result = erase(running, *ids, cascade=True)
        assert {row["status"] for row in result} == {"erased"}
        assert len(result) > 2
        assert where(tmp_path, SECRET, FOREIGN, "flowerpot", "Königsstraße") == []
        gone = [text for text in before if "flowerpot" in text or "Königsstraße" in text]
        assert everything(running) == [text for text in before if text not in gone]
        assert running.balance().holds
    assert where(tmp_path, SECRET, FOREIGN, "flowerpot", "Königsstraße") == []
    assert where(tmp_path, OTHER)


OSLO, BERGEN, LISBON = "I live in Oslo.", "I live in Bergen now.", "I live in Lisbon now."
HOMES = (OSLO, BERGEN, "So I live in Bergen now.", "I live in bergen!")


@pytest.mark.parametrize(
    ("said", "erased", "left"),
    [
        (2, (2,), "Ana lives in Oslo."),
        (2, (1,), "Ana lives in Bergen."),
        (3, (2,), "Ana lives in Bergen."),
        (3, (2, 3), "Ana lives in Oslo."),
        (4, (3, 2), "Ana lives in Bergen."),
        (4, (4, 2, 3), "Ana lives in Oslo."),
        (4, (4, 2, 3, 1), ""),
        (4, (1, 4, 2, 3), ""),
    ],
)
def test_a_present_text_goes_with_all_turns_that_say_it(
    tmp_path: Path, said: int, erased: tuple[int, ...], left: str
) -> None:
    """A turn that repeats it keeps it. Without one, the memory says again what another turn says;
    in a rebuild, too."""
    with pipeline(tmp_path / "live") as running:
        for number, text in enumerate(HOMES[:said], 1):
            running.say(text, first=number, speaker="Ana")
            running.run()
        [memory] = running.values("SELECT memory_id FROM memory_rows WHERE type = 'fact'")
        for number in erased:
            turn = turn_memory_id("ana", f"t{number}")
            erase(running, turn, number=50 + number, cascade=True)
        text = "SELECT content FROM memory_rows WHERE memory_id = ?"
        assert running.values(text, memory) == [left]
        gone = {"Oslo", "Bergen"} - {home for home in ("Oslo", "Bergen") if home in left}
        gone -= {"Oslo"} if 1 not in erased else set()
        assert where(tmp_path, *gone, *map(str.lower, gone)) == []
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize(
    ("said", "erased", "gone"),
    [
        ((OSLO, BERGEN), (1,), "Oslo"),
        ((OSLO, BERGEN, LISBON), (1,), "Oslo"),
        ((OSLO, BERGEN, LISBON), (2,), "Bergen"),
        ((OSLO, BERGEN, LISBON), (2, 1), "Oslo Bergen"),
        ((OSLO, BERGEN, LISBON), (1, 2), "Oslo Bergen"),
        ((OSLO, "So I live in Oslo.", BERGEN), (1,), ""),
        ((OSLO, "So I live in Oslo.", BERGEN), (1, 2), "Oslo"),
        ((OSLO, BERGEN, "I live in Oslo now."), (1,), ""),
        ((OSLO, BERGEN, "I live in Oslo now.", LISBON), (1, 3), "Oslo"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_memory_said_before_goes_with_the_turns_that_said_it(
    tmp_path: Path, said: tuple[str, ...], erased: tuple[int, ...], gone: str, at_once: bool
) -> None:
    """From its history, the archive and the graph, unless another turn says it, too."""
    with pipeline(tmp_path / "live") as running:
        for number, text in enumerate(said, 1):
            running.say(text, first=number, speaker="Ana")
            running.run()
        running.shard.vector_table().sync()
        [memory] = running.values("SELECT memory_id FROM memory_rows WHERE type = 'fact'")
        text = "SELECT content FROM memory_rows WHERE memory_id = ?"
        before = running.values(text, memory)
        turns = [turn_memory_id("ana", f"t{number}") for number in erased]
        for number, some in enumerate([turns] if at_once else [[turn] for turn in turns]):
            erase(running, *some, number=50 + number, cascade=True)
        assert running.values(text, memory) == before
        assert where(tmp_path, *gone.split(), *gone.lower().split()) == []
        left = {"Oslo", "Bergen", "Lisbon"} - {*gone.split()}
        names = running.values("SELECT name FROM internal.name_rows")
        assert {*names} - {"Ana"} == {home for home in left if any(home in each for each in said)}
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize(
    "erased", [((1,), (0,)), ((2,), (0,)), ((3,), (0,)), ((1,), (2,), (0,)), ((2,), (1, 3))]
)
def test_erasures_under_way_at_once_give_a_text_one_mark(
    tmp_path: Path, erased: tuple[tuple[int, ...], ...], cascade: bool
) -> None:
    """In tables at once and in the log after all of them; 0 is the memory of three turns."""
    with pipeline(tmp_path / "live") as running:
        for number, text in enumerate((OSLO, BERGEN, LISBON), 1):
            running.say(text, first=number, speaker="Ana")
            running.run()
        [memory] = running.values("SELECT memory_id FROM memory_rows WHERE type = 'fact'")
        turns = [turn_memory_id("ana", f"t{number}") for number in (1, 2, 3)]
        for number, some in enumerate(erased, 50):
            ids = tuple([memory, *turns][each] for each in some)
            forget = ForgetCommand(memory_ids=ids, reason="mine", hard=True, cascade=cascade)
            running.command(forget, first=number)
            running.run()
        execute_in(running.log, 0, running.shard)
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize("last", ["Ana saw Oslo", "Ben bakes", "Oslo rains"])
def test_a_later_memory_keeps_nothing_of_an_erased_one(tmp_path: Path, last: str) -> None:
    """However far graph-persist is behind, as in a rebuild: what alone told of a relation or a name
    is gone, although a later memory has the same names."""
    said = ("Ana bakes / Ana > likes > tea", "Ana adores Oslo / Ana > adores > Oslo")
    graphs = []
    for name in ("behind", "at once"):
        given = (pipeline_settings(FULL, "model"), ScriptedModel(spoken))
        with Pipeline(tmp_path / name, *given) as running:
            stages = ("normalize", "extract", "decide", "apply-writes")
            stages = stages if name == "behind" else ()
            running.say(*said)
            running.run(*stages)
            ids = (turn_memory_id("ana", "t2"),)
            running.command(ForgetCommand(memory_ids=ids, reason="mine", hard=True, cascade=True))
            running.run(*stages)
            running.say(last, first=3)
            running.run(*stages)
            running.run()
            relations = "SELECT relation_type FROM internal.relation_rows ORDER BY ALL"
            assert running.values(relations) == ["likes"]
            names = "SELECT canonical_name FROM internal.name_rows ORDER BY ALL"
            assert running.values(names) == ["ana", "tea"]
            graphs.append(running.rows("FROM internal.mention_rows ORDER BY ALL"))
    assert graphs[0] == graphs[1]


def test_a_dead_letter_loses_the_names_that_its_record_loses(tmp_path: Path) -> None:
    """Whatever graph-persist has come to: a name that another memory has stays in both."""
    said = (
        "Rita bakes good bread / Rita > bakes > bread",
        "Garbled Rita bakes bread in Oslo / Rita > likes > Oslo",
    )
    held = "SELECT value_base64 FROM internal.dead_letter_rows"
    given = (pipeline_settings(FULL, "model"), ScriptedModel(spoken))
    with Pipeline(tmp_path / "live", *given) as running:
        for number, text in enumerate(said, 1):
            running.say(text, first=number)
            running.run("normalize", "extract", "decide", "apply-writes", "audit")
        ids = (turn_memory_id("ana", "t2"),)
        running.command(ForgetCommand(memory_ids=ids, reason="mine", hard=True), first=50)
        running.run("apply-writes")
        assert "Oslo" in b64decode(running.values(held)[0]).decode()
        running.run()
        execute_in(running.log, 0, running.shard)
        [left] = [b64decode(value).decode() for value in running.values(held)]
        assert "Rita" in left
        assert "Oslo" not in left
        [extracted] = running.log.read(FACTS_EXTRACTED.name, 0, 1, 1)
        assert extracted.value is not None
        assert extracted.value.decode() == left


def rebuilt(running: Pipeline, folder: Path) -> Pipeline:
    """A store made anew from the log alone. What goes with a memory and what the graph takes from
    one depend on what is there already: here facts come before memories, and these before names."""
    running.close()
    shutil.copytree(running.folder / "log", folder / "log")
    return pipeline(folder, clock=running.clock).run("decide").run("apply-writes").run()


def assert_rebuilt_is_the_same(running: Pipeline, folder: Path) -> None:
    live = running.state_by_table()
    with rebuilt(running, folder) as again:
        # Of what decide thinks of every fact anew, nothing depends: it is sent already.
        assert set(differing(again.state_by_table(), live)) <= {"proposals"}
        assert again.balance().holds


def test_the_redacted_log_leads_to_the_same_store(tmp_path: Path) -> None:
    with pipeline(tmp_path / "live") as running:
        running.say(SECRET, FOREIGN, OTHER, "Ben moved to Antwerp", "Ana likes green tea", SECRET)
        running.command(
            RememberCommand(content="critical: [pin]: Ana always uses the pin 4711-0815", who="Ana")
        )
        running.run()
        [remembered] = running.values("SELECT memory_id FROM memory_rows WHERE pinned")
        running.command(
            ModifyCommand(
                patches=(MemoryPatch(memory_id=remembered, content="Ana's pin: 9-1-1-7"),),
                reason="it was another",
            ),
            first=10,
        )
        running.run()
        erase(running, turn_memory_id("ana", "t1"), turn_memory_id("ana", "t2"), cascade=True)
        erase(running, remembered, force=True, number=51)
        assert where(tmp_path, FOREIGN, "4711-0815", "9-1-1-7") == []
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_text_that_ended_is_erased_with_its_end(tmp_path: Path) -> None:
    with pipeline(tmp_path / "live") as running:
        running.command(RememberCommand(content="The code 4711-0815 is valid until Friday"))
        running.run()
        query = "SELECT memory_id, month(valid_until) AS month FROM memory_rows"
        [row] = running.rows(query)
        patch = MemoryPatch(
            memory_id=row["memory_id"], content="The code 4711-0815 is valid until May"
        )
        running.command(ModifyCommand(patches=(patch,), reason="wrong"), first=10)
        running.run()
        assert [row["month"], running.rows(query)[0]["month"]] == [3, 5]
        erase(running, row["memory_id"])
        assert where(tmp_path, "4711-0815") == []
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize(
    "again",
    [
        {"content": "Ana has the code 4711-0815"},
        {"content": "critical: [zqtag]: ana has the code 4711-0815!"},
        {"content": "Ana has the code 4711-0815", "metadata": {"zqkey": "zqvalue", "b": 1}},
        {"content": "Ana has the code 4711-0815", "metadata": {"b": 1}, "tags": ("t",)},
        {"content": "Ana has the code 4711-0815", "project": "zqproject", "pinned": True},
        {
            "content": "The code 4711-0815 is another text",
            "source_id": "note-1",
            "tags": ("zqtag",),
        },
        {"content": "critical: Ana has the code 4711-0815 again"},
    ],
)
def test_a_text_that_was_remembered_twice_is_erased_twice(
    again: dict[str, Any], tmp_path: Path
) -> None:
    """Of the second time, too, and a rebuild does not make another memory of it."""
    with pipeline(tmp_path / "live") as running:
        first = {"metadata": {"b": 1}, "source_id": "note-1", "who": "Ana", "tags": ("t",)}
        running.command(RememberCommand(content="Ana has the code 4711-0815", **first))
        running.run()
        [remembered] = running.values("SELECT memory_id FROM memory_rows")
        running.command(RememberCommand(**again, who="Ana"), first=2)
        patch = MemoryPatch(memory_id=remembered, content="Ana has the code 4711-0815 again")
        running.command(ModifyCommand(patches=(patch,), reason="more"), first=3)
        running.command(RememberCommand(**again), first=4)
        running.run()
        ids = running.values("SELECT memory_id FROM memory_rows")
        erase(running, *ids, force=True)
        assert where(tmp_path, "4711-0815", "zqtag", "zqkey", "zqvalue", "zqproject") == []
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_whole_scope(tmp_path: Path) -> None:
    with pipeline(tmp_path / "live") as running:
        running.say(SECRET, FOREIGN, OTHER)
        running.say(SECRET + " too", OTHER, scope="ben")
        running.command(RememberCommand(content="critical: Ana's pin is 4711-0815"))
        running.run()
        others = running.values("SELECT content FROM memory_rows WHERE scope = 'ben' ORDER BY ALL")
        [count] = running.values("SELECT count(*) FROM memory_rows WHERE scope = 'ana'")
        wrong = EraseScopeCommand(reason="asked", confirm_token=erase_token("ana", count + 1))
        right = EraseScopeCommand(reason="asked", confirm_token=erase_token("ana", count))
        machine = Actor(id="a", type="agent")
        running.command(right, first=48, actor=machine)
        running.command(wrong, right, first=49)
        running.run()
        running.say("Ana bought a red bicycle", first=20)
        running.run()
        assert str(running.result(48)[0]).startswith("forbidden")
        assert str(running.result(49)[0]).startswith("confirm_mismatch")
        assert running.result(50) == (None, {"status": "erased", "memories": count})
        execute_in(running.log, 0, running.shard)
        assert where(tmp_path, FOREIGN, "4711-0815", "Königsstraße") == []
        assert set(everything(running)) == {
            *others,
            "Ana bought a red bicycle",
            "Ana bought a red bicycle.",
        }
        assert running.values("SELECT name FROM name_rows WHERE scope = 'ana' ORDER BY 1") == [
            "Ana",
            "red bicycle",
        ]
        assert running.balance().holds
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_what_another_memory_says_stays(tmp_path: Path) -> None:
    """Also where it is the same, or has the erased text in it; and in another scope."""
    with pipeline(tmp_path / "live") as running:
        running.say("yes", "yes", "Well, yes and no: Ana may come on Friday")
        running.say("yes", scope="ben")
        running.run()
        before = everything(running)
        erase(running, turn_memory_id("ana", "t1"))
        before.remove("yes")
        assert everything(running) == before
        assert running.values("SELECT content FROM fact_rows WHERE content LIKE '%erased%'") == []
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_once_and_again(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(SECRET)
        running.run()
        memory = turn_memory_id("ana", "t1")
        first = erase(running, memory, cascade=True)
        state = running.state_by_table()
        again = ForgetCommand(memory_ids=(memory,), reason="asked for", hard=True, cascade=True)
        running.command(again, first=50)
        assert running.run().state_by_table() == state
        assert erase(running, memory, number=51) == first[:1]
        running.command(RecoverCommand(memory_id=memory), first=52)
        assert str(running.run().result(52)[0]).startswith("retention_expired")
        running.say(SECRET)  # a producer that sends it again
        running.run()
        assert SECRET not in everything(running)


def test_what_was_forgotten_before_is_erased(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.command(RememberCommand(content=SECRET))
        running.run()
        [memory] = running.values("SELECT memory_id FROM memory_rows")
        running.command(ForgetCommand(memory_ids=(memory,), reason="old"), first=2)
        running.run()
        assert [row["status"] for row in erase(running, memory)] == ["erased"]
        assert where(tmp_path, SECRET) == []


@pytest.mark.parametrize("begun", range(6))
def test_facts_on_their_way_never_become_memories(begun: int, tmp_path: Path) -> None:
    """The turn is stored; its facts have come as far as these stages brought them."""
    stages = ("extract", "decide")[: begun // 2]
    with pipeline(tmp_path) as running:
        running.say(SECRET, OTHER)
        running.run("normalize").run("apply-writes")
        for stage in stages:
            running.run(stage)
        gone = turn_memory_id("ana", "t1")
        running.command(
            ForgetCommand(memory_ids=(gone,), reason="gone", hard=True, cascade=True), first=50
        )
        running.run("normalize").run("apply-writes")
        if begun % 2:
            execute_in(running.log, 0, running.shard)
        running.run()
        execute_in(running.log, 0, running.shard)
        assert where(tmp_path, "flowerpot") == []
        assert [text for text in everything(running) if "flowerpot" in text] == []
        assert running.balance().holds


def test_dead_letters_and_quotations(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(SECRET)
        running.run()
        running.say(SECRET + " and her passport in the oven")  # another text under its id
        running.raw(CONVERSATION_TURNS, b'{"scope": "ana", "broken": "' + SECRET.encode())
        running.run()
        assert len(running.dead_letters()) == 2
        erase(running, turn_memory_id("ana", "t1"), cascade=True)
        assert where(tmp_path, "flowerpot", "passport") == []
        assert len(running.dead_letters()) == 2
        assert running.balance().holds


def test_what_a_session_is_about_goes_with_what_was_said_in_it(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(SECRET, OTHER, session_id="s1")
        running.say("We met in Tilburg.", first=5, session_id="s2")
        quoting = f"They spoke of keys: {SECRET}."
        about = ((quoting, "s1"), ("About Tilburg.", "s2"))
        running.command(*(UpdateShortTermCommand(session_id=s, summary=t) for t, s in about))
        running.run()
        assert len(where(tmp_path, SECRET)) > 1
        erase(running, turn_memory_id("ana", "t1"), cascade=True)
        assert where(tmp_path, SECRET, "flowerpot") == []
        kept = running.values("SELECT summary FROM short_term_rows ORDER BY session_id")
        assert kept == [None, "About Tilburg."]
        assert running.balance().holds


def test_a_document_goes_with_its_chunks(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        text = f"{SECRET}, which is blue.\n\n{'It rains. ' * 20}\n\n{FOREIGN}."
        given = {"chunk_characters": 200, "chunk_overlap": 0}
        running.command(
            AddDocumentCommand(kind="text", text=text, title="Where the key lies", **given),
            AddDocumentCommand(kind="text", text="The kettle is red.", title="Kettle", **given),
        )
        running.run()
        chunks = running.values(
            "SELECT memory_id FROM document_memory_rows JOIN document_rows USING (document_id)"
            " WHERE title = 'Where the key lies'"
        )
        assert len(chunks) > 1
        result = erase(running, *chunks)
        assert {row["status"] for row in result} == {"erased"}
        assert where(tmp_path, SECRET, FOREIGN, "flowerpot", "Königsstraße", "key lies") == []
        titles = running.values("SELECT title FROM document_rows ORDER BY title")
        assert titles == ["", "Kettle"]
        assert "The kettle is red." in everything(running)


def test_with_a_scope_go_the_summaries_of_all_its_sessions(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(OTHER, session_id="s1")
        running.command(UpdateShortTermCommand(session_id="other", summary="About Tilburg."))
        running.run()
        [count] = running.values("SELECT count(*) FROM memory_rows WHERE scope = 'ana'")
        token = erase_token("ana", count)
        running.command(EraseScopeCommand(reason="asked", confirm_token=token), first=50)
        running.run()
        execute_in(running.log, 0, running.shard)
        assert running.result(50)[0] is None
        assert where(tmp_path, "Tilburg", "bakery") == []
