"""What may be sent, what is refused, and what is a duplicate."""

from __future__ import annotations

from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import OWNER, Box, box, key, set_limit

LIMIT = 65536
SHREDDED = '{"$shredded": true}'


def text_of(size: int) -> str:
    """A JSON string of so many bytes."""
    return '"' + "x" * (size - 2) + '"'


def unchanged(b: Box, row: Any, before: Any) -> None:
    """A refusal left nothing."""
    assert row["inbox_seq"] is None
    assert b.k.everything() == before


def test_numbers_have_no_gap_whatever_is_refused_between(b: Box) -> None:
    assert b.put("a") == 1
    b.send("$a")
    b.send("a", text_of(LIMIT + 1))
    b.send("a", who="stranger")
    assert b.put("b") == 2
    b.audit()


def test_a_null_payload_is_the_json_null(b: Box) -> None:
    row = b.k.call("send", b.id, "a", None, OWNER)
    assert row["outcome"] == "sent"
    b.park(w=["a"])
    assert b.facts()[0]["payload"] is None


@pytest.mark.clause("G13")
def test_64_kib_pass_and_one_byte_more_does_not(b: Box) -> None:
    assert b.put("a", text_of(LIMIT)) == 1
    b.park(w=["a"])
    assert len(b.facts()[0]["payload"]) == LIMIT - 2
    for size in (LIMIT + 1, 1024 * 1024, 1024 * 1024 + 1):
        before = b.k.everything()
        row = b.send("a", text_of(size))
        assert outcome(row) == ("refused", "too-large")
        assert f"{LIMIT} bytes" in row["message"]
        assert "xxx" not in row["message"]
        unchanged(b, row, before)


@pytest.mark.clause("G13")
def test_bytes_are_counted_not_characters(b: Box) -> None:
    set_limit(b.k, "max_payload_bytes", 10)
    assert b.send("a", '"éééé"')["outcome"] == "sent"
    assert outcome(b.send("a", '"éééée"')) == ("refused", "too-large")
    assert outcome(b.send("a", "[1]" + " " * 8)) == ("refused", "too-large")


@pytest.mark.clause("G13")
@pytest.mark.parametrize("value", ["", "-1", "many", "1e3", "99999999999"])
def test_a_setting_that_is_no_number_is_as_none(b: Box, value: str) -> None:
    set_limit(b.k, "max_payload_bytes", value)
    assert b.send("a", text_of(LIMIT))["outcome"] == "sent"
    assert outcome(b.send("a", text_of(LIMIT + 1))) == ("refused", "too-large")


@pytest.mark.clause("G13")
def test_no_setting_lets_more_than_a_mebibyte_in(b: Box) -> None:
    set_limit(b.k, "max_payload_bytes", 10 * 1024 * 1024)
    assert b.send("a", text_of(1024 * 1024))["outcome"] == "sent"
    assert outcome(b.send("a", text_of(1024 * 1024 + 1))) == ("refused", "too-large")
    assert b.park(w=["a"]) == "answered"


ENVELOPES = [
    '{"__loomEnc": "loom/aes-256-gcm"}',
    '{"__loomEnc": ""}',
    '[[{"x": {"__loomEnc": "any"}}]]',
    '{"__loom\\u0045nc": "any"}',
    '{"__loomEnc": 1, "x": [{"__loomEnc": "any"}]}',
    SHREDDED,
    f'[{{"x": {SHREDDED}}}]',
    '{"\\u0024shredded": true}',
]


@pytest.mark.clause("G13", "G3")
@pytest.mark.parametrize("payload", ENVELOPES)
def test_an_envelope_is_refused_before_anything_is_written(b: Box, payload: str) -> None:
    before = b.k.everything()
    row = b.send("a", payload)
    assert outcome(row) == ("refused", "envelope")
    unchanged(b, row, before)


