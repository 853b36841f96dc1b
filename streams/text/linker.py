"""The inline entity linker: which names of a text may be entities. No model, no I/O.

No entity is made of words that point at someone or something and name nobody: a closed list, of
pronouns, demonstratives and question words that begin sentences in languages that the pipeline
meets, and of the possessives before a common noun. Words that are names too (Will, May, Mark,
Hope) are not in it. In capitals a short word is an acronym: IT, US, WHO.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType

from palimpsest.schemas.normal_forms import canonical_name

_WORDS = {
    "english": """i me my mine myself we us our ours ourselves you your yours yourself he him his
        himself she her hers herself it its itself they them their theirs themselves this that these
        those here there who whom whose what which someone somebody something anyone anybody
        anything everyone everybody everything nobody nothing one ones another other others both
        today tomorrow yesterday now then the a an i'm i've i'd i'll we're we've we'll you're it's
        that's he's she's they're""",
    "german": """ich mich mir wir uns unser unsere du dich dir euch er ihn ihm sie ihr ihnen es mein
        meine dein deine sein seine dies diese dieser dieses jener jene jemand niemand etwas nichts
        alle alles wer wen wem was der die das ein eine einer hier dort heute morgen gestern""",
    "french": """je moi tu toi il elle nous vous ils elles lui eux leur on mon ton ma ta mes tes ce
        cet cette ces cela ça ceci quelqu'un personne quelque rien tout tous qui quoi le les un une
        ici là aujourd'hui demain hier""",
    "spanish": """yo mí tú usted ustedes él ella nosotros nosotras vosotros ellos ellas mi mis tu
        tus su sus nuestro nuestra este esta esto ese esa eso estos estas alguien nadie algo nada
        todo todos quien quién qué el los las uno una aquí allí hoy mañana ayer""",
    "italian": """io noi voi lui lei loro esso essa mio mia tuo tua suo sua nostro nostra questo
        questa quello quella qualcuno nessuno qualcosa niente tutto tutti chi lo gli qui oggi domani
        ieri""",
    "portuguese": """eu você vocês ele ela nós eles elas meu minha seu sua nosso nossa isto isso
        aquilo alguém ninguém algo tudo quem hoje amanhã ontem""",
    "dutch": """ik wij jij je jullie hij zij ze hem haar hen hun mijn jouw zijn onze deze dit dat
        iemand niemand iets niets alles wie wat het een vandaag morgen gisteren""",
    "russian": """я меня мне мы нас нам ты тебя тебе вы вас вам он его ему она её ей оно они их им
        мой моя моё мои твой твоя наш наша ваш ваша это этот эта эти тот та те кто что кто-то что-то
        никто ничто все всё здесь там сегодня завтра вчера""",
    "japanese": """私 わたし 僕 ぼく 俺 おれ 私たち 僕たち 我々 あなた 君 彼 彼女 彼ら それ これ
        あれ そこ ここ あそこ 誰 何 誰か 何か みんな 皆 自分 今日 明日 昨日""",
    "chinese": """我 我们 我們 你 您 你们 你們 他 她 它 他们 他們 她们 她們 它们 咱们 自己 这 這
        那 这个 那个 这里 那里 谁 誰 什么 什麼 大家 某人 今天 明天 昨天""",
    "korean": """나 저 우리 저희 너 당신 그 그녀 그들 이것 그것 저것 여기 거기 저기 누구 무엇 누군가
        모두 오늘 내일 어제""",
    "arabic": """أنا نحن أنت أنتم أنتِ هو هي هم هن هما هذا هذه ذلك تلك هؤلاء هنا هناك من ما ماذا
        اليوم غدا أمس""",
    "hebrew": "אני אנחנו אתה את אתם אתן הוא היא הם הן זה זאת זו אלה כאן שם מי מה היום מחר אתמול",
    "hindi": "मैं हम तू तुम आप वह वे यह ये मेरा मेरी मेरे हमारा हमारी उसका उसकी कौन क्या कोई कुछ आज कल",
}
VAGUE = frozenset(word for words in _WORDS.values() for word in words.split())

