"""What the settings of intent, sessions and short-term memory change."""

from __future__ import annotations

from typing import Any

from palimpsest.ops.maintenance.publishing import SummaryTimer
from palimpsest.ops.operations.memories import Context
from palimpsest.ops.operations.sessions import SessionMemory
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.commands import RememberCommand, UpdateShortTermCommand
from palimpsest.schemas.topics import CONVERSATION_TURNS
from tests.messages import commanded, published, turn
from tests.setting_lab import REMOTE_LLM, Case, Lab

WISH = "Merk dir: Ana may like tea~0.5"


async def is_wish(lab: Lab) -> object:
    """Whether a fact of doubt is kept all the same."""
    async with lab.ran("Remember: Ana may like tea~0.5") as seen:
        return len(seen.column("SELECT 1 FROM memory_rows WHERE type <> 'episodic'"))


async def is_wish_in_german(lab: Lab) -> object:
    async with lab.ran(WISH) as seen:
        return len(seen.column("SELECT 1 FROM memory_rows WHERE type <> 'episodic'"))


async def ended_by_silence(lab: Lab) -> object:
    async with lab.ran("one"):
        pass
    lab.clock.advance(minutes=20)
    async with lab.ran(published(turn("two", 2, session_id="s2"))) as seen:
        return seen.column("SELECT ended_by FROM sessions WHERE session_id = 's1'")


async def kept_of(lab: Lab, hours: float, *messages: Any) -> Any:
    async with lab.ran(*messages) as seen:
        lab.clock.advance(hours=hours)
        sources = sources_of(seen.app)
        sources.now = lab.clock
        return await DirectQueries(sources).answer(SessionMemory("s1", "ana"))


async def turns_kept(lab: Lab) -> object:
    kept = await kept_of(lab, 3, "I like tea", "and milk", "and honey")
    return 0 if kept["short_term"] is None else len(kept["short_term"]["turns"])


async def characters_kept(lab: Lab) -> object:
    kept = await kept_of(lab, 0, "x" * 300)
    return len(kept["short_term"]["turns"][0]["content"])


async def summary_kept(lab: Lab) -> object:
    order = commanded(UpdateShortTermCommand(session_id="s1", summary="Of tea."), 1)
    return (await kept_of(lab, 3, order, "I like tea"))["short_term"]["summary"] is not None


async def model_sums_up(lab: Lab) -> object:
    return lab.settings.summarizes


async def is_idle(lab: Lab) -> object:
    """Whether a session of three turns is to be summed up after 20 minutes."""
    async with lab.ran("one", "two", "three") as seen:
        app = seen.app
        known = (app.log, app.log.append, app.settings, lab.clock, app.models)
        lab.clock.advance(minutes=20)
        return bool(SummaryTimer(app.opened, *known).due(app.shards[0]))


async def context_of(lab: Lab) -> Any:
    async with lab.ran("I like tea", "and milk") as seen:
        request = Context("what about tea?", "ana", session_id="s1")
        sources = sources_of(seen.app)
        sources.now = lab.clock
        return await DirectQueries(sources).answer(request)


async def session_is_shown(lab: Lab) -> object:
    return "## This conversation" in (await context_of(lab))["text"]


async def nudge_shown(lab: Lab) -> object:
    return (await context_of(lab))["text"].splitlines()[4]


async def teaching(lab: Lab) -> object:
    command = commanded(RememberCommand(content="Ana plays the harp", self_taught=True), 1)
    async with lab.ran(command) as seen:
        [error] = seen.column("SELECT error FROM command_results")
        return None if error is None else str(error).partition(":")[0]


async def raw_words_left(lab: Lab) -> object:
    said = published(turn("under the flowerpot", 1, privacy="full"))
    async with lab.ran(said) as seen:
        [record] = seen.app.log.read(CONVERSATION_TURNS.name, 0, 0, 10)
        return b"flowerpot" in (record.value or b"")


CASES: dict[str, Case] = {
    "intent.phrases": Case(is_wish, ("please keep", "remember"), (0, 1)),
    "intent.more_phrases": Case(is_wish_in_german, ("souviens-toi", "merk dir"), (0, 1)),
    "sessions.silence_minutes": Case(ended_by_silence, (30, 10), (["new-session"], ["silence"])),
    "short_term.conversation_hours": Case(turns_kept, (2, 12), (0, 3)),
    "short_term.summary_hours": Case(summary_kept, (2, 24), (False, True)),
    "short_term.turns": Case(turns_kept, (2, 40), (2, 3)),
    "short_term.characters": Case(characters_kept, (100, 1_000), (100, 300)),
    "short_term.summarize": Case(model_sums_up, ("false", "true"), (False, True), REMOTE_LLM),
    "short_term.idle_minutes": Case(is_idle, (30, 10), (False, True)),
    "short_term.context_share": Case(session_is_shown, (0, 0.4), (False, True)),
    "short_term.nudge": Case(nudge_shown, ("Sum up.", "Say more."), ("Sum up.", "Say more.")),
    "privacy.purge": Case(raw_words_left, ("true", "false"), (False, True)),
    "pipeline.self_teaching_enabled": Case(teaching, (False, True), ("forbidden", None)),
}
