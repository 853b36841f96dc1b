"""A language model sorts facts by the aspects of entities; what people say of them takes
precedence, and a rebuild needs no model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.lifecycle.classification import CLASSIFIER, FACTS_PER_CALL, classification
from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.ops.operations.graph import GetEntity
from palimpsest.ops.scheduling.jobs import JobFailed
from palimpsest.schemas.aspects import ClassifiedFact, ClassifyFactsCommand
from palimpsest.schemas.commands import (
    AliasCommand,
    ForgetCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
    UnaliasCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute
from palimpsest.schemas.identity import entity_id, turn_memory_id
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.streams.models.base import Prompt, Reply
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.model_port import ModelPort
from tests.erased_bytes import where
from tests.flows.test_erasing import assert_rebuilt_is_the_same, erase
from tests.flows.test_graph import memory_id, modified, told
from tests.flows.test_profiles import SETTINGS, fold_again
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.sessions_by_hand import ask
from tests.spoken_model import ScriptedModel
from tests.sweeping import context_of

FACTS = (
    told("Ana lives in Porto", ("Ana", "lives in", "Porto")),
    told("Ana must not eat peanuts", ("Ana", "avoids", "peanuts")),
)
HOME, DIET = ("home", "attribute"), ("diet", "constraint")
ASPECTS = {"lives": HOME, "peanuts": DIET, "moved": ("moves", "attribute")}
ALL = "SELECT a.name, t.kind, t.memory_id FROM entity_attributes t JOIN entity_aspects a"
ALL += " USING (aspect_id) WHERE t.status = 'active' ORDER BY ALL"


def sensible(prompt: Prompt) -> str:
    """Sorts facts about Ana by words in them, and says nothing of other entities."""
    facts = prompt.subject["facts"] if prompt.subject["name"] == "Ana" else []
    assert isinstance(facts, list)
    places = [
        {"i": number, "aspect": aspect, "kind": kind}
        for number, fact in enumerate(facts, 1)
        for word, (aspect, kind) in ASPECTS.items()
        if word in str(fact)
    ]
    return json.dumps({"type": "person" if facts else "unknown", "facts": places})


class Classifier:
    """The job on a pipeline, with a model that answers by a function of the prompt."""

    def __init__(self, pipeline: Pipeline, answer: Callable[[Prompt], str] = sensible) -> None:
        self.pipeline = pipeline
        self.model = ScriptedModel(answer)
        self.port = ModelPort(self.model, pipeline.embedding)

    def run(self, append: Any = None, follow: bool = True) -> str:
        settings = self.pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
        context = replace(context_of(self.pipeline), models=self.port, settings=settings)
        context = context if append is None else replace(context, append=append)
        done = asyncio.run(classification(context))
        if follow:
            self.pipeline.run()
        return done


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", SETTINGS) as made:
        made.command(*FACTS)
        yield made.run()


def classified(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """(aspect, kind, memory) of all attributes that stand."""
    return [tuple(row.values()) for row in pipeline.rows(ALL)]


class SlowModel(ScriptedModel):
    """All replies but the first arrive once `told` is set."""

    def __init__(self, answer: Callable[[Prompt], str]) -> None:
        super().__init__(answer)
        self.told = threading.Event()

    async def generate(self, prompt: Prompt) -> Reply:
        first = not self.prompts
        reply = await super().generate(prompt)
        if not first:
            await asyncio.to_thread(self.told.wait, 60.0)
        return reply


BOTH = [("diet", "constraint", memory_id(2)), ("home", "attribute", memory_id(1))]


def test_facts_are_sorted_once(pipeline: Pipeline) -> None:
    told_before = ask(pipeline, GetEntity("Ana", "ana"))["times_told"]
    classifier = Classifier(pipeline)
    assert classifier.run() == "2 facts of 1 entity"  # a single fact tells little of Porto
    assert classified(pipeline) == BOTH
    [prompt] = [each for each in classifier.model.prompts if each.subject["name"] == "Ana"]
    assert "1. Ana lives in Porto\n2. Ana must not eat peanuts" in prompt.user
    found = ask(pipeline, GetEntity("Ana", "ana"))
    assert (found["type"], found["times_told"]) == ("person", told_before)
    assert [each["aspect"] for each in found["attributes"]] == ["diet", "home"]
    # Neither what has a place now, nor what the model had none for.
    assert classifier.run() == "0 facts of 0 entities"


def test_a_rebuild_repeats_it_without_a_model(pipeline: Pipeline, tmp_path: Path) -> None:
    Classifier(pipeline).run()
    with Pipeline(tmp_path / "rebuilt", SETTINGS) as rebuilt:
        fold_again(pipeline, rebuilt)
        assert classified(rebuilt) == BOTH
        assert rebuilt.state() == pipeline.state()


def test_without_a_model_it_says_so(pipeline: Pipeline) -> None:
    assert asyncio.run(classification(context_of(pipeline))).startswith("no language model is set")


def test_a_text_that_changes_loses_its_place(pipeline: Pipeline) -> None:
    classifier = Classifier(pipeline)
    classifier.run()
    pipeline.command(modified(memory_id(1), content="Ana moved to Lisbon"), first=3)
    pipeline.run()
    assert classified(pipeline) == BOTH[:1]
    assert classifier.run() == "1 fact of 1 entity"
    assert classified(pipeline) == [BOTH[0], ("moves", "attribute", memory_id(1))]
    # Labels are no text, but the fact was another when the model saw it.
    pipeline.command(modified(memory_id(2), tags=("a",)), first=4)
    pipeline.run()
    assert len(classified(pipeline)) == 2


def test_what_is_forgotten_has_no_place_until_it_is_recovered(pipeline: Pipeline) -> None:
    Classifier(pipeline).run()
    pipeline.command(ForgetCommand(memory_ids=(memory_id(2),), reason="asked"), first=3)
    pipeline.run()
    assert classified(pipeline) == BOTH[1:]
    pipeline.command(RecoverCommand(memory_id=memory_id(2)), first=4)
    pipeline.run()
    assert classified(pipeline) == BOTH


def test_what_a_person_said_stays(pipeline: Pipeline) -> None:
    said = StructuredAttribute(entity="Ana", aspect="Diet", kind="attribute")
    structured = Structure(attributes=(said,))
    text = "Ana eats no peanuts on Fridays"
    pipeline.command(RememberCommand(content=text, structured=structured), first=3)
    pipeline.run()
    before = pipeline.rows("FROM internal.attribute_rows")
    classifier = Classifier(pipeline)
    classifier.run()
    [prompt] = [each for each in classifier.model.prompts if each.subject["name"] == "Ana"]
    assert text not in prompt.user
    assert "Known aspects: diet" in prompt.user
    # Also where the job had not seen it, as after an import.
    fact = {"memory_id": memory_id(3), "version": 1, "entity": "ana", "aspect": "diet"}
    pipeline.command(about_ana(ClassifiedFact.model_validate(fact | {"kind": "constraint"})))
    [row] = pipeline.rows("FROM internal.attribute_rows WHERE memory_id = ?", memory_id(3))
    assert [row] == before
    [name] = pipeline.values("SELECT name FROM entity_aspects WHERE canonical_name = 'diet'")
    assert name == "Diet"


def about_ana(*facts: ClassifiedFact, entity_type: Any = "place") -> ClassifyFactsCommand:
    known = entity_id("ana", "ana")
    return ClassifyFactsCommand(model="m", entity_id=known, entity_type=entity_type, facts=facts)


def test_only_the_worker_may_and_only_what_it_saw(pipeline: Pipeline) -> None:
    Classifier(pipeline).run()
    of_others = [
        {"memory_id": memory_id(1), "version": 7, "entity": "ana"},
        {"memory_id": memory_id(1), "version": 1, "entity": "nobody"},
        {"memory_id": "unknown", "version": 1, "entity": "ana"},
    ]
    facts = [ClassifiedFact.model_validate({**each, "aspect": "x"}) for each in of_others]
    pipeline.command(about_ana(*facts), first=3)
    pipeline.command(about_ana(*facts), actor=CLASSIFIER, first=4)
    pipeline.command(about_ana(*facts), actor=CLASSIFIER, first=5, scope="ben")
    pipeline.run()
    assert pipeline.result(3)[0].startswith("forbidden")
    assert pipeline.result(4)[1]["facts"] == 1
    assert pipeline.result(5, scope="ben")[1]["facts"] == 0
    assert classified(pipeline) == BOTH
    assert ask(pipeline, GetEntity("Ana", "ana"))["type"] == "person"


def test_frozen_scopes(pipeline: Pipeline) -> None:
    pipeline.command(SetFlagsCommand(autonomous_frozen=True), first=3)
    Classifier(pipeline).run(follow=False)  # it does not know yet
    pipeline.run()
    assert classified(pipeline) == []
    errors = pipeline.values("SELECT error FROM internal.command_results WHERE error IS NOT NULL")
    assert {each.partition(":")[0] for each in errors} == {"frozen"}
    assert Classifier(pipeline).run() == "0 facts of 0 entities"


def test_useless_replies_are_told_and_not_stored(pipeline: Pipeline) -> None:
    with pytest.raises(JobFailed, match=r'none of 1 entity: .*no JSON object with a list "facts"'):
        Classifier(pipeline, lambda prompt: "Ana? I like her.").run()
    odd = {"type": "wizard", "facts": [{"i": 9, "aspect": "home", "kind": "attribute"}]}
    done = Classifier(pipeline, lambda prompt: json.dumps(odd)).run()
    assert done.startswith("0 facts of 1 entity, 2 refused (")
    assert "a type that is none of person, " in done
    assert classified(pipeline) == []


@pytest.mark.parametrize("applied", [False, True])
def test_a_reply_is_paid_and_applied_once(
    pipeline: Pipeline, tmp_path: Path, applied: bool
) -> None:
    """Killed between the reply and its record, and between that and the end of the run, while
    other replies are on their way."""
    others = [told(f"{name} lives in Riga", (name, "lives in", "Riga")) for name in ("Ben", "Cy")]
    pipeline.command(*others, first=3)
    pipeline.run()
    classifier = Classifier(pipeline)
    classifier.model = classifier.port.language = slow = SlowModel(sensible)
    kept = RecordedReplies(tmp_path / "replies.sqlite", pipeline.clock, 7, 1 << 20)
    classifier.port.replies = kept

    def killed(records: Any) -> None:
        if applied:
            pipeline.log.append(records)
        slow.told.set()
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        classifier.run(killed, follow=False)
    classifier.run(follow=False)
    classifier.run()  # before and after its own commands were executed
    assert len({each.user for each in classifier.model.prompts}) == len(classifier.model.prompts)
    assert classified(pipeline) == BOTH
    assert pipeline.dead_letters() == []
    results = pipeline.values("SELECT command_id FROM internal.command_results")
    assert len(results) == len(FACTS) + len(others) + len(classifier.model.prompts)
    assert classifier.run() == "0 facts of 0 entities"


def test_many_facts_are_shown_in_parts_with_the_aspects_so_far(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "live", SETTINGS) as pipeline:
        towns = [f"Ana lives in Town{number}" for number in range(FACTS_PER_CALL + 1)]
        pipeline.command(*(told(text, ("Ana", "lives in", "it")) for text in towns))
        pipeline.run()
        classifier = Classifier(pipeline)
        classifier.run()
        prompts = [each for each in classifier.model.prompts if each.subject["name"] == "Ana"]
        assert [len(each.subject["facts"]) for each in prompts] == [FACTS_PER_CALL, 1]  # type: ignore[arg-type]
        assert "Known aspects: home" in prompts[1].user
        assert len(classified(pipeline)) == len(towns)


def test_aspects_stay_with_the_name_that_a_fact_has(pipeline: Pipeline) -> None:
    pipeline.command(told("Annie lives by the sea", ("Annie", "lives by", "sea")), first=3)
    pipeline.command(AliasCommand(name="Ana", alias="Annie"), first=4)
    pipeline.run()
    Classifier(pipeline).run()
    assert len(ask(pipeline, GetEntity("Ana", "ana"))["attributes"]) == 3
    pipeline.command(UnaliasCommand(name="Ana", alias="Annie"), first=5)
    pipeline.run()
    assert len(ask(pipeline, GetEntity("Ana", "ana"))["attributes"]) == 2
    [left] = ask(pipeline, GetEntity("Annie", "ana"))["attributes"]
    assert (left["aspect"], left["content"]) == ("home", "Annie lives by the sea")


def test_an_erased_fact_takes_its_aspect_out_of_every_file(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str:
        facts = prompt.subject["facts"]
        assert isinstance(facts, list)
        places = [
            {"i": n, "aspect": "flowerpot" if "Porto" in str(fact) else "sea", "kind": "attribute"}
            for n, fact in enumerate(facts, 1)
        ]
        return json.dumps({"type": "person", "facts": places})

    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        running.command(*FACTS, told("Ben sails with Ana", ("Ben", "sails with", "Ana")))
        running.run()
        Classifier(running, answer).run()
        assert where(tmp_path, "flowerpot")
        erase(running, memory_id(1))
        assert where(tmp_path, "flowerpot", "lives in Porto") == []
        assert running.values("SELECT name FROM entity_aspects WHERE name = 'sea'")
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize(("erased", "gone"), [(1, "Oslo"), (2, "Bergen")])
@pytest.mark.parametrize("is_behind", [False, True])
def test_an_erased_earlier_text_takes_its_aspect_out_of_every_file(
    tmp_path: Path, erased: int, gone: str, is_behind: bool
) -> None:
    """The memory stays, with its other text and what the model said of that; also where the graph
    comes to it after the erasure."""
    stages = ("normalize", "extract", "decide", "apply-writes") if is_behind else ()

    def answer(prompt: Prompt) -> str:
        facts = prompt.subject["facts"]
        assert isinstance(facts, list)
        places = [
            {"i": n, "aspect": f"{town}-ward".lower(), "kind": "attribute"}
            for n, fact in enumerate(facts, 1)
            for town in ("Oslo", "Bergen")
            if town in str(fact)
        ]
        return json.dumps({"type": "person", "facts": places})

    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        for number, text in enumerate(("I live in Oslo.", "I live in Bergen now."), 1):
            running.say(text, first=number, speaker="Ana")
            running.run()  # the job asks of the names that the graph has
            Classifier(running, answer).run(follow=False)
            running.run(*stages)
        kept = {"Oslo": "bergen-ward", "Bergen": "oslo-ward"}[gone]
        assert where(tmp_path, f"{gone}-ward".lower())
        ids = (turn_memory_id("ana", f"t{erased}"),)
        running.command(ForgetCommand(memory_ids=ids, reason="mine", hard=True, cascade=True))
        running.run(*stages)
        running.run()
        execute_in(running.log, 0, running.shard)
        assert where(tmp_path, gone, gone.lower()) == []
        names = "SELECT DISTINCT a.name FROM entity_attributes JOIN entity_aspects a"
        assert running.values(f"{names} USING (aspect_id) WHERE status = 'active'") == [kept]
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_what_a_person_called_a_constraint_comes_first_in_a_context(pipeline: Pipeline) -> None:
    Classifier(pipeline).run()

    def shown() -> str:
        asked = Query("ana", "What does Ana do?")
        found = asyncio.run(Retriever(pipeline.shard).context(asked, budget=200))
        return "" if found is None else found.text

    assert "- Ana must not eat peanuts" in shown()
    said = StructuredAttribute(entity="Ana", aspect="diet", kind="constraint")
    structured = Structure(attributes=(said,))
    rule = RememberCommand(content="Ana eats at six", structured=structured, importance=0.1)
    pipeline.command(rule, first=3)
    pipeline.run()
    assert shown().index("eats at six") < shown().index("peanuts")