_POSSESSIVES = frozenset(
    """my our your his her its their
    mein meine meinen meinem meiner dein deine unser unsere unseren
    mon ma mes ton ta tes notre nos votre vos mi mis tu tus nuestro nuestra
    mio mia tuo tua nostro nostra meu minha nosso nossa mijn jouw onze ons
    мой моя моё мои наш наша наше наши твой твоя मेरा मेरी मेरे हमारा हमारी हमारे""".split()
)
_NOUNS_WITH_CAPITALS = frozenset(
    "mein meine meinen meinem meiner dein deine unser unsere unseren".split()
)
"""After these a capital says nothing."""
_ACRONYMS = frozenset("it us who eu ma la es mi das am su".split())
"""Words of the list that are somebody's name when they are written in capitals."""
_ATTACHED = ("私の", "僕の", "俺の", "彼の", "彼女の", "我的", "我们的", "他的", "她的", "你的")


def is_vague(shown: str, canonical: str) -> bool:
    """Whether what was given for a name points at someone instead: a word of the list, or a
    possessive before common nouns ("my friend", not "My Fair Lady" or "my friend Bob")."""
    if canonical in VAGUE:
        return not (shown.isupper() and canonical in _ACRONYMS)
    if canonical.startswith(_ATTACHED):
        return True
    first, *rest = shown.split()
    if not rest or first.lower() not in _POSSESSIVES:
        return False
    if first.lower() in _NOUNS_WITH_CAPITALS:
        return len(rest) == 1
    return not any(word[0].isupper() or word[0].isdigit() for word in rest)


MAX_NAMES = 64
MAX_WORDS = 5

# A word looks like a name when it has a capital or a digit. One expression for both would look
# through the rest of a word again from each of its characters.
_WORD = re.compile(r"[\w'’-]+")
_NAME_CHARACTER = re.compile(r"[^\W_a-z]")
_VERSION = re.compile(r"(?:\.\d+)+")
_QUOTED = re.compile(r"[\"“«「『]([^\"”»」』]{2,60})[\"”»」』]")
_POSSESSIVE = ("'s", "’s")

MIN_NAME_CHARACTERS = 2
MAX_NAME_CHARACTERS = 200

