"""The duty of schedules: starts what is due by the clock, and sleeps until the next is."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from underseal.held.pace import Pace
from underseal.wake import claims
from underseal.wake import schedules as passes
from underseal.wake.cron import ON_TIME
from underseal.worker.connections import Line
from underseal.worker.duty import Duty, Tell

log = logging.getLogger("underseal.worker")

_AT_ONCE: Final = 20
_FIRST: Final = 0.05
_PATIENCE: Final = 10.0
"""Seconds after which it is asked again when the next is due: a schedule may have been added or changed."""
_ANYWAY: Final = 60.0
"""Seconds after which it passes over all that is due, whatever it was told: a wake that was committed very late is
found by nothing else."""


class Schedules(Duty):
    """Fires due schedules; one worker does it for each instant, however many there are.

    Attributes:
        started: how many executions were started here.
    """

    what = "due schedules"

    def __init__(self, worker: str, line: Line, lease: timedelta, tell: Tell) -> None:
        """Prepare it.

        Parameters:
            worker: claims them, by a name that nobody else has.
            line: its calls.
            lease: how long another worker leaves a schedule to this one.
            tell: called when executions were started.
        """
        super().__init__(worker, Pace(_FIRST, _PATIENCE))
        self._line = line
        self._lease = lease
        self._tell = tell
        self._pass_due = 0.0
        self.started = 0

    async def look(self) -> float:
        """Ask when the next is due; fire what is."""
        now = asyncio.get_running_loop().time()
        due = await self._line.perform(claims.next_due([], True))
        if now < self._pass_due and (due is None or due > timedelta(0)):
            return _PATIENCE if due is None else min(_PATIENCE, due.total_seconds())
        self._pass_due = now + _ANYWAY
        fired = await self._line.perform(
            passes.fire_due_schedules(self.worker, self._lease, _AT_ONCE, ON_TIME)
        )
        begun = sum(len(one.started) for one in fired)
        for one in fired:
            log.info(
                "schedule %s: %s, %s started", one.name, one.outcome, len(one.started),
                extra={"schedule": one.name, "outcome": one.outcome, "execution_ids": list(one.started)},
            )  # fmt: skip
        if not begun:
            return self.pace.idled()
        self.started += begun
        self._tell()
        self.pace.worked()
        return 0.0  # and ask when the next is due
