"""Japanese, read by its endings and particles: no spaces, the predicate last. Pure.

A statement becomes its chunks of one script with the particles between them; topic, subject and
object marks are one mark, since a negation turns one into another. Of the verb its root stays.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from palimpsest.streams.statements.claims import NOTHING, SAYS, Claim, Claims, Words

_ME: Final = re.compile(r"^(?:私|僕|俺|わたし|ぼく)(?:は|が)、?")
_MINE: Final = re.compile(r"^(?:私|僕|俺|わたし|ぼく)の")
_UNPLAIN: Final = re.compile(
    r"かも|だろう|でしょう|思い?[うまっ]|たら|れば|なら|たい(?:です)?$|たく|つもり|予定|もし|と言|らしい"
    r"|そうです?$|時々|たまに|だけ|しか|とは限|問題な|か$|今日|昨日|明日|今朝|今夜|今週|来週|先週|来月|先月|来年|去年|さっき|彼|これ|それ|あれ|この|その|あの|私|僕"
)
_HABITS: Final = re.compile(r"(?:毎(?:朝|日|晩|週|月|年)|いつも|よく|週に?[\d一二三四五六七]回)、?")
_LIGHT: Final = re.compile(r"(?:もう|今は|今も|現在は?|最近は?|まだ|また|今では?)、?")
_UNNAMED: Final = re.compile(r"^(?:弟|兄|姉|妹|母|父|夫|妻|息子|娘|友達|両親|家族|上司|同僚)")

_ENDS: Final = (
    # pattern, what stays, denies; tried in order
    (r"(?:く)(?:ありません|ないです|ない)$", "い", True),
    (r"(?:では|じゃ)(?:ありません|ないです|ない)$", "", True),
    (r"(?:[てで])(?:いません|いないです|いない|ません|ない)$", "てい", True),
    (r"なくなり(?:ました)$|なくなった$", "", True),
    (r"(?<=[がはも])(?:ありません|ないです|ない)$", "あ", True),
    (r"(?:ません|ないです|ない)$", "", True),
    (r"(?:[てで])(?:います|いる|ます|る)$", "てい", False),
    (r"(?<=[がはも])(?:あります|ある)$", "あ", False),
    (r"ます$", "", False),
    (r"(?<=嫌)い(?:です|だ)?$", "", False),
    (r"(?:い)です$", "い", False),
    (r"(?:です|(?<!ん)だ)$", "", False),
    (r"る$", "", False),
)
_ENDINGS: Final = tuple((re.compile(pattern), stays, denies) for pattern, stays, denies in _ENDS)
_PAST: Final = re.compile(
    r"(?:ました|ませんでした|でした|なかった(?:です)?|った|んだ|いた|した|きた|えた)$"
)
_ROOT: Final = re.compile(
    r"(?<=[\u4e00-\u9fff々])[いきぎしじちぢにひびみりうくぐすずつぬふぶむるあかがさざたなばまらわ]$"
)
"""The last syllable of a verb in the rows that its forms change; -e is another verb (can)."""

_CHUNK: Final = re.compile(
    r"[\u4e00-\u9fff々]+|さん|くん|ちゃん|さま|たち|[\u30a0-\u30ff]+|[A-Za-z]+|\d+(?:[.,:]\d+)*|[\u3041-\u309f]+"
)
_PARTICLES: Final = {
    "は": "-",
    "が": "-",
    "を": "-",
    "も": "-",
    "には": "に",
    "では": "で",
    "とは": "と",
    "へは": "へ",
    "にも": "に",
    "でも": "で",
}

_LIVES: Final = re.compile(
    r"(?P<who>(?:.*[はが])?)(?P<what>[^はがをにで、]+)(?:に(?:住んで(?:います|いる|ます|る)|在住です)|在住です)$"
)
_MOVED: Final = re.compile(
    r"(?P<who>(?:.*[はが])?)(?:[^はがをにで、]+から)?(?P<what>[^はがをにで、]+)(?:に|へ)"
    r"(?:引っ?越し(?:ました|た)|移住しました|移住した|移りました|移った)$"
)
_WORKS: Final = re.compile(
    r"(?P<who>(?:.*[はが])?)(?P<what>[^はがをにで、]+)"
    r"(?:で働いて(?:います|いる)|に勤めて(?:います|いる)|に勤務して(?:います|いる))$"
)
_JOINED: Final = re.compile(
    r"(?P<who>(?:.*[はが])?)(?P<what>[^はがをにで、]+)に(?:転職しました|転職した)$"
)
_LEFT: Final = re.compile(
    r"(?P<who>(?:.*[はが])?)(?P<what>[^はがをにで、]+)を(?:辞め(?:ました|た)|退職しました|退職した)$"
)
_STOPPED: Final = re.compile(r"(?P<what>.+?)(?:の|こと)を(?:やめ|止め|辞め)(?:ました|た)$")
_GAVE_UP: Final = re.compile(r"(?P<what>.+?)を(?:やめ|止め|辞め)(?:ました|た)$")
_FAVOURITE: Final = re.compile(
    r"(?P<who>.*一番好きな[^はが]+)は(?P<what>[^はがを、]+?)(?:です|だ)?$"
)

_COMPLETE: Final = frozenset(
    {"-", "に", "で", "へ", "と", "から", "まで"}
    | set("泳 走 働 歩 独身 結婚 離婚 妊娠 運転 喫煙 料理 飲酒 在宅".split())
)
"""What makes a statement one by itself: a particle, or a verb that needs no object. Elsewhere
what is meant stands in another sentence."""

_USING: Final = ("吸", "飲", "食べ")
_OPPOSITES: Final = {
    word: (group, side)
    for group, sides in {
        "liking": ("好", "嫌"),
        "enabled": ("有効", "無効"),
        "open": ("開", "閉"),
        "on": ("オン", "オフ"),
        "allowed": ("許可", "禁止"),
        "good at": ("得意", "苦手"),
        "for": ("賛成", "反対"),
        "marital": ("独身", "既婚"),
        "safe": ("安全", "危険"),
        "public": ("公開", "非公開"),
        "possible": ("可能", "不可能"),
        "required": ("必須", "任意"),
    }.items()
    for side, word in zip(("yes", "no"), sides, strict=True)
}
_DIETS: Final = re.compile(
    r"^(?P<who>.*?)(?:ベジタリアン|菜食主義者?|ヴィーガン|ビーガン)(?:です|だ)?$"
)


class _Said(NamedTuple):
    chunks: Words
    denies: bool


def read(body: str, speaker: str) -> Claims:
    """The claims of a Japanese statement. `speaker`: folded, empty where none is named."""
    text = body.strip().rstrip("。!！.")
    if _UNPLAIN.search(_MINE.sub("", _ME.sub("", text))) or "、" in text.strip("、")[8:]:
        return NOTHING
    if _ME.search(text) or _MINE.search(text):
        if not speaker:
            return NOTHING
        text = _MINE.sub("", _ME.sub("", text))
    if not speaker and (_UNNAMED.search(text) or not re.search(r"[はが]", text)):
        return NOTHING
    qualifiers = frozenset(found.strip("、") for found in _HABITS.findall(text))
    text = _LIGHT.sub("", _HABITS.sub("", text))
    about = (f"@{speaker}",) if speaker else ()
    held = _standing(text, about, qualifiers)
    return Claims(held, (*held, *_news(text, about)))


def _standing(text: str, about: Words, qualifiers: frozenset[str]) -> tuple[Claim, ...]:
    found: list[Claim] = []
    for relation, pattern in (("residence", _LIVES), ("employer", _WORKS)):
        match = pattern.fullmatch(text)
        if match:
            found.append(_related(relation, match, about, False))
    favourite = _FAVOURITE.fullmatch(text)
    if favourite:
        found.append(_related("favourite", favourite, about, False))
    diet = _DIETS.search(text)
    if diet:
        who = (*about, *_chunks(diet["who"]))
        found += [
            Claim(SAYS, (*who, *_chunks(f"{food}を食べ")), holds=False) for food in ("肉", "魚")
        ]
    if _PAST.search(text):
        return tuple(found)
    said = _said(text)
    if _COMPLETE.isdisjoint(said.chunks):
        return tuple(found)
    frame = (*about, *said.chunks)
    found.append(Claim(SAYS, frame, (), not said.denies, qualifiers))
    if said.denies:
        return tuple(found)
    if frame[-1] == "独身":
        found.append(Claim(SAYS, (*frame[:-1], *_said("結婚しています").chunks), holds=False))
    for place, chunk in enumerate(frame):
        opposite = _OPPOSITES.get(chunk)
        if opposite is not None and place:
            gap = (*frame[:place], "_", *frame[place + 1 :])
            found.append(Claim(f"opposite {opposite[0]}", gap, (opposite[1],), True, qualifiers))
    return tuple(found)


def _news(text: str, about: Words) -> tuple[Claim, ...]:
    found: list[Claim] = []
    for relation, pattern in (("residence", _MOVED), ("employer", _JOINED)):
        match = pattern.fullmatch(text)
        if match:
            found.append(_related(relation, match, about, True))
    left = _LEFT.fullmatch(text)
    if left:
        where = () if left["what"] == "仕事" else (left["what"].casefold(),)
        found.append(Claim("employer", _frame(left, about), where, holds=False))
    stopped = _STOPPED.fullmatch(text)
    if stopped:
        found.append(Claim(SAYS, (*about, *_said(stopped["what"]).chunks), holds=False))
    gave_up = None if stopped else _GAVE_UP.fullmatch(text)
    if gave_up:
        what = _chunks(gave_up["what"])
        found += [Claim(SAYS, (*about, *what, "-", *_chunks(verb)), holds=False) for verb in _USING]
    return tuple(found)


def _related(relation: str, match: re.Match[str], about: Words, is_news: bool) -> Claim:
    value = (match["what"].casefold(),)
    # Who works "in Tokyo" may work for anybody: a workplace is no name by its look.
    is_name = relation != "employer"
    return Claim(relation, _frame(match, about), value, is_name=is_name, is_news=is_news)


def _frame(match: re.Match[str], about: Words) -> Words:
    return (*about, *_chunks(match["who"].rstrip("はが")))


def _said(text: str) -> _Said:
    for pattern, stays, denies in _ENDINGS:
        found = pattern.search(text)
        if found:
            root = _ROOT.sub("", text[: found.start()]) if not stays else text[: found.start()]
            chunks = _chunks(root)
            return _Said((*chunks, stays) if stays else chunks, denies)
    return _Said(_chunks(_ROOT.sub("", text)), False)


def _chunks(text: str) -> Words:
    return tuple(_PARTICLES.get(chunk, chunk) for chunk in _CHUNK.findall(text.casefold()))
