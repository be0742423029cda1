"""What wakes and schedules are made of, as a worker or an embedder sees them: small immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, cast
from uuid import UUID

from underseal.foundation.steps import Row
from underseal.held.model import Outcome
from underseal.wake.cron import Missed

Kind = Literal["drive", "timer", "inbox"]


@dataclass(frozen=True, slots=True)
class Claim:
    """An execution that this worker has claimed, with the fence it took.

    Attributes:
        kind: what was due: `drive` (a start, or a run whose driver is gone), `timer` or `inbox`.
        execution_id: which execution.
        flow, flow_version: what drives it.
        status: `pending`, `running` or `suspended`.
        head: number of its last event.
        fence: the new fence, under which this worker writes.
        incarnation: tells it from another execution of the same id.
        attempts: how often this wake has been claimed since it came to be or was given back, this time included; at
            more than one, whoever claimed it before is gone.
        wake_at: since when it was due.
        cancel_requested: somebody asked that it be cancelled.
    """

    kind: Kind
    execution_id: str
    flow: str
    flow_version: int
    status: str
    head: int
    fence: int
    incarnation: UUID
    attempts: int
    wake_at: datetime
    cancel_requested: bool

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """From a row of `claim_due`."""
        return cls(
            row["kind"], row["execution_id"], row["flow"], row["flow_version"], row["status"], row["head"],
            row["fence"], row["incarnation"], row["attempts"], row["wake_at"], row["cancel_requested"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schedule:
    """A flow that starts again and again.

    Attributes:
        name: its name; its executions are called `name@2026-11-30T16:20:05Z`.
        flow, flow_version: what is started.
        value: the input of each execution.
        owner: the owner of each execution.
        cron, time_zone: when, and in which zone that is read.
        missed: what becomes of instants that no worker was there for.
        paused: whether it starts nothing for now.
        due_at: when it is due next; None while it is paused.
        last_id: the execution started last; None for none.
        revision: another one with every change.
        created_at, changed_at: when it was added, and last changed.
        now: the database's clock when this was read.
    """

    name: str
    flow: str
    flow_version: int
    value: Any
    owner: str
    cron: str
    time_zone: str
    missed: Missed
    paused: bool
    due_at: datetime | None
    last_id: str | None
    revision: UUID
    created_at: datetime
    changed_at: datetime
    now: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """From a row of `list_schedules`."""
        return cls(
            row["name"], row["flow"], row["flow_version"], row["input"], row["owner"], row["cron"], row["time_zone"],
            cast(Missed, row["missed"]), row["paused"], row["due_at"], row["last_id"], row["revision"],
            row["created_at"], row["changed_at"], row["now"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScheduleOutcome(Outcome):
    """What became of a call about a schedule.

    Attributes:
        outcome: `added`, `changed`, `unchanged`, `paused`, `resumed`, `conflict`, `refused`, `not-found` or `denied`.
        due_at: when it is due next; None while it is paused, and where the answer is a no.
    """

    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fired(Outcome):
    """What became of one due schedule in one pass.

    Attributes:
        outcome: `fired`; `put-off` (this worker cannot read its expression or zone; operators are told); `conflict`
            (it was changed, or another worker has it by now); `refused`.
        name: which schedule.
        started: ids of the executions that were started.
        existing: ids that were there already.
        next_at: when it is due next.
    """

    name: str = ""
    started: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    next_at: datetime | None = None
