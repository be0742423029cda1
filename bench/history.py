"""A database with a past: rows by the thousand, put past the triggers by the superuser.

Foreign keys are skipped as on a replica; `ALWAYS` triggers are skipped by no session setting, so they are switched
off and on again. The tables' constraints see every row; indexes that no constraint needs are built afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from bench.request import DECISION_BYTES, EFFECT, PAYLOAD_BYTES, REDACTED, STATE_KEY, envelope
from bench.setting import TYPE

_ORG: Final = uuid.UUID(int=0)
_TABLES: Final = ("held_operation", "held_vote", "held_event", "held_event_position", "audit_entry")

_OPERATION: Final = """
  insert into underseal.held_operation (operation_id, type, type_version, mode, requester, auth_kind, params_hash,
    policy_digest, votes_required, run_within, state_key, requested_at, expires_at, request_audit_id, effect, redacted,
    row_version, state, changed_by, changed_at, approved_at, run_deadline, run_id, run_audit_id, run_worker,
    run_token_hash, run_lease_until, ended_at, fingerprint, fingerprint_key_id, sealed_payload, payload_key_id)
  select md5(concat(%(state)s::text, %(due)s::boolean, n))::uuid, t.type, 1, t.mode, 'user' || n %% 1000, 'session',
    t.policy_digest, t.policy_digest, 1, interval '1 day',
    %(state_key)s, asked, asked + interval '1 day', %(org)s, %(effect)s, %(redacted)s, 1,
    %(state)s, 'bob', asked,
    case when %(approved)s then asked end,
    case when %(approved)s then least + n * interval '1 millisecond' end,
    case when %(claimed)s then %(org)s end, case when %(claimed)s then %(org)s end,
    case when %(claimed)s then 'bench' end, case when %(claimed)s then t.policy_digest end,
    case when %(claimed)s then least + n * interval '1 millisecond' end,
    case when %(ended)s then asked + interval '1 hour' end,
    case when not %(ended)s then sha256(uuid_send(gen_random_uuid())) end,
    case when not %(ended)s then 'bench-key' end,
    case when not %(ended)s then %(payload)s::jsonb end,
    case when not %(ended)s then 'bench-key' end
  from underseal.operation_type t
  cross join generate_series(1, %(amount)s) n
  cross join lateral (select
    clock_timestamp() - case when %(ended)s or %(due)s then interval '80 days' else interval '20 hours' end
      + n * (case when %(ended)s then interval '77 days' else interval '19 hours' end / greatest(%(amount)s, 1))
      as asked,
    clock_timestamp() + case when %(due)s then interval '-1 day' else interval '1 day' end as least) at
  where t.type = %(type)s
"""
_VOTES: Final = """
  insert into underseal.held_vote (operation_id, approver, decision, params_hash, row_version, cast_at, sealed_decision,
    decision_key_id)
  select o.operation_id, 'bob', 'approve', o.params_hash, 1, o.approved_at, %(decision)s::jsonb, 'bench-key'
  from underseal.held_operation o
  where o.state in ('APPROVED', 'EXECUTING')
"""
_AUDIT: Final = """
  insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  select o.operation_id, o.request_audit_id, null, 'request', o.requester, '{}', o.requested_at
  from underseal.held_operation o
"""
_EVENTS: Final = """
  insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, recorded_at)
  select o.operation_id, 1, 'requested', o.requester, null, 'HELD', o.requested_at
  from underseal.held_operation o
"""
_POSITIONS: Final = """
  insert into underseal.held_event_position (operation_id, seq, position)
  select e.operation_id, e.seq, row_number() over () from underseal.held_event e
"""


def _add(admin: psycopg.Connection[Any], amount: int, state: str, *, due: bool = False) -> None:
    ended = state == "SUCCEEDED"
    admin.execute(
        _OPERATION,
        {
            "amount": amount,
            "state": state,
            "due": due,
            "ended": ended,
            "claimed": state in ("EXECUTING", "SUCCEEDED"),
            "approved": state != "HELD",
            "type": TYPE,
            "org": _ORG,
            "state_key": STATE_KEY,
            "effect": EFFECT,
            "redacted": REDACTED,
            "payload": envelope("held-payload-v1", _ORG, PAYLOAD_BYTES),
        },
    )


@contextmanager
def past_triggers(admin: psycopg.Connection[Any], tables: Sequence[str]) -> Iterator[None]:
    """A transaction in which rows are put past the triggers of some tables of ours.

    Parameters:
        admin: an autocommit connection as a superuser.
        tables: their names.
    """
    with admin.transaction():
        admin.execute("set local synchronous_commit = off")
        admin.execute("set local session_replication_role = replica")
        triggers = _our_triggers(admin, tables)
        for table, name, _ in triggers:
            admin.execute(f"alter table {table} disable trigger {name}")
        yield
        # those that check fire always, those that write at the origin, as the trigger files say
        for table, name, fires in triggers:
            admin.execute(f"alter table {table} enable {'always' if fires == 'A' else ''} trigger {name}")


def _our_triggers(admin: psycopg.Connection[Any], tables: Sequence[str]) -> list[tuple[str, str, str]]:
    return admin.execute(
        """select t.tgrelid::regclass::text, quote_ident(t.tgname), t.tgenabled from pg_trigger t
           where not t.tgisinternal and t.tgrelid = any (%s::regclass[])""",
        [[f"underseal.{table}" for table in tables]],
    ).fetchall()


def _plain_indexes(admin: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    return admin.execute(
        """select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) from pg_index i
           where i.indrelid = any (%s::regclass[])
             and not exists (select from pg_constraint c where c.conindid = i.indexrelid)""",
        [[f"underseal.{table}" for table in _TABLES]],
    ).fetchall()


def add_history(admin: psycopg.Connection[Any], *, ended: int, opened: int) -> None:
    """Put operations into a database: ended ones, and open ones of which a fifth is due for the sweep.

    Parameters:
        admin: an autocommit connection as a superuser to a database of bench.setting.
        ended: how many have SUCCEEDED, over the last 80 days; each with an event that has its position.
        opened: how many are open: 40 % held, 30 % approved, 10 % executing, and 10, 5 and 5 % due.
    """
    with past_triggers(admin, _TABLES):
        indexes = _plain_indexes(admin)
        for name, _ in indexes:
            admin.execute(f"drop index {name}")
        _add(admin, ended, "SUCCEEDED")
        for state, share in (("HELD", 0.4), ("APPROVED", 0.3), ("EXECUTING", 0.1)):
            _add(admin, int(opened * share), state)
        for state, share in (("HELD", 0.1), ("APPROVED", 0.05), ("EXECUTING", 0.05)):
            _add(admin, int(opened * share), state, due=True)
        admin.execute(_VOTES, {"decision": envelope("held-decision-v1", _ORG, DECISION_BYTES)})
        admin.execute(_AUDIT)
        admin.execute(_EVENTS)
        admin.execute(_POSITIONS)
        admin.execute("update underseal.outbox_head set last_position = %s", [ended + opened])
        for _, definition in indexes:
            admin.execute(definition)
    for table in _TABLES:
        admin.execute(f"vacuum (analyze) underseal.{table}")
