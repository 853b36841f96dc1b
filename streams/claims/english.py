"""Whether a sentence is English, and English contractions written out. Pure.

It counts as English if its function words say so; in doubt it does not, and no claim is read in it.
Contractions are written out only where it is: German has "im", too.
"""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.verbs import FINITE

_ENGLISH_WORDS: Final = (
    "the i'm i've i'll i'd my you your and with have has had are were they she it his their this"
    " that these those from but because not don't doesn't didn't isn't can't won't which what when"
    " where every there been being if would could should than then also never always really very"
    " new last next year years week day today yesterday tomorrow ago until about after before into"
    " out some any its it's that's there's he's she's what's who's let's we're they're you're we've"
    " quotes they've you've wasn't weren't won't couldn't wouldn't shouldn't hasn't haven't"
)
# Words of English that stand in its neighbours, too, or that are no proof alone.
_WEAK_WORDS: Final = (
    "i we he her at be all to for of us our by over in is an am on a me was so do no as or up more"
    " who here now said one two three four five"
)
_FOREIGN_WORDS: Final = (
    # German
    "ich nicht und ist der das den dem ein eine einen einem einer kein keine mein meine meinen"
    " meinem meiner dein mit für auf wir habe haben sich von zu zum zur aber auch noch schon sehr"
    " seit sind wurde wird mir mich bei nach heute gestern morgen wohne arbeite mag hasse heisst"
    " heißt er sie es wenn dass daß weil oder würde"
    # Italian
    " il lo gli che di sono ho mio mia miei mie è con del della nel nella sul alla dal hanno siamo"
    " abbiamo anche molto più questo questa abito lavoro vivo vivono piace adoro odio grazie ieri"
    " oggi domani ai dei delle ed io lui lei noi loro fratello sorella forse"
    # Spanish
    " el los las que yo tengo muy mi mis soy estoy trabajo gusta tiene para por sin pero también"
    " porque cuando nos sus al una uno hermano hermana ayer hoy mañana desde hace vive años somos"
    " quizás"
    # French
    " je suis les et mes du dans avec nous une au aux ne qui c'est il elle ils chez depuis"
    " travaille habite très où ses leur nos notre hier demain aujourd'hui mon fils"
    # Portuguese
    " eu não meu minha meus minhas moro um uma em da dos das sou estou gosto trabalho mas muito"
    " irmã irmão ontem hoje amanhã você foi talvez"
    # Dutch
    " ik het een mijn niet ook woon zijn werk naar bij maar heb hebben wij jij hij zij dit deze"
    " geen heel omdat sinds elke zus broer gisteren vandaag vind misschien"
    # Scandinavian
    " och jag är inte det som för har jeg og ikke er på"
)
_STRONG: Final = frozenset(_ENGLISH_WORDS.split())
_WEAK: Final = frozenset(_WEAK_WORDS.split())
_FOREIGN: Final = frozenset(_FOREIGN_WORDS.split()) - _STRONG - _WEAK
_PROOF: Final = _STRONG | (FINITE - _WEAK - _FOREIGN)
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ELISION: Final = re.compile(r"\b(?:[jlcdnmst]|qu)'[^\W\d_]{2,}")
_LATIN_ENDS: Final = "\u024f"
"""The last character of the Latin blocks: what comes after it is another script."""


def is_english(text: str) -> bool:
    """Whether the function words of `text` (one sentence, apostrophes straight) are English.

    A capital inside the sentence is a name's ("La Paz"), and proves nothing.
    """
    if _another_script(text):
        return False
    words = _WORD.findall(text.lower())
    if _FOREIGN.isdisjoint(words) and not (
        "'" in text and _ELISION.search(text.lower()) is not None
    ):
        # Most sentences: nothing speaks against.
        if not _PROOF.isdisjoint(words):
            return True
        weak: int = sum(word in _WEAK or word.endswith("'s") for word in words)
        return weak > 0
    return _outweighs(text)


