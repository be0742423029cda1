"""What a worker does with due executions, as steps."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from underseal.errors import AccessDenied
from underseal.foundation.steps import Row, Steps
from underseal.held.model import Outcome
from underseal.wake import kernel
from underseal.wake.model import Claim


def allowed(row: Row) -> Row:
    """A row that is no denial and no malformed call.

    Errors:
        AccessDenied: this login may not act for the worker or principal named.
        ValueError: the call was malformed: a lease, a number or a delay out of range.
    """
    if row["outcome"] == "denied":
        raise AccessDenied(row["reason"], row["message"])
    if row["reason"] in ("malformed-claim", "malformed-delay"):
        raise ValueError(row["message"])
    return row


def claim_due(
    worker: str,
    flows: Iterable[str],
    lease: timedelta,
    limit: int,
    versions: Iterable[int | None] | None = None,
) -> Steps[list[Claim]]:
    """Claim what is due."""
    rows = yield from kernel.claim_due(worker, flows, lease, limit, versions)
    return [Claim.from_row(allowed(row)) for row in rows]


def renew_claims(worker: str, execution_ids: Iterable[str], lease: timedelta) -> Steps[dict[str, str]]:
    """Renew claims."""
    rows = yield from kernel.renew_claims(worker, execution_ids, lease)
    return {allowed(row)["execution_id"]: row["outcome"] for row in rows}


def release_claim(worker: str, execution_id: str, retry_in: timedelta | None) -> Steps[Outcome]:
    """Give a claim back."""
    row = allowed((yield from kernel.release_claim(execution_id, worker, retry_in)))
    return Outcome(row["outcome"], row["reason"], row["message"])


def release_claims(worker: str, execution_ids: Iterable[str]) -> Steps[dict[str, str]]:
    """Give claims back."""
    rows = yield from kernel.release_claims(worker, execution_ids)
    return {allowed(row)["execution_id"]: row["outcome"] for row in rows}


def next_due(flows: Iterable[str], schedules: bool) -> Steps[timedelta | None]:
    """How long until something is due."""
    row = yield from kernel.next_due(flows, schedules)
    return None if row["seconds"] is None else timedelta(seconds=row["seconds"])
