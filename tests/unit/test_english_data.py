"""The data of claims: every entry is used, every kind of a predicate is explained."""

from __future__ import annotations

import re
from itertools import chain

from palimpsest.streams.claims.language import ENGLISH, fragment
from tests.source_modules import modules

CLAIMS = "".join(m.text for m in modules("streams") if m.name.startswith("streams.claims."))
NAMED = set(re.findall(r'\(\s*"([a-z_]+)"', CLAIMS))
IN_KINDS = set(re.findall(r"[a-z_]+", " ".join(ENGLISH["kinds"].values())))
IN_EXPRESSIONS = {
    name
    for text in chain(
        ENGLISH["patterns"].values(),
        *ENGLISH["asked"],
        *ENGLISH["retold"],
        *ENGLISH["retold_first"],
        *ENGLISH["sides"],
    )
    for braced in re.findall(r"\{([a-z_+]+)\}", text)
    for name in braced.split("+")
}
INNER = {"age", "meal"}
"""Named where the value of a kind is told from the kind."""


def test_every_entry_is_used() -> None:
    named = NAMED | IN_KINDS | IN_EXPRESSIONS | INNER
    assert {*chain(ENGLISH["words"], ENGLISH["patterns"])} - named == set()


def test_every_kind_of_a_predicate_is_explained() -> None:
    assert {row[4] for row in ENGLISH["rows"]} - ENGLISH["kinds"].keys() == set()


def test_an_expression_takes_in_what_it_names() -> None:
    assert fragment("month").split("|")[:2] == ["september", "december"]
    assert "{" + "month" + "}" not in fragment("calendar")
    assert "guinea pig" in fragment("kin").split("|")
