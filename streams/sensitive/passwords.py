"""Values that a word beside them calls a password, a key or a token; and mentions of such a thing
without its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from palimpsest.streams.sensitive.spans import LEXICON, TOLD, Kind, Span, expression

GUESSED: Final = 0.6

_HINTS: Final = (
    *(
        "passw",
        "p@ssw",
        "pasw",
        "p@sw",
        "pssw",
        "mdp",
        "motdepasse",
        "mot_de_passe",
        "mot-de-passe",
    ),
    *("passphrase", "passcode", "pass", "pwd", "pw", "pin", "kennwort", "losung"),
    *("contrase", "clave", "mot de passe", "senha", "parola", "wachtwoord", "парол"),
    *("パスワード", "暗証", "合言葉", "密码", "密碼", "口令", "비밀번호"),
    *(
        "лозинка",
        "lozinka",
        "geslo",
        "hasło",
        "heslo",
        "şifre",
        "lösenord",
        "adgangskode",
        "passord",
    ),
    *("jelszó", "salasana", "slaptažodis", "parolă", "κωδικός", "mật khẩu", "kata sandi"),
    *("รหัสผ่าน", "كلمة ", "סיסמ", "पासवर्ड", "psw", "identified"),
    *("contra", "palavra", "haslo", "sifr", "šifr", "losenord", "kodeord", "orð", "jelszo"),
    *("jelszav", "salasõna", "slaptazodis", "parole", "parool", "fjalë", "nenosiri", "pasvorto"),
    *("pasahitza", "mat khau", "kata laluan", "sandi", "رمز ", "پاس ورڈ", "گذرواژه"),
    *("პაროლი", "գաղտնաբառ", "পাসওয়ার্ড", "கடவுச்சொல்", "비번", "패스워드"),
    *("пин", "geheimzahl", "wagwoord", "ww"),
    *("key", "schlüssel", "キー", "secret", "token", "トークン"),
)
_CODE_HINTS: Final = (
    *("code", "otp", "tan", "puk", "cvv", "cvc", "cvn", "pin", "código", "コード", "ワンタイム"),
    *(
        "codice",
        "код",
        "kod ",
        "验证码",
        "驗證碼",
        "인증번호",
        "combination",
        "phrase",
        "words",
        "sid=",
        "id=",
        "remember_",
    ),
    *("auth=", "session=", "to log", "to sign", "to verify", "to confirm", "to unlock"),
)
"""Of which one stands in a text that has a code; single words are found faster than a pattern."""
_NAME: Final = expression("name")
_HINTED: Final = re.compile("|".join(_HINTS))
_SHORTEST: Final = tuple(
    hint for hint in _HINTS if not any(each != hint and each in hint for each in _HINTS)
)
"""The hints of which one stands in a text that has any."""
_SHORTEST_ASCII: Final = tuple(filter(str.isascii, _SHORTEST))
_LAST_WORDS: Final = ("key", "schlüssel", "キー", "pass", "secret", "token")
"""Hints that a name may end with."""
_NAME_CHARACTERS: Final = 16
"""Of what a name has before its last word, at most."""
_NEAR: Final = 80
"""Characters before a PIN and behind its value in which a word says what it opens."""
_DIGIT: Final = re.compile(r"\d")
_UNIT: Final = re.compile(r"\s?(?:mm|cm|rpm|grams?|posts?|messages?|photos?|pieces?|times)\b")
_SENTENCE_END: Final = re.compile(r"[.!?;](?=\s)|\n\n")
MAX_HEAD: Final = 500
"""Characters of the head of a table."""
_TAG: Final = 64
"""Characters of a tag before the name in it, at most."""
_OPTIONS_OF: Final = {
    "mysql": re.compile(r"(?<![\w-])-p([^\s\"'=-][^\s\"']{2,127})"),
    "sshpass": re.compile(r"(?<![\w-])-p ?['\"]?([^\s\"'=-][^\s\"']{2,127})"),
    "docker": re.compile(r"(?<![\w-])-p ([^\s\"'=\d-][^\s\"':]{2,127})(?![^\s])"),
    "redis-cli": re.compile(r"(?<![\w-])-a ([^\s\"'=-][^\s\"']{2,127})"),
    "htpasswd": re.compile(r"htpasswd(?: -\w{1,8}){1,4} \S{1,128} \S{1,64} ([^\s\"']{3,128})"),
    "chpasswd": re.compile(
        r"(?<![^\s\"'])\w{1,32}:([^\s\"':]{3,128})[\"']?\s?\|\s?(?:sudo )?chpasswd"
    ),
    "sudo -s": re.compile(r"echo [\"']?([^\s\"'$]{3,128})[\"']?\s?\|\s?sudo -S"),
    "net use": re.compile(r"/user:\S{1,64} ([^\s/\"'*][^\s\"']{2,127})", re.IGNORECASE),
    "securestring": re.compile(
        r"ConvertTo-SecureString (?:-String )?[\"']([^\"'\n$]{3,128})[\"']", re.IGNORECASE
    ),
    "jdbc:oracle": re.compile(r"jdbc:oracle:\w{1,8}:[^\s/@:]{1,64}/([^\s@/]{1,128})@"),
    "identified": re.compile(
        r"\b(?:create|alter)\s+user\s+\S{1,64}\s+identified\s+by\s+[\"']([^\"'\n]{3,128})",
        re.IGNORECASE,
    ),
    "wifi:": re.compile(r"WIFI:[^\n]{0,100}?[;:]P:((?:\\.|[^;\\\s]){3,64});", re.IGNORECASE),
    "net user": re.compile(r"net user \S{1,64} ([^\s/\"'*][^\s\"']{2,127})", re.IGNORECASE),
}
"""Of programs and notations that have a password in a place of their own, by what they contain."""
_QUOTES: Final = {
    **{'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "‘": "’", "«": "»", "「": "」"},
    "『": "』",
}
_HOW: Final = {
    **{"sign": "sign", "paired": "sign", "told": "told", "said": "said", "listed": "listed"},
    "tags": "beside",
}
"""How a value follows a name, by the group of the link."""
_NO_VALUE: Final = expression("no_value")
_CONNECTED: Final = expression("connected")
_STOP_WORDS: Final = LEXICON.word_set("stop_words")
_PREDICATES: Final = (
    *("ed", "ing", "ly", "en", "able", "ible", "less", "ful", "ous", "ant", "ent"),
    *("ión", "iert", "bar"),
)
"""Endings of words that say what a password is like."""
_PARTICIPLES: Final = ("ata", "ato", "uta", "uto", "ita", "ito", "ada", "ado", "ida", "ido", "ta")
"""The same of Italian, Spanish and Portuguese."""
_WHERE: Final = expression("where")
_NUMBERS: Final = ("card number", "ssn", "social security number", "iban", "account number")
_NUMBER_NAME: Final = re.compile("|".join(_NUMBERS), re.IGNORECASE)
_DATE_OR_VERSION: Final = expression("date_or_version")
_ADDRESS: Final = re.compile(r"0x[0-9A-Fa-f]{40}")
"""Of a contract, which a token of a blockchain has."""
_PAGING: Final = ("page", "next", "sync", "continuation", "cursor", "max", "csrf", "public")


def find_passwords(text: str, lowered: str) -> Iterator[Span]:
    """Values alongside a word for what they open."""
    is_ascii = text.isascii()
    # A loop takes half as long as `any` over so many hints, none of which most texts have.
    for hint in _SHORTEST_ASCII if is_ascii else _SHORTEST:
        if hint in lowered:
            yield from _named(text, lowered)
            if not is_ascii:
                yield from _asian(text)
            if "\n" in text:
                yield from _in_columns(text)
            break
    yield from _options(text, lowered)
    if "/" in text:
        for match in expression("pair").finditer(text):
            if _has_the_look(match[1], 5):
                yield Span(*match.span(1), "password", GUESSED)


def _named(text: str, lowered: str) -> Iterator[Span]:
    done = 0
    for name in _names(text, lowered):
        if name.start() < done or text.endswith("[REDACTED:", 0, name.start()):
            continue
        if name.lastgroup in ("password", "pin", "word") and _CONNECTED.match(text, name.end()):
            # The value in front of the name: "hunter2 is my password".
            begin = max(0, name.start() - 110)
            match = expression("reversed").search(text[begin : name.start()])
            if match is not None and not _NO_VALUE.match(match[1]):
                found = match[1].rstrip(".,:;")
                is_pin = name.lastgroup == "pin" and found.isdecimal()
                if is_pin or (_has_the_look(found, 5) and any(map(str.isalpha, found))):
                    start = begin + match.start(1)
                    yield Span(start, start + len(found), "password", GUESSED)
        value = _in_element(text, name)
        if value is None:
            link = expression("link").match(text, name.end())
            value = _value(text, name, link) if link is not None else None
        if value is not None:
            yield value
            done = value.end


def _names(text: str, lowered: str) -> Iterator[re.Match[str]]:
    """Looks only around the hints: the pattern of names is a slow one."""
    if len(lowered) != len(text):  # a character that is two in lower case
        yield from _NAME.finditer(text)
        return
    done = 0
    for start, end, hint in _hints_in(lowered):
        if start < done:
            continue
        name = _NAME.match(text, start)
        if name is None and hint in _LAST_WORDS:
            name = _NAME.search(text, max(done, start - _NAME_CHARACTERS), end + 2)
        if name is not None:
            yield name
            done = name.end()


def _hints_in(lowered: str) -> list[tuple[int, int, str]]:
    """Where the hints begin and end, in order. They are looked for one by one: few of them stand in
    a text, and a pattern of all of them takes long at each of its characters."""
    found = []
    for hint in _HINTS:
        start = lowered.find(hint)
        while start >= 0:
            found.append((start, start + len(hint), hint))
            start = lowered.find(hint, start + len(hint))
    return sorted(found)


def _asian(text: str) -> Iterator[Span]:
    for match in expression("asian").finditer(text):
        found = match.group(1).rstrip(".,;:!?\"')]}」")
        if not found.isascii():
            found = expression("asian_ending").sub("", found)
            digits = re.match(r"\d*", found)
            is_counted = digits and expression("counted").match(found, digits.end())
            if is_counted or not any(map(str.isdigit, found)):
                continue
        if len(found) >= 3 and any(map(str.isalnum, found)) and not _NO_VALUE.match(found):
            yield Span(match.start(1), match.start(1) + len(found), "password", TOLD)


def _in_columns(text: str) -> Iterator[Span]:
    """Values below a name at the head of a column, in a table of cells with a sign between them."""
    columns: dict[int, re.Match[str]] = {}
    separator, width, start = "", 0, 0
    for line in text.splitlines(keepends=True):
        cells = line.split(separator) if separator else []
        if len(cells) != width or not width:
            columns, separator, width = _head_of_columns(line)
        else:
            for column, name in columns.items():
                found, named = cells[column].strip(" \t\r\n\"'`"), str(name.lastgroup)
                if _NO_VALUE.match(found) or not _is_value(found, named, "beside", found, 0):
                    continue
                before = sum(map(len, cells[:column])) + column * len(separator)
                at = start + before + cells[column].index(found)
                yield Span(at, at + len(found), _kind(name), GUESSED)
        start += len(line)


def _head_of_columns(line: str) -> tuple[dict[int, re.Match[str]], str, int]:
    """The columns that are called a password, a key or a token, with the names, the sign between
    the cells and their number; nothing where the line is no such head."""
    if len(line) <= MAX_HEAD and _HINTED.search(line.lower()):
        for separator in "|\t,;":
            cells = line.split(separator) if separator in line else []
            names = {
                at: _NAME.fullmatch(cell.strip(" \t\r\n\"'`*")) for at, cell in enumerate(cells)
            }
            columns = {at: name for at, name in names.items() if name is not None}
            if columns:
                return columns, separator, len(cells)
    return {}, "", 0


def _options(text: str, lowered: str) -> Iterator[Span]:
    if " -" in text or text.startswith("-"):
        for match in expression("flag").finditer(text):
            if not _NO_VALUE.match(match["value"]):
                yield Span(*match.span("value"), "password", TOLD)
    for program, pattern in _OPTIONS_OF.items():
        if program in lowered:
            for match in pattern.finditer(text):
                yield Span(*match.span(1), "password", TOLD)
    if "curl" in lowered:
        for match in expression("curl").finditer(text):
            if not _NO_VALUE.match(match.group(1)):
                yield Span(*match.span(1), "password", TOLD)


def mentions_one(text: str) -> bool:
    """Whether the text says of a secret where it is or what it is like, and not what: such a text
    cannot be made safe by leaving something out."""
    lowered = text.lower()
    names = [*_names(text, lowered)]
    if any(number in lowered for number in _NUMBERS):
        names += _NUMBER_NAME.finditer(text)
    for name in names:
        if name.group().lower() == "pass" or name.lastgroup == "word":  # of a boat; of success
            continue
        says = expression("says").match(text, name.end())
        if says is None or _WHERE.match(text, says.end()) is None:
            continue
        if expression("whose").search(text[max(0, name.start() - 70) : name.start()]):
            return True
    return not text.isascii() and expression("asian_where").search(text) is not None


def _in_element(text: str, name: re.Match[str]) -> Span | None:
    """The value of an element of XML which is called by the name."""
    if expression("opened").search(text[max(0, name.start() - _TAG) : name.start()]) is None:
        return None
    element = expression("element").match(text, name.end())
    if element is None or not _is_quoted_value(element["value"], str(name.lastgroup), "sign"):
        return None
    if name.lastgroup == "pin" and _is_postal(text, name.start(), *element.span("value")):
        return None
    return Span(*element.span("value"), _kind(name), TOLD)


def _kind(name: re.Match[str]) -> Kind:
    named = name.lastgroup
    return "token" if named == "token" else "api_key" if named == "api_key" else "password"


def _value(text: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """What the name stands for, if a value follows the link."""
    named = str(name.lastgroup)
    kind = _kind(name)
    before = text[max(0, name.start() - 14) : name.start()].lower().rstrip("_ -")
    if named == "token" and before.endswith(_PAGING):
        return None
    start = link.end()
    how = next((how for group, how in _HOW.items() if link[group]), "beside")
    if "\n" in (link["beside"] or "") and not _is_own_line(text, name.start(), start):
        return None
    if text[start : start + 1] in _QUOTES:
        return _quoted(text, name, start, how, 4 if link["paired"] else 1)
    if named == "password" and how not in ("beside", "told"):
        phrase = expression("phrase").match(text, start)
        if phrase is not None and _is_phrase(phrase.group(), name.group(), text[: phrase.start()]):
            return Span(*phrase.span(), kind, TOLD)
    raw = expression("unquoted").match(text, start)
    found = raw.group().rstrip(".,:)]}") if raw else ""
    if not found or _NO_VALUE.match(found):
        return None
    end = start + len(found)
    if name.group().lower() == "pass" and found.isdecimal() and len(found) < 4:
        return None  # a number of tests
    if how != "sign" and _is_of_another_pass(found, name.group(), link["said"] or ""):
        return None
    if named == "pin" and how == "beside":
        is_pin = found.isdecimal() and _is_pin_beside(text, name, start, end)
        return Span(start, end, kind, GUESSED) if is_pin else None
    if not _is_value(found, named, how, text, end):
        return None
    if named == "pin" and _is_postal(text, name.start(), start, end):
        return None
    return Span(start, end, kind, GUESSED if how == "beside" else TOLD)


def _is_pin_beside(text: str, name: re.Match[str], start: int, end: int) -> bool:
    """Whether a number with nothing but a space between it and "pin" opens something: four digits
    that are no year and of which nothing more is said, as of a pin in wood or on a board; or
    whatever somebody's pin is, or that of a card."""
    before = _SENTENCE_END.split(text[max(0, name.start() - _NEAR) : name.start()])[-1]
    if expression("pin_of_things").search(before):
        return False
    after = _SENTENCE_END.split(text[end : end + _NEAR])[0]
    is_somebodys = any(map(expression("whose_pin").search, (before, after)))
    if is_somebodys or expression("pin_used").search(before) or len(name.group()) > len("pin"):
        is_postal = _is_postal(text, name.start(), start, end)
        return 3 <= end - start <= 8 and not is_postal and not _UNIT.match(text, end)
    is_year = text[start : start + 2] in ("19", "20")
    return end - start == 4 and not is_year and _CONNECTED.match(text, end) is not None


