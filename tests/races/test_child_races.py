"""A child's end meets its parent: nothing is lost, and nobody waits in a circle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel
from tests.inbox.box import Box, box
from tests.races.arena import Arena
from underseal.testing import in_background, wait_blocked, wait_until

pytestmark = pytest.mark.clause("T4b", "E6c")
Act = Callable[[Box], Any]


@pytest.fixture
def b(arena: Arena) -> Iterator[Box]:
    """An execution that runs and has a child that runs, in session a; audited at the end."""
    made = box(arena.a, "family")
    made.step()
    child(made).start()
    child(made).step()
    yield made
    made.on(arena.a).audit()


def child(b: Box, name: str = "kid") -> Box:
    """The child of a parent, in the parent's session."""
    return Box(b.k, f"{b.chain}~{name}", owner=b.owner)


def done(b: Box) -> str:
    """The child ends."""
    return str(child(b).write("complete", output=1)["outcome"])


def killed(b: Box) -> str:
    """The child is cancelled at once."""
    return str(b.k.call("cancel_execution", f"{b.chain}~kid", b.owner, "why", True)["outcome"])


def park(b: Box) -> str:
    """The parent parks on its child."""
    return b.park(w=["$child/kid"])


def settle(b: Box) -> None:
    """What a worker does that the wakes call."""
    while b.status == "suspended" and "inbox" in b.wakes():
        b.take()
        b.deliver()


def meet(arena: Arena, b: Box, first: Act, second: Act, rollback: bool = False) -> tuple[Any, Any]:
    """Session a acts and stays in its transaction, session b acts and waits for it."""
    return arena.race(lambda k: first(b.on(k)), lambda k: second(b.on(k)), rollback=rollback)


ENDS = pytest.mark.parametrize(("end", "said"), [(done, "completed"), (killed, "cancelled")])


@pytest.mark.clause("E7d")
@ENDS
def test_a_park_that_waits_for_a_child_s_end_is_answered(arena: Arena, b: Box, end: Act, said: str) -> None:
    assert meet(arena, b, end, park) == (said, "answered")
    assert [fact["payload"]["status"] for fact in b.facts()] == [said]


@pytest.mark.clause("E7d")
@ENDS
def test_a_child_s_end_that_waits_for_a_park_wakes(arena: Arena, b: Box, end: Act, said: str) -> None:
    assert meet(arena, b, park, end) == ("parked", said)
    assert b.wakes() == ["inbox"]
    settle(b)
    assert [fact["payload"]["status"] for fact in b.facts()] == [said]


@pytest.mark.clause("E7d")
@ENDS
def test_what_is_undone_tells_nothing(arena: Arena, b: Box, end: Act, said: str) -> None:
    assert meet(arena, b, end, park, rollback=True) == (said, "parked")
    assert (b.wakes(), b.pending(), child(b).status) == ([], [], "running")
    assert end(b) == said
    assert b.wakes() == ["inbox"]


@pytest.mark.clause("E7d")
@pytest.mark.parametrize("order", [(done, park), (park, done)], ids=["end-park", "park-end"])
def test_both_wait_for_the_parent_and_come_in_their_order(
    arena: Arena, b: Box, order: tuple[Act, Act]
) -> None:
    with arena.c.connection.transaction(force_rollback=True):
        arena.c.connection.execute(
            "select from underseal.execution where chain_id = %s and member = '' for no key update", [b.chain]
        )
        waiting = []
        for act, k in zip(order, (arena.a, arena.b), strict=True):
            waiting.append(in_background(act, b.on(k)))
            wait_blocked(arena.admin, k.connection.info.backend_pid)
    for one in waiting:
        one.result(10)
    settle(b)
    assert [fact["payload"]["output"] for fact in b.facts()] == [1]


def by_hand(b: Box) -> int:
    """Somebody writes the child's end into the log without locking anything before."""
    return b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values (%s, 'kid', 2, underseal.clock(), 'EXECUTION_COMPLETED', '{\"output\": 1}')",
        b.chain,
    )


@pytest.mark.clause("E7d")
def test_whoever_writes_the_end_waits_for_a_park(arena: Arena, b: Box) -> None:
    """Who goes on with the line parks, and not the row that gives the numbers."""
    b.go_on()
    assert meet(arena, b, park, by_hand) == ("parked", 1)
    assert b.wakes() == ["inbox"]
    settle(b)
    assert [fact["payload"]["output"] for fact in b.facts()] == [1]


