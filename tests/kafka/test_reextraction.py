"""A branch of a memory on a real broker: read beside the worker, without a consumer group."""

from __future__ import annotations

import asyncio

import pytest

from palimpsest.ops.kafka.topics import delete_records, processed
from palimpsest.ops.replay.branches import branch_folder, branch_settings, read_branch
from palimpsest.ops.replay.live_log import Ledger
from palimpsest.ops.replay.reextraction import Reextracted, reextract
from palimpsest.ops.replay.requests import Reextract
from palimpsest.ops.service.commanding import CommandRequest, commands_of
from palimpsest.schemas.commands import ForgetCommand
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.runtime.output import outgoing
from tests.messages import published, topic_of, turn
from tests.replayed import facts
from tests.soak.lab import Lab, MakeLab

PARTITIONS = 2


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS)


def say(lab: Lab, *contents: str, scope: str, first: int = 1) -> None:
    messages = [published(turn(text, n), scope) for n, text in enumerate(contents, first)]
    lab.log.append([outgoing(topic_of(message), message) for message in messages])


def feed(lab: Lab) -> Reextracted:
    asked = Reextract("again", overrides=("extraction.context_turns=0",))
    return asyncio.run(reextract(lab.settings, asked))


@pytest.mark.soak
def test_a_branch_is_fed_beside_the_worker(lab: Lab) -> None:
    commands = commands_of(lab.settings)
    lab.start("one")
    lab.until_owned(1)
    say(lab, "I live in Lisbon with my sister Nora.", "I am allergic to walnuts.", scope="ana")
    say(lab, "I work as a nurse in Porto.", scope="ben")
    lab.until_drained()
    first = feed(lab)
    assert (first.ended, first.turns, first.waiting) == ("done", 3, 0)
    own = branch_settings(lab.settings, read_branch(lab.settings, "again"))
    known = facts(own)
    walnuts = next(key for text, key in known.items() if "walnuts" in text)
    forget = ForgetCommand(memory_ids=(walnuts,), reason="private")
    given = asyncio.run(commands.submit(CommandRequest("ana", forget), 30.0))
    assert given.result()
    say(lab, "I play the violin.", scope="ana", first=7)
    lab.until_drained()
    second = feed(lab)
    assert (second.turns, second.commands, second.waiting) == (1, 1, 0)
    assert len(facts(own)) == 2
    assert not any("walnuts" in text for text in facts(own))
    with Ledger.opened(branch_folder(lab.settings, "again")) as ledger:
        assert [row.status for row in ledger.curated()] == ["re-applied"]
    # The worker was not disturbed.
    say(lab, "I am learning Norwegian.", scope="ben", first=8)
    lab.until_drained()
    lab.stop("one")
    places = [("memory-writes", number) for number in range(PARTITIONS)]
    assert all(found.beginning == 0 for found in lab.log.watermarks(places).values())


def test_a_log_that_has_lost_its_beginning_is_refused(lab: Lab) -> None:
    lab.start("one")
    lab.until_owned(1)
    say(lab, "I am allergic to walnuts.", scope="ana")
    lab.until_drained()
    lab.stop("one")
    gone = [each for each in processed(lab.log) if each.topic == "memory-writes"]
    assert gone
    delete_records(lab.settings.cluster, gone)
    with pytest.raises(LogError, match="deleted"):
        feed(lab)