def _quoted(text: str, name: re.Match[str], start: int, how: str, least: int) -> Span | None:
    """The value in quotes, of `least` characters."""
    named = str(name.lastgroup)
    end = _end_of_quote(text, start)
    if end < start + 1 + least or not _is_quoted_value(text[start + 1 : end], named, how):
        return None
    if named == "pin" and _is_postal(text, name.start(), start + 1, end):
        return None
    return Span(start + 1, end, _kind(name), TOLD)


def _end_of_quote(text: str, start: int) -> int:
    """Where the quote ends that begins there; -1 where it does not end near. As in SQL, two in
    place of one are a sign of the value."""
    quote, most = _QUOTES[text[start]], start + 258
    end = first = text.find(quote, start + 1, most)
    while end > start + 1 and quote in "'\"" and text.startswith(quote, end + 1):
        end = text.find(quote, end + 2, most)
    return first if end < 0 else end


def _is_own_line(text: str, name: int, start: int) -> bool:
    """Whether the name and the value behind it are the whole of a line each, as they are copied
    from a form."""
    end = text.find("\n", start, start + 258)
    value = text[start : start + 257 if end < 0 else end].strip()
    return text[name - 1 : name] in ("", "\n") and " " not in value


def _is_phrase(found: str, name: str, before: str) -> bool:
    """Several words for a password: four or more behind a colon or where a phrase is named, fewer
    where none of them is a word that sentences are made of."""
    ordinary = [word for word in found.lower().split() if word in _STOP_WORDS]
    is_named = "phrase" in name.lower()
    if is_named and (not ordinary or found.count(" ") >= 3):
        return True
    is_told = before.rstrip().endswith((":", "：")) and not _WHERE.match(found)
    return is_told and found.count(" ") >= 3 and len(ordinary) <= 1