# Scripts without capitals, by whether their words stand apart. Bounds are inclusive.
_SPACED = (
    *((0x0590, 0x08FF), (0x0900, 0x0DFF)),  # Hebrew, Arabic, Syriac, Thaana; those of India
    *((0x10D0, 0x10FF), (0x1200, 0x139F)),  # Georgian, Ethiopic
)
_HANGUL = "\uac00-\ud7af"
_UNSPACED = (
    *((0x0E00, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Tibetan, Burmese, Khmer
    *((0x3005, 0x3007), (0x3041, 0x30FF), (0x31F0, 0x31FF)),  # kana
)
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"
_IN_WORDS = "\u05f3\u05f4"  # geresh and gershayim


def _letters(*ranges: tuple[int, int]) -> str:
    """The letters, marks and digits of these ranges, without their punctuation."""
    points = (chr(point) for low, high in ranges for point in range(low, high + 1))
    return "".join(c for c in points if unicodedata.category(c)[0] in "LMN")


_OF_WORDS = _letters(*_SPACED) + _HANGUL + _IN_WORDS
_NO_LETTER = re.compile(f"[^{_OF_WORDS}{_letters(*_UNSPACED)}{_HAN}]+")
_SPACED_LETTER = re.compile(f"[{_OF_WORDS}]")
MAX_PREFIX = 5
"""Letters that `_PREFIXED` matches at most."""
MAX_PARTICLES = 8
"""Letters that `_PARTICLES` matches at most."""
_SPACED_TAIL = re.compile(f"[{_OF_WORDS}]{{0,{MAX_PARTICLES + 1}}}")

# What is written together with the word after it: and, in, to, like, the; in Hebrew from, that.
_PREFIXED = re.compile("(?:[وف]?[بلك]?(?:ال)?|و?لل|[וש]?(?:כש|ש)?[בלמכ]?ה?)")
MIN_PREFIXED_CHARACTERS = 5
"""Shorter names stand inside other words and names too often: Liam in the Arabic William."""
_PARTICLES = re.compile(
    "(?:이|씨|님)?(?:들)?(?:은|는|이|가|을|를|의|에|에서|에게|에게서|한테|한테서|께|께서|와|과|랑|이랑|하고|"
    "도|만|까지|부터|로|으로|처럼|보다|마다|조차|밖에|야|아|이야|예요|이에요|입니다|이다|라고|이라고)?"
    "(?:은|는|도|만|의)?"
)


@lru_cache(maxsize=1024)
def candidate_names(text: str) -> Mapping[str, str]:
    """Canonical name to how it stands in the text, for every run of capitalised words (and every
    part of such a run), every word with a digit or inner capital, and every quoted name.

    At most MAX_NAMES, in text order.
    """
    found: dict[str, str] = {}
    for match in _QUOTED.finditer(text):
        _note(found, match.group(1))
    seen: set[str] = set()
    run: list[str] = []
    last_end = -1
    for start, end in _name_like_words(text):
        if run and not text[last_end:start].isspace():
            _note_run(found, seen, run)
            run = []
        run.append(text[start:end])
        last_end = end
    _note_run(found, seen, run)
    return MappingProxyType(dict(islice(found.items(), MAX_NAMES)))


def _name_like_words(text: str) -> Iterator[tuple[int, int]]:
    """Where the words begin and end that look like names, with the figures of a version."""
    place = 0
    while (word := _WORD.search(text, place)) is not None:
        start, end = word.span()
        place = end
        if end - start > MAX_NAME_CHARACTERS or not _NAME_CHARACTER.search(text, start, end):
            continue
        if not (text[start].isupper() or any(c.isdigit() or c.isupper() for c in word.group())):
            continue
        version = _VERSION.match(text, end)
        place = end if version is None else version.end()
        yield start, place


@lru_cache(maxsize=1024)
def unspaced_part(text: str) -> str:
    """The part of a text in scripts without capitals, in which known names are looked for as they
    are; empty for others."""
    if text.isascii():
        return ""
    return _NO_LETTER.sub(" ", unicodedata.normalize("NFKC", text)).strip().lower()


def names_in(text: str, name: str) -> str | None:
    """How `name` (canonical) stands in the text by the linker's rules; None where it does not."""
    shown = candidate_names(text).get(name)
    if shown is None and not name.isascii() and stands_in(name, unspaced_part(text)):
        return name
    return shown


def stands_in(name: str, unspaced: str) -> bool:
    """Whether a name stands in a text's `unspaced_part`: of scripts without word spaces anywhere,
    of the others as words, but for what these write together with a word."""
    start = unspaced.find(name)
    while start >= 0:
        if _begins(name, unspaced, start) and _ends(name, unspaced, start + len(name)):
            return True
        start = unspaced.find(name, start + 1)
    return False


def name_fault(shown: str) -> str | None:
    """Why a given name can be no entity's; None where it can."""
    name = canonical_name(shown)
    if len(name) < MIN_NAME_CHARACTERS:
        return "is too short"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"is longer than {MAX_NAME_CHARACTERS} characters"
    if not any(c.isalnum() for c in name):
        return "has no letter or digit"
    return "names nobody" if is_vague(shown.strip(), name) else None


def _begins(name: str, text: str, start: int) -> bool:
    if not _SPACED_LETTER.match(name):
        return True
    word = start
    while word and start - word <= MAX_PREFIX and _SPACED_LETTER.match(text, word - 1):
        word -= 1
    if word == start:
        return True
    prefixed = _PREFIXED.fullmatch(text, word, start) is not None
    return prefixed and len(name) >= MIN_PREFIXED_CHARACTERS


def _ends(name: str, text: str, end: int) -> bool:
    if not _SPACED_LETTER.match(name[-1]):
        return True
    tail = _SPACED_TAIL.match(text, end)
    return tail is None or _PARTICLES.fullmatch(tail.group()) is not None


def _note_run(found: dict[str, str], seen: set[str], run: list[str]) -> None:
    for start in range(len(run)):
        if len(found) >= MAX_NAMES:
            return
        shown = ""
        for word in run[start : start + MAX_WORDS]:
            shown = f"{shown} {word}" if shown else word
            if len(shown) >= MIN_NAME_CHARACTERS and shown not in seen:
                seen.add(shown)
                _note(found, shown)


def _note(found: dict[str, str], shown: str) -> None:
    for form in (shown, shown[:-2]) if shown.endswith(_POSSESSIVE) else (shown,):
        name = canonical_name(form)
        if not is_vague(form, name):
            found.setdefault(name, form)
