"""What time has ended is ended by the sweep."""

from __future__ import annotations

import pytest

from tests.held.sql.kernel import HOLD_FOR, RUN_WITHIN, Kernel, outcome


@pytest.mark.clause("H2.7", "H9.1a")
def test_a_request_that_nobody_decided_expires(k: Kernel) -> None:
    operation = k.hold()
    k.clock.advance(seconds=HOLD_FOR, microseconds=-1)
    assert k.calls("sweep_operations") == []
    k.clock.advance(microseconds=1)
    (answer,) = k.calls("sweep_operations")
    row = k.operation(operation)
    assert (answer["outcome"], answer["operation_id"]) == ("expired", operation)
    assert (row["state"], row["outcome_reason"], row["ended_at"]) == (
        "EXPIRED",
        "not-approved-in-time",
        k.clock.now(),
    )
    assert (row["sealed_payload"], row["fingerprint"]) == (None, None)
    last = k.timeline(operation)[-1]
    assert (last["type"], last["actor"], last["from_state"]) == ("expired", "underseal:sweep", "HELD")


@pytest.mark.clause("H5.4", "H2.7")
@pytest.mark.parametrize("mode", ["ON_APPROVAL", "BY_REQUESTER"])
def test_an_approval_that_nobody_ran_expires(bare: Kernel, mode: str) -> None:
    bare.register(mode=mode)
    operation = bare.reach("APPROVED")
    bare.clock.advance(seconds=RUN_WITHIN, microseconds=-1)
    assert bare.calls("sweep_operations") == []
    bare.clock.advance(microseconds=1)
    (answer,) = bare.calls("sweep_operations")
    row = bare.operation(operation)
    assert (answer["outcome"], row["state"], row["outcome_reason"]) == (
        "missed",
        "EXPIRED",
        "not-run-in-time",
    )
    assert (row["sealed_payload"], row["fingerprint"]) == (None, None)
    assert bare.timeline(operation)[-1]["from_state"] == "APPROVED"


