"""The inbox belongs to the line: it outlives continuations, and children have their own."""

from __future__ import annotations

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import OWNER, Box, box, key


@pytest.mark.clause("I6a")
def test_what_waits_is_delivered_to_the_one_that_goes_on(b: Box) -> None:
    numbers = [b.put("a"), b.put("a")]
    b.go_on()
    b.park(w1=["a"])
    b.go_on()
    b.park(w2=["a"])
    assert b.delivered() == [("w1", numbers[0]), ("w2", numbers[1])]
    assert [event["member"] for event in b.log() if event["type"] == "MESSAGE_CONSUMED"] == ["2", "3"]
    b.audit()


@pytest.mark.clause("I6a", "E7a")
@pytest.mark.parametrize("to", ["", "~2", "~3"])
def test_whoever_is_named_the_message_goes_to_the_one_that_goes_on(b: Box, to: str) -> None:
    chain = b.chain
    b.go_on().go_on()
    b.park(w=["a"])
    number = b.put("a", to=chain + to)
    assert b.wakes() == ["inbox"]
    b.deliver()
    assert b.delivered() == [("w", number)]


@pytest.mark.clause("I6a", "I2a", "I2b")
def test_cursors_and_remembered_keys_go_on(b: Box) -> None:
    number = b.put("a", message_id="m")
    b.park(w=["a"])
    before = (b.cursors(), b.seen())
    b.go_on()
    assert (b.cursors(), b.seen()) == before == ({"a": number}, {key(OWNER, "m"): number})
    assert b.send("a", message_id="m")["outcome"] == "duplicate"
    assert b.log()[-1]["data"]["carried"] == {
        "last_inbox_seq": 1,
        "cursors": {"a": 1},
        "seen": [[key(OWNER, "m").hex(), 1]],
    }
    assert b.put("a") == number + 1


@pytest.mark.clause("I6a")
def test_nothing_is_delivered_to_one_that_continued(b: Box) -> None:
    old, fence = b.id, b.fence
    b.go_on()
    b.put("a")
    for verb in ("deliver", "next_message"):
        assert outcome(b.k.call(verb, old, fence)) == ("conflict", "ended")
    assert b.pending() == [1]


@pytest.mark.clause("I6a", "I3b", "I3c")
def test_discard_and_expiry_are_recorded_by_the_one_that_goes_on(b: Box) -> None:
    old = b.id
    b.put("a")
    b.put("b", expires="1 second")
    b.go_on()
    assert b.k.call("discard_inbox", old, "a", "op")["discarded"] == 1
    b.k.clock.advance(seconds=1)
    assert b.expire() == 1
    facts = [event for event in b.log() if event["type"] == "MESSAGE_CONSUMED"]
    assert [(event["member"], event["data"]["disposition"]) for event in facts] == [
        ("2", "discarded"),
        ("2", "expired"),
    ]
    b.audit()


@pytest.mark.clause("I6a")
def test_when_the_last_one_has_ended_nothing_is_sent_to_any(b: Box) -> None:
    old = b.id
    b.go_on()
    b.write("complete")
    assert outcome(b.send("a", to=old)) == ("conflict", "ended")
    assert outcome(b.send("a")) == ("conflict", "ended")


@pytest.mark.clause("I6a")
def test_whoever_is_named_the_list_is_the_lines(b: Box) -> None:
    old = b.id
    b.put("a")
    b.go_on()
    assert [row["inbox_seq"] for row in b.k.calls("list_inbox", old, OWNER)] == [1]
    assert [row["inbox_seq"] for row in b.listed()] == [1]
    (row,) = b.k.rows("select * from underseal.inbox_backlog where execution_id = %s", b.id)
    assert row["messages"] == 1


@pytest.mark.clause("I6a")
def test_a_child_has_an_inbox_of_its_own(k: Kernel) -> None:
    parent = box(k)
    child = Box(k, f"{parent.chain}~pay").start()
    assert (parent.put("a"), child.put("a"), child.put("a")) == (1, 1, 2)
    child.go_on()
    assert child.id.endswith("~pay.2")
    child.park(w=["a"])
    parent.park(w=["a"])
    assert (parent.told(), child.told()) == ([("delivered", 1)], [("delivered", 1)])
    assert (parent.pending(), child.pending()) == ([], [2])
    for one in (parent, child):
        one.audit()


@pytest.mark.clause("I6a")
def test_a_member_that_never_was_has_no_inbox(b: Box) -> None:
    assert b.send("a", to=f"{b.id}~2")["outcome"] == "denied"
    assert b.send("a", to=f"{b.id}~pay")["outcome"] == "denied"


@pytest.mark.clause("I6a", "I2b")
def test_a_key_that_another_line_knows_is_new_here(k: Kernel) -> None:
    parent = box(k)
    child = Box(k, f"{parent.chain}~pay").start()
    for one in (parent, child):
        assert one.put("a", message_id="m") == 1
        one.park(w=["a"])
        one.step()
    assert [one.send("a", message_id="m")["outcome"] for one in (parent, child)] == ["duplicate", "duplicate"]
    other = box(k)
    assert other.put("a", message_id="m") == 1


@pytest.mark.clause("I6a")
def test_a_list_is_one_lines(k: Kernel) -> None:
    parent = box(k)
    child = Box(k, f"{parent.chain}~pay").start()
    parent.put("of-parent")
    child.put("of-child")
    assert [row["topic"] for row in parent.listed()] == ["of-parent"]
    assert [row["topic"] for row in child.listed()] == ["of-child"]
