"""Delivering to many in one call: to each what deliver does (clauses I1, E7, G16)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import MARKER, Box, box


def deliver_all(*boxes: Box, k: Kernel | None = None) -> list[Row]:
    """Deliver to all of them, each under its fence."""
    items = [{"execution_id": b.id, "fence": b.fence} for b in boxes]
    return (k or boxes[0].k).rows("select * from underseal.deliver_batch(%s::json)", json.dumps(items))


def message(b: Box) -> None:
    b.park(w=["a"])
    b.put("a", '{"n":  1}')


def two_waits(b: Box) -> None:
    b.park(w1=["a", "b"], w2=["b", "a"], w3=["c"])
    b.put("b", "1")
    b.put("a", "2")
    b.put("b", "3")


def due(b: Box) -> None:
    b.park(w1=[0.5, "a"], w2=["a"])
    b.put("a")


def passed_over(b: Box) -> None:
    b.park(w=["a"], w2=["b"])
    b.put("a", expires="0.2 seconds")
    b.put("a", message_id="twice")
    b.put("a")


def only_passed_over(b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="0.2 seconds")


def delivered_before(b: Box) -> None:
    b.put("a", message_id="m")
    b.park(w=["a"])
    b.step()
    b.park(w=["a"])
    b.put("a")


def sealed(b: Box, marker: Any = MARKER) -> None:
    b.park(w1=["a"], w2=["b"])
    b.seal(b.put("a"), marker)
    b.put("b")


def sealed_by_hand(b: Box) -> None:
    sealed(b, None)


def sealed_behind_an_answer(b: Box) -> None:
    b.park(w1=["b"], w2=["a"], w3=["c"])
    b.put("b")
    b.put("a", expires="0.2 seconds")
    b.seal(b.put("a"))
    b.put("c")


def sealed_without_a_wake(b: Box) -> None:
    sealed(b)
    b.k.do("delete from underseal.wake where chain_id = %s", b.chain)


def sealed_while_it_runs(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"], w2=["b"])
    b.seal(b.put("b"))


def sealed_and_expired(b: Box) -> None:
    b.park(w=["a"])
    b.seal(b.put("a", expires="0.2 seconds"))
    b.put("a")


def nothing(b: Box) -> None:
    b.park(w=["a", 60.0])
    b.put("a")
    b.discard("a")


def left_over(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"], w2=["b"])
    b.put("b")


def idle(b: Box) -> None:
    b.put("a")


def stale(b: Box) -> None:
    message(b)
    fence = b.fence
    b.take()
    b.fence = fence


def ended(b: Box) -> None:
    b.write("complete")


STORIES: dict[str, Callable[[Box], None]] = {
    story.__name__: story
    for story in (
        message, two_waits, due, passed_over, only_passed_over, delivered_before, sealed, sealed_by_hand,
        sealed_behind_an_answer,
        sealed_without_a_wake, sealed_while_it_runs, sealed_and_expired, nothing, left_over, idle, stale, ended,
    )
}  # fmt: skip


def left(b: Box) -> dict[str, Any]:
    """All that a delivery leaves, without what differs between two executions."""
    row = b.execution()
    log = [
        {**event, "text": None, "data": {**event["data"], "message_id": None, "key": None}}
        for event in b.log()
    ]
    wakes = b.k.rows(
        "select kind, wake_at, claimed_by, claimed_until, attempts from underseal.wake where chain_id = %s order by 1",
        b.chain,
    )
    kept = ("status", "head", "fence", "sealed", "waits", "recoveries", "changed_at")
    return {
        "row": {name: row[name] for name in kept},
        "log": log, "wakes": wakes, "pending": b.pending(), "cursors": b.cursors(), "seen": sorted(b.seen().values()),
    }  # fmt: skip


@pytest.mark.clause("I1a", "I1b", "E7a", "G2", "G6", "G7", "G8", "G10")
def test_each_gets_what_deliver_gives_it(k: Kernel) -> None:
    alone = {name: box(k, f"alone-{name}") for name in STORIES}
    # in an order that is not that of the ids
    together = {name: box(k, f"{number % 3}-{name}") for number, name in enumerate(STORIES)}
    for some in (alone, together):
        for name, b in some.items():
            STORIES[name](b)
    k.clock.advance(seconds=1)
    told = {name: b.deliver() for name, b in alone.items()}
    rows = deliver_all(*together.values())
    assert [row["item"] for row in rows] == list(range(1, len(STORIES) + 1))
    for row, (name, b) in zip(rows, together.items(), strict=True):
        assert {part: row[part] for part in told[name]} == told[name], name
        assert left(b) == left(alone[name]), name
        now = b.execution()
        assert (row["execution_id"], row["status"], row["head"]) == (b.id, now["status"], now["head"])
        if name != "idle":
            b.audit()
    assert {row["outcome"] for row in rows} == {"delivered", "held", "none", "conflict"}


@pytest.mark.clause("I1b", "E7a")
def test_the_claim_under_which_it_was_delivered_goes_on(k: Kernel) -> None:
    boxes = [box(k) for _ in range(3)]
    for b in boxes:
        message(b)
    claims = k.calls("claim_due", "worker", ["f"], "30 seconds")
    fences = {claim["execution_id"]: claim["fence"] for claim in claims}
    for b in boxes:
        b.fence = fences[b.id]
    assert [row["outcome"] for row in deliver_all(*boxes)] == ["delivered"] * 3
    for b in boxes:
        (wake,) = k.rows("select kind, claimed_by from underseal.wake where chain_id = %s", b.chain)
        assert (wake["kind"], wake["claimed_by"]) == ("drive", "worker")


@pytest.mark.clause("E2b", "E2f")
def test_an_item_that_fails_takes_no_neighbour_along(k: Kernel) -> None:
    good, old, unknown = box(k), box(k), Box(k, "unknown", fence=1)
    message(good)
    stale(old)
    before = old.log()
    rows = deliver_all(unknown, old, good, good, box(k))
    assert [outcome(row) for row in rows] == [
        ("not-found", None), ("conflict", "stale-fence"), ("delivered", None), ("conflict", "same-execution"),
        ("none", None),
    ]  # fmt: skip
    assert [row["answered"] for row in rows] == [0, 0, 1, 0, 0]
    assert (rows[0]["execution_id"], rows[0]["status"], rows[0]["head"]) == ("unknown", None, None)
    assert old.log() == before
    assert good.delivered() == [("w", 1)]


@pytest.mark.clause("E2b")
def test_an_item_without_a_fence_delivers_nothing(b: Box) -> None:
    message(b)
    items = [{"execution_id": b.id}, {"fence": 1}, {}]
    rows = b.k.rows("select * from underseal.deliver_batch(%s::json)", json.dumps(items))
    assert [outcome(row) for row in rows[:2]] == [("conflict", "stale-fence"), ("not-found", None)]
    assert b.status == "suspended"


def test_lines_of_one_chain_are_told_apart(k: Kernel) -> None:
    parent = box(k)
    child = Box(k, f"{parent.id}~pay").start()
    for b in (parent, child):
        message(b)
    rows = deliver_all(child, parent)
    assert [(row["outcome"], row["execution_id"]) for row in rows] == [
        ("delivered", child.id), ("delivered", parent.id),
    ]  # fmt: skip
    parent.audit()
    child.audit()


def test_no_more_than_a_thousand(k: Kernel) -> None:
    b = box(k)
    message(b)
    items = [
        {"execution_id": b.id, "fence": 1},
        *({"execution_id": f"x{n}", "fence": 1} for n in range(1000)),
    ]
    before = k.everything()
    (row,) = k.rows("select * from underseal.deliver_batch(%s::json)", json.dumps(items))
    assert (outcome(row), row["item"]) == (("refused", "too-many"), None)
    assert k.everything() == before
    assert k.rows("select * from underseal.deliver_batch('[]')") == []
    rows = k.rows("select * from underseal.deliver_batch(%s::json)", json.dumps(items[:1000]))
    assert (len(rows), rows[0]["outcome"], rows[999]["outcome"]) == (1000, "delivered", "not-found")


@pytest.mark.parametrize("given", ["{}", "1", "null", None])
def test_what_is_no_array_is_an_error(k: Kernel, given: str | None) -> None:
    k.refused("US001", "select * from underseal.deliver_batch(%s::json)", given)