@pytest.mark.clause("E7d")
def test_a_child_s_end_meets_a_parent_that_continues(arena: Arena, b: Box) -> None:
    """Who goes on with the line parks, and is found parked: the line is followed under its lock."""
    follower = Box(arena.a, f"{b.chain}~2", first=b.first, owner=b.owner)

    def go_on(one: Box) -> str:
        assert one.write("continue")["outcome"] == "continued"
        return park(Box(one.k, follower.id, first=one.first, owner=one.owner))

    assert meet(arena, b, go_on, done) == ("parked", "completed")
    b.id = follower.id
    assert b.wakes() == ["inbox"]
    settle(b)
    assert [fact["payload"]["output"] for fact in b.facts()] == [1]


ROW = "select member from underseal.execution where chain_id = %s and member = %s for no key update"


def is_free(arena: Arena, b: Box, member: str) -> bool:
    """Whether nobody holds a row of a chain."""
    return arena.b.rows(f"{ROW} skip locked", b.chain, member) != []


def test_a_parent_that_continued_while_a_batch_waited_is_locked_before_the_child(
    arena: Arena, b: Box
) -> None:
    """As the batch saw it when it began, somebody else went on with the line."""
    b.go_on()
    kid, other = child(b), child(b, "lad").start()
    items = [item(kid, "complete"), item(other, "append")]
    with arena.admin.transaction():
        # what the batch comes to once it has the line
        arena.admin.execute(ROW, [b.chain, "kid"])
        with arena.c.connection.transaction():
            (row,) = arena.c.connection.execute(
                "select outcome from underseal.append_batch(%s)", [json.dumps([item(b, "continue")])]
            ).fetchall()
            assert row["outcome"] == "continued"
            ending = in_background(lambda k: batch(k, *items), arena.a)
            wait_blocked(arena.b.connection, arena.a.connection.info.backend_pid)
        wait_until(lambda: not is_free(arena, b, "3"), 5)
        assert is_free(arena, b, "lad")
    assert ending.result(10) == ["completed", "appended"]
    b.id = f"{b.chain}~3"
    assert b.pending() == [1]


PARENT: dict[str, tuple[Act, Any]] = {
    "send": (lambda b: b.send("a")["outcome"], "sent"),
    "append": (lambda b: b.step()["outcome"], "appended"),
    "complete": (lambda b: b.write("complete")["outcome"], "completed"),
    "cancel": (lambda b: b.k.call("cancel_execution", b.id, b.owner)["outcome"], "requested"),
    "kill": (lambda b: b.k.call("cancel_execution", b.id, b.owner, None, True)["outcome"], "cancelled"),
    "delete": (lambda b: b.k.call("delete_chain", b.chain, "op")["reason"], "open"),
}


@ENDS
@pytest.mark.parametrize("what", PARENT)
@pytest.mark.parametrize("child_first", [True, False])
def test_whatever_happens_to_the_parent_waits_its_turn(
    arena: Arena, b: Box, end: Act, said: str, what: str, child_first: bool
) -> None:
    act, answer = PARENT[what]
    if child_first:
        assert meet(arena, b, end, act) == (said, answer)
    else:
        assert meet(arena, b, act, end) == (answer, said)
    # who has ended is told nothing
    assert len(b.pending("$child/kid")) == (child_first or what not in ("complete", "kill"))


def batch(k: Kernel, *items: dict[str, Any]) -> list[str]:
    """Write to several logs."""
    rows = k.calls("append_batch", json.dumps(items))
    return [row["outcome"] for row in rows]


def item(one: Box, verb: str) -> dict[str, Any]:
    """An item of a batch."""
    return {"verb": verb, "execution_id": one.id, "fence": one.fence, "events": []}


@pytest.mark.parametrize("verbs", [("complete", "complete"), ("complete", "append"), ("append", "complete")])
def test_two_children_in_batches_of_opposite_orders(arena: Arena, b: Box, verbs: tuple[str, str]) -> None:
    """Each batch ends one child and writes to another, which the other batch has too."""
    kids = [child(b, name) for name in ("one", "two", "three")]
    for kid in kids:
        kid.start()
    forth = [item(kids[0], verbs[0]), item(kids[2], "append"), item(b, "append")]
    back = [item(b, "append"), item(kids[2], "append"), item(kids[1], verbs[1])]
    with arena.c.connection.transaction(force_rollback=True):
        # the last that both come to
        arena.c.connection.execute(
            "select from underseal.execution where chain_id = %s and member = 'three' for no key update",
            [b.chain],
        )
        first = in_background(lambda k: batch(k, *forth), arena.a)
        wait_blocked(arena.admin, arena.a.connection.info.backend_pid)
        second = in_background(lambda k: batch(k, *back), arena.b)
        wait_blocked(arena.admin, arena.b.connection.info.backend_pid)
    said = {"complete": "completed", "append": "appended"}
    assert first.result(10) == [said[verbs[0]], "appended", "appended"]
    assert second.result(10) == ["appended", "appended", said[verbs[1]]]
    assert len(b.pending()) == verbs.count("complete")
