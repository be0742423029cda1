"""What is no row's own fault is not laid to a row."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from tests.held.sql.kernel import HOLD_FOR, Kernel

PASSING = ["25006", "40001", "40P01", "42501", "53100", "55P03", "57P03", "58030", "XX000"]


def fail_with(k: Kernel, code: str, operation: UUID) -> None:
    """Let every event of an operation fail with an SQLSTATE."""
    with k.login(None):
        k.connection.execute(
            "create function underseal.fault() returns trigger language plpgsql as"
            f" $$ begin if new.operation_id = '{operation}' then raise exception 'x' using errcode = '{code}'; end if;"
            " return new; end $$"
        )
        k.connection.execute(
            "create trigger a_fault before insert on underseal.held_event"
            " for each row execute function underseal.fault()"
        )


@pytest.mark.parametrize("code", PASSING)
def test_a_claim_that_the_server_refuses_is_no_damage(k: Kernel, code: str) -> None:
    operation = k.hold()
    k.approve(operation)
    fail_with(k, code, operation)
    with pytest.raises(psycopg.Error) as caught, k.connection.transaction():
        k.claims()
    assert caught.value.sqlstate == code
    assert (k.state(operation), k.rows("select * from underseal.operator_reports")) == ("APPROVED", [])


@pytest.mark.clause("H8.2d")
@pytest.mark.parametrize("code", PASSING)
def test_a_sweep_that_the_server_refuses_fails_whole(k: Kernel, code: str) -> None:
    operation = k.hold()
    fail_with(k, code, operation)
    k.clock.advance(seconds=HOLD_FOR)
    with pytest.raises(psycopg.Error) as caught, k.connection.transaction():
        k.calls("sweep_operations")
    assert caught.value.sqlstate == code
    assert (k.state(operation), k.rows("select * from underseal.operator_reports")) == ("HELD", [])


@pytest.mark.clause("H8.2d")
@pytest.mark.parametrize("code", ["XX001", "22P02", "P0001"])
def test_a_row_of_which_a_part_is_lost_is_that_row_s_own_affair(k: Kernel, code: str) -> None:
    operation = k.hold()
    k.approve(operation)
    fail_with(k, code, operation)
    assert k.claims() == []
    (report,) = k.rows("select * from underseal.operator_reports")
    assert report["kind"] == "claim-failed"


@pytest.mark.clause("H8.2a", "H8.4b")
def test_a_long_mark_of_progress_keeps_no_run_from_its_end(k: Kernel) -> None:
    run = k.executing()
    answer = k.call("record_progress", run.operation, run.token, "é" * 20_000)
    assert answer["outcome"] == "recorded"
    k.clock.advance(minutes=15)
    (swept,) = k.calls("sweep_operations")
    row = k.operation(run.operation)
    assert (swept["outcome"], row["state"]) == ("outcome-unknown", "OUTCOME_UNKNOWN")
    assert f'"{"é" * 1000}"' in row["outcome_detail"]


@pytest.mark.clause("H3.8a")
@pytest.mark.parametrize(
    "ended", ["underseal.clock() - interval '91 days'", "underseal.clock() + interval '1 s'"]
)
def test_an_end_is_not_dated_otherwise_than_its_change(k: Kernel, ended: str) -> None:
    operation = k.hold()
    end = (
        "update underseal.held_operation set state = 'CANCELLED', outcome_reason = 'x', changed_by = 'hand',"
        " changed_at = {changed}, ended_at = {ended}, sealed_payload = null, payload_key_id = null,"
        " fingerprint = null, fingerprint_key_id = null where operation_id = %s"
    )
    k.refused("US003", end.format(changed="underseal.clock()", ended=ended), operation)
    long_ago = "underseal.clock() - interval '91 days'"
    k.refused("US003", end.format(changed=long_ago, ended=long_ago), operation)
    now = "underseal.clock()"
    assert k.do(end.format(changed=now, ended=now), operation) == 1