def _is_quoted_value(found: str, named: str, how: str) -> bool:
    if "\n" in found or _NO_VALUE.match(found) or found.lower() in _STOP_WORDS:
        return False
    if named == "password" and how == "listed":
        return _has_the_look(found, 6)
    if named == "password":
        return how != "beside" or not found.isalpha()
    if named == "pin":
        return found.isdigit()
    if named == "word":
        return found.isdecimal() or _has_the_look(found, 5)
    return _looks_random(found)


def _is_of_another_pass(found: str, name: str, said: str) -> bool:
    """ "La password è scaduta", "est expiré"; a pass leads over mountains, exams are to pass."""
    lowered, is_ = found.lower(), said.strip()
    if is_ in ("è", "é", "es") and lowered.endswith(_PARTICIPLES):
        return True
    if is_ == "est" and lowered.endswith(("é", "ée", "correct", "incorrecte", "invalide")):
        return True
    if name.lower() != "pass":
        return False
    return is_ not in ("is", "was", "ist", "est", "'s") or not (
        _has_the_look(found, 5) and any(map(str.isalpha, found))
    )


def _is_value(found: str, named: str, how: str, text: str, end: int) -> bool:
    if named == "token" and _ADDRESS.fullmatch(found):
        return False
    if named == "pin":
        return found.isdecimal() and 3 <= len(found) <= 8 and how != "beside"
    if named in ("api_key", "token"):
        return _looks_random(found)
    if named == "word":
        is_number = found.isdecimal() and 4 <= len(found) <= 8
        return how != "beside" and (is_number or _has_the_look(found, 5))
    if found.isdecimal() and expression("counted").match(text, end):
        return False
    lowered = found.lower()
    if lowered in _STOP_WORDS:
        return False
    if not found.isalpha():
        if how == "sign":
            return any(map(str.isalnum, found)) or len(found) >= 4
        return _has_the_look(found, 4 if how in ("said", "told") else 6)
    if lowered.endswith(_PREDICATES) and how != "sign":
        return False
    if how in ("beside", "told"):
        return False
    if not _CONNECTED.match(text, end):
        return False
    return len(found) >= 4 if how == "said" else len(found) >= 3


