"""Every request has its answer."""

from __future__ import annotations

import typing

from palimpsest.ops.queries.dispatch import READS, WAITED
from palimpsest.ops.queries.replays import ABOUT_REPLAYS
from palimpsest.ops.queries.requests import REQUESTS, Request


def test_every_request_has_a_name_and_an_answer() -> None:
    assert set(REQUESTS.values()) == set(typing.get_args(Request))
    answered = [*WAITED, *READS, *ABOUT_REPLAYS]
    assert sorted(map(str, REQUESTS.values())) == sorted(map(str, answered))
