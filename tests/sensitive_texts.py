"""The labelled texts of `tests/data/sensitive.jsonl`: what is sensitive in them, and look-alikes.

A line's `text` marks what is sensitive as ⟦kind:value⟧. Values are made when they are read, so
that no file holds what looks like a real key: `%A36` stands for 36 characters of the alphabet and
digits, `%H` for hexadecimal digits, `%U` capitals and digits, `%B` what base64 for URLs uses, `%S`
what an AWS secret is made of, `%D` digits, `%N` digits without a leading 0; `%C4,16,-` is a card
number that begins with 4 and has 16 digits in groups of four, `%L` one whose check digit is wrong,
`%X` one in the groups of American Express; `%IDE18, ` an account number with a country and so many
digits; `%J` a JSON web token; `%P`, `%Q` and `%G` private keys.
"""

from __future__ import annotations

import base64
import json
import random
import re
from dataclasses import dataclass
from functools import cache

from tests.source_modules import ROOT

PATH = ROOT / "tests" / "data" / "sensitive.jsonl"
_MARKED = re.compile(r"⟦([a-z_]+):(.*?)⟧", re.DOTALL)
_RUN = re.compile(r"%([AHUBSDN])(\d+)")
_CARD = re.compile(r"%([CL])(\d+),(\d+)(?:,([ .-]?))?")
_AMEX = re.compile(r"%X(\d+),(.)")
_IBAN = re.compile(r"%I([A-Z]{2})(\d+),([ -]?)")
_PEM = re.compile(r"%([PQ])\(([A-Z ]*)\)")
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALPHABETS = {
    "A": _ALPHABET + "0123456789",
    "H": "0123456789abcdef",
    "U": _ALPHABET[26:] + "234567",
    "B": _ALPHABET + "0123456789" + "-_",
    "S": _ALPHABET + "0123456789" + "/+",
    "D": "0123456789",
}


@dataclass(frozen=True)
class Labelled:
    """A text, the sensitive parts of it in order, and which half it belongs to."""

    text: str
    parts: tuple[tuple[str, str], ...]
    half: str


@cache
def labelled() -> list[Labelled]:
    """All of them; the same values every time."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    return [_read(json.loads(line), number) for number, line in enumerate(lines)]


def _read(line: dict[str, str], number: int) -> Labelled:
    chance = random.Random(number)  # a line keeps its values whatever the others say
    written = _made(line["text"], chance)
    parts = tuple((match[1], match[2]) for match in _MARKED.finditer(written))
    return Labelled(_MARKED.sub(r"\2", written), parts, line["half"])


def _made(text: str, chance: random.Random) -> str:
    text = _CARD.sub(lambda m: _card(m[2], int(m[3]), m[4] or "", m[1] == "L", chance), text)
    text = _AMEX.sub(lambda m: _amex(m[1], m[2], chance), text)
    text = _IBAN.sub(lambda m: _iban(m[1], int(m[2]), m[3], chance), text)
    text = text.replace("%J", _token(chance)).replace("%G", _key(" PGP ", " BLOCK", chance))
    text = _PEM.sub(lambda m: _pem(m[1], m[2], chance), text)
    return _RUN.sub(lambda m: _run(m[1], int(m[2]), chance), text)


def _run(alphabet: str, count: int, chance: random.Random) -> str:
    if alphabet == "N":
        return str(chance.randint(1, 9)) + _run("D", count - 1, chance)
    made = [chance.choice(_ALPHABETS[alphabet]) for _ in range(count)]
    if alphabet in "ABHS" and count >= 20:  # as any long random one has
        made[1], made[-2] = "7", "d"
    return "".join(made)


def _check_digit(digits: str) -> int:
    odd = sum(int(each) for each in digits[-2::-2])
    even = sum(sum(divmod(2 * int(each), 10)) for each in digits[::-2])
    return -(odd + even) % 10


def _number(start: str, count: int, wrong: bool, chance: random.Random) -> str:
    digits = start + _run("D", count - len(start) - 1, chance)
    return digits + str((_check_digit(digits) + wrong) % 10)


def _card(start: str, count: int, between: str, wrong: bool, chance: random.Random) -> str:
    digits = _number(start, count, wrong, chance)
    return between.join(digits[at : at + 4] for at in range(0, count, 4))


def _amex(start: str, between: str, chance: random.Random) -> str:
    digits = _number(start, 15, False, chance)
    return between.join((digits[:4], digits[4:10], digits[10:]))


def _iban(country: str, count: int, between: str, chance: random.Random) -> str:
    inner = _run("D", count, chance)
    if country == "NL":
        inner = "TEST" + inner[4:]
    if country == "IE":
        inner = "TEST" + inner[4:]
    as_number = "".join(str(int(each, 36)) for each in f"{inner}{country}00")
    whole = f"{country}{98 - int(as_number) % 97:02d}{inner}"
    return between.join(whole[at : at + 4] for at in range(0, len(whole), 4))


def _token(chance: random.Random) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = json.dumps({"sub": _run("D", 10, chance), "name": "Test"}).encode()
    claims = base64.urlsafe_b64encode(body).decode().rstrip("=")
    return f"{head}.{claims}.{_run('B', 43, chance)}"


def _pem(form: str, name: str, chance: random.Random) -> str:
    key = _key(f" {name}", "", chance)
    return key.replace("\n", "\\n") if form == "Q" else key


def _key(name: str, block: str, chance: random.Random) -> str:
    lines = "\n".join(_run("S", 64, chance) for _ in range(6))
    label = f"{name}PRIVATE KEY{block}-----"
    return f"-----BEGIN{label}\n{lines}\n-----END{label}"
