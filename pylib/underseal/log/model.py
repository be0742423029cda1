"""What executions are made of, as a caller and a driver see them: small immutable values."""

# `type` is what the column is called, in SQL and here.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from underseal.held.model import Outcome

Status = Literal["pending", "running", "suspended", "completed", "failed", "cancelled", "continued"]

ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "continued"})
"""The statuses that nothing follows."""

ENDING: frozenset[str] = frozenset(
    {"EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELLED", "EXECUTION_CONTINUED"}
)
"""The event types that lead to them."""


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """One execution as somebody may see it.

    Attributes:
        execution_id: its id.
        flow, flow_version: what drives it.
        owner: the principal it belongs to; None where the log does not tell.
        status: `pending`, `running`, `suspended`, `completed`, `failed`, `cancelled` or `continued`.
        head: number of its last event.
        log_start: lowest number above 0 that is kept; what lies between was compacted.
        waits: what it waits for, `{"wait": id, "arms": [{"topic": name} or {"due": instant}]}` each, in park order.
        cancel_requested: somebody asked that it be cancelled.
        continued_by: the execution that goes on in its place; None for none.
        started_at, changed_at: database instants.
        incarnation: tells it from an earlier execution of the same id.
        cursor: where a list goes on after it; None from `get`.
    """

    execution_id: str
    flow: str
    flow_version: int
    owner: str | None
    status: Status
    head: int
    log_start: int
    waits: tuple[Mapping[str, Any], ...]
    cancel_requested: bool
    continued_by: str | None
    started_at: datetime
    changed_at: datetime
    incarnation: UUID
    cursor: str | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `get_execution` or `list_executions`."""
        known = {one.name: row[one.name] for one in fields(cls) if one.name in row}
        return cls(**{**known, "waits": tuple(row["waits"] or ())})

    @property
    def ended(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event of an execution's log.

    Attributes:
        execution_id: whose.
        seq: its number, from 0 and without a gap within an execution.
        type: what happened.
        data: in detail; None where it is sealed and does not open here. In no repr: it holds payloads.
        recorded_at: database instant.
        metadata: what the kernel notes beside it, the seal marker for instance; None mostly.
        sealed: whether this is a stub in place of an event that does not open here (clause M18).
        cursor: from `follow_all`, where to go on after it.
    """

    execution_id: str
    seq: int
    type: str
    data: Mapping[str, Any] | None = field(repr=False)
    recorded_at: datetime
    metadata: Mapping[str, Any] | None = None
    sealed: bool = False
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Start(Outcome):
    """What became of one of many starts.

    Attributes:
        outcome: `started` or `refused` (`malformed-flow`, `malformed-delay`, `too-large`, `envelope`, `unreadable`).
        execution_id: its id; None where it was not started.
    """

    execution_id: str | None = None


@dataclass(frozen=True, slots=True)
class LogRead(Outcome):
    """What was read of one of many logs.

    Attributes:
        outcome: `found`; `denied` (it holds what does not open here); `not-found`.
        execution_id: whose.
        events: what came after the number asked for; none where there is nothing new.
    """

    execution_id: str = ""
    events: tuple[LogEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelOutcome(Outcome):
    """What became of a wish to cancel.

    Attributes:
        outcome: `cancelled` (it has ended), `requested` (its driver cleans up and ends it), `unchanged` (that was
            asked before) or `conflict` (`ended`).
    """


@dataclass(frozen=True, slots=True)
class Recorded(Outcome):
    """What became of recording an outcome.

    Attributes:
        outcome: `recorded`.
        seq: number of the event.
    """

    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted(Outcome):
    """What became of compacting a log.

    Attributes:
        outcome: `truncated`; `unchanged` (nothing below was left but number 0); `refused` (`no-snapshot`,
            `beyond-head`).
        log_start: the lowest number above 0 that is kept.
        removed: how many events went.
    """

    log_start: int | None = None
    removed: int | None = None


@dataclass(frozen=True, slots=True)
class Deleted(Outcome):
    """What became of deleting a chain.

    Attributes:
        outcome: `deleted` or `purged`; `conflict` (`open`).
        chain_id: the chain.
        deleted: how many executions went.
    """

    chain_id: str | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class Observed(Outcome):
    """An execution as a driver observes it, or what became of taking its fence.

    Attributes:
        outcome: `found`; `acquired`, `recovered`; `not-found`; `conflict` (`moved`, `gone`, `stale-fence`,
            `not-running`, `ended`); `refused` (`exhausted`).
        head: number of its last event.
        fence: the fence in force; after `acquired` and `recovered` the caller's own.
        incarnation: which execution of this id.
        status: its status.
    """

    head: int | None = None
    fence: int | None = None
    incarnation: UUID | None = None
    status: Status | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `head`, `acquire_fence`, `acquire_fence_if` or `recover_execution`."""
        return cls(**{one.name: row.get(one.name) for one in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Appended(Outcome):
    """What became of one write to a log.

    Attributes:
        outcome: `started`, `appended`, `parked`, `answered` (parked, and a wait was answered at once), `completed`,
            `failed`, `cancelled`, `continued`; `exists`; `not-found`; `conflict`; `refused`; `denied`.
        item: its place in the batch, from 1.
        execution_id, status, head, fence, cancel_requested: the execution as it is now; None where there is none.
    """

    item: int = 1
    execution_id: str | None = None
    status: Status | None = None
    head: int | None = None
    fence: int | None = None
    cancel_requested: bool | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `append`, `append_if_unchanged` or `append_batch`."""
        return cls(**{one.name: row[one.name] for one in fields(cls)})

    @property
    def done(self) -> bool:
        """Whether it was written."""
        return self.reason is None and self.outcome not in {"exists", "not-found"}


@dataclass(frozen=True, slots=True)
class FoldView:
    """What `verify` compares with the log: an execution's folded state and what hangs on it; no payload.

    Attributes:
        fold: as docs/log.md says it, from the tables.
        last_seq: number of the last event in the log, whatever `head` says; None for an empty log.
        log_start: lowest number above 0 that is kept.
        current_member: of the line's first row: who goes on with the line; None for that row itself.
        last_inbox_seq: of the line's first row: the last number given to a message.
        line_members: the line's members that exist, in the order in which they continue each other.
        pending_seq: number of the line's last waiting message; None for none.
        wakes: kind, whether it is claimed, and `wake_at` in microseconds since 1970.
        snapshot_seq, snapshot_fold: the newest snapshot and what the log folded to there; None for none.
        snapshot_sealed: whether its state is an envelope.
    """

    fold: Mapping[str, Any]
    last_seq: int | None
    log_start: int
    current_member: str | None
    last_inbox_seq: int | None
    line_members: tuple[str, ...]
    pending_seq: int | None
    wakes: tuple[Mapping[str, Any], ...]
    snapshot_seq: int | None
    snapshot_fold: Mapping[str, Any] | None
    snapshot_sealed: bool
