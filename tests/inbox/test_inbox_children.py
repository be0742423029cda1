"""A child's end reaches the line that asked for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import Box, box

pytestmark = pytest.mark.clause("E6c")

LIMIT = 1_048_576


def child_of(parent: Box, name: str, **rest: Any) -> Box:
    """A child of a box's line, started."""
    line = f"{parent.line}:{name}" if parent.line else name
    return Box(parent.k, f"{parent.chain}~{line}", owner=parent.owner, **rest).start()


def ends(child: Box) -> list[Row]:
    """What waits in its parent's inbox about a child, as it is stored."""
    line, _, _ = child.line.rpartition(":")
    return child.k.rows(
        "select topic, sender, message_id, payload::text as payload, metadata, expires_at from underseal.inbox_message"
        " where chain_id = %s and line = %s and topic = %s order by inbox_seq",
        child.chain, line, f"$child/{child.line}",
    )  # fmt: skip


def told(child: Box) -> list[Any]:
    """What was said of a child."""
    return [json.loads(end["payload"]) for end in ends(child)]


@pytest.mark.parametrize(
    ("line", "parent"),
    [
        ("", None),
        ("pay", ""),
        ("pay-2-4", ""),
        ("pay:sub", "pay"),
        ("pay:sub-3", "pay"),
        ("pay-2:sub-3", "pay-2"),
        ("pay:sub:2", "pay:sub"),
        ("_:_", "_"),
    ],
)
def test_a_child_s_line_says_which_line_asked_for_it(k: Kernel, line: str, parent: str | None) -> None:
    assert k.value("select underseal._parent_line_of(%s)", line) == parent


@pytest.mark.parametrize("member", ["pay", "pay-2-4", "pay:sub-3", "pay-2:2", "pay:2", "a_9", "p0:q-0-1"])
def test_names_with_digits_are_no_continuations(k: Kernel, member: str) -> None:
    row = k.call("start_execution", "f", "ann", "null", None)
    child = f"{row['execution_id']}~{member}"
    assert outcome(k.call("start_execution", "f", "ann", "null", child)) == ("started", None)
    (found,) = k.rows(
        "select e.line, underseal._line_of(e.member) as same, underseal._successor_of(e.member) as next,"
        " underseal._line_of(underseal._successor_of(e.member)) as next_line from underseal.execution e"
        " where e.chain_id = %s and e.member = %s",
        row["execution_id"], member,
    )  # fmt: skip
    assert found == {"line": member, "same": member, "next": f"{member}.2", "next_line": member}


@pytest.mark.clause("T4b")
def test_a_parent_s_rows_sort_before_its_children_s(k: Kernel) -> None:
    members = [
        "",
        "10",
        "2",
        "pay",
        "pay-2",
        "pay-2.2",
        "pay-2:sub",
        "pay.10",
        "pay.2",
        "pay:sub",
        "pay:sub.2",
        "pay:sub:x",
    ]
    rows = k.rows('select m from unnest(%s::text[]) m order by m collate "C"', members)
    assert [row["m"] for row in rows] == members
    for member in members:
        parent = k.value("select underseal._parent_line_of(underseal._line_of(%s))", member)
        of_parent = [one for one in members if k.value("select underseal._line_of(%s)", one) == parent]
        assert all(one < member for one in of_parent)


@pytest.mark.parametrize(
    ("verb", "rest", "said"),
    [
        ("complete", {"output": {"a": 1.50}}, {"status": "completed", "output": {"a": 1.50}}),
        ("complete", {}, {"status": "completed", "output": None}),
        ("fail", {"error": {"type": "E"}}, {"status": "failed", "error": {"type": "E"}}),
        ("cancelled", {"reason": "tidy"}, {"status": "cancelled", "reason": "tidy"}),
        ("cancelled", {}, {"status": "cancelled", "reason": None}),
    ],
)
def test_an_end_is_a_message_to_the_parent(b: Box, verb: str, rest: Row, said: Row) -> None:
    child = child_of(b, "pay")
    child.write(verb, **rest)
    (end,) = ends(child)
    assert json.loads(end["payload"]) == said
    assert (end["sender"], end["message_id"]) == (child.id, child.id)
    assert (end["metadata"], end["expires_at"]) == (None, None)


