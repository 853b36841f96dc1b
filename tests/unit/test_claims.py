"""Claims: what a sentence says of whom, by slot; what is taken whole, and what gives none."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.english import is_english
from palimpsest.streams.claims.grammar import categories_of, claim_of
from palimpsest.streams.claims.reading import claims_in
from palimpsest.streams.claims.triples import triples_of
from palimpsest.streams.claims.turn import claims_of_turn
from tests.processor_time import takes_at_most

TODAY = date(2026, 3, 4)  # a Wednesday
AT = datetime(2026, 3, 4, 10, tzinfo=UTC)


def claimed(said: str, speaker: str = "Ana", before: str = "") -> list[Claim]:
    return claims_of_turn(said, speaker, AT, before)


def texts(said: str, speaker: str = "Ana", before: str = "") -> list[str]:
    return [claim.text for claim in claimed(said, speaker, before)]


FACTS: list[tuple[str, list[str]]] = [
    ("I live in Lisbon.", ["Ana lives in Lisbon."]),
    ("Keep in mind that I'm diabetic", ["Ana is diabetic."]),
    ("Please remember that I'm vegetarian.", ["Ana is vegetarian."]),
    ("I have to go to dialysis every Monday", ["Ana has to go to dialysis every Monday."]),
    ("We got married in May", ["Ana got married in May 2025."]),
    (
        "I'm living in Oslo at the moment",
        ["Ana is living in Oslo at the moment (as of March 2026)."],
    ),
    ("My wife is Nadia", ["Ana's wife is called Nadia."]),
    ("Tom hates fish.", ["Tom hates fish."]),
    ("My allergies: walnuts, milk", ["Ana is allergic to walnuts and milk."]),
    ("My allergies:\n- walnuts\n- milk", ["Ana is allergic to walnuts and milk."]),
    (
        "Me and my friend went to Ghent last week",
        ["Ana went to Ghent with their friend in the week of 2026-02-23."],
    ),
    (
        "last week I bought a bike and sold my car",
        [
            "Ana bought a bike in the week of 2026-02-23.",
            "Ana sold their car in the week of 2026-02-23.",
        ],
    ),
    (
        "I live with my partner and our two cats.",
        ["Ana lives with their partner and their two cats.", "Ana has two cats."],
    ),
    ("I work as a glassblower.", ["Ana works as a glassblower."]),
    ("I take metformin.", ["Ana takes metformin."]),
    ("I can't stand coriander.", ["Ana hates coriander."]),
    ("I'm in my late 40s.", ["Ana is in their late 40s (as of March 2026)."]),
    ("I've been knitting since I was a kid.", ["Ana has been knitting since they were a kid."]),
    (
        "I made a soup on Thursday last week.",
        ["Ana made a soup on Thursday in the week of 2026-02-23."],
    ),
    (
        "We went to Ghent two weekends ago.",
        ["Ana went to Ghent on the weekend of 2026-02-21."],
    ),
    ("I viewed a flat on 2 March.", ["Ana viewed a flat on 2026-03-02."]),
    ("My flight to Oslo is on Friday.", ["Ana has a flight to Oslo on 2026-03-06."]),
    ("My goal is to open a bakery.", ["Ana's goal is to open a bakery."]),
    (
        "Can you compare them before I see my neurologist, Dr. Voss?",
        ["Ana's neurologist is called Dr. Voss."],
    ),
    ("I'm living in Oslo until June.", ["Ana is living in Oslo until June."]),
    ("i live in lisbon :) \U0001f389", ["Ana lives in lisbon."]),
    ("i dont eat meat", ["Ana does not eat meat."]),
    (
        "My sister Rita lives in Porto, she works at a bank.",
        ["Ana's sister Rita lives in Porto.", "Ana's sister Rita works at a bank."],
    ),
    ("My parents live in Cork.", ["Ana's parents live in Cork."]),
    ("I moved to Berlin last month, so I'm busy.", ["Ana moved to Berlin in February 2026."]),
    ("I did visit Malta last summer.", ["Ana visited Malta in the summer of 2025."]),
    ("I'm going to Japan next month.", ["Ana is going to Japan in April 2026."]),
    (
        "I have a new leash for my dog Rex, can you suggest walks?",
        ["Ana's dog is called Rex."],
    ),
    ("I love hiking - it's so calming!", ["Ana loves hiking."]),
    ("As a nurse, I sleep badly.", ["Ana is a nurse."]),
    ("Last Fri I went to a poetry reading", ["Ana went to a poetry reading on 2026-02-27."]),
    ("My son is six.", ["Ana's son is six (as of March 2026)."]),
    (
        "I've been playing the cello for five years.",
        ["Ana has been playing the cello for five years (as of March 2026)."],
    ),
    ("Emma is my favourite book.", ["Ana's favourite book is Emma."]),
    ("We decided to use DuckDB.", ["Ana decided to use DuckDB."]),
    # Ends and beginnings.
    (
        "I work on the night train until 2150-01-01.",
        ["Ana works on the night train until 2150-01-01."],
    ),
    (
        "I'm staying in Lisbon until 5 March 2027.",
        ["Ana is staying in Lisbon until 5 March 2027."],
    ),
    ("I live in Porto since 2024-05-01.", ["Ana lives in Porto since 2024-05-01."]),
    ("I work at the bakery from 2026-03-01.", ["Ana works at the bakery from 2026-03-01."]),
    # Names.
    ("Hi, I'm Marta.", ["Ana's name is Marta."]),
    ("I'm Marta, a nurse at Oceano.", ["Ana's name is Marta.", "Ana is a nurse at Oceano."]),
    ("Call me Bob.", ["Ana's nickname is Bob."]),
    ("I go by Bo.", ["Ana's nickname is Bo."]),
    # Languages, work, home.
    ("I speak Portuguese and a bit of French.", ["Ana speaks Portuguese and a bit of French."]),
    ("I'm learning Japanese.", ["Ana is learning Japanese."]),
    ("I work at Oceano as a nurse now.", ["Ana works at Oceano as a nurse."]),
    ("I quit my job.", ["Ana quit their job."]),
    ("I run a small business.", ["Ana runs a small business."]),
    ("I was born in 1990.", ["Ana was born in 1990."]),
    ("I moved to Berlin for work.", ["Ana moved to Berlin for work."]),
    # Family and pets, also by the way.
    ("We're expecting a baby in June.", ["Ana is expecting a baby in June 2026."]),
    ("My mom died last year.", ["Ana's mom died in 2025."]),
    ("I feed Oscar, my guinea pig.", ["Ana's guinea pig is called Oscar."]),
    ("I'm looking for a gift for my older brother.", ["Ana has an older brother."]),
    ("We got a Rottweiler.", ["Ana got a Rottweiler."]),
    # Health and diet.
    ("I have dialysis every Monday.", ["Ana has dialysis every Monday."]),
    ("I eat gluten free.", ["Ana eats gluten free."]),
    ("I'm on metformin.", ["Ana is on metformin."]),
    ("I'm trying to quit smoking.", ["Ana is trying to quit smoking."]),
    ("We don't eat meat.", ["Ana does not eat meat."]),
    # What is theirs, and what they do.
    ("Can you check whether my old mountain bike is ready?", ["Ana has a mountain bike."]),
    (
        "I've had my cello for ten years.",
        ["Ana has had their cello for ten years (as of March 2026)."],
    ),
    ("I have a cat that hates water.", ["Ana has a cat."]),
    ("I attend Zumba classes on Tuesdays.", ["Ana attends Zumba classes on Tuesdays."]),
    ("I'm a dedicated supporter of the Lions.", ["Ana is a dedicated supporter of the Lions."]),
    (
        "I love the new slow cooker I got from Oceano last week.",
        ["Ana got a new slow cooker from Oceano in the week of 2026-02-23."],
    ),
    ("Any tips for my Zumba classes?", ["Ana is taking Zumba classes."]),
    ("One of my favourite authors is Ali Smith.", ["Ana loves Ali Smith."]),
    ("I got to visit Malta last summer.", ["Ana visited Malta in the summer of 2025."]),
    ("Yesterday, I bought a mountain bike.", ["Ana bought a mountain bike on 2026-03-03."]),
    (
        "I bought a mountain bike few days ago.",
        ["Ana bought a mountain bike a few days before 2026-03-04."],
    ),
    (
        "I used to play drums when I was younger.",
        ["Ana used to play drums when they were younger."],
    ),
    ("As someone who loves jazz, I'm happy.", ["Ana loves jazz."]),
    ("I don't think so, but I work at Oceano.", ["Ana works at Oceano."]),
    # What is doubted ends what is said before it, and no more.
    ("I love jazz, so if you know a bar, let me know.", ["Ana loves jazz."]),
    ("Since I moved to Oslo, maybe I need a coat.", ["Ana moved to Oslo."]),
]


def test_what_becomes_a_fact() -> None:
    assert [(said, texts(said)) for said, _ in FACTS] == FACTS


NO_FACTS = [
    "I'm looking for advice on knives.",
    "Where do I live?",
    "Got it, thanks!",
    "I'm over two meters tall.",
    "I'm over fifteen minutes late.",
    "I am over halfway done with my thesis.",
    "I'm done with homework.",
    "I'm done with work for today.",
    "I'm not at Target.",
    "I switched from left to right.",
    "My girlfriend and I split the bill.",
    "My girlfriend left me a note.",
    "I put my daughter to sleep at eight.",
    "Remember, you're great!",
    "I love your dress.",
    "I love the idea!",
    "I like it.",
    "I like to read em myself.",
    "I'm tired.",
    "I'm on my way.",
    "I'd love to live in Rome.",
    "If I lived in Rome, I'd be happy.",
    "Imagine I live in Rome.",
    "I wish I lived in Oslo.",
    "Maybe I live in Rome.",
    "My friend says I live in Rome.",
    "I live in Rome, says my mother.",
    "I live in Rome, in that case.",
    "As Shakespeare wrote, I love cheese.",
    "ben: I hate cats",
    "The letter begins with: Dear Sir, I own a house in Kent.",
    'She shouted "I live in Rome" at us.',
    "Translate this: I live in Rome.",
    "Write a story. I am a doctor. I live in Rome.",
    "---- Forwarded message ----\nFrom: Ben\nI live in Rome.",
    "From: ben@example.org\nSubject: hello\n\nI live in Rome.",
    "> I live in Rome.",
    "```\nI live in Rome.\n```",
    "I don't like chocolate, I love chocolate.",
    "I adopted a dragon, just kidding!",
    "Oh sure, I love tea /s",
    "My favourite colour is hard to wear.",
    "I moved to Gmail last week.",
    "I live in fear.",
    "I'm a bit of a mess.",
    "I'm working in the bakery today.",
    "I not only like tea.",
    "Ich bin im dritten Monat.",
    "Ich wohne in Berlin.",
    "Vivo en Sevilla con mi pareja.",
    "J'habite à Lyon.",
    "京都に住んでいます。",
    "Sounds like fun!",
    "Sounds like a blast.",
    "Name: Ben",
    "Allergies: none",
    "I can't stand up.",
    "I take the bus.",
    "I spilled the tea this morning.",
    "About my cough, Dr. Voss had an idea.",
    "Mi hermana ama los gatos.",
    "Gary Sinise is a truly talented actor.",
    "Netflix loves reboots.",
    "I'm Hungry.",
    "I'm Done.",
    "This is Max, he's so lovable.",
    "I'm staying in Rome.",
    "I work on my essay.",
    "I live in Rome, my friend thinks.",
    "I live in Rome, I guess.",
    "I'd be happy, if I lived in Rome.",
    "I read about my dream car.",
    "I'd like my next mountain bike to be red.",
    "Our kids are our future.",
]


def test_what_becomes_none() -> None:
    assert {said: texts(said) for said in NO_FACTS if texts(said)} == {}


@pytest.mark.parametrize(
    ("said", "before", "facts"),
    [
        (
            "Yes, I do",
            "So you live in Lisbon and have two kids?",
            ["Ana lives in Lisbon.", "Ana has two kids."],
        ),
        ("Exactly!", "Great. Are you allergic to walnuts?", ["Ana is allergic to walnuts."]),
        ("That's right", "Got it: you have a dog named Rex, right?", ["Ana has a dog named Rex."]),
        ("Yes", "You could live in Rome.", []),
        ("Yes, but not anymore", "You live in Rome?", []),
        ("Yes, he does, but I do not.", "So you live in Oslo?", []),
        ("Yes, she does.", "So you live in Oslo?", []),
        ("Yes, my brother does.", "So you live in Oslo?", []),
        ("Yes. Not me, though.", "So you live in Oslo?", []),
        ("Yes, until last year.", "So you live in Oslo?", []),
        ("Yes. I used to.", "So you live in Oslo?", []),
        ("Exactly, my parents do.", "So you live in Oslo?", []),
        ("Yes, we do.", "So you live in Oslo?", ["Ana lives in Oslo."]),
        (
            "Yes, my wife and I do.",
            "So you live in Oslo?",
            ["Ana lives in Oslo.", "Ana has a wife."],
        ),
        (
            "Yes. I don't have a car.",
            "So you live in Oslo?",
            ["Ana lives in Oslo.", "Ana does not have a car."],
        ),
        ("Yes, my sister too.", "So you live in Oslo?", ["Ana lives in Oslo."]),
        ("Yep, since 2019.", "So you live in Oslo?", ["Ana lives in Oslo."]),
        ("No", "You live in Rome?", []),
        ("I don't know", "You live in Rome?", []),
        ("Yes", "", []),
        ("Yes... I quit in May.", "Do you smoke?", []),
        ("Yes. I quit in May.", "Do you smoke?", []),
        ("Yes, I stopped last year.", "Do you smoke?", []),
        ("Yes, we quit in May.", "Do you smoke?", []),
        ("Yes. Until last year.", "Do you smoke?", []),
        ("Yes. Years ago.", "Do you smoke?", []),
        ("Yes! I gave it up.", "Do you smoke?", []),
        ("Yes... once.", "Do you smoke?", []),
        ("Yes. Then I quit.", "Do you smoke?", []),
        ("Yes, but I stopped.", "Do you smoke?", []),
        ("I did, but not anymore", "Do you smoke?", []),
        ("Yes. Once a week.", "Do you smoke?", ["Ana smokes."]),
        ("Yes, and I love it.", "Do you smoke?", ["Ana smokes."]),
        ("Yes, I started in May.", "Do you smoke?", ["Ana smokes."]),
        ("Yes. We moved here in May.", "Do you smoke?", ["Ana smokes."]),
    ],
)
def test_what_somebody_agrees_to_is_their_claim(said: str, before: str, facts: list[str]) -> None:
    assert texts(said, before=before) == facts


@pytest.mark.parametrize(
    ("statement", "claim"),
    [
        ("Ana lives in Lisbon.", ("home", "Ana", "", "Lisbon", True, False, False)),
        ("Ana no longer lives in Porto.", ("home", "Ana", "", "Porto", False, False, False)),
        ("Ana moved to Berlin for the summer.", ("home", "Ana", "", "Berlin", True, True, True)),
        ("The user is vegan now.", ("diet", "The user", "kind", "vegan", True, True, False)),
        ("Ana does not eat meat.", ("diet", "Ana", "eat", "meat", False, False, False)),
        ("Ana hates jazz.", ("likes", "Ana", "", "jazz", False, False, False)),
        (
            "Ana's favorite color is teal.",
            ("favourite", "Ana", "colour", "teal", True, False, False),
        ),
        ("I am allergic to nuts.", ("allergy", "The user", "", "nuts", True, False, False)),
    ],
)
def test_a_statement_is_read_whole(statement: str, claim: tuple[object, ...]) -> None:
    found = claim_of(statement)
    assert found is not None
    assert found[:7] == claim
    assert found.text == statement


@pytest.mark.parametrize(
    "statement",
    [
        "Ana lives in Lisbon, says her mother.",
        "Ana lives in Lisbon. She works at a bank.",
        "Ana lives in Lisbon when it rains.",
        "Does Ana live in Lisbon?",
        "The server runs on port 8443.",
        "Ich bin im Urlaub.",
        "",
    ],
)
def test_a_statement_with_more_in_it_is_no_claim(statement: str) -> None:
    assert claim_of(statement) is None


def test_every_fact_is_read_again_as_the_same_claim() -> None:
    said = (
        "I moved to Lisbon. I love tea. My sister Rita works at a bank. I'm vegan. I have two cats."
    )
    for claim in claims_of_turn(said, "Ana", AT):
        again = claim_of(claim.text)
        assert again is not None
        assert again[:5] == claim[:5]


@pytest.mark.parametrize(
    ("statement", "triple"),
    [
        ("Ana lives in Lisbon.", ("Ana", "person", "lives_in", "Lisbon", "place")),
        ("Ana works at Oceano in Porto.", ("Ana", "person", "works_at", "Oceano", "organization")),
        ("Ana moved to Porto in May 2026.", ("Ana", "person", "lives_in", "Porto", "place")),
        ("Ana is allergic to walnuts.", ("Ana", "person", "allergic_to", "walnuts", "concept")),
        ("Ana likes to collect stamps.", None),
        ("Ana hates jazz.", ("Ana", "person", "dislikes", "jazz", "concept")),
        ("Ana is a total movie fan.", ("Ana", "person", "likes", "movie", "concept")),
        ("Ana is an early bird.", None),
        ("Ana no longer lives in Lisbon.", None),
        ("Ana loves entering the imaginative worlds of authors.", None),
        ("Ana decided to learn the violin.", None),
        ("Jordan lives in Jordan.", None),
    ],
)
def test_relations_join_names_and_nouns(statement: str, triple: tuple[str, ...] | None) -> None:
    claim = claim_of(statement)
    assert claim is not None
    assert triples_of(claim) == ([] if triple is None else [triple])


def test_a_relative_with_a_name_is_one_of_the_ends() -> None:
    claim = claim_of("Ana's sister Rita lives in Porto.")
    assert claim is not None
    found = [(each.source, each.relationship, each.target) for each in triples_of(claim)]
    assert found == [("Rita", "sister_of", "Ana"), ("Rita", "lives_in", "Porto")]


def test_a_relative_who_is_along_is_one_of_the_ends() -> None:
    claim = claim_of("Ana lives in Lisbon with their sister Nora.")
    assert claim is not None
    found = [(each.source, each.relationship, each.target) for each in triples_of(claim)]
    assert found == [("Ana", "lives_in", "Lisbon"), ("Nora", "sister_of", "Ana")]


def test_the_categories_of_a_statement_are_those_of_its_slot() -> None:
    assert categories_of("Ana is allergic to walnuts.") == ("health", "diet")
    assert categories_of("The staging server is slow.") == ()


@pytest.mark.parametrize(
    "piece",
    ["a", "I live in ", "my sister Rita's ", "and ", ", I like ", '"', "every Monday ", "A "],
)
def test_no_repetition_makes_it_slow(piece: str) -> None:
    def read() -> None:
        claims_of_turn((piece * 200_000)[:200_000], "Ana", AT)
        claims_in((piece * 600)[:600], "Ana", TODAY)

    assert takes_at_most(5, read)


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        (
            "I saw the film Last Christmas yesterday.",
            "Ana saw the film Last Christmas on 2026-03-0",
        ),
        ("My favorite film is Yesterday.", "Ana's favorite film is Yesterday."),
        ("I read it on Monday.", None),
        ("I went to Ghent on Monday.", "Ana went to Ghent on 2026-03-02."),
        ("I saw the film Yesterday.", None),
        ("I bought the album Today.", None),
    ],
)
def test_a_time_with_a_capital_within_a_sentence_is_a_name(said: str, fact: str | None) -> None:
    assert [text[: len(fact or "")] for text in texts(said)] == ([] if fact is None else [fact])


NO_EMPLOYERS = """at night|at the weekend|at Christmas|at full speed|at short notice
|at a steady pace|at home|at home on Fridays|at height|at great heights|at a desk|at odd hours
|at a loss|at sunrise|at lunchtime|at nine|at 9|at minimum wage|at a high level
|at half capacity|at Full Speed|at Peak Efficiency|at a rate of ten an hour
|at a distance in Porto|at risk|at sea|for a living|for peanuts|for long hours|for a good cause
|for food|for justice|for pleasure|for a living wage|for Money|for Fun|for Peace""".replace(
    "\n", ""
).split("|")


def test_when_how_and_what_for_one_works_is_no_employer() -> None:
    for how in NO_EMPLOYERS:
        for subject in ("I work", "My sister Rita works", "I'm working", "I started working"):
            said = f"{subject} {how}."
            assert not [claim for claim in claimed(said) if claim.slot == "work"], said


@pytest.mark.parametrize("how", ["at zero", "at the bottom", "at a young age", "at the deep end"])
def test_where_a_beginning_was_is_no_employer(how: str) -> None:
    assert texts(f"I started {how}.") == []


@pytest.mark.parametrize(
    "where",
    """at a bakery|at the hospital in Porto|at a law firm|at schools|at two bakeries|at a school
    |at the dentist's|at the front desk|at the Meridian project|at Meridian bank|at 3M|at google
    |at Oceano's bakery|at Nokia in Espoo|for an NGO|for the city|for my father|for a lawyer
    |for the government|for a small startup|for NovaTech, a startup|at a company called Oceano
    |at a petrol station|for Night Owl|at the Weekend Bakery|for a big tech company
    """.replace("\n    ", "").split("|"),
)
def test_an_employer_is_a_name_or_where_people_are_employed(where: str) -> None:
    [claim] = claimed(f"I work {where}.")
    assert (claim.slot, claim.key) == ("work", "")
    [begun] = claimed(f"I started working {where}.")
    assert (begun.slot, begun.value) == ("work", claim.value)


@pytest.mark.parametrize("said", ["I study abroad.", "I visited Mum."])
def test_what_is_no_name_has_no_relation(said: str) -> None:
    [claim] = claimed(said)
    assert triples_of(claim) == []


@pytest.mark.parametrize(
    "said",
    """peace|fear|luxury|peace and quiet|Peace|Harmony|Style|Sin|Denial|English|Spring|Christmas
    |poverty|the moment|a bubble|Night|Mondays""".replace("\n    ", "").split("|"),
)
def test_how_one_lives_is_no_place(said: str) -> None:
    assert texts(f"I live in {said}.") == []


def test_what_holds_now_is_a_fact_without_the_now() -> None:
    assert texts("My favourite colour is blue now.") == ["Ana's favourite colour is blue."]
    assert texts("I stopped playing the cello.") == ["Ana stopped playing the cello."]


@pytest.mark.parametrize(
    "said",
    [
        "In my novel I live in Rome and I have a horse.",
        "In my dream I have a boat, and I live in Oslo.",
        "I live in Rome and I have a horse in my short story.",
        "In the game I am a nurse and I have two dogs.",
        "In this story I am vegan, but I love steak.",
    ],
)
def test_what_is_told_in_a_fiction_holds_of_nobody(said: str) -> None:
    assert texts(said) == []


def test_what_stands_beside_a_book_is_no_fiction() -> None:
    assert texts("In my book club I have two friends, and I live in Rome.") == [
        "Ana lives in Rome."
    ]


@pytest.mark.parametrize(
    "said",
    [
        "Yes, he does, but I do not.",
        "Yes, she does, I don't.",
        "Right, my brother does, but not me.",
        "Yes, but I don't.",
        "True, though I never did.",
        "Yeah, my brother lives there.",
        "Yes, in a way.",
    ],
)
def test_who_agrees_for_somebody_else_does_not_agree(said: str) -> None:
    assert texts(said, before="So you live in Oslo?") == []
    assert texts("Yes, I do. My brother does not.", before="So you live in Oslo?")


ASIDES = (
    *("by the way", "btw", "you know", "honestly", "to be honest", "tbh", "actually", "fyi", "FYI"),
    *("for what it's worth", "as you know", "I must say", "haha", "of course", "thank God"),
    *("just saying", "for the record", "in case you wondered", "I'm afraid", "mind you", "in fact"),
)


@pytest.mark.parametrize("aside", ASIDES)
@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("I love hiking", "Ana loves hiking."),
        ("My favourite colour is green", "Ana's favourite colour is green."),
        ("I work at Siemens", "Ana works at Siemens."),
        ("I live in Porto", "Ana lives in Porto."),
    ],
)
def test_what_is_said_beside_a_statement_is_no_part_of_it(aside: str, said: str, fact: str) -> None:
    subject, _, rest = said.partition(" live ")
    written = [f"{said}, {aside}.", f"{said}, {aside}, haha!", f"{said} , {aside} ."]
    if rest:
        written += [f"{subject} live, {aside}, {rest}.", f"{subject}, {aside}, live {rest}."]
    assert [texts(each) for each in written] == [[fact]] * len(written)


@pytest.mark.parametrize(
    ("said", "claim"),
    [
        ("I'm allergic to soy.", "Ana is allergic to soy."),
        ("I am allergic to soy and eggs.", "Ana is allergic to soy and eggs."),
        ("My son is allergic to soy.", "Ana's son is allergic to soy."),
        ("Ben is allergic to soy.", "Ben is allergic to soy."),
        ("I have a soy allergy.", "Ana has a soy allergy."),
        ("I drink soy milk.", "Ana drinks soy milk."),
        ("I like soy", "Ana likes soy."),
        ("I eat dal.", "Ana eats dal."),
        ("I like lo mein.", "Ana likes lo mein."),
        ("I like chili con carne.", "Ana likes chili con carne."),
        ("I like uno.", "Ana likes uno."),
        ("Um, I'm vegan.", "Ana is vegan."),
        ("Yo, I'm vegan.", "Ana is vegan."),
        ("Mia is my sister.", "Ana's sister is called Mia."),
        ("Ed is my brother.", "Ana's brother is called Ed."),
    ],
)
def test_a_word_that_english_has_too_makes_nothing_foreign(said: str, claim: str) -> None:
    assert texts(said) == [claim]


@pytest.mark.parametrize(
    "said",
    [
        "Soy al\u00e9rgico a la soya",
        "Yo soy vegano",
        "Soy vegano",
        "Soy vegan",
        "Soy de Madrid",
        "No soy al\u00e9rgico",
        "Yo vivo con Ana",
        "Er ist Arzt",
        "Ed io sono vegano",
        "Mia sorella vive a Roma",
        "Elle est vegan",
        "Mein Mann ist allergic to soy",
    ],
)
def test_beside_a_word_that_english_has_not_it_is_foreign(said: str) -> None:
    assert not is_english(said)
