"""The role of a turn that has none follows from its speaker's name."""

from __future__ import annotations

import json

import pytest

from palimpsest.schemas.messages import ConversationTurn


@pytest.mark.parametrize(
    ("speaker", "role"),
    [
        ("assistant", "assistant"),
        ("Assistant", "assistant"),
        ("  AI   Assistant ", "assistant"),
        ("ai", "assistant"),
        ("ChatGPT", "assistant"),
        ("bot", "assistant"),
        ("System", "system"),
        ("tool", "tool"),
        ("Ana", "user"),
        ("user", "user"),
        ("Aisha", "user"),
        ("", "user"),
    ],
)
def test_a_speaker_without_a_role_has_that_of_the_name(speaker: str, role: str) -> None:
    body = {"turn_id": "1", "content": "Hello.", "speaker": speaker}
    assert ConversationTurn.model_validate(body).role == role
    assert ConversationTurn.model_validate_json(json.dumps(body)).role == role
    for given in ("user", "assistant"):
        assert ConversationTurn.model_validate({**body, "role": given}).role == given
