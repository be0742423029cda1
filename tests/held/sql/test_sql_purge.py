"""Retention: 90 days, and until every consumer has heard."""

from __future__ import annotations

from typing import Any

import pytest

from tests.held.sql.kernel import ENDED, OPEN, Kernel


def purged(k: Kernel, *arguments: int) -> set[Any]:
    answers = k.calls("purge_operations", *arguments)
    assert {answer["outcome"] for answer in answers} <= {"purged"}
    return {answer["operation_id"] for answer in answers}


@pytest.mark.clause("H3.8a")
@pytest.mark.parametrize("state", ENDED)
def test_what_ended_90_days_ago_goes_with_all_its_rows(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    ended_at = k.operation(operation)["ended_at"]
    k.clock.set(ended_at)
    k.clock.advance(days=90, microseconds=-1)
    before = k.everything()
    assert purged(k) == set()
    assert k.everything() == before
    k.clock.advance(microseconds=1)
    assert purged(k) == {operation}
    left = {name for name, rows in k.everything().items() if any(str(operation) in row for row in rows)}
    assert left == {"audit_entry"}


@pytest.mark.clause("H6.7e")
def test_audit_entries_outlive_their_operation(k: Kernel) -> None:
    run = k.executing()
    k.call("issue_ticket", run.operation, run.token)
    k.call("record_progress", run.operation, run.token, "half")
    k.finish(run)
    entries = k.everything()["audit_entry"]
    k.clock.advance(days=90)
    assert purged(k) == {run.operation}
    assert k.everything()["audit_entry"] == entries
    assert len(entries) == 4


@pytest.mark.clause("H3.8c")
@pytest.mark.parametrize("state", OPEN)
def test_an_open_row_is_never_purged(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    k.clock.advance(days=4000)
    before = k.everything()
    assert purged(k) == set()
    assert k.everything() == before
    assert k.state(operation) == state


@pytest.mark.clause("H3.8b")
def test_a_purge_works_in_batches(k: Kernel) -> None:
    operations = []
    for _ in range(5):
        operations.append(k.reach("CANCELLED"))
        k.clock.advance(seconds=1)
    k.clock.advance(days=90)
    assert purged(k, 2) == set(operations[:2])
    assert purged(k, 2) == set(operations[2:4])
    assert purged(k, 2) == set(operations[4:])
    assert purged(k, 2) == set()


@pytest.mark.clause("H3.8d", "H3.8e")
def test_a_purge_waits_for_the_slowest_consumer(k: Kernel) -> None:
    first = k.reach("CANCELLED")
    k.call("register_consumer", "quick")
    k.call("register_consumer", "slow")
    k.clock.advance(seconds=1)
    second = k.reach("CANCELLED")
    k.clock.advance(days=90)
    assert purged(k) == set(), "events without a position have been heard by nobody"
    k.calls("read_outbox", "quick")
    k.call("ack_outbox", "quick", 4)
    assert purged(k) == set()
    k.call("ack_outbox", "slow", 1)
    assert purged(k) == set(), "half heard is not heard"
    k.call("ack_outbox", "slow", 2)
    assert purged(k) == {first}
    k.call("drop_consumer", "slow")
    assert purged(k) == {second}


@pytest.mark.clause("H3.8d")
def test_one_that_is_not_heard_of_keeps_no_other(k: Kernel) -> None:
    late = k.hold()
    other = k.reach("CANCELLED")
    k.call("register_consumer", "c")
    k.calls("read_outbox", "c")
    k.call("ack_outbox", "c", 3)
    k.cancel(late)
    k.clock.advance(days=90)
    assert purged(k) == {other}


@pytest.mark.clause("H3.7a", "H3.7b")
def test_a_consumer_that_comes_after_a_purge_sees_no_gap(k: Kernel) -> None:
    k.call("register_consumer", "c")
    old = k.hold()
    gone = k.reach("CANCELLED")
    k.calls("read_outbox", "c")
    k.call("ack_outbox", "c", 3)
    k.clock.advance(days=90)
    k.cancel(k.hold())
    assert purged(k) == {gone}
    answer = k.call("register_consumer", "new")
    assert answer["acknowledged"] == 3
    assert [row["position"] for row in k.calls("read_outbox", "new")] == [4, 5]
    assert k.state(old) == "HELD"


def test_what_was_purged_unnumbered_leaves_no_gap(k: Kernel) -> None:
    gone = k.reach("CANCELLED")
    k.clock.advance(days=90)
    assert purged(k) == {gone}
    k.call("register_consumer", "c")
    k.reach("CANCELLED")
    assert [row["position"] for row in k.calls("read_outbox", "c")] == [1, 2]
