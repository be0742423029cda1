"""Claims, finishes, leases and sweeps that meet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.held.sql.kernel import RUN_WITHIN, Claimed, Kernel, outcome
from tests.races.arena import Arena
from underseal.testing import in_background


@pytest.mark.clause("H5.1c", "T4a")
def test_of_two_who_claim_one_row_one_gets_it(arena: Arena) -> None:
    operation = arena.approved()
    one, other = arena.race(
        lambda k: arena.claim(k, operation), lambda k: arena.claim(k, operation, worker="w2")
    )
    assert [outcome(row) for row in one] == [("claimed", None)]
    assert [outcome(row) for row in other] == [("conflict", "not-approved")]
    row = arena.a.operation(operation)
    assert (row["run_worker"], row["run_id"]) == ("w1", one[0]["run_id"])
    assert arena.a.events(operation) == ["requested", "approved", "claimed"]
    assert len(arena.a.audit(operation, "run")) == 1


@pytest.mark.clause("H5.1c", "T4a")
def test_the_second_claims_if_the_first_is_undone(arena: Arena) -> None:
    operation = arena.approved()
    _, other = arena.race(
        lambda k: arena.claim(k, operation), lambda k: arena.claim(k, operation, worker="w2"), rollback=True
    )
    assert [outcome(row) for row in other] == [("claimed", None)]
    assert arena.a.operation(operation)["run_worker"] == "w2"


@pytest.mark.clause("H5.1c", "H5.3b", "T4a")
def test_batches_pass_over_each_other_s_rows_without_waiting(arena: Arena) -> None:
    operations = [arena.approved() for _ in range(4)]
    with arena.a.connection.transaction():
        mine = {row["operation_id"] for row in arena.claim(arena.a, most=2)}
        theirs = {row["operation_id"] for row in arena.claim(arena.b, worker="w2")}
    assert (len(mine), len(theirs), mine | theirs) == (2, 2, set(operations))
    assert arena.claim(arena.b) == []


@pytest.mark.clause("H5.1c", "T4a")
def test_of_many_claimers_at_once_each_row_has_one(arena: Arena) -> None:
    operations = [arena.approved() for _ in range(12)]
    workers = [
        Kernel(
            psycopg.connect(arena.a.connection.info.dsn, autocommit=True, row_factory=dict_row), arena.clock
        )
        for _ in range(4)
    ]

    def work(k: Kernel, name: str) -> list[Any]:
        done: list[Any] = []
        while rows := arena.claim(k, worker=name, most=1):
            done += [row["operation_id"] for row in rows]
        return done

    try:
        futures: list[Future[list[Any]]] = [
            in_background(work, k, f"w{number}") for number, k in enumerate(workers)
        ]
        claimed = [operation for future in futures for operation in future.result(20)]
    finally:
        for k in workers:
            k.connection.close()
    assert sorted(claimed) == sorted(operations)


@pytest.mark.clause("H5.1a", "T4a")
def test_a_claim_behind_a_cancel_gets_nothing(arena: Arena) -> None:
    operation = arena.approved()
    one, other = arena.race(lambda k: k.cancel(operation), lambda k: arena.claim(k, operation))
    assert (outcome(one), [outcome(row) for row in other]) == (
        ("cancelled", None),
        [("conflict", "not-approved")],
    )
    assert arena.a.state(operation) == "CANCELLED"


@pytest.mark.clause("H5.1a", "T4a")
def test_a_cancel_behind_a_claim_gets_nothing(arena: Arena) -> None:
    operation = arena.approved()
    one, other = arena.race(lambda k: arena.claim(k, operation), lambda k: k.cancel(operation))
    assert ([outcome(row) for row in one], outcome(other)) == (
        [("claimed", None)],
        ("conflict", "already-decided"),
    )
    assert arena.a.state(operation) == "EXECUTING"


@pytest.mark.clause("H4.4c", "H5.1b", "T4a")
def test_a_claim_that_waited_past_the_run_deadline_is_refused(arena: Arena) -> None:
    operation = arena.approved()
    (answer,) = arena.behind_a_lock(operation, lambda k: arena.claim(k, operation), seconds=RUN_WITHIN)
    assert outcome(answer) == ("conflict", "expired")
    assert arena.a.state(operation) == "APPROVED"


@pytest.mark.clause("H5.1b", "T4a")
def test_a_claim_that_waited_while_the_time_to_run_was_shortened_is_refused(arena: Arena) -> None:
    operation = arena.approved()
    arena.clock.advance(seconds=60)
    _, other = arena.race(
        lambda k: k.rows(
            "select from underseal.held_operation where operation_id = %s for no key update", operation
        ),
        lambda k: arena.claim(k, operation),
        meanwhile=lambda: arena.c.register(arena.type, run_within=60),
    )
    assert [outcome(row) for row in other] == [("conflict", "expired")]


@pytest.fixture
def in_person(arena: Arena) -> Arena:
    fresh = Arena(arena.a, arena.b, arena.c, arena.admin, arena.clock)
    fresh.a.register(fresh.type, mode="BY_REQUESTER")
    return fresh


@pytest.mark.clause("H7.2a", "T4a")
def test_of_two_repeats_one_runs(in_person: Arena) -> None:
    operation = in_person.approved()
    one, other = in_person.race(
        lambda k: in_person.resubmit(k, operation), lambda k: in_person.resubmit(k, operation)
    )
    assert (outcome(one), outcome(other)) == (("claimed", None), ("conflict", "not-approved"))
    assert other["run_token"] is None
    assert in_person.a.events(operation) == ["requested", "approved", "claimed"]


@pytest.mark.clause("H4.4c", "H7.2b", "T4a")
def test_a_repeat_that_waited_past_the_run_deadline_is_refused(in_person: Arena) -> None:
    operation = in_person.approved()
    answer = in_person.behind_a_lock(
        operation, lambda k: in_person.resubmit(k, operation), seconds=RUN_WITHIN
    )
    assert outcome(answer) == ("conflict", "expired")
    assert in_person.a.state(operation) == "APPROVED"


WAITING: dict[str, tuple[Callable[[Kernel, Claimed], Any], tuple[str, str]]] = {
    "renew": (lambda k, run: k.call("renew_run", run.operation, run.token), ("conflict", "lease-lost")),
    "progress": (
        lambda k, run: k.call("record_progress", run.operation, run.token, "x"),
        ("conflict", "lease-lost"),
    ),
    "ticket": (lambda k, run: k.call("issue_ticket", run.operation, run.token), ("conflict", "lease-lost")),
    "finish": (lambda k, run: k.finish(run), ("conflict", "lease-lost")),
}


@pytest.mark.clause("H4.4d", "T4a")
@pytest.mark.parametrize(("call", "expected"), WAITING.values(), ids=WAITING.keys())
def test_a_run_s_call_that_waited_past_its_lease_is_refused(arena: Arena, call: Any, expected: Any) -> None:
    run = arena.executing()
    assert outcome(arena.behind_a_lock(run.operation, lambda k: call(k, run), minutes=15)) == expected
    assert arena.a.audit(run.operation, "progress") == arena.a.audit(run.operation, "result") == []
    assert arena.a.rows("select from underseal.replay_ticket where operation_id = %s", run.operation) == []
    assert arena.a.operation(run.operation)["run_lease_until"] <= arena.clock.now()


@pytest.mark.clause("H4.4d", "H6.6d", "T4a")
def test_a_ticket_that_waited_past_the_lease_is_refused(arena: Arena) -> None:
    run = arena.executing()
    ticket = arena.a.call("issue_ticket", run.operation, run.token)["ticket"]
    answer = arena.behind_a_lock(
        run.operation, lambda k: k.call("consume_ticket", run.operation, ticket, "ann"), minutes=15
    )
    assert outcome(answer) == ("refused", "ticket")


@pytest.mark.clause("H6.6b", "T4a")
def test_a_ticket_is_used_by_one_of_two(arena: Arena) -> None:
    run = arena.executing()
    ticket = arena.a.call("issue_ticket", run.operation, run.token)["ticket"]
    one, other = arena.race(
        lambda k: k.call("consume_ticket", run.operation, ticket, "ann"),
        lambda k: k.call("consume_ticket", run.operation, ticket, "ann"),
    )
    assert (outcome(one), outcome(other)) == (("consumed", None), ("refused", "ticket"))


@pytest.mark.clause("H6.6b", "T4a")
def test_a_run_asks_for_its_ticket_twice_and_gets_one(arena: Arena) -> None:
    run = arena.executing()
    one, other = arena.race(
        lambda k: k.call("issue_ticket", run.operation, run.token),
        lambda k: k.call("issue_ticket", run.operation, run.token),
    )
    assert (outcome(one), outcome(other)) == (("issued", None), ("conflict", "already-issued"))


@pytest.mark.clause("H8.3a", "H8.3b", "T4a")
def test_a_finish_behind_the_sweep_that_lost_its_lease_is_refused(arena: Arena) -> None:
    run = arena.executing()
    arena.clock.advance(minutes=15)
    one, other = arena.race(lambda k: arena.sweep(k), lambda k: k.finish(run))
    assert (one, outcome(other)) == ({run.operation: "outcome-unknown"}, ("conflict", "lease-lost"))
    assert arena.a.events(run.operation)[-2:] == ["outcome-unknown", "late-finish"]


@pytest.mark.clause("H8.2a", "T4a")
@pytest.mark.parametrize("verb", ["finish", "renew"])
def test_a_sweep_passes_over_a_run_that_its_owner_has_locked(arena: Arena, verb: str) -> None:
    run = arena.executing()
    arena.clock.advance(minutes=14)
    with arena.a.connection.transaction():
        WAITING[verb][0](arena.a, run)
        arena.clock.advance(minutes=2)
        assert arena.sweep(arena.b) == {}
    assert arena.sweep(arena.b) == {}
    assert arena.a.state(run.operation) == ("SUCCEEDED" if verb == "finish" else "EXECUTING")


@pytest.mark.clause("H8.2b", "T4a")
def test_a_renewal_behind_the_sweep_that_lost_its_lease_is_refused(arena: Arena) -> None:
    run = arena.executing()
    arena.clock.advance(minutes=15)
    one, other = arena.race(lambda k: arena.sweep(k), lambda k: k.call("renew_run", run.operation, run.token))
    assert (one, outcome(other)) == ({run.operation: "outcome-unknown"}, ("conflict", "lease-lost"))


@pytest.mark.clause("H8.3a", "T4a")
def test_of_two_finishes_one_counts(arena: Arena) -> None:
    run = arena.executing()
    one, other = arena.race(lambda k: k.finish(run, "SUCCEEDED"), lambda k: k.finish(run, "FAILED", "late"))
    assert (outcome(one), outcome(other)) == (("finished", None), ("conflict", "already-ended"))
    assert arena.a.state(run.operation) == "SUCCEEDED"
    assert len(arena.a.audit(run.operation, "result")) == 1


@pytest.mark.clause("H5.3b", "T4a")
def test_sweeps_work_side_by_side(arena: Arena) -> None:
    operations = [arena.held() for _ in range(3)]
    runs = [arena.executing() for _ in range(2)]
    missed = [arena.approved() for _ in range(2)]
    arena.clock.advance(seconds=RUN_WITHIN)
    everything = {*operations, *missed, *(run.operation for run in runs)}
    with arena.c.connection.transaction():
        arena.c.rows(
            "select from underseal.held_operation where operation_id = any(%s) for no key update",
            [operations[0], missed[0], runs[0].operation],
        )
        with arena.a.connection.transaction():
            mine = arena.sweep(arena.a)
            assert arena.sweep(arena.b) == {}
    assert set(mine) == everything - {operations[0], missed[0], runs[0].operation}
    assert set(arena.sweep(arena.b)) == {operations[0], missed[0], runs[0].operation}


@pytest.mark.clause("H5.4", "T4a")
def test_a_claim_behind_the_sweep_that_missed_the_row_gets_nothing(arena: Arena) -> None:
    operation = arena.approved()
    arena.clock.advance(seconds=RUN_WITHIN)
    one, other = arena.race(lambda k: arena.sweep(k), lambda k: arena.claim(k, operation))
    assert (one, [outcome(row) for row in other]) == ({operation: "missed"}, [("conflict", "not-approved")])
