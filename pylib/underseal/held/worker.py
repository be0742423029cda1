"""The worker: sweeps, claims and runs until it is told to stop (clauses H5.3, H8.1, H8.2).

It is written once, on asyncio. A sync client's steps are carried out in threads beside the loop, an
async client's in the loop itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from underseal.foundation.steps import Steps
from underseal.held import verbs
from underseal.held.claim import Claim
from underseal.held.pace import Pace
from underseal.held.run import abandon, claim_approved, run_claimed, run_next_sql
from underseal.seal import PURPOSES

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

log = logging.getLogger("underseal.worker")

_SWEEP_BATCH = 100
_REPORT_EVERY = 60.0  # seconds between two reports of what nothing here can run
_LAST_WORDS = 5.0  # seconds to record that the outcome of a run is unknown, once the grace is over


class Worker:
    """Runs approved operations, and ends what time has ended. Made by `client.worker()`."""

    def __init__(
        self,
        client: Underseal | AsyncUnderseal,
        *,
        concurrency: int,
        poll_every: timedelta,
        idle_poll_every: timedelta,
        grace: timedelta,
    ) -> None:
        """Prepare; parameters as in `Underseal.worker`."""
        self._client = client
        self._core = client._core
        self._concurrency = concurrency
        self._pace = Pace(poll_every.total_seconds(), idle_poll_every.total_seconds())
        self._grace = grace.total_seconds()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mine: set[UUID] = set()
        self._stopping = False
        self._nudge: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._report_due = 0.0

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop()`; then finish what runs, within the grace.

        Signals are only listened to in the main thread.
        """
        asyncio.run(self.serve())

    def stop(self) -> None:
        """Ask it to stop, from any thread; `run` returns once what runs has ended or the grace is over."""
        self._stopping = True
        if self._loop is not None and self._nudge is not None:
            try:
                self._loop.call_soon_threadsafe(self._nudge.set)
            except RuntimeError:
                # The loop has closed: it has stopped.
                return

    async def serve(self) -> None:
        """The same as `run`, inside a loop that is running."""
        self._loop, self._nudge = asyncio.get_running_loop(), asyncio.Event()
        listened = self._listen()
        log.info("worker %s begins", self._core.worker)
        for purpose in PURPOSES:
            if not self._core.keys.live(purpose):
                log.warning(
                    "worker %s has no %s key: what needs one stays as it is until a worker has",
                    self._core.worker,
                    purpose,
                )
        try:
            while not self._stopping:
                await self._wait(await self._round())
            await self._drain()
        finally:
            for one in listened:
                self._loop.remove_signal_handler(one)
            log.info("worker %s has ended", self._core.worker)

    def _listen(self) -> list[signal.Signals]:
        if threading.current_thread() is not threading.main_thread() or self._loop is None:
            return []
        signals = [signal.SIGTERM, signal.SIGINT]
        for one in signals:
            self._loop.add_signal_handler(one, self.stop)
        return signals

    async def _wait(self, seconds: float) -> None:
        assert self._nudge is not None
        if self._stopping:
            return
        try:
            await asyncio.wait_for(self._nudge.wait(), seconds)
        except TimeoutError:
            return
        self._nudge.clear()

    async def _round(self) -> float:
        """One look at the database; how many seconds until the next. No error of one look ends the worker."""
        try:
            found = await self._sweep() + await self._claim()
            await self._report()
        except Exception as error:  # noqa: BLE001 -- one look's error ends no worker
            log.warning(
                "worker %s could not look for work (%s), trying again", self._core.worker, _said(error)
            )
            return self._pace.failed()
        return self._pace.worked() if found else self._pace.idled()

    async def _sweep(self) -> int:
        swept = await self._perform(verbs.sweep(_SWEEP_BATCH))
        for one in swept:
            level = logging.ERROR if one.outcome == "failed" else logging.INFO
            log.log(level, "operation %s: %s", one.operation_id, one.outcome)
        return sum(one.outcome != "failed" for one in swept)

    async def _claim(self) -> int:
        free = self._concurrency - len(self._tasks)
        if free <= 0 or self._core.rebuild is None:
            return 0
        claims = await self._perform(claim_approved(self._core, free))
        for claim in claims:
            self._mine.add(claim.run_id)
            self._start(self._run(claim))
        if len(claims) < free and self._core.serve_sql:
            self._start(self._run_sql())
        return len(claims)

    async def _run(self, claim: Claim) -> None:
        assert self._core.rebuild is not None
        report = await self._perform(run_claimed(self._core, claim, self._core.rebuild))
        self._mine.discard(claim.run_id)
        log.info("operation %s: %s", claim.operation_id, report.message or report.outcome)
        self._look_again()

    async def _run_sql(self) -> None:
        while not self._stopping and (report := await self._perform(run_next_sql(self._core))) is not None:
            log.info("operation %s: %s", report.operation_id, report.message or report.outcome)
            self._look_again()

    def _look_again(self) -> None:
        if self._nudge is not None:
            self._nudge.set()

    async def _report(self) -> None:
        assert self._loop is not None
        if self._loop.time() < self._report_due:
            return
        self._report_due = self._loop.time() + _REPORT_EVERY
        for _, message in await self._perform(verbs.unserved(self._core)):
            log.warning("%s", message)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 -- one run's error ends no worker
            log.warning("a run could not be carried to its end here (%s); its lease will tell", _said(error))

    async def _drain(self) -> None:
        """Claim nothing more; wait for what runs; of what does not end in time, say that nobody knows (clause H8.2)."""
        if self._tasks:
            log.info(
                "worker %s stops; %s under way may take %s s",
                self._core.worker,
                len(self._tasks),
                self._grace,
            )
            await asyncio.wait(self._tasks, timeout=self._grace)
        late = list(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_LAST_WORDS)
        for run_id in self._mine & self._core.runs.keys():
            handle = self._core.runs[run_id]
            try:
                await asyncio.wait_for(self._perform(abandon(handle)), _LAST_WORDS)
            except Exception as error:  # noqa: BLE001 -- the others have last words too
                log.warning("operation %s: its end was not recorded (%s); its lease will tell",
                            handle.claim.operation_id, _said(error))  # fmt: skip

    async def _perform(self, steps: Steps[Any]) -> Any:
        return await self._client._perform(steps)


def _said(error: Exception) -> str:
    sqlstate = getattr(error, "sqlstate", None)
    return f"{error.__class__.__name__} {sqlstate}" if sqlstate else error.__class__.__name__
