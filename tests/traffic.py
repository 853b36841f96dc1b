"""Turns that keep arriving while something else is done, and somebody who keeps asking."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, Self

from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from tests.branches_by_hand import outgoing_turn

PER_SECOND = 20
ASKED_PER_SECOND = 4


class Traffic(threading.Thread):
    """Publishes turns to these scopes at a steady rate, and asks this question of them, which must
    be answered each time. Raises at the end of the block what it failed for. It only asks after
    the `most` turns: a slow machine need not have a minute's turns to process."""

    def __init__(
        self, settings: Settings, scopes: Sequence[str], question: str, most: int = 400
    ) -> None:
        super().__init__()
        self.settings = settings
        self.scopes = scopes
        self.question = question
        self.most = most
        self.stopped = threading.Event()
        self.published = self.answered = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stopped.set()
        self.join()
        if self.failure is not None and error is None:
            raise self.failure

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.failure = error

    async def _run(self) -> None:
        async with queries(self.settings) as asked:
            with publisher(self.settings) as append:
                while not self.stopped.is_set():
                    began = time.monotonic()
                    scope = self.scopes[self.published % len(self.scopes)]
                    text = f"I like new dish {self.published}."
                    if self.published < self.most:
                        append([outgoing_turn(1_000 + self.published, text, scope)])
                        self.published += 1
                    if self.published % 5 == 0:
                        answer: Any = await asked.answer(Recall(self.question, scope))
                        assert answer["results"], scope
                        self.answered += 1
                    pace = PER_SECOND if self.published < self.most else ASKED_PER_SECOND
                    rest = 1 / pace - (time.monotonic() - began)
                    self.stopped.wait(max(0.0, rest))
