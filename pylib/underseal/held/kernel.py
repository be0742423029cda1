"""The SQL functions of held operations, each called from this one place."""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from underseal.foundation.steps import Row, Steps, query


def _one(sql: str, *params: Any) -> Steps[Row]:
    rows = yield from query(sql, params)
    return rows[0]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def register_operation_type(
    type: str, version: int, mode: str, parameters: str, policy: str, salted: bool
) -> Steps[Row]:
    """`underseal.register_operation_type`."""
    return _one(
        "select * from underseal.register_operation_type(%s, %s, %s, %s::jsonb, %s::jsonb, %s)",
        type, version, mode, parameters, policy, salted,
    )  # fmt: skip


def register_sql_operation(
    type: str, version: int, parameters: str, policy: str, functions: Sequence[str], safe: Sequence[str]
) -> Steps[Row]:
    """`underseal.register_sql_operation`; functions are estimate, check_run and run."""
    return _one(
        "select * from underseal.register_sql_operation(%s, %s, %s::jsonb, %s::jsonb,"
        " %s::regprocedure, %s::regprocedure, %s::regprocedure, %s::text[])",
        type, version, parameters, policy, *functions, list(safe),
    )  # fmt: skip


def list_operation_types() -> Steps[list[Row]]:
    """`underseal.list_operation_types`."""
    return query("select * from underseal.list_operation_types()")


def set_armed(type: str, version: int, armed: bool, principal: str | None) -> Steps[Row]:
    """`underseal.set_armed`."""
    return _one("select * from underseal.set_armed(%s, %s, %s, %s)", type, version, armed, principal)


def role_of(principal: str) -> Steps[Row]:
    """`underseal.role_of`."""
    return _one("select * from underseal.role_of(%s)", principal)


def begin_request(type: str, version: int, principal: str) -> Steps[Row]:
    """`underseal.begin_request`."""
    return _one("select * from underseal.begin_request(%s, %s, %s)", type, version, principal)


def request_operation(arguments: Mapping[str, Any]) -> Steps[Row]:
    """`underseal.request_operation`, by the names of its arguments."""
    sealed = {**arguments, "sealed_payload": _json(arguments["sealed_payload"])}
    rows = yield from query(
        "select * from underseal.request_operation(operation_id => %(operation_id)s, type => %(type)s,"
        " version => %(version)s, params_hash => %(params_hash)s, principal => %(principal)s,"
        " auth_kind => %(auth_kind)s, token_id => %(token_id)s, policy_digest => %(policy_digest)s,"
        " state_key => %(state_key)s, effect => %(effect)s, redacted => %(redacted)s,"
        " sealed_payload => %(sealed_payload)s::jsonb, fingerprint => %(fingerprint)s,"
        " fingerprint_key_id => %(fingerprint_key_id)s, older_fingerprints => %(older_fingerprints)s::bytea[])",
        sealed,
    )
    return rows[0]


def await_operation(operation_id: UUID, execution_id: str, fence: int) -> Steps[Row]:
    """`underseal.await_operation`."""
    return _one("select * from underseal.await_operation(%s, %s, %s)", operation_id, execution_id, fence)


def get_operation(operation_id: UUID, principal: str) -> Steps[Row]:
    """`underseal.get_operation`."""
    return _one("select * from underseal.get_operation(%s, %s)", operation_id, principal)


def list_operations(
    principal: str, states: Iterable[str] | None, max_rows: int, after_id: UUID | None
) -> Steps[list[Row]]:
    """`underseal.list_operations`."""
    return query(
        "select * from underseal.list_operations(%s, %s::text[], %s, %s)",
        (principal, None if states is None else list(states), max_rows, after_id),
    )


def list_events(operation_id: UUID, principal: str) -> Steps[list[Row]]:
    """`underseal.list_events`."""
    return query("select * from underseal.list_events(%s, %s)", (operation_id, principal))


def vote(
    operation_id: UUID, principal: str, decision: str, note: str | None, params_hash: bytes, row_version: int,
    sealed_decision: Mapping[str, Any],
) -> Steps[Row]:  # fmt: skip
    """`underseal.vote`."""
    return _one(
        "select * from underseal.vote(%s, %s, %s, %s, %s, %s::bigint, %s::jsonb)",
        operation_id, principal, decision, note, params_hash, row_version, _json(sealed_decision),
    )  # fmt: skip


def cancel_operation(operation_id: UUID, principal: str, note: str | None, as_operator: bool) -> Steps[Row]:
    """`underseal.cancel_operation`."""
    return _one(
        "select * from underseal.cancel_operation(%s, %s, %s, %s)", operation_id, principal, note, as_operator
    )


