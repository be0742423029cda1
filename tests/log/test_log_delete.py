"""Deleting: a chain goes as a whole, and nothing of it stays but its last fences (clauses E2, I6, E12)."""

from __future__ import annotations

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import Box, box

OF_A_CHAIN = (
    "event", "execution", "inbox_message", "inbox_cursor", "inbox_seen", "wake", "snapshot", "content",
)  # fmt: skip


def left(b: Box) -> dict[str, int]:
    """How many rows of its chain each table has, where it has some."""
    counted = {
        table: b.k.value(f"select count(*) from underseal.{table} where chain_id = %s", b.chain)
        for table in OF_A_CHAIN
    }
    return {table: count for table, count in counted.items() if count}


def full(k: Kernel) -> Box:
    """A chain with something in every table."""
    b = box(k)
    b.put("a")
    b.park(w=["a"])
    hashed = b.k.call("put_content", b.id, '"large"', 1)["hash"]
    b.write("append", events=[{"type": "STEP_COMPLETED", "data": {"out": {"$content": bytes(hashed).hex()}}}])
    b.k.call("save_snapshot", b.id, 1, b.execution()["head"], "1")
    b.go_on()
    b.put("b")
    assert left(b).keys() == set(OF_A_CHAIN)
    return b


@pytest.mark.clause("I6b", "E2e")
def test_a_chain_takes_everything_along(k: Kernel) -> None:
    b, other = full(k), full(k)
    b.write("complete")
    kept = left(other)
    row = k.call("delete_chain", b.chain, "op")
    assert (outcome(row), row["deleted"]) == (("deleted", None), 2)
    assert left(b) == {}
    assert left(other) == kept
    floors = k.rows("select member, fence from underseal.fence_floor where chain_id = %s order by 1", b.chain)
    assert floors == [{"member": "", "fence": 1}, {"member": "2", "fence": 1}]
    assert outcome(k.call("delete_chain", b.chain, "op")) == ("denied", "execution")


@pytest.mark.clause("I6b")
def test_whoever_deletes_the_row_deletes_everything(k: Kernel) -> None:
    b = full(k)
    b.write("fail")
    k.do(
        "insert into underseal.wake (chain_id, member, kind, flow, wake_at)"
        " values (%s, '2', 'refusal', 'f', underseal.clock())",
        b.chain,
    )
    k.do("delete from underseal.execution where chain_id = %s", b.chain)
    assert left(b) == {}


@pytest.mark.clause("I6b")
def test_a_schedule_of_the_same_name_keeps_its_wake(k: Kernel) -> None:
    b = box(k)
    b.k.do(
        "insert into underseal.wake (chain_id, member, kind, flow, wake_at)"
        " values (%s, '', 'schedule', '', underseal.clock())",
        b.chain,
    )
    b.write("complete")
    k.call("delete_chain", b.chain, "op")
    assert left(b) == {"wake": 1}


@pytest.mark.clause("I6b")
@pytest.mark.parametrize("open_one", ["pending", "running", "suspended"])
def test_an_open_execution_keeps_its_chain(k: Kernel, open_one: str) -> None:
    b = full(k)
    if open_one == "running":
        b.step()
    elif open_one == "suspended":
        b.park(w=["c"])
    assert b.status == open_one
    before = k.everything()
    assert outcome(k.call("delete_chain", b.chain, "op")) == ("conflict", "open")
    assert k.everything() == before
    for where in ("chain_id = %s", "chain_id = %s and member = ''"):
        k.refused("US007", f"delete from underseal.execution where {where}", b.chain)
    assert k.everything() == before


@pytest.mark.clause("I6b")
def test_a_chain_is_named_by_its_own_id(k: Kernel) -> None:
    b = full(k)
    b.write("complete")
    before = k.everything()
    assert outcome(k.call("delete_chain", b.id, "op")) == ("refused", "malformed-id")
    assert k.everything() == before


@pytest.mark.clause("I6b")
def test_a_child_goes_with_its_chain(k: Kernel) -> None:
    b = box(k)
    child = Box(k, f"{b.id}~pay").start()
    b.write("complete")
    assert outcome(k.call("delete_chain", b.chain, "op")) == ("conflict", "open")
    child.write("complete")
    assert k.call("delete_chain", b.chain, "op")["deleted"] == 2
    assert left(b) == {}


@pytest.mark.clause("E12a")
def test_the_owner_does_not_delete(k: Kernel) -> None:
    b = box(k)
    b.write("complete")
    with k.login(None):
        k.do("create role an_operator login")
    k.do("select * from underseal.grant_access('an_operator', 'operator')")
    k.do("select * from underseal.map_login('an_operator', 'op')")
    with k.login("an_operator"):
        assert outcome(k.call("delete_chain", b.chain, "ann")) == ("denied", "execution")
        assert outcome(k.call("truncate_prefix", b.id, 1, "ann")) == ("denied", "execution")
        assert outcome(k.call("truncate_prefix", b.id, 1, None)) == ("unchanged", None)
        assert outcome(k.call("delete_chain", "nothing", "op")) == ("denied", "execution")
        assert outcome(k.call("delete_chain", b.chain, "op")) == ("deleted", None)


# -- purging -----------------------------------------------------------------------------------------


@pytest.mark.clause("I6b")
def test_chains_that_ended_long_ago_are_purged(k: Kernel) -> None:
    old, young, still_open, half, goes_on = box(k), box(k), box(k), full(k), full(k)
    old.write("complete")
    still_open.step()
    k.clock.advance(days=10)
    half.write("fail")
    young.write("complete")
    k.clock.advance(hours=1)
    assert [
        (row["outcome"], row["chain_id"], row["deleted"]) for row in k.calls("purge_executions", "9 days")
    ] == [("purged", old.chain, 1)]
    assert left(old) == {}
    assert {row["chain_id"] for row in k.calls("purge_executions", "1 hour")} == {half.chain, young.chain}
    assert (still_open.status, goes_on.status) == ("running", "pending")
    assert k.calls("purge_executions", "0") == []


def test_a_purge_is_bounded(k: Kernel) -> None:
    for _ in range(3):
        box(k).write("complete")
    assert [len(k.calls("purge_executions", "0", most)) for most in (0, 2, 2)] == [0, 2, 1]


@pytest.mark.parametrize("age", [None, "-1 day"])
def test_a_purge_has_an_age(k: Kernel, age: str | None) -> None:
    box(k).write("complete")
    (row,) = k.calls("purge_executions", age)
    assert outcome(row) == ("refused", "malformed-age")
