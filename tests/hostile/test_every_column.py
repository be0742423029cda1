"""A writer with every right on the tables, triggers off, changes each column at each state (clause T5)."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.held.python.worlds import World
from tests.hostile.audit import Audit

from underseal import Held
from underseal.testing import TestClock

STATES = (
    "HELD", "APPROVED", "EXECUTING", "REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED",
    "OUTCOME_UNKNOWN",
)  # fmt: skip
TABLES = ("held_operation", "held_vote", "held_event", "replay_ticket", "held_event_position", "audit_entry")


def bring(audit: Audit, clock: TestClock, state: str) -> Held:
    """An honest operation in a state, with votes, events, a position and where it can be a ticket."""
    world = audit.world
    held = audit.hold()
    if state == "REJECTED":
        world.us.reject(world.us.get(held, "ann"), "ann", "no")
    elif state == "CANCELLED":
        world.us.cancel(held, "rita")
    elif state == "EXPIRED":
        clock.advance(hours=2)
        world.us.sweep()
    elif state != "HELD":
        audit.approve(held)
        if state in ("EXECUTING", "OUTCOME_UNKNOWN"):
            run = world.admin.execute(
                "select * from underseal.claim_runs('gone', '{payout.send}', '{1}', %s, 1, %s)",
                [[*world.ring.key_ids("payload"), *world.ring.key_ids("decision")], held.operation_id],
            ).fetchone()
            assert run is not None
            world.admin.execute("select underseal.issue_ticket(%s, %s)", [held.operation_id, run["run_token"]])
            if state == "OUTCOME_UNKNOWN":
                clock.advance(minutes=16)
                world.us.sweep()
        elif state != "APPROVED":
            world.service.check = "not-now" if state == "REFUSED" else None
            if state == "FAILED":
                world.service.body = lambda *_: 1 // 0
            world.us.run(held)
            world.service.check = None
            world.service.body = lambda *_: {"ok": True}
    world.us.read_outbox("spy", 1000)
    assert world.row(held)["state"] == state
    return held


def other_values(value: Any) -> list[Any]:
    """What a writer might put in the place of a value: of its kind, and nothing."""
    variants: dict[type, Callable[[Any], list[Any]]] = {
        bool: lambda v: [not v],
        int: lambda v: [v + 1, 0, -v],
        str: lambda v: [v + "x", "ann", "APPROVED", "EXECUTING", "HELD"],
        bytes: lambda v: [v[::-1], b"\0" * len(v)],
        UUID: lambda _: [uuid4()],
        datetime.datetime: lambda v: [v + datetime.timedelta(days=30), v - datetime.timedelta(days=30)],
        datetime.timedelta: lambda v: [v * 100],
        dict: lambda v: [Jsonb({**v, "x": 1}), Jsonb({})],
        type(None): lambda _: ["x", 1, datetime.datetime.now(datetime.UTC), b"x" * 32, uuid4(), Jsonb({"x": 1})],
    }
    return [*variants[type(value)](value), None]


@pytest.mark.clause("T5a", "H2.5b", "H2.12a")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("table", TABLES)
def test_no_edited_column_makes_anything_run(
    sync_world: World, clock: TestClock, table: str, state: str
) -> None:
    audit = Audit(sync_world)
    sync_world.us.register_consumer("spy")
    columns = [
        row["column_name"]
        for row in sync_world.admin.execute(
            "select column_name from information_schema.columns where table_schema = 'underseal' and table_name = %s"
            " and is_generated = 'NEVER' order by ordinal_position",
            [table],
        )
    ]
    assert "operation_id" in columns
    edits = stopped = 0
    for column in columns:
        held = bring(audit, clock, state)
        number = 0
        while True:
            row = sync_world.admin.execute(
                f"select * from underseal.{table} where operation_id = %s limit 1", [held.operation_id]
            ).fetchone()
            values = [] if row is None else other_values(row[column])
            if number >= len(values):
                break
            try:
                write(sync_world, table, column, values[number], held)
                edits += 1
            except psycopg.Error:
                stopped += 1  # a constraint, or a value of another kind
            number += 1
            audit.push(held)
        audit.check()
    assert edits > 0 or (table == "held_vote" and state in ("HELD", "CANCELLED", "EXPIRED")) or table == "replay_ticket"


def write(world: World, table: str, column: str, value: Any, held: Held) -> None:
    """Write one column of one row of an operation, every trigger off."""
    with world.admin.transaction():
        world.admin.execute(f"alter table underseal.{table} disable trigger user")
        world.admin.execute(
            f"update underseal.{table} t set {column} = %s"
            f" where t.ctid = (select u.ctid from underseal.{table} u where u.operation_id = %s limit 1)",
            [value, held.operation_id],
        )
        for trigger in world.admin.execute(
            "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal", [f"underseal.{table}"]
        ).fetchall():
            world.admin.execute(f"alter table underseal.{table} enable always trigger {trigger['tgname']}")


@pytest.mark.clause("T5a")
def test_the_audit_sees_a_run_that_nobody_agreed_to(sync_world: World) -> None:
    """The control: without the seals' checks, the audit must fail."""
    audit = Audit(sync_world)
    held = audit.hold()
    sync_world.service.done.append(("payout.send", "rita", sync_world_params(1_000_000)))
    with pytest.raises(AssertionError, match="never asked for"):
        audit.check()
    sync_world.service.done[:] = [("payout.send", "rita", sync_world_params(audit.asked[held.operation_id]))]
    with pytest.raises(AssertionError, match="nobody agreed"):
        audit.check()


def sync_world_params(cents: int) -> Any:
    """Parameters of a payout."""
    from tests.held.python.worlds import PayoutParams

    return PayoutParams(order="o-1", cents=cents)


