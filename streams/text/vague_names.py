"""Words that point at someone or something and name nobody: no entity is made of them.

A closed list, of pronouns, demonstratives and question words that begin sentences in languages
that the pipeline meets, and of the possessives before a common noun. Words that are names too
(Will, May, Mark, Hope) are not in it. In capitals a short word is an acronym: IT, US, WHO.
"""

from __future__ import annotations

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
