"""The duty of approved operations: claims what this process can run, and runs it (clauses H5.3, H8.1, H8.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from underseal.foundation.steps import Steps
from underseal.held import verbs
from underseal.held.claim import Claim
from underseal.held.model import RunReport
from underseal.held.pace import Pace
from underseal.held.run import abandon, claim_approved, run_claimed, run_next_sql
from underseal.worker.connections import Line
from underseal.worker.duty import Duty, Tell, said

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

log = logging.getLogger("underseal.worker")

_REPORT_EVERY: Final = 60.0  # seconds between two reports of what nothing here can run
_SQL_EVERY: Final = 30.0  # seconds after which it is asked again whether SQL functions do any type
_LAST_WORDS: Final = 5.0  # seconds to record that the outcome of a run is unknown, once the grace is over


class Operations(Duty):
    """Runs approved operations, a bounded number at once.

    Attributes:
        ended: how many runs have ended here, by outcome.
    """

    what = "approved operations"

    def __init__(
        self, client: Underseal | AsyncUnderseal, line: Line, pace: Pace, concurrency: int, tell: Tell
    ) -> None:  # fmt: skip
        """Prepare it.

        Parameters:
            client: runs them: its connections, keys and gated methods.
            line: for looks.
            pace: of looks.
            concurrency: most runs at once.
            tell: called when a run has ended, which a flow may wait for.
        """
        super().__init__(client._core.worker, pace)
        self._client = client
        self._core = client._core
        self._line = line
        self._concurrency = concurrency
        self._tell = tell
        self._tasks: set[asyncio.Task[None]] = set()
        self._mine: set[UUID] = set()
        self._report_due = 0.0
        self._sql_due = 0.0
        self.ended: dict[str, int] = {}

    @property
    def under_way(self) -> int:
        """How many run now."""
        return len(self._tasks)

    async def look(self) -> float:
        """Claim what can be run here, and start it."""
        found = await self._claim()
        await self._report()
        return self.pace.worked() if found else self.pace.idled()

    async def _claim(self) -> int:
        free = self._concurrency - len(self._tasks)
        if free <= 0 or self._core.rebuild is None:
            return 0
        claims = await self._line.perform(claim_approved(self._core, free))
        for claim in claims:
            self._mine.add(claim.run_id)
            self._start(self._run(claim))
        if len(claims) < free and self._core.serve_sql and await self._has_sql():
            self._start(self._run_sql())
        return len(claims)

    async def _has_sql(self) -> bool:
        """Whether there are types that SQL functions do; where there were none, that is believed for a while."""
        now = asyncio.get_running_loop().time()
        if now < self._sql_due:
            return False
        if await self._line.perform(self._core.sql_kinds()):
            return True
        self._sql_due = now + _SQL_EVERY
        return False

    async def _run(self, claim: Claim) -> None:
        assert self._core.rebuild is not None
        report = await self._perform(run_claimed(self._core, claim, self._core.rebuild))
        self._mine.discard(claim.run_id)
        self._has_ended(report)

    async def _run_sql(self) -> None:
        while not self.stopping and (report := await self._perform(run_next_sql(self._core))) is not None:
            self._has_ended(report)

    def _has_ended(self, report: RunReport) -> None:
        self.ended[report.outcome] = self.ended.get(report.outcome, 0) + 1
        log.info(
            "operation %s: %s", report.operation_id, report.message or report.outcome,
            extra={
                "operation_id": str(report.operation_id), "outcome": report.outcome, "reason": report.reason,
            },
        )  # fmt: skip
        self.nudge()
        self._tell()

    async def _report(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._report_due:
            return
        self._report_due = now + _REPORT_EVERY
        for operation_id, message in await self._line.perform(verbs.unserved(self._core)):
            log.warning(
                "%s", message, extra={"operation_id": str(operation_id), "outcome": "unserved"}
            )  # fmt: skip

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 -- one run's error ends no worker
            log.warning("a run could not be carried to its end here (%s); its lease will tell", said(error))

    async def drain(self, grace: float) -> None:
        """Wait for what runs; of what does not end in time, say that nobody knows (clause H8.2).

        Parameters:
            grace: seconds that runs may take.
        """
        if self._tasks:
            log.info(
                "worker %s stops; %s under way may take %s s", self.worker, len(self._tasks), grace
            )  # fmt: skip
            await asyncio.wait(self._tasks, timeout=grace)
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
                            handle.claim.operation_id, said(error))  # fmt: skip

    async def _perform(self, steps: Steps[Any]) -> Any:
        return await self._client._perform(steps)
