"""A flow that waits for an operation is told of its end, whatever ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.held.sql.kernel import HOLD_FOR, RUN_WITHIN, Kernel, Row, outcome
from tests.inbox.box import Box, box
from underseal.testing import OWNER

pytestmark = pytest.mark.clause("E6b")


@pytest.fixture
def b(k: Kernel) -> Box:
    """An execution of ann's, who asks for the operations."""
    return box(k)


def wait(b: Box, operation: UUID, fence: int | None = None) -> tuple[str, str | None]:
    """Ask to be told of an end."""
    return outcome(b.k.call("await_operation", operation, b.id, b.fence if fence is None else fence))


def waiting(k: Kernel, operation: UUID) -> list[tuple[str, str]]:
    """Who waits for an operation."""
    rows = k.rows("select * from underseal.held_waiter where operation_id = %s order by 2, 3", operation)
    return [(row["chain_id"], row["line"]) for row in rows]


def ends(b: Box, operation: UUID) -> list[Row]:
    """What the inbox holds about an operation, the payload as it is stored."""
    return b.k.rows(
        "select sender, message_id, payload::text as payload, metadata, expires_at from underseal.inbox_message"
        " where chain_id = %s and line = %s and topic = %s",
        b.chain, b.line, f"$hold/{operation}",
    )  # fmt: skip


def told(b: Box, operation: UUID) -> list[Any]:
    """What was said of an operation."""
    return [json.loads(end["payload"]) for end in ends(b, operation)]


def run(k: Kernel, state: str, **rest: Any) -> Callable[[UUID], None]:
    """End it by a run."""

    def end(operation: UUID) -> None:
        k.approve(operation)
        k.finish(k.run(operation), state, **rest)

    return end


def swept(
    k: Kernel, seconds: int, *, approved: bool = False, claimed: bool = False
) -> Callable[[UUID], None]:
    """Let time end it."""

    def end(operation: UUID) -> None:
        if approved or claimed:
            k.approve(operation)
        if claimed:
            k.run(operation)
        k.clock.advance(seconds=seconds)
        assert operation in {row["operation_id"] for row in k.calls("sweep_operations")}

    return end


ENDS: dict[str, tuple[Callable[[Kernel], Callable[[UUID], Any]], str, str | None, Any]] = {
    "finished": (lambda k: run(k, "SUCCEEDED", result={"paid": 1}), "SUCCEEDED", None, {"paid": 1}),
    "failed": (lambda k: run(k, "FAILED", why="broke"), "FAILED", "broke", None),
    "refused": (lambda k: run(k, "REFUSED", why="integrity"), "REFUSED", "integrity", None),
    "given up": (lambda k: run(k, "OUTCOME_UNKNOWN", why="stopped"), "OUTCOME_UNKNOWN", "stopped", None),
    "rejected": (lambda k: k.reject, "REJECTED", "rejected", None),
    "cancelled": (lambda k: k.cancel, "CANCELLED", "cancelled-by-requester", None),
    "expired": (lambda k: swept(k, HOLD_FOR), "EXPIRED", "not-approved-in-time", None),
    "missed": (lambda k: swept(k, RUN_WITHIN, approved=True), "EXPIRED", "not-run-in-time", None),
    "lost": (lambda k: swept(k, 3600, claimed=True), "OUTCOME_UNKNOWN", "lease-lost", None),
}


@pytest.mark.parametrize("way", ENDS)
def test_whatever_ends_an_operation_tells_who_waits(b: Box, way: str) -> None:
    make, state, reason, result = ENDS[way]
    operation = b.k.hold()
    assert wait(b, operation) == ("awaited", None)
    assert waiting(b.k, operation) == [(b.chain, b.line)]
    make(b.k)(operation)
    assert b.k.state(operation) == state
    (end,) = ends(b, operation)
    assert json.loads(end["payload"]) == {
        "operation_id": str(operation), "state": state, "reason": reason, "result": result,
    }  # fmt: skip
    assert (end["sender"], end["message_id"]) == (str(operation), str(operation))
    assert (end["metadata"], end["expires_at"]) == (None, None)
    assert waiting(b.k, operation) == []


