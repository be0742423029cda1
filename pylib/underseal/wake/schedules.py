"""What can be done with schedules, and what a worker does with those that are due, as steps."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from underseal.errors import AccessDenied
from underseal.foundation.steps import Row, Steps
from underseal.held.model import Outcome
from underseal.wake import kernel
from underseal.wake.claims import allowed
from underseal.wake.cron import FIRES, ON_TIME, Calendar, Missed, ScheduleRefusedError
from underseal.wake.model import Fired, Schedule, ScheduleOutcome

log = logging.getLogger("underseal.wake")

_RETRY_IN: Final = timedelta(minutes=5)
_PAGE: Final = 1000


def add(
    name: str, flow: str, cron: str, time_zone: str, principal: str | None, value: Any, flow_version: int,
    missed: Missed, as_operator: bool,
) -> Steps[ScheduleOutcome]:  # fmt: skip
    """Add a schedule, or change it."""
    calendar = Calendar.read(cron, time_zone)
    now = yield from kernel.database_clock()
    first_in = calendar.after(now) - now
    row = yield from kernel.add_schedule(
        name,
        flow,
        calendar.cron,
        time_zone,
        first_in,
        principal,
        value,
        flow_version,
        missed,
        now,
        as_operator,
    )
    return _outcome(row)


def list_schedules(principal: str | None, as_operator: bool) -> Steps[list[Schedule]]:
    """Read all schedules of a principal."""
    found: list[Schedule] = []
    while True:
        after = found[-1].name if found else None
        rows = yield from kernel.list_schedules(principal, as_operator, _PAGE, after, None)
        found += [Schedule.from_row(_read(row)) for row in rows]
        if len(rows) < _PAGE:
            return found


def get(name: str, principal: str | None, as_operator: bool) -> Steps[Schedule | None]:
    """Read one schedule."""
    rows = yield from kernel.list_schedules(principal, as_operator, 1, None, name)
    return Schedule.from_row(_read(rows[0])) if rows else None


def _read(row: Row) -> Row:
    if row["outcome"] == "denied":
        raise AccessDenied(row["reason"], row["message"])
    return row


def pause(name: str, principal: str | None, as_operator: bool) -> Steps[ScheduleOutcome]:
    """Pause a schedule."""
    return _outcome((yield from kernel.pause_schedule(name, principal, as_operator)))


def resume(name: str, principal: str | None, as_operator: bool) -> Steps[ScheduleOutcome]:
    """Let a schedule run again, from its next instant on."""
    found = yield from get(name, principal, as_operator)
    if found is None:
        # the database's own answer; one that was added just now is changed since
        now = yield from kernel.database_clock()
        row = yield from kernel.resume_schedule(
            name, principal, timedelta(seconds=1), now, UUID(int=0), as_operator
        )
        return _outcome(row)
    first_in = Calendar.read(found.cron, found.time_zone).after(found.now) - found.now
    row = yield from kernel.resume_schedule(name, principal, first_in, found.now, found.revision, as_operator)
    return _outcome(row)


def remove(name: str, principal: str | None, as_operator: bool) -> Steps[Outcome]:
    """Remove a schedule."""
    row = yield from kernel.remove_schedule(name, principal, as_operator)
    return Outcome(row["outcome"], row["reason"], row["message"])


def _outcome(row: Row) -> ScheduleOutcome:
    return ScheduleOutcome(row["outcome"], row["reason"], row["message"], row["due_at"])


def fire_due_schedules(
    worker: str, lease: timedelta, limit: int, on_time: timedelta = ON_TIME
) -> Steps[list[Fired]]:
    """One pass: claim what is due, start what is to be started, and say when each is due next."""
    rows = yield from kernel.claim_schedules(worker, lease, limit)
    fired: list[Fired] = []
    for row in rows:
        one = yield from _fire(worker, allowed(row), on_time)
        fired.append(one)
    return fired


def _fire(worker: str, row: Row, on_time: timedelta) -> Steps[Fired]:
    name = row["name"]
    try:
        calendar = Calendar.read(row["cron"], row["time_zone"])
        plan = calendar.plan(row["due_at"], row["now"], row["missed"], limit=FIRES, on_time=on_time)
    except ScheduleRefusedError as refusal:
        log.warning("schedule %s was put off: %s", name, refusal)
        done = yield from kernel.put_off_schedule(
            name, worker, row["due_at"], row["revision"], str(refusal), _RETRY_IN
        )
        return Fired(done["outcome"], done["reason"] or refusal.reason, done["message"], name)
    done = yield from kernel.fire_schedule(
        name, worker, row["due_at"], row["revision"], plan.fires, plan.next_in
    )
    if done["outcome"] != "fired":
        log.info("schedule %s was not fired here (%s)", name, done["reason"])
        return Fired(done["outcome"], done["reason"], done["message"], name)
    return Fired("fired", None, None, name, tuple(done["started"]), tuple(done["existing"]), done["next_at"])