def _has_the_look(found: str, least: int) -> bool:
    """Digits or signs in a word, or digits alone where it is said to be one; no date, no
    version, no number with its unit."""
    if len(found) < least or _DATE_OR_VERSION.fullmatch(found.lower()):
        return False
    alphabetic, digits = any(map(str.isalpha, found)), any(map(str.isdecimal, found))
    if digits:
        return alphabetic or least == 4
    return alphabetic and any(each in "!@#$%^&*+=?~|" for each in found[:-1])


def _looks_random(found: str) -> bool:
    """What no one would write as a word: digits in a word, or long with both cases."""
    if len(found) < 8 or not any(map(str.isalnum, found)) or any(map(str.isspace, found)):
        return False
    alphabetic, digits = any(map(str.isalpha, found)), any(map(str.isdecimal, found))
    if digits and alphabetic:
        return not _DATE_OR_VERSION.fullmatch(found.lower())
    return len(found) >= 16 and found.isalpha() and not found.islower() and not found.istitle()


def find_codes(text: str, lowered: str) -> Iterator[Span]:
    """Codes that open something for a moment or for good; `lowered` is the text in lower case."""
    if not any(hint in lowered for hint in _CODE_HINTS):
        return
    code = expression("code")
    patterns = [code, expression("before")] if _DIGIT.search(text) else []
    patterns += [expression("combination")] if "combination" in lowered else []
    patterns += [expression("words")] if "phrase" in lowered or "words" in lowered else []
    for pattern in patterns:
        for match in pattern.finditer(text):
            name = next(n for n, held in match.groupdict().items() if held and n != "name")
            is_postal = pattern is code and _is_postal(text, match.start(), *match.span(name))
            if pattern is not code or (_is_code(match["name"], match["value"]) and not is_postal):
                yield Span(*match.span(name), "password", TOLD)
    for match in expression("cookie").finditer(text) if "=" in text else ():
        found = match["value"]
        if any(map(str.isdigit, found)) and any(map(str.isalpha, found)):
            yield Span(*match.span("value"), "token", TOLD)


def _is_postal(text: str, name: int, start: int, end: int) -> bool:
    """Whether the value of a PIN is the number of a place, as in India: it has its six digits, a
    place is named in the same sentence, and nothing says that it is a person's or a card's."""
    number = expression("postal").match(text, start)
    said = text[name:start]
    if number is None or number.end() < end or "PIN" not in said.upper():
        return False
    before = _SENTENCE_END.split(text[max(0, name - _NEAR) : name])[-1]
    after = _SENTENCE_END.split(text[number.end() : number.end() + _NEAR])[0]
    if any(map(expression("whose_pin").search, (before, said))):
        return False
    if expression("pincode").match(said):
        return True
    return any(map(expression("place").search, (before, said, after)))


def _is_code(name: str, value: str) -> bool:
    """The number on a card has three digits, every other code has more; PIN is said of a number
    only in capitals, or of a card."""
    lowered = name.lower()
    if lowered == "pin" and name != "PIN":
        return False
    if lowered.startswith("cv"):
        return value.isdigit() and len(value) <= 4
    return len(value) >= 4 or lowered.startswith("security")