@pytest.mark.clause("G3")
@pytest.mark.parametrize(
    "payload",
    [
        '{"__loomEnc": 1}',
        '{"__loomEnc": null}',
        '{"__loomEnc": {"__loomEnc": ["x"]}}',
        '"__loomEnc"',
        '["__loomEnc", "$shredded"]',
        '"{\\"__loomEnc\\": \\"x\\"}"',
        '{"$shredded": false}',
        '{"x__loomEnc": "y"}',
        '"\\u00e9"',
    ],
)
def test_what_only_looks_like_one_is_an_ordinary_payload(b: Box, payload: str) -> None:
    b.put("a", payload)
    assert b.park(w=["a"]) == "answered"


@pytest.mark.clause("G13")
@pytest.mark.parametrize("payload", ['"\\u0000"', '{"\\ud800": 1}'])
def test_what_cannot_be_looked_through_is_refused(b: Box, payload: str) -> None:
    before = b.k.everything()
    row = b.send("a", payload)
    assert outcome(row) == ("refused", "unreadable")
    unchanged(b, row, before)


@pytest.mark.clause("G13")
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_what_is_too_deep_is_refused(b: Box, opens: str, closes: str) -> None:
    assert b.put("a", opens * 512 + "1" + closes * 512) == 1
    before = b.k.everything()
    row = b.send("a", opens * 513 + "1" + closes * 513)
    assert outcome(row) == ("refused", "too-deep")
    assert "512" in row["message"]
    unchanged(b, row, before)
    assert b.park(w=["a"]) == "answered"


@pytest.mark.clause("G13")
def test_the_size_is_judged_before_anything_is_looked_through(b: Box) -> None:
    set_limit(b.k, "max_payload_bytes", 1000)
    assert outcome(b.send("a", "[" * 600 + "]" * 600)) == ("refused", "too-large")
    assert outcome(b.send("a", '{"__loomEnc": "' + "x" * 1000 + '"}')) == ("refused", "too-large")


FLAWS = {
    "no topic": ({"topic": None}, "malformed-topic"),
    "an empty topic": ({"topic": ""}, "malformed-topic"),
    "a long topic": ({"topic": "t" * 201}, "malformed-topic"),
    "a control character": ({"topic": "a\nb"}, "malformed-topic"),
    "the kernel's": ({"topic": "$gate/x"}, "malformed-topic"),
    "an empty id": ({"message_id": ""}, "malformed-id"),
    "a long id": ({"message_id": "i" * 257}, "malformed-id"),
    "no time": ({"expires": "0"}, "malformed-expiry"),
    "time ago": ({"expires": "-1 second"}, "malformed-expiry"),
    "for ever": ({"expires": "3651 days"}, "malformed-expiry"),
}


@pytest.mark.parametrize(("changes", "reason"), FLAWS.values(), ids=FLAWS.keys())
def test_what_is_malformed_is_refused(b: Box, changes: dict[str, Any], reason: str) -> None:
    before = b.k.everything()
    row = b.send(**{"topic": "a", **changes})
    assert outcome(row) == ("refused", reason)
    assert "Expected" in row["message"]
    unchanged(b, row, before)


def test_what_is_just_not_malformed_is_sent(b: Box) -> None:
    b.put("t" * 200)
    b.put("a$b ü~", message_id="i" * 256)
    b.put("a", expires="3650 days")
    b.put("a", expires="1 microsecond")


@pytest.mark.clause("I2b")
def test_a_repetition_is_a_duplicate_while_it_waits_and_after(b: Box) -> None:
    number = b.put("a", message_id="m")
    before = b.k.everything()
    assert b.send("a", message_id="m") | {"message": None} == {
        "outcome": "duplicate", "reason": None, "message": None, "inbox_seq": number
    }  # fmt: skip
    assert b.k.everything() == before
    b.park(w=["a"])
    before = b.k.everything()
    again = b.send("b", "2", message_id="m")
    assert (again["outcome"], again["inbox_seq"]) == ("duplicate", number)
    assert b.k.everything() == before
    assert b.delivered() == [("w", number)]