def test_a_parent_that_waits_is_woken_and_gets_the_output(b: Box) -> None:
    child = child_of(b, "pay")
    b.park(w=["$child/pay"])
    assert b.wakes() == []
    child.write("complete", output=7)
    assert b.wakes() == ["inbox"]
    assert b.deliver()["answered"] == 1
    assert [fact["payload"] for fact in b.facts()] == [{"status": "completed", "output": 7}]
    b.audit()


def test_a_child_of_a_child_tells_the_child(b: Box) -> None:
    child = child_of(b, "pay")
    grandchild = child_of(child, "sub-3")
    grandchild.write("complete", output=1)
    assert told(grandchild) == [{"status": "completed", "output": 1}]
    assert b.pending() == []
    assert child.pending() == [1]


def test_whichever_member_of_a_line_ends_tells_whichever_goes_on(b: Box) -> None:
    child = child_of(b, "pay")
    b.go_on()
    child.go_on()
    assert b.pending() == []  # to be continued is no end
    b.park(w=["$child/pay"])
    child.write("complete", output=1)
    (end,) = ends(child)
    assert end["sender"] == f"{child.chain}~pay.2"
    assert b.wakes() == ["inbox"]
    assert b.deliver()["answered"] == 1


def test_an_execution_that_nobody_asked_for_tells_nobody(b: Box) -> None:
    b.write("complete", output=1)
    assert b.k.value("select count(*) from underseal.inbox_message where chain_id = %s", b.chain) == 0


def test_a_continuation_of_the_first_line_tells_nobody(b: Box) -> None:
    """Nobody asked for the line, and it does not tell itself."""
    b.go_on().write("complete", output=1)
    assert b.k.value("select count(*) from underseal.inbox_message where chain_id = %s", b.chain) == 0
    assert (
        b.k.value(
            "select last_inbox_seq from underseal.execution where chain_id = %s and member = ''", b.chain
        )
        == 0
    )


def test_a_parent_that_has_ended_is_told_nothing(b: Box) -> None:
    child = child_of(b, "pay")
    b.write("complete")
    child.write("complete", output=1)
    assert child.status == "completed"
    assert ends(child) == []


def test_a_parent_that_is_not_there_is_told_nothing(b: Box) -> None:
    orphan = Box(b.k, f"{b.chain}~nobody:sub", owner=b.owner).start()
    orphan.write("complete", output=1)
    assert orphan.status == "completed"
    assert b.k.value("select count(*) from underseal.inbox_message where chain_id = %s", b.chain) == 0


def test_no_backlog_keeps_an_end_away(b: Box) -> None:
    b.k.do("insert into underseal.setting (key, value) values ('inbox.backlog', '0')")
    child = child_of(b, "pay")
    child.write("complete", output=1)
    assert len(ends(child)) == 1


@pytest.mark.parametrize("member", ["output", "error"])
def test_what_is_too_large_for_a_message_is_a_failure(b: Box, member: str) -> None:
    verb, status = {"output": ("complete", "completed"), "error": ("fail", "failed")}[member]
    frame = len(f'{{"status" : "{status}", "{member}" : ""}}')
    largest = LIMIT - 1024
    fits = child_of(b, "fits")
    fits.write(verb, **{member: "x" * (largest - frame)})
    (end,) = ends(fits)
    assert len(end["payload"].encode()) == largest
    assert json.loads(end["payload"])["status"] == status
    large = child_of(b, "large")
    large.write(verb, **{member: "x" * (largest - frame + 1)})
    (said,) = told(large)
    assert said["status"] == "failed"
    assert said["error"]["type"] == "OutputTooLarge"
    assert "put_content" in said["error"]["message"]
    assert large.status == status


