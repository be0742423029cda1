"""What leaves the inbox without being delivered: discarded, or expired."""

from __future__ import annotations

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import MARKER, OWNER, SEALED, Box, box, key, set_limit


@pytest.mark.clause("I3b", "I5")
def test_a_topic_is_discarded_and_the_log_says_by_whom(b: Box) -> None:
    one, other, two = b.put("a", '"secret"', message_id="m"), b.put("b"), b.put("a")
    row = b.discard("a", who="op", note="not wanted")
    assert (row["outcome"], row["discarded"]) == ("discarded", 2)
    assert b.told() == [("discarded", one), ("discarded", two)]
    assert b.facts()[0] == {
        "topic": "a",
        "inbox_seq": one,
        "key": key(OWNER, "m").hex(),
        "message_id": "m",
        "sender": OWNER,
        "disposition": "discarded",
        "operator": "op",
        "reason": "not wanted",
    }
    assert (b.pending(), b.cursors()) == ([other], {"a": two})
    assert b.status == "running" or b.status == "pending"


@pytest.mark.clause("I3b")
def test_a_discard_of_nothing_changes_nothing(b: Box) -> None:
    b.put("b")
    before = b.k.everything()
    row = b.discard("a")
    assert (row["outcome"], row["discarded"]) == ("unchanged", 0)
    assert b.k.everything() == before


@pytest.mark.clause("I3b")
def test_the_head_alone_is_discarded_by_its_number(b: Box) -> None:
    one, two = b.put("a"), b.put("a")
    before = b.k.everything()
    for number in (two, 99, 0):
        assert outcome(b.discard("a", number=number)) == ("conflict", "moved")
    assert outcome(b.discard("c", number=one)) == ("conflict", "moved")
    assert b.k.everything() == before
    assert b.discard("a", number=one)["discarded"] == 1
    assert b.pending() == [two]
    assert outcome(b.discard("a", number=one)) == ("conflict", "moved")


@pytest.mark.clause("I3b")
def test_a_note_has_at_most_256_characters(b: Box) -> None:
    b.put("a")
    before = b.k.everything()
    assert outcome(b.discard("a", note="n" * 257)) == ("refused", "malformed-note")
    assert b.k.everything() == before
    assert b.discard("a", note="n" * 256)["discarded"] == 1


@pytest.mark.clause("I3b", "G6")
@pytest.mark.parametrize("marker", [MARKER, None], ids=["marked", "by hand"])
def test_what_nobody_can_open_is_discarded_and_what_waited_behind_it_goes_on(b: Box, marker: object) -> None:
    head = b.seal(b.put("a"), marker if isinstance(marker, dict) else None)
    behind = b.put("b")
    b.park(w1=["a", "b"])
    b.k.do("update underseal.wake set wake_at = wake_at + interval '1 hour' where chain_id = %s", b.chain)
    assert b.discard("a", number=head)["outcome"] == "discarded"
    assert b.k.value("select wake_at from underseal.wake where chain_id = %s", b.chain) == b.k.clock.now()
    assert SEALED not in "".join(event["text"] for event in b.log())
    assert not b.execution()["sealed"]
    b.deliver()
    assert b.delivered() == [("w1", behind)]


@pytest.mark.clause("G6", "E7b")
def test_an_instant_that_waited_behind_it_is_due_now(b: Box) -> None:
    b.seal(b.put("a"))
    b.park(w1=["a", 5.0])
    b.k.clock.advance(seconds=6)
    assert b.deliver()["held"]
    b.k.do("delete from underseal.wake where chain_id = %s and kind = 'inbox'", b.chain)
    b.discard("a")
    assert b.wakes() == ["inbox", "timer"]
    assert b.deliver()["answered"] == 1


def test_a_discard_with_nothing_behind_it_wakes_nobody(b: Box) -> None:
    b.park(w1=["b"])
    b.put("a")
    b.discard("a")
    assert b.wakes() == []


