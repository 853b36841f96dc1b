"""Opposites that nobody was asked about: "any" in a denial, what is done every day, what a dead
relative did, what somebody is allergic to and eats."""

from __future__ import annotations

import pytest

from tests.harness import CAREFUL, FULL, pipeline_settings
from tests.unit.test_order_of_statements import FAR, Met, met

OPPOSITES = [
    ("I've been allergic to nuts since birth.", "I'm not allergic to nuts."),
    ("I've worked at Bosch since 2019.", "I quit Bosch."),
    ("I've worked at Bosch since 2019.", "I work at Siemens now."),
    ("I've been married for ten years.", "I'm divorced."),
    ("I've been married since 2015.", "I'm single."),
    ("I've been married to Tom since 2015.", "Tom and I got divorced."),
    ("I've played the piano since 2001.", "I don't play the piano anymore."),
    ("I've studied at MIT since 2020.", "I dropped out of MIT."),
    ("Always answer in German.", "From now on, answer in English."),
    ("My phone is a Pixel.", "My phone is an iPhone now."),
    ("My laptop is a ThinkPad.", "My laptop is a MacBook."),
    ("I use Windows.", "I no longer use Windows."),
    ("I never had children.", "I have a son."),
    ("I don't speak any French.", "I speak fluent French."),
    ("I play no instruments.", "I play the piano."),
    ("I don't play any instruments.", "I play the guitar."),
    ("I don't have any siblings.", "I have two sisters."),
    ("I don't have any pets.", "I have a dog."),
    ("I don't have any kids.", "My daughter is three."),
    ("I don't have any children.", "I have a son."),
    ("I don't do any sports.", "I play tennis."),
    ("I don't eat any meat.", "I eat chicken."),
    ("I don't drink any alcohol.", "I drink wine."),
    ("I'm not on any medication.", "I take metformin."),
    ("I don't take any medication.", "I take ibuprofen."),
    ("My father is a plumber.", "My father died in 2021."),
    ("My father plays chess every Sunday.", "My father died in 2021."),
    ("My father plays chess.", "My father died in 2021."),
    ("My mother loves gardening.", "My mother passed away."),
    ("My father smokes.", "My father died."),
    ("My father has diabetes.", "My father died."),
    ("My father is retired.", "My father died last year."),
    ("My mother is a nurse.", "My mum died."),
    ("My father drives a Volvo.", "My father died."),
    ("My mother speaks Polish.", "My mother died."),
    ("My dad is 72.", "My dad died last year."),
    ("My mother is allergic to nuts.", "My mother died."),
    ("My mother is vegan.", "My mother died."),
    ("My mother takes insulin.", "My mother died."),
    ("My dog loves swimming.", "My dog died."),
    ("My dog Rex is allergic to chicken.", "Rex died."),
    ("My father is moving to Spain next year.", "My father died."),
    ("My father has a dog.", "My father died."),
    ("My wife is pregnant.", "My wife died."),
    ("I'm allergic to peanuts.", "I eat peanuts every day."),
    ("I'm allergic to peanuts.", "I eat peanuts."),
    ("I eat peanuts every day.", "I'm allergic to peanuts."),
    ("I'm allergic to shellfish.", "I eat shrimp."),
    ("I'm allergic to nuts.", "I eat almonds."),
    ("I'm allergic to milk.", "I drink milk."),
    ("I'm allergic to milk.", "I drink milk every morning."),
    ("I'm allergic to dairy.", "I eat cheese."),
    ("I'm lactose intolerant.", "I drink milk."),
    ("I'm lactose intolerant.", "I eat cheese every day."),
    ("I'm celiac.", "I eat bread."),
    ("I have celiac disease.", "I eat bread."),
    ("I'm gluten-free.", "I eat bread."),
    ("I'm gluten-free.", "I eat pasta every day."),
    ("I'm allergic to eggs.", "I eat eggs for breakfast."),
    ("I'm allergic to penicillin.", "I take penicillin."),
    ("I'm allergic to aspirin.", "I take aspirin."),
    ("I don't drive.", "I drive a Volvo."),
    ("I can't drive.", "I drive a Volvo."),
    ("I don't have a driver's license.", "I drive a Volvo."),
    ("I don't smoke.", "I smoke ten cigarettes a day."),
    ("I'm an only child.", "I have a brother."),
    ("I'm an only child.", "My sister lives in Oslo."),
    ("I'm single.", "My husband works at Bosch."),
    ("I'm unemployed.", "I work at Bosch."),
    ("I'm retired.", "I work at Bosch."),
    ("I don't like any sports.", "I love football."),
    ("I can't swim.", "I swim every morning."),
    ("I don't swim.", "I swim every morning."),
    ("I can't cook.", "I cook every day."),
    ("I don't cook.", "I cook every day."),
    ("I don't run.", "I run every morning."),
    ("I never drink.", "I drink wine every evening."),
    ("I'm vegan.", "I eat cheese every day."),
    ("I'm a vegetarian.", "I eat chicken every Sunday."),
    ("I don't eat meat.", "I eat beef every day."),
    ("I don't drink coffee.", "I drink coffee every morning."),
    ("I've quit coffee.", "I drink coffee every day."),
    ("I don't play tennis.", "I play tennis every Monday."),
    ("My shoe size is 42.", "My shoe size is 38."),
    ("My height is 180 cm.", "My height is 165 cm."),
    ("I was born in Oslo.", "I was born in Rome."),
    ("I'm not married.", "My wife is Eva."),
    ("I have no siblings.", "My brother lives in Oslo."),
]
BESIDE = [
    ("I work at Bosch.", "I've worked at Bosch since 2019."),
    ("I'm married.", "I've been married for ten years."),
    ("I've played the piano since 2001.", "I've played the violin since 2010."),
    ("Always answer in German.", "Keep your answers short."),
    ("Keep your answers short.", "Never use emojis."),
    ("My phone is a Pixel.", "My laptop is a ThinkPad."),
    ("I use Windows.", "I use Linux."),
    ("My birthday is in May.", "My birthday is on May 3."),
    ("I code in Rust.", "I code in Python."),
    ("I speak French.", "I don't speak any German."),
    ("I don't speak any French.", "My wife speaks French."),
    ("I don't play any instruments.", "I play tennis."),
    ("I don't play any sports.", "I play chess."),
    ("I don't play any sports.", "I play the piano."),
    ("I don't play any instruments.", "My daughter plays the piano."),
    ("I don't have any siblings.", "My wife has two sisters."),
    ("I don't eat any meat.", "I eat fish."),
    ("I don't eat any meat.", "I eat vegan sausages every day."),
    ("I don't take any medication.", "I take vitamins."),
    ("I don't take any medication.", "My mother takes metformin."),
    ("I don't eat meat on Fridays.", "I eat chicken."),
    ("I don't drink coffee in the evenings.", "I drink coffee every morning."),
    ("I don't eat eggs for breakfast.", "I eat eggs."),
    ("I don't drink alcohol on weekdays.", "I drink wine on weekends."),
    ("I eat meat on Sundays.", "I eat meat."),
    ("I don't run on Mondays.", "I run every morning."),
    ("I don't swim.", "My sister swims every morning."),
    ("I don't cook.", "My husband cooks every day."),
    ("I don't drive.", "My wife drives a Volvo."),
    ("I can't swim.", "I like the sea."),
    ("I can't cook.", "I like cooking shows."),
    ("I don't drive.", "I ride a bike."),
    ("I'm allergic to peanuts.", "My son eats peanuts every day."),
    ("I'm allergic to peanuts.", "I eat walnuts."),
    ("I'm allergic to peanuts.", "I eat coconut yogurt."),
    ("I'm allergic to milk.", "I drink oat milk every morning."),
    ("I'm allergic to milk.", "I drink coconut milk."),
    ("I'm allergic to cats.", "I like cats."),
    ("I'm allergic to strawberries.", "I love strawberries."),
    ("I'm allergic to shellfish.", "I eat salmon."),
    ("I'm allergic to nuts.", "I don't eat almonds."),
    ("I'm allergic to pollen.", "I eat honey."),
    ("I'm allergic to aspirin.", "I take ibuprofen."),
    ("I'm gluten-free.", "I eat rice."),
    ("I'm gluten-free.", "I eat gluten-free bread."),
    ("I'm gluten-free.", "I love pasta."),
    ("I'm lactose intolerant.", "I drink oat milk."),
    ("I'm lactose intolerant.", "I drink coffee."),
    ("I have celiac disease.", "My wife eats bread."),
    ("My father is a plumber.", "My grandfather died in 2021."),
    ("My father is a plumber.", "My father-in-law died."),
    ("My father plays chess.", "My mother died."),
    ("My father plays chess every Sunday.", "My father's dog died."),
    ("My father broke his leg in 2019.", "My father died."),
    ("My father bought a car.", "My father died."),
    ("My father got diagnosed with cancer.", "My father died."),
    ("My father adopted a dog.", "My father died."),
    ("My father is called Otto.", "My father died."),
    ("My father was born in 1940.", "My father died."),
    ("My father is from Poland.", "My father died."),
    ("My aunt plays bridge.", "My aunt died."),
    ("My grandmother is 90.", "My grandmother died."),
    ("My sister Eva plays tennis.", "My sister Ida died."),
    ("My dog Rex loves swimming.", "My dog Max died."),
    ("My dog died.", "My dog loves swimming."),
    ("My cat sleeps a lot.", "My dog died."),
    ("My cat is blind.", "My sister's cat died."),
    ("My father used to play chess.", "My father died."),
    ("I'm not married.", "My sister's husband is Tom."),
    ("I'm not married.", "My girlfriend is Eva."),
    ("I don't have a driver's license.", "I have a bike."),
    ("I smoke ten cigarettes a day.", "I smoke."),
    ("I never drink.", "I drink tea every evening."),
    ("I've never smoked.", "My father smokes."),
    ("I don't drink coffee.", "I drink tea every morning."),
    ("I'm vegan.", "I eat tofu every day."),
    ("I'm a vegetarian.", "I eat eggs for breakfast."),
    ("I don't eat breakfast.", "I eat dinner at six."),
    ("My wife is pregnant.", "My dog died."),
    ("My father has diabetes.", "My uncle died."),
    ("My best friend is a nurse.", "My friend died."),
    ("My mother takes insulin.", "My neighbour died."),
    ("My boss plays golf.", "My old boss died."),
    ("I play tennis every Monday.", "I don't play golf."),
]
# The denial of the same in as many words: with all flags it ends what is known, as any such does.
PLAIN_DENIALS = [
    ("I speak French.", "I don't speak any French."),
    ("I don't speak French at all.", "I speak French."),
    ("I don't drink any coffee.", "I drink coffee."),
    ("I don't smoke.", "I smoke."),
    ("I've never smoked.", "I smoke."),
    ("I don't have a dog.", "I walk my dog every morning."),
]


@pytest.fixture(scope="module", params=["careful", "full"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Met]:
    flags = CAREFUL if request.param == "careful" else FULL
    settings = pipeline_settings(flags, near=FAR, min_score=1.0)
    return met(tmp_path_factory.mktemp("told"), settings, [*OPPOSITES, *BESIDE])


def test_opposites_wait_for_a_person(told: list[Met]) -> None:
    for pair, (before, now, waiting) in zip(OPPOSITES, told, strict=False):
        assert before, pair
        assert waiting == 1, pair
        assert set(before) <= set(now), pair


def test_what_contradicts_nothing_stands_beside(told: list[Met]) -> None:
    for pair, (before, now, waiting) in zip(BESIDE, told[len(OPPOSITES) :], strict=True):
        assert before, pair
        assert waiting == 0, pair
        assert set(before) <= set(now), pair


def test_a_plain_denial_is_asked_about(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = pipeline_settings(CAREFUL, near=FAR, min_score=1.0)
    found = met(tmp_path_factory.mktemp("plain"), settings, PLAIN_DENIALS)
    for pair, (before, now, waiting) in zip(PLAIN_DENIALS, found, strict=True):
        assert waiting == 1, pair
        assert set(before) <= set(now), pair
