"""Votes that meet votes, ends, policies and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.held.sql.kernel import HOLD_FOR, Kernel, decision, outcome, payload
from tests.races.arena import Arena

Act = Callable[[Kernel, UUID], Any]

DECIDED = ("conflict", "already-decided")


def approve(k: Kernel, operation: UUID) -> Any:
    return outcome(k.approve(operation, "bob"))


def reject(k: Kernel, operation: UUID) -> Any:
    return outcome(k.reject(operation, "carol"))


def approve_too(k: Kernel, operation: UUID) -> Any:
    return outcome(k.approve(operation, "carol"))


def cancel(k: Kernel, operation: UUID) -> Any:
    return outcome(k.cancel(operation))


PAIRS = {
    "approve-approve": (approve, approve_too, "APPROVED"),
    "approve-reject": (approve, reject, "APPROVED"),
    "reject-approve": (reject, approve, "REJECTED"),
    "cancel-approve": (cancel, approve, "CANCELLED"),
    "cancel-reject": (cancel, reject, "CANCELLED"),
    "reject-cancel": (reject, cancel, "REJECTED"),
}


@pytest.mark.clause("H4.2a", "H4.2c", "H4.1a", "H4.1e", "T4a")
@pytest.mark.parametrize(("first", "second", "state"), PAIRS.values(), ids=PAIRS.keys())
def test_of_two_who_decide_one_wins(arena: Arena, first: Act, second: Act, state: str) -> None:
    operation = arena.held()
    one, other = arena.race(lambda k: first(k, operation), lambda k: second(k, operation))
    assert (one, other) == ((state.lower(), None), DECIDED)
    assert arena.a.state(operation) == state
    assert arena.a.events(operation) == ["requested", state.lower()]
    assert len(arena.a.rows("select from underseal.held_vote where operation_id = %s", operation)) == (
        0 if state == "CANCELLED" else 1
    )


@pytest.mark.clause("H4.2a", "H4.2c", "T4a")
@pytest.mark.parametrize(("first", "second", "state"), PAIRS.values(), ids=PAIRS.keys())
def test_the_second_decides_if_the_first_is_undone(arena: Arena, first: Act, second: Act, state: str) -> None:
    operation = arena.held()
    _, other = arena.race(lambda k: first(k, operation), lambda k: second(k, operation), rollback=True)
    assert other[1] is None
    assert arena.a.events(operation) == ["requested", other[0]]


@pytest.mark.clause("H4.2c", "T4a")
def test_a_cancel_after_an_approval_still_cancels(arena: Arena) -> None:
    operation = arena.held()
    one, other = arena.race(lambda k: approve(k, operation), lambda k: k.cancel(operation))
    assert (one, outcome(other), other["was_approved"]) == (("approved", None), ("cancelled", None), True)
    assert arena.a.events(operation) == ["requested", "approved", "cancelled"]


@pytest.mark.clause("H2.2a", "T4a")
def test_of_two_approvers_of_a_quorum_both_count(arena: Arena) -> None:
    arena.register(votes_required=2)
    operation = arena.held()
    one, other = arena.race(lambda k: approve(k, operation), lambda k: approve_too(k, operation))
    assert (one, other) == (("recorded", None), ("approved", None))
    assert [event["seq"] for event in arena.a.timeline(operation)] == [1, 2, 3]


@pytest.mark.clause("T4a")
def test_one_approver_counts_once_from_two_sessions(arena: Arena) -> None:
    arena.register(votes_required=2)
    operation = arena.held()
    one, other = arena.race(lambda k: approve(k, operation), lambda k: approve(k, operation))
    assert (one, other) == (("recorded", None), ("conflict", "already-voted"))
    assert arena.a.state(operation) == "HELD"


@pytest.mark.clause("H4.2b", "T4a")
def test_a_vote_behind_the_sweep_that_expires_the_row_loses(arena: Arena) -> None:
    operation = arena.held()
    arena.clock.advance(seconds=HOLD_FOR)
    one, other = arena.race(lambda k: arena.sweep(k), lambda k: approve(k, operation))
    assert (one, other) == ({operation: "expired"}, DECIDED)
    assert arena.a.events(operation) == ["requested", "expired"]


@pytest.mark.clause("H4.2b", "T4a")
def test_a_sweep_passes_over_a_row_that_a_vote_decides(arena: Arena) -> None:
    operation = arena.held()
    with arena.a.connection.transaction():
        assert approve(arena.a, operation) == ("approved", None)
        arena.clock.advance(seconds=HOLD_FOR)
        assert arena.sweep(arena.b) == {}
    assert arena.sweep(arena.b) == {}
    assert arena.a.state(operation) == "APPROVED"


@pytest.mark.clause("H4.4b", "T4a")
@pytest.mark.parametrize("act", [approve, reject])
def test_a_vote_that_waited_past_the_expiry_is_refused(arena: Arena, act: Act) -> None:
    operation = arena.held()
    assert arena.behind_a_lock(operation, lambda k: act(k, operation), seconds=HOLD_FOR) == (
        "conflict",
        "expired",
    )
    assert arena.a.events(operation) == ["requested"]


@pytest.mark.clause("H4.4b", "T4a")
def test_a_cancel_that_waited_past_the_expiry_is_refused(arena: Arena) -> None:
    operation = arena.held()
    answer = arena.behind_a_lock(operation, lambda k: cancel(k, operation), seconds=HOLD_FOR)
    assert answer == ("conflict", "expired")
    assert arena.a.events(operation) == ["requested"]


@pytest.mark.clause("H4.7b", "T4a")
def test_who_is_no_approver_any_more_when_the_lock_comes_decides_nothing(arena: Arena) -> None:
    operation = arena.held()

    def withdraw() -> None:
        assert outcome(arena.c.register(arena.type, approvers=["carol"])) == ("updated", None)

    _, answer = arena.race(
        lambda k: k.rows(
            "select from underseal.held_operation where operation_id = %s for no key update", operation
        ),
        lambda k: approve(k, operation),
        meanwhile=withdraw,
    )
    assert answer == ("not-found", None)
    assert arena.a.events(operation) == ["requested"]


@pytest.mark.clause("H4.1e", "T4a")
def test_a_policy_that_became_stricter_while_a_vote_waited_counts(arena: Arena) -> None:
    operation = arena.held()
    _, answer = arena.race(
        lambda k: k.rows(
            "select from underseal.held_operation where operation_id = %s for no key update", operation
        ),
        lambda k: approve(k, operation),
        meanwhile=lambda: arena.c.register(arena.type, votes_required=2),
    )
    assert answer == ("recorded", None)
    assert arena.a.state(operation) == "HELD"


@pytest.mark.clause("H2.9a", "T4a")
def test_a_vote_behind_a_change_of_what_is_shown_is_refused(arena: Arena) -> None:
    operation = arena.held()
    _, answer = arena.race(
        lambda k: k.do(
            "update underseal.held_operation set redacted = '{}' where operation_id = %s", operation
        ),
        lambda k: approve(k, operation),
    )
    assert answer == ("conflict", "version-mismatch")


@pytest.mark.clause("H2.6c", "T4a")
def test_a_vote_and_a_rewrap_both_land(arena: Arena) -> None:
    operation = arena.held()
    row = arena.a.operation(operation)

    def rewrap(k: Kernel) -> Any:
        return outcome(
            k.call(
                "rewrap_operation",
                operation,
                payload(),
                payload("k2"),
                row["fingerprint"],
                row["fingerprint_key_id"],
            )
        )

    one, other = arena.race(rewrap, lambda k: approve(k, operation))
    assert (one, other) == (("rewrapped", None), ("approved", None))
    row = arena.a.operation(operation)
    assert (row["state"], row["payload_key_id"]) == ("APPROVED", "k2")


@pytest.mark.clause("H2.6c", "H2.7", "T4a")
def test_a_rewrap_behind_an_end_brings_no_seal_back(arena: Arena) -> None:
    operation = arena.approved()
    row = arena.a.operation(operation)
    for rewrap in (
        lambda k: k.call(
            "rewrap_operation",
            operation,
            payload(),
            payload("k2"),
            row["fingerprint"],
            row["fingerprint_key_id"],
        ),
        lambda k: k.call("rewrap_vote", operation, "bob", decision(), decision("k2")),
    ):
        _, other = arena.race(
            lambda k: k.rows(
                "select from underseal.held_operation where operation_id = %s for no key update", operation
            ),
            rewrap,
        )
        assert outcome(other) == ("rewrapped", None)
    second = arena.approved()
    row = arena.a.operation(second)
    one, other = arena.race(
        lambda k: cancel(k, second),
        lambda k: k.call(
            "rewrap_operation",
            second,
            payload(),
            payload("k2"),
            row["fingerprint"],
            row["fingerprint_key_id"],
        ),
    )
    assert (one, outcome(other)) == (("cancelled", None), ("conflict", "changed"))
    third = arena.approved()
    one, other = arena.race(
        lambda k: cancel(k, third), lambda k: k.call("rewrap_vote", third, "bob", decision(), decision("k2"))
    )
    assert (one, outcome(other)) == (("cancelled", None), ("conflict", "changed"))


@pytest.mark.clause("H4.7a")
def test_a_denied_call_locks_no_row(arena: Arena) -> None:
    operation = arena.approved()
    held = arena.held()
    run = arena.executing()
    calls: dict[str, Callable[[Kernel], Any]] = {
        "a stranger's vote": lambda k: k.approve(held, "zed"),
        "nobody's vote": lambda k: k.vote(held, None),
        "a rejection without a reason": lambda k: k.vote(held, "bob", "reject", None),
        "a stranger's cancel": lambda k: k.cancel(held, "zed"),
        "an approver's cancel": lambda k: k.cancel(held, "bob"),
        "nobody's cancel": lambda k: k.cancel(held, None, None, True),
        "a stranger's resubmission": lambda k: k.call(
            "claim_resubmission", operation, "zed", "session", None, "w", [], [], []
        ),
        "a resubmission by other means": lambda k: k.call(
            "claim_resubmission", operation, "ann", "token", None, "w", [], [], []
        ),
        "nobody's claim": lambda k: k.claims(None, [arena.type], [1], ["k1"], 10, operation)[0],
        "a stranger's look": lambda k: k.call("get_operation", held, "zed"),
    }
    for name, call in calls.items():
        with arena.a.connection.transaction():
            assert call(arena.a)["outcome"] in ("not-found", "denied", "refused", "conflict"), name
            arena.b.rows(
                "select from underseal.held_operation where operation_id = any(%s) for update nowait",
                [operation, held, run.operation],
            )