def _outweighs(text: str) -> bool:
    """Whether more words of `text` speak for English than for another language."""
    strong = weak = foreign = 0
    for number, word in enumerate(_WORD.findall(text)):
        known = word.lower()
        if known in _PROOF:
            strong += 1
        elif known in _WEAK or known.endswith("'s"):
            weak += 1
        elif number and word[0].isupper():
            continue
        elif known in _FOREIGN or (_ELISION.fullmatch(known) and known not in ("c'mon", "s'more")):
            foreign += 1
    return strong > foreign if foreign else strong > 0 or weak > 0


def _another_script(text: str) -> bool:
    if text.isascii():
        return False
    alphabetic = [character for character in text if character.isalpha()]
    return sum(character > _LATIN_ENDS for character in alphabetic) * 3 > len(alphabetic)


_BARE: Final = {
    **{"im": "I am", "ive": "I have", "cant": "can not", "wont": "will not", "thats": "that is"},
    **{"youre": "you are", "theyre": "they are"},
    **{
        f"{verb}nt": f"{verb} not"
        for verb in "do does did is are was have has had could would should".split()
    },
}
_BARE_WORD: Final = re.compile(
    rf"(?<![\w.'@/-])(?:{'|'.join(_BARE)})(?![\w.'@/-])", re.IGNORECASE | re.ASCII
)
_WRITTEN: Final = (
    (re.compile(r"\b([Cc]a)n't\b|\b([Cc]a)nnot\b"), lambda m: f"{m[1] or m[2]}n not"),
    (re.compile(r"\b([Ww])on't\b"), lambda m: f"{m[1]}ill not"),
    (re.compile(r"n't\b"), lambda m: " not"),
    (re.compile(r"'m\b"), lambda m: " am"),
    (re.compile(r"'re\b"), lambda m: " are"),
    (re.compile(r"'ve\b"), lambda m: " have"),
    (re.compile(r"'ll\b"), lambda m: " will"),
    (re.compile(r"'d\b"), lambda m: " would"),
    (
        re.compile(r"\b([Hh]e|[Ss]he|[Ii]t|[Tt]hat|[Ww]ho|[Tt]here|[Hh]ere|[Ww]hat)'s\b"),
        lambda m: f"{m[1]} is",
    ),
    (
        re.compile(
            r"(?<!aster)(?<!achelor)'s (?=(?:not|an?|\w+ing|allergic|called|named|married|from|in"
            r"|also|now|a)\b)"
        ),
        lambda m: " is ",
    ),
    (
        re.compile(
            r"\b([Ff]avou?rite [\w' ]{1,40}?) (?:would |got |ha(?:s|ve) )(?:have )?(?:to )?be "
        ),
        lambda m: f"{m[1]} is ",
    ),
    (re.compile(r"\bgonna\b"), lambda m: "going to"),
    (re.compile(r"\bI (?:really )?can not stand (?!up\b|in\b|on\b)"), lambda m: "I hate "),
    (re.compile(r"\bI can not (?=(?:eat|drink)\b)"), lambda m: "I do not "),
    (re.compile(r"\bmoved here from\b"), lambda m: "moved from"),
    (re.compile(r"\b([Mm]y|[Oo]ur) (\w+)'s name is "), lambda m: f"{m[1]} {m[2]} is called "),
    (re.compile(r"\b(?:any ?more|any longer)\b"), lambda m: "anymore"),
)
_HINTS: Final = ("'", "gonna", " be ", " here ", "any", "cannot")
"""Without one of them nothing of `_WRITTEN` is there."""
_SMALL_I: Final = re.compile(r"(?<![\w.'-])i(?=(?:'(?:m|ve|d|ll))?(?:[ ,.!]|$))")


def expanded(text: str) -> str:
    """`text` (English, apostrophes straight) without contractions, and with "I" in capitals."""
    if not _BARE.keys().isdisjoint(text.lower().split()):
        text = _BARE_WORD.sub(lambda match: _BARE[match.group().lower()], text)
    text = _SMALL_I.sub("I", text)
    if any(map(text.__contains__, _HINTS)):
        for pattern, written in _WRITTEN:
            text = pattern.sub(written, text)
    return text
