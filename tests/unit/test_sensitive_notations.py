"""Secrets are found whatever stands next to them and in whichever notation a program wrote them."""

from __future__ import annotations

import html
import json
import quopri
import urllib.parse
from collections.abc import Callable

import pytest

from palimpsest.schemas.messages import ConversationTurn
from palimpsest.streams.sensitive.detection import find_keys, is_unclear, redacted
from palimpsest.streams.sensitive.notations import MOST_LEVELS, views
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.settings import PiiSettings
from tests.messages import turn
from tests.sensitive_texts import labelled

ESC = "\x1b"
GLUED = (
    *("prod_", "prod-", "x", "7", "_", "-", "é", "my.", "%3D", "%253D", "\\n", "\\t", "\\\\n"),
    *(f"{ESC}[32m", f"{ESC}[1;38;5;208m", "\\x1b[32m", "\\u001b[32m", "\\033[32m", "^[[32m"),
    *("[32m", "\\u003d", "=3D", "&#61;", "&#x3d;", "&equals;", "\u200b"),
)
"""What stands before a token without a space."""
BEHIND = ("_old", "-old", "%0A", "\\n", f"{ESC}[0m", "&quot;", '\\"')


SPACES = "\u00a0\u1680\u2003\u2007\u2009\u202f\u205f\u2028\x85\x0b"


def shaped() -> list[str]:
    """The labelled values that are tokens by their shape alone."""
    values = [
        value
        for each in labelled()
        for kind, value in each.parts
        if kind in ("token", "api_key") and not value.startswith("https:")
    ]
    return [value for value in values if [*find_keys(value, "")]]


@pytest.mark.parametrize("before", GLUED)
def test_a_token_glued_to_what_is_before_it_is_found(before: str) -> None:
    values = shaped()
    assert len(values) > 40
    # A number before the hexadecimal digits or before a bot's number is part of it.
    left = [
        value
        for value in values
        if value in redacted(before + value) and not (value[0].isdigit() and before in "x7-")
    ]
    assert left == []


@pytest.mark.parametrize("behind", BEHIND)
def test_a_token_glued_to_what_follows_is_found(behind: str) -> None:
    assert [value for value in shaped() if value in redacted(value + behind)] == []


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdef0123456789abcdef",
        "disk-d41d8cd98f00b204e9800998ecf8427e is full",
        "task-ant-colony-optimization-run-2024",
        "risk-proj-2024-quarterly-planning-review",
        "framework_test_configuration2024 passed",
        "network_test_abcdefghijklmnop1",
        "layer8_some_long_identifier_with_underscores_2024",
        "berlin_api_gateway_service_production_v2_europe",
        "linuxapp-deployment-7d9f8b6c5d-x2x4z",
        "MSG.MessageHandlerFactory2024.anotherLongIdentifierName",
        "cache-key-d41d8cd98f00b204e9800998ecf8427e",
        "monkey-d41d8cd98f00b204e9800998ecf8427e",
        "CZECHOSLOVAKIAANDHUNGARYAREGREAT",
        "RISKd41d8cd98f00b204e9800998ecf8427e",
        "test_highs_and_lows_of_the_market_in_2024_and_2025",
        "the actions-pypi-publish-and-some-more-words-in-a-very-long-name-2024",
    ],
)
def test_an_identifier_that_contains_the_prefix_of_a_token_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "<password>{}</password>",
        "<Password >{}</Password>",
        '<db:password type="plain">{}</db:password>',
        "<userPassword>\n  {}\n</userPassword>",
        "<password><![CDATA[{}]]></password>",
        "<password><value>{}</value></password>",
        '<add key="password" value="{}"/>',
        '<property name="password">{}</property>',
        "<key>password</key>\n\t<string>{}</string>",
        "<td>Password</td><td>{}</td>",
        "<b>Password:</b> {}",
        "<strong>Password</strong>: {}",
        '<input type="password" name="pw" value="{}">',
        '{{"name": "DB_PASSWORD", "value": "{}"}}',
        "{{'password': u'{}'}}",
        "| password | {} |",
        "password: |\n    {}\n",
        "password: {}",
        "my password is {}",
    ],
)
@pytest.mark.parametrize("secret", ["hunter2x", "Tr0ub4dor&3"])
def test_a_password_in_a_notation_is_found(text: str, secret: str) -> None:
    written = text.format(secret)
    encodings: list[Callable[[str], str]] = [
        str,
        html.escape,
        urllib.parse.quote,
        lambda plain: urllib.parse.quote(urllib.parse.quote(plain, safe=""), safe=""),
        lambda plain: json.dumps({"text": plain}),
        lambda plain: json.dumps(json.dumps([json.dumps({"text": plain})])),
        lambda plain: "".join(f"\\u{ord(each):04x}" for each in plain),
        lambda plain: "".join(f"&#{ord(each)};" for each in plain),
        lambda plain: quopri.encodestring(plain.encode()).decode(),
    ]
    for encoded in encodings:
        if encoded is html.escape and "&" in secret and "<" in text:
            continue  # of an entity in an element, only the first part is its value
        once = redacted(encoded(written))
        assert "[REDACTED:password]" in once, once
        assert encoded(secret).strip('"[]{}') not in once
        assert redacted(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "<token>running</token>",
        "use the <password> placeholder, or <password/>",
        "<password>${db.password}</password>",
        "<passwordPolicy>strong8</passwordPolicy>",
        "| Password | Required |\n| user | password | notes |",
        "<td>Password</td><td>Required</td>",
        '<label for="password">Password</label>',
        "100% of C:\\new\\pin, 5 &lt; 6, a=3D, \\u0041",
    ],
)
def test_what_is_no_secret_in_a_notation_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("space", SPACES, ids=ascii)
@pytest.mark.parametrize(
    "text",
    [
        "password:_{}",
        "password_=_{}",
        "my password is_{}",
        'Das Passwort_: "{}"',
        "Mot_de_passe_:_{}",
        '"password":_"{}"',
        "token:_{}",
        "api key:_{}",
        "Authorization: Bearer_{}",
    ],
)
def test_a_password_beside_any_space_is_found(text: str, space: str) -> None:
    assert "Kx9vLq2mT7" not in redacted(text.replace("_", space).format("Kx9vLq2mT7"))


