"""Which names of categories are taken for the same, and which look-alikes are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.apply.categories import folded

SAME = (
    "home_improvement/home_improvements", "home_improvement/improvement_home", "hobby/hobbies",
    "movie/movies", "box/boxes", "church/churches", "class/classes", "house/houses",
    "software_updates/update_software", "color/colours", "behaviour/behaviors",
    "neighbour/neighbors", "organisation/organizations", "personalisation/personalization",
    "travelling/traveling", "centre/centers", "theatre/theater", "catalogue/catalogs",
    "programme/programs", "grey/gray", "e_commerce/ecommerce", "health_care/healthcare",
)  # fmt: skip
OTHER = (
    "car/care", "new/news", "university/universe", "training/trailing", "training/train",
    "painting/paint", "contract/contact", "meeting/meet", "policy/police", "bus/business",
    "princess/princes", "organ/organization", "marketing/market", "analysis/analyst",
    "sport/support", "work/workout", "desert/dessert", "hour/hor", "four/for", "tour/tor",
    "exercise/exercize", "promise/promize", "cat/cats_and_dogs", "family_car/car", "a_b/ab",
    "仕事/家族", "premise/premium", "planting/planning", "us/u", "paris/pari", "gas/ga",
)  # fmt: skip


def pairs(listed: tuple[str, ...]) -> list[tuple[str, str]]:
    """Both ways round."""
    cut = [tuple(pair.split("/")) for pair in listed]
    return [(a, b) for a, b in cut] + [(b, a) for a, b in cut]


def test_the_same_by_another_name() -> None:
    assert not [pair for pair in pairs(SAME) if folded(pair[:1], pair[1:]) != pair[1:]]


def test_what_only_looks_alike() -> None:
    assert not [pair for pair in pairs(OTHER) if folded(pair[:1], pair[1:]) != pair[:1]]


def test_what_is_there_stays_as_it_is() -> None:
    assert folded(("pets", "dog"), ("pet", "pets")) == ("pets", "dog")
    assert folded(("pets", "pet"), ()) == ("pets",)
    assert folded(("pets",), ("pet", "dog")) == ("pet",)
    assert folded((), ("pet",)) == ()


NAMES = st.lists(
    st.text(alphabet="abcdehiosuy_é犬", min_size=1, max_size=12).map(lambda name: name.strip("_")),
    max_size=8,
).map(lambda names: tuple(filter(None, names)))


@given(NAMES, NAMES)
def test_folding_again_changes_nothing(names: tuple[str, ...], known: tuple[str, ...]) -> None:
    once = folded(names, known)
    assert folded(once, known) == once
    assert len(set(once)) == len(once) <= len(names)
    assert folded(names, known[::-1]) == once
