"""The SQL functions of the log, each called from this one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

from underseal.foundation.calls import (
    interval_text,
    json_text,
    one_row,
    optional_interval_text,
    optional_json_text,
)
from underseal.foundation.steps import Row, Steps, query

# -- what callers do -----------------------------------------------------------------------------------


def start_execution(
    flow: str, principal: str | None, value: Any, execution_id: str | None, flow_version: int, after: timedelta | None
) -> Steps[Row]:  # fmt: skip
    """`underseal.start_execution`."""
    return one_row(
        "select * from underseal.start_execution(%s, %s, %s::json, %s, %s::integer, %s::interval)",
        flow, principal, json_text(value), execution_id, flow_version, optional_interval_text(after),
    )  # fmt: skip


def start_executions(starts: Sequence[Mapping[str, Any]]) -> Steps[list[Row]]:
    """`underseal.start_executions`."""
    return query("select * from underseal.start_executions(%s::json)", (json_text(starts),))


def restore_execution(state: str, principal: str | None, execution_id: str | None) -> Steps[Row]:
    """`underseal.restore_execution`; the state as JSON."""
    return one_row(
        "select * from underseal.restore_execution(%s::json, %s, %s)", state, principal, execution_id
    )


def get_execution(execution_id: str, principal: str | None) -> Steps[Row]:
    """`underseal.get_execution`."""
    return one_row("select * from underseal.get_execution(%s, %s)", execution_id, principal)


def list_executions(
    principal: str | None, statuses: Iterable[str] | None, flow: str | None, before: str | None, max_executions: int
) -> Steps[list[Row]]:  # fmt: skip
    """`underseal.list_executions`."""
    return query(
        "select * from underseal.list_executions(%s, %s::text[], %s, %s, %s::integer)",
        (principal, None if statuses is None else list(statuses), flow, before, max_executions),
    )


def read_events(
    execution_id: str, principal: str | None, after_seq: int, max_events: int, capability: Mapping[str, Any] | None
) -> Steps[list[Row]]:  # fmt: skip
    """`underseal.read_events`."""
    return query(
        "select * from underseal.read_events(%s, %s, %s::bigint, %s::integer, %s::jsonb)",
        (execution_id, principal, after_seq, max_events, optional_json_text(capability)),
    )


def cancel_execution(execution_id: str, principal: str | None, reason: str | None, force: bool) -> Steps[Row]:
    """`underseal.cancel_execution`."""
    return one_row(
        "select * from underseal.cancel_execution(%s, %s, %s, %s)", execution_id, principal, reason, force
    )


def migrate_execution(execution_id: str, flow_version: int, principal: str | None) -> Steps[Row]:
    """`underseal.migrate_execution`."""
    return one_row(
        "select * from underseal.migrate_execution(%s, %s::integer, %s)",
        execution_id,
        flow_version,
        principal,
    )


def resume_gate(execution_id: str, gate: str, answer: Any, principal: str | None) -> Steps[Row]:
    """`underseal.resume_gate`."""
    return one_row(
        "select * from underseal.resume_gate(%s, %s, %s::json, %s)",
        execution_id, gate, json_text(answer), principal,
    )  # fmt: skip


def record_outcome(execution_id: str, outcome: Any, principal: str | None) -> Steps[Row]:
    """`underseal.record_outcome`."""
    return one_row(
        "select * from underseal.record_outcome(%s, %s::json, %s)",
        execution_id, json_text(outcome), principal,
    )  # fmt: skip


def fork_execution(
    execution_id: str, through_seq: int, principal: str | None, new_id: str | None
) -> Steps[Row]:
    """`underseal.fork_execution`."""
    return one_row(
        "select * from underseal.fork_execution(%s, %s::bigint, %s, %s)",
        execution_id, through_seq, principal, new_id,
    )  # fmt: skip


# -- what a driver does --------------------------------------------------------------------------------


def append(execution_id: str, fence: int, events: str) -> Steps[Row]:
    """`underseal.append`; `events` is a JSON array."""
    return one_row("select * from underseal.append(%s, %s::bigint, %s::json)", execution_id, fence, events)


def append_if_unchanged(
    execution_id: str, head: int, fence: int, incarnation: UUID, events: str
) -> Steps[Row]:
    """`underseal.append_if_unchanged`; `events` is a JSON array."""
    return one_row(
        "select * from underseal.append_if_unchanged(%s, %s::bigint, %s::bigint, %s, %s::json)",
        execution_id, head, fence, incarnation, events,
    )  # fmt: skip


def append_batch(items: Sequence[Mapping[str, Any]]) -> Steps[list[Row]]:
    """`underseal.append_batch`; an item is what batch.py makes."""
    return write_batch(json_text(items), "*")


def write_batch(
    items: str, columns: LiteralString = "outcome, reason, message, head, fence, cancel_requested"
) -> Steps[list[Row]]:
    """`underseal.append_batch`, of items that are a JSON array already; without what their order tells the caller."""
    return query(f"select {columns} from underseal.append_batch(%s::json)", (items,))


def read_logs(
    logs: Sequence[Mapping[str, Any]], max_events: int, capability: Mapping[str, Any] | None
) -> Steps[list[Row]]:
    """`underseal.read_logs`; a log is `{"execution_id", "after"}`."""
    return query(
        "select * from underseal.read_logs(%s::json, %s::integer, %s::jsonb)",
        (json_text(logs), max_events, optional_json_text(capability)),
    )


def acquire_fence(execution_id: str) -> Steps[Row]:
    """`underseal.acquire_fence`."""
    return one_row("select * from underseal.acquire_fence(%s)", execution_id)


def acquire_fence_if(execution_id: str, head: int, fence: int, incarnation: UUID) -> Steps[Row]:
    """`underseal.acquire_fence_if`."""
    return one_row(
        "select * from underseal.acquire_fence_if(%s, %s::bigint, %s::bigint, %s)",
        execution_id, head, fence, incarnation,
    )  # fmt: skip


def head(execution_id: str) -> Steps[Row]:
    """`underseal.head`."""
    return one_row("select * from underseal.head(%s)", execution_id)


def recover_execution(
    execution_id: str, at: int, fence: int, incarnation: UUID, worker: str, lease: timedelta, max_recoveries: int
) -> Steps[Row]:  # fmt: skip
    """`underseal.recover_execution`; `at` is the head that was observed."""
    return one_row(
        "select * from underseal.recover_execution(%s, %s::bigint, %s::bigint, %s, %s, %s::interval, %s::integer)",
        execution_id, at, fence, incarnation, worker, interval_text(lease), max_recoveries,
    )  # fmt: skip


def report_divergence(execution_id: str, fence: int, cause: str) -> Steps[Row]:
    """`underseal.report_divergence`."""
    return one_row(
        "select * from underseal.report_divergence(%s, %s::bigint, %s)", execution_id, fence, cause
    )


def read_all(cursor: str | None, max_events: int, capability: Mapping[str, Any] | None) -> Steps[list[Row]]:
    """`underseal.read_all`."""
    return query(
        "select * from underseal.read_all(%s, %s::integer, %s::jsonb)",
        (cursor, max_events, optional_json_text(capability)),
    )


# -- what operators do ---------------------------------------------------------------------------------


def read_fold(execution_id: str, principal: str | None) -> Steps[Row]:
    """`underseal.read_fold`."""
    return one_row("select * from underseal.read_fold(%s, %s)", execution_id, principal)


def delete_chain(chain_id: str, principal: str | None) -> Steps[Row]:
    """`underseal.delete_chain`."""
    return one_row("select * from underseal.delete_chain(%s, %s)", chain_id, principal)


def truncate_prefix(execution_id: str, before_seq: int, principal: str | None) -> Steps[Row]:
    """`underseal.truncate_prefix`."""
    return one_row(
        "select * from underseal.truncate_prefix(%s, %s::bigint, %s)", execution_id, before_seq, principal
    )


def purge_executions(ended_before: timedelta, max_chains: int) -> Steps[list[Row]]:
    """`underseal.purge_executions`."""
    return query(
        "select * from underseal.purge_executions(%s::interval, %s::integer)",
        (interval_text(ended_before), max_chains),
    )


def sweep_denials(max_denials: int) -> Steps[Row]:
    """`underseal.sweep_denials`."""
    return one_row("select * from underseal.sweep_denials(%s::integer)", max_denials)


# -- what the schema's owner does ----------------------------------------------------------------------


def set_access_policy(hook: str | None) -> Steps[Row]:
    """`underseal.set_access_policy`."""
    return one_row("select * from underseal.set_access_policy(%s)", hook)


def set_denial_hook(hook: str | None) -> Steps[Row]:
    """`underseal.set_denial_hook`."""
    return one_row("select * from underseal.set_denial_hook(%s)", hook)


def adopt_cursor(cursor: str) -> Steps[Row]:
    """`underseal.adopt_cursor`."""
    return one_row("select * from underseal.adopt_cursor(%s)", cursor)


def adopt_log() -> Steps[Row]:
    """`underseal.adopt_log`."""
    return one_row("select * from underseal.adopt_log()")