@pytest.mark.parametrize("space", SPACES, ids=ascii)
def test_a_pin_beside_any_space_is_found(space: str) -> None:
    assert "4821" not in redacted(f"the pin code:{space}4821, then mine")


@pytest.mark.parametrize("named", ["password", "api_key", "token"])
def test_a_value_in_a_column_is_of_the_kind_that_its_head_says(named: str) -> None:
    text = f"user,{named}\nann,Kx9vLq2mT7rW4zPb8\n"
    assert redacted(text) == f"user,{named}\nann,[REDACTED:{named}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "the wifi password here is {}",
        "the guest wifi password today is {}",
        "the password? {}",
        "password → {}",
        "password ⇒ {}",
        "password\ufe55 {}",
        "Password1: {}",
        "passwordConfirm={}",
        "Password for the router in the hall: {}",
        "The password of the NAS, by the way, is {}",
        'GRANT ALL ON a.* TO b IDENTIFIED BY "{}"',
        "create user b identified by '{}'",
        "Cookie: session={}; theme=dark",
        "| user | password |\n|---|---|\n| ann | {} |",
        "user,password\nann,{}\nben,Qw8zPl3rTy",
        "user\tpassword\tlast seen\nann\t{}\t2024-01-01",
    ],
)
def test_a_password_that_is_told_in_another_way_is_found(text: str) -> None:
    assert "Kx9vLq2mT7" not in redacted(text.format("Kx9vLq2mT7"))


@pytest.mark.parametrize(
    "text",
    [
        "the password here is wrong",
        "the password today is the same as yesterday",
        "Forgot your password? Reset it in the settings.",
        "the password? I forgot it",
        "username → password → submit",
        "Passwords 1: how to choose one",
        "| user | password |\n|---|---|\n| ann | forgotten |",
        "name,password,role\nann,yes,admin",
        "Cookie: session=dark",
        "The password of the NAS, by the way, is on the fridge",
        "sessions, passwords, tokens\nthat is what we talked about",
    ],
)
def test_what_only_names_a_password_stays(text: str) -> None:
    assert redacted(text) == text


def test_every_field_of_a_turn_is_read_in_every_notation() -> None:
    token = "ghp_" + "a1B2c3" * 6
    glued = f"%3D{token}"
    said = turn(
        f"{ESC}[32m{token}{ESC}[0m",
        speaker=f"ann_{token}",
        session_id=f"s-{token}",
        source_id=glued,
        metadata={f"k{token}": [f"\\n{token}", {"a": glued}]},
    )
    cleaned = Policy.of(PiiSettings()).turn(said)
    assert isinstance(cleaned, ConversationTurn)
    assert "a1B2c3" not in cleaned.model_dump_json()


def test_a_view_says_where_its_characters_are() -> None:
    text = "a%3Db \\u0041 &amp;lt; \x1b[1mé%C3%A9"
    seen = [*views(text)]
    assert [view.text for view in seen] == [text, "a=b A &lt; éé", "a=b A < éé"]
    for view in seen:
        assert len(view.text) == len(view.starts) == len(view.ends)
        assert all(start < end for start, end in zip(view.starts, view.ends, strict=True))
    last = seen[-1]
    at = last.text.index("<")
    assert text[last.starts[at] : last.ends[at]] == "&amp;lt;"


def test_notations_in_one_another_end() -> None:
    assert len([*views("\\" * 1_000)]) == MOST_LEVELS
    assert len([*views("no escapes")]) == 1


def test_a_mention_in_a_notation_is_unclear() -> None:
    assert is_unclear("text=my%20password%20is%20on%20the%20note")


@pytest.mark.parametrize(
    "text",
    [
        "The PIN code of the area is 560001",
        "The pin code for Koramangala is 560034.",
        "PIN code of Bengaluru is 560001",
        "The pincode of the village is 799001",
        "our area pin code is 400001",
        "my area pin code is 400001",
        "Area PIN code - 560 001",
        "Address: 12 MG Road, Bangalore, PIN 560001",
        "city: Pune\npin: 411001",
        "Bengaluru, Karnataka, PIN: 560001",
        "PIN code 560 001, India",
        "Postal PIN code: 110001",
        "pin code: 302001, Jaipur",
        "Delivery pin code 110001",
        "shipping_pin_code=400001",
    ],
)
def test_the_number_of_a_place_is_no_secret(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "My PIN code is 560001",
        "The PIN code is 560001",
        "my card PIN is 482100",
        "The PIN code of my SIM is 560001",
        "The PIN for the area office door is 560001",
        "Email address: bob@x.example\nPIN: 482100",
        "His PIN is 560001 and he lives in Pune",
        "the PIN for Anna is 123456",
        "The PIN of the area is 4821",
        "My password is in Delhi. PIN: 560001",
        "the security code of the area is 482100",
    ],
)
def test_a_pin_that_opens_something_stays_a_secret(text: str) -> None:
    assert "[REDACTED:password]" in redacted(text)
