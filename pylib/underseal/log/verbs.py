"""What can be done with executions, as steps: the facades only differ in how they carry these out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from underseal.errors import (
    AccessDenied,
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionRefusedError,
)
from underseal.foundation.calls import interval_text, json_text
from underseal.foundation.steps import Row, Steps
from underseal.held.model import Outcome
from underseal.log import kernel
from underseal.log.model import (
    Appended,
    CancelOutcome,
    Compacted,
    Deleted,
    ExecutionInfo,
    FoldView,
    LogEvent,
    LogRead,
    Observed,
    Recorded,
    Start,
)


def allowed(row: Row, op: str, execution_id: str) -> Row:
    """The row, if it is no denial.

    Parameters:
        row: an answer.
        op: what was asked.
        execution_id: of which execution.

    Errors:
        AccessDenied: the login may not act for the principal.
        ExecutionDeniedError: the principal may not, or there is no such execution.
    """
    if row["outcome"] == "denied":
        if row["reason"] == "no-principal":
            raise AccessDenied(row["reason"], row["message"])
        raise ExecutionDeniedError(op, execution_id, row["reason"], row["message"])
    return row


def accepted(row: Row) -> Row:
    """The row, if it is no refusal.

    Errors:
        ExecutionRefusedError: it is.
    """
    if row["outcome"] == "refused":
        raise ExecutionRefusedError(row["reason"], row["message"])
    return row


def outcome_of(row: Row) -> Outcome:
    """The three columns that every answer has."""
    return Outcome(row["outcome"], row["reason"], row["message"])


def start(
    flow: str, principal: str, value: Any, execution_id: str | None, flow_version: int, after: timedelta | None
) -> Steps[str]:  # fmt: skip
    """Start one."""
    _demand_flow(flow)
    row = yield from kernel.start_execution(flow, principal, value, execution_id, flow_version, after)
    if row["outcome"] == "exists":
        raise ExecutionAlreadyExistsError(execution_id or "", row["message"])
    return _made(allowed(row, "start", execution_id or ""), "started")


def start_many(
    flow: str, principal: str, values: Iterable[Any], flow_version: int, after: timedelta | None
) -> Steps[list[Start]]:  # fmt: skip
    """Start many of one flow."""
    _demand_flow(flow)
    common: dict[str, Any] = {"flow": flow, "principal": principal, "flow_version": flow_version}
    if after is not None:
        common["after"] = interval_text(after)
    rows = yield from kernel.start_executions([{**common, "input": value} for value in values])
    if len(rows) == 1 and rows[0]["item"] is None:
        accepted(rows[0])
    return [
        Start(row["outcome"], row["reason"], row["message"], row["execution_id"])
        for row in rows
        if allowed(row, "start", "")
    ]


def _demand_flow(flow: object) -> None:
    if not isinstance(flow, str):
        raise TypeError(f"expected the name of a flow, such as 'onboard', found a {type(flow).__name__}")


def _made(row: Row, outcome: str) -> str:
    """The id of what was made; whatever else was answered must not be mistaken for it."""
    if row["outcome"] != outcome:
        raise ExecutionRefusedError(row["reason"] or row["outcome"], row["message"])
    made: str = row["execution_id"]
    return made


def get(execution_id: str, principal: str | None) -> Steps[ExecutionInfo]:
    """Look at one."""
    row = yield from kernel.get_execution(execution_id, principal)
    return ExecutionInfo.from_row(allowed(row, "read", execution_id))


def list_executions(
    principal: str, statuses: Iterable[str] | None, flow: str | None, limit: int, after: ExecutionInfo | str | None
) -> Steps[list[ExecutionInfo]]:  # fmt: skip
    """Look at a page of them."""
    before = after.cursor if isinstance(after, ExecutionInfo) else after
    wanted = None if statuses is None else list(statuses)
    found: list[ExecutionInfo] = []
    while True:
        rows = yield from kernel.list_executions(principal, wanted, flow, before, limit - len(found))
        for row in rows:
            accepted(allowed(row, "read", ""))
        found += [ExecutionInfo.from_row(row) for row in rows if row["outcome"] == "found"]
        if not rows or rows[-1]["outcome"] != "more":
            return found
        # It has looked at as many as a call may; the wanted ones lie further back.
        before = rows[-1]["cursor"]


def event_of(row: Row, execution_id: str) -> LogEvent:
    """Read a row of `read_events` or `read_all`."""
    return LogEvent(
        execution_id, row["seq"], row["type"], row["data"], row["recorded_at"], row.get("metadata"),
        bool(row.get("sealed")), row.get("cursor"),
    )  # fmt: skip


def events(
    execution_id: str, principal: str | None, after_seq: int, limit: int, capability: Mapping[str, Any] | None
) -> Steps[list[LogEvent]]:  # fmt: skip
    """Read some of a log."""
    rows = yield from kernel.read_events(execution_id, principal, after_seq, limit, capability)
    return [
        event_of(row, execution_id)
        for row in rows
        if allowed(row, "read", execution_id)["outcome"] == "event"
    ]


def read_logs(
    logs: Iterable[tuple[str, int]], limit: int, capability: Mapping[str, Any] | None
) -> Steps[list[LogRead]]:
    """Read some of each of many logs."""
    asked = [{"execution_id": execution_id, "after": after} for execution_id, after in logs]
    found: list[list[LogEvent]] = [[] for _ in asked]
    said: dict[int, Row] = {}
    for row in (yield from kernel.read_logs(asked, limit, capability)):
        place = row["item"] - 1
        if row["outcome"] == "event":
            found[place].append(event_of(row, row["execution_id"]))
        else:
            said[place] = row
    whole = {"outcome": "found", "reason": None, "message": None}
    return [
        LogRead(
            row["outcome"], row["reason"], row["message"], str(asked[place]["execution_id"]), tuple(events)
        )
        for place, events in enumerate(found)
        for row in (said.get(place, whole),)
    ]


def cancel(execution_id: str, principal: str, reason: str | None, force: bool) -> Steps[CancelOutcome]:
    """Cancel."""
    row = yield from kernel.cancel_execution(execution_id, principal, reason, force)
    accepted(allowed(row, "cancel", execution_id))
    return CancelOutcome(row["outcome"], row["reason"], row["message"])


def migrate(execution_id: str, flow_version: int, principal: str) -> Steps[Outcome]:
    """Move to another version."""
    row = yield from kernel.migrate_execution(execution_id, flow_version, principal)
    return outcome_of(accepted(allowed(row, "migrate", execution_id)))


def record_outcome(execution_id: str, outcome: Any, principal: str) -> Steps[Recorded]:
    """Record an outcome."""
    row = yield from kernel.record_outcome(execution_id, outcome, principal)
    accepted(allowed(row, "outcome", execution_id))
    return Recorded(row["outcome"], row["reason"], row["message"], row["seq"])


def fork(execution_id: str, through_seq: int, principal: str, new_id: str | None) -> Steps[str]:
    """Begin another execution from a prefix."""
    row = yield from kernel.fork_execution(execution_id, through_seq, principal, new_id)
    if row["outcome"] == "exists":
        raise ExecutionAlreadyExistsError(new_id or "", row["message"])
    return _made(allowed(row, "fork", execution_id), "forked")


def append(execution_id: str, fence: int, events: Sequence[Mapping[str, Any]]) -> Steps[Appended]:
    """Append under the fence."""
    return Appended.from_row((yield from kernel.append(execution_id, fence, json_text(events))))


def append_if_unchanged(
    execution_id: str, seen: Observed, events: Sequence[Mapping[str, Any]]
) -> Steps[Appended]:
    """Append if nobody has written since."""
    at, fence, incarnation = _observation(seen)
    row = yield from kernel.append_if_unchanged(execution_id, at, fence, incarnation, json_text(events))
    return Appended.from_row(row)


def append_batch(items: Sequence[Mapping[str, Any]]) -> Steps[list[Appended]]:
    """Write to many logs."""
    rows = yield from kernel.append_batch(items)
    return [Appended.from_row(row) for row in rows]


def head(execution_id: str) -> Steps[Observed]:
    """Observe."""
    return Observed.from_row((yield from kernel.head(execution_id)))


def acquire_fence(execution_id: str) -> Steps[Observed]:
    """Take the fence."""
    return Observed.from_row((yield from kernel.acquire_fence(execution_id)))


def acquire_fence_if(execution_id: str, seen: Observed) -> Steps[Observed]:
    """Take the fence if nothing has changed since."""
    at, fence, incarnation = _observation(seen)
    return Observed.from_row((yield from kernel.acquire_fence_if(execution_id, at, fence, incarnation)))


def recover(
    execution_id: str, seen: Observed, worker: str, lease: timedelta, max_recoveries: int
) -> Steps[Observed]:
    """Take over from a driver that is gone."""
    at, fence, incarnation = _observation(seen)
    row = yield from kernel.recover_execution(
        execution_id, at, fence, incarnation, worker, lease, max_recoveries
    )
    return Observed.from_row(row)


def report_divergence(execution_id: str, fence: int, cause: str) -> Steps[Outcome]:
    """Tell operators that a flow's code has left a log behind."""
    return outcome_of((yield from kernel.report_divergence(execution_id, fence, cause)))


