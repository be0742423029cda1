"""What every duty of a worker has in common: looks at the database, a pace of its own, errors that end nothing."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from underseal.held.pace import Pace

log = logging.getLogger("underseal.worker")


class Duty(ABC):
    """Something that a worker does again and again.

    Attributes:
        what: what it looks for, as a log says it.
        stopping: whether it is to end.
    """

    what: str

    def __init__(self, worker: str, pace: Pace) -> None:
        """Prepare it.

        Parameters:
            worker: the worker's name, for its log.
            pace: how long it waits between two looks.
        """
        self.worker = worker
        self.pace = pace
        self.stopping = False
        self._nudge = asyncio.Event()

    @abstractmethod
    async def look(self) -> float:
        """One look; how many seconds until the next."""

    def nudge(self) -> None:
        """Let the next look be now."""
        self._nudge.set()

    def stop(self) -> None:
        """Let no look follow the one that is under way."""
        self.stopping = True
        self._nudge.set()

    async def run(self) -> None:
        """Look until stopped. No error of one look ends it."""
        while not self.stopping:
            try:
                wait = await self.look()
            except Exception as error:  # noqa: BLE001 -- one look's error ends no worker
                log.warning(
                    "worker %s could not look for %s (%s), trying again",
                    self.worker, self.what, said(error), extra={"event": "look-failed", "duty": self.what},
                )  # fmt: skip
                wait = self.pace.failed()
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        if self.stopping:
            return
        # not wait_for, which may swallow a cancellation that comes together with what it waits for
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        self._nudge.clear()


def said(error: BaseException) -> str:
    """The class of an error and its SQLSTATE: nothing that could hold a parameter."""
    sqlstate = getattr(error, "sqlstate", None)
    return f"{error.__class__.__name__} {sqlstate}" if sqlstate else error.__class__.__name__


Tell = Callable[[], None]
"""Tells others in this process that something may be due for them."""
