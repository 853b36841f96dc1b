"""Packed values of frameworks: no redaction changes them, and they come back equal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.ops.adapters.history import PACKED, is_redacted, packed, unpacked
from tests.examples import examples

SECRETS = st.sampled_from(
    [
        "my password is hunter2-and-more",
        "4111 1111 1111 1111",
        "sk-proj-abcdefghijklmnopqrstuvwx0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "ana@example.com",
        "postgres://ana:secret@db.example.com/app",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | SECRETS,
    lambda some: st.lists(some) | st.dictionaries(st.text() | st.just("api_key"), some),
)


@settings(max_examples=examples(15))
@given(st.dictionaries(st.text(), VALUES), SECRETS)
def test_what_is_packed_comes_back(whole: dict[str, object], secret: str) -> None:
    whole = {**whole, "secret": secret}
    kept = packed(whole, redact=False)
    assert [*kept] == [PACKED]
    assert not is_redacted(kept)
    assert unpacked(kept) == whole


def test_what_no_redaction_changes_stays_readable() -> None:
    assert packed({"value": {"text": "bees", "n": 1}}, redact=False) == {
        "value": {"text": "bees", "n": 1}
    }
    assert packed({"password": "hunter2"}, redact=True) == {"password": "hunter2"}
