"""The same inserts and updates in the trigger-free copies, in the same four transactions.

Three ways to send the statements of one transaction: in a pipeline (one round trip, the measure the kernel is held
to), one by one as an ordinary transaction, or as one statement with CTEs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import psycopg

from bench.request import EFFECT, REDACTED, RESULT, STATE_KEY, Operation
from bench.setting import TYPE

Way = Literal["pipeline", "one-by-one", "one-statement"]

OPERATION: Final = """
  insert into bare.held_operation (operation_id, type, type_version, mode, requester, auth_kind, token_id,
    params_hash, policy_digest, votes_required, run_within, state_key, requested_at, expires_at,
    request_audit_id, effect, redacted, row_version, state, changed_by, changed_at, fingerprint,
    fingerprint_key_id, sealed_payload, payload_key_id)
  values (%(id)s, %(type)s, 1, 'ON_APPROVAL', 'ann', 'session', null, %(hash)s, %(hash)s, 1, interval '1 day',
    %(state_key)s, clock_timestamp(), clock_timestamp() + interval '1 day', %(id)s, %(effect)s, %(redacted)s, 1,
    'HELD', 'ann', clock_timestamp(), %(fingerprint)s, 'bench-key', %(payload)s, 'bench-key')
"""
VOTE: Final = """
  insert into bare.held_vote (operation_id, approver, decision, params_hash, row_version, cast_at, sealed_decision,
    decision_key_id)
  values (%(id)s, 'bob', 'approve', %(hash)s, 1, clock_timestamp(), %(decision)s, 'bench-key')
"""
APPROVE: Final = """
  update bare.held_operation
  set state = 'APPROVED', changed_by = 'bob', changed_at = clock_timestamp(), approved_at = clock_timestamp(),
    run_deadline = clock_timestamp() + interval '1 day'
  where operation_id = %(id)s and state = 'HELD'
"""
CLAIM: Final = """
  update bare.held_operation
  set state = 'EXECUTING', changed_by = 'worker:bench', changed_at = clock_timestamp(), run_id = gen_random_uuid(),
    run_audit_id = gen_random_uuid(), run_worker = 'bench', run_token_hash = %(hash)s,
    run_lease_until = clock_timestamp() + interval '15 minutes'
  where operation_id = %(id)s and state = 'APPROVED'
"""
FINISH: Final = """
  update bare.held_operation
  set state = 'SUCCEEDED', changed_at = clock_timestamp(), ended_at = clock_timestamp(), result = %(result)s,
    sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null
  where operation_id = %(id)s and state = 'EXECUTING'
"""


def _event(seq: int, kind: str, actor: str, before: str, after: str, detail: str) -> tuple[str, str]:
    return (
        f"""
  insert into bare.held_event (operation_id, seq, type, actor, from_state, to_state, detail, recorded_at)
  values (%(id)s, {seq}, '{kind}', '{actor}', {before}, '{after}', {detail}, clock_timestamp())
""",
        f"  insert into bare.held_event_pending (operation_id, seq) values (%(id)s, {seq})",
    )


def _audit(action: str, parent: str, detail: str) -> str:
    return f"""
  insert into bare.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  values (%(id)s, {"%(id)s" if parent == "null" else "gen_random_uuid()"}, {parent}, '{action}', 'ann', {detail},
    clock_timestamp())
"""


TRANSACTIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        OPERATION,
        *_event(1, "requested", "ann", "null", "HELD", "jsonb_build_object('expires_at', clock_timestamp())"),
        _audit(
            "request",
            "null",
            "jsonb_build_object('type', %(type)s::text, 'version', 1, 'params_hash', encode(%(hash)s, 'hex'),"
            " 'auth_kind', 'session')",
        ),
    ),
    (
        APPROVE,
        VOTE,
        *_event(
            2,
            "approved",
            "bob",
            "'HELD'",
            "APPROVED",
            "jsonb_build_object('run_deadline', clock_timestamp())",
        ),
    ),
    (
        CLAIM,
        *_event(
            3,
            "claimed",
            "worker:bench",
            "'APPROVED'",
            "EXECUTING",
            "jsonb_build_object('run_id', %(id)s::uuid, 'worker', 'bench')",
        ),
        _audit(
            "run",
            "%(id)s",
            "jsonb_build_object('run_id', %(id)s::uuid, 'worker', 'bench', 'approved_at', clock_timestamp(),"
            " 'approvals', jsonb_build_array(jsonb_build_object('approver', 'bob', 'cast_at', clock_timestamp())))",
        ),
    ),
    (
        FINISH,
        *_event(4, "succeeded", "worker:bench", "'EXECUTING'", "SUCCEEDED", "null"),
        _audit(
            "result", "%(id)s", "jsonb_build_object('state', 'SUCCEEDED', 'reason', null, 'detail', null)"
        ),
    ),
)


def _one_statement(statements: Sequence[str]) -> str:
    *inner, last = statements
    named = ", ".join(f"s{number} as ({statement})" for number, statement in enumerate(inner))
    return f"with {named} {last}"


SINGLE: Final = tuple(_one_statement(statements) for statements in TRANSACTIONS)


class BareSide:
    """The same writes without the kernel.

    Parameters:
        connection: autocommit, of the service.
        way: how the statements of one transaction are sent.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, way: Way) -> None:
        self._connection = connection
        self._way = way

    def cycle(self, op: Operation) -> None:
        """The writes of one operation from its request to its end, in four transactions."""
        connection = self._connection
        values = {
            "id": op.operation_id,
            "type": TYPE,
            "hash": op.params_hash,
            "fingerprint": op.fingerprint,
            "state_key": STATE_KEY,
            "effect": EFFECT,
            "redacted": REDACTED,
            "payload": op.payload,
            "decision": op.decision,
            "result": RESULT,
        }
        if self._way == "one-statement":
            for statement in SINGLE:
                connection.execute(statement, values, prepare=True)
            return
        for statements in TRANSACTIONS:
            # without a BEGIN, a pipeline up to its sync is one transaction
            with connection.pipeline() if self._way == "pipeline" else connection.transaction():
                for statement in statements:
                    connection.execute(statement, values, prepare=True)