@pytest.mark.clause("H8.2a", "H2.7", "H9.1a")
def test_a_run_whose_lease_is_lost_has_an_unknown_outcome(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(minutes=15, microseconds=-1)
    assert k.calls("sweep_operations") == []
    k.clock.advance(microseconds=1)
    (answer,) = k.calls("sweep_operations")
    row = k.operation(run.operation)
    assert (answer["outcome"], row["state"], row["outcome_reason"]) == (
        "outcome-unknown",
        "OUTCOME_UNKNOWN",
        "lease-lost",
    )
    assert (row["sealed_payload"], row["fingerprint"]) == (None, None)
    assert k.timeline(run.operation)[-1]["actor"] == "underseal:sweep"


@pytest.mark.clause("H8.1b")
def test_a_renewed_run_is_left_alone(k: Kernel) -> None:
    run = k.executing()
    for _ in range(4):
        k.clock.advance(minutes=10)
        k.call("renew_run", run.operation, run.token)
        assert k.calls("sweep_operations") == []


@pytest.mark.clause("H5.3a")
def test_a_sweep_works_in_batches(k: Kernel) -> None:
    operations = [k.hold() for _ in range(5)]
    runs = [k.executing() for _ in range(3)]
    for _ in range(4):
        k.approve(k.hold())
    k.clock.advance(seconds=RUN_WITHIN)
    first = [answer["outcome"] for answer in k.calls("sweep_operations", 2)]
    assert sorted(first) == ["expired", "expired", "missed", "missed", "outcome-unknown", "outcome-unknown"]
    assert len(k.calls("sweep_operations", 2)) == 5
    assert [answer["outcome"] for answer in k.calls("sweep_operations")] == ["expired"]
    assert {k.state(operation) for operation in operations} == {"EXPIRED"}
    assert {k.state(run.operation) for run in runs} == {"OUTCOME_UNKNOWN"}
    assert k.calls("sweep_operations") == []


def break_row(k: Kernel, operation: object) -> None:
    """Leave an event in the way of one that the sweep must write."""
    with k.login(None):
        k.connection.execute("alter table underseal.held_event disable trigger user")
        k.connection.execute(
            "insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, recorded_at)"
            " values (%s, 9, 'expired', 'hand', 'HELD', 'EXPIRED', underseal.clock())",
            [operation],
        )
        for trigger in ("check", "append_only", "no_truncate"):
            k.connection.execute(
                f"alter table underseal.held_event enable always trigger held_event_{trigger}"
            )
        k.connection.execute("alter table underseal.held_event enable trigger held_event_queue")


@pytest.mark.clause("H8.2d")
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_row_that_fails_stops_no_other(k: Kernel, bad: int) -> None:
    operations = []
    for _ in range(3):
        operations.append(k.hold())
        k.clock.advance(seconds=1)
    break_row(k, operations[bad])
    k.clock.advance(seconds=HOLD_FOR)
    answers = {answer["operation_id"]: outcome(answer) for answer in k.calls("sweep_operations")}
    assert answers.pop(operations[bad])[0] == "failed"
    assert set(answers.values()) == {("expired", None)}
    assert [k.state(operation) for operation in operations].count("EXPIRED") == 2
    assert k.state(operations[bad]) == "HELD"
    (report,) = k.rows("select * from underseal.operator_reports")
    assert (report["subject"], report["kind"]) == (str(operations[bad]), "sweep-failed")


@pytest.mark.clause("H8.2d")
def test_what_is_judged_at_the_commit_fails_with_its_own_row_too(k: Kernel) -> None:
    operations = [k.hold(), k.hold()]
    with k.login(None):
        # Nobody writes the events, so the trigger that asks for them at the commit refuses the first row.
        k.connection.execute(
            f"create function underseal.no_event() returns trigger language plpgsql as"
            f" $$ begin if new.operation_id = '{operations[0]}' then return null; end if; return new; end $$"
        )
        k.connection.execute(
            "create trigger a_no_event before insert on underseal.held_event"
            " for each row execute function underseal.no_event()"
        )
    k.clock.advance(seconds=HOLD_FOR)
    answers = {answer["operation_id"]: outcome(answer) for answer in k.calls("sweep_operations")}
    assert answers == {operations[0]: ("failed", "US005"), operations[1]: ("expired", None)}
    assert [k.state(operation) for operation in operations] == ["HELD", "EXPIRED"]


@pytest.mark.clause("H8.2a", "H9.1a")
def test_a_sweep_judges_each_row_again_under_its_lock(k: Kernel) -> None:
    """Once the first row is done, the clock stands where the others, which were found as due, are not due."""
    now = k.clock.now()
    first = k.hold()
    others = [k.hold(), k.reach("APPROVED"), k.reach("EXECUTING")]
    k.clock.advance(seconds=RUN_WITHIN)
    with k.login(None):
        k.connection.execute(
            "create function underseal.turn_back() returns trigger language plpgsql security definer as $$ begin"
            f" perform setval('underseal.test_clock', {int(now.timestamp()) * 1000000});"
            " return null; end $$"
        )
        k.connection.execute(
            "create trigger turn_back after insert on underseal.held_event for each row"
            f" when (new.operation_id = '{first}') execute function underseal.turn_back()"
        )
    answers = k.calls("sweep_operations")
    assert [(answer["operation_id"], answer["outcome"]) for answer in answers] == [(first, "expired")]
    assert [k.state(operation) for operation in others] == ["HELD", "APPROVED", "EXECUTING"]


def test_a_sweep_ends_nothing_early(k: Kernel) -> None:
    for state in ("HELD", "APPROVED", "EXECUTING", "CANCELLED", "SUCCEEDED"):
        k.reach(state)
    before = k.everything()
    assert k.calls("sweep_operations") == []
    assert k.everything() == before
