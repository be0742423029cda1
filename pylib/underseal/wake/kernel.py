"""The SQL functions of wakes and schedules, each called from this one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from underseal.foundation.calls import (
    interval_text,
    json_text,
    one_row,
    optional_interval_text,
)
from underseal.foundation.steps import Row, Steps, query


def database_clock() -> Steps[datetime]:
    """The database's clock, by `underseal.clock`."""
    row = yield from one_row("select underseal.clock() as now")
    now: datetime = row["now"]
    return now


# -- claims --------------------------------------------------------------------------------------------


def claim_due(
    worker: str,
    flows: Iterable[str],
    lease: timedelta,
    max_wakes: int,
    versions: Iterable[int | None] | None = None,
) -> Steps[list[Row]]:
    """`underseal.claim_due`."""
    newest = None if versions is None else list(versions)
    return query(
        "select * from underseal.claim_due(%s, %s::text[], %s::interval, %s::integer, %s::integer[])",
        (worker, list(flows), interval_text(lease), max_wakes, newest),
    )


def renew_claims(worker: str, execution_ids: Iterable[str], lease: timedelta) -> Steps[list[Row]]:
    """`underseal.renew_claims`."""
    return query(
        "select * from underseal.renew_claims(%s, %s::text[], %s::interval)",
        (worker, list(execution_ids), interval_text(lease)),
    )


def release_claim(execution_id: str, worker: str, retry_in: timedelta | None) -> Steps[Row]:
    """`underseal.release_claim`."""
    return one_row(
        "select * from underseal.release_claim(%s, %s, %s::interval)",
        execution_id, worker, optional_interval_text(retry_in),
    )  # fmt: skip


def release_claims(worker: str, execution_ids: Iterable[str]) -> Steps[list[Row]]:
    """`underseal.release_claims`."""
    return query("select * from underseal.release_claims(%s, %s::text[])", (worker, list(execution_ids)))


def next_due(flows: Iterable[str], schedules: bool) -> Steps[Row]:
    """`underseal.next_due`."""
    return one_row("select * from underseal.next_due(%s::text[], %s)", list(flows), schedules)


# -- schedules -----------------------------------------------------------------------------------------


def add_schedule(
    name: str, flow: str, cron: str, time_zone: str, first_in: timedelta, principal: str | None, value: Any,
    flow_version: int, missed: str, since: datetime, as_operator: bool,
) -> Steps[Row]:  # fmt: skip
    """`underseal.add_schedule`; since is an instant that the database gave."""
    return one_row(
        "select * from underseal.add_schedule(%s, %s, %s, %s, %s::interval, %s, %s::json, %s::integer, %s,"
        " %s::timestamptz, %s)",
        name, flow, cron, time_zone, interval_text(first_in), principal, json_text(value), flow_version, missed,
        since, as_operator,
    )  # fmt: skip


def list_schedules(
    principal: str | None, as_operator: bool, max_schedules: int, after: str | None, only_name: str | None
) -> Steps[list[Row]]:
    """`underseal.list_schedules`."""
    return query(
        "select * from underseal.list_schedules(%s, %s, %s::integer, %s, %s)",
        (principal, as_operator, max_schedules, after, only_name),
    )


def pause_schedule(name: str, principal: str | None, as_operator: bool) -> Steps[Row]:
    """`underseal.pause_schedule`, to pause."""
    return one_row(
        "select * from underseal.pause_schedule(%s, %s, as_operator => %s)", name, principal, as_operator
    )


def resume_schedule(
    name: str, principal: str | None, first_in: timedelta, since: datetime, revision: UUID, as_operator: bool
) -> Steps[Row]:
    """`underseal.pause_schedule`, to let it run again; since is an instant that the database gave."""
    return one_row(
        "select * from underseal.pause_schedule(%s, %s, false, %s::interval, %s::timestamptz, %s::uuid, %s)",
        name, principal, interval_text(first_in), since, revision, as_operator,
    )  # fmt: skip


def remove_schedule(name: str, principal: str | None, as_operator: bool) -> Steps[Row]:
    """`underseal.remove_schedule`."""
    return one_row("select * from underseal.remove_schedule(%s, %s, %s)", name, principal, as_operator)


def claim_schedules(worker: str, lease: timedelta, max_schedules: int) -> Steps[list[Row]]:
    """`underseal.claim_schedules`."""
    return query(
        "select * from underseal.claim_schedules(%s, %s::interval, %s::integer)",
        (worker, interval_text(lease), max_schedules),
    )


def fire_schedule(
    name: str, worker: str, due_at: datetime, revision: UUID, fires: Sequence[timedelta], next_in: timedelta
) -> Steps[Row]:  # fmt: skip
    """`underseal.fire_schedule`; due_at and revision as they were claimed."""
    return one_row(
        "select * from underseal.fire_schedule(%s, %s, %s::timestamptz, %s::uuid, %s::interval[], %s::interval)",
        name, worker, due_at, revision, [interval_text(one) for one in fires], interval_text(next_in),
    )  # fmt: skip


def put_off_schedule(
    name: str, worker: str, due_at: datetime, revision: UUID, cause: str, retry_in: timedelta
) -> Steps[Row]:  # fmt: skip
    """`underseal.put_off_schedule`; due_at and revision as they were claimed."""
    return one_row(
        "select * from underseal.put_off_schedule(%s, %s, %s::timestamptz, %s::uuid, %s, %s::interval)",
        name, worker, due_at, revision, cause, interval_text(retry_in),
    )  # fmt: skip
