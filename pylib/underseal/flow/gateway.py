"""Every call that drives flows, in one place: what a simulation replaces, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from underseal.errors import ExecutionFailed
from underseal.flow.replay import End, EndKind
from underseal.foundation.calls import json_text
from underseal.foundation.steps import Row, Steps
from underseal.held import kernel as held
from underseal.inbox import kernel as inbox
from underseal.inbox import verbs as inbox_verbs
from underseal.log import kernel, verbs
from underseal.log.model import CancelOutcome, Observed
from underseal.snapshot import kernel as snapshots
from underseal.wake import claims
from underseal.wake import kernel as wake
from underseal.wake.model import Claim

_ENDS: Final[dict[str, EndKind]] = {
    "EXECUTION_COMPLETED": "completed",
    "EXECUTION_FAILED": "failed",
    "EXECUTION_CANCELLED": "cancelled",
    "EXECUTION_CONTINUED": "continued",
}

Perform = Callable[[Steps[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The calls of one worker.

    Attributes:
        perform: carries steps out.
        worker: the name under which it claims, one that no other process and no earlier life of this one has.
        lease: how long a claim holds.
    """

    perform: Perform
    worker: str
    lease: timedelta

    async def write(self, items: Sequence[str]) -> list[Row]:
        """Write a batch of items, each as JSON."""
        rows: list[Row] = await self.perform(kernel.write_batch(f"[{','.join(items)}]"))
        return rows

    async def claim(self, flows: Sequence[str], versions: Sequence[int], limit: int) -> list[Claim]:
        """Claim what is due, of the flows up to these versions."""
        found: list[Claim] = await self.perform(
            claims.claim_due(self.worker, flows, self.lease, limit, versions)
        )
        return found

    async def renew(self, execution_ids: Iterable[str]) -> dict[str, str]:
        """Renew claims: what became of each."""
        said: dict[str, str] = await self.perform(claims.renew_claims(self.worker, execution_ids, self.lease))
        return said

    async def release(self, execution_ids: Iterable[str]) -> None:
        """Give claims back."""
        await self.perform(claims.release_claims(self.worker, execution_ids))

    async def put_off(self, execution_id: str, retry_in: timedelta) -> None:
        """Give one back that nobody should take for a while."""
        await self.perform(claims.release_claim(self.worker, execution_id, retry_in))

    async def deliver(self, items: Sequence[dict[str, Any]]) -> list[Row]:
        """Deliver to executions: `execution_id` and `fence` each."""
        rows: list[Row] = await self.perform(inbox.deliver_batch(items))
        return rows

    async def read(self, logs: Sequence[dict[str, Any]], most: int) -> list[Row]:
        """Read logs: `execution_id`, `after`, and `snapshot` where one is wanted; at most so many events of each."""
        rows: list[Row] = await self.perform(kernel.read_logs(logs, most, None))
        return rows

    async def save_snapshot(self, execution_id: str, fence: int, seq: int, state: str) -> Row:
        """Save a flow's state, as JSON, as of an event."""
        row: Row = await self.perform(snapshots.save_snapshot(execution_id, fence, seq, state))
        return row

    async def head(self, execution_id: str) -> Observed:
        """An execution as it is."""
        seen: Observed = await self.perform(verbs.head(execution_id))
        return seen

    async def end(self, execution_id: str) -> End | None:
        """How an execution ended; None while it has not.

        Errors:
            ExecutionFailed: there is none.
        """
        seen = await self.head(execution_id)
        if seen.outcome != "found" or seen.head is None:
            raise ExecutionFailed(execution_id, "not-found", None)
        if seen.status not in ("completed", "failed", "cancelled", "continued"):
            return None
        after = seen.head
        while True:
            after = max(-1, after - 100)
            for row in await self.read([{"execution_id": execution_id, "after": after}], 100):
                kind = _ENDS.get(row["type"] or "")
                if kind is not None:
                    return End(kind, json_text(row["data"].get("output", row["data"].get("error"))))
            if after < 0:
                raise ExecutionFailed(execution_id, str(seen.status), None)

    async def refence(self, execution_id: str, seen: Observed) -> Observed:
        """Take the fence anew, if it is as it was seen."""
        got: Observed = await self.perform(verbs.acquire_fence_if(execution_id, seen))
        return got

    async def recover(self, claim: Claim, most: int) -> Observed:
        """Take over from a driver that is gone."""
        seen = Observed("found", None, None, claim.head, claim.fence, claim.incarnation)
        got: Observed = await self.perform(
            verbs.recover(claim.execution_id, seen, self.worker, self.lease, most)
        )
        return got

    async def report_divergence(self, execution_id: str, fence: int, cause: str) -> None:
        """Tell operators that a flow's code does not match its log."""
        await self.perform(kernel.report_divergence(execution_id, fence, cause))

    async def now(self) -> datetime:
        """The database's clock."""
        instant: datetime = await self.perform(wake.database_clock())
        return instant

    async def await_operation(self, operation_id: UUID, execution_id: str, fence: int) -> Row:
        """Have the end of a held operation sent to an execution."""
        row: Row = await self.perform(held.await_operation(operation_id, execution_id, fence))
        return row

    async def cancel(self, execution_id: str, principal: str) -> CancelOutcome:
        """Cancel an execution in its owner's name."""
        said: CancelOutcome = await self.perform(
            verbs.cancel(execution_id, principal, "the flow that started it was cancelled", False)
        )
        return said

    async def expire(self, limit: int) -> int:
        """Remove messages whose time is over."""
        count: int = await self.perform(inbox_verbs.expire(limit))
        return count
