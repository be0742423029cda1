"""Writing the tables by hand, in a way that only the triggers can mind: every table constraint is satisfied."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from tests.held.sql.kernel import ENDED, Kernel, payload

RUN: Final = ("EXECUTING", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")
STATES: Final = ("HELD", "APPROVED", "EXECUTING", *ENDED)

LEGAL: Final = {
    ("HELD", "APPROVED"),
    ("HELD", "REJECTED"),
    ("HELD", "CANCELLED"),
    ("HELD", "EXPIRED"),
    ("APPROVED", "EXECUTING"),
    ("APPROVED", "CANCELLED"),
    ("APPROVED", "EXPIRED"),
    ("EXECUTING", "SUCCEEDED"),
    ("EXECUTING", "FAILED"),
    ("EXECUTING", "REFUSED"),
    ("EXECUTING", "OUTCOME_UNKNOWN"),
}

_COLUMNS: Final = """
    state = %(state)s, changed_by = 'hand', changed_at = underseal.clock(),
    ended_at = case when %(ended)s then underseal.clock() end,
    sealed_payload = case when not %(ended)s then coalesce(o.sealed_payload, %(seal)s) end,
    payload_key_id = case when not %(ended)s then coalesce(o.payload_key_id, 'k1') end,
    fingerprint = case when not %(ended)s then coalesce(o.fingerprint, sha256('again')) end,
    fingerprint_key_id = case when not %(ended)s then coalesce(o.fingerprint_key_id, 'f1') end,
    approved_at = case when %(approved)s then coalesce(o.approved_at, underseal.clock()) end,
    run_deadline = case when %(approved)s then coalesce(o.run_deadline, underseal.clock() + interval '1 h') end,
    run_id = case when %(run)s then coalesce(o.run_id, gen_random_uuid()) end,
    run_audit_id = case when %(run)s then coalesce(o.run_audit_id, gen_random_uuid()) end,
    run_worker = case when %(run)s then coalesce(o.run_worker, 'hand') end,
    run_token_hash = case when %(run)s then coalesce(o.run_token_hash, sha256('token')) end,
    run_lease_until = case when %(run)s then coalesce(o.run_lease_until, underseal.clock() + interval '1 h') end"""

UPDATE: Final = f"update underseal.held_operation o set {_COLUMNS} where operation_id = %(id)s"
MERGE: Final = (
    "merge into underseal.held_operation o using (select 1) as one on o.operation_id = %(id)s"
    f" when matched then update set {_COLUMNS}"
)


def move(k: Kernel, statement: str, operation: Any, before: str, state: str) -> str | None:
    """Move an operation to a state by hand and see what the database says.

    Parameters:
        k: whose connection writes.
        statement: UPDATE or MERGE.
        operation: which.
        before: the state it is in, so that what it need not lose it keeps.
        state: the state it is to have.

    Returns: the SQLSTATE of the refusal; None if it was let through. It is undone anyway.
    """
    approved = state in ("APPROVED", *RUN) or (
        state in ("CANCELLED", "EXPIRED") and before in ("APPROVED", *RUN)
    )
    values = {
        "id": operation,
        "state": state,
        "ended": state in ENDED,
        "seal": payload(),
        "approved": approved,
        "run": state in RUN,
    }
    try:
        with k.connection.transaction(force_rollback=True):
            k.connection.execute(statement, values)
            k.connection.execute("set constraints all immediate")
    except psycopg.Error as error:
        return error.sqlstate
    return None


def insert(k: Kernel, state: str, **changes: str) -> tuple[str, list[Any]]:
    """A statement that inserts a copy of an operation, in a state.

    Parameters:
        k: where such an operation is made, to be copied.
        state: the state, which `k.reach` brings the model to.
        changes: expressions for columns.
    """
    model = k.reach(state)
    columns = [
        row["name"]
        for row in k.rows(
            "select attname as name from pg_attribute where attrelid = 'underseal.held_operation'::regclass"
            " and attnum > 0 and not attisdropped order by attnum"
        )
    ]
    expressions = {
        "operation_id": "gen_random_uuid()",
        "fingerprint": "case when fingerprint is not null then sha256('another') end",
        **changes,
    }
    values = ", ".join(expressions.get(column, column) for column in columns)
    return (
        f"insert into underseal.held_operation ({', '.join(columns)}) select {values}"
        " from underseal.held_operation where operation_id = %s",
        [model],
    )
