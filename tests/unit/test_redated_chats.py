"""A chat whose dates were read with day and month swapped is corrected by an export that tells."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published, Standing, not_erased
from palimpsest.schemas.commands import ForgetCommand
from palimpsest.streams.logs.base import Outgoing
from tests.erased_bytes import where
from tests.flows.test_erased_fields import execute
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.unit.test_ingest_formats import read, using

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SHORT = "03/04/25, 09:00 - Ana: I live in Graz.\n03/04/25, 09:01 - Ben: Nice\n"
LONG = f"{SHORT}04/25/25, 09:00 - Ana: I have a dog.\n"


def ingest(
    pipeline: Pipeline, published: Published, path: Path, text: str, **chosen: object
) -> list[Standing]:
    path.write_text(text)
    items = read(path, using(**chosen))[1]
    records = [item for item in items if isinstance(item, Outgoing)]
    found = list(recognised(records, published, NOW, print))
    standings = [published.standing(each) for each in found]
    pipeline.log.append(not_erased(found, standings))
    pipeline.run()
    return standings


def times(pipeline: Pipeline, kind: str) -> list[str]:
    rows = pipeline.values(
        "SELECT strftime(occurred_at, '%Y-%m-%d ') || content FROM memory_rows"
        f" WHERE NOT is_deleted AND type {kind} 'episodic' ORDER BY 1"
    )
    return [str(row) for row in rows]


def test_a_longer_export_corrects_what_was_assumed(tmp_path: Path) -> None:
    published = Published(None)
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        assert ingest(pipeline, published, tmp_path / "a.txt", SHORT) == ["new", "new"]
        assert times(pipeline, "=") == ["2025-04-03 I live in Graz.", "2025-04-03 Nice"]
        assert times(pipeline, "<>") == ["2025-04-03 Ana lives in Graz."]
        told = ingest(pipeline, published, tmp_path / "b.txt", LONG)
        assert told == ["revised", "revised", "new"]
        expected = ["2025-03-04 I live in Graz.", "2025-03-04 Nice", "2025-04-25 I have a dog."]
        for text in (LONG, SHORT):  # neither changes anything
            assert times(pipeline, "=") == expected
            assert times(pipeline, "<>") == [
                "2025-03-04 Ana lives in Graz.",
                "2025-04-25 Ana has a dog.",
            ]
            assert set(ingest(pipeline, published, tmp_path / "c.txt", text)) == {"known"}
        assert times(pipeline, "=") == expected
        assert pipeline.dead_letters() == []
        assert pipeline.balance().holds


def test_facts_that_several_messages_support_have_the_right_dates(tmp_path: Path) -> None:
    published = Published(None)
    twice = "03/04/25, 09:00 - Ana: I have a dog.\n03/06/25, 09:00 - Ana: I have a dog.\n"
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        ingest(pipeline, published, tmp_path / "a.txt", twice, date_order="dmy")
        assert times(pipeline, "<>") == ["2025-06-03 Ana has a dog."]
        ingest(pipeline, published, tmp_path / "b.txt", f"{twice}04/25/25, 09:00 - Ana: Hi\n")
        assert times(pipeline, "<>") == ["2025-03-06 Ana has a dog."]
        first = pipeline.values(
            "SELECT strftime(first_occurred_at, '%Y-%m-%d') FROM memory_rows"
            " WHERE NOT is_deleted AND type <> 'episodic'"
        )
        assert first == ["2025-03-04"]


def test_the_short_export_after_the_long_one_changes_nothing(tmp_path: Path) -> None:
    published = Published(None)
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        ingest(pipeline, published, tmp_path / "a.txt", LONG)
        before = times(pipeline, "=")
        assert ingest(pipeline, published, tmp_path / "b.txt", SHORT) == ["known", "known"]
        assert (times(pipeline, "="), pipeline.dead_letters()) == (before, [])


def test_a_person_corrects_the_order(tmp_path: Path) -> None:
    published = Published(None)
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        ingest(pipeline, published, tmp_path / "a.txt", SHORT)
        told = ingest(pipeline, published, tmp_path / "a.txt", SHORT, date_order="mdy")
        assert told == ["revised", "revised"]
        assert times(pipeline, "=") == ["2025-03-04 I live in Graz.", "2025-03-04 Nice"]


def test_what_was_forgotten_stays_forgotten(tmp_path: Path) -> None:
    published = Published(None)
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        ingest(pipeline, published, tmp_path / "a.txt", SHORT)
        [graz] = pipeline.values("SELECT memory_id FROM memory_rows WHERE content LIKE 'I live%'")
        forget = ForgetCommand(memory_ids=(str(graz),), cascade=True, reason="private")
        pipeline.command(forget, scope="default")
        pipeline.run()
        ingest(pipeline, published, tmp_path / "b.txt", LONG)
        assert times(pipeline, "=") == ["2025-03-04 Nice", "2025-04-25 I have a dog."]
        assert times(pipeline, "<>") == ["2025-04-25 Ana has a dog."]
        assert pipeline.dead_letters() == []


def test_what_is_left_of_an_erased_one_gives_the_same(tmp_path: Path) -> None:
    published = Published(None)
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as pipeline:
        ingest(pipeline, published, tmp_path / "a.txt", SHORT)
        ingest(pipeline, published, tmp_path / "b.txt", LONG)
        [graz] = pipeline.values("SELECT memory_id FROM memory_rows WHERE content LIKE 'I live%'")
        erase = ForgetCommand(memory_ids=(str(graz),), cascade=True, hard=True, reason="asked")
        pipeline.command(erase, scope="default")
        execute(pipeline)
        assert where(tmp_path / "live", "Graz") == []
        again = Published(pipeline.log)
        assert ingest(pipeline, again, tmp_path / "c.txt", LONG) == ["erased", "known", "known"]
        before = pipeline.state_by_table()
    shutil.copytree(tmp_path / "live" / "log", tmp_path / "anew" / "log")
    with Pipeline(tmp_path / "anew", pipeline_settings(FULL)) as anew:
        anew.run("decide").run("apply-writes").run()
        assert set(differing(anew.state_by_table(), before)) <= {"proposals"}
        assert anew.balance().holds
