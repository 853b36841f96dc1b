"""The ways to recall that are measured against each other: what the default is made of, and what
each part of it is worth. Whoever adds, renames or retires a parameter changes this file alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from palimpsest.stores.recall.ranking import DEFAULTS, RankingParameters
from palimpsest.stores.settings import RecallSettings


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to recall, measured under its name; as it goes when nothing is set, but for what is
    given."""

    name: str
    settings: RecallSettings = RecallSettings()
    parameters: RankingParameters = DEFAULTS
    types: tuple[str, ...] = ()
    group: bool = True


_NO_FACTS = replace(DEFAULTS, fact_to_turn=0.0, turn_to_fact=0.0)
_NO_ROLES = replace(DEFAULTS, assistant_prior=1.0, people_prior=1.0)
_ASKED_ALIKE = replace(DEFAULTS, question_prior=1.0)
_BARE = replace(
    replace(_NO_ROLES, question_prior=1.0),
    fact_to_turn=0.0,
    turn_to_fact=0.0,
    neighbour_weights=(),
    named_boost=0.0,
)
_TEXT = RecallSettings(time_words="off", graph_weight=0.0)

HYBRID: Final = Variant("hybrid")
METHODS: Final = (
    Variant("keyword", RecallSettings(fusion="keyword")),
    Variant("vector", RecallSettings(fusion="vector")),
    HYBRID,
    Variant("rrf", RecallSettings(fusion="rrf")),
)
ABLATIONS: Final = (
    Variant("no times of the words", RecallSettings(time_words="off")),
    Variant("no graph", RecallSettings(graph_weight=0.0)),
    Variant("neither times nor graph", _TEXT),
    Variant("no propagation to neighbours", parameters=replace(DEFAULTS, neighbour_weights=())),
    Variant("no boost of the named", parameters=replace(DEFAULTS, named_boost=0.0)),
    Variant("no priors by role", parameters=_NO_ROLES),
    Variant("questions like answers", parameters=_ASKED_ALIKE),
    Variant("no centring", parameters=replace(DEFAULTS, centring=0.0)),
    Variant("no propagation between turn and fact", parameters=_NO_FACTS),
    Variant("turns only", types=("episodic",)),
    Variant("not grouped", group=False),
    Variant("b 0.75", parameters=replace(DEFAULTS, b=0.75)),
    Variant("turns before alike", parameters=replace(DEFAULTS, asking_weight=0.25)),
    Variant("alpha 0.5", RecallSettings(alpha=0.5)),
    Variant("alpha 0.8", RecallSettings(alpha=0.8)),
    Variant("pool 100", RecallSettings(pool=100)),
    Variant("pool 200", RecallSettings(pool=200)),
    Variant("both legs alone", _TEXT, _BARE),
    Variant("keyword alone", _TEXT.model_copy(update={"fusion": "keyword"}), _BARE),
    Variant("vector alone", _TEXT.model_copy(update={"fusion": "vector"}), _BARE),
    Variant("rrf alone", _TEXT.model_copy(update={"fusion": "rrf"}), _BARE),
)
"""All but those that are said to stand alone differ from hybrid in what their name says."""