@pytest.mark.clause("I2b")
def test_an_id_is_its_senders(b: Box) -> None:
    b.put("a", message_id="m")
    assert b.put_as("eve", "m") == ("sent", 2)
    assert b.put_as("eve", "m") == ("duplicate", 2)
    b.park(w1=["a"], w2=["a"])
    assert [fact["key"] for fact in b.facts()] == [key(OWNER, "m").hex(), key("eve", "m").hex()]
    assert [fact["sender"] for fact in b.facts()] == [OWNER, "eve"]


@pytest.mark.clause("I2b")
def test_sender_and_id_cannot_be_shifted_into_each_other(b: Box) -> None:
    b.put("a", message_id="bc")
    assert b.put_as(f"{OWNER}b", "c") == ("sent", 2)


@pytest.mark.clause("I2b")
def test_an_execution_remembers_its_own_keys_only(k: Kernel) -> None:
    one, other = box(k), box(k)
    one.put("a", message_id="m")
    assert other.put("a", message_id="m") == 1


@pytest.mark.clause("I2b")
def test_a_repetition_is_a_duplicate_in_a_full_topic_and_after_the_end(b: Box) -> None:
    set_limit(b.k, "backlog", 1)
    number = b.put("a", message_id="m")
    assert b.send("a", message_id="m")["outcome"] == "duplicate"
    assert outcome(b.send("a", message_id="n")) == ("refused", "inbox-full")
    b.park(w=["a"])
    b.write("complete")
    assert b.send("a", message_id="m")["inbox_seq"] == number
    assert outcome(b.send("a", message_id="n")) == ("conflict", "ended")


@pytest.mark.clause("I2b")
@pytest.mark.parametrize("how", ["discarded", "expired"])
def test_what_was_disposed_of_is_a_duplicate_too(b: Box, how: str) -> None:
    number = b.put("a", message_id="m", expires="1 second")
    if how == "discarded":
        b.discard("a")
    else:
        b.k.clock.advance(seconds=1)
        b.expire()
    assert b.told() == [(how, number)]
    again = b.send("a", message_id="m")
    assert (again["outcome"], again["inbox_seq"]) == ("duplicate", number)


@pytest.mark.clause("I2b")
def test_a_key_is_forgotten_when_1024_others_were_disposed_of_after_it(b: Box) -> None:
    b.put("a", message_id="first")
    b.park(w0=["a"])
    b.k.do(
        "insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn)"
        " select %s, '', sha256(int8send(n)), 0, n from generate_series(2, 1024) n",
        b.chain,
    )
    assert b.send("a", message_id="first")["inbox_seq"] == 1
    assert b.put("a") == 2
    b.park(w=["a"])
    assert len(b.seen()) == 1024
    again = b.send("a", message_id="first")
    assert (again["outcome"], again["inbox_seq"]) == ("sent", 3)


@pytest.mark.clause("I2b")
def test_a_message_that_waited_for_long_is_remembered_when_it_is_delivered(b: Box) -> None:
    b.put("slow", message_id="late")
    b.k.do(
        "update underseal.execution set last_inbox_seq = 9000 where chain_id = %s and member = ''", b.chain
    )
    b.put("a")
    b.park(w0=["a"])
    b.park(w1=["slow"])
    again = b.send("slow", message_id="late")
    assert (again["outcome"], again["inbox_seq"]) == ("duplicate", 1)


@pytest.mark.clause("I2b")
def test_what_waits_is_never_forgotten(b: Box) -> None:
    b.put("a", message_id="first")
    b.k.do(
        "update underseal.execution set last_inbox_seq = 5000 where chain_id = %s and member = ''", b.chain
    )
    b.put("b")
    b.park(w=["b"])
    assert b.send("a", message_id="first")["inbox_seq"] == 1


