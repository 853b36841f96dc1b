"""What is found in a text, how well, and in which time."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.sensitive.detection import find, is_unclear, redacted
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.sensitive.spans import KINDS, Kind, Span, merged, placeholders_in, pseudonym
from tests.messages import turn
from tests.sensitive_texts import Labelled, labelled
from tests.unit.test_linear_time import SECRETS, UNITS


def counted(texts: list[Labelled]) -> dict[str, Counter[str]]:
    """Hits, misses and false finds by kind. A hit covers the whole of what is sensitive; of which
    of the kinds it is said to be does not count: it is gone from the text all the same."""
    found: dict[str, Counter[str]] = {"hit": Counter(), "missed": Counter(), "false": Counter()}
    for each in texts:
        left = [(span.kind, each.text[span.start : span.end]) for span in find(each.text)]
        for kind, value in each.parts:
            hit = next((one for one in left if value in one[1]), None)
            found["missed" if hit is None else "hit"][kind] += 1
            if hit is not None:
                left.remove(hit)
        found["false"].update(kind for kind, _ in left)
    return found


def test_there_are_enough_texts_of_both_sorts() -> None:
    assert sum(bool(each.parts) for each in labelled()) >= 250
    assert sum(not each.parts for each in labelled()) >= 250
    assert {kind for each in labelled() for kind, _ in each.parts} == set(KINDS)


@pytest.mark.parametrize("half", ["tuned", "held-out"])
@pytest.mark.parametrize(
    ("kind", "least"),
    [
        *((kind, 0.95) for kind in ("api_key", "token", "private_key", "credit_card", "iban")),
        *((kind, 0.9) for kind in ("password", "ssn", "connection_string")),
        ("phone", 0.8),
    ],
)
def test_quality_by_kind(half: str, kind: Kind, least: float) -> None:
    found = counted([each for each in labelled() if each.half == half])
    hits, missed, false = (found[name][kind] for name in ("hit", "missed", "false"))
    assert hits / (hits + missed) >= least
    assert hits / (hits + false) >= least


def test_redacting_again_changes_nothing() -> None:
    repeated = (unit * 200 for unit in (*UNITS, *SECRETS))
    for text in (*(each.text for each in labelled()), *repeated):
        once = redacted(text)
        assert redacted(once) == once, text


@given(st.text(max_size=200), st.sampled_from(["password: ", "token=", "+49 ", "4111 ", "eyJ", ""]))
def test_any_text_is_redacted_once_and_for_all(text: str, before: str) -> None:
    once = redacted(before + text)
    assert redacted(once) == once


def test_a_placeholder_tells_the_kind_and_what_is_around_stays() -> None:
    text = "Ann's password is hunter2, her card 4111 1111 1111 1111."
    told = "Ann's password is [REDACTED:password], her card [REDACTED:credit_card]."
    assert redacted(text) == told
    assert redacted(text, ("credit_card",)) == text.replace(
        "4111 1111 1111 1111", "[REDACTED:credit_card]"
    )
    assert redacted(text, ()) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I use hunter2 as my password", "hunter2"),
        ("'hunter2' is the admin password.", "hunter2"),
        ("4711 is my PIN", "4711"),
        ("The password's hunter2", "hunter2"),
        ("mysql -phunter2 -u root", "hunter2"),
        ("I use 1Password as my password manager", None),
        ("SHA256 is the password hash", None),
        ("the password's length", None),
    ],
)
def test_a_value_may_stand_before_its_name(text: str, value: str | None) -> None:
    told = text if value is None else text.replace(value, "[REDACTED:password]")
    assert redacted(text) == told


def test_what_overlaps_is_one_find_of_the_surer_kind() -> None:
    spans = [Span(4, 9, "phone", 0.8), Span(0, 6, "token", 0.99), Span(10, 12, "ssn", 0.9)]
    assert merged("x" * 12, spans) == [Span(0, 9, "token", 0.99), Span(10, 12, "ssn", 0.9)]


def test_what_storing_drops_hides_nothing() -> None:
    assert redacted("pass\0word: hunter2") == "password: [REDACTED:password]"
    apart = "パスワード".replace("ド", "ト\u3099")
    assert "hunter2" not in redacted(f"{apart}はhunter2です")


@pytest.mark.parametrize(
    "text",
    [
        "my password is on the note",
        "The admin password is written under the keyboard",
        "our api key is in the shared drive",
        "password: the same as always",
        "Mein Passwort ist auf dem Zettel",
        "パスワードは付箋に書いてある",
    ],
)
def test_a_mention_without_a_value_is_unclear(text: str) -> None:
    assert is_unclear(text)
    assert redacted(text) == text


def test_talk_of_passwords_and_told_ones_are_clear() -> None:
    told_where = ("vault", "HSM")
    clear = [each.text for each in labelled() if not any(word in each.text for word in told_where)]
    clear = [redacted(text) for text in clear]
    assert [text for text in clear if is_unclear(text)] == []


def test_no_part_of_a_uuid_is_a_telephone_number() -> None:
    chance = random.Random(7)
    made = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(5_000)]
    made += ["dc692a13-0049-4217-a758-209a1bc853f0", "00491725-5512-3456-7890-123456789012"]
    assert [
        text for text in made if redacted(f"memory {text} is one") != f"memory {text} is one"
    ] == []


def test_two_who_are_named_by_their_numbers_stay_two() -> None:
    policy = Policy.of(PiiSettings())

    def speaker(name: str) -> str:
        said = turn("I am allergic to nuts, call +49 170 1234567.", speaker=name)
        return policy.turn(said).speaker

    one, same, other = map(speaker, ("+49 170 1234567", "+49 (170) 123-4567", "+49 171 7654321"))
    assert one == same != other
    # A name that is nothing but a number needs no words that tell it.
    forms = ("0170 1234567", "01701234567", "0170/1234567", "(0170) 1234567", "+491701234567")
    assert {speaker(form) for form in forms} == {one}
    ids = ("1701234567", "00000042", "0", "007", "123456789012345678")
    assert tuple(map(speaker, ids)) == ids
    assert placeholders_in(one) == placeholders_in(other) == ["phone"]
    assert "123" not in one.partition("#")[0]
    assert speaker(one) == one
    assert policy.turn(turn("call +49 170 1234567")).content == "call [REDACTED:phone]"


def test_a_number_has_one_pseudonym_however_it_is_written_and_no_two_share_it() -> None:
    forms = ("+49 170 5551234", "0170/555 12 34", "0049 170 5551234")
    assert len({pseudonym("phone", form) for form in forms}) == 1
    made = {pseudonym("phone", f"+49 170 {number}") for number in range(5_550_000, 5_550_040)}
    assert len(made) == 40
    assert all(redacted(each, names=True) == each for each in made)
    # Those that were made before are kept, too.
    assert redacted("[REDACTED:phone#3fa9c]", names=True) == "[REDACTED:phone#3fa9c]"
