"""Values that a word beside them calls a password, a key or a token; and mentions of such a thing
without its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from palimpsest.streams.sensitive.spans import Kind, Span

TOLD: Final = 0.9
GUESSED: Final = 0.6

_HINTS: Final = (
    *("passw", "p@ssw", "passphrase", "passcode", "pass", "pwd", "pw", "pin", "kennwort", "losung"),
    *("contrase", "clave", "mot de passe", "senha", "parola", "wachtwoord", "парол"),
    *("パスワード", "暗証", "合言葉", "密码", "密碼", "口令", "비밀번호"),
    *("key", "schlüssel", "キー", "secret", "token", "トークン"),
)
_CODE_WORDS: Final = (
    r"p[a@]sswords?(?!less)|pass[ -]?words?|passwd|pass[ _-]?phrases?|passcodes?|passwort"
    r"|passwörter|kennwort|losungswort"
    r"|contraseña|contrasena|mot de passe|senha|parola d'ordine|wachtwoord|пароль"
    r"|(?<![A-Za-z])(?:p[wW][dD]?|PWD?|pass|Pass|PASS)(?![a-z])|_pass(?![a-z])|_PASS(?![A-Z])"
)
_PIN_WORDS: Final = r"(?<![A-Za-z])(?:pin(?:[ -]?(?:code|number|nummer))?|clave)(?![a-z])"
_KEY_WORDS: Final = (
    r"(?:api|wi-?fi|wlan|wpa2?|secret|access|private|signing|encryption|master|license|app|auth|service|account"
    r"|storage|client)[ _-]?keys?|api[ _-]?secret|client[ _-]?secret|app[ _-]?secret"
    r"|secret[ _-]?access[ _-]?key|api[ _-]?schlüssel|api[ _-]?キー"
    r"|(?<![A-Za-z])secrets?(?![a-z])|_secret(?![a-z])"
)
_TICKETS: Final = (
    r"(?:access|auth|refresh|bearer|api|session|id|bot|personal access|deploy|oauth)[ _-]?tokens?"
    r"|(?<![A-Za-z])token(?![a-zA-Z])|_token(?![a-z])|アクセストークン|トークン"
)
_NAMED: Final = (
    rf"(?P<password>{_CODE_WORDS})|(?P<pin>{_PIN_WORDS})|(?P<api_key>{_KEY_WORDS})"
    rf"|(?P<token>{_TICKETS})"
)
_ABOUT: Final = (
    r"(?:\s(?:for|to|of|on|at|von|für|de|del|da|para|pour|zum|zur|vom|от|для|к)"
    r"(?:\s[^\s:=]{1,30}){1,4}?)?"
)
_ASSIGNED: Final = (
    r"(?:_[A-Za-z0-9]{1,16}){0,2}(?:\[[^\]\s]{0,20}\])?[\"'`\])*]{0,4}"
    rf"(?:\s?\([^()\n]{{1,40}}\)|\s(?:wi-?fi|wlan|router|e?mail|admin|root)|{_ABOUT})"
    r"(?P<sign>\s{0,3}(?::=|=>|->|={1,3}|[:：＝])[ \t]{0,3}(?:\n[ \t]{0,4})?)"
)
_SAID: Final = (
    rf"{_ABOUT}(?P<said>\s{{1,2}}(?:(?:now|currently|still)\s)?"
    r"(?:(?:was|has been|is) (?:re)?(?:set|changed) to|set to|is|was|are|will be"
    r"|ist|war|lautet|es|est|é|è|era|это)"
    r"(?:\s(?:now|still|currently|jetzt|ahora|just))?[ \t]{0,2}[:：]?\s{1,2}"
    r"|['’]s\s{1,2}|\s{1,2}(?:to|as|auf|into|in|a|à|en)\s{1,2}|\s?[-–—]\s?)"
)
_BESIDE: Final = r"(?P<beside>[ \t]{1,2})"
_NAME: Final = re.compile(_NAMED, re.IGNORECASE)
_LINK: Final = re.compile(rf"{_ASSIGNED}|{_SAID}|{_BESIDE}", re.IGNORECASE)
_HINTED: Final = re.compile("|".join(_HINTS))
_LAST_WORDS: Final = ("key", "schlüssel", "キー", "pass")
"""Hints that a name may end with."""
_NAME_CHARACTERS: Final = 16
"""Of what a name has before its last word, at most."""
_ASIAN: Final = re.compile(
    r"(?:パスワード|暗証番号|合言葉|PIN|密码|密碼|口令|비밀번호|APIキー|アクセストークン|トークン)"
    r"[はがを为為是는은이가]?\s?(?:[:：＝=]\s?)?[「『“\"']?([!#-~]{3,128}|[^\s。、，！？「」『』“”]{3,64})"
)
_ASIAN_ENDING: Final = re.compile(r"(?:です|でした|だよ|だ|입니다|이에요|예요|了)[.!]?$")
_FLAG: Final = re.compile(
    r"(?<![\w-])--?(?:password|passwd|pass|pw|token|api-key|secret)[ =]"
    r"(?P<value>[^\s\"'-][^\s\"']{2,127})"
)
_CURL: Final = re.compile(r"(?<![\w-])(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:([^\s\"']{1,128})")
_OPTIONS_OF: Final = {
    "mysql": re.compile(r"(?<![\w-])-p([^\s\"'=-][^\s\"']{2,127})"),
    "sshpass": re.compile(r"(?<![\w-])-p ?['\"]?([^\s\"'=-][^\s\"']{2,127})"),
    "docker": re.compile(r"(?<![\w-])-p ([^\s\"'=\d-][^\s\"':]{2,127})(?![^\s])"),
    "redis-cli": re.compile(r"(?<![\w-])-a ([^\s\"'=-][^\s\"']{2,127})"),
    "net user": re.compile(r"net user \S{1,64} ([^\s/\"'*][^\s\"']{2,127})", re.IGNORECASE),
}
"""Of programs whose short options bear a password."""
_PAIR: Final = re.compile(
    r"(?<![A-Za-z])(?:log-?in|user(?:name)?|credentials?|zugang)[: ]{1,2}[^\s/:]{1,64} ?/ ?"
    r"([^\s/,;]{5,64})",
    re.IGNORECASE,
)
_REVERSED: Final = re.compile(
    r"(?<!\S)[\"'`“]?([^\s\"'`“”]{4,64})[\"'`”]?\s(?:is|was|as|for|ist|als|für|es|como|est)\s"
    r"(?:my|our|the|his|her|their|mein|unser|das|die|mi|la|mon|le)\s(?:[^\s.,]{1,20}\s){0,2}\Z",
    re.IGNORECASE,
)
_QUOTES: Final = {
    **{'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "‘": "’", "«": "»", "「": "」"},
    "『": "』",
}
_UNQUOTED: Final = re.compile(
    r"(?:[^\s\"'`“”„‘’«»「」『』<>,;&。、）]|[,;&](?![\s\"'`]|\w{1,40}[=:]|$)){1,256}+"
)
_NO_VALUE: Final = re.compile(
    r"\$\{?\w|\$\(|\{\{|%[({sd]|<|\*{3,}|[xX]{3,}$|\.{3}|…|\[RED|\[REF|os\.|process\.|env\.|env\("
    r"|config\.|settings\.|getpass|self\.|this\.|request\.|req\.|user\.|args\.|"
    r"(?:null|none|nil|true|false|undefined|required|optional|string|str|text|hidden|varchar|bool"
    r"|bytes|secretstr|your[-_ ]\w+|my[-_]password|n/a|yes|no|todo|tbd|unset|empty|redacted)"
    r"[,;.)]*$|[A-Za-z_][\w.]{0,60}\(",
    re.IGNORECASE,
)
_CONNECTED: Final = re.compile(
    r"\s{0,2}(?:$|[.,;:!?)\]\n。、]|(?:and|but|or|und|et|y|e|for|für|para|pour|so|thanks|please|btw"
    r"|if|when|on|with|user|login)\b)",
    re.IGNORECASE,
)
_STOP_WORDS: Final = frozenset(
    """a an the on in under at by to of for from with within behind inside my our your his her their
    its it that this these those what which who when where why how not no never always still
    also just only already again now then here there same too very so as if because and or but
    is are was were be been being do does did can could should would must may might will
    wrong right correct incorrect valid invalid weak strong secure insecure safe unsafe fine ok
    okay good bad great long short hard easy simple complex old new different unique random
    secret private public confidential important necessary mandatory empty blank missing
    mine yours theirs public next available unknown known lost gone due ready
    everything something anything nothing everyone all any some one two both each every
    reset change changing manager managers policy policies rules page field form prompt link
    see ask use using check try call auf in im unter am bei an falsch richtig sicher unsicher
    schwach stark lang kurz nicht noch schon weg neu alt der die das ein eine mein dein
    leer gleich wichtig zu el la los las en es un una mi tu su no muy le les un une mon ton
    sur dans sous pas faux trop est clave segura larga corta generation generator auth
    authentication rotation limit limits count type format length hash hashing store vault
    prompt protection protected strength recovery sharing based economy ring fields inputs
    screen value values string stage works work sent sharing""".split()
)
_PREDICATES: Final = (
    *("ed", "ing", "ly", "en", "able", "ible", "less", "ful", "ous", "ant", "ent"),
    *("ión", "iert", "bar"),
)
"""Endings of words that say what a password is like."""
_PARTICIPLES: Final = ("ata", "ato", "uta", "uto", "ita", "ito", "ada", "ado", "ida", "ido", "ta")
"""The same of Italian, Spanish and Portuguese."""
_WHERE: Final = re.compile(
    r"(?:on|in|inside|under|underneath|behind|at|with|written|stored|saved|kept|noted|taped|hidden"
    r"|the same|the name|the one|the usual|my|our|his|her|their|what|somewhere|auf|im|unter|am"
    r"|hinter|bei|der|die|das|mein|sur|dans|sous|le|la|mon|ma|en|el|mi|debajo|guardada)\b"
    r"(?! (?:wrong|invalid|correct|right|problem|issue|reason|way|case|danger|plain|clear)\b)",
    re.IGNORECASE,
)
_WHOSE: Final = re.compile(
    r"(?:\b(?:my|our|the|his|her|their|your|mein|unser|das|die|der|mon|ma|le|la|mi|el|tu)\s"
    r"(?:[^\s.,:;]{1,20}\s){0,3}|^\s*)\Z",
    re.IGNORECASE,
)
_NUMBERS: Final = ("card number", "ssn", "social security number", "iban", "account number")
_NUMBER_NAME: Final = re.compile("|".join(_NUMBERS), re.IGNORECASE)
_SAYS: Final = re.compile(
    rf"{_ABOUT}\s(?:is|are|was|ist|lautet|est|es)\s(?:still\s)?|\s?[:：]\s{{0,2}}", re.IGNORECASE
)
_ASIAN_WHERE: Final = re.compile(
    r"(?:パスワード|暗証番号|合言葉)[はが][^。!?\n]{0,20}?(?:メモ|付箋|手帳|ノート|紙|裏|名前|誕生日)"
    r"|(?:密码|密碼)(?:是|在|写在)[^。!?\n]{0,12}?(?:纸|便条|名字|生日|背面|抽屉)"
)
_PHRASE: Final = re.compile(r"[A-Za-z0-9-]{2,20}(?: [A-Za-z0-9-]{2,20}){1,9}(?![A-Za-z0-9-])")
_DATE_OR_VERSION: Final = re.compile(
    r"v?\d{1,20}(?:[.:/-]\d{1,20}){1,9}[a-z]{0,2}|\d{1,20}(?:st|nd|rd|th|x|k|m|s|ms|h)|\d\w?"
)
_PAGING: Final = ("page", "next", "sync", "continuation", "cursor", "max", "csrf", "public")


def find_passwords(text: str, lowered: str) -> Iterator[Span]:
    """Values alongside a word for what they open."""
    if any(hint in lowered for hint in _HINTS):
        yield from _named(text, lowered)
        if not text.isascii():
            yield from _asian(text)
    if " -" in text or text.startswith("-") or "net user" in lowered:
        yield from _options(text, lowered)
    if "/" in text:
        for match in _PAIR.finditer(text):
            if _has_the_look(match[1], 5):
                yield Span(*match.span(1), "password", GUESSED)


def _named(text: str, lowered: str) -> Iterator[Span]:
    done = 0
    for name in _names(text, lowered):
        if name.start() < done or text.endswith("[REDACTED:", 0, name.start()):
            continue
        if name.lastgroup in ("password", "pin") and _CONNECTED.match(text, name.end()):
            yield from _told_before(text, name)
        link = _LINK.match(text, name.end())
        value = _value(text, name, link) if link is not None else None
        if value is not None:
            yield value
            done = value.end


def _told_before(text: str, name: re.Match[str]) -> Iterator[Span]:
    """The value in front of the name: "hunter2 is my password"."""
    begin = max(0, name.start() - 110)
    match = _REVERSED.search(text[begin : name.start()])
    if match is not None and not _NO_VALUE.match(match[1]):
        found = match[1].rstrip(".,:;")
        is_pin = name.lastgroup == "pin" and found.isdecimal()
        if is_pin or (_has_the_look(found, 5) and any(map(str.isalpha, found))):
            start = begin + match.start(1)
            yield Span(start, start + len(found), "password", GUESSED)


def _names(text: str, lowered: str) -> Iterator[re.Match[str]]:
    """Looks only around the hints: the pattern of names is a slow one."""
    if len(lowered) != len(text):  # a character that is two in lower case
        yield from _NAME.finditer(text)
        return
    done = 0
    for hint in _HINTED.finditer(lowered):
        if hint.start() < done:
            continue
        name = _NAME.match(text, hint.start())
        if name is None and hint.group() in _LAST_WORDS:
            begin = max(done, hint.start() - _NAME_CHARACTERS)
            name = _NAME.search(text, begin, hint.end() + 2)
        if name is not None:
            yield name
            done = name.end()


def _asian(text: str) -> Iterator[Span]:
    for match in _ASIAN.finditer(text):
        found = match.group(1).rstrip(".,;:!?\"')]}」")
        if not found.isascii():
            found = _ASIAN_ENDING.sub("", found)
            if not any(map(str.isdigit, found)):
                continue
        if len(found) >= 3 and any(map(str.isalnum, found)) and not _NO_VALUE.match(found):
            yield Span(match.start(1), match.start(1) + len(found), "password", TOLD)


def _options(text: str, lowered: str) -> Iterator[Span]:
    for match in _FLAG.finditer(text):
        if not _NO_VALUE.match(match["value"]):
            yield Span(*match.span("value"), "password", TOLD)
    for program, pattern in _OPTIONS_OF.items():
        if program in lowered:
            for match in pattern.finditer(text):
                yield Span(*match.span(1), "password", TOLD)
    if "curl" in lowered:
        for match in _CURL.finditer(text):
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
        if name.group().lower() == "pass":  # of a boat or a mountain
            continue
        says = _SAYS.match(text, name.end())
        if says is None or _WHERE.match(text, says.end()) is None:
            continue
        if _WHOSE.search(text[max(0, name.start() - 70) : name.start()]):
            return True
    return not text.isascii() and _ASIAN_WHERE.search(text) is not None


def _value(text: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """What the name stands for, if a value follows the link."""
    named = str(name.lastgroup)
    kind: Kind = "token" if named == "token" else "api_key" if named == "api_key" else "password"
    before = text[max(0, name.start() - 14) : name.start()].lower().rstrip("_ -")
    if named == "token" and before.endswith(_PAGING):
        return None
    start = link.end()
    how = "sign" if link["sign"] else "said" if link["said"] else "beside"
    close = _QUOTES.get(text[start : start + 1])
    if close is not None:
        end = text.find(close, start + 1, start + 258)
        if end > start + 1 and _is_quoted_value(text[start + 1 : end], named, how):
            return Span(start + 1, end, kind, TOLD)
        return None
    if named == "password" and how != "beside":
        phrase = _PHRASE.match(text, start)
        if phrase is not None and _is_phrase(phrase.group(), name.group(), text[: phrase.start()]):
            return Span(*phrase.span(), kind, TOLD)
    raw = _UNQUOTED.match(text, start)
    found = raw.group().rstrip(".,:)]}") if raw else ""
    if not found or _NO_VALUE.match(found):
        return None
    end = start + len(found)
    if how != "sign" and _is_of_another_pass(found, name.group(), link["said"] or ""):
        return None
    if not _is_value(found, named, how, text, end):
        return None
    return Span(start, end, kind, GUESSED if how == "beside" else TOLD)


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
    if named == "password":
        return how != "beside" or not found.isalpha()
    if named == "pin":
        return found.isdigit()
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
    if named == "pin":
        return found.isdecimal() and 3 <= len(found) <= 8 and how != "beside"
    if named in ("api_key", "token"):
        return _looks_random(found)
    lowered = found.lower()
    if lowered in _STOP_WORDS:
        return False
    if not found.isalpha():
        if how == "sign":
            return any(map(str.isalnum, found)) or len(found) >= 4
        return _has_the_look(found, 4 if how == "said" else 6)
    if lowered.endswith(_PREDICATES) and how != "sign":
        return False
    if how == "beside":
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