def _observation(seen: Observed) -> tuple[int, int, UUID]:
    if seen.head is None or seen.fence is None or seen.incarnation is None:
        raise ValueError(f"expected an observation with head, fence and incarnation, found {seen.outcome}")
    return seen.head, seen.fence, seen.incarnation


def read_all(
    cursor: str | None, limit: int, capability: Mapping[str, Any] | None
) -> Steps[tuple[list[LogEvent], str | None]]:
    """Read on over all logs: the events, and the cursor to go on from."""
    rows = yield from kernel.read_all(cursor, limit, capability)
    found = [
        event_of(row, row["execution_id"])
        for row in rows
        if accepted(allowed(row, "read", ""))["outcome"] == "event"
    ]
    return found, rows[-1]["cursor"] if rows else cursor


def fold_view(execution_id: str, principal: str | None) -> Steps[FoldView]:
    """Read the folded state and what hangs on it."""
    row = allowed((yield from kernel.read_fold(execution_id, principal)), "read", execution_id)
    return FoldView(
        row["fold"],
        row["last_seq"],
        row["log_start"],
        row["current_member"],
        row["last_inbox_seq"],
        tuple(row["line_members"]),
        row["pending_seq"],
        tuple(row["wakes"]),
        row["snapshot_seq"],
        row["snapshot_fold"],
        row["snapshot_sealed"],
    )


