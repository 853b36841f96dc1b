"""The program's log: a JSON object a line, with what it is about, and never a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.telemetry.setup import set_up_program
from palimpsest.schemas.codec import encode
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.runtime.failures import log_fields
from palimpsest.streams.runtime.tracing import untraced, working_on
from tests.messages import BEGIN, published, turn

logger = logging.getLogger("palimpsest.test")
MESSAGE = published(turn("hello"), correlation_id="first")
RECORD = Record(
    CONVERSATION_TURNS.name,
    1,
    7,
    b"ana",
    encode(MESSAGE),
    BEGIN,
    {"traceparent": untraced("first")},
)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    handlers, level = [*logging.getLogger().handlers], logging.getLogger("palimpsest").level
    yield
    logging.getLogger().handlers[:] = handlers
    logging.getLogger("palimpsest").setLevel(level)


def configured(log_format: str, **sections: dict[str, object]) -> None:
    telemetry = {"log_format": log_format}
    set_up_program(Settings.model_validate({"telemetry": telemetry, **sections}))


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    logger.info("%s of\n%d", "one", 2, extra={"status": 200, "route": "/x"})
    [line] = printed(capsys)
    assert line["time"].endswith("+00:00")
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "palimpsest.test",
        "message": "one of\n2",
        "status": 200,
        "route": "/x",
    }


def test_text_has_the_message_alone_and_no_lines_of_level_info(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configured("text")
    logger.info("not shown")
    logger.warning("shown", extra={"status": 200})
    assert capsys.readouterr().err == "shown\n"


def test_what_is_worked_on_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    with working_on((RecordRun(RECORD, 1.0, MESSAGE),)):
        logger.warning("waiting")
    logger.warning("done", extra=log_fields("extract", RECORD))
    during, after = printed(capsys)
    assert (during["correlation_id"], during["message_id"]) == ("first", MESSAGE.id)
    assert after["stage"] == "extract"
    assert (after["topic"], after["partition"], after["offset"]) == ("conversation-turns", 1, 7)
    assert (after["correlation_id"], after["message_id"]) == ("first", MESSAGE.id)
    assert after["trace_id"] == untraced("first").decode()[3:35]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_masked_wherever_they_stand(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(form, llm={"api_key": "quite-unremarkable"})
    token = "ghp_" + "a1B2" * 9
    logger.warning("401 for %s and %s", "quite-unremarkable", token, extra={"seen": token})
    said = capsys.readouterr().err
    assert "401 for ********" in said
    assert token not in said
    assert "quite-unremarkable" not in said


def test_an_error_is_told_by_type_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    try:
        raise ValueError(" ".join(("what", "Ana", "said")))
    except ValueError:
        logger.exception("it failed")
    said = capsys.readouterr().err
    assert "what Ana said" not in said
    line = json.loads(said)
    assert (line["error"], line["level"]) == ("ValueError", "error")
    assert "test_an_error_is_told_by_type_and_place" in line["stack"]


def test_a_record_that_is_no_message_is_named_by_its_place() -> None:
    broken = Record("conversation-turns", 0, 3, None, b"{", BEGIN, {"traceparent": b"x" * 10_000})
    assert log_fields("normalize", broken) == {
        "stage": "normalize",
        "topic": "conversation-turns",
        "partition": 0,
        "offset": 3,
    }
