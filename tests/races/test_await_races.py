"""An operation's end meets who waits for it: nothing is lost, and nobody waits in a circle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tests.held.sql.kernel import HOLD_FOR, Kernel, outcome
from tests.inbox.box import Box, box
from tests.races.arena import Arena
from underseal.testing import in_background, wait_blocked

pytestmark = pytest.mark.clause("T4b", "E6b")


@pytest.fixture
def b(arena: Arena) -> Iterator[Box]:
    """An execution that runs, in session a; audited at the end."""
    made = box(arena.a, "waits")
    yield made
    if arena.a.rows("select from underseal.execution where chain_id = %s", made.chain):
        made.on(arena.a).audit()


def wait(b: Box, operation: UUID) -> str:
    """Its driver asks to be told."""
    return str(b.k.call("await_operation", operation, b.id, b.fence)["outcome"])


def park(b: Box, operation: UUID) -> str:
    """Its driver parks."""
    return b.park(w=[f"$hold/{operation}"])


def wait_and_park(b: Box, operation: UUID) -> str:
    """Both in one transaction."""
    return f"{wait(b, operation)} {park(b, operation)}"


def cancel(b: Box, operation: UUID) -> str:
    """Its requester ends the operation."""
    return str(b.k.cancel(operation)["outcome"])


def reject(b: Box, operation: UUID) -> str:
    """An approver does."""
    return str(b.k.reject(operation)["outcome"])


Act = Callable[[Box, UUID], str]
ENDS = pytest.mark.parametrize(("end", "state"), [(cancel, "CANCELLED"), (reject, "REJECTED")])


def meet(
    arena: Arena, b: Box, operation: UUID, first: Act, second: Act, rollback: bool = False
) -> tuple[str, str]:
    """Session a acts and stays in its transaction, session b acts and waits for it."""
    return arena.race(
        lambda k: first(b.on(k), operation), lambda k: second(b.on(k), operation), rollback=rollback
    )


def settle(b: Box) -> list[str]:
    """What a worker does that the wakes call: the states that were delivered."""
    while b.status == "suspended" and "inbox" in b.wakes():
        b.take()
        b.deliver()
    return [fact["payload"]["state"] for fact in b.facts()]


def nobody_waits(arena: Arena, operation: UUID) -> bool:
    """Whether nothing is left of who waited."""
    return arena.a.rows("select from underseal.held_waiter where operation_id = %s", operation) == []


@pytest.mark.clause("E7d")
@ENDS
def test_who_asks_while_it_ends_is_told_that_it_has(arena: Arena, b: Box, end: Act, state: str) -> None:
    operation = arena.held()
    assert meet(arena, b, operation, end, wait)[1] == "told"
    assert park(b, operation) == "answered"
    assert settle(b) == [state]
    assert nobody_waits(arena, operation)


@pytest.mark.clause("E7d")
@ENDS
def test_what_ends_while_somebody_asks_tells_them(arena: Arena, b: Box, end: Act, state: str) -> None:
    operation = arena.held()
    assert meet(arena, b, operation, wait, end)[0] == "awaited"
    assert park(b, operation) == "answered"
    assert settle(b) == [state]
    assert nobody_waits(arena, operation)


@pytest.mark.clause("E7d")
@ENDS
def test_what_ends_while_somebody_asks_and_parks_wakes_them(
    arena: Arena, b: Box, end: Act, state: str
) -> None:
    operation = arena.held()
    assert meet(arena, b, operation, wait_and_park, end)[0] == "awaited parked"
    assert b.wakes() == ["inbox"]
    assert settle(b) == [state]


@pytest.mark.clause("E7d")
@ENDS
def test_a_park_that_waits_for_an_end_is_answered(arena: Arena, b: Box, end: Act, state: str) -> None:
    operation = arena.held()
    wait(b, operation)
    assert meet(arena, b, operation, end, park)[1] == "answered"
    assert settle(b) == [state]


@pytest.mark.clause("E7d")
@ENDS
def test_an_end_that_waits_for_a_park_wakes(arena: Arena, b: Box, end: Act, state: str) -> None:
    operation = arena.held()
    wait(b, operation)
    assert meet(arena, b, operation, park, end)[0] == "parked"
    assert b.wakes() == ["inbox"]
    assert settle(b) == [state]


@pytest.mark.clause("E7d")
@pytest.mark.parametrize("first", [cancel, wait])
def test_what_is_undone_is_as_if_it_had_not_been(arena: Arena, b: Box, first: Act) -> None:
    operation = arena.held()
    if first is cancel:
        assert meet(arena, b, operation, cancel, wait, rollback=True)[1] == "awaited"
        assert park(b, operation) == "parked"
        cancel(b, operation)
        assert settle(b) == ["CANCELLED"]
    else:
        assert meet(arena, b, operation, wait, cancel, rollback=True)[1] == "cancelled"
        assert wait(b, operation) == "told"
        assert park(b, operation) == "answered"


def delete(b: Box, _: UUID) -> str:
    """The chain goes."""
    return str(b.k.call("delete_chain", b.chain, "op")["outcome"])


def test_an_end_that_waits_for_a_deletion_tells_nobody(arena: Arena, b: Box) -> None:
    """Neither who is gone, nor who took its id meanwhile."""
    operation = arena.held()
    wait(b, operation)
    b.write("complete")

    def delete_and_start(one: Box, _: UUID) -> str:
        assert delete(one, operation) == "deleted"
        return str(Box(one.k, one.id).start().id)

    assert meet(arena, b, operation, delete_and_start, cancel)[1] == "cancelled"
    assert b.pending() == []
    assert nobody_waits(arena, operation)


def test_a_deletion_that_waits_for_an_end_takes_the_message_along(arena: Arena, b: Box) -> None:
    operation = arena.held()
    wait(b, operation)
    b.write("complete")
    assert meet(arena, b, operation, cancel, delete) == ("cancelled", "deleted")
    assert nobody_waits(arena, operation)


def test_who_asks_while_its_chain_is_deleted_finds_none(arena: Arena, b: Box) -> None:
    operation = arena.held()
    b.write("complete")
    assert meet(arena, b, operation, delete, wait)[1] == "not-found"
    assert nobody_waits(arena, operation)


def hold_row(k: Kernel, one: Box) -> None:
    """Lock an execution's row."""
    k.connection.execute(
        "select from underseal.execution where chain_id = %s and member = %s for no key update", one.place
    )


