"""Taking a request back."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.held.sql.kernel import ENDED, HOLD_FOR, RUN_WITHIN, Kernel, outcome


@pytest.mark.clause("H2.7")
@pytest.mark.parametrize("state", ["HELD", "APPROVED"])
def test_the_requester_cancels_what_waits(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    deadline = k.operation(operation)["run_deadline"]
    answer = k.cancel(operation, "ann", "no longer needed")
    row = k.operation(operation)
    assert outcome(answer) == ("cancelled", None)
    assert (answer["was_approved"], answer["run_deadline"]) == (state == "APPROVED", deadline)
    assert (row["state"], row["outcome_reason"], row["outcome_detail"]) == (
        "CANCELLED",
        "cancelled-by-requester",
        "no longer needed",
    )
    assert (row["sealed_payload"], row["payload_key_id"], row["fingerprint"]) == (None, None, None)
    assert row["ended_at"] == row["changed_at"] == k.clock.now()
    last = k.timeline(operation)[-1]
    assert (last["type"], last["actor"], last["from_state"]) == ("cancelled", "ann", state)


def test_an_operator_cancels_anybody_s(k: Kernel) -> None:
    operation = k.hold()
    assert outcome(k.cancel(operation, "olga", None, True)) == ("cancelled", None)
    row = k.operation(operation)
    assert (row["outcome_reason"], row["changed_by"]) == ("cancelled-by-operator", "olga")


@pytest.mark.parametrize("as_operator", [False, None])
def test_nobody_else_cancels(k: Kernel, as_operator: bool | None) -> None:
    operation = k.hold()
    before = k.everything()
    assert outcome(k.cancel(operation, "bob", "mine", as_operator)) == ("conflict", "not-yours")
    stranger = k.cancel(operation, "zed", "mine", as_operator)
    nothing = uuid4()
    missing = k.cancel(nothing, "zed", "mine", as_operator)
    assert outcome(stranger) == ("not-found", None)
    assert stranger["message"].replace(str(operation), "?") == missing["message"].replace(str(nothing), "?")
    assert stranger["was_approved"] is missing["was_approved"] is None
    assert outcome(k.cancel(operation, None, "mine", as_operator)) == ("denied", "no-principal")
    assert k.everything() == before


def test_an_operator_who_is_wrong_about_the_id_hears_so(k: Kernel) -> None:
    assert outcome(k.cancel(uuid4(), "olga", None, True)) == ("not-found", None)


@pytest.mark.parametrize("state", ["EXECUTING", *ENDED])
def test_what_runs_or_has_ended_is_not_cancelled(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    before = k.everything()
    for answer in (k.cancel(operation), k.cancel(operation, "olga", None, True)):
        assert outcome(answer) == ("conflict", "already-decided")
        assert state in answer["message"]
    assert k.everything() == before


@pytest.mark.clause("H9.1a")
@pytest.mark.parametrize(("state", "seconds"), [("HELD", HOLD_FOR), ("APPROVED", RUN_WITHIN)])
def test_what_has_expired_is_not_cancelled(k: Kernel, state: str, seconds: int) -> None:
    operation = k.reach(state)
    k.clock.advance(seconds=seconds)
    before = k.everything()
    assert outcome(k.cancel(operation)) == ("conflict", "expired")
    assert k.everything() == before
    k.clock.advance(microseconds=-1)
    assert outcome(k.cancel(operation)) == ("cancelled", None)
