"""A thread of Slack is found as a whole: what answers a message is next to it, however many days
lie between them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.streams.logs.base import Outgoing
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.unit.test_ingest_formats import read, using

BEGAN = datetime(2025, 3, 2, 9, tzinfo=UTC).timestamp()
DAYS = 86_400
QUESTION = "How do I get access to the staging VPN?"
ANSWER = "Open a ticket with Dora, she hands out the tokens on Tuesdays."
NOISE = (
    "Lunch at the Thai place today?", "The printer on floor 2 is broken again",
    "Access badge photos are due this week", "VPN was slow this morning",
    "Who has the projector key?", "Standup moved to 10:15", "The client call went well",
    "How do I reset the coffee machine?",
)  # fmt: skip


def message(user: str, text: str, at: float, root: float | None = None) -> dict[str, object]:
    found: dict[str, object] = {"type": "message", "user": user, "text": text, "ts": f"{at:.6f}"}
    return found if root is None else found | {"thread_ts": f"{root:.6f}"}


def export(folder: Path) -> Path:
    return written(
        folder,
        {
            "2025-03-02": [
                message("U1", QUESTION, BEGAN, BEGAN),
                *(message("U2", text, BEGAN + 60 * number) for number, text in enumerate(NOISE, 1)),
            ],
            "2025-03-07": [
                message("U3", "Morning all", BEGAN + 5 * DAYS - 60),
                message("U4", ANSWER, BEGAN + 5 * DAYS, BEGAN),
                message("U1", "Thanks, done!", BEGAN + 5 * DAYS + 60, BEGAN),
                message("U5", "Of a thread that is not here", BEGAN + 5 * DAYS + 90, BEGAN - DAYS),
            ],
        },
    )


def written(folder: Path, days: dict[str, list[dict[str, object]]]) -> Path:
    (folder / "general").mkdir(parents=True)
    (folder / "users.json").write_text("[]")
    for day, messages in days.items():
        (folder / "general" / f"{day}.json").write_text(json.dumps(messages))
    return folder


def test_replies_follow_the_message_that_they_answer(tmp_path: Path) -> None:
    records = read(export(tmp_path / "x"), using())[1]
    bodies = [json.loads(e.value or b"")["body"] for e in records if isinstance(e, Outgoing)]
    assert [(each["content"], each["session_id"]) for each in bodies] == [
        *((text, "general 2025-03-02") for text in (QUESTION, ANSWER, "Thanks, done!", *NOISE)),
        ("Morning all", "general 2025-03-07"),
        ("Of a thread that is not here", "general 2025-03-01"),
    ]


@pytest.mark.parametrize("question", [QUESTION, "access to the staging VPN"])
def test_an_answer_of_another_day_is_found_by_its_question(tmp_path: Path, question: str) -> None:
    records = [e for e in read(export(tmp_path / "x"), using())[1] if isinstance(e, Outgoing)]
    with Pipeline(tmp_path / "p") as pipeline:
        pipeline.log.append(records)
        pipeline.run()
        retriever = Retriever(pipeline.shard, clock=pipeline.clock)
        results = retriever.search(Query(records[0].scope, question, limit=3)).results
        assert ANSWER in [each.content for each in results]


def test_what_was_said_before_a_late_reply_is_older_than_it(tmp_path: Path) -> None:
    """The reply comes first in the log, and what it says holds all the same."""
    days = {
        "2025-03-02": [
            message("U2", "Where does everybody live?", BEGAN, BEGAN),
            message("U1", "I live in Graz.", BEGAN + 600),
        ],
        "2025-03-07": [message("U1", "I live in Linz now.", BEGAN + 5 * DAYS, BEGAN)],
    }
    items = read(written(tmp_path / "x", days), using())[1]
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        pipeline.log.append([each for each in items if isinstance(each, Outgoing)])
        pipeline.run()
        facts = "SELECT content FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted"
        assert pipeline.values(f"{facts} AND valid_until IS NULL") == ["U1 lives in Linz."]
        assert pipeline.dead_letters() == []


NOW = datetime(2025, 4, 1, tzinfo=UTC)
LATE_ROOT = datetime(2025, 3, 3, 4, 30, tzinfo=UTC).timestamp()
"""Of 2 March in the workspace's zone, whose day its file has."""


def placed(published: Published, path: Path) -> list[tuple[str, str, str]]:
    """The words, the sessions and the standings of what an import publishes."""
    records = [item for item in read(path, using())[1] if isinstance(item, Outgoing)]
    found = list(recognised(records, published, NOW, lambda _: None))
    bodies = [json.loads(each.value or b"")["body"] for each in found]
    return [
        (body["content"], body["session_id"], published.standing(each))
        for body, each in zip(bodies, found, strict=True)
    ]


def test_a_reply_of_a_later_import_is_in_the_session_of_what_it_answers(tmp_path: Path) -> None:
    published = Published(None)
    placed(published, written(tmp_path / "a", {"2025-03-02": [message("U1", QUESTION, LATE_ROOT)]}))
    later = [
        message("U4", ANSWER, LATE_ROOT + 5 * DAYS, LATE_ROOT),
        message("U1", "Thanks, done!", LATE_ROOT + 5 * DAYS + 60, LATE_ROOT),
    ]
    again = {"2025-03-07": later}
    expected = [(each["text"], "general 2025-03-02") for each in later]
    assert placed(published, written(tmp_path / "b", again)) == [(*e, "new") for e in expected]
    assert placed(published, written(tmp_path / "c", again)) == [(*e, "known") for e in expected]
    whole = again | {"2025-03-02": [message("U1", QUESTION, LATE_ROOT, LATE_ROOT)]}
    assert {each[1:] for each in placed(published, written(tmp_path / "d", whole))} == {
        ("general 2025-03-02", "known")
    }


def test_a_reply_in_a_renamed_channel_is_in_the_session_of_what_it_answers(tmp_path: Path) -> None:
    published = Published(None)
    channels = json.dumps([{"id": "C1", "name": "general"}])
    first = written(tmp_path / "a", {"2025-03-02": [message("U1", QUESTION, BEGAN, BEGAN)]})
    (first / "channels.json").write_text(channels)
    placed(published, first)
    days = {
        "2025-03-02": [message("U1", QUESTION, BEGAN, BEGAN)],
        "2025-03-07": [message("U4", ANSWER, BEGAN + 5 * DAYS, BEGAN)],
    }
    second = written(tmp_path / "b", days)
    (second / "general").rename(second / "everyone")
    (second / "channels.json").write_text(channels.replace("general", "everyone"))
    assert placed(published, second) == [
        (QUESTION, "general 2025-03-02", "known"),
        (ANSWER, "general 2025-03-02", "new"),
    ]
