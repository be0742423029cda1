"""A writer with every right on the tables, triggers off, changes each column at each state (clause T5)."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.held.python.worlds import PayoutParams, World
from tests.hostile.audit import Audit
from tests.hostile.writer import Writer
from underseal import Held
from underseal.testing import TestClock

OPEN = ("HELD", "APPROVED", "EXECUTING")
ENDED = ("REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")
WITH_TICKET = ("EXECUTING", "SUCCEEDED", "FAILED", "OUTCOME_UNKNOWN")
CASES = [
    *((table, state) for table in ("held_operation", "held_vote", "held_event") for state in (*OPEN, *ENDED)),
    *(("replay_ticket", state) for state in WITH_TICKET),
    *((table, state) for table in ("audit_entry", "held_event_position") for state in (*OPEN, "SUCCEEDED")),
]


def bring(audit: Audit, clock: TestClock, state: str, count: int) -> list[Held]:
    """Honest operations in a state; even the held ones have a vote."""
    world, us = audit.world, audit.world.us
    operations = [audit.hold() for _ in range(count)]
    for held in operations:
        audit.approve(held, "ann")
        if state == "REJECTED":
            us.reject(us.get(held, "bob"), "bob", "no")
        elif state != "HELD":
            audit.approve(held, "bob")
        if state == "CANCELLED":
            us.cancel(held, "rita")
    if state in ("EXECUTING", "OUTCOME_UNKNOWN"):
        _claim_by_another(world, operations)
    if state in ("EXPIRED", "OUTCOME_UNKNOWN"):
        clock.advance(hours=2)
        us.sweep()
    if state in ("SUCCEEDED", "FAILED", "REFUSED"):
        world.service.check = "not-now" if state == "REFUSED" else None
        world.service.body = (lambda *_: 1 // 0) if state == "FAILED" else (lambda *_: {"ok": True})
        us.run_approved(count)
        world.service.check = None
        world.service.body = lambda *_: {"ok": True}
    with suppress(psycopg.Error):  # a writer who changed positions has stopped the outbox
        us.read_outbox("spy", 10_000)
    assert {world.row(held)["state"] for held in operations} == {state}
    return operations


def _claim_by_another(world: World, operations: list[Held]) -> None:
    """A worker that is not heard of again."""
    keys = [*world.ring.key_ids("payload"), *world.ring.key_ids("decision")]
    for run in world.admin.execute(
        "select operation_id, run_token from underseal.claim_runs('gone', '{payout.pair}', '{1}', %s, %s)",
        [keys, len(operations)],
    ).fetchall():
        world.admin.execute("select underseal.issue_ticket(%s, %s)", [run["operation_id"], run["run_token"]])


MONTH = datetime.timedelta(days=30)
BY_TYPE: dict[str, Callable[[Any], list[Any]]] = {
    "boolean": lambda v: [not v],
    "integer": lambda v: [(v or 0) + 1, 0],
    "bigint": lambda v: [(v or 0) + 1, 0],
    "text": lambda v: [(v or "") + "x", "ann"],
    "bytea": lambda v: [v[::-1] if v else b"x" * 32],
    "uuid": lambda _: [uuid4()],
    "timestamp with time zone": lambda v: [v + MONTH, v - MONTH, "infinity"] if v else ["now", "infinity"],
    "interval": lambda v: [v * 100],
    "jsonb": lambda v: [Jsonb({**v, "x": 1} if v else {"x": 1}), Jsonb([])],
}
BY_NAME: dict[str, list[Any]] = {
    "state": ["APPROVED", "HELD", "EXECUTING", *ENDED],
    "type": ["payout.send"],
    "mode": ["BY_REQUESTER"],
    "decision": ["reject"],
    "approver": ["rita", "mallory", "cy"],
    "requester": ["mallory"],
    "redacted": [json.dumps({"cents": 1_000_000, "order": "o-1"})],
    "effect": [json.dumps({"pays": 1_000_000})],
    "consumed_at": [None],
}


def values(column: str, kind: str, now: Any) -> list[Any]:
    """What a writer might put in the place of a value: of its kind, telling ones, and nothing."""
    return [*BY_NAME.get(column, []), *BY_TYPE[kind](now), None]


@pytest.mark.clause("T5a", "H2.5c", "H2.12a")
@pytest.mark.parametrize(("table", "state"), CASES)
def test_no_edited_column_makes_anything_run(
    audit: Audit, clock: TestClock, writer: Writer, table: str, state: str
) -> None:
    audit.world.us.register_consumer("spy")
    left = writer.columns(table)
    columns = set(left)
    assert "operation_id" in columns
    operations = dict(zip(left, bring(audit, clock, state, len(left)), strict=True))
    before = {column: writer.rows(table, held.operation_id)[0][column] for column, held in operations.items()}
    writer.drop_constraints(table)
    done = list(audit.world.service.done)
    took: set[str] = set()
    ran: set[str] = set()
    number = 0
    while left:
        with writer.unguarded():
            for column, kind in left.items():
                value = values(column, kind, before[column])[number]
                if writer.write(table, column, value, operations[column].operation_id):
                    took.add(column)
            # The first time the triggers stay off while everybody does what they can; then they are back on.
            if number == 0:
                audit.push(operations[column] for column in left)
        audit.push(operations[column] for column in left)
        audit.check()
        ran |= {column for column in left if state == "EXECUTING" and audit.was_done(operations[column])}
        number += 1
        left = {name: kind for name, kind in left.items() if number < len(values(name, kind, before[name]))}
        if state in OPEN and left:
            operations = dict(zip(left, bring(audit, clock, state, len(left)), strict=True))
    assert took == columns
    if state in ENDED:
        assert audit.world.service.done == done
    if state == "EXECUTING":
        # The one that nothing in the database can tell from the truth: a run under way, put back. A spent register can.
        assert ran == ({"state"} if table == "held_operation" else set())


@pytest.mark.clause("T5a")
def test_what_nobody_touched_runs(audit: Audit, clock: TestClock, writer: Writer) -> None:
    """A control: the honest path is open, with triggers and without them."""
    audit.world.us.register_consumer("spy")
    with writer.unguarded():
        audit.push(bring(audit, clock, "APPROVED", 1))
    audit.push(bring(audit, clock, "HELD", 1))
    assert len(audit.world.service.done) == 2
    audit.check()


@pytest.mark.clause("T5a")
@pytest.mark.parametrize(
    ("who", "cents", "times", "found"),
    [
        ("rita", 1_000_000, 1, "never asked for"),
        ("ann", 101, 1, "never asked for"),
        ("rita", 100, 1, "agreed to by {'ann'}"),
        ("rita", 101, 2, "done 2 times"),
    ],
)
def test_the_audit_sees_what_nobody_wanted(
    audit: Audit, who: str, cents: int, times: int, found: str
) -> None:
    """The other control: the audit can fail."""
    audit.approve(audit.hold(), "ann")
    held = audit.hold()
    audit.approve(held, "ann")
    audit.approve(held, "bob")
    audit.world.service.done += [("payout.pair", who, PayoutParams(order="o-1", cents=cents))] * times
    with pytest.raises(AssertionError, match=found):
        audit.check()
