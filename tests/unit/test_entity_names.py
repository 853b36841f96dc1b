"""Which two entities are proposed as one: measured on 200 labelled pairs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.text.entity_names import KnownEntity, merge_evidence, name_evidence

PAIRS = Path(__file__).parents[1] / "data" / "entity_pairs.tsv"


def entity(name: str, kind: str, relations: str, degrees: dict[str, int]) -> KnownEntity:
    """`relations` are `relation>end` or `relation>end*number of entities related to the end`."""
    found = set()
    for each in relations.split(";"):
        relation, _, end = each.partition(">")
        end, _, degree = end.partition("*")
        degrees[end] = int(degree or 2)
        found.add((relation, True, end))
    return KnownEntity((name,), kind, frozenset(found))


def is_proposed(row: dict[str, str]) -> bool:
    degrees: dict[str, int] = {}
    one = entity(row["name"], row["type"], row["relations"], degrees)
    other = entity(row["other_name"], row["type"], row["other_relations"], degrees)
    found = merge_evidence(one, other, degrees)
    assert (found is None) == (merge_evidence(other, one, degrees) is None)
    return found is not None


@pytest.mark.parametrize(("half", "found", "wrong"), [(0, 46, 0), (1, 47, 1)])
def test_quality_on_labelled_pairs(half: int, found: int, wrong: int) -> None:
    """The first half was looked at while writing the rules, the second was not."""
    with PAIRS.open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file, delimiter="\t")][half::2]
    proposed = dict.fromkeys(("same", "different"), 0)
    for row in rows:
        proposed[row["label"]] += is_proposed(row)
    assert len(rows) == 100
    assert proposed["same"] >= found
    assert proposed["different"] <= wrong


@pytest.mark.parametrize(
    ("one", "other", "evidence"),
    [
        ("Bob", "Robert Miller", "nickname"),
        ("J. Smith", "John Smith", "initials"),
        ("AWS", "Amazon Web Services", "initials"),
        ("MIT", "Massachusetts Institute of Technology", "initials"),
        ("Анна", "Anna", "equal"),
        ("Zoë", "Zoe", "equal"),
        ("Dr. House", "House", "equal"),
        ("Anna", "Anna Berg", "part"),
        ("Katherine", "Catherine", "spelling"),
        ("art", "Bartholomew", None),
        ("J", "John", None),
        ("Mr. Lee", "Mrs. Lee", None),
        ("Anna Berg", "Anna Smith", None),
        ("田中", "佐藤", None),
        ("", "?", None),
    ],
)
def test_how_names_are_alike(one: str, other: str, evidence: str | None) -> None:
    assert name_evidence(one, other) == evidence
    assert name_evidence(other, one) == evidence


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_names_are_compared(one: str, other: str) -> None:
    assert name_evidence(one, other) == name_evidence(other, one)


def test_names_alone_are_no_evidence() -> None:
    anna = KnownEntity(("Anna",), "person", frozenset({("lives in", True, "Oslo")}))
    same = KnownEntity(("Anna B",), "person", frozenset())
    assert merge_evidence(anna, same, {}) is None


def test_a_relation_between_two_tells_them_apart() -> None:
    both = frozenset({("works on", True, "the Apollo report")})
    one = KnownEntity(("Joe",), "person", both | {("father of", True, "Joseph")})
    other = KnownEntity(("Joseph",), "person", both)
    assert merge_evidence(one, other, {}) is None
    assert merge_evidence(KnownEntity(("Joe",), "person", both), other, {}) is not None
