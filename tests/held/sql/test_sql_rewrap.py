"""Sealing open rows anew under another key."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.held.sql.kernel import ENDED, OPEN, Kernel, decision, outcome, payload


def rewrap(k: Kernel, operation: Any, before: Any, after: Any, *fingerprint: Any) -> tuple[str, str | None]:
    return outcome(k.call("rewrap_operation", operation, before, after, *(fingerprint or (b"n" * 32, "f2"))))


def rewrap_vote(k: Kernel, operation: Any, who: str, before: Any, after: Any) -> tuple[str, str | None]:
    return outcome(k.call("rewrap_vote", operation, who, before, after))


@pytest.mark.clause("H2.6c", "H3.4d", "H1.7f")
@pytest.mark.parametrize("state", OPEN)
def test_an_open_row_is_sealed_anew(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    before = k.operation(operation)
    events = k.events(operation)
    assert rewrap(k, operation, payload(), payload("k2")) == ("rewrapped", None)
    after = k.operation(operation)
    assert {name for name in after if after[name] != before[name]} == {
        "sealed_payload",
        "payload_key_id",
        "fingerprint",
        "fingerprint_key_id",
    }
    assert (after["sealed_payload"], after["payload_key_id"]) == (payload("k2").obj, "k2")
    assert (after["fingerprint"], after["fingerprint_key_id"], k.events(operation)) == (
        b"n" * 32,
        "f2",
        events,
    )


def test_the_seal_alone_or_the_fingerprint_alone_is_renewed(k: Kernel) -> None:
    operation = k.hold(fingerprint=b"o" * 32)
    assert rewrap(k, operation, payload(), payload("k2"), b"o" * 32, "f1") == ("rewrapped", None)
    assert rewrap(k, operation, payload("k2"), payload("k2"), b"n" * 32, "f2") == ("rewrapped", None)
    row = k.operation(operation)
    assert (row["payload_key_id"], row["fingerprint"]) == ("k2", b"n" * 32)


@pytest.mark.parametrize("state", ENDED)
def test_an_ended_row_is_not_sealed_again(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    before = k.everything()
    assert rewrap(k, operation, payload(), payload("k2")) == ("conflict", "changed")
    assert rewrap_vote(k, operation, "bob", decision(), decision("k2")) == ("conflict", "changed")
    assert k.everything() == before


def test_a_seal_that_was_not_read_is_not_replaced(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    before = k.everything()
    for seal in (payload(content="dcba"), payload("k3"), None):
        assert rewrap(k, operation, seal, payload("k2")) == ("conflict", "changed")
    assert rewrap(k, uuid4(), payload(), payload("k2")) == ("conflict", "changed")
    for seal in (decision(content="dcba"), decision("k3"), None):
        assert rewrap_vote(k, operation, "bob", seal, decision("k2")) == ("conflict", "changed")
    assert rewrap_vote(k, operation, "carol", decision(), decision("k2")) == ("conflict", "changed")
    assert rewrap_vote(k, uuid4(), "bob", decision(), decision("k2")) == ("conflict", "changed")
    assert k.everything() == before


@pytest.mark.clause("H3.4a", "H3.4d")
def test_another_seal_under_the_same_key_is_refused(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    attempts: list[list[Any]] = [
        [payload(content="dcba")],
        [payload(content="dcba"), b"n" * 32, "f2"],
        [payload("k2"), b"n" * 32, "f1"],
        [decision("k2")],
    ]
    for attempt in attempts:
        with pytest.raises(psycopg.Error) as caught:
            rewrap(k, operation, payload(), *attempt)
        assert caught.value.sqlstate == "US006"
    for seal in (decision(content="dcba"), payload("k2")):
        with pytest.raises(psycopg.Error) as caught:
            rewrap_vote(k, operation, "bob", decision(), seal)
        assert caught.value.sqlstate == "US004"


@pytest.mark.clause("H2.6c")
def test_a_decision_is_sealed_anew(bare: Kernel) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.approve(operation)
    bare.approve(operation, "carol")
    assert rewrap_vote(bare, operation, "bob", decision(), decision("k2")) == ("rewrapped", None)
    votes = bare.rows("select approver, sealed_decision, decision_key_id from underseal.held_vote order by 1")
    assert [(v["approver"], v["sealed_decision"], v["decision_key_id"]) for v in votes] == [
        ("bob", decision("k2").obj, "k2"),
        ("carol", decision().obj, "k1"),
    ]


@pytest.mark.clause("H2.6c")
def test_what_is_to_be_sealed_anew_is_listed_in_batches(k: Kernel) -> None:
    for state in ENDED[:2]:
        k.reach(state)
    operations = [k.reach("APPROVED") for _ in range(3)]
    listed = k.calls("list_rewrap", "k1", "k1", "f1")
    assert listed == []
    listed = k.calls("list_rewrap", "k2", "k2", "f2")
    assert sorted(row["outcome"] for row in listed) == ["decision"] * 3 + ["payload"] * 3
    assert {row["operation_id"] for row in listed} == set(operations)
    one = next(row for row in listed if row["outcome"] == "payload")
    assert (one["requester"], one["sealed"], one["held_fingerprint_key_id"]) == ("ann", payload().obj, "f1")
    one = next(row for row in listed if row["outcome"] == "decision")
    assert (one["approver"], one["sealed"]) == ("bob", decision().obj)
    assert [row["outcome"] for row in k.calls("list_rewrap", "k1", "k1", "f2")] == ["payload"] * 3
    assert [row["outcome"] for row in k.calls("list_rewrap", "k1", "k2", "f1")] == ["decision"] * 3
    assert [row["outcome"] for row in k.calls("list_rewrap", None, "k2", None)] == ["decision"] * 3
    assert len(k.calls("list_rewrap", "k2", "k2", "f2", 2)) == 4


@pytest.mark.clause("H2.6d")
def test_a_key_is_listed_while_an_open_row_needs_it(k: Kernel) -> None:
    operation = k.hold(sealed_payload=payload("p"))
    k.vote(operation, seal=decision("d"))
    k.hold(sealed_payload=payload("p"))
    k.reach("SUCCEEDED")

    def keys() -> list[tuple[str, str, int]]:
        return [(r["purpose"], r["key_id"], r["open_rows"]) for r in k.calls("list_key_ids")]

    assert keys() == [("decision", "d", 1), ("fingerprint", "f1", 2), ("payload", "p", 2)]
    assert rewrap_vote(k, operation, "bob", decision("d"), decision("d2")) == ("rewrapped", None)
    assert keys() == [("decision", "d2", 1), ("fingerprint", "f1", 2), ("payload", "p", 2)]
    k.finish(k.executing())
    k.cancel(operation)
    assert keys() == [("fingerprint", "f1", 1), ("payload", "p", 1)]
