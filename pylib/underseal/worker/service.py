"""The worker: approved operations, flows, schedules and sweeps in one loop, until it is told to stop.

It is written once, on asyncio. What it runs for a sync client is carried out in threads beside the loop, for an async
client in the loop itself. Its duties know nothing of each other: each has looks, a pace and errors of its own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from underseal.flow.runtime import Counts, FlowRuntime, Limits
from underseal.held.pace import Pace
from underseal.seal import HELD_PURPOSES
from underseal.worker import sweeps
from underseal.worker.connections import Line, line_of
from underseal.worker.duty import Duty, said
from underseal.worker.hint import Listener, hint_place
from underseal.worker.operations import Operations
from underseal.worker.runtime import demand_times, life_name, runtime_of
from underseal.worker.schedules import Schedules

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

log = logging.getLogger("underseal.worker")

_FLOWS_IDLE: Final = timedelta(seconds=1)
_LOOKS: Final = 4  # connections for what is looked for
_LAST_LOOK: Final = 5.0  # seconds for a look that is under way
_ANEW: Final = 5.0  # seconds before a runtime that has failed is made anew


@dataclass(slots=True)
class Progress:
    """What a worker has done, and does.

    Attributes:
        flows: what became of executions.
        driving: executions under way.
        operations: runs of operations that ended here, by outcome.
        running: runs under way.
        scheduled: executions that schedules started here.
    """

    flows: Counts = field(default_factory=Counts)
    driving: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    running: int = 0
    scheduled: int = 0


class Worker:
    """Runs approved operations, drives flows, fires schedules, ends what time has ended. Made by `client.worker()`."""

    def __init__(
        self,
        client: Underseal | AsyncUnderseal,
        *,
        concurrency: int,
        poll_every: timedelta,
        idle_poll_every: timedelta,
        grace: timedelta,
        limits: Limits | None,
        lease: timedelta,
        hint: bool | str | None,
    ) -> None:
        """Prepare; parameters as in `Underseal.worker`.

        Errors:
            ValueError: one of them would let nothing run.
        """
        demand_times(lease, grace)
        if concurrency < 1:
            raise ValueError("expected a concurrency of at least 1, found less")
        self._client = client
        self._core = client._core
        self._concurrency = concurrency
        self._paces = (poll_every.total_seconds(), idle_poll_every.total_seconds())
        self._flows_idle = min(_FLOWS_IDLE, idle_poll_every)
        self._grace = grace.total_seconds()
        self._limits = limits
        self._lease = lease
        self._hint = hint_place(client._source, client._hint if hint is None else hint)
        self._stopping = False
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._operations: Operations | None = None
        self._schedules: Schedules | None = None
        self._runtime: FlowRuntime | None = None
        self._counts = Counts()

    @property
    def progress(self) -> Progress:
        """What it has done since it began, and what is under way."""
        operations, runtime, schedules = self._operations, self._runtime, self._schedules
        return Progress(
            self._counts,
            0 if runtime is None else len(runtime.active),
            {} if operations is None else dict(operations.ended),
            0 if operations is None else operations.under_way,
            0 if schedules is None else schedules.started,
        )

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop()`; then finish what runs, within the grace.

        Signals are only listened to in the main thread.
        """
        # not asyncio.run, which waits for a step that will not be cancelled as long as that goes on
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self.serve())
        finally:
            _close(loop)

    def stop(self) -> None:
        """Ask it to stop, from any thread; `run` returns once what runs has ended or the grace is over."""
        self._stopping = True
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                # The loop has closed: it has stopped.
                return

    async def serve(self) -> None:
        """The same as `run`, inside a loop that is running."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping:
            self._stop.set()
        listened = self._listen()
        log.info(
            "worker %s begins", self._core.worker, extra={"event": "begins", "worker": self._core.worker}
        )
        self._say_what_it_lacks()
        line = line_of(self._client, _LOOKS)
        try:
            await self._work(line)
        finally:
            await line.close()
            for one in listened:
                self._loop.remove_signal_handler(one)
            log.info(
                "worker %s has ended",
                self._core.worker,
                extra={"event": "ended", "worker": self._core.worker},
            )

    def _say_what_it_lacks(self) -> None:
        if len(self._client._flows) and not self._core.kinds:
            return
        for purpose in HELD_PURPOSES:
            if not self._core.keys.live(purpose):
                log.warning(
                    "worker %s has no %s key: what needs one stays as it is until a worker has",
                    self._core.worker,
                    purpose,
                )

    def _listen(self) -> list[signal.Signals]:
        if threading.current_thread() is not threading.main_thread() or self._loop is None:
            return []
        signals = [signal.SIGTERM, signal.SIGINT]
        for one in signals:
            self._loop.add_signal_handler(one, self.stop)
        return signals

    async def _work(self, line: Line) -> None:
        assert self._stop is not None
        duties = self._duties(line)
        looks = [asyncio.create_task(duty.run()) for duty in duties]
        beside = []
        if len(self._client._flows):
            beside.append(asyncio.create_task(self._drive()))
        if self._hint is not None:
            beside.append(asyncio.create_task(Listener(self._hint).listen(self._look)))
        try:
            await self._stop.wait()
        finally:
            for duty in duties:
                duty.stop()
            await self._drain(looks)
            for task in (*looks, *beside):
                task.cancel()
            await asyncio.wait([*looks, *beside])

    def _duties(self, line: Line) -> list[Duty]:
        shortest, longest = self._paces
        self._operations = Operations(
            self._client, line, Pace(shortest, longest), self._concurrency, self._has_ended
        )
        self._schedules = Schedules(life_name(self._client._worker_name), line, self._lease, self._look)
        return [
            self._operations,
            sweeps.Operations(self._core.worker, line, Pace(shortest, 2 * longest), self._has_ended),
            self._schedules,
            sweeps.Seldom(self._core.worker, line),
        ]

    def _look(self) -> None:
        """Something may be due: look soon."""
        if self._runtime is not None:
            self._runtime.look()
        if self._operations is not None:
            self._operations.nudge()

    def _has_ended(self) -> None:
        """An operation has ended, which a flow may wait for, here or elsewhere."""
        if self._runtime is not None:
            self._runtime.look()
        self._client._due()

    async def _drive(self) -> None:
        """Drive flows; with a new runtime, should one ever fail."""
        while True:
            self._runtime = runtime = runtime_of(
                self._client,
                limits=self._limits,
                lease=self._lease,
                idle_poll_every=self._flows_idle,
                grace=timedelta(seconds=self._grace),
            )
            runtime.counts = self._counts
            try:
                await runtime.serve()
            except Exception as error:
                log.exception("flows could not be driven on (%s), beginning anew", said(error))
            for drive in list(runtime.active.values()):
                drive.drop("gone")
            await asyncio.sleep(_ANEW)

    async def _drain(self, looks: list[asyncio.Task[None]]) -> None:
        """Claim nothing more, let what runs end, and give back what has not."""
        log.info(
            "worker %s stops", self._core.worker, extra={"event": "stops", "worker": self._core.worker}
        )  # fmt: skip
        drains = [self._end_operations(looks[0]), self._end_looks(looks[1:])]
        if self._runtime is not None:
            drains.append(self._runtime.drain(self._grace))
        for ended in await asyncio.gather(*drains, return_exceptions=True):
            if isinstance(ended, BaseException):
                log.warning("a duty could not end as it should (%s)", said(ended))

    async def _end_operations(self, look: asyncio.Task[None]) -> None:
        assert self._operations is not None
        # what is being claimed just now is to be run, or told that it was not
        await asyncio.wait([look], timeout=self._grace)
        await self._operations.drain(self._grace)

    async def _end_looks(self, looks: list[asyncio.Task[None]]) -> None:
        await asyncio.wait(looks, timeout=_LAST_LOOK)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop; what does not let itself be cancelled is left where it stands."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, left = loop.run_until_complete(asyncio.wait(left, timeout=_LAST_LOOK))
    if left:
        log.warning("%s steps or runs did not let themselves be cancelled and are left", len(left))
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
