"""Any message that can be built comes back from its bytes as it was."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings

from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.envelope import Envelope, Frozen
from tests.contract.message_examples import TOPIC_OF, envelopes
from tests.examples import examples

RECORDED = datetime(2026, 3, 1, 9, 30, 1, tzinfo=UTC)


@settings(
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(envelopes)
def test_any_message_comes_back_equal(message: Envelope[Frozen]) -> None:
    encoded = encode(message)
    again = decode(encoded, TOPIC_OF[message.schema_], RECORDED)
    assert again.body == message.body
    for name in Envelope.model_fields.keys() - {"body", "recorded_at"}:
        assert getattr(again, name) == getattr(message, name)
    assert again.model_extra == message.model_extra
    assert encode(again) == encoded
