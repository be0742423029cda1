"""There is one clock, the database's, and one isolation level at which the verbs can be trusted."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.held.sql.kernel import Kernel, decision, payload
from underseal.testing import OWNER, DictConnection, TestDatabase


@pytest.mark.clause("H9.1a")
def test_the_clock_goes_on_within_a_transaction(database: TestDatabase) -> None:
    connection = database.connect(OWNER, autocommit=False)
    row = connection.execute(
        "select now() as began, clock_timestamp() as before, underseal.clock() as clock"
    ).fetchone()
    assert row is not None
    again = connection.execute("select underseal.clock() as clock, clock_timestamp() as after").fetchone()
    assert again is not None
    assert row["began"] < row["before"] <= row["clock"] < again["clock"] <= again["after"]


# An instant that the database gave, told back to it: which due instant is meant, which must be the wake's own, or from
# when the distance of a cron expression counts, which must lie in the last ten minutes.
ECHOED = ("add_schedule", "pause_schedule", "fire_schedule", "put_off_schedule")


@pytest.mark.clause("H9.1b", "H9.2")
def test_no_verb_takes_an_instant(bare: Kernel) -> None:
    taking = bare.rows(
        "select p.proname as name from pg_proc p where p.pronamespace = 'underseal'::regnamespace"
        " and p.proname !~ '^_' and p.proargtypes::oid[] &&"
        " array['timestamptz'::regtype::oid, 'timestamp'::regtype::oid,"
        " 'date'::regtype::oid, 'time'::regtype::oid, 'timetz'::regtype::oid, 'tstzrange'::regtype::oid]"
    )
    assert {row["name"] for row in taking} == set(ECHOED)


@pytest.mark.clause("H9.1a")
def test_no_verb_reads_another_clock(bare: Kernel) -> None:
    bodies = bare.rows(
        "select p.proname as name, p.prosrc as body from pg_proc p where p.pronamespace = 'underseal'::regnamespace"
    )
    clocks = (
        "now()",
        "current_timestamp",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "localtimestamp",
        "current_date",
        "timeofday",
    )
    assert {row["name"] for row in bodies if any(clock in row["body"].lower() for clock in clocks)} == set()


@pytest.mark.clause("H9.2", "H9.1a")
def test_the_session_s_zone_makes_no_difference(bare: Kernel) -> None:
    bare.connection.execute("set local timezone = 'Pacific/Kiritimati'")
    bare.register()
    answer = bare.request()
    assert answer["requested_at"] == bare.clock.now()
    assert (
        f"{answer['expires_at'].astimezone(bare.clock.now().tzinfo):%Y-%m-%d %H:%M:%S} UTC"
        in answer["message"]
    )


CALLS: dict[str, list[Any]] = {
    "request_operation": [
        uuid4(),
        "account.close",
        1,
        b"h" * 32,
        "ann",
        "session",
        None,
        b"p" * 32,
        "s",
        "{}",
        "{}",
        payload(),
        b"f" * 32,
        "f1",
    ],
    "vote": [uuid4(), "bob", "approve", None, b"h" * 32, 1, decision()],
    "cancel_operation": [uuid4(), "ann"],
    "claim_runs": ["w1", ["account.close"], [1], ["k1"], 1],
    "claim_resubmission": [uuid4(), "ann", "session", None, "w1", ["account.close"], [1], ["k1"]],
    "renew_run": [uuid4(), b"t"],
    "record_progress": [uuid4(), b"t", "half"],
    "issue_ticket": [uuid4(), b"t"],
    "consume_ticket": [uuid4(), b"t", "ann"],
    "finish_run": [uuid4(), b"t", "SUCCEEDED"],
    "sweep_operations": [],
    "purge_operations": [],
    "register_consumer": ["c"],
    "read_outbox": ["c"],
    "ack_outbox": ["c", 1],
    "rewrap_operation": [uuid4(), payload(), payload("k2"), b"f", "f2"],
    "rewrap_vote": [uuid4(), "bob", decision(), decision("k2")],
}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_verbs_that_judge_under_a_lock_refuse_other_levels(kernel: Kernel, level: str) -> None:
    survivors = []
    for verb, arguments in CALLS.items():
        places = ", ".join(["%s"] * len(arguments))
        try:
            with kernel.connection.transaction(force_rollback=True):
                kernel.connection.execute(f"set transaction isolation level {level}")
                kernel.connection.execute(f"select * from underseal.{verb}({places})", arguments)
        except psycopg.Error as error:
            if error.sqlstate == "US008" and level in str(error):
                continue
        survivors.append(verb)
    assert survivors == []


def test_registering_refuses_other_levels(db: DictConnection) -> None:
    db.execute("set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select * from underseal.register_operation_type('a', 1, 'ON_APPROVAL', '{}', '{}')")
    assert caught.value.sqlstate == "US008"


def test_reading_works_at_every_level(own: Kernel) -> None:
    operation = own.hold()
    for level in ("read uncommitted", "read committed", "repeatable read", "serializable"):
        with own.connection.transaction():
            own.connection.execute(f"set transaction isolation level {level}")
            assert own.call("get_operation", operation, "ann")["outcome"] == "found"
    with own.connection.transaction():
        own.connection.execute("set transaction isolation level read uncommitted")
        assert own.approve(operation)["outcome"] == "approved"