def test_a_late_finish_and_a_repeated_request_tell_it_too(b: Box) -> None:
    """They end what time has ended before a sweep does."""
    operation = b.k.hold()
    wait(b, operation)
    b.k.approve(operation)
    claimed = b.k.run(operation)
    b.k.clock.advance(hours=1)
    assert outcome(b.k.finish(claimed)) == ("conflict", "lease-lost")
    assert [end["state"] for end in told(b, operation)] == ["OUTCOME_UNKNOWN"]
    content = b"f" * 32
    operation = b.k.hold(fingerprint=content)
    wait(b, operation)
    b.k.clock.advance(seconds=HOLD_FOR)
    b.k.hold(fingerprint=content)
    assert [end["state"] for end in told(b, operation)] == ["EXPIRED"]


@pytest.mark.clause("E7d")
def test_who_is_parked_is_woken(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    b.park(w=[f"$hold/{operation}"])
    assert b.wakes() == []
    b.k.cancel(operation)
    assert b.wakes() == ["inbox"]
    assert b.deliver()["answered"] == 1
    assert b.facts()[0]["payload"]["state"] == "CANCELLED"
    b.audit()


def test_one_that_has_ended_is_told_at_once(b: Box) -> None:
    operation = b.k.hold()
    b.k.cancel(operation)
    row = b.k.call("await_operation", operation, b.id, b.fence)
    assert (row["outcome"], row["state"]) == ("told", "CANCELLED")
    assert wait(b, operation) == ("told", None)
    assert len(ends(b, operation)) == 1
    assert waiting(b.k, operation) == []
    assert b.park(w=[f"$hold/{operation}"]) == "answered"
    # and is not told again to who consumed it
    assert wait(b, operation) == ("told", None)
    assert ends(b, operation) == []


def test_to_wait_twice_changes_nothing(b: Box) -> None:
    operation = b.k.hold()
    row = b.k.call("await_operation", operation, b.id, b.fence)
    assert (row["outcome"], row["state"]) == ("awaited", "HELD")
    assert wait(b, operation) == ("unchanged", None)
    b.k.cancel(operation)
    assert len(ends(b, operation)) == 1


def test_several_may_wait_for_one_operation_each_in_its_inbox(b: Box) -> None:
    other = box(b.k)
    child = Box(b.k, f"{b.chain}~pay").start()
    operation = b.k.hold()
    for one in (child, other, b):
        assert wait(one, operation) == ("awaited", None)
    b.k.cancel(operation)
    assert [len(told(one, operation)) for one in (b, child, other)] == [1, 1, 1]


def test_who_continues_is_still_told(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    b.go_on()
    b.park(w=[f"$hold/{operation}"])
    assert wait(b, operation) == ("unchanged", None)
    b.k.cancel(operation)
    assert b.wakes() == ["inbox"]
    assert b.deliver()["answered"] == 1


def test_who_has_ended_is_told_nothing(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    b.write("complete")
    assert outcome(b.k.cancel(operation)) == ("cancelled", None)
    assert ends(b, operation) == []
    assert waiting(b.k, operation) == []


@pytest.mark.clause("E2b")
def test_only_its_driver_has_an_execution_wait(b: Box) -> None:
    operation = b.k.hold()
    assert wait(b, operation, 2) == ("conflict", "stale-fence")
    assert outcome(b.k.call("await_operation", operation, b.id, None)) == ("conflict", "stale-fence")
    b.take()
    assert wait(b, operation, 1) == ("conflict", "stale-fence")
    b.write("complete")
    assert wait(b, operation) == ("conflict", "ended")
    assert waiting(b.k, operation) == []


def test_what_is_not_there_cannot_be_awaited(b: Box) -> None:
    assert wait(b, uuid4()) == ("not-found", None)
    operation = b.k.hold()
    for one in ("nobody", f"{b.chain}~nobody", None):
        assert outcome(b.k.call("await_operation", operation, one, 1)) == ("not-found", None)
    assert outcome(b.k.call("await_operation", None, b.id, b.fence)) == ("not-found", None)
    assert waiting(b.k, operation) == []


def test_a_flow_waits_for_what_its_owner_asked_for(b: Box) -> None:
    foreign = b.k.hold(principal="eve")
    assert wait(b, foreign) == ("refused", "foreign")
    b.k.cancel(foreign, "eve")
    assert wait(b, foreign) == ("refused", "foreign")
    assert ends(b, foreign) == []
    assert waiting(b.k, foreign) == []


def test_and_for_what_runs_in_the_background(b: Box) -> None:
    b.k.register(type="by.hand", mode="BY_REQUESTER")
    operation = b.k.hold(type="by.hand")
    assert wait(b, operation) == ("refused", "by-requester")
    b.k.cancel(operation)
    assert wait(b, operation) == ("refused", "by-requester")
    assert ends(b, operation) == []


@pytest.mark.parametrize("result", [{"__loomEnc": "x", "ct": "y"}, "deep"])
def test_a_result_that_is_no_message_is_withheld(b: Box, result: Any) -> None:
    """A message that nobody can be handed would hold up its topic for ever."""
    if result == "deep":
        result = "x" * 1100
        for _ in range(600):
            result = [result]
    operation = b.k.hold()
    wait(b, operation)
    run(b.k, "SUCCEEDED", result=result)(operation)
    b.park(w=[f"$hold/{operation}"])
    assert b.facts()[0]["payload"] == {
        "operation_id": str(operation), "state": "SUCCEEDED", "reason": None, "result": None, "withheld": True,
    }  # fmt: skip


def test_a_deleted_chain_leaves_nobody_waiting(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    b.write("complete")
    assert b.k.call("delete_chain", b.chain, "op")["outcome"] == "deleted"
    assert waiting(b.k, operation) == []
    again = Box(b.k, b.id).start()
    b.k.cancel(operation)
    assert again.pending() == []


@pytest.mark.clause("H3.8a")
def test_nobody_waits_for_what_was_purged(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    b.k.cancel(operation)
    # somebody whose triggers were off
    with b.k.login(None, "replica"):
        b.k.do("alter table underseal.held_waiter disable trigger held_waiter_check")
        b.k.do("insert into underseal.held_waiter values (%s, %s, '')", operation, b.chain)
        b.k.do("alter table underseal.held_waiter enable always trigger held_waiter_check")
    b.k.clock.advance(days=91)
    with b.k.connection.transaction(force_rollback=True):
        for table in ("held_event_pending", "held_event"):
            b.k.do(f"delete from underseal.{table} where operation_id = %s", operation)
        refused = b.k.refused(
            "US007", "delete from underseal.held_operation where operation_id = %s", operation
        )
        assert "waiters" in refused
    assert operation in {row["operation_id"] for row in b.k.calls("purge_operations", 1000)}
    assert waiting(b.k, operation) == []


INSERT = "insert into underseal.held_waiter (operation_id, chain_id, line) values (%s, %s, %s)"


@pytest.mark.clause("T5a", "H3.9a", "H3.9c")
@pytest.mark.parametrize("writer", ["owner", "replica"])
def test_nobody_redirects_the_end_of_an_operation(b: Box, writer: str) -> None:
    foreign = box(b.k, owner="eve")
    child = Box(b.k, f"{b.chain}~pay").start().go_on()
    b.k.register(type="by.hand", mode="BY_REQUESTER")
    operation, by_hand, over = b.k.hold(), b.k.hold(type="by.hand"), b.k.hold()
    b.k.cancel(over)
    wait(b, operation)
    with b.k.login(None if writer == "replica" else OWNER, "replica" if writer == "replica" else "origin"):
        for column, value in (("chain_id", foreign.chain), ("line", "pay"), ("operation_id", str(by_hand))):
            b.k.refused("US004", f"update underseal.held_waiter set {column} = %s", value)
        b.k.refused("US007", "delete from underseal.held_waiter")
        b.k.refused("US004", "truncate underseal.held_waiter")
        for wrong in (
            (operation, foreign.chain, ""),  # another's execution
            (operation, "nobody", ""),
            (operation, b.chain, "nobody"),
            (operation, b.chain, child.place[1]),  # a member that is no line
            (uuid4(), b.chain, ""),
            (by_hand, b.chain, ""),
            (over, b.chain, ""),
        ):
            b.k.refused("US002", INSERT, *wrong)
        assert b.k.do(INSERT, operation, b.chain, "pay") == 1


def test_a_replica_is_told_by_rows_of_its_own(b: Box) -> None:
    operation = b.k.hold()
    wait(b, operation)
    with b.k.login(None, "replica"):
        b.k.together(
            (
                "update underseal.held_operation set state = 'CANCELLED', changed_by = 'x',"
                " changed_at = underseal.clock(), ended_at = underseal.clock(), sealed_payload = null,"
                " payload_key_id = null, fingerprint = null, fingerprint_key_id = null where operation_id = %s",
                (operation,),
            ),
            (
                "insert into underseal.held_event (operation_id, type, actor, from_state, to_state, recorded_at)"
                " values (%s, 'cancelled', 'x', 'HELD', 'CANCELLED', underseal.clock())",
                (operation,),
            ),
        )
    assert ends(b, operation) == []
    assert waiting(b.k, operation) == [(b.chain, b.line)]