@pytest.mark.parametrize("place", ["first", "going on"])
def test_a_sweep_waits_for_no_execution(arena: Arena, b: Box, place: str) -> None:
    """It holds what it has ended before: it must not wait for who may wait for that."""
    held, free = arena.held(), arena.held()
    wait(b, held)
    locked = Box(arena.c, b.id)
    b.go_on()
    if place == "going on":
        locked = b.on(arena.c)
    arena.clock.advance(seconds=HOLD_FOR)
    with arena.c.connection.transaction():
        hold_row(arena.c, locked)
        assert arena.sweep(arena.a) == {free: "expired"}
        assert arena.a.state(held) == "HELD"
    assert arena.sweep(arena.a) == {held: "expired"}
    assert len(b.pending(f"$hold/{held}")) == 1


def test_sweeps_batches_and_ends_in_opposite_orders(arena: Arena) -> None:
    """Each sweep ends two operations that two executions wait for, the other way round from the other's."""
    boxes = [box(arena.a, name) for name in ("wait-a", "wait-b")]
    operations = [arena.held() for _ in range(4)]
    for operation, one in zip(operations, (boxes[0], boxes[1], boxes[1], boxes[0]), strict=True):
        wait(one, operation)
    arena.clock.advance(seconds=HOLD_FOR)
    with arena.a.connection.transaction():
        # the first two, since the others are held
        with arena.c.connection.transaction():
            for operation in operations[2:]:
                arena.c.connection.execute(
                    "select from underseal.held_operation where operation_id = %s for no key update",
                    [operation],
                )
            assert set(arena.sweep(arena.a)) == set(operations[:2])
        # this one meets both executions held, waits for neither, and leaves its two to the next pass
        assert arena.sweep(arena.b) == {}
        # a batch waits for the first sweep, and holds what the sweep has no more need of
        items = [
            {"verb": "append", "execution_id": one.id, "fence": 1, "events": [{"type": "STEP", "data": {}}]}
            for one in boxes
        ]
        batch = in_background(lambda k: k.calls("append_batch", json.dumps(items)), arena.b)
        wait_blocked(arena.admin, arena.b.connection.info.backend_pid)
    assert [row["outcome"] for row in batch.result(10)] == ["appended", "appended"]
    assert set(arena.sweep(arena.b)) == set(operations[2:])
    assert [len(one.pending()) for one in boxes] == [2, 2]


def test_one_end_locks_its_lines_in_the_order_of_their_ids(arena: Arena, b: Box) -> None:
    """Who goes on with 'kid' comes after 'kid-2': as a batch over both locks them."""
    kids = [Box(b.k, f"{b.chain}~{name}").start() for name in ("kid", "kid-2")]
    kids[0].go_on()
    operation = arena.held()
    for one in (*kids, b):
        wait(one, operation)
    order = [b, Box(b.k, f"{b.chain}~kid"), kids[1], kids[0]]
    for place, one in enumerate(order):
        with arena.c.connection.transaction(force_rollback=True):
            hold_row(arena.c, one)
            ending = in_background(_undone(operation), arena.a)
            wait_blocked(arena.admin, arena.a.connection.info.backend_pid)
            free = [other.id for other in order if _is_free(arena, other)]
            assert free == [other.id for other in order[place + 1 :]], one.id
        assert ending.result(10) == "cancelled"
    assert outcome(b.k.cancel(operation)) == ("cancelled", None)


def _undone(operation: UUID) -> Callable[[Kernel], str]:
    def end(k: Kernel) -> str:
        with k.connection.transaction(force_rollback=True):
            return str(k.cancel(operation)["outcome"])

    return end


def _is_free(arena: Arena, one: Box) -> bool:
    cursor = arena.admin.execute(
        "select from underseal.execution where chain_id = %s and member = %s for no key update skip locked",
        one.place,
    )
    return bool(cursor.rowcount)