def claim_runs(
    worker: str,
    types: Sequence[tuple[str, int]],
    key_ids: Sequence[str],
    max_runs: int,
    operation_id: UUID | None,
) -> Steps[list[Row]]:
    """`underseal.claim_runs`; `types` are pairs of type and version."""
    return query(
        "select * from underseal.claim_runs(%s, %s::text[], %s::integer[], %s::text[], %s, %s)",
        (worker, [one for one, _ in types], [two for _, two in types], list(key_ids), max_runs, operation_id),
    )


def claim_resubmission(
    operation_id: UUID, principal: str, auth_kind: str, token_id: str | None, worker: str,
    types: Sequence[tuple[str, int]], key_ids: Sequence[str],
) -> Steps[Row]:  # fmt: skip
    """`underseal.claim_resubmission`."""
    return _one(
        "select * from underseal.claim_resubmission(%s, %s, %s, %s, %s, %s::text[], %s::integer[], %s::text[])",
        operation_id, principal, auth_kind, token_id, worker,
        [one for one, _ in types], [two for _, two in types], list(key_ids),
    )  # fmt: skip


def renew_run(operation_id: UUID, run_token: bytes) -> Steps[Row]:
    """`underseal.renew_run`."""
    return _one("select * from underseal.renew_run(%s, %s)", operation_id, run_token)


def record_progress(operation_id: UUID, run_token: bytes, note: str) -> Steps[Row]:
    """`underseal.record_progress`."""
    return _one("select * from underseal.record_progress(%s, %s, %s)", operation_id, run_token, note)


def issue_ticket(operation_id: UUID, run_token: bytes) -> Steps[Row]:
    """`underseal.issue_ticket`."""
    return _one("select * from underseal.issue_ticket(%s, %s)", operation_id, run_token)


def consume_ticket(operation_id: UUID, ticket: bytes, principal: str) -> Steps[Row]:
    """`underseal.consume_ticket`."""
    return _one("select * from underseal.consume_ticket(%s, %s, %s)", operation_id, ticket, principal)


def finish_run(
    operation_id: UUID,
    run_token: bytes,
    state: str,
    reason: str | None,
    detail: str | None,
    result: str | None,
) -> Steps[Row]:
    """`underseal.finish_run`; `result` is JSON text."""
    return _one(
        "select * from underseal.finish_run(%s, %s, %s, %s, %s, %s::jsonb)",
        operation_id, run_token, state, reason, detail, result,
    )  # fmt: skip


def sweep_operations(max_rows: int) -> Steps[list[Row]]:
    """`underseal.sweep_operations`."""
    return query("select * from underseal.sweep_operations(%s)", (max_rows,))


def report_unserved(
    worker: str, types: Sequence[tuple[str, int]], key_ids: Sequence[str]
) -> Steps[list[Row]]:
    """`underseal.report_unserved`."""
    return query(
        "select * from underseal.report_unserved(%s, %s::text[], %s::integer[], %s::text[])",
        (worker, [one for one, _ in types], [two for _, two in types], list(key_ids)),
    )


def register_consumer(consumer: str, from_start: bool) -> Steps[Row]:
    """`underseal.register_consumer`."""
    return _one("select * from underseal.register_consumer(%s, %s)", consumer, from_start)


def drop_consumer(consumer: str) -> Steps[Row]:
    """`underseal.drop_consumer`."""
    return _one("select * from underseal.drop_consumer(%s)", consumer)


def read_outbox(consumer: str, max_events: int) -> Steps[list[Row]]:
    """`underseal.read_outbox`."""
    return query("select * from underseal.read_outbox(%s, %s)", (consumer, max_events))


def ack_outbox(consumer: str, position: int) -> Steps[Row]:
    """`underseal.ack_outbox`."""
    return _one("select * from underseal.ack_outbox(%s, %s::bigint)", consumer, position)


def list_rewrap(
    payload_key: str | None, decision_key: str | None, fingerprint_key: str | None, max_rows: int
) -> Steps[list[Row]]:
    """`underseal.list_rewrap`; the keys are those that seal now."""
    return query(
        "select * from underseal.list_rewrap(%s, %s, %s, %s)",
        (payload_key, decision_key, fingerprint_key, max_rows),
    )


def rewrap_operation(
    operation_id: UUID, before: Mapping[str, Any], after: Mapping[str, Any], fingerprint: bytes, key_id: str
) -> Steps[Row]:
    """`underseal.rewrap_operation`."""
    return _one(
        "select * from underseal.rewrap_operation(%s, %s::jsonb, %s::jsonb, %s, %s)",
        operation_id, _json(before), _json(after), fingerprint, key_id,
    )  # fmt: skip


def rewrap_vote(
    operation_id: UUID, approver: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Steps[Row]:
    """`underseal.rewrap_vote`."""
    return _one(
        "select * from underseal.rewrap_vote(%s, %s, %s::jsonb, %s::jsonb)",
        operation_id, approver, _json(before), _json(after),
    )  # fmt: skip


def list_key_ids() -> Steps[list[Row]]:
    """`underseal.list_key_ids`."""
    return query("select * from underseal.list_key_ids()")
