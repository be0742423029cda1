"""What a park, a delivery and the three steps answer with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.held.sql.kernel import outcome
from tests.inbox.box import CAPABLE, MARKER, OWNER, SEALED, Box, key


@pytest.mark.clause("I1b", "E7a")
def test_a_message_that_is_there_answers_the_park(b: Box) -> None:
    number = b.put("a", '{"n": 1}')
    assert b.park(w=["a"]) == "answered"
    assert b.delivered() == [("w", number)]
    assert (b.status, b.open_waits(), b.pending(), b.wakes()) == ("running", [], [], ["drive"])


@pytest.mark.clause("I1b", "E7a")
def test_a_message_that_comes_later_wakes_and_is_delivered(b: Box) -> None:
    assert b.park(w=["a"]) == "parked"
    assert b.wakes() == []
    number = b.put("a")
    assert (b.status, b.wakes()) == ("suspended", ["inbox"])
    assert b.deliver() | {"message": None} == {
        "outcome": "delivered", "reason": None, "message": None, "answered": 1, "held": False
    }  # fmt: skip
    assert b.delivered() == [("w", number)]
    assert (b.status, b.wakes()) == ("running", ["drive"])


@pytest.mark.clause("E7a")
def test_only_a_message_that_is_waited_for_wakes(b: Box) -> None:
    b.put("a")
    assert b.wakes() == ["drive"]
    b.park(w=["b"])
    b.put("a")
    assert b.wakes() == []
    b.put("b")
    assert b.wakes() == ["inbox"]


@pytest.mark.clause("I1a")
def test_a_topic_is_first_in_first_out(b: Box) -> None:
    numbers = [b.put("a", str(n)) for n in range(5)]
    for wait in range(5):
        b.park(**{f"w{wait}": ["a"]})
    assert b.delivered() == [(f"w{n}", number) for n, number in enumerate(numbers)]
    assert [fact["payload"] for fact in b.facts()] == list(range(5))


@pytest.mark.clause("I1b")
@pytest.mark.parametrize("arms", [["a", "b"], ["b", "a"]])
def test_the_first_arm_with_a_message_answers(b: Box, arms: list[str]) -> None:
    numbers = {topic: b.put(topic) for topic in "ab"}
    b.park(w=arms)
    assert b.delivered() == [("w", numbers[arms[0]])]
    assert b.pending() == [numbers[arms[1]]]


@pytest.mark.clause("I1b")
def test_an_arm_without_a_message_is_passed_over(b: Box) -> None:
    number = b.put("b")
    b.park(w=["a", "b"])
    (fact,) = b.facts()
    assert (fact["inbox_seq"], fact["arm"], fact["wait"], fact["topic"]) == (number, 1, "w", "b")


@pytest.mark.clause("I1a", "I1b")
def test_waits_are_answered_in_the_order_of_the_park_each_once(b: Box) -> None:
    first, second, third = b.put("a"), b.put("a"), b.put("b")
    b.park(w1=["b", "a"], w2=["a", "b"], w3=["a"], w4=["a"])
    assert b.delivered() == [("w1", third), ("w2", first), ("w3", second)]
    assert b.open_waits() == ["w4"]
    assert b.status == "running"


@pytest.mark.clause("I1b")
def test_what_is_left_over_is_waited_for_again(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"], w2=["b"])
    b.step()
    assert b.park(w2=["b"]) == "parked"
    number = b.put("b")
    b.deliver()
    assert b.delivered()[1:] == [("w2", number)]


@pytest.mark.clause("I1b")
def test_a_driver_may_deliver_what_is_left_over_while_it_runs(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"], w2=["b"])
    number = b.put("b")
    assert b.wakes() == ["drive"]
    assert b.deliver()["answered"] == 1
    assert b.delivered()[1:] == [("w2", number)]
    assert (b.open_waits(), b.wakes()) == ([], ["drive"])


@pytest.mark.clause("I1b")
def test_a_due_arm_answers_in_its_place(b: Box) -> None:
    b.put("a")
    b.park(w1=[0, "a"], w2=["a", 0], w3=["b", 0])
    assert b.types()[2:] == ["TIMER_FIRED", "MESSAGE_CONSUMED", "TIMER_FIRED"]
    assert [(e["data"]["wait"], e["data"]["arm"]) for e in b.log()[2:]] == [("w1", 0), ("w2", 0), ("w3", 1)]


@pytest.mark.clause("E7b")
def test_an_instant_answers_when_it_comes_and_not_before(b: Box) -> None:
    assert b.park(w=["a", 60.0]) == "parked"
    assert b.deliver()["outcome"] == "none"
    b.k.clock.advance(seconds=59, microseconds=999999)
    assert b.deliver()["outcome"] == "none"
    assert b.wakes() == ["timer"]
    b.k.clock.advance(microseconds=1)
    assert b.deliver()["answered"] == 1
    assert b.log()[-1]["data"] == {"wait": "w", "arm": 1}


@pytest.mark.clause("I1a", "I5")
@pytest.mark.parametrize(
    "payload",
    [
        '{"b": 1, "a":  [1.50, 1e400,-0], "b": 2}',
        " [ 1 ,\t2 ] ",
        '"é\\n\\"\\/"',
        "null",
        "12345678901234567890.000",
    ],
)
def test_the_payload_goes_from_inbox_to_log_byte_for_byte(b: Box, payload: str) -> None:
    number = b.put("a", payload)
    b.park(w=["a"])
    (stored,) = b.k.rows(
        "select (data -> 'payload')::text as text from underseal.event"
        " where chain_id = %s and type = 'MESSAGE_CONSUMED'",
        b.chain,
    )
    assert stored["text"] == payload.strip()
    assert b.facts()[0]["inbox_seq"] == number
    assert f'"payload" : {payload}' in b.log()[-1]["text"]


@pytest.mark.clause("I5")
def test_a_delivered_message_is_nowhere_but_in_the_log(b: Box) -> None:
    b.put("a", '"unmistakable"')
    b.park(w=["a"])
    found = [
        table for table, lines in b.k.everything().items() if any("unmistakable" in line for line in lines)
    ]
    assert found == ["event"]


def test_the_fact_tells_everything_about_the_message(b: Box) -> None:
    number = b.put("a", '{"x": 1}', message_id="m1")
    b.park(w=["b", "a"])
    assert b.facts() == [
        {
            "wait": "w",
            "arm": 1,
            "topic": "a",
            "inbox_seq": number,
            "key": key(OWNER, "m1").hex(),
            "message_id": "m1",
            "sender": OWNER,
            "disposition": "delivered",
            "payload": {"x": 1},
        }
    ]
    assert (b.cursors(), b.seen()) == ({"a": number}, {key(OWNER, "m1"): number})


@pytest.mark.clause("E2b")
@pytest.mark.parametrize("verb", ["deliver", "next", "consume"])
def test_an_old_fence_delivers_nothing(b: Box, verb: str) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    old = b.fence
    b.take()
    before = b.k.everything()
    row = b.consume(found, fence=old) if verb == "consume" else getattr(b, verb)(fence=old)
    assert outcome(row) == ("conflict", "stale-fence")
    assert b.k.everything() == before
    fresh = b.consume(found) if verb == "consume" else getattr(b, verb)()
    assert fresh["outcome"] in ("delivered", "message", "consumed")


@pytest.mark.parametrize("verb", ["deliver", "next", "consume"])
def test_no_fence_at_all_delivers_nothing(b: Box, verb: str) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    calls: dict[str, tuple[Any, ...]] = {
        "deliver": ("deliver", b.id, None),
        "next": ("next_message", b.id, None),
        "consume": ("consume_message", b.id, None, "w", "a", found["inbox_seq"], found["message_key"]),
    }
    assert outcome(b.k.call(*calls[verb])) == ("conflict", "stale-fence")


@pytest.mark.parametrize("verb", ["deliver", "next", "consume"])
def test_an_ended_or_unknown_execution_is_told_apart(b: Box, verb: str) -> None:
    found = {"wait": "w", "topic": "a", "inbox_seq": 1, "message_key": b"x" * 32}

    def ask() -> tuple[str, str | None]:
        return outcome(b.consume(found) if verb == "consume" else getattr(b, verb)())

    b.write("complete")
    assert ask() == ("conflict", "ended")
    b.id += "-unknown"
    assert ask() == ("not-found", None)


@pytest.mark.clause("G7", "E7a")
def test_a_delivery_of_nothing_retires_the_wake(b: Box) -> None:
    b.park(w=["a", 60.0])
    b.put("a")
    assert b.wakes() == ["inbox", "timer"]
    b.discard("a")
    assert b.deliver()["outcome"] == "none"
    assert b.wakes() == ["timer"]
    b.put("a")
    assert b.wakes() == ["inbox", "timer"]


def test_a_delivery_to_one_that_waits_for_nothing_is_none(b: Box) -> None:
    b.put("a")
    before = b.k.everything()
    assert outcome(b.deliver()) == ("none", None)
    assert outcome(b.next()) == ("none", None)
    assert b.k.everything() == before


@pytest.mark.clause("G16")
def test_a_message_is_looked_at_without_a_trace_and_then_consumed(b: Box) -> None:
    b.park(w=["b", "a"])
    number = b.put("a", '{"x":  1}', message_id="m")
    before = b.k.everything()
    found = b.next()
    assert b.k.everything() == before
    assert found == {
        "outcome": "message", "reason": None, "message": None, "wait": "w", "arm": 1, "topic": "a", "inbox_seq": number,
        "message_key": key(OWNER, "m"), "message_id": "m", "sender": OWNER, "payload": {"x": 1}, "metadata": None,
    }  # fmt: skip
    row = b.consume(found)
    assert (row["outcome"], row["seq"]) == ("consumed", b.execution()["head"])
    assert '{"x":  1}' in b.log()[-1]["text"]
    assert b.delivered() == [("w", number)]


@pytest.mark.clause("G16")
def test_a_timer_comes_in_its_place_and_is_delivered_not_consumed(b: Box) -> None:
    b.park(w1=[5.0, "a"], w2=["b"])
    b.put("b")
    b.k.clock.advance(seconds=5)
    found = b.next()
    assert (found["outcome"], found["wait"], found["arm"], found["topic"]) == ("timer", "w1", 0, None)
    assert b.deliver()["answered"] == 2


STALE = {
    "another wait": {"wait": "w2"},
    "no wait": {"wait": None},
    "another topic": {"topic": "b"},
    "another number": {"inbox_seq": 2},
    "another key": {"message_key": b"k" * 32},
    "no key": {"message_key": None},
}


@pytest.mark.clause("G16")
@pytest.mark.parametrize("changes", STALE.values(), ids=STALE.keys())
def test_what_was_not_handed_out_is_not_consumed(b: Box, changes: dict[str, Any]) -> None:
    b.park(w=["a"], w2=["b"])
    for topic in "aab":
        b.put(topic)
    found = b.next()
    before = b.k.everything()
    assert outcome(b.consume(found, **changes)) == ("conflict", "stale")
    assert b.k.everything() == before
    assert b.consume(found)["outcome"] == "consumed"


@pytest.mark.clause("G16")
def test_a_message_is_consumed_once(b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    b.consume(found)
    before = b.k.everything()
    assert outcome(b.consume(found)) == ("conflict", "stale")
    assert b.k.everything() == before


@pytest.mark.clause("G16", "I1b")
def test_what_comes_first_by_now_is_consumed_first(b: Box) -> None:
    b.park(w=["a", "b"])
    b.put("b")
    found = b.next()
    first = b.put("a")
    assert outcome(b.consume(found)) == ("conflict", "stale")
    again = b.next()
    assert (again["topic"], again["inbox_seq"]) == ("a", first)
    assert b.consume(again)["outcome"] == "consumed"


@pytest.mark.clause("G16")
def test_what_was_discarded_meanwhile_is_not_consumed(b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    b.discard("a")
    assert outcome(b.consume(found)) == ("conflict", "stale")
    assert b.delivered() == []


@pytest.mark.clause("G2", "G7", "G8", "G10")
@pytest.mark.parametrize("marker", [MARKER, None], ids=["marked", "by hand"])
def test_what_may_be_sealed_holds_up_everything_behind_it(b: Box, marker: Any) -> None:
    head = b.put("a")
    b.seal(head, marker)
    b.put("b")
    before = b.log()
    assert b.park(w1=["a", "b"], w2=["b"], w3=[0]) == "parked"
    assert b.log()[len(before) :][0]["type"] == "EXECUTION_SUSPENDED"
    assert len(b.log()) == len(before) + 1
    assert (b.status, b.wakes()) == ("suspended", ["inbox", "timer"])
    row = b.deliver()
    assert (row["outcome"], row["answered"], row["held"]) == ("held", 0, True)
    assert len(b.log()) == len(before) + 1
    assert (b.status, b.wakes(), b.pending()) == ("suspended", ["inbox", "timer"], [1, 2])
    assert SEALED not in "".join(event["text"] for event in b.log())


@pytest.mark.clause("G10", "I1b")
def test_what_comes_before_it_is_answered(b: Box) -> None:
    plain = b.put("b")
    head = b.put("a")
    b.seal(head)
    later = b.put("c")
    b.park(w1=["c2", "b"], w2=["a"], w3=["c"])
    assert b.delivered() == [("w1", plain)]
    assert b.pending() == [head, later]
    assert (b.status, b.open_waits()) == ("running", ["w2", "w3"])


@pytest.mark.clause("G7")
def test_a_refusal_records_nothing_of_what_lies_before_it(b: Box) -> None:
    b.put("a", expires="1 second")
    b.seal(b.put("a"))
    b.k.clock.advance(seconds=2)
    b.park(w=["a"])
    assert (b.facts(), b.pending()) == ([], [1, 2])


@pytest.mark.clause("G16", "G10")
def test_who_opens_it_takes_it_in_three_steps_and_the_rest_follows(b: Box) -> None:
    head = b.put("a", message_id="s")
    b.seal(head)
    behind = b.put("b")
    b.park(w1=["a"], w2=["b"])
    found = b.next(CAPABLE)
    assert (found["outcome"], found["inbox_seq"], found["metadata"]) == ("message", head, {"seal": MARKER})
    assert b.consume(found)["outcome"] == "consumed"
    assert b.log()[-1]["metadata"] == {"seal": MARKER}
    assert SEALED in b.log()[-1]["text"]
    assert b.execution()["sealed"]
    assert b.deliver()["answered"] == 1
    assert b.delivered() == [("w1", head), ("w2", behind)]


INCAPABLE = {
    "none": None,
    "nothing": {},
    "another cipher": {**CAPABLE, "ciphers": ["loom/aes-256-gcm"]},
    "another path": {**CAPABLE, "covers": ["INBOX_MESSAGE.payload.secret"]},
}


@pytest.mark.clause("G16", "G8", "G11", "G7")
@pytest.mark.parametrize("capability", INCAPABLE.values(), ids=INCAPABLE.keys())
def test_who_does_not_open_it_is_told_nothing_and_leaves_a_wake(b: Box, capability: Any) -> None:
    head = b.put("topic-of-the-head")
    b.seal(head)
    b.park(w=["topic-of-the-head"])
    b.k.do("delete from underseal.wake where chain_id = %s", b.chain)
    b.k.clock.advance(seconds=90)
    log = b.log()
    for _ in range(2):
        found = b.next(capability)
        assert outcome(found) == ("held", None)
        assert all(
            found[name] is None
            for name in ("wait", "arm", "topic", "inbox_seq", "message_key", "payload", "metadata")
        )
        assert "topic-of" not in found["message"]
    assert (b.log(), b.pending(), b.wakes()) == (log, [head], ["inbox"])
    (report,) = b.k.rows("select * from underseal.operator_reports where subject = %s", b.id)
    assert (report["kind"], report["times"]) == ("sealed-head", 2)
    for what in ("topic-of-the-head", f"inbox_seq {head},", "90 seconds"):
        assert what in report["cause"]


@pytest.mark.clause("G2", "G16")
def test_an_envelope_without_a_marker_opens_for_nobody(b: Box) -> None:
    head = b.put("a", message_id="m")
    b.seal(head, marker=None)
    b.park(w=["a"])
    assert b.next(CAPABLE)["outcome"] == "held"
    found = {"wait": "w", "topic": "a", "inbox_seq": head, "message_key": key(OWNER, "m")}
    assert outcome(b.consume(found)) == ("conflict", "stale")
    assert b.facts() == []


@pytest.mark.clause("G8")
def test_a_refusal_moves_no_wake_that_is_there(b: Box) -> None:
    b.seal(b.put("a"))
    b.park(w=["a"])
    b.k.do(
        "update underseal.wake set wake_at = wake_at + interval '1 hour', claimed_by = 'w1',"
        " claimed_until = wake_at + interval '1 hour' where chain_id = %s",
        b.chain,
    )
    before = b.k.rows("select * from underseal.wake where chain_id = %s", b.chain)
    b.next()
    b.deliver()
    assert b.k.rows("select * from underseal.wake where chain_id = %s", b.chain) == before


def test_a_running_execution_gets_no_wake_from_a_refusal(b: Box) -> None:
    b.put("a")
    b.seal(b.put("b"))
    b.park(w1=["a"], w2=["b"])
    assert b.next()["outcome"] == "held"
    assert b.deliver()["held"]
    assert b.wakes() == ["drive"]
