"""A budget of tokens is not passed, whoever asks at the same time and whatever calls cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palimpsest.ops.replay.feeding import FED_RECORDS, Budget, BudgetedModel, Pacing, most_tokens
from palimpsest.ops.replay.live_log import Ledger, Spent
from palimpsest.streams.models.base import Prompt, Reply, TransientModelError
from palimpsest.streams.runtime.partition_task import Interrupted

PROMPT = Prompt("extract", "s" * 30, "u" * 60, {}, 50, {})


class Model:
    """Answers when it is let, with these tokens; None: the provider does not tell."""

    provider = "scripted"
    model = "scripted-1"

    def __init__(self, tokens: tuple[int | None, int | None], fails: bool = False) -> None:
        self.tokens = tokens
        self.fails = fails
        self.asked = 0
        self.most = 0
        self.under_way = 0
        self.began = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()

    async def generate(self, prompt: Prompt) -> Reply:
        self.asked += 1
        self.under_way += 1
        self.began.set()
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.answering.wait()
        finally:
            self.under_way -= 1
        if self.fails:
            raise TransientModelError("away")
        return Reply("{}", self.model, self.provider, *self.tokens)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


async def asked(model: Model, budget: Budget, times: int) -> list[Reply | BaseException]:
    budgeted = BudgetedModel(model, budget)
    return await asyncio.gather(
        *(budgeted.generate(PROMPT) for _ in range(times)), return_exceptions=True
    )


@pytest.mark.parametrize("limit", [0, 79, 80, 200, 1_000, 10_000])
@pytest.mark.parametrize("tokens", [(30, 50), (10, 1), (90, 50), (None, None)])
async def test_it_is_not_passed(
    limit: int, tokens: tuple[int | None, int | None], tmp_path: Path
) -> None:
    told: list[None] = []
    with Ledger.opened(tmp_path) as ledger:
        budget = Budget(ledger, limit, lambda: told.append(None))
        model = Model(tokens)
        replies = await asked(model, budget, 30)
        spent = ledger.spent()
        # Of one that reads more than was expected of the first, all under way then are more.
        over = 60 * model.most if tokens[0] == 90 else 0
        assert spent.tokens <= limit + over
        answered = [reply for reply in replies if isinstance(reply, Reply)]
        assert len(answered) == model.asked == spent.calls
        refused = [each for each in replies if isinstance(each, Interrupted)]
        assert len(answered) + len(refused) == 30
        assert len(told) == bool(refused) == budget.is_exhausted
        if refused:
            assert spent.tokens + most_tokens(PROMPT, 1.0) > limit


async def test_it_counts_on_after_a_restart_and_failures_cost_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        with Ledger.opened(tmp_path) as ledger:
            await asked(Model((10, 5)), Budget(ledger, None), 3)
            failed = await asked(Model((10, 5), fails=True), Budget(ledger, 1_000), 3)
            assert all(isinstance(each, TransientModelError) for each in failed)
    with Ledger.opened(tmp_path) as ledger:
        assert ledger.spent() == Spent(6, 60, 30)


async def test_a_call_that_is_let_go_of_counts_with_all_it_may_have_cost(tmp_path: Path) -> None:
    with Ledger.opened(tmp_path) as ledger:
        model = Model((10, 5))
        model.answering.clear()
        asking = asyncio.create_task(BudgetedModel(model, Budget(ledger, 1_000)).generate(PROMPT))
        await model.began.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert ledger.spent().tokens == most_tokens(PROMPT)


def test_a_rate_is_kept_over_groups() -> None:
    now = [100.0]
    pacing = Pacing(4.0, lambda: now[0])
    assert (pacing.records, pacing.seconds) == (4, 0.0)
    pacing.note(4)
    assert pacing.seconds == 1.0
    now[0] += 0.25
    pacing.note(2)
    assert pacing.seconds == 1.25
    now[0] += 60.0
    assert pacing.seconds == 0.0
    assert (Pacing(None).records, Pacing(1e9).records, Pacing(0.01).records) == (
        *(FED_RECORDS, FED_RECORDS, 1),
    )
