"""The analyzer: which terms a text is indexed under, and which terms a query searches for.

One analysis serves both sides, so whatever is written can be found the way it was written:

* compatibility-normalized (NFKC), lower-cased by case folding, accents removed (`Café` = `cafe`);
* a word gives its Snowball stem and, where it differs, the word itself (`running`: `run`,
  `running`);
* an identifier or number with inner marks gives the whole and its parts (`ERR-4711`:
  `err-4711`, `err`, `4711`; `getUserName`: `getusername`, `get`, `user`, `name`);
* scripts written without spaces give single characters and pairs (`数据库`: `数`, `据`, `库`,
  `数据`, `据库`).

The language is the name of a Snowball algorithm, an ISO 639-1 code of one, or `none`. A word in
another script than the language's is stemmed by the language most likely for that script, so
Cyrillic in an English scope still matches its inflections.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from sys import intern
from typing import NamedTuple

import Stemmer

MAX_TERM_LENGTH = 64
"""Characters. Longer runs (encoded blobs) are no words: no one types them to search."""

_CODES = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german",
    "el": "greek", "en": "english", "es": "spanish", "et": "estonian", "eu": "basque",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish",
}  # fmt: skip

# Per script: first and last code point, the languages written in it, the one assumed for others.
_SCRIPTS = (
    (0x0370, 0x03FF, ("greek",), "greek"),
    (0x0400, 0x052F, ("russian", "serbian"), "russian"),
    (0x0530, 0x058F, ("armenian",), "armenian"),
    (0x0600, 0x06FF, ("arabic", "persian"), "arabic"),
    (0x0900, 0x097F, ("hindi", "nepali"), "hindi"),
    (0x0B80, 0x0BFF, ("tamil",), "tamil"),
)
# Serbian is written in Latin letters too, and its stemmer knows both.
_OTHER_SCRIPTS = frozenset(
    name for _, _, names, _ in _SCRIPTS for name in names if name != "serbian"
)


# Function words, after case folding and accent removal. They are indexed; only queries drop them.
_LISTED = {
    "english": """
        a about above after again against all am an and any are as at be because been
        before being below between both but by can cannot could d did do does doing don
        down during each few for from further had has have having he her here hers herself
        him himself his how i if in into is isn it its itself just let ll m me more most
        my myself no nor not now of off on once only or other our ours ourselves out over
        own re s same she should so some such t than that the their theirs them themselves
        then there these they this those through to too under until up ve very was we were
        what when where which while who whom why will with would you your yours yourself
        yourselves aren couldn didn doesn hadn hasn haven shouldn wasn weren wouldn
    """,
    "german": """
        aber alle allem allen aller alles als also am an auch auf aus bei bin bis bist da
        damit dann das dass dem den der des die dies diese diesem diesen dieser dieses
        doch du durch ein eine einem einen einer eines er es etwas euch euer fur hab habe
        haben hat hatte hatten hier ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ist
        ja jede jeder jetzt kann kein keine konnen man mein meine mich mir mit nach nicht
        noch nun nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind so
        soll uber um und uns unser unter vom von vor wann war waren warum was weil welche
        welchem welchen welcher welches wem wen wenn wer werde werden wie wieder will wir
        wird wo wurde wurden zu zum zur
    """,
    "french": """
        a ai as au aux avait avec avez avons c ce ces cet cette comme comment d dans de
        des donc du elle elles en est et etait ete etes eu eux il ils j je l la le les
        leur leurs lui m ma mais me meme mes mon n ne nos notre nous on ont ou par pas
        plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se
        ses si son sont sur t ta te tes toi ton tu un une vos votre vous y
    """,
    "spanish": """
        a al algo ante antes aqui como con cual cuales cuando cuanto de del desde donde e
        el ella ellas ellos en entre era es esa esas ese eso esos esta estan estas este
        esto estos fue ha han hasta hay la las le les lo los mas me mi mis muy ni no nos
        nosotros o os otra otro para pero por porque que quien quienes se ser si sin sobre
        son su sus tambien te tiene tu tus un una uno unos y ya yo
    """,
    "italian": """
        a ad ai al alla alle anche c che chi ci come con cosa cui d da dal dalla dei del
        della delle di dove e ed era gli ha hai hanno ho i il in io l la le lei lo loro
        lui ma mi mia mio nei nel nella noi non o per perche piu qual quale quali quando
        quanto quello questa questo se si sono su sua sul sulla suo ti tra tu tuo un una
        uno vi voi
    """,
    "portuguese": """
        a ao aos as com como da das de dela dele do dos e ela elas ele eles em entre era
        essa esse esta este eu foi ha isso isto ja la lhe mais mas me meu minha na nao nas
        nem no nos nossa nosso num o onde os ou para pela pelo por porque qual quais
        quando que quem sao se sem ser seu sua so tambem te tem um uma voce
    """,
    "dutch": """
        aan al als bij dan dat de der deze die dit doen door dus een en er had heb heeft
        hem het hier hij hoe hun ik in is ja je kan maar me met mij mijn na naar niet nog
        nu of om omdat onder ons ook op over te tot u uit uw van veel voor waar waarom
        wanneer want was wat we wel welke werd wie wij wil worden zal ze zich zij zijn zo
    """,
    "russian": """
        а без бы был была были было быть в вам вас во вот все всех вы где да для до его ее
        если есть еще же за зачем здесь и из или им их к как какая какие какой когда кого
        кто ли мне мной мои мой моя мы на над нам нас не него нее нет ни них но ну о об он
        она они оно от по под почему при с сам свои свой себя со так такой там тебя то
        тоже только том ты у уже чего чей чем что чтобы эта эти это этот я
    """,
}
STOP_WORDS = {language: frozenset(words.split()) for language, words in _LISTED.items()}

# Letters' marks are not `\w` in Python, which would cut Hindi or Tamil words at every vowel sign.
_MARKS = "".join(
    chr(point)
    for point in range(0x0300, 0x1CFF)
    if unicodedata.category(chr(point)) in ("Mn", "Mc")
)
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_LETTER = rf"(?:(?![{_UNSPACED}])[\w{_MARKS}])"
_LINK = r"[-_./:@+,'’]"
_WORD = re.compile(rf"[{_UNSPACED}]+|{_LETTER}+(?:{_LINK}{_LETTER}+)*(?:\+\+|#(?!\w))?")
_ASCII_WORD = re.compile(rf"\w+(?:{_LINK}\w+)*(?:\+\+|#(?!\w))?")
_CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONNECTOR = re.compile(r"[-_./:@+,'’#]+")
_IDENTIFIER_MARK = re.compile(r"[_.@+#]")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_QUESTION = re.compile(
    r"[?\u037e\u061f\u1367\u2047-\u2049\ufe56\uff1f](?!\w)|\u055e|[\u0370-\u03ff];"
)
"""A question mark of any script, but not within a web address; in Greek it looks like `;`, in
Armenian it stands within the word."""
_ASCII_QUESTION = re.compile(r"\?(?!\w)")
_SENTENCE = re.compile(r"[^.!?…。\n\u037e\u061f\uff01\uff1f]++[^\w\s]*+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_LETTERS_THEN_DIGITS = re.compile(r"([^\W\d_]{2,})(\d+)")
_LATIN_MARKS = dict.fromkeys([*range(0x0300, 0x0370), *range(0x064B, 0x0653)])


class _Stemmers(threading.local):
    """By language: a stemmer may not be shared between threads."""

    def __init__(self) -> None:
        self.of = cache(Stemmer.Stemmer)


_STEMMERS = _Stemmers()


def asks(text: str) -> bool:
    """Whether a text holds a question, by its mark."""
    # Most texts are ASCII, where one mark is looked for thirty times as fast.
    return (_ASCII_QUESTION if text.isascii() else _QUESTION).search(text) is not None


def only_asks(text: str) -> bool:
    """Whether a text is nothing but questions, by their marks."""
    if not asks(text):
        return False
    sentences = (match[0] for match in _SENTENCE.finditer(text))
    return all(asks(sentence) for sentence in sentences if _LETTER_OR_DIGIT.search(sentence))


def tokens(text: str, language: str = "english") -> list[str]:
    """The terms of a text in reading order, repeated as often as they occur.

    Raises ValueError for a language that is neither a Snowball algorithm nor an ISO code of one.
    """
    return [term for word in _analysed(text, language) for term in word.indexed]


def query_tokens(text: str, language: str = "english") -> list[str]:
    """The distinct terms that a query searches for, in reading order.

    Stems only (whatever is indexed has its stem indexed), without the function words of the
    language as long as another word remains. Raises ValueError as `tokens` does.
    """
    words = _analysed(text, language)
    terms = dict.fromkeys(term for word in words if not word.is_stop for term in word.query_terms)
    if not terms:
        terms = dict.fromkeys(term for word in words for term in word.query_terms)
    return list(terms)


@lru_cache(maxsize=256)
def algorithm(language: str) -> str:
    """The Snowball algorithm of a language name or ISO 639-1 code, or `none`."""
    name = language.strip().lower()
    name = _CODES.get(name, name)
    if name != "none" and name not in Stemmer.algorithms():
        raise ValueError(
            f"no stemmer for language {language!r}; known: none, {', '.join(Stemmer.algorithms())}"
        )
    return name


class _Word(NamedTuple):
    """Terms to index, distinct terms to search for, and whether it is all function words."""

    indexed: tuple[str, ...]
    query_terms: tuple[str, ...]
    is_stop: bool


def _analysed(text: str, language: str) -> list[_Word]:
    name = algorithm(language)
    if text.isascii():
        words = _ASCII_WORD.findall(text)
    else:
        words = _WORD.findall(unicodedata.normalize("NFKC", text))
    # Blobs and whole sentences without spaces seldom come twice: they would only fill the cache.
    return [
        _analyse(word, name) if len(word) <= MAX_TERM_LENGTH else _analyse.__wrapped__(word, name)
        for word in words
    ]


@lru_cache(maxsize=1 << 17)
def _analyse(word: str, language: str) -> _Word:
    if _UNSPACED_RUN.match(word):
        pairs = (*word, *map("".join, pairwise(word)))
        return _Word(pairs, tuple(dict.fromkeys(pairs)), False)
    whole = _whole(word)
    indexed = [whole] if whole else []
    searched = list(indexed)
    is_stop = not whole
    for part in _parts(word):
        used = _language_of(part, language)
        is_bare = used == "none" or part.isdecimal()
        stem = part if is_bare else _STEMMERS.of(used).stemWord(part) or part
        indexed.extend((stem,) if stem == part else (stem, part))
        searched.append(stem)
        is_stop = is_stop and part in STOP_WORDS.get(used, frozenset())
    return _Word(tuple(map(intern, indexed)), tuple(dict.fromkeys(searched)), is_stop)


def _whole(word: str) -> str | None:
    """An identifier or number with inner marks as one term; None where the parts say it all."""
    folded = _fold(word).strip("_")
    if len(folded) > MAX_TERM_LENGTH:
        return None
    if _THOUSANDS.fullmatch(folded):
        return folded.replace(",", "")
    if folded.isalnum():
        mixed = _LETTERS_THEN_DIGITS.fullmatch(folded) or _CASE_CHANGE.search(word)
        return folded if mixed else None
    if "'" in folded or "’" in folded or "," in folded:
        return None
    if _IDENTIFIER_MARK.search(folded) or any(map(str.isdigit, folded)):
        return folded
    return folded.replace("-", "") if "-" in folded and "/" not in folded else None


def _parts(word: str) -> list[str]:
    """The words inside a word, folded: `Anna's`: anna; `v0.58.1`: v0, 58, 1; `sha256`: sha, 256."""
    if _THOUSANDS.fullmatch(word):
        return []
    parts: list[str] = []
    pieces = _CONNECTOR.split(word)
    for number, piece in enumerate(pieces):
        # A possessive or contracted s says nothing in any of the languages here.
        if number and piece in ("s", "S") and ("'" in word or "’" in word):
            continue
        for chunk in _CASE_CHANGE.split(piece):
            folded = _fold(chunk)
            mixed = _LETTERS_THEN_DIGITS.fullmatch(folded)
            parts.extend(mixed.groups() if mixed else (folded,))
    return [
        # A number without leading zeros, so that 2023-05-08 holds the 8 of `8 May 2023`.
        part.lstrip("0") or "0" if part.isdecimal() else part
        for part in parts
        if 0 < len(part) <= MAX_TERM_LENGTH
    ]


def _fold(word: str) -> str:
    folded = word.casefold()
    if folded.isascii():
        return folded
    if any("\u0400" <= char <= "\u052f" for char in folded):
        # In Cyrillic only ё is a spelling variant; й and ї are letters that stemmers rely on.
        return folded.replace("ё", "е")
    bare = unicodedata.normalize("NFD", folded).translate(_LATIN_MARKS)
    return unicodedata.normalize("NFC", bare)


def _language_of(word: str, language: str) -> str:
    if language == "none" or (word.isascii() and language not in _OTHER_SCRIPTS):
        return language
    point = ord(word[0])
    for first, last, languages, assumed in _SCRIPTS:
        if first <= point <= last:
            return language if language in languages else assumed
    return "english" if language in _OTHER_SCRIPTS else language