def delete_chain(chain_id: str, principal: str) -> Steps[Deleted]:
    """Delete a chain."""
    row = accepted(allowed((yield from kernel.delete_chain(chain_id, principal)), "delete", chain_id))
    return Deleted(row["outcome"], row["reason"], row["message"], chain_id, row["deleted"])


def compact(execution_id: str, before_seq: int, principal: str | None) -> Steps[Compacted]:
    """Truncate a prefix that a snapshot covers."""
    row = allowed(
        (yield from kernel.truncate_prefix(execution_id, before_seq, principal)), "compact", execution_id
    )
    return Compacted(row["outcome"], row["reason"], row["message"], row["log_start"], row["removed"])


def purge(ended_before: timedelta, limit: int) -> Steps[list[Deleted]]:
    """Delete chains that ended long ago."""
    rows = yield from kernel.purge_executions(ended_before, limit)
    return [
        Deleted(row["outcome"], row["reason"], row["message"], row["chain_id"], row["deleted"])
        for row in map(accepted, rows)
    ]


def sweep_denials(limit: int) -> Steps[int]:
    """Forget old denials."""
    swept: int = (yield from kernel.sweep_denials(limit))["swept"]
    return swept


def set_access_policy(hook: str | None) -> Steps[Outcome]:
    """Let a function of the host decide who may what."""
    return outcome_of((yield from kernel.set_access_policy(hook)))


def set_denial_hook(hook: str | None) -> Steps[Outcome]:
    """Let a function of the host hear of denials."""
    return outcome_of((yield from kernel.set_denial_hook(hook)))


def adopt_cursor(cursor: str) -> Steps[str]:
    """Make a cursor of another history one of this log's."""
    adopted: str = accepted((yield from kernel.adopt_cursor(cursor)))["cursor"]
    return adopted


def adopt_log() -> Steps[int]:
    """Make a restored log this cluster's own."""
    adopted: int = (yield from kernel.adopt_log())["adopted"]
    return adopted
