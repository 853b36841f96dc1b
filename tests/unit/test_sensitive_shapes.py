"""Secrets that are misspelt, told by what they open, wrapped over lines or encoded."""

from __future__ import annotations

import base64

import pytest

from palimpsest.streams.sensitive.detection import redacted

GITHUB = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0"
    ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)
TOKENS = (
    GITHUB,
    JWT,
    "sk-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5kL7nP9rS1t",
    "AKIA" + "J5QX7RT2ZP4WM8KD",
    "xoxb-" + "123456789012-123456789012-aBcDeFgHiJkLmNoPqRsTuVwX",
)
"""Made up, of the shapes of issuers."""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "name",
    [
        *("pasword: ", "passwrd=", "pssword: ", "passsword: ", "passwrod is ", "PSWD=", "paswd: "),
        *("psw: ", "passwort: ", "contraseña: ", "mot de passe : ", "motdepasse=", "mdp: "),
    ],
)
def test_a_misspelt_password_is_one(name: str) -> None:
    assert redacted(f"my {name}hunter22") == f"my {name}[REDACTED:password]"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "unlock code {}",
            "The door code is {}",
            "alarm code: {}",
            "gate code #{}",
            "my PIN is {}",
        ),
        *("keypad code {}", "the code for the door is {}", "the code of my bike lock: {}"),
        "the code to the back gate is {}",
    ],
)
def test_the_code_of_what_it_opens_is_a_secret(text: str) -> None:
    for code in ("4821",) if "PIN" in text else ("4821", "4821A", "X7K9Q2", "X7K9-22"):
        assert code not in redacted(text.format(code)), code


@pytest.mark.parametrize(
    "text",
    [
        *("The PIN code of the area is 560001", "the code of conduct is 1234", "zip code is 90210"),
        *("error code 404", "exit code 139", "dress code is black", "the area code is 415"),
        *("the error code of the door is 4821", "our entry code of ethics is of 2019"),
        *("the zip code of the gate is 90210", "country code 4912", "promo code SAVE20"),
        *(
            "door number 4821",
            "alarm at 0630",
            "source code 4821 lines",
            "code 4821 is in the docs",
        ),
        *("bypass: 12345", "compass: 12345", "The passed: hunter22", "upswing: 12345"),
        *("security code ISO27001", "wifi code WPA2PSK", "access code HTTP404"),
        "password = '' and name = 'it''s 4821'",
    ],
)
def test_other_codes_and_words_are_none(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password: 'it''s Kx9vLq2mT7'",
        "INSERT INTO users (password) VALUES (1); password = 'a''b''Kx9vLq2mT7', name = 'bob'",
        "CREATE USER bob IDENTIFIED BY 'it''s Kx9vLq2mT7'",
        'password,"say ""hi"" Kx9vLq2mT7"',
        "password: 'it''s Kx9vLq2mT7",
    ],
)
def test_a_doubled_quote_is_a_sign_of_the_value(text: str) -> None:
    found = redacted(text)
    assert "Kx9vLq2mT7" not in found or text.endswith("T7")
    assert "name = 'bob'" in found or "bob'" not in text


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("wrap", ["\n", "\r\n", "\n    ", "\\\n", "\n> ", "\n| "])
def test_a_token_that_is_wrapped_is_found_whole(token: str, wrap: str) -> None:
    at = len(token) // 2
    said = redacted(f"use {token[:at]}{wrap}{token[at:]} then\nRegards9 Ana")
    assert said.startswith("use [REDACTED:")
    assert said.endswith("] then\nRegards9 Ana")
    assert said.count("REDACTED") == 1


def test_a_token_in_many_lines_is_found_whole() -> None:
    lines = "\n".join(JWT[at : at + 16] for at in range(0, len(JWT), 16))
    assert redacted(f"{lines}\n") == "[REDACTED:token]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"TOKEN={GITHUB}\nUSER1=ann",
        f"{GITHUB}\nH1 is a heading",
        f"{JWT}\nV2 is out",
        f"{GITHUB[:30]}\n{GITHUB[30:]}\nNEXT=1",
        f"{GITHUB[:30]}\n{GITHUB[30:]}\nNEXT1\nNEXT2",
    ],
)
def test_what_follows_a_whole_token_stays(text: str) -> None:
    said = text.partition(GITHUB[30:] if "NEXT" in text else "\n")[2]
    found = redacted(text)
    assert found.endswith(said)
    assert GITHUB[30:] not in found


@pytest.mark.parametrize(
    "text",
    [
        "It begins with sk-\nsomething else entirely goes on here 12345",
        "ghp_short\nand then text 1234567890123456789012345678901234567890",
        "We went to ASIA\nJAPAN2024 and home",
        "a task of the desk-\n1234567890 people",
        *(
            encoded(each)
            for each in ("The quick brown fox jumps over the lazy dog.", "\0\1ghp_" * 9)
        ),
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "/usr/lib/python3/site-packages/some_library/and_a_module/with_a_long_name",
    ],
)
def test_what_only_begins_like_a_token_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "text", ["{}", "blob: {}", "data:text/plain;base64,{}", '{{"a": "{}"}}', "a={}&b=1"]
)
def test_a_token_in_base64_is_found(token: str, text: str) -> None:
    for blob in (encoded(token), encoded(f"export KEY={token}\n"), encoded(f'{{"key":"{token}"}}')):
        assert blob[:20] not in redacted(text.format(blob))


def test_a_token_in_the_base64_of_mail_is_found() -> None:
    mail = base64.encodebytes((f"Hello,\nthe key is {GITHUB}\nthat is all. " * 3).encode()).decode()
    assert redacted(f"--x\n{mail}--x--") == "--x\n[REDACTED:token]\n--x--"


@pytest.mark.parametrize("width", [8, 10, 12, 18, 24])
def test_wrapped_tokens_that_follow_one_another_are_all_found(width: int) -> None:
    issued = (GITHUB, JWT, "AKIA" + "J5QX7RT2ZP4WM8KD", "hf_" + GITHUB[6:], "npm_" + GITHUB[4:]) * 6
    issued = tuple(token for token in issued if len(token) > width)
    wrapped = (
        "\n".join(token[at : at + width] for at in range(0, len(token), width)) for token in issued
    )
    left = redacted("\n".join(wrapped))
    assert left.count("REDACTED") == len(issued)
    assert not any(token[:width] in left for token in issued)


@pytest.mark.parametrize(
    "text",
    [
        *("password:hunter22", "password: hunter22", "user=bob password=hunter22", "pwd=Kx9vLq2m"),
        *("my password is hunter22", "Passwort: Hund99x", "contraseña: hunter22", "my pin is 4821"),
        *("postgres://bob:hunter22@db/app", '{"user":"bob","password":"hunter22"}'),
    ],
)
def test_a_password_in_base64_is_found(text: str) -> None:
    for blob in (encoded(text), encoded(text).rstrip("="), encoded(f"{text}\n")):
        assert blob.rstrip("=") not in redacted(f"deploy with {blob} today")
        assert redacted(f"a {blob} b").startswith("a [REDACTED:")


@pytest.mark.parametrize(
    "text",
    ["the password was reset", "hello world, how are you?", "password: ", "forgot your password?"],
)
def test_other_texts_in_base64_stay(text: str) -> None:
    assert redacted(encoded(text)) == encoded(text)
