"""Operations that run inside their requester's own call."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.held.sql.kernel import RUN_WITHIN, Kernel, outcome


@pytest.fixture
def r(bare: Kernel) -> Kernel:
    bare.register(mode="BY_REQUESTER")
    return bare


def sight(answer: dict[str, Any], operation: Any) -> dict[str, Any]:
    return {
        name: value.replace(str(operation), "?") if isinstance(value, str) else value
        for name, value in answer.items()
    }


@pytest.mark.clause("H7.2a")
def test_the_requester_claims_the_run(r: Kernel) -> None:
    operation = r.reach("APPROVED")
    row = r.resubmit(operation)
    assert (outcome(row), row["held_id"], row["mode"]) == (("claimed", None), operation, "BY_REQUESTER")
    assert (row["requester"], row["held_auth_kind"], r.state(operation)) == ("ann", "session", "EXECUTING")
    assert outcome(r.resubmit(operation)) == ("conflict", "not-approved")


@pytest.mark.clause("H7.2b")
def test_a_repeat_after_the_deadline_runs_nothing(r: Kernel) -> None:
    operation = r.reach("APPROVED")
    r.clock.advance(seconds=RUN_WITHIN)
    before = r.everything()
    assert outcome(r.resubmit(operation)) == ("conflict", "expired")
    assert r.everything() == before


def test_a_repeat_before_the_approval_runs_nothing(r: Kernel) -> None:
    operation = r.hold()
    before = r.everything()
    assert outcome(r.resubmit(operation)) == ("conflict", "not-approved")
    assert r.everything() == before


def expect_nothing(r: Kernel, operation: Any, **who: Any) -> None:
    """See that a repeat runs nothing and learns nothing: it hears what one hears about an id that does not exist."""
    before = r.everything()
    nothing = uuid4()
    answer = r.resubmit(operation, **who)
    assert outcome(answer) == ("not-found", None)
    assert sight(answer, operation) == sight(r.resubmit(nothing, **who), nothing)
    assert r.everything() == before


@pytest.mark.clause("H7.4a")
def test_a_repeat_by_somebody_else_runs_nothing_and_learns_nothing(r: Kernel) -> None:
    operation = r.reach("APPROVED")
    for somebody in ("zed", "bob", "w1"):
        expect_nothing(r, operation, who=somebody)
    assert outcome(r.resubmit(operation, who=None)) == ("denied", "no-principal")


@pytest.mark.clause("H7.2c")
def test_a_repeat_under_another_kind_of_authentication_runs_nothing(r: Kernel) -> None:
    expect_nothing(r, r.reach("APPROVED"), auth_kind="token")


@pytest.mark.clause("H7.2d")
def test_a_repeat_under_another_token_runs_nothing(r: Kernel) -> None:
    operation = r.hold(token_id="t1")
    r.approve(operation)
    expect_nothing(r, operation, token_id="t2")
    expect_nothing(r, operation, token_id=None)
    assert outcome(r.resubmit(operation, token_id="t1")) == ("claimed", None)


def test_a_request_without_a_token_is_repeated_under_any(r: Kernel) -> None:
    assert outcome(r.resubmit(r.reach("APPROVED"), token_id="t9")) == ("claimed", None)


@pytest.mark.clause("H7.1")
def test_what_runs_in_the_background_is_not_run_by_asking_again(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    before = k.everything()
    assert outcome(k.resubmit(operation)) == ("conflict", "other-mode")
    assert k.everything() == before


@pytest.mark.clause("H5.5b")
def test_a_repeat_where_the_key_is_missing_leaves_it_approved(r: Kernel) -> None:
    operation = r.reach("APPROVED")
    before = r.everything()
    assert outcome(r.resubmit(operation, keys=["k2"])) == ("conflict", "unserved")
    assert r.everything() == before


@pytest.mark.clause("H7.3b")
def test_the_result_of_such_a_run_is_stored_nowhere(r: Kernel) -> None:
    operation = r.reach("APPROVED")
    row = r.resubmit(operation)
    answer = r.call("finish_run", operation, row["run_token"], "SUCCEEDED", None, None, '{"token":"sesame"}')
    assert outcome(answer) == ("finished", None)
    assert (r.state(operation), r.operation(operation)["result"]) == ("SUCCEEDED", None)
    assert "sesame" not in str(r.everything())
