"""The slots, each with the predicates that fill it. Pure data.

A predicate is a verb, the words right after it, and what the rest must be. All of the rest counts:
what is not taken whole fills no slot.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from palimpsest.streams.claims.claim import Slot
from palimpsest.streams.claims.verbs import ANY_VERB

Kind = Literal[
    "place", "org", "employer", "job", "thing", "list", "activity", "liked", "verb", "person",
    "age", "date", "language", "illness", "animal", "owned", "nothing", "meal", "degree", "food",
    "appointment", "allergies", "game", "discipline", "lessons", "resolve", "named", "trip",
    "household", "field", "journey", "habit", "award", "counted", "title", "occasion",
    "taken", "deed", "money", "complaint", "project", "figure", "done", "brand",
    "outing", "goods", "new", "fan", "fan of", "medicine", "trade", "decade", "plain deed",
    "scheme", "post", "treatment", "goal", "kept",
]  # fmt: skip
"""What the rest of a predicate may be, see `values`."""

STATES: Final = ("present", "progressive", "perfect progressive")
PRESENT: Final = ("present",)
LASTING: Final = ("present", "perfect", "progressive", "perfect progressive")
EVENTS: Final = ("past", "perfect")
AHEAD: Final = ("progressive", "future")


class Pattern(NamedTuple):
    """`after`: the words after the verb, any of them. `value`: the value where it is not the rest.
    `denies`: what it says is that the value does not hold. `news`: it says that it came to be.
    `dated`: taken only with a time beside it."""

    slot: Slot
    verb: str
    after: tuple[str, ...]
    tenses: tuple[str, ...]
    kind: Kind
    key: str = ""
    value: str = ""
    denies: bool = False
    news: bool = False
    dated: bool = False


def _row(
    slot: Slot, verbs: str, after: str, tenses: tuple[str, ...], kind: Kind, **more: object
) -> list[Pattern]:
    return [
        Pattern(slot, verb, tuple(after.split("|")), tenses, kind, **more)  # type: ignore[arg-type]
        for verb in verbs.split("|")
    ]


_ROWS: Final = (
    # home
    _row("home", "live|reside", "in|near|on|at|outside", STATES, "place"),
    _row("home", "be", "based in", PRESENT, "place"),
    _row("home", "stay", "in|at|near|with", STATES, "place", key="stay", dated=True),
    _row("home", "rent|share", "", LASTING, "place", key="rents"),
    _row("home", "live", "with", STATES, "household", key="with"),
    _row("home", "live", "alone|on my own|by myself", PRESENT, "nothing", key="with"),
    _row("home", "move|relocate", "to|back to|into", EVENTS, "place", news=True),
    _row("home", "move", "from|out of|away from", EVENTS, "place", denies=True, news=True),
    _row("plan", "move|relocate", "to|back to", AHEAD, "place", key="move"),
    _row("event", "live", "in", ("past",), "place", key="lived in", dated=True),
    # origin
    _row("origin", "be", "from|originally from|born in|born and raised in", PRESENT, "place"),
    _row("origin", "be", "born in|born and raised in", ("past",), "place"),
    _row("origin", "come", "from|originally from", PRESENT, "place"),
    _row("origin", "grow", "up in", EVENTS, "place"),
    _row("birthday", "be", "born on", ("past",), "date"),
    _row("birthday", "be", "born", ("past",), "nothing", key="year", dated=True),
    _row("age", "be", "", PRESENT, "age"),
    _row("age", "be", "in my|in his|in her|in their", PRESENT, "decade"),
    _row("event", "turn", "", EVENTS, "age", key="turned"),
    _row("name", "be", "called|named", PRESENT, "person"),
    # work
    _row("work", "work", "at|for", STATES, "employer"),
    _row("work", "work", "on", STATES, "post"),
    _row("work", "run|manage", "", STATES, "field", key="runs"),
    _row("work", "work", "in|in the field of", STATES, "field", key="field"),
    _row("work", "work", "from home|from my home office|remotely|full-time|part-time|nights"
         "|night shifts", STATES, "nothing", key="mode"),
    _row("work", "be", "employed at|employed by|employed with", PRESENT, "employer"),
    _row("work", "start", "working at|working for|a job at|a new job at|at", EVENTS, "employer",
         news=True),
    _row("work", "get", "a job at|a new job at|hired by|hired at", EVENTS, "employer", news=True),
    _row("work", "leave|quit|lose", "my job at|his job at|her job at|their job at", EVENTS,
         "employer", denies=True, news=True),
    _row("work", "lose|quit|leave", "my job|his job|her job|their job", EVENTS, "nothing",
         denies=True, news=True),
    _row("work", "be", "unemployed|self-employed|retired|a stay-at-home mom|a stay-at-home dad"
         "|between jobs|out of work", PRESENT, "nothing", key="status"),
    _row("event", "retire", "", EVENTS, "nothing", key="retired"),
    _row("event", "retire", "from", EVENTS, "org", key="retired"),
    _row("event", "get|be", "promoted|laid off|fired", EVENTS, "nothing", key="job"),
    _row("event", "get|be", "promoted to", EVENTS, "job", key="job"),
    _row("event", "start|get", "a new job|my new job|his new job|her new job|their new job"
         "|my dream job|the job|a promotion|a raise", EVENTS, "nothing", key="job"),
    _row("event", "start|get", "a new job as|a job as|work as", EVENTS, "job", key="job"),
    _row("event", "start|open|launch", "my own|his own|her own|their own|a|an|my|our", EVENTS,
         "org", key="started", dated=True),
    _row("occupation", "be", "", PRESENT, "job"),
    _row("occupation", "work", "as", STATES, "trade"),
    _row("occupation", "become", "", EVENTS, "job", news=True),
    _row("occupation", "teach", "", STATES, "thing"),
    # relationship
    _row("relationship", "be", "married|single|divorced|engaged|widowed|separated", PRESENT,
         "nothing", key="status"),
    _row("relationship", "be", "married to|engaged to|dating|in a relationship with", PRESENT,
         "person", key="partner"),
    _row("relationship", "be", "in a relationship|in a long-distance relationship|a single mom"
         "|a single dad|a single parent|a single mother|a single father|newly married|a widow"
         "|a widower|a newlywed", PRESENT, "nothing", key="status"),
    _row("relationship", "date", "", ("progressive",), "person", key="partner"),
    _row("event", "get", "married|engaged|divorced|remarried", EVENTS, "nothing", key="marriage"),
    _row("event", "get", "married to|engaged to", EVENTS, "person", key="marriage"),
    _row("event", "marry", "", EVENTS, "person", key="marriage"),
    _row("event", "break", "up with|up", EVENTS, "person", key="breakup"),
    # family, people, pets
    _row("family", "have", "", ("present",), "person", key="*"),
    _row("family", "be", "a mother of|a father of|a parent of|a mom of|a dad of|the mother of"
         "|the father of", PRESENT, "person", key="children"),
    _row("family", "be", "an only child|a twin", PRESENT, "nothing", key="siblings"),
    _row("family", "expect|have", "a baby|our first child|twins", ("progressive",), "nothing",
         key="baby"),
    _row("family", "be", "pregnant", PRESENT, "nothing", key="baby"),
    _row("event", "have", "a baby|a baby boy|a baby girl|twins", ("past",), "nothing", key="baby"),
    _row("event", "welcome", "", EVENTS, "person", key="baby"),
    _row("event", "pass|die", "away|", EVENTS, "nothing", key="loss"),
    _row("event", "lose", "my|his|her|their|our", EVENTS, "person", key="loss"),
    _row("pet", "have|own", "", PRESENT, "animal", key="*"),
    _row("plan", "want", "|to get|to adopt|to buy", PRESENT, "animal", key="wish"),
    _row("pet", "adopt|get|buy|foster", "", EVENTS, "animal", key="*", news=True),
    _row("event", "have", "", EVENTS, "animal", key="had"),
    # health, allergy, diet
    _row("allergy", "be", "allergic to|very allergic to|severely allergic to|deathly allergic to"
         "|mildly allergic to|highly allergic to", PRESENT, "list"),
    _row("allergy", "have", "an allergy to|a severe allergy to|allergies to|a mild allergy to",
         PRESENT, "list"),
    _row("allergy", "have", "", PRESENT, "allergies"),
    _row("diet", "be", "", PRESENT, "meal", key="kind"),
    _row("diet", "be", "", ("perfect",), "meal", key="kind"),
    _row("diet", "become|go|turn", "", EVENTS, "meal", key="kind", news=True),
    _row("diet", "be|follow|eat", "|on a|on the|a|the", STATES, "meal", key="kind"),
    _row("diet", "eat|drink", "", PRESENT, "food", key="*"),
    _row("diet", "avoid", "", STATES, "food", key="*", denies=True),
    _row("diet", "stop|quit|give", "eating|drinking|up", EVENTS, "food", key="*", denies=True,
         news=True),
    _row("health", "have", "", PRESENT, "illness"),
    _row("health", "suffer|recover", "from", LASTING, "complaint"),
    _row("health", "struggle|deal", "with", LASTING, "complaint"),
    _row("health", "experience|have", "", ("progressive", "perfect progressive"), "complaint"),
    _row("health", "have|need", "", PRESENT, "treatment", key="treatment"),
    _row("health", "take", "", LASTING, "medicine", key="medicine"),
    _row("health", "be", "diagnosed with", ("past", "perfect"), "thing", news=True),
    _row("health", "get", "diagnosed with", ("past",), "thing", news=True),
    _row("health", "be", "diabetic|type 1 diabetic|type 2 diabetic|a type 1 diabetic"
         "|a type 2 diabetic|a diabetic|asthmatic|anemic|epileptic|deaf|blind|colorblind"
         "|colour-blind|color-blind|dyslexic|autistic|pregnant|hard of hearing|disabled|celiac"
         "|coeliac|visually impaired|bipolar|in a wheelchair|in recovery|sober|a cancer survivor"
         "|a recovering alcoholic|nearsighted|short-sighted|left-handed|right-handed|an insomniac",
         PRESENT, "nothing", key="condition"),
    _row("health", "wear", "glasses|contact lenses|hearing aids|a hearing aid|contacts", PRESENT,
         "nothing", key="wears"),
    _row("health", "break|sprain|fracture|tear|injure|hurt", "my|his|her|their", EVENTS, "thing",
         key="injury"),
    _row("health", "have", "to go to|to take|to get|to do|to see|to visit", PRESENT, "thing",
         key="treatment", dated=True),
    _row("health", "be", "on", PRESENT, "medicine", key="medicine"),
    _row("health", "smoke", "", PRESENT, "nothing", key="smoking", value="smoking"),
    _row("health", "quit|stop", "smoking|drinking|drinking alcohol", EVENTS, "nothing",
         key="smoking", denies=True, news=True),
    # likes
    _row("likes", "love|like|enjoy|adore", "", PRESENT, "liked"),
    _row("likes", "love|enjoy|like|adore|hate|dislike", "", ("perfect",), "liked"),
    _row("likes", "hate|dislike|detest|loathe", "", PRESENT, "liked", denies=True),
    _row("likes", "be", "", ("present", "perfect"), "fan of"),
    _row("likes", "be", "fond of|passionate about|obsessed with|into|crazy about|addicted to"
         "|keen on|big on|fascinated by|captivated by|drawn to", PRESENT, "liked"),
    _row("likes", "be", "afraid of|scared of|terrified of|tired of", PRESENT, "list", key="fear"),
    _row("likes", "be", "", PRESENT, "fan"),
    _row("likes", "want", "to visit|to go to|to travel to", ("present", "perfect"), "place",
         key="wish"),
    _row("likes", "prefer", "", PRESENT, "liked", key="preference"),
    # hobby, skill, language, study
    _row("language", "speak", "", PRESENT, "language"),
    _row("language", "learn|study", "", STATES, "language", key="learning"),
    _row("language", "be", "fluent in|bilingual in", PRESENT, "language"),
    _row("hobby", "play", "", LASTING, "game", key="plays"),
    _row("hobby", "stop|quit", "playing", EVENTS, "game", key="plays", denies=True, news=True),
    _row("hobby", "learn", "|to play|how to play", LASTING, "game"),
    _row("hobby", "practice|practise|do|teach|take", "", LASTING, "discipline", key="practises"),
    _row("hobby", "attend|have|take", "", PRESENT, "lessons", key="habit", dated=True),
    _row("hobby", "train", "for", LASTING, "org"),
    _row("hobby", "read", "", ("progressive", "perfect progressive"), "title", key="reads"),
    _row("hobby", "watch|listen", "|to", ("perfect progressive",), "title", key="reads"),
    _row("hobby", "grow|collect|brew|restore|renovate|raise|mentor", "",
         ("progressive", "perfect progressive"), "plain deed", key="project"),
    _row("hobby", "write|build|record|work", "|on", ("progressive", "perfect progressive"),
         "project", key="project"),
    _row("likes", "get|start", "into|getting into|to enjoy|enjoying|to like", EVENTS, "liked",
         news=True),
    _row("likes", "be", "into|fascinated by|drawn to|interested in|passionate about", ("perfect",),
         "liked"),
    _row("hobby", "collect", "", STATES, "list"),
    _row("hobby", "start", "|taking", EVENTS, "lessons", news=True),
    _row("hobby", "paint|bake|cook|hike|dance|garden|knit|jog|surf|ski|fish|climb|camp|sew|run"
         "|sing|draw|write|swim|cycle|meditate|exercise", "", STATES, "nothing", dated=True),
    _row("hobby", "go", "to|for|swimming|running|hiking|cycling|biking|climbing|jogging|dancing"
         "|surfing|fishing|skiing", PRESENT, "habit", key="habit", dated=True),
    _row("hobby", "volunteer", "at|with|for|as", STATES, "org"),
    _row("hobby", "be", "a member of|part of", PRESENT, "org"),
    _row("hobby", "take", "", ("progressive", "perfect progressive"), "lessons"),
    _row("hobby", "learn", "to|how to", ("progressive", "perfect progressive"), "verb"),
    _row("study", "study", "at|for", STATES, "org", key="school"),
    _row("study", "study|major", "|in", STATES, "thing"),
    _row("study", "be", "a student at|enrolled in|enrolled at", PRESENT, "org"),
    _row("study", "be", "|in", PRESENT, "degree"),
    _row("study", "go", "to", STATES, "degree"),
    _row("study", "have", "a degree in|a bachelor's degree in|a master's degree in|a bachelor's in"
         "|a master's in|a phd in|a PhD in|a minor in", PRESENT, "thing", key="degree"),
    _row("event", "study", "|in|at", ("past",), "org", key="studied"),
    _row("event", "graduate", "", EVENTS, "nothing", key="graduation"),
    _row("event", "graduate", "from|with", EVENTS, "org", key="graduation"),
    # possession
    _row("possession", "own|have", "", PRESENT, "owned"),
    _row("possession", "own|have", "", PRESENT, "counted"),
    _row("possession", "have", "", ("perfect",), "goods", key="for", dated=True),
    _row("possession", "drive", "", STATES, "brand", key="car"),
    _row("possession", "drive", "a|an", STATES, "title", key="car"),
    _row("possession", "buy|purchase", "|myself", EVENTS, "owned", news=True),
    _row("possession", "get", "|myself", EVENTS, "owned", news=True),
    _row("possession", "sell", "my|our|his|her|their", EVENTS, "goods", denies=True, news=True),
    _row("possession", "sell", "my|our|his|her|their|the", EVENTS, "title", key="car", denies=True,
         news=True),
    _row("possession", "use", "", ("perfect progressive", "progressive"), "named", key="uses"),
    # events
    _row("event", "be", "to", ("perfect",), "place", key="visited"),
    _row("event", "visit", "", EVENTS, "place", key="visited"),
    _row("event", "go|travel|fly", "to|on a trip to|on vacation to|on vacation in", EVENTS, "place",
         key="visited"),
    _row("event", "get", "back from|home from", EVENTS, "trip", key="trip"),
    _row("event", "spend|pay|save|raise", "", EVENTS, "money", key="spent"),
    _row("event", "win|publish", "", EVENTS, "award", key="won"),
    _row("event", "complete|finish|read|watch|write|run|visit", "", ("perfect",), "done",
         key="did"),
    _row("event", "read|watch", "", EVENTS, "title", key="did"),
    _row("event", "get", "accepted into|accepted to|accepted at|admitted to|pre-approved for"
         "|certified in|vaccinated against|into", EVENTS, "org", key="got", dated=True),
    _row("event", "start", "", EVENTS, "activity", key="started"),
    _row("event", "finish", "|reading|rereading|watching|writing|building|painting", EVENTS,
         "title", key="finished"),
    _row("event", "start", "|reading|watching|listening to", EVENTS, "title", key="started",
         dated=True),
    _row("event", "have", "", EVENTS, "occasion", key="had", dated=True),
    _row("event", "take", "", EVENTS, "taken", key="took", dated=True),
    _row("event", "go", "to|on|for", EVENTS, "deed", key="went", dated=True),
    _row("event", "go", "", EVENTS, "outing", key="went"),
    _row("event", "attend|join|volunteer|adopt|enroll|enrol|publish|inherit|host|donate|book|visit"
         "|earn|tour|organize|organise", "", EVENTS, "deed", key="did"),
    _row("event", "sign", "up for", EVENTS, "deed", key="did"),
    _row("event", "leave|quit", "", EVENTS, "title", key="did"),
    _row("event", "use", "to", ("past",), "verb", key="used to"),
    _row("possession", "get|buy|purchase", "|myself", EVENTS, "new", news=True),
    _row("event", "attend|join|visit|volunteer|participate|win|travel|fly|host|organize|organise"
         "|celebrate|launch|open|publish|perform|run|meet|receive|break|build|adopt|donate|plant"
         "|harvest|upgrade|replace|renovate|submit|sign|enroll|enrol|apply|hike|camp|climb|sell|buy"
         "|purchase|earn|graduate|fail|inherit|register|subscribe|accept|order|propose|quit|leave"
         "|sprain|injure|record|paint|bike|cycle", "", EVENTS, "deed", key="did", dated=True),
    _row("event", "finish|complete", "a|an", EVENTS, "deed", key="did", dated=True),
    # What is done for a while, and what was done on a day, of whatever kind.
    _row("hobby", f"{ANY_VERB}|keep|grow|use", "", ("perfect progressive",), "plain deed",
         key="does", dated=True),
    _row("event", ANY_VERB, "", EVENTS, "plain deed", key="did", dated=True),
    # plans and decisions
    _row("plan", "go|fly|travel|drive", "to", AHEAD, "org", key="trip", dated=True),
    _row("plan", "visit|attend|start|join|see|host|run", "", AHEAD, "org", key="event", dated=True),
    _row("plan", "think", "of becoming|about becoming", ("progressive",), "job", key="goal"),
    _row("plan", "try", "to", ("progressive", "perfect progressive"), "goal", key="goal"),
    _row("plan", "plan|intend", "to|on", ("progressive", "present"), "verb", key="event",
         dated=True),
    _row("plan", "plan", "", ("progressive",), "scheme", key="event", dated=True),
    _row("plan", "plan", "", ("progressive",), "journey", key="trip"),
    _row("plan", "be", "in the process of", PRESENT, "activity", key="project"),
    _row("plan", "want", "to be|to become", PRESENT, "job", key="goal"),
    _row("plan", "get", "married|divorced|a divorce", AHEAD, "nothing", key="marriage"),
    _row("plan", "have", "", ("present", "progressive"), "appointment",
         key="appointment", dated=True),
    _row("decision", "decide", "to|not to", EVENTS, "resolve"),
)  # fmt: skip

PATTERNS: Final[dict[str, tuple[Pattern, ...]]] = {}
for _listed in _ROWS:
    for _pattern in _listed:
        PATTERNS[_pattern.verb] = (*PATTERNS.get(_pattern.verb, ()), _pattern)
