"""One conditional update decides a vote."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.held.sql.kernel import (
    ENDED,
    HASH,
    HOLD_FOR,
    RUN_WITHIN,
    TYPE,
    Kernel,
    decision,
    outcome,
    payload,
)


def unchanged(k: Kernel, before: dict[str, list[str]]) -> None:
    """See that a call left no trace."""
    assert k.everything() == before


@pytest.mark.clause("H2.2a")
def test_an_approval_that_suffices_approves(k: Kernel) -> None:
    operation = k.hold()
    k.clock.advance(minutes=5)
    answer = k.vote(operation, "bob", "approve", "looks right")
    row = k.operation(operation)
    (vote,) = k.rows("select * from underseal.held_vote")
    assert outcome(answer) == ("approved", None)
    assert (answer["state"], answer["votes"], answer["votes_required"], answer["mode"]) == (
        "APPROVED",
        1,
        1,
        "ON_APPROVAL",
    )
    assert row["approved_at"] == row["changed_at"] == vote["cast_at"] == answer["cast_at"] == k.clock.now()
    assert row["run_deadline"] == answer["run_deadline"] == k.clock.now() + timedelta(seconds=RUN_WITHIN)
    assert (row["changed_by"], row["ended_at"], row["sealed_payload"]) == ("bob", None, payload().obj)
    assert (vote["approver"], vote["decision"], vote["reason"]) == ("bob", "approve", "looks right")
    assert (vote["params_hash"], vote["row_version"]) == (HASH, 1)
    assert (vote["sealed_decision"], vote["decision_key_id"]) == (decision().obj, "k1")
    assert k.events(operation) == ["requested", "approved"]


@pytest.mark.clause("H2.7", "H4.5b")
def test_a_rejection_ends_it_and_wipes_the_payload(k: Kernel) -> None:
    operation = k.hold()
    answer = k.reject(operation, note="not on a Friday")
    row = k.operation(operation)
    (vote,) = k.rows("select * from underseal.held_vote")
    assert (outcome(answer), answer["state"]) == (("rejected", None), "REJECTED")
    assert (row["outcome_reason"], row["outcome_detail"], row["ended_at"]) == (
        "rejected",
        "not on a Friday",
        k.clock.now(),
    )
    assert (row["sealed_payload"], row["payload_key_id"], row["fingerprint"], row["approved_at"]) == (
        None,
    ) * 4
    assert (vote["decision"], vote["sealed_decision"]) == ("reject", decision().obj)
    assert k.events(operation) == ["requested", "rejected"]


@pytest.mark.clause("H4.5a")
@pytest.mark.parametrize("note", [None, "", "  "])
def test_a_rejection_without_a_reason_is_refused(k: Kernel, note: str | None) -> None:
    operation = k.hold()
    before = k.everything()
    assert outcome(k.vote(operation, "bob", "reject", note)) == ("refused", "reason-required")
    unchanged(k, before)


@pytest.mark.clause("H2.2a")
def test_a_quorum_takes_that_many_approvers(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=3)
    operation = bare.hold()
    for number, who in enumerate(("bob", "carol"), 1):
        answer = bare.approve(operation, who)
        assert (outcome(answer), answer["state"]) == (("recorded", None), "HELD")
        assert (answer["votes"], answer["votes_required"]) == (number, 3)
        assert bare.operation(operation)["row_version"] == 1
    assert outcome(bare.approve(operation, "dave")) == ("approved", None)
    assert bare.events(operation) == ["requested", "voted", "voted", "approved"]
    assert [event["actor"] for event in bare.timeline(operation)] == ["ann", "bob", "carol", "dave"]
    assert [v["approver"] for v in bare.rows("select approver from underseal.held_vote order by 1")] == [
        "bob",
        "carol",
        "dave",
    ]


def test_an_approver_votes_once(bare: Kernel) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.approve(operation)
    before = bare.everything()
    assert outcome(bare.approve(operation)) == ("conflict", "already-voted")
    assert outcome(bare.reject(operation)) == ("conflict", "already-voted")
    unchanged(bare, before)


def test_any_rejection_ends_it_unless_the_policy_asks_for_more(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=2, rejections_to_end=2)
    operation = bare.hold()
    answer = bare.reject(operation, "bob")
    assert (outcome(answer), answer["state"], answer["votes"]) == (("recorded", None), "HELD", 1)
    bare.approve(operation, "carol")
    assert outcome(bare.reject(operation, "dave")) == ("rejected", None)


def test_a_rejection_counts_as_no_approval(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=2, rejections_to_end=2)
    operation = bare.hold()
    bare.reject(operation, "bob")
    assert outcome(bare.approve(operation, "carol")) == ("recorded", None)
    assert outcome(bare.approve(operation, "dave")) == ("approved", None)


def test_a_policy_that_became_stricter_counts(bare: Kernel) -> None:
    bare.register()
    operation = bare.hold()
    bare.register(votes_required=2)
    assert outcome(bare.approve(operation, "bob")) == ("recorded", None)
    assert outcome(bare.approve(operation, "carol")) == ("approved", None)


def test_a_policy_that_became_laxer_does_not(bare: Kernel) -> None:
    bare.register(votes_required=2, run_within=60)
    operation = bare.hold()
    bare.register(votes_required=1, run_within=3600)
    assert outcome(bare.approve(operation, "bob")) == ("recorded", None)
    answer = bare.approve(operation, "carol")
    assert outcome(answer) == ("approved", None)
    assert answer["run_deadline"] == bare.clock.now() + timedelta(seconds=60)


def test_a_shorter_time_to_decide_counts(bare: Kernel) -> None:
    bare.register()
    operation = bare.hold()
    bare.register(hold_for=60)
    bare.clock.advance(seconds=60)
    before = bare.everything()
    assert outcome(bare.approve(operation)) == ("conflict", "expired")
    unchanged(bare, before)
    bare.clock.advance(seconds=-1)
    assert outcome(bare.approve(operation)) == ("approved", None)


@pytest.mark.clause("H4.1d")
def test_a_policy_that_became_laxer_gives_no_more_time_to_decide(bare: Kernel) -> None:
    bare.register(hold_for=60)
    operation = bare.hold()
    bare.register(hold_for=3600)
    bare.clock.advance(seconds=60)
    assert outcome(bare.approve(operation)) == ("conflict", "expired")


def test_an_approval_by_who_is_no_longer_eligible_does_not_count(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=2)
    operation = bare.hold()
    bare.approve(operation, "bob")
    bare.register(approvers=["carol", "dave"], votes_required=2)
    assert outcome(bare.approve(operation, "carol")) == ("recorded", None)
    assert outcome(bare.approve(operation, "dave")) == ("approved", None)


@pytest.mark.clause("H4.1a", "H4.1e")
@pytest.mark.parametrize("state", ["APPROVED", "EXECUTING", *ENDED])
def test_a_vote_lands_only_on_a_held_row(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    before = k.everything()
    for who in ("bob", "carol"):
        for vote in (k.approve, k.reject):
            answer = vote(operation, who)
            assert (outcome(answer), answer["state"]) == (("conflict", "already-decided"), state)
            assert state in answer["message"]
    unchanged(k, before)


@pytest.mark.clause("H4.1b", "H4.1e")
@pytest.mark.parametrize("other", [b"x" * 32, b"", None])
def test_a_vote_with_another_hash_changes_nothing(k: Kernel, other: bytes | None) -> None:
    operation = k.hold()
    before = k.everything()
    assert outcome(k.vote(operation, params_hash=other)) == ("conflict", "hash-mismatch")
    unchanged(k, before)


@pytest.mark.clause("H4.1c", "H4.1e")
@pytest.mark.parametrize("other", [0, 2, None])
def test_a_vote_with_another_version_changes_nothing(k: Kernel, other: int | None) -> None:
    operation = k.hold()
    before = k.everything()
    assert outcome(k.vote(operation, version=other)) == ("conflict", "version-mismatch")
    unchanged(k, before)


@pytest.mark.clause("H2.9a", "H2.9b", "H4.1c")
@pytest.mark.parametrize(
    ("column", "clause"),
    [
        pytest.param("redacted", "H2.9a", marks=pytest.mark.clause("H2.9a")),
        pytest.param("effect", "H2.9b", marks=pytest.mark.clause("H2.9b")),
    ],
)
def test_a_vote_for_what_is_shown_no_longer_is_refused(k: Kernel, column: str, clause: str) -> None:
    operation = k.hold()
    k.do(f"update underseal.held_operation set {column} = '{{}}'")
    before = k.everything()
    assert outcome(k.approve(operation)) == ("conflict", "version-mismatch")
    unchanged(k, before)
    assert outcome(k.vote(operation, version=2)) == ("approved", None)


@pytest.mark.clause("H4.1d", "H4.1e", "H9.1a")
def test_a_vote_lands_only_before_the_expiry(k: Kernel) -> None:
    operation = k.hold()
    k.clock.advance(seconds=HOLD_FOR)
    before = k.everything()
    assert outcome(k.approve(operation)) == ("conflict", "expired")
    assert outcome(k.reject(operation)) == ("conflict", "expired")
    unchanged(k, before)
    k.clock.advance(microseconds=-1)
    assert outcome(k.approve(operation)) == ("approved", None)


@pytest.mark.clause("H4.4a")
def test_a_vote_in_an_old_transaction_is_judged_by_the_clock_of_now(k: Kernel) -> None:
    operation = k.hold()
    with k.connection.transaction():
        assert k.value("select now() < underseal.clock() + interval '1 s'")
        k.clock.advance(seconds=HOLD_FOR)
        assert outcome(k.approve(operation)) == ("conflict", "expired")


@pytest.mark.clause("H4.3a", "H4.3b")
@pytest.mark.parametrize("token", [None, "t1"])
def test_a_requester_cannot_vote_on_their_own(bare: Kernel, token: str | None) -> None:
    bare.register(approvers=["ann", "bob"])
    operation = bare.hold(token_id=token, auth_kind="token")
    before = bare.everything()
    assert outcome(bare.approve(operation, "ann")) == ("conflict", "self-approval")
    assert outcome(bare.reject(operation, "ann")) == ("conflict", "self-approval")
    unchanged(bare, before)


def test_a_requester_who_is_no_approver_hears_why(k: Kernel) -> None:
    assert outcome(k.approve(k.hold(), "ann")) == ("conflict", "self-approval")


def sight(answer: dict[str, Any], operation: Any) -> dict[str, Any]:
    """An answer without the id that was asked for."""
    return {
        name: value.replace(str(operation), "?") if isinstance(value, str) else value
        for name, value in answer.items()
    }


@pytest.mark.clause("H4.7c", "H4.7d")
def test_a_stranger_gets_one_answer_whatever_the_row_is_like(k: Kernel) -> None:
    nothing = uuid4()
    expected = sight(k.approve(nothing, "zed"), nothing)
    assert (expected["outcome"], expected["state"], expected["run_deadline"]) == ("not-found", None, None)
    rows = [k.reach(state) for state in ("HELD", "APPROVED", "EXECUTING", "REJECTED", "SUCCEEDED")]
    k.clock.advance(seconds=HOLD_FOR)
    rows.append(k.hold())
    before = k.everything()
    for row in rows:
        for answer in (
            k.approve(row, "zed"),
            k.reject(row, "zed"),
            k.vote(row, "zed", "reject", None),
            k.vote(row, "zed", params_hash=b"x" * 32),
            k.vote(row, "zed", version=7),
        ):
            assert sight(answer, row) == expected
    unchanged(k, before)


@pytest.mark.parametrize("nobody", [None, ""])
def test_a_vote_in_nobody_s_name_is_denied(k: Kernel, nobody: str | None) -> None:
    operation = k.hold()
    before = k.everything()
    answer = k.vote(operation, nobody)
    assert (outcome(answer), answer["state"]) == (("denied", "no-principal"), None)
    unchanged(k, before)


@pytest.mark.parametrize("what", ["perhaps", "APPROVE", "", None])
def test_a_vote_is_yes_or_no(k: Kernel, what: str | None) -> None:
    operation = k.hold()
    before = k.everything()
    with pytest.raises(psycopg.Error) as caught:
        k.vote(operation, "bob", what, "because")
    assert caught.value.sqlstate == "US001"
    unchanged(k, before)


@pytest.mark.clause("H4.5b")
@pytest.mark.parametrize("what", ["approve", "reject"])
def test_a_vote_without_a_seal_is_refused(k: Kernel, what: str) -> None:
    operation = k.hold()
    before = k.everything()
    for seal in (payload(), decision(kid="")):
        with pytest.raises(psycopg.Error) as caught:
            k.vote(operation, "bob", what, "because", seal=seal)
        assert caught.value.sqlstate == "US013"
    unchanged(k, before)


def test_the_policy_in_force_is_the_version_s_own(k: Kernel) -> None:
    operation = k.hold()
    k.register(version=2, approvers=["dave"])
    assert outcome(k.approve(operation, "dave")) == ("not-found", None)
    assert outcome(k.approve(operation, "bob")) == ("approved", None)
    assert k.operation(operation)["type"] == TYPE
