"""German, for `parsing`."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.statements.claims import SAYS, Claim, Words
from palimpsest.streams.statements.grammar import (
    Grammar,
    Relation,
    Sense,
    folded,
    opposites,
    rewritten,
)

_BEEN: Final = r"\b(?:bin|ist|sind) "
_HAVE: Final = r"\b(?:habe|hat|haben) "
_WHEN: Final = r"(?:(?:jetzt|gerade|letzte[ns]? \w+|im \w+|vor kurzem) )*"
_WORDINGS: Final = (
    (
        re.compile(rf"{_BEEN}{_WHEN}(?:von \w+ )?nach (.+?) (?:um)?gezogen\b", re.IGNORECASE),
        r"zog-nach \1",
    ),
    (re.compile(rf"{_BEEN}mit (.+?) verheiratet\b", re.IGNORECASE), r"ist verheiratet-mit \1"),
    (
        re.compile(
            rf"{_HAVE}{_WHEN}(?:mein\w*|ihr\w*|sein\w*) (?:Job|Stelle)( bei .+?)? gekündigt\b",
            re.IGNORECASE,
        ),
        r"kündigte\1",
    ),
    (re.compile(rf"{_HAVE}{_WHEN}(bei .+?) gekündigt\b", re.IGNORECASE), r"kündigte \1"),
    (re.compile(rf"{_HAVE}{_WHEN}gekündigt\b", re.IGNORECASE), "kündigte"),
    (
        re.compile(rf"{_HAVE}{_WHEN}(.*?)aufgehört,?(.*?) zu (\w+)$", re.IGNORECASE),
        r"hörte-auf \1\2 \3",
    ),
    (re.compile(rf"{_HAVE}{_WHEN}mit dem (\w+) aufgehört$", re.IGNORECASE), r"hörte-auf \1"),
    (re.compile(r"\bhören? auf,? (.*?)zu (\w+)$", re.IGNORECASE), r"hörte-auf \1\2"),
)
"""Verbs that stand in two parts, brought together."""

_DAY: Final = r"(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)"
_HABITS: Final = re.compile(
    rf"\b(?:jede[nsmr]? (?:{_DAY}|\w+)|{_DAY}s|täglich|wöchentlich|monatlich|immer|meistens|oft"
    r"|regelmäßig|ständig|morgens|abends|nachts|am wochenende|seit (?:\d{4}|\w+ jahren|jahren)"
    r"|\w+mal (?:pro|die|in der|im) \w+)\b",
    re.IGNORECASE,
)
_IRREGULAR: Final = {
    "bin": "sein",
    "ist": "sein",
    "sind": "sein",
    "habe": "hab",
    "hat": "hab",
    "haben": "hab",
    "mag": "mög",
    "mögen": "mög",
    "kann": "könn",
    "können": "könn",
    "isst": "ess",
    "esse": "ess",
    "essen": "ess",
    "fährt": "fahr",
    "spricht": "sprech",
    "liest": "les",
    "schläft": "schlaf",
    "läuft": "lauf",
    "trägt": "trag",
    "nimmt": "nehm",
    "sieht": "seh",
    "darf": "dürf",
    "muss": "müss",
}


def _stem(word: str) -> str:
    """Without the ending that only agrees with the subject; crude, the same for both sides."""
    known = _IRREGULAR.get(word)
    if known is not None:
        return known
    for ending in ("est", "et", "en", "st", "e", "t", "n"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_OPPOSITES: Final = {
    "liking": ("mag mögen liebe liebt", "hasse hasst verabscheue verabscheut"),
    "open": ("geöffnet offen auf", "geschlossen zu"),
    "on": ("an eingeschaltet", "aus ausgeschaltet"),
    "enabled": ("aktiviert aktiv", "deaktiviert inaktiv"),
    "allowed": ("erlaubt gestattet", "verboten untersagt"),
    "marital": ("ledig single", "verheiratet", "geschieden", "verwitwet", "verlobt"),
    "public": ("öffentlich", "privat"),
    "available": ("verfügbar", "vergriffen"),
    "required": ("erforderlich", "optional"),
    "alive": ("lebendig", "tot"),
    "healthy": ("gesund", "krank"),
    "full": ("voll", "leer"),
    "handed": ("rechtshänder rechtshänderin", "linkshänder linkshänderin"),
    "employed": ("berufstätig", "arbeitslos", "pensioniert"),
    "legal": ("legal", "illegal"),
}


def _endings(sense: Sense) -> tuple[Claim, ...]:
    if sense.denies:
        return ()
    words = sense.words
    for place in range(1, len(words)):
        subject, rest = words[:place], words[place + 1 :]
        if words[place] == _stem("kündigte"):
            at = rest[1:] if rest[:1] == ("bei",) else ()
            return (Claim("employer", subject, at, holds=False),)
        if words[place] == _stem("hörte-auf") and rest:
            # The verb, last in an infinitive, comes second in a statement.
            ended = (*subject, _stem(rest[-1]), *rest[:-1])
            return (Claim(SAYS, ended, holds=False, qualifiers=sense.qualifiers),)
    return ()


def _expanded(text: str) -> str:
    return rewritten(text, _WORDINGS)


_MEAT: Final[Words] = tuple(
    "fleisch rindfleisch schweinefleisch hähnchen steak schinken speck wurst fisch lachs".split()
)
_ANIMAL: Final = (*_MEAT, "käse", "eier", "butter", "honig")

GRAMMAR: Final = Grammar(
    expand=_expanded,
    stem=_stem,
    habits=_HABITS,
    speaker=folded("ich mich mir"),
    speakers=folded("mein meine meinen meinem meiner meines"),
    we=folded("wir unser unsere"),
    articles=folded("der die das"),
    unclear_subjects=folded(
        "er sie es wir ihr man dies diese dieser dieses jener jene ein eine einer ich mein meine"
        " sein seine ihre unser unsere euer eure dein deine du einige manche viele wenige mehrere"
        " jeder jede jedes alle jemand niemand nichts keiner keine kein wenn falls als während weil"
        " obwohl bevor nachdem seit bis hier dort da wer was"
    ),
    unclear=folded(
        "er es du dich dir dein deine ihm ihn ihnen diese dieser dieses dort hier damit"
    ),
    doubtful=folded(
        "vielleicht wahrscheinlich möglicherweise eventuell vermutlich angeblich wohl würde würden"
        " könnte könnten sollte sollten möchte möchten hätte hätten wäre wären wenn falls ob bis"
        " manchmal gelegentlich selten war waren hatte hatten wurde wurden früher damals gestern"
        " heute morgen bald will wollen werde wird werden"
    ),
    past=re.compile(r"\bhab\b.* (?:ge\w+|\w+ier)$"),
    negations=folded("nicht kein keine keinen keinem keiner keines nie niemals"),
    no_negation=folded(
        "nur bloß immer unbedingt alle jeder jede jedes jeden so sehr besonders ganz wirklich"
        " allzu viel oft einmal wunder zweifel weil"
    ),
    in_denials=folded("mehr"),
    helpers=frozenset(),
    light=folded(
        "ein eine einen einem einer eines der die das den dem des auch schon noch eigentlich"
        " wirklich tatsächlich bereits endlich"
    ),
    news=folded("jetzt nun inzwischen mittlerweile wieder neuerdings derzeit aktuell momentan"),
    more=folded("auch zudem außerdem nebenbei zusätzlich"),
    synonyms=(
        (("leb", "in"), ("wohn", "in")),
        (("arbeit", "für"), ("arbeit", "bei")),
        (("lieb",), ("mög",)),
    ),
    relations=(
        Relation("residence", ("wohn", "in")),
        Relation("residence", (_stem("zog-nach"),), tells=True),
        Relation("employer", ("arbeit", "bei")),
        Relation("occupation", ("arbeit", "als")),
        Relation("spouse", ("sein", _stem("verheiratet-mit"))),
    ),
    copula="sein",
    several=folded("sind wohnen leben arbeiten"),
    indefinite=folded("ein eine einen einem einer"),
    before_nouns=frozenset(),
    open_ends=folded(
        "das es so ist bin sind hat habe kann mag weiß will liebe liebt brauche braucht verstehe"
        " versteht glaube glaubt denke denkt sicher bereit fertig allein gern gerne"
    ),
    favourite=re.compile(r"lieblings\w+"),
    attributes=folded(
        "geburtstag budget preis port zeitlimit limit version alter größe gewicht gehalt miete"
        " frist abgabefrist abgabetermin nummer telefonnummer adresse passwort gebühr"
    ),
    of=folded("für von in an auf zu des der vom im am"),
    opposites=opposites(_OPPOSITES, _stem),
    states=frozenset(_OPPOSITES) - {"liking"},
    diets={
        "vegetarier": _MEAT,
        "vegetarierin": _MEAT,
        _stem("vegetarisch"): _MEAT,
        "veganer": _ANIMAL,
        "veganerin": _ANIMAL,
        _stem("vegan"): _ANIMAL,
    },
    eat="ess",
    stops=folded("mit und oder aber weil seit wo als für"),
    narrows=folded("in im während am an auf zu"),
    tails=folded("bevor nachdem weil"),
    elsewhen=folded("bevor nachdem als zurück und oder dann vorübergehend"),
    spans=folded("tag tage woche wochen monat monate jahr jahre semester"),
    last=folded("letztes letzte letzten dieses"),
    vague=folded("von alles etwas irgendwas was wie"),
    restricts=folded("außer nur wenn falls bis aber doch obwohl vielleicht"),
    breaks=folded("und aber sondern oder weil denn obwohl während"),
    endings=_endings,
)
