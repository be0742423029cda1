"""Forks: a chain of its own that begins with a copy (clauses E3, E6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.held.sql.kernel import Row, outcome
from tests.inbox.box import Box, box, key
from underseal.testing import unique_name


def fork(b: Box, through: int | None, who: str = "ann", new_id: str | None = None) -> Row:
    """Fork."""
    return b.k.call("fork_execution", b.id, through, who, new_id)


def forked(b: Box, through: int) -> Box:
    """A fork that is made."""
    row = fork(b, through)
    assert outcome(row) == ("forked", None), row
    return Box(b.k, row["execution_id"])


def folded(b: Box) -> dict[str, Any]:
    """What its log folds to."""
    fold: dict[str, Any] = b.k.value("select underseal._fold(%s, %s)", *b.place)
    return fold


@pytest.mark.clause("E6f")
def test_a_fork_begins_with_a_copy_and_goes_its_own_way(b: Box) -> None:
    for n in range(4):
        b.write("append", events=[{"type": "STEP_COMPLETED", "data": {"n": n}}])
    b.k.clock.advance(hours=1)
    f = forked(b, 2)
    original, copy = b.log(), f.log()
    assert [(e["seq"], e["type"], e["text"], e["recorded_at"]) for e in copy[1:]] == [
        (e["seq"], e["type"], e["text"], e["recorded_at"]) for e in original[1:3]
    ]
    start = copy[0]["data"]
    assert start == {**original[0]["data"], "forked_from": {"execution_id": b.id, "seq": 2}}
    row = f.execution()
    assert (row["status"], row["head"], row["fence"], row["owner"]) == ("running", 2, 1, "ann")
    assert (row["started_at"], row["changed_at"]) == (b.k.clock.now(), original[2]["recorded_at"])
    assert f.wakes() == ["drive"]
    wake = b.k.value("select wake_at from underseal.wake where chain_id = %s", f.chain)
    assert wake == b.k.clock.now()
    before = b.execution()
    assert f.step()["head"] == 3
    assert b.execution() == before


@pytest.mark.clause("E6f")
def test_a_fork_at_the_beginning_starts_anew(b: Box) -> None:
    b.step()
    b.write("complete")
    f = forked(b, 0)
    assert (f.status, f.types(), f.wakes()) == ("pending", ["EXECUTION_STARTED"], ["drive"])


def test_a_delay_is_not_waited_for_twice(b: Box) -> None:
    b.id = b.k.rows("select * from underseal.start_execution('f', 'ann', after => '1 day')")[0][
        "execution_id"
    ]
    f = forked(b, 0)
    assert "after" not in f.log()[0]["data"]
    assert b.k.value("select wake_at from underseal.wake where chain_id = %s", f.chain) == b.k.clock.now()


@pytest.mark.clause("E6f")
@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_fork_of_long_ago_is_driven_from_now_on(b: Box, status: str) -> None:
    if status == "running":
        b.step()
    b.k.call("record_outcome", b.id, "1", "ann")
    b.k.clock.advance(days=90)
    f = forked(b, b.execution()["head"])
    assert f.status == status
    assert b.k.value("select wake_at from underseal.wake where chain_id = %s", f.chain) == b.k.clock.now()


@pytest.mark.clause("E6f")
def test_a_log_that_is_put_in_by_hand_is_driven_from_now_on(b: Box) -> None:
    b.step()
    b.k.clock.advance(days=90)
    copy = unique_name("e")
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " select %s, member, seq, recorded_at, type, data from underseal.event where chain_id = %s order by seq",
        copy, b.chain,
    )  # fmt: skip
    assert b.k.value("select wake_at from underseal.wake where chain_id = %s", copy) == b.k.clock.now()


@pytest.mark.clause("E6f", "E4a")
def test_a_fork_of_a_parked_execution_is_parked(b: Box) -> None:
    b.put("a", message_id="m")
    b.park(w1=["a"])
    b.step()
    b.park(w2=["b"], w3=[60.0])
    b.put("c")
    f = forked(b, b.execution()["head"])
    assert (f.status, f.wakes(), f.pending()) == ("suspended", ["timer"], [])
    ours, theirs = folded(f), folded(b)
    for name in ("flow", "flow_version", "owner", "status", "head", "waits", "inbox", "recoveries", "sealed"):
        assert ours[name] == theirs[name], name
    # what its copy of the log has delivered is a duplicate, and numbers go on above it
    assert f.send("a", message_id="m")["outcome"] == "duplicate"
    assert f.put("b") == 2
    f.deliver()
    assert f.delivered() == [("w1", 1), ("w2", 2)]


@pytest.mark.clause("I2b", "E6f")
def test_what_is_carried_over_keeps_the_order_of_its_disposal(b: Box) -> None:
    for topic, name in (("a", "one"), ("b", "two"), ("a", "three")):
        b.put(topic, message_id=name)
    for topic in ("b", "a", "a"):
        b.park(**{f"w{b.execution()['head']}": [topic]})
    expected = [[key("ann", name).hex(), number] for name, number in (("two", 2), ("one", 1), ("three", 3))]
    assert folded(b)["inbox"]["seen"] == expected
    b.go_on()
    assert b.log()[-1]["data"]["carried"]["seen"] == expected
    f = forked(b, 0)
    assert folded(f)["inbox"]["seen"] == expected


@pytest.mark.clause("I2b", "E4a")
def test_a_line_whose_logs_come_in_one_statement_remembers_what_it_remembered(b: Box) -> None:
    """However they are mixed: continuations go by their numbers, and each counts its events from 0."""
    for number in range(1, 13):
        b.put("a", message_id=str(number))
        if number == 1:
            b.step()
        b.park(w=["a"])
        if number < 12:
            b.go_on()
    assert b.place[1] == "12"
    expected = folded(b)["inbox"]["seen"]
    assert [pair[1] for pair in expected] == list(range(1, 13))
    copy = unique_name("e")
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " select %s, member, seq, recorded_at, type, replace(data::text, chain_id, %s)::json"
        " from underseal.event where chain_id = %s order by seq, length(member), member",
        copy, copy, b.chain,
    )  # fmt: skip
    assert folded(Box(b.k, f"{copy}~12", first=copy))["inbox"]["seen"] == expected


@pytest.mark.clause("E6f")
def test_a_fork_of_a_continuation_is_a_first_and_takes_over_what_was_carried(b: Box) -> None:
    b.put("a", message_id="m")
    b.park(w=["a"])
    b.go_on()
    b.step()
    f = forked(b, 1)
    start = f.log()[0]["data"]
    assert f.place[1] == ""
    assert "continued_from" not in start
    assert start["forked_from"] == {"execution_id": b.id, "seq": 1}
    assert f.cursors() == {"a": 1}
    assert f.seen() == b.seen()
    assert f.send("a", message_id="m")["outcome"] == "duplicate"
    assert f.put("a") == 2
    again = forked(f, 1)
    assert again.log()[0]["data"]["forked_from"] == {"execution_id": f.id, "seq": 1}
    assert again.seen() == b.seen()


@pytest.mark.clause("E6f")
@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled", "continue"])
def test_a_prefix_with_the_end_in_it_is_refused(b: Box, verb: str) -> None:
    b.step()
    b.write(verb)
    b.k.call("record_outcome", b.id, "1", "ann")
    before = b.k.everything()
    for through in (2, 3):
        assert outcome(fork(b, through)) == ("refused", "ended")
    assert b.k.everything() == before
    assert forked(b, 1).status == "running"


@pytest.mark.clause("E6f")
@pytest.mark.parametrize("through", [-1, 2, None])
def test_what_is_not_there_is_not_copied(b: Box, through: int | None) -> None:
    b.step()
    before = b.k.everything()
    assert outcome(fork(b, through)) == ("refused", "beyond-head")
    assert b.k.everything() == before


@pytest.mark.clause("E6f", "E9b")
def test_what_was_compacted_is_not_copied(b: Box) -> None:
    for _ in range(3):
        b.step()
    b.k.call("save_snapshot", b.id, 1, 3, "1")
    b.k.call("truncate_prefix", b.id, 3, "op")
    before = b.k.everything()
    for through in (1, 2, 3):
        assert outcome(fork(b, through)) == ("refused", "compacted")
    assert b.k.everything() == before
    assert forked(b, 0).status == "pending"


@pytest.mark.clause("E3")
def test_the_id_of_a_fork_is_its_own(b: Box) -> None:
    b.step()
    other = box(b.k)
    before = b.k.everything()
    for taken in (b.id, other.id):
        assert outcome(fork(b, 1, new_id=taken)) == ("exists", None)
    assert b.k.everything() == before
    wanted = unique_name("fork")
    row = fork(b, 1, new_id=wanted)
    assert (row["outcome"], row["execution_id"]) == ("forked", wanted)


@pytest.mark.parametrize("new_id", ["a~2", "", "a\nb", "x" * 201])
def test_a_fork_has_the_id_of_a_chain(b: Box, new_id: str) -> None:
    before = b.k.everything()
    assert outcome(fork(b, 0, new_id=new_id)) == ("refused", "malformed-id")
    assert b.k.everything() == before


@pytest.mark.clause("E2e", "E6f")
def test_a_fork_under_a_deleted_id_begins_above_its_last_fence(b: Box) -> None:
    gone = box(b.k)
    gone.take()
    gone.write("complete")
    gone.k.call("delete_chain", gone.id, "op")
    fork(b, 0, new_id=gone.id)
    assert gone.execution()["fence"] == 3


@pytest.mark.clause("E10a", "E6f")
def test_a_fork_has_the_content_its_copy_refers_to(b: Box) -> None:
    hashes = [bytes(b.k.call("put_content", b.id, json.dumps({"n": n}), 1)["hash"]) for n in range(3)]
    for one in hashes[:2]:
        b.write("append", events=[{"type": "STEP_COMPLETED", "data": {"out": [{"$content": one.hex()}]}}])
    f = forked(b, 1)
    found = [b.k.call("get_content", f.id, one, "ann")["outcome"] for one in hashes]
    assert found == ["content", "none", "none"]


@pytest.mark.clause("E4a", "E6f")
def test_marks_are_copied(b: Box) -> None:
    marker = {"seal": {"v": 1, "cipher": "x", "covers": ["STEP_COMPLETED.output"]}}
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
        " values (%s, '', 1, underseal.clock(), 'STEP_COMPLETED', '{}', %s)",
        b.id, json.dumps(marker),
    )  # fmt: skip
    f = forked(b, 1)
    assert f.log()[1]["metadata"] == marker
    assert f.execution()["sealed"]