@pytest.mark.clause("I2b", "I1b")
def test_a_message_under_a_key_that_was_delivered_is_passed_over(b: Box) -> None:
    head = b.put("a", message_id="m")
    number = b.put("a")
    b.k.do(
        "insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn) values (%s, '', %s, 0, 1)",
        b.chain, key(OWNER, "m"),
    )  # fmt: skip
    b.park(w=["a"])
    assert b.told() == [("duplicate", head), ("delivered", number)]
    assert "payload" not in b.facts()[0]
    assert b.facts()[0].keys() == {"topic", "inbox_seq", "key", "message_id", "sender", "disposition"}
    assert b.pending() == []


@pytest.mark.clause("I2b", "G16")
def test_next_message_looks_past_it_and_consume_records_it(b: Box) -> None:
    b.park(w=["a"])
    head = b.put("a", message_id="m")
    number = b.put("a")
    b.k.do(
        "insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn) values (%s, '', %s, 0, 1)",
        b.chain, key(OWNER, "m"),
    )  # fmt: skip
    before = b.k.everything()
    found = b.next()
    assert found["inbox_seq"] == number
    assert b.k.everything() == before
    b.consume(found)
    assert b.told() == [("duplicate", head), ("delivered", number)]


@pytest.mark.clause("I4")
def test_a_full_topic_refuses_and_no_other(b: Box) -> None:
    set_limit(b.k, "backlog", 3)
    for _ in range(3):
        b.put("a")
    before = b.k.everything()
    row = b.send("a")
    assert outcome(row) == ("refused", "inbox-full")
    assert "3" in row["message"]
    unchanged(b, row, before)
    assert b.put("b") == 4
    b.park(w=["a"])
    assert b.put("a") == 5
    assert outcome(b.send("a")) == ("refused", "inbox-full")


@pytest.mark.clause("I4")
def test_a_topic_of_another_execution_counts_for_itself(k: Kernel) -> None:
    set_limit(k, "backlog", 1)
    one, other = box(k), box(k)
    one.put("a")
    other.put("a")
    assert outcome(one.send("a")) == ("refused", "inbox-full")


@pytest.mark.clause("I4")
def test_a_thousand_wait_unless_set_otherwise(b: Box) -> None:
    b.fill("a", 999)
    assert b.put("a") == 1000
    assert outcome(b.send("a")) == ("refused", "inbox-full")


@pytest.mark.clause("I4", "I3c")
def test_what_has_expired_fills_no_topic(b: Box) -> None:
    set_limit(b.k, "backlog", 2)
    b.put("a", expires="1 second")
    b.put("a")
    b.put("b", expires="1 second")
    assert outcome(b.send("a")) == ("refused", "inbox-full")
    b.k.clock.advance(seconds=1)
    assert b.put("a") == 4
    assert b.told() == [("expired", 1)]
    assert outcome(b.send("a")) == ("refused", "inbox-full")


def test_nothing_is_sent_to_one_that_has_ended(b: Box) -> None:
    waiting = b.put("a")
    b.write("complete")
    before = b.k.everything()
    row = b.send("a")
    assert outcome(row) == ("conflict", "ended")
    unchanged(b, row, before)
    assert b.pending() == [waiting]
    assert b.wakes() == []


def test_a_send_brings_a_wake_forward_and_leaves_its_claim(b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    b.k.do(
        "update underseal.wake set wake_at = wake_at + interval '1 hour', claimed_by = 'w1', attempts = 3,"
        " claimed_until = wake_at + interval '1 minute' where chain_id = %s",
        b.chain,
    )
    b.put("a")
    (wake,) = b.k.rows("select * from underseal.wake where chain_id = %s", b.chain)
    assert (wake["wake_at"], wake["claimed_by"], wake["attempts"]) == (b.k.clock.now(), "w1", 3)
    b.k.clock.advance(seconds=9)
    b.put("a")
    assert b.k.value("select wake_at from underseal.wake where chain_id = %s", b.chain) == wake["wake_at"]
