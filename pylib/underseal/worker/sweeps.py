"""The duty of sweeps: ends what time has ended, and removes what nobody needs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from underseal.foundation.steps import Steps
from underseal.held import verbs
from underseal.held.pace import Pace
from underseal.inbox import verbs as inbox
from underseal.log import verbs as logs
from underseal.seal.entropy import random_bytes
from underseal.snapshot import verbs as snapshots
from underseal.worker.connections import Line
from underseal.worker.duty import Duty, Tell, said

log = logging.getLogger("underseal.worker")

_BATCH: Final = 100
_SELDOM: Final = 60.0
_MOST_BATCHES: Final = 20
_YOUNG: Final = timedelta(hours=1)


class Operations(Duty):
    """Ends expired requests, approvals that nobody ran, and runs without a lease."""

    what = "operations that time has ended"

    def __init__(self, worker: str, line: Line, pace: Pace, tell: Tell) -> None:
        """Prepare it.

        Parameters:
            worker: the worker's name.
            line: its calls.
            pace: of its looks.
            tell: called when something was ended, which a flow may wait for.
        """
        super().__init__(worker, pace)
        self._line = line
        self._tell = tell

    async def look(self) -> float:
        """One sweep."""
        swept = await self._line.perform(verbs.sweep(_BATCH))
        for one in swept:
            level = logging.ERROR if one.outcome == "failed" else logging.INFO
            log.log(
                level, "operation %s: %s", one.operation_id, one.outcome,
                extra={"operation_id": str(one.operation_id), "outcome": one.outcome},
            )  # fmt: skip
        ended = sum(one.outcome != "failed" for one in swept)
        if not ended:
            return self.pace.idled()
        self._tell()
        return self.pace.worked()


@dataclass(frozen=True, slots=True)
class _Chore:
    """Something that is swept, batch after batch while a batch is full."""

    what: str
    batch: Callable[[int], Steps[int]]
    size: int


def _content(limit: int) -> Steps[int]:
    swept = yield from snapshots.sweep_content(limit, _YOUNG)
    return len(swept)


_CHORES: Final = (
    _Chore("messages that expired", inbox.expire, 1000),
    _Chore("content that nothing refers to", _content, 100),
    _Chore("old denials", logs.sweep_denials, 1000),
)


class Seldom(Duty):
    """Removes expired messages, content that nothing refers to and old denials, once a minute."""

    what = "what is to be removed"

    def __init__(self, worker: str, line: Line, every: float = _SELDOM) -> None:
        """Prepare it.

        Parameters:
            worker: the worker's name.
            line: its calls.
            every: seconds between two rounds.
        """
        super().__init__(worker, Pace(every, every))
        self._line = line
        self._every = every
        self._begun = False

    async def look(self) -> float:
        """One round, in which each sweep has its own errors; the first comes at some instant of the first minute."""
        if not self._begun:
            self._begun = True
            return self._every * random_bytes(1)[0] / 256
        for chore in _CHORES:
            try:
                await self._sweep(chore)
            except Exception as error:  # noqa: BLE001 -- the other sweeps are made
                log.warning("%s could not be removed (%s), trying again", chore.what, said(error))
        return self._every

    async def _sweep(self, chore: _Chore) -> None:
        for _ in range(_MOST_BATCHES):
            removed: Any = await self._line.perform(chore.batch(chore.size))
            if removed:
                log.info("%s: %s removed", chore.what, removed, extra={"swept": chore.what, "count": removed})
            if removed < chore.size or self.stopping:
                return
            await asyncio.sleep(0)