def test_what_would_be_too_deep_as_a_message_is_a_failure(b: Box) -> None:
    """A message that nobody can be handed would hold up its topic for ever."""
    deepest: Any = "x" * 1100
    for _ in range(511):
        deepest = [deepest]
    for name, value in (("fits", deepest), ("deep", [deepest])):
        child_of(b, name).write("complete", output=value)
    b.park(w=["$child/fits"], v=["$child/deep"])
    payloads = [fact["payload"] for fact in b.facts()]
    assert payloads[0] == {"status": "completed", "output": deepest}
    assert payloads[1]["error"]["type"] == "OutputUnreadable"


@pytest.mark.parametrize("begun", [False, True])
def test_who_is_cancelled_at_once_tells_it_too(b: Box, begun: bool) -> None:
    child = child_of(b, "pay")
    if begun:
        child.write("append", events=[{"type": "STEP", "data": {}}])
    row = b.k.call("cancel_execution", child.id, b.owner, "no more", begun)
    assert row["outcome"] == "cancelled"
    assert told(child) == [{"status": "cancelled", "reason": "no more"}]


def test_an_end_goes_with_its_event_whoever_writes_it(b: Box) -> None:
    child = child_of(b, "pay")
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values (%s, 'pay', 1, underseal.clock(), 'EXECUTION_COMPLETED', '{\"output\": 1}')",
        b.chain,
    )
    assert told(child) == [{"status": "completed", "output": 1}]
    other = child_of(b, "other")
    with b.k.login(None, "replica"):
        # a replica gets the message as a row of its own, as it gets the execution's
        b.k.do(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
            " values (%s, 'other', 1, underseal.clock(), 'EXECUTION_COMPLETED', '{}')",
            b.chain,
        )
    assert ends(other) == []


def test_ids_of_any_length_can_end(k: Kernel) -> None:
    parent = box(k)
    parent = Box(k, "x" * 200, owner=parent.owner).start()
    child = child_of(parent, "y" * 100)
    child.write("complete")
    (end,) = ends(child)
    assert len(end["message_id"]) == 301


@pytest.mark.clause("E7d")
@pytest.mark.parametrize("waits", [False, True])
def test_a_batch_may_hold_the_parent_and_its_children(b: Box, waits: bool) -> None:
    """What a parent parks on and what answers it may come in one statement."""
    children = [child_of(b, name) for name in ("one", "two")]
    parent: Row = {"verb": "park", "execution_id": b.id, "fence": b.fence, "waits": []}
    if waits:
        parent["waits"] = [{"wait": "w", "arms": [{"topic": "$child/two"}]}]
    else:
        parent = {
            "verb": "append",
            "execution_id": b.id,
            "fence": b.fence,
            "events": [{"type": "STEP", "data": {}}],
        }
    batch = [
        parent,
        *(
            {"verb": "complete", "execution_id": c.id, "fence": c.fence, "output": n}
            for n, c in enumerate(children)
        ),
    ]
    rows = b.k.calls("append_batch", json.dumps(batch))
    assert [row["outcome"] for row in rows] == ["answered" if waits else "appended", "completed", "completed"]
    if waits:
        assert [fact["payload"]["output"] for fact in b.facts()] == [1]
    b.audit()


def test_the_parent_that_continues_in_the_same_batch_hands_the_end_on(b: Box) -> None:
    child = child_of(b, "pay")
    batch = [
        {"verb": "continue", "execution_id": b.id, "fence": b.fence, "input": 1},
        {"verb": "complete", "execution_id": child.id, "fence": child.fence, "output": 2},
    ]
    rows = b.k.calls("append_batch", json.dumps(batch))
    assert [row["outcome"] for row in rows] == ["continued", "completed"]
    assert b.pending() == [1]
    successor = b.k.value(
        "select current_member from underseal.execution where chain_id = %s and member = ''", b.chain
    )
    assert successor == "2"


def test_a_chain_whose_children_ended_can_be_deleted(b: Box) -> None:
    child = child_of(b, "pay")
    child.write("complete", output=1)
    b.write("complete")
    row = b.k.call("delete_chain", b.chain, "op")
    assert (row["outcome"], row["deleted"]) == ("deleted", 2)
    assert b.k.value("select count(*) from underseal.inbox_message where chain_id = %s", b.chain) == 0
