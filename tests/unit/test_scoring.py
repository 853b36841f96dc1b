"""Keyword sums: the same bits whichever way they are added up, and only what is visible counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.index import scoring
from palimpsest.stores.index.segment import Segment
from tests.unit.small_store import memory

TERMS = ("tea", "cup", "green", "late", "door")
documents = st.lists(
    st.dictionaries(st.sampled_from(TERMS), st.integers(1, 9), min_size=1), min_size=1, max_size=40
)


def segment_of(texts: list[dict[str, int]]) -> Segment:
    segment = Segment(8)
    for number, terms in enumerate(texts):
        segment.put(memory(f"m{number}"), terms, None)
    return segment


@given(documents, st.data())
def test_few_and_many_postings_add_up_to_the_same_bits(
    texts: list[dict[str, int]], data: st.DataObject
) -> None:
    segment = segment_of(texts)
    seen = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    for mask in (None, np.array(seen, dtype=np.bool_)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scoring, "MANY", 0)
            by_term = scoring.keyword_sums([segment, Segment(8)], TERMS, [mask, None])
            patch.setattr(scoring, "MANY", 10**9)
            at_once = scoring.keyword_sums([segment, Segment(8)], TERMS, [mask, None])
        assert by_term[1] == at_once[1]
        assert by_term[0][0].tobytes() == at_once[0][0].tobytes()


def test_what_is_not_visible_is_not_there() -> None:
    texts = [{"tea": 2, "cup": 1}, {"tea": 1}, {"green": 3}]
    hidden = scoring.keyword_sums([segment_of(texts)], TERMS, [np.array([True, False, True])])
    absent = scoring.keyword_sums([segment_of([texts[0], texts[2]])], TERMS, [None])
    assert hidden[1] == absent[1]
    assert hidden[0][0].tolist() == [absent[0][0][0], 0.0, absent[0][0][1]]