def test_a_discard_wakes_nobody_who_runs(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"], w2=["b"])
    b.put("b")
    b.put("c")
    b.discard("c")
    assert (b.status, b.open_waits(), b.wakes()) == ("running", ["w2"], ["drive"])


@pytest.mark.clause("I3b")
def test_a_discard_leaves_a_parked_and_a_running_execution_as_they_are(b: Box) -> None:
    b.step()
    b.put("a")
    b.discard("a")
    assert (b.status, b.wakes()) == ("running", ["drive"])
    b.park(w=["a"])
    b.put("c")
    b.discard("c")
    assert (b.status, b.open_waits(), b.wakes()) == ("suspended", ["w"], [])
    b.audit()


@pytest.mark.clause("I3b")
def test_a_discard_is_recorded_after_the_end(b: Box) -> None:
    number = b.put("a")
    b.write("complete")
    assert b.discard("a")["discarded"] == 1
    assert (b.status, b.told(), b.wakes()) == ("completed", [("discarded", number)], [])
    b.audit()


@pytest.mark.clause("I3a", "E12a", "E12c")
@pytest.mark.parametrize("unknown", [False, True])
def test_a_discard_without_a_principal_is_denied(b: Box, unknown: bool) -> None:
    b.put("a")
    if unknown:
        b.id += "-unknown"
    before = b.k.everything()
    row = b.discard("a", who="")
    after = b.k.everything()
    assert row == {
        "outcome": "denied",
        "reason": "execution",
        "message": b.k.value("select message from underseal._execution_denied()"),
        "discarded": None,
    }
    assert {name for name in before if before[name] != after[name]} == {"execution_denial"}


@pytest.mark.clause("I3c")
def test_what_expires_is_never_delivered(b: Box) -> None:
    gone = b.put("a", '"secret"', expires="10 seconds")
    kept = b.put("a", expires="10.000001 seconds")
    b.k.clock.advance(seconds=10)
    b.park(w=["a"])
    assert b.told() == [("expired", gone), ("delivered", kept)]
    assert "payload" not in b.facts()[0]
    assert "secret" not in "".join(event["text"] for event in b.log())


@pytest.mark.clause("I3c")
def test_a_delivery_that_meets_only_what_expired_records_it(b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="1 second")
    b.k.clock.advance(seconds=1)
    assert b.deliver()["outcome"] == "none"
    assert b.told() == [("expired", 1)]
    assert (b.status, b.open_waits(), b.wakes(), b.pending()) == ("suspended", ["w"], [], [])


@pytest.mark.clause("I3c", "G16")
def test_what_expired_since_it_was_handed_out_is_not_consumed(b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="1 second")
    found = b.next()
    b.k.clock.advance(seconds=1)
    before = b.k.everything()
    assert outcome(b.consume(found)) == ("conflict", "stale")
    assert b.next()["outcome"] == "none"
    assert b.k.everything() == before


@pytest.mark.clause("I3c")
def test_the_sweep_disposes_of_what_expired_wherever_it_lies(k: Kernel) -> None:
    pending, running, parked, ended = (box(k) for _ in range(4))
    running.step()
    parked.park(w=["b"])
    for one in (pending, running, parked, ended):
        one.put("a")
        one.put("a", expires="1 second")
        one.put("a", expires="1 hour")
        one.put("b2", expires="1 second")
    ended.write("complete")
    assert parked.expire() == 0
    k.clock.advance(seconds=1)
    assert parked.expire() == 8
    for one, status in (
        (pending, "pending"),
        (running, "running"),
        (parked, "suspended"),
        (ended, "completed"),
    ):
        assert one.status == status
        assert one.told() == [("expired", 2), ("expired", 4)]
        assert one.pending() == [1, 3]
        one.audit()
    assert parked.expire() == 0
    assert outcome(k.call("expire_inbox")) == ("unchanged", None)


@pytest.mark.clause("I3c", "I2a")
def test_a_message_behind_one_that_expired_behind_it_is_still_delivered(b: Box) -> None:
    head = b.put("a")
    b.put("a", expires="1 second")
    b.k.clock.advance(seconds=1)
    b.expire()
    assert b.cursors() == {"a": 2}
    b.park(w=["a"])
    assert b.delivered() == [("w", head)]
    assert b.cursors() == {"a": 2}


@pytest.mark.clause("I3c", "G6", "E7a")
def test_the_sweep_frees_what_waited_behind_a_sealed_head(b: Box) -> None:
    b.seal(b.put("a", expires="1 second"))
    behind = b.put("b")
    b.park(w=["a", "b"])
    b.k.do("delete from underseal.wake where chain_id = %s", b.chain)
    b.k.clock.advance(seconds=1)
    assert b.expire() == 1
    assert b.wakes() == ["inbox"]
    b.deliver()
    assert b.delivered() == [("w", behind)]


@pytest.mark.clause("I3c")
def test_a_sweep_takes_no_more_than_it_was_told(k: Kernel) -> None:
    boxes = [box(k) for _ in range(3)]
    for one in boxes:
        for _ in range(3):
            one.put("a", expires="1 second")
    k.clock.advance(seconds=1)
    assert [boxes[0].expire(4) for _ in range(4)] == [4, 4, 1, 0]
    assert boxes[0].expire(0) == 0
    for one in boxes:
        one.audit()


@pytest.mark.clause("I3b")
def test_an_execution_whose_expiry_fails_stops_no_other(k: Kernel) -> None:
    bad, good = box(k), box(k)
    for one in (bad, good):
        one.put("a", expires="1 second")
    k.do(
        "create function underseal.fails() returns trigger language plpgsql as"
        " $$ begin raise exception using errcode = 'P0042'; end $$"
    )
    k.do(
        "create trigger fails before insert on underseal.event for each row"
        f" when (new.chain_id = '{bad.chain}') execute function underseal.fails()"
    )
    k.clock.advance(seconds=1)
    assert good.expire() == 1
    assert (good.told(), bad.pending()) == ([("expired", 1)], [1])
    (report,) = k.rows("select * from underseal.operator_reports where subject = %s", bad.id)
    assert report["kind"] == "expire-failed"
    assert "P0042" in report["cause"]


def test_list_shows_what_waits_and_not_what_it_says(b: Box) -> None:
    assert b.listed() == []
    b.put("b", '"sécret"', message_id="m", expires="1 minute")
    b.put("a")
    first, second = b.listed()
    assert first == {
        "outcome": "message", "reason": None, "message": None, "topic": "b", "inbox_seq": 1, "sender": OWNER,
        "message_id": "m", "bytes": 9, "sent_at": b.k.clock.now(),
        "expires_at": first["sent_at"].replace() + (first["expires_at"] - first["sent_at"]),
    }  # fmt: skip
    assert (first["expires_at"] - first["sent_at"]).total_seconds() == 60
    assert (second["inbox_seq"], second["expires_at"]) == (2, None)


def test_list_comes_in_pages(b: Box) -> None:
    for _ in range(3):
        b.put("a")
    page = b.k.calls("list_inbox", b.id, OWNER, None, 1, 1)
    assert [row["inbox_seq"] for row in page] == [2]
    assert b.k.calls("list_inbox", b.id, OWNER, None, 3) == []


def test_the_backlog_is_seen_by_topic(b: Box) -> None:
    b.put("a")
    b.put("a")
    b.park(w=["b"])
    b.seal(b.put("b"))
    b.k.clock.advance(seconds=90)
    rows = {
        row["topic"]: row
        for row in b.k.rows("select * from underseal.inbox_backlog where execution_id = %s", b.id)
    }
    assert rows["a"] == {
        "execution_id": b.id, "flow": "f", "status": "suspended", "topic": "a", "messages": 2, "first_inbox_seq": 1,
        "oldest_seconds": 90, "waited_for": False,
    }  # fmt: skip
    assert rows["b"]["waited_for"]


@pytest.mark.clause("I3c", "I4")
def test_an_expired_message_makes_room_only_in_its_own_topic(b: Box) -> None:
    set_limit(b.k, "backlog", 1)
    b.put("a", expires="1 second")
    b.put("b", expires="1 second")
    b.k.clock.advance(seconds=1)
    b.put("a")
    assert b.told() == [("expired", 1)]
    assert b.pending("b") == [2]
